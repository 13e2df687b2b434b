"""Slices that are no contrast: parts of the queries, kinds of errors, hubs, disagreement."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import Any

from reports import format as show
from reports.elements.cells import UNITS, metric_title
from reports.elements.page import Cell, Column, Mark, Table
from reports.rows.report_data import Evidence, Row
from reports.sections.leaderboard import headlines

CONTRAST = ("with", "without", "difference")
TITLES = {
    "complexity": "What the caption asks for",
    "supercategory": "What the picture shows",
    "category": "What the picture shows, by category",
    "category-inferred": "What the caption names (inferred from words)",
    "agreement": "Inferred categories against annotated ones",
    "length": "Length of the caption",
    "ordinal": "Position of the caption",
    "errors": "Kinds of errors",
    "disagreement": "Right where another is wrong",
    "tags": "By tag",
    "baseline": "Captions alone, without looking at the image",
    "hubs": "Hubs",
    "families": "Confusable images",
    "margin": "Score margin",
    "gap": "Modality gap",
}
FOLDED = frozenset({"category", "agreement", "margin", "gap", "baseline"})
OF_THE_CORPUS = frozenset({"agreement", "baseline"})  # stored under one encoder, but true of none
RAW = frozenset({"margin", "gap"})  # in units of their own


def blocks(evidence: Evidence, corpus: str, rows: Sequence[Row]) -> list[Table]:
    """The tables of one corpus, in the order of ``TITLES``."""
    tables: list[Table] = []
    leading = headlines(evidence, corpus)[:1]
    for analysis in TITLES:
        own = [r for r in rows if r["analysis"] == analysis]
        groups = {(r["protocol"], "" if analysis in _JOINED else r["metric"]) for r in own}
        for protocol, metric in sorted(groups, key=lambda g: (g[0].startswith("i2t"), g)):
            part = [r for r in own if r["protocol"] == protocol and metric in ("", r["metric"])]
            made = _SPECIAL.get(analysis, _plain)(evidence, corpus, analysis, protocol, metric, part)
            opened = analysis not in FOLDED and (protocol in leading or "/" not in protocol)
            tables += made if opened else [dataclasses.replace(t, folded=t.folded or t.caption) for t in made]
    return tables


def order(evidence: Evidence, corpus: str, protocol: str, metric: str, rows: Sequence[Row]) -> list[str]:
    """Encoders in the order of the leaderboard, then those that are not on it."""
    have = {r["encoder"] for r in rows}
    ranked = [r["encoder"] for r in evidence.ranked(corpus, protocol, metric) if r["encoder"] in have]
    return ranked + sorted(have - set(ranked))


def slice_cell(row: Row | None) -> Cell:
    """One slice as a cell: its value, or the reason why there is none."""
    if row is None or row["value"] is None:
        return Cell(text=show.ABSENT, mark="muted", title=(row or {}).get("reason") or "not computed")
    queries = f"{show.count(row['n_queries'], 'query', 'queries')} in {show.count(row['n_clusters'], 'cluster')}"
    about = f"{queries}; {row['reason']}" if row["reason"] else queries
    if row["level_name"] == "difference":
        p = row["p_adjusted"]
        mark: Mark = "muted" if p is not None and p >= 0.05 else ""
        stars = f" {show.stars(p)}" if p is not None else ""
        text, note = show.points(row["value"]) + stars, show.percent_range(row["ci_low"], row["ci_high"])
        return Cell(text=text, note=note, title=about, sort=show.exact(row["value"]), mark=mark)
    if row["analysis"] in RAW or row["metric"] in UNITS:
        text, note = show.number(row["value"], 3), show.span(row["ci_low"], row["ci_high"], 3)
    else:
        text, note = show.percent(row["value"]), show.percent_range(row["ci_low"], row["ci_high"])
    return Cell(text=text, note=note, title=about, sort=show.exact(row["value"]))


def anchor(*parts: str) -> str:
    """An id made of parts that may hold slashes, signs and spaces.

    Examples:
        >>> anchor("errors", "coco", "t2i/all", "share of queries")
        'errors-coco-t2i-all-share-of-queries'
    """
    text = "-".join(part for part in parts if part)
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in text.replace("@", ""))


def _plain(
    evidence: Evidence, corpus: str, analysis: str, protocol: str, metric: str, rows: Sequence[Row]
) -> list[Table]:
    """Parts down, encoders across."""
    first = rows[0]["metric"]
    names = order(evidence, corpus, protocol, first, rows)
    heads = ["all encoders"] if analysis in OF_THE_CORPUS else names
    by = {(r["encoder"], r["metric"], r["feature"], r["level_name"]): r for r in rows}
    listed = sorted({key[1:] for key in by}, key=lambda p: (p[0], p[1] if analysis != "errors" else "", _natural(p[2])))
    if analysis == "errors":
        listed = sorted(listed, key=lambda p: (_KINDS.index(p[1]) if p[1] in _KINDS else len(_KINDS), p[1]))
    title = f"{TITLES[analysis]} · {corpus} · {protocol}"
    unit = "" if analysis in RAW else ", percent"
    return [
        Table(
            id=anchor(analysis, corpus, protocol, metric, "parts"),
            caption=f"{title} · {metric_title(metric)}{unit}" if metric else title,
            columns=(
                Column(heading="part"),
                Column(heading="queries", numeric=True),
                *(Column(heading=name, numeric=True) for name in heads),
            ),
            rows=tuple(
                (
                    Cell(text=_part(feature, level)),
                    Cell(text=show.number(max(by[k]["n_queries"] for k in by if k[1:] == (m, feature, level)), 0)),
                    *(slice_cell(by.get((name, m, feature, level))) for name in names[: len(heads)]),
                )
                for m, feature, level in listed
            ),
        )
    ]


_KINDS = ("hit", "tie", "near miss", "hub", "false negative", "rest")


def _part(feature: str, level: str) -> str:
    return feature if level in ("", feature) else level if not feature else f"{feature} {level}"


def _disagreement(
    evidence: Evidence, corpus: str, analysis: str, protocol: str, metric: str, rows: Sequence[Row]
) -> list[Table]:
    """Row right where column is wrong; then alone right, alone wrong, and what all miss."""
    names = order(evidence, corpus, protocol, "R@1", rows)
    by = {(r["encoder"], r["feature"], r["level_name"]): r for r in rows}
    alone = [f for f in ("alone right", "alone wrong", "missed by all") if any(k[1] == f for k in by)]
    if len(names) < 2:
        return []

    def against(a: str, b: str) -> Cell:
        return Cell(text="·", mark="muted") if a == b else slice_cell(by.get((a, "right where wrong", b)))

    return [
        Table(
            id=anchor(analysis, corpus, protocol, metric, "matrix"),
            caption=f"{corpus} · {protocol} · percent of queries that the row has first and the column misses",
            columns=(
                Column(heading="Encoder"),
                *(Column(heading=name, group="wrong", numeric=True) for name in names),
                *(Column(heading=f, numeric=True) for f in alone),
            ),
            rows=tuple(
                (Cell(text=a), *(against(a, b) for b in names), *(slice_cell(by.get((a, f, ""))) for f in alone))
                for a in names
            ),
            dense=len(names) > 4,
            note="A large share on both sides of a pair means that the two know different things: "
            "re-ranking or fusing them may help.",
        )
    ]


def _hubs(
    evidence: Evidence, corpus: str, analysis: str, protocol: str, metric: str, rows: Sequence[Row]
) -> list[Table]:
    """Skewness and shares per encoder, and the worst hubs by name."""
    names = order(evidence, corpus, protocol, "R@1", rows)
    features = [f for f in ("skewness", "share of hubs", "share never found") if any(r["feature"] == f for r in rows)]
    by = {(r["encoder"], r["feature"]): r for r in rows}
    worst = [
        (Cell(text=name), Cell(text=str(hub["id"])), _count(hub["wrongly_first"]), _count(hub["n_10"]))
        for name in names
        if (row := by.get((name, features[0]))) is not None
        for hub in detail_of(row).get("worst", [])[:3]
    ]
    tables: list[Table] = [
        Table(
            id=anchor(analysis, corpus, protocol),
            caption=f"Hubs · {corpus} · {protocol}",
            columns=(Column(heading="Encoder"), *(Column(heading=f, numeric=True) for f in features)),
            rows=tuple((Cell(text=n), *(slice_cell(by.get((n, f))) for f in features)) for n in names),
            note="Hubs are found for everything: items among the first ten far more often than their share. "
            "Skewness of that count, then shares of items in percent.",
        )
    ]
    if worst:
        tables.append(
            Table(
                id=anchor(analysis, corpus, protocol, "worst"),
                caption=f"The worst hubs of {corpus} under {protocol}",
                columns=(
                    Column(heading="Encoder"),
                    Column(heading="item"),
                    Column(heading="wrongly first", numeric=True),
                    Column(heading="among the first ten", numeric=True),
                ),
                rows=tuple(worst),
                folded=f"The worst hubs of {corpus} under {protocol}",
            )
        )
    return tables


def _families(
    evidence: Evidence, corpus: str, analysis: str, protocol: str, metric: str, rows: Sequence[Row]
) -> list[Table]:
    """The pairs of images that each encoder takes for one another."""
    by = {r["encoder"]: r for r in rows}
    pairs = [
        (Cell(text=name), Cell(text=str(p["a"])), Cell(text=str(p["b"])), _count(p["a_for_b"]), _count(p["b_for_a"]))
        for name in order(evidence, corpus, protocol, "R@1", rows)
        for p in detail_of(by[name]).get("pairs", [])[:5]
    ]
    if not pairs:
        return []
    title = f"Images taken for one another, {corpus} under {protocol}"
    return [
        Table(
            id=anchor(analysis, corpus, protocol),
            caption=title,
            columns=(
                Column(heading="Encoder"),
                Column(heading="image A"),
                Column(heading="image B"),
                Column(heading="A for B", numeric=True),
                Column(heading="B for A", numeric=True),
            ),
            rows=tuple(pairs),
            folded=title,
        )
    ]


def detail_of(row: Row) -> dict[str, Any]:
    """What the analysis added to a slice."""
    detail = json.loads(row["detail"]) if row["detail"] else {}
    return detail if isinstance(detail, dict) else {}


def _count(n: int) -> Cell:
    return Cell(text=show.number(n, 0), sort=str(n))


def _natural(text: str) -> tuple[float, str]:
    """Sort key that puts ``5-9`` before ``10-14``."""
    digits = "".join(c if c.isdigit() else " " for c in text).split()
    return (float(digits[0]) if digits else float("inf"), text)


Maker = Callable[[Evidence, str, str, str, str, Sequence[Row]], list[Table]]
_SPECIAL: dict[str, Maker] = {"disagreement": _disagreement, "hubs": _hubs, "families": _families}
_JOINED = frozenset({"hubs", "gap", "baseline"})  # several metrics in one table
