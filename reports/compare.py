"""The page about two reports: ``capim report --compare OLD NEW``."""

from __future__ import annotations

import json
from pathlib import Path

from reports import format as show
from reports.destination import write_files
from reports.elements.cells import POINTS, RANKS, metric_title, range_text, value_text
from reports.elements.page import Block, Cell, Column, Mark, Notice, Report, Section, Table, Text
from reports.render import render_html, render_markdown
from reports.rows.snapshot import Snapshot, changed_figures, changed_settings, load_snapshot
from store.types import digest16
from tasks.reference.changes import FigureChange

NOTE = (
    "Paired test: the sign-flip test of the two states on their shared queries, as stored. Unpaired bound: an upper "
    "bound of p from the two standard errors, for figures without such a test; where it is large, `capim compare` "
    "settles it. Same rows: computed from the same embeddings under the same protocol, so only the code or the "
    "settings of the statistics can differ. Adjusted p: Holm over all figures of both reports that have a p."
)
LEADING = ("t2i/all", "i2t/any", "winoground")  # what a warning names first
NAMED = 8  # figures that a warning names
LONG = 40  # rows above which the changes that are not significant are folded


def write_comparison(old: str | Path, new: str | Path, target: str | Path) -> str:
    """Writes ``compare.html`` and ``compare.md`` about two reports.

    Args:
        old: A report: its folder, page or ``results.json``.
        new: Another one.
        target: A folder, made if need be, or an address.

    Returns:
        The path or address of ``compare.html``.

    Raises:
        RequestError: One of them is no report.
    """
    report = compare(load_snapshot(old), load_snapshot(new))
    write_files(target, {"compare.md": render_markdown(report), "compare.html": render_html(report)})
    return f"{str(target).rstrip('/')}/compare.html"


def compare(old: Snapshot, new: Snapshot) -> Report:
    """What changed from one report to another."""
    shared = changed_figures(old, new)
    moved = [c for c in shared if c.difference]
    real = [c for c in moved if c.significant]
    worse = [c for c in real if c.worse]
    sections = [_figures(moved, shared, worse), _causes(old, new, moved), _coverage(old, new)]
    return Report(
        title="What changed",
        subtitle=f"from {old.name} to {new.name}",
        facts=(
            ("Figures in both", show.number(len(shared), 0)),
            ("Changed", show.number(len(moved), 0)),
            ("More than chance", show.number(len(real), 0)),
            ("Worse", show.number(len(worse), 0)),
        ),
        sections=tuple(section for section in sections if section is not None),
        thumbnails=(),
        colophon="Made by capim from the results.json of the two reports.",
        sources=digest16([old.name, new.name, [[*c.key, c.difference, c.p, c.basis] for c in shared]]),
    )


def _figures(moved: list[FigureChange], shared: list[FigureChange], worse: list[FigureChange]) -> Section:
    blocks: list[Block] = []
    if worse:
        first = sorted(worse, key=lambda c: (c.key[1] not in LEADING, c.p_adjusted, c.key))[:NAMED]
        items = [f"{c.key[3]} on {c.key[0]}, {c.key[1]} {metric_title(c.key[2])}: {_difference(c)}" for c in first]
        if len(worse) > NAMED:
            items.append(f"and {show.count(len(worse) - NAMED, 'figure')} more, in the table")
        blocks.append(Notice(title="Worse, beyond chance", items=tuple(items), mark="bad"))
    significant = [c for c in moved if c.significant]
    if moved and len(moved) > LONG and significant:
        blocks.append(_table("changes-sure", "Changed beyond chance", significant))
        blocks.append(_table("changes", "Every changed figure", moved, folded=True))
    elif moved:
        blocks.append(_table("changes", "Changed figures, smallest p-value first", moved))
    else:
        blocks.append(Text(text=f"All {show.count(len(shared), 'figure')} in both are the same to the last digit."))
    return Section(
        id="figures",
        title="Figures",
        lead="Every figure that both reports have and that is not the same in both.",
        blocks=tuple(blocks),
    )


def _table(name: str, caption: str, moved: list[FigureChange], *, folded: bool = False) -> Table:
    order = sorted(moved, key=lambda c: (c.p is None, c.p or 0.0, c.key))
    return Table(
        id=name,
        caption=caption,
        columns=(
            Column(heading="Encoder"),
            Column(heading="corpus"),
            Column(heading="protocol"),
            Column(heading="metric"),
            Column(heading="old", numeric=True),
            Column(heading="new", numeric=True),
            Column(heading="difference", numeric=True),
            Column(heading="p", numeric=True),
            Column(heading="adjusted p", numeric=True, explain="Holm over all figures that have a p"),
            Column(heading="basis"),
        ),
        rows=tuple(_row(c) for c in order),
        sortable=True,
        folded=f"All {show.count(len(moved), 'changed figure')}" if folded else "",
        note=NOTE,
    )


def _row(c: FigureChange) -> tuple[Cell, ...]:
    corpus, protocol, metric, encoder = c.key
    significant = c.significant
    mark: Mark = "" if not significant else "bad" if c.worse else "good"
    bound = "≤ " if c.basis == "unpaired bound" and c.p is not None and c.p >= 0.001 else ""
    return (
        Cell(text=encoder),
        Cell(text=corpus),
        Cell(text=protocol),
        Cell(text=metric_title(metric)),
        *(
            Cell(
                text=value_text(metric, r["value"]),
                note=range_text(metric, r["ci_low"], r["ci_high"]),
                sort=show.exact(r["value"]),
            )
            for r in (c.old, c.new)
        ),
        Cell(text=_difference(c), sort=show.exact(c.difference), mark=mark),
        Cell(text=f"{bound}{show.p_value(c.p)}", sort=show.exact(c.p), mark="" if significant else "muted"),
        Cell(text=show.p_value(c.p_adjusted), sort=show.exact(c.p_adjusted), mark="" if significant else "muted"),
        Cell(text=c.basis),
    )


def _difference(c: FigureChange) -> str:
    return show.number(c.difference) if c.key[2] in RANKS | POINTS else show.points(c.difference, 2)


def _causes(old: Snapshot, new: Snapshot, moved: list[FigureChange]) -> Section | None:
    changes = changed_settings(old, new)
    if not changes:
        if not moved:
            return None
        text = "The reports record the same models, corpora, libraries and devices."
        return Section(
            id="causes", title="Possible causes", lead=text, blocks=(Text(text="Look for a change of the code."),)
        )
    table = Table(
        id="differences",
        caption="Differences besides the figures",
        columns=(Column(heading="subject"), Column(heading="setting"), Column(heading="old"), Column(heading="new")),
        rows=tuple(
            (Cell(text=c.subject), Cell(text=c.setting), Cell(text=_setting(c.old)), Cell(text=_setting(c.new)))
            for c in changes
        ),
    )
    return Section(
        id="causes",
        title="Possible causes",
        lead="Differences of models, corpora, libraries, devices and settings that the two reports record.",
        blocks=(table,),
    )


def _setting(value: object) -> str:
    if value is None:
        return show.ABSENT
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _coverage(old: Snapshot, new: Snapshot) -> Section | None:
    """Figures that only one of the two has, by encoder, corpus and protocol."""
    rows = []
    for label, one, other in (("only old", old, new), ("only new", new, old)):
        groups: dict[tuple[str, str, str], list[str]] = {}
        for corpus, protocol, metric, encoder in sorted(one.results.keys() - other.results.keys()):
            groups.setdefault((encoder, corpus, protocol), []).append(metric_title(metric))
        rows += [
            (Cell(text=e), Cell(text=c), Cell(text=p), Cell(text=", ".join(metrics)), Cell(text=label))
            for (e, c, p), metrics in groups.items()
        ]
    if not rows:
        return None
    headings = ("Encoder", "corpus", "protocol", "metrics", "where")
    return Section(
        id="coverage",
        title="Figures of only one report",
        lead="",
        blocks=(
            Table(
                id="only-one",
                caption="Figures without a counterpart",
                columns=tuple(Column(heading=h) for h in headings),
                rows=tuple(rows),
                sortable=True,
            ),
        ),
    )
