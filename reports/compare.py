"""The page about two reports: ``capim report --compare OLD NEW``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from operator import itemgetter
from pathlib import Path
from typing import TypeAlias

from capim.reports import format as show
from capim.reports.destination import write_files
from capim.reports.elements import tables, words
from capim.reports.elements.page import Block, Cell, Evidence, Mark, Report, Section, Table
from capim.reports.elements.tables import estimate, numbers, pivot, texts, value
from capim.reports.render import render_html, render_markdown
from capim.reports.rows.snapshot import Snapshot, changed_figures, changed_settings, load_snapshot
from capim.store.current import grouped
from capim.store.types import MetricFacts, digest16
from capim.tasks.protocols import MEANS, Protocol
from capim.tasks.reference.changes import FigureChange

Metrics: TypeAlias = Mapping[str, MetricFacts]

NOTE = (
    "Paired test: the sign-flip test of the two states on their shared queries, as stored. Unpaired bound: an upper "
    "bound of p from the two standard errors, for results without such a test; if it is large, run `capim compare`. "
    "Same rows: computed from the same embeddings under the same protocol, so only the code or the "
    "statistical settings can differ. Another version: the code of the metric differs, so nothing was tested. "
    "Adjusted p: Holm over all results of both reports that have a p."
)
REPLACED = "`capim import --replace` removes results; import new vectors with a `--revision` of their own to compare."
NAMED = 8  # results that a warning names


def write_comparison(old: str | Path, new: str | Path, target: str | Path) -> str:
    """Write ``compare.html`` and ``compare.md`` about two reports; return the path or address of the first.

    ``old`` and ``new`` are folders of reports, their pages or their ``results.json``; ``target`` is a folder, made if
    need be, or an address.

    Raises:
        RequestError: ``old`` or ``new`` is not a report.
    """
    report = compare(load_snapshot(old), load_snapshot(new))
    write_files(target, {"compare.md": render_markdown(report), "compare.html": render_html(report)})
    return f"{str(target).rstrip('/')}/compare.html"


def compare(old: Snapshot, new: Snapshot) -> Report:
    """Return the changes from one report to another."""
    shared = changed_figures(old, new)
    moved = [c for c in shared if c.difference]
    real = [c for c in moved if c.significant]
    worse = [c for c in real if c.worse]
    counted = {"Figures in both": shared, "Changed": moved, "Significant": real, "Worse": worse}
    metrics = {**old.metrics, **new.metrics}
    made = _figures(old, new, metrics, shared), _causes(old, new, moved), _coverage(metrics, old, new)
    return Report(
        title="Changes",
        subtitle=f"from {old.name} to {new.name}",
        facts=tuple((name, show.number(len(changes), 0)) for name, changes in counted.items()),
        sections=tuple(section for section in made if section.blocks),
        thumbnails={},
        colophon="Made by capim from the results.json of the two reports.",
        sources=digest16([old.name, new.name, [[*c.key, c.difference, c.p, c.basis] for c in shared]]),
    )


def _removed(which: str, one: Snapshot, other: Snapshot) -> str:
    """Return a line on the removed results of a run, with the encoders that only the other run has there."""
    n, protocols = len(one.removed), show.listing(sorted({*one.removed} - {"*"}))
    only = (key for key in other.results.keys() - one.results.keys() if key[1] in one.removed)
    names = show.listing(sorted({f"{encoder} on {corpus}" for corpus, _, _, encoder in only}))
    text = f"{show.count(n, 'result')} of the {which} run, by {protocols}"
    return f"{text}: nothing of {names} can be compared" if names else text


def _figures(old: Snapshot, new: Snapshot, metrics: Metrics, shared: list[FigureChange]) -> Section:
    def place(c: FigureChange) -> tuple[object, ...]:
        of = Protocol.of(c.key[1])
        return not (of.is_main or of.is_all_quadruples or of.id in MEANS), c.p_adjusted, c.key

    moved, blocks = [c for c in shared if c.difference], list[Block]()
    if removed := [_removed(*of) for of in (("earlier", old, new), ("later", new, old)) if of[1].removed]:
        blocks.append(Evidence(title="Removed since, and not compared", lines=(*removed, REPLACED), mark="bad"))
    if worse := [c for c in moved if c.significant and c.worse]:
        items = []
        for c in sorted(worse, key=place)[:NAMED]:
            corpus, protocol, metric, encoder = c.key
            difference = words.difference(metrics[metric], c.difference, 2)
            items.append(f"{encoder} on {corpus}, {protocol} {metrics[metric].label}: {difference}")
        if len(worse) > NAMED:
            items.append(f"and {show.count(len(worse) - NAMED, 'result')} more, in the table")
        blocks.append(Evidence(title="Significantly worse", lines=tuple(items), mark="bad"))
    if moved:
        blocks.append(_table(old, new, metrics, moved))
    else:
        n, equal = show.count(len(shared), "shared result"), shared and not removed
        said = f"All {n} are equal to the last digit." if equal else f"None of {n} differs."
        blocks.append(Evidence(lines=(said,)))
    return Section(
        id="figures", title="Results", lead="Results in both reports with different values.", blocks=tuple(blocks)
    )


def _table(old: Snapshot, new: Snapshot, metrics: Metrics, moved: list[FigureChange]) -> Table:
    def difference(c: FigureChange) -> Cell:
        of, size = metrics[c.key[2]], c.difference
        mark: Mark = "" if not c.significant else "bad" if c.worse else "good"
        return value(size, words.difference(of, size, 2), mark=mark)

    def p_cell(p: float | None, c: FigureChange, bound: str = "") -> Cell:
        return value(p, f"{bound}{show.p_value(p)}", mark="" if c.significant else "muted")

    def p_raw(c: FigureChange) -> Cell:
        return p_cell(c.p, c, "≤ " if c.basis == "unpaired bound" and c.p is not None and c.p >= 0.001 else "")

    return pivot(
        "changes",
        "Changed results, smallest p-value first",
        sorted(moved, key=lambda c: (c.p is None, c.p or 0.0, c.key)),
        *tables.names(lambda c: (c.key[3], *c.key[:2])),
        tables.metrics(lambda c: metrics[c.key[2]]),
        numbers("old", lambda c: estimate(metrics[c.key[2]], old.results[c.key])),
        numbers("new", lambda c: estimate(metrics[c.key[2]], new.results[c.key])),
        numbers("difference", difference),
        numbers("p", p_raw),
        numbers("adjusted p", lambda c: p_cell(c.p_adjusted, c), explain="Holm over all results that have a p"),
        texts("basis", lambda c: c.basis),
        note=NOTE,
    )


def _causes(old: Snapshot, new: Snapshot, moved: list[FigureChange]) -> Section:
    def setting(value: object) -> str:
        return show.ABSENT if value is None else value if isinstance(value, str) else json.dumps(value, sort_keys=True)

    changes = changed_settings(old, new)
    lead = "The reports record the same models, corpora, libraries and devices."
    blocks: tuple[Block, ...] = (Evidence(lines=("Look for a change in the code.",)),) if moved else ()
    if changes:
        lead = "Differences of models, corpora, libraries, devices and settings that the two reports record."
        table = pivot(
            "differences",
            "Other differences",
            changes,
            texts("subject", lambda c: c.subject),
            texts("setting", lambda c: c.setting),
            texts("old", lambda c: setting(c.old)),
            texts("new", lambda c: setting(c.new)),
        )
        blocks = (table,)
    return Section(id="causes", title="Possible causes", lead=lead, blocks=blocks)


def _coverage(metrics: Metrics, old: Snapshot, new: Snapshot) -> Section:
    """Return the results that only one of the two has, a line for each encoder and corpus."""
    lines = []
    for label, one, other in (("earlier", old, new), ("later", new, old)):
        groups = grouped(sorted(one.results.keys() - other.results.keys()), itemgetter(3, 0))
        for (encoder, corpus), same in groups.items():
            of = show.some([f"{protocol} {metrics[metric].label}" for _, protocol, metric, _ in same])
            lines.append(f"Only the {label} has {encoder} on {corpus}: {of}")
    blocks = (Evidence(lines=tuple(lines)),) * bool(lines)
    return Section(id="coverage", title="Results without a counterpart", blocks=blocks)
