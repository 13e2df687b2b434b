"""Rows on stdout, as a table for people, as JSON or CSV for programs; and the end of a run."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from capim.store.errors import RequestError, plain, shortened, unknown, without_credentials
from capim.store.files import write_csv, write_json

if TYPE_CHECKING:
    from capim.tasks.runtime.references import EmbedRef

Row = Mapping[str, Any]

FORMATS = ("table", "json", "csv")
_NAMED = 8  # columns without room that are named
RESULT_COLUMNS = (
    "encoder", "corpus", "protocol", "metric", "value", "ci_low", "ci_high", "n_queries", "n_clusters", "tie_share",
)  # fmt: skip


def cell(value: object) -> str:
    """A value as a table shows it: numbers with four decimals, small and large ones with four digits.

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


def print_embedded(references: tuple[EmbedRef, ...]) -> None:
    """What was encoded, as lines on standard error."""
    for corpus in {reference.corpus.fingerprint: reference.corpus for reference in references}.values():
        if corpus.note:
            sys.stderr.write(f"corpus {corpus.name}: {plain(corpus.note)}\n")
        if corpus.changes:
            lines = "".join(f"\n  - {plain(change)}" for change in corpus.changes)
            sys.stderr.write(f"corpus {corpus.name} changed since it was stored; it was encoded again:{lines}\n")
        if corpus.n_skipped:
            more = ["…"] if corpus.n_skipped > len(corpus.skipped) else []
            reasons = plain("; ".join([*map(shortened, corpus.skipped), *more]))
            sys.stderr.write(f"corpus {corpus.name}: {corpus.n_skipped} items skipped: {reasons}\n")
    for reference in references:
        n_stored = reference.n_items - reference.n_encoded
        line = f"{reference.n_encoded:,} items encoded, {n_stored:,} were already stored"
        if reference.batches:
            sizes = " and ".join(f"{size} {modality}s" for modality, size in reference.batches.items())
            line += f", {sizes} per forward pass"
        if reference.n_truncated:
            line += f", {reference.n_truncated:,} captions truncated at the model's maximum length"
        if reference.rounding:
            line += f", {reference.rounding}"
        sys.stderr.write(f"{reference.sets.encoder} on {reference.sets.corpus}: {line}\n")
    for note in dict.fromkeys(note for reference in references for note in reference.notes):
        sys.stderr.write(f"{plain(note)}\n")


def print_answer(page: str) -> None:
    """What the report recommends, on standard error."""
    from capim.reports.rows.snapshot import answer_lines

    for line in answer_lines(page):
        sys.stderr.writelines(f"{part}\n" for part in folded(plain(line), sys.stderr))
    sys.stderr.flush()


def print_report(page: str) -> None:
    """What the report recommends, on standard error; and its path, alone on standard output, for scripts."""
    print_answer(page)
    sys.stdout.write(f"{link(page, sys.stdout)}\n")


def print_own_report(page: str, corpora: Collection[str], words: Sequence[str]) -> None:
    """The command that reports these corpora of a run alone, on standard error, where its report has more of them."""
    from capim.reports.rows.snapshot import corpora_of

    n_corpora = len(corpora_of(page))
    if n_corpora > len(corpora):
        alone = shlex.join(["capim", "report", *words, "--corpora", ",".join(sorted(corpora))])
        sys.stderr.write(f"the report has all {n_corpora} corpora of the store; those of this run alone: `{alone}`\n")


def terminal_width(out: TextIO) -> int | None:
    """The columns of the terminal that a stream is; None if it is none, as a pipe or a file."""
    return (os.get_terminal_size(out.fileno()).columns or 80) if out.isatty() else None


def folded(text: str, out: TextIO) -> list[str]:
    """A text in lines that fit the terminal, from the second on indented; one line where there is no terminal."""
    width = terminal_width(out)
    return textwrap.wrap(text, width, subsequent_indent="  ", break_on_hyphens=False) if width else [text]


def link(where: str, out: TextIO) -> str:
    """The path or URI of a page: on a terminal as a hyperlink (OSC 8), which terminals without them show as it is."""
    where = without_credentials(where)
    if not out.isatty():
        return where
    target = where if "://" in where else Path(where).resolve().as_uri()
    return f"\x1b]8;;{target}\x1b\\{plain(where)}\x1b]8;;\x1b\\"


def show_rows(
    args: argparse.Namespace,
    rows: Iterable[Row],
    *,
    columns: Sequence[str] | None = None,
    keep: Sequence[str] = (),
    none: Callable[[], str] | None = None,
) -> int:
    """Print rows in the form that ``--format``, ``--columns`` and ``--wide`` name; returns 1 if there are none, else 0.

    Raises:
        RequestError: As :func:`print_rows`; or ``--wide`` without a table.
    """
    form, chosen = args.format or "table", args.columns or ()
    if args.wide and form != "table":
        raise RequestError(f"--wide has no effect with --format {form}; leave it out")
    return print_rows(rows, form=form, columns=columns, keep=keep, chosen=chosen, wide=args.wide, none=none)


def print_rows(
    rows: Iterable[Row],
    *,
    form: str,
    columns: Sequence[str] | None = None,
    keep: Sequence[str] = (),
    chosen: Sequence[str] = (),
    wide: bool = False,
    none: Callable[[], str] | None = None,
    out: TextIO | None = None,
) -> int:
    """Print rows; returns 1 if there are none, else 0.

    On a terminal a table is as wide as the terminal, and a line names the columns that found no room; elsewhere it is
    as wide as it needs. No rows: JSON prints ``[]``, CSV its header from ``columns`` if given, and the reason is
    written to stderr; where none is known, a table writes ``no rows``.

    Args:
        rows: All with the same columns.
        form: One of ``FORMATS``.
        columns: Picks and orders the columns of a table; JSON and CSV have every column.
        keep: The columns of a table that find room first.
        chosen: Picks and orders the columns in every form.
        wide: Every column of a table, in any width.
        none: Gives the reason for no rows.
        out: Standard output unless given.

    Raises:
        RequestError: A chosen column does not exist.
    """
    out = out or sys.stdout
    listed = [dict(row) for row in rows]
    known = list(listed[0]) if listed else list(columns or [])
    if listed and (faults := [unknown("column", name, known) for name in chosen if name not in known]):
        raise RequestError(faults)
    names = list(chosen) or known
    if form != "table" and out.isatty():  # files and programs get the text as it is
        listed = [{name: plain(v) if isinstance(v, str) else v for name, v in row.items()} for row in listed]
    if form == "json":
        write_json([{name: row[name] for name in chosen} for row in listed] if chosen else listed, out)
    elif form == "csv":
        write_csv([{name: row[name] for name in names} for row in listed], names, out)
    elif listed:
        if columns and not chosen and not wide:
            names = [name for name in columns if name in known]
        _print_table(listed, names, None if wide else terminal_width(out), keep, out)
    if not listed and (none or form == "table"):
        sys.stderr.write(f"{none() if none else 'no rows'}\n")
    return int(not listed)


def _print_table(
    rows: Sequence[Row], names: Sequence[str], width: int | None, keep: Sequence[str], out: TextIO
) -> None:
    from capim.flows.terminal.tables import Column, lay_out

    columns = [
        Column(
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
