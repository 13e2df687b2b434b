"""Slices: contrasts of queries with and without a feature, then tables of parts, kinds of errors, hubs, disagreement.

A slice is one row of ``schema.SLICES``: an analysis, a feature, and a level of it. Three levels named ``with``,
``without`` and ``difference`` make a contrast; any other levels make a table of parts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import altair as alt

from capim.reports import format as show
from capim.reports.elements import charts, words
from capim.reports.elements.page import Block, Cell, Chart, Section, Table, Text
from capim.reports.elements.tables import ColumnOf, absent, anchor, counted, estimate, numbers, pivot, texts
from capim.reports.rows.report_data import R1, WITHOUT, Detail, ReportData, detail_of, grouped, of_package
from capim.reports.sections.leaderboard import pair_protocols, sliced
from capim.store.schema import ERRORS, Slice
from capim.tasks.analyses.table import ANALYSES, Look, headings, looks_of
from capim.tasks.protocols import Protocol, language_name
from capim.tasks.statistics.decision import ALPHA

CONTRAST = ("with", "without", "difference")


def section(data: ReportData) -> Section:
    """Contrasts, then the other slices that are not ablations."""
    blocks: list[Block] = []
    for corpus in data.corpus_names():
        protocols = {p for p in data.protocols(corpus) if Protocol.of(p).is_all_quadruples}
        protocols = protocols | {*pair_protocols(data, corpus)} or {*sliced(data, corpus)}
        found = [r for r in data.slices if r.corpus == corpus and r.protocol in protocols]
        for code, rows in sorted(grouped(found, lambda r: Protocol.of(r.protocol).language).items()):
            made: list[Any] = []
            contrasted = (r for r in rows if r.level_name in CONTRAST)
            contrasts = grouped(contrasted, lambda r: (r.analysis, r.protocol, r.metric))
            for analysis, protocol, metric in sorted(contrasts):
                if metric != WITHOUT:
                    kept = contrasts.get((analysis, protocol, WITHOUT), []) if metric == R1 else []
                    rows_of = contrasts[analysis, protocol, metric]
                    made += _contrast(SliceGroup(data, corpus, analysis, protocol, metric, rows_of), kept)
            made += _parts_of(data, corpus, [r for r in rows if r.level_name not in CONTRAST])
            blocks += [replace(table, choice=language_name(code)) for table in made] if code else made
        if lacking := sorted(protocols - {r.protocol for r in found}) if found else ():
            command = f"capim analyse --corpora {corpus} --protocols {lacking[0]}"
            blocks.append(Text(text=f"{corpus}: no slices of {show.some(lacking)} ({command})."))
    return Section(
        id="slices",
        title="Slices",
        lead="The same metric over parts of the queries. A difference is the value with the feature minus the value "
        "without it, in percentage points, with its interval; its p is adjusted over all features of an encoder. "
        "R@1 is shown with and without ambiguous misses, which are explained under failures.",
        blocks=tuple(blocks),
    )


class SliceGroup(NamedTuple):
    """The slices of one table: those of one corpus, analysis, protocol and (unless several are joined) metric."""

    data: ReportData
    corpus: str
    analysis: str
    protocol: str
    metric: str
    rows: Sequence[Slice]

    def id(self, suffix: str = "") -> str:
        """An anchor for the table."""
        return anchor(self.analysis, self.corpus, self.protocol, self.metric, suffix)

    @property
    def where(self) -> str:
        """Corpus and protocol."""
        return f"{self.corpus} · {self.data.titled(self.corpus, self.protocol)}"

    def encoders(self, metric: str = R1) -> list[str]:
        """The encoders of the rows, in the order of the leaderboard by a metric."""
        return encoder_order(self.data, self.corpus, self.protocol, metric, self.rows)

    def columns(self, *features: str) -> list[ColumnOf[str]]:
        """Of the features that there are, a column with their value for every encoder."""
        by_key = {(r.encoder, r.feature): r for r in self.rows}
        shown = (feature for feature in features if any(key[1] == feature for key in by_key))

        def cell(name: str, feature: str) -> Cell:
            return slice_cell(self.data, by_key.get((name, feature)))

        return [numbers(feature, partial(cell, feature=feature)) for feature in shown]


def encoder_order(data: ReportData, corpus: str, protocol: str, metric: str, rows: Sequence[Slice]) -> list[str]:
    """The encoders of the rows: in the order of the leaderboard, then those that are not on it."""
    encoders = {r.encoder for r in rows}
    ranked = [r.encoder for r in data.ranked(corpus, protocol, metric) if r.encoder in encoders]
    return ranked + sorted(encoders - set(ranked))


def part_label(feature: str, level: str) -> str:
    """The name of a part of the queries, or of a setting of an ablation."""
    return feature if feature == level else f"{feature} {level}".strip()


def slice_cell(data: ReportData, row: Slice | None) -> Cell:
    """One slice as a cell: its value, or the reason why there is none."""
    if row is None or row.value is None:
        return absent((row.reason if row else None) or "not computed")
    metric = data.metric(row.metric)
    title = f"{show.count(row.n_queries, 'query', 'queries')} in {show.count(row.n_clusters, 'cluster')}"
    made = estimate(metric, row, title=f"{title}; {row.reason}" if row.reason else title)
    if row.level_name != "difference":
        return made
    made = replace(made, text=words.difference(metric, row.value), unit=words.unit(metric, difference=True))
    if (p := row.p_adjusted) is None:
        return made
    if p >= ALPHA:
        return replace(made, state="undecided", mark="muted")
    return replace(made, state="higher" if row.value > 0 else "lower")


def _contrast(group: SliceGroup, kept: list[Slice]) -> list[Chart] | list[Table]:
    """Differences as points with intervals, one line per feature; ``kept`` are those without ambiguous misses.

    Of the captions of one language the table of the chart, folded.
    """
    data, corpus, analysis, protocol, metric, rows = group
    facts, of = data.metric(metric), data.protocol(corpus, protocol)
    differences = [r for r in rows if r.level_name == "difference" and r.value is not None]
    if not differences:
        return []
    names = encoder_order(data, corpus, protocol, metric, differences)
    lower_is_better = any(r.lower_is_better for r in data.ranked(corpus, protocol, metric))
    lowest = {
        name: min((r.value or 0.0 for r in differences if r.feature == name), default=0.0)
        for name in {r.feature for r in rows}
    }
    features = sorted(lowest, key=lambda name: (lowest[name], name))
    about = f" · {words.described(facts)}" if facts.has_table else ""
    title = f"{headings('slices').get(analysis, analysis)}{of_package(rows)} · {group.where}{about}"
    table = _contrast_table(group, title, names, features, kept)
    if of.is_of_language:  # there are many
        return [replace(table, folded=title)]
    unit = " points" if facts.unit == "percent" else ""
    points = [
        charts.interval_point(
            r,
            fraction=facts.unit == "percent",
            unit="percentage points",
            text=f"{words.difference(facts, r.value)}{unit} ({words.interval(facts, r)})",
            feature=r.feature,
        )
        for r in sorted(differences, key=lambda r: (r.encoder, r.feature))
    ]
    colour, shape = charts.by_name(names, data.encoder_names(), sort=names)
    x_title = f"{facts.label}, {of.title}: with minus without{',' * bool(unit)}{unit}"
    x = alt.X("ci_low:Q", title=x_title, scale=alt.Scale(zero=True))
    height = max(120, len(features) * (14 + 9 * len(names)))
    look = {"color": colour, "shape": shape, "yOffset": alt.YOffset("encoder:N", sort=names)}
    tooltip = charts.tooltips("feature", "text")
    picture = charts.strips(
        points, x, height=height, row="feature", order=features, size=55, within=0.0, tooltip=tooltip, **look
    )
    clear = [f"{p['feature']}, {p[charts.ENCODER]}: {p['text']}" for p in points if p["ci_low"] > 0 or p["ci_high"] < 0]
    chart = charts.finish(
        picture,
        name=group.id(),
        title=title,
        alt_text=f"Differences of {metric}, {of.title}, between queries with and without each of "
        f"{show.count(len(features), 'feature')}, for {show.encoders(len(names))}. "
        + (f"Intervals without zero: {'; '.join(clear)}." if clear else "Every interval includes zero."),
        data=table,
        note=f"Left of the line: {'lower' if facts.has_table or lower_is_better else 'harder'} with the feature.",
    )
    return [chart]


def _contrast_table(group: SliceGroup, title: str, names: list[str], features: list[str], kept: list[Slice]) -> Table:
    by_key = {(r.encoder, r.feature, r.level_name): r for r in group.rows}
    by_key |= {(r.encoder, r.feature, WITHOUT): r for r in kept if r.level_name == "difference"}
    levels = {level: level for level in CONTRAST} | ({WITHOUT: "difference without ambiguous misses"} if kept else {})
    percent = group.data.metric(group.metric).unit == "percent"

    def queries(feature: str) -> str:
        counts = [by_key[name, feature, "with"].n_queries for name in names if (name, feature, "with") in by_key]
        ends = sorted({min(counts), max(counts)}) if counts else []  # encoders truncate different captions
        return "–".join(show.number(count, 0) for count in ends) or show.ABSENT

    def cell(feature: str, name: str, level: str) -> Cell:
        return slice_cell(group.data, by_key.get((name, feature, level)))

    return pivot(
        f"{group.id()}-data",
        f"{title} · percent, with interval; differences in points" if percent else f"{title} · with interval",
        features,
        texts("Feature", str),
        numbers("queries with it", queries),
        *(
            numbers(heading, partial(cell, name=name, level=level), group=name)
            for name in names
            for level, heading in levels.items()
        ),
    )


def _parts_of(data: ReportData, corpus: str, rows: Sequence[Slice]) -> list[Table]:
    """The tables of one corpus that are no contrasts, in the order of the registry of analyses."""
    tables: list[Table] = []
    first = sliced(data, corpus)[:1]
    for analysis in headings("slices"):
        looks, own = looks_of(analysis), (r for r in rows if r.analysis == analysis)
        groups = grouped(own, lambda r: (r.protocol, "" if "joined" in looks_of(r.analysis) else r.metric))
        for protocol, metric in sorted(groups, key=lambda key: (Protocol.of(key[0]).direction == "i2t", key)):
            group = SliceGroup(data, corpus, analysis, protocol, metric, groups[protocol, metric])
            made = next((SPECIAL[look] for look in looks if look in SPECIAL), _parts)(group)
            opened = "folded" not in looks and (protocol in first or Protocol.of(protocol).is_all_quadruples)
            tables += made if opened else [replace(t, folded=t.folded or t.caption) for t in made]
    return tables


def _parts(group: SliceGroup) -> list[Table]:
    """One row per part, one column per encoder."""
    names = group.encoders(group.rows[0].metric)
    of_corpus = "of the corpus" in looks_of(group.analysis)
    columns = {"all encoders": names[0]} if of_corpus else {name: name for name in names}
    by_key = {(r.encoder, r.metric, r.feature, r.level_name): r for r in group.rows}

    def position(part: tuple[str, str, str]) -> tuple[object, ...]:
        metric, feature, level = part
        number = re.search(r"\d+", level)  # 5-9 stands before 10-14
        natural = float(number[0]) if number else math.inf, level
        if group.analysis == ERRORS:
            return (*ANALYSES[ERRORS].labels, feature).index(feature), feature, metric, natural
        return metric, feature, natural

    parts = sorted({key[1:] for key in by_key}, key=position)
    counts = {part: {r.n_queries for name in columns.values() if (r := by_key.get((name, *part)))} for part in parts}

    def queries(part: tuple[str, str, str], name: str) -> str:
        return show.number(by_key[name, *part].n_queries, 0) if (name, *part) in by_key else show.ABSENT

    def cell(part: tuple[str, str, str], name: str) -> Cell:
        return slice_cell(group.data, by_key.get((name, *part)))

    shown: list[ColumnOf[tuple[str, str, str]]] = [texts("part", lambda part: part_label(*part[1:]))]
    if all(len(of) < 2 for of in counts.values()):
        shown.append(numbers("queries", lambda part: show.number(next(iter(counts[part]), None), 0)))
        shown += [numbers(heading, partial(cell, name=name)) for heading, name in columns.items()]
    else:  # hits and misses, say: every encoder has other numbers
        for name in names:
            shown.append(numbers("queries", partial(queries, name=name), group=name))
            shown.append(numbers("value", partial(cell, name=name), group=name))
    metric = group.data.metric(group.metric)
    about = f" · {words.described(metric)}" + ", percent" * (metric.unit == "percent") if group.metric else ""
    title = f"{headings('slices')[group.analysis]}{of_package(group.rows)} · {group.where}{about}"
    return [pivot(group.id("parts"), title, parts, *shown)]


def _disagreement(group: SliceGroup) -> list[Table]:
    """Share of queries where the row is correct and the column wrong; then where one alone is, and where all miss."""
    names = group.encoders()
    pairs = {(r.encoder, r.level_name): r for r in group.rows if r.feature == "right where wrong"}

    def against(a: str, b: str) -> Cell:
        return Cell(text="·", mark="muted") if a == b else slice_cell(group.data, pairs.get((a, b)))

    table = pivot(
        group.id("matrix"),
        f"{group.where} · percent of queries that the row finds and the column misses",
        names,
        texts("Encoder", str),
        *(numbers(b, partial(against, b=b), group="wrong") for b in names),
        *group.columns("alone right", "alone wrong", "missed by all"),
        note="Large shares in both directions mean that the two encoders make different errors: "
        "re-ranking or fusion may help.",
    )
    return [table] if len(names) > 1 else []


def _hubs(group: SliceGroup) -> list[Table]:
    """Skewness and shares per encoder, and the worst hubs by name."""
    shares = pivot(
        group.id(),
        f"Hubs · {group.where}",
        group.encoders(),
        texts("Encoder", str),
        *group.columns("skewness", "share of hubs", "share never found"),
        note="Skewness of how often an item is among the first ten, then shares of items in percent.",
    )
    named = {"item": "id"}, {"wrongly first": "wrongly_first", "among the first ten": "n_10"}
    skewness = [r for r in group.rows if r.feature == shares.columns[1].heading]
    return [shares, *_listed(group._replace(rows=skewness), "Worst hubs", "worst", 3, *named)]


def _listed(
    group: SliceGroup, what: str, key: str, most: int, named: Mapping[str, str], counts: Mapping[str, str]
) -> list[Table]:
    """What each encoder has most of, as its details list it under a key: at most so many each, by name with counts."""
    of = {r.encoder: detail_of(r) for r in group.rows}
    rows = [(name, item) for name in group.encoders() for item in of[name].get(key, [])[:most]]
    title = f"{what} of {group.where}"

    def of_item(column: str, made: Callable[[Any], Cell | str]) -> Callable[[tuple[str, Detail]], Cell | str]:
        return lambda row: made(row[1][column])

    table = pivot(
        group.id("worst" * (key == "worst")),
        title,
        rows,
        texts("Encoder", lambda row: row[0]),
        *(texts(heading, of_item(column, str)) for heading, column in named.items()),
        *(numbers(heading, of_item(column, counted)) for heading, column in counts.items()),
        folded=title,
    )
    return [table] if rows else []


SPECIAL: dict[Look, Callable[[SliceGroup], list[Table]]] = {"matrix": _disagreement, "hubs": _hubs}
