"""Output of commands: rows as a table for people, as JSON or CSV for programs; the end of a run; progress.

Results go to standard output, everything else to standard error.
"""

from __future__ import annotations

import os
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO

from capim.store.errors import RequestError, plain, shortened, unknown, without_credentials
from capim.store.files import write_csv, write_json
from capim.store.schema import FIGURE
from capim.tasks.hub.progress import DOWNLOADED, QUIET_SECONDS, Overall, Progress, clock, listening

if TYPE_CHECKING:
    import pyarrow as pa

    from capim.tasks.references import EmbedRef

Row = Mapping[str, object]

_NAMED = 8  # columns that do not fit and are named
RESULT_COLUMNS = ("encoder", *FIGURE, "value", "ci_low", "ci_high", "n_queries", "n_clusters", "tie_share")


def cell(value: object) -> str:
    """Return a value as a table shows it: numbers with four decimals, small and large ones with four digits.

    Examples:
        >>> [cell(value) for value in (0.97512, 2, 1.25e-7, True, None)]
        ['0.9751', '2', '1.25e-07', 'yes', '-']
    """
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) >= 1000 or 0 < abs(value) < 1e-4 else f"{value:.4f}"
    if isinstance(value, (list, tuple)):
        return ", ".join(cell(v) for v in value)
    if isinstance(value, datetime):
        return value.isoformat(timespec="seconds")
    return plain(shortened(str(value)))


def cells_of(row: Any) -> Row:
    """Return the cells of a row by the names of their columns; a row is a mapping, a named tuple or a dataclass."""
    if isinstance(row, Mapping):
        return dict(row)
    return row._asdict() if isinstance(row, tuple) else dict(vars(row))  # type: ignore[attr-defined]


def print_embedded(references: tuple[EmbedRef, ...]) -> None:
    """Print the encoded sets on standard error."""
    for corpus in {reference.corpus.fingerprint: reference.corpus for reference in references}.values():
        if corpus.note:
            say(f"corpus {corpus.name}: {corpus.note}")
        if corpus.changes:
            changes = [f"  - {change}" for change in corpus.changes]
            say(f"corpus {corpus.name} changed since it was stored; it was encoded again:", *changes)
        if corpus.n_skipped:
            more = ["…"] if corpus.n_skipped > len(corpus.skipped) else []
            reasons = "; ".join([*map(shortened, corpus.skipped), *more])
            say(f"corpus {corpus.name}: {corpus.n_skipped} items skipped: {reasons}")
    for reference in references:
        n_stored = reference.n_items - reference.n_encoded
        parts = [f"{reference.n_encoded:,} items encoded, {n_stored:,} were already stored"]
        if reference.batches:
            sizes = " and ".join(f"{size} {modality}s" for modality, size in reference.batches.items())
            parts.append(f"{sizes} per forward pass")
        if reference.n_truncated:
            parts.append(f"{reference.n_truncated:,} captions truncated at the model's maximum length")
        if reference.rounding:
            parts.append(reference.rounding)
        say(f"{reference.sets.encoder} on {reference.sets.corpus}: {', '.join(parts)}")
    say(*dict.fromkeys(note for reference in references for note in reference.notes))


def print_answer(page: str) -> None:
    """Print what the report recommends, on standard error."""
    from capim.reports.rows.snapshot import answer_of

    for line in answer_of(page):
        sys.stderr.writelines(f"{part}\n" for part in folded(plain(line), sys.stderr))
    sys.stderr.flush()


def print_report(page: str) -> None:
    """Print what the report recommends, on standard error; and only its path on standard output, for scripts."""
    print_answer(page)
    sys.stdout.write(f"{link(page, sys.stdout)}\n")


def terminal_width(out: TextIO) -> int | None:
    """Return the width of the terminal behind a stream, in columns; None for a pipe or a file."""
    return (os.get_terminal_size(out.fileno()).columns or 80) if out.isatty() else None


def folded(text: str, out: TextIO) -> list[str]:
    """Return a text as lines that fit the terminal, indented from the second on; one line without a terminal."""
    width = terminal_width(out)
    return textwrap.wrap(text, width, subsequent_indent="  ", break_on_hyphens=False) if width else [text]


def link(where: str, out: TextIO) -> str:
    """Return the path or URI of a page; on a terminal as a hyperlink (OSC 8), which other terminals show as text."""
    where = without_credentials(where)
    if not out.isatty():
        return where
    target = where if "://" in where else Path(where).absolute().as_uri()  # a link to a page stays as it is
    return f"\x1b]8;;{target}\x1b\\{plain(where)}\x1b]8;;\x1b\\"


@dataclass(frozen=True, kw_only=True)
class Form:
    """Options of printed rows.

    Args:
        format: output format of the rows (default: table)
        columns: only these columns, in this order
        wide: tables: show every column, even if wider than the terminal
    """

    format: Literal["table", "json", "csv"] | None = None
    columns: Annotated[tuple[str, ...], "A,B"] = ()
    wide: bool = False

    @property
    def table(self) -> bool:
        """True if a table is printed."""
        return self.format in (None, "table")

    def refuse(self, where: str) -> None:
        """Raise if any of it was given, since no rows are printed here."""
        refuse_unused(where, **{f"--{name}": value for name, value in vars(self).items()})


TABLE = Form()
PIPE_WIDTH = 120  # characters of a list in a pipe or a file, which may have 380


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Rows that a command prints, and that are a frame in Python.

    Args:
        rows: All with the same columns; they are read once.
        columns: Picks and orders the columns of a table and of a frame; JSON and CSV have every column.
        keep: The columns of a table that are shown first.
        none: Gives the reason for no rows.
        code: Exit code; None: 1 if there are no rows, else 0.
        instead: For some forms shows something else, and says whether it did.
    """

    rows: pa.Table | Iterable[object]
    columns: Sequence[str] | None = None
    keep: Sequence[str] = ()
    none: Callable[[], str] | None = None
    code: int | None = None
    instead: Callable[[Form], bool] | None = None

    def read(self) -> pa.Table | list[Row]:
        """Return the rows."""
        return self.rows if hasattr(self.rows, "to_pylist") else [*map(cells_of, self.rows)]  # type: ignore[return-value]

    def print(self, form: Form, out: TextIO | None = None) -> int:
        """Print the rows; return the exit code.

        On a terminal a table is as wide as the terminal, and a line names the columns that do not fit. In a pipe a
        table with ``keep`` has 120 characters, any other as many as it needs. No rows: JSON prints ``[]``, CSV its
        header from ``columns`` if given, and the reason is written to stderr; without one a table writes ``no rows``.

        Raises:
            RequestError: A chosen column does not exist, or a value is beyond those of Python.
        """
        if self.instead and self.instead(form):
            return self.code or 0
        out = out or sys.stdout
        read = self.read()
        try:
            listed = read if isinstance(read, list) else read.to_pylist()
        except (OverflowError, ValueError) as error:  # a day in the year 5,881,580
            what = f"a value cannot be shown: {error}"
            raise RequestError(f"{what}; select it as text: CAST(column AS VARCHAR)") from None
        known = list(listed[0]) if listed else list(self.columns or [])
        if listed and (faults := [unknown("column", name, known) for name in form.columns if name not in known]):
            raise RequestError(faults)
        names = list(form.columns) or known
        if not form.table and out.isatty():  # files and programs get the text as it is
            listed = [{name: plain(v) if isinstance(v, str) else v for name, v in row.items()} for row in listed]
        if form.format == "json":
            write_json([{name: row[name] for name in names} for row in listed], out)
        elif form.format == "csv":
            write_csv(listed, names, out)
        elif listed:
            if self.columns and not form.columns and not form.wide:
                names = [name for name in self.columns if name in known]
            width = terminal_width(out) or (PIPE_WIDTH if self.keep and not form.columns else None)
            _print_table(listed, names, None if form.wide else width, self.keep, out)
        if not listed and (self.none or form.table):
            sys.stderr.write(f"{self.none() if self.none else 'no rows'}\n")
        return int(not listed) if self.code is None else self.code


def is_given(value: object) -> bool:
    """True for the value of an option that was given; 0 is one, and None, False and an empty tuple are not."""
    return value is not None and value is not False and value != ()


def refuse_unused(where: str, **options: object) -> None:
    """Raise for options that were given and have no effect here: how they are given, and their values.

    Raises:
        RequestError: Names them all.
    """
    if given := [option for option, value in options.items() if is_given(value)]:
        raise RequestError([f"{option} has no effect {where}; leave it out" for option in given])


def say(*lines: str) -> None:
    """Write lines on standard error."""
    sys.stderr.writelines(f"{plain(line)}\n" for line in lines)


def _print_table(
    rows: Sequence[Row], names: Sequence[str], width: int | None, keep: Sequence[str], out: TextIO
) -> None:
    from capim.flows.tables import TextColumn, lay_out

    columns = [
        TextColumn(
            name=plain(name),
            cells=tuple(cell(row.get(name)) for row in rows),
            numeric=all(isinstance(row.get(name), (int, float, type(None))) for row in rows),
        )
        for name in names
    ]
    lines, left_out = lay_out(columns, width, keep)
    out.writelines(f"{line}\n" for line in lines)
    if left_out:
        out.flush()
        more = f" and {len(left_out) - _NAMED} more" if len(left_out) > _NAMED else ""
        note = f"no room for {', '.join(left_out[:_NAMED])}{more}: --wide shows them, --columns A,B chooses"
        sys.stderr.writelines(f"{line}\n" for line in folded(note, out))


# --- Progress: on a terminal one line for the whole run, with the time left; elsewhere a line a minute.

EVERY_SECONDS = 60.0  # a line where there is no terminal


@contextmanager
def bars(*, quiet: bool = False, flow: str = "", corpora: int = 1, title: str = "") -> Iterator[None]:
    """Show the progress of everything that the block runs: a run of ``flow``, or separate pieces of work.

    ``corpora`` is how many an encoder encodes, ``title`` what the run is called.
    """
    overall = Overall.of(flow, corpora)
    if quiet:
        yield
    elif sys.stderr.isatty():
        with _terminal(overall):
            yield
    else:
        if title:
            say(f"starting {title}")
        with listening(_lines(overall)):
            yield


@contextmanager
def _terminal(overall: Overall) -> Iterator[None]:
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn
    from rich.progress import Progress as Bar
    from rich.table import Column

    widest = Column(no_wrap=True, overflow="ellipsis", ratio=1)
    name = TextColumn("{task.description}", markup=False, table_column=widest)
    left = TextColumn("{task.fields[left]}", markup=False, table_column=Column(no_wrap=True))
    columns = (BarColumn(bar_width=20), TaskProgressColumn(), left, name)
    console, begun = Console(stderr=True), time.monotonic()
    with Bar(*columns, console=console, expand=True, transient=True) as bar:
        line = bar.add_task("starting", total=1.0, left="")

        def listen(progress: Progress) -> None:
            seconds = time.monotonic() - begun
            if progress.unit == DOWNLOADED and not progress.done:
                console.print(progress.work, markup=False, highlight=False)
            if ended := overall.listen(progress, seconds):
                console.print(ended, markup=False, highlight=False)
            rest = overall.left(seconds)
            about = "" if rest is None else f"about {clock(rest)} left"
            bar.update(line, completed=min(overall.fraction, 1.0), description=overall.now, left=about)

        with listening(listen):
            yield


def _lines(overall: Overall) -> Callable[[Progress], None]:
    """Return a function that writes a line at the end of every long step, and one a minute on work in progress."""
    begun = step_begun = written = time.monotonic()

    def listen(progress: Progress) -> None:
        nonlocal step_begun, written
        now = time.monotonic()
        if progress.unit == DOWNLOADED and not progress.done:
            say(progress.work)
        if progress.step and progress.done == 0:
            step_begun = now
        if (ended := overall.listen(progress, now - begun)) and now - step_begun >= QUIET_SECONDS:
            say(ended)
        if now - written >= EVERY_SECONDS:
            written, rest = now, overall.left(now - begun)
            about = "" if rest is None else f", about {clock(rest)} left"
            say(f"{overall.fraction:.0%} in {clock(now - begun)}{about}{overall.now and ': '}{overall.now}")

    return listen
