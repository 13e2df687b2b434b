"""Tables of slices that are not contrasts: parts of the queries, kinds of errors, hubs, disagreement."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from capim.reports import format as show
from capim.reports.elements.page import Cell, Mark, Table
from capim.reports.elements.tables import (
    ColumnOf,
    absent,
    anchor,
    counted,
    described,
    difference_text,
    is_fraction,
    numbers,
    pivot,
    range_text,
    texts,
    value,
    value_text,
)
from capim.reports.rows.names import named
from capim.reports.rows.report_data import ReportData, Row, detail_of, grouped
from capim.reports.sections.leaderboard import headlines
from capim.tasks.analyses.table import headings
from capim.tasks.statistics.decision import ALPHA

CONTRAST = ("with", "without", "difference")
FOLDED = frozenset({"category", "agreement", "margin", "gap", "baseline"})
OF_THE_CORPUS = frozenset({"agreement", "baseline"})  # the same for all encoders; stored under one of them
JOINED = frozenset({"hubs", "gap", "baseline"})  # several metrics in one table
KINDS = ("hit", "tie", "near miss", "hub", "false negative", "rest")


class SliceGroup(NamedTuple):
    """The slices of one table: those of one corpus, analysis, protocol and (unless several are joined) metric."""

    corpus: str
    analysis: str
    protocol: str
    metric: str
    rows: Sequence[Row]

    def id(self, suffix: str = "") -> str:
        """An anchor for the table."""
        return anchor(self.analysis, self.corpus, self.protocol, self.metric, suffix)


def blocks(data: ReportData, corpus: str, rows: Sequence[Row]) -> list[Table]:
    """The tables of one corpus, in the order of the registry of analyses."""
    tables: list[Table] = []
    leading = headlines(data, corpus)[:1]
    for analysis in headings("slices"):
        own = (r for r in rows if r["analysis"] == analysis)
        groups = grouped(own, lambda r: (r["protocol"], "" if r["analysis"] in JOINED else r["metric"]))
        for protocol, metric in sorted(groups, key=lambda key: (key[0].startswith("i2t"), key)):
            group = SliceGroup(corpus, analysis, protocol, metric, groups[protocol, metric])
            made = SPECIAL.get(analysis, _parts)(data, group)
            opened = analysis not in FOLDED and (protocol in leading or "/" not in protocol)
            tables += made if opened else [dataclasses.replace(t, folded=t.folded or t.caption) for t in made]
    return tables


def order(data: ReportData, corpus: str, protocol: str, metric: str, rows: Sequence[Row]) -> list[str]:
    """The encoders of the rows: in the order of the leaderboard, then those that are not on it."""
    encoders = {r["encoder"] for r in rows}
    ranked = [r["encoder"] for r in data.ranked(corpus, protocol, metric) if r["encoder"] in encoders]
    return ranked + sorted(encoders - set(ranked))


def part_label(feature: str, level: str) -> str:
    """The name of a part of the queries, or of a setting of an ablation."""
    return feature if feature == level else f"{feature} {level}".strip()


def slice_cell(row: Row | None) -> Cell:
    """One slice as a cell: its value, or the reason why there is none."""
    if row is None or row["value"] is None:
        return absent((row or {}).get("reason") or "not computed")
    title = f"{show.count(row['n_queries'], 'query', 'queries')} in {show.count(row['n_clusters'], 'cluster')}"
    title += f"; {row['reason']}" if row["reason"] else ""
    text, note = value_text(row["metric"], row["value"]), range_text(row["metric"], row["ci_low"], row["ci_high"])
    mark: Mark = ""
    state = ""
    if row["level_name"] == "difference":
        p = row["p_adjusted"]
        mark = "muted" if p is not None and p >= ALPHA else ""
        text = difference_text(row["metric"], row["value"])
        state = "" if p is None else "undecided" if p >= ALPHA else "higher" if row["value"] > 0 else "lower"
    return value(row["value"], text, note=note, state=state, title=title, mark=mark)


def _parts(data: ReportData, group: SliceGroup) -> list[Table]:
    """One row per part, one column per encoder."""
    names = order(data, group.corpus, group.protocol, group.rows[0]["metric"], group.rows)
    columns = {"all encoders": names[0]} if group.analysis in OF_THE_CORPUS else {name: name for name in names}
    by_key = {(r["encoder"], r["metric"], r["feature"], r["level_name"]): r for r in group.rows}

    def position(part: tuple[str, str, str]) -> tuple[object, ...]:
        metric, feature, level = part
        if group.analysis == "errors":
            return KINDS.index(feature) if feature in KINDS else len(KINDS), feature, metric, _natural(level)
        return metric, feature, _natural(level)

    def queries(part: tuple[str, str, str], name: str) -> str:
        row = by_key.get((name, *part))
        return show.ABSENT if row is None else show.number(row["n_queries"], 0)

    def encoder_columns(heading: str, name: str) -> list[ColumnOf[tuple[str, str, str]]]:
        def cell(part: tuple[str, str, str]) -> Cell:
            return slice_cell(by_key.get((name, *part)))

        if shared:
            return [numbers(heading, cell)]
        return [numbers("queries", partial(queries, name=name), group=heading), numbers("value", cell, group=heading)]

    def any_queries(part: tuple[str, str, str]) -> str:
        shown = (text for name in columns.values() if (text := queries(part, name)) != show.ABSENT)
        return next(shown, show.ABSENT)

    parts = sorted({key[1:] for key in by_key}, key=position)
    shared = all(
        len({row["n_queries"] for name in columns.values() if (row := by_key.get((name, *part)))}) < 2 for part in parts
    )  # or hits and misses, say, of which every encoder has other numbers
    title = f"{headings('slices')[group.analysis]} · {group.corpus} · {named(group.protocol)}"
    unit = ", percent" if is_fraction(group.metric) else ""
    return [
        pivot(
            group.id("parts"),
            f"{title} · {described(data, group.metric)}{unit}" if group.metric else title,
            parts,
            texts("part", lambda part: part_label(*part[1:])),
            *([numbers("queries", any_queries)] if shared else []),
            *(column for item in columns.items() for column in encoder_columns(*item)),
        )
    ]


def _disagreement(data: ReportData, group: SliceGroup) -> list[Table]:
    """Share of queries where the row is correct and the column wrong; then where one alone is, and where all miss."""
    names = order(data, group.corpus, group.protocol, "R@1", group.rows)
    by_key = {(r["encoder"], r["feature"], r["level_name"]): r for r in group.rows}
    alone = [f for f in ("alone right", "alone wrong", "missed by all") if any(key[1] == f for key in by_key)]
    if len(names) < 2:
        return []

    def against(a: str, b: str) -> Cell:
        return Cell(text="·", mark="muted") if a == b else slice_cell(by_key.get((a, "right where wrong", b)))

    def share(name: str, feature: str) -> Cell:
        return slice_cell(by_key.get((name, feature, "")))

    return [
        pivot(
            group.id("matrix"),
            f"{group.corpus} · {named(group.protocol)} · percent of queries that the row finds and the column misses",
            names,
            texts("Encoder", str),
            *(numbers(b, partial(against, b=b), group="wrong") for b in names),
            *(numbers(feature, partial(share, feature=feature)) for feature in alone),
            dense=len(names) > 4,
            note="Large shares in both directions mean that the two encoders make different errors: "
            "re-ranking or fusion may help.",
        )
    ]


def _hubs(data: ReportData, group: SliceGroup) -> list[Table]:
    """Skewness and shares per encoder, and the worst hubs by name."""
    names = order(data, group.corpus, group.protocol, "R@1", group.rows)
    by_key = {(r["encoder"], r["feature"]): r for r in group.rows}
    features = [f for f in ("skewness", "share of hubs", "share never found") if any(key[1] == f for key in by_key)]
    worst = [
        (name, hub)
        for name in names
        if (name, features[0]) in by_key
        for hub in detail_of(by_key[name, features[0]]).get("worst", [])[:3]
    ]

    def cell(name: str, feature: str) -> Cell:
        return slice_cell(by_key.get((name, feature)))

    title = f"Worst hubs of {group.corpus} · {named(group.protocol)}"
    tables = [
        pivot(
            group.id(),
            f"Hubs · {group.corpus} · {named(group.protocol)}",
            names,
            texts("Encoder", str),
            *(numbers(feature, partial(cell, feature=feature)) for feature in features),
            note="Skewness of how often an item is among the first ten, then shares of items in percent.",
        ),
        pivot(
            group.id("worst"),
            title,
            worst,
            texts("Encoder", lambda row: row[0]),
            texts("item", lambda row: str(row[1]["id"])),
            numbers("wrongly first", lambda row: counted(row[1]["wrongly_first"])),
            numbers("among the first ten", lambda row: counted(row[1]["n_10"])),
            folded=title,
        ),
    ]
    return tables if worst else tables[:1]


def _families(data: ReportData, group: SliceGroup) -> list[Table]:
    """The pairs of images that each encoder confuses most often."""
    by_encoder = {r["encoder"]: r for r in group.rows}
    pairs = [
        (name, pair)
        for name in order(data, group.corpus, group.protocol, "R@1", group.rows)
        for pair in detail_of(by_encoder[name]).get("pairs", [])[:5]
    ]
    title = f"Confused images of {group.corpus} · {named(group.protocol)}"
    table = pivot(
        group.id(),
        title,
        pairs,
        texts("Encoder", lambda row: row[0]),
        texts("image A", lambda row: str(row[1]["a"])),
        texts("image B", lambda row: str(row[1]["b"])),
        numbers("A for B", lambda row: counted(row[1]["a_for_b"])),
        numbers("B for A", lambda row: counted(row[1]["b_for_a"])),
        folded=title,
    )
    return [table] if pairs else []


def _natural(text: str) -> tuple[float, str]:
    """Sort key that puts ``5-9`` before ``10-14``."""
    digits = "".join(c if c.isdigit() else " " for c in text).split()
    return (float(digits[0]) if digits else float("inf"), text)


SPECIAL: dict[str, Callable[[ReportData, SliceGroup], list[Table]]] = {
    "disagreement": _disagreement,
    "hubs": _hubs,
    "families": _families,
}
