"""Languages: a heat map over encoders, and the two COCO-SM tables of each encoder."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import altair as alt

from reports import format as show
from reports.elements import charts
from reports.elements.cells import heat, metric_title, result_cell
from reports.elements.page import Block, Cell, Chart, Section, Table
from reports.elements.tables import ColumnOf, T, numbers, pivot, texts, value
from reports.rows.languages import (
    NDCG,
    RBO,
    cross_lingual,
    language_mean,
    language_name,
    languages,
    mean,
    mean_text,
    noise,
    over_languages,
    over_translators,
    translators,
)
from reports.rows.names import DIRECTION_TITLES
from reports.rows.report_data import ReportData

MEASURES = (
    *((direction, f"R@{k}") for direction in ("t2i", "i2t") for k in (1, 5, 10)),
    ("t2i", NDCG),
    ("i2t", NDCG),
    ("t2i", RBO),
    ("i2t", RBO),
)

LANGUAGE: ColumnOf[str] = texts("Language", lambda code: Cell(text=language_name(code), title=code))


def section(data: ReportData) -> Section:
    """Corpora with results per language."""
    blocks: list[Block] = []
    for corpus in data.corpus_names(lambda p: cross_lingual(p) is not None):
        encoders = _encoders(data, corpus)
        blocks += [_heat_table(data, corpus, encoders), _heat_map(data, corpus, encoders)]
        for encoder in encoders:
            tables = _over_all(data, corpus, encoder), _reduced(data, corpus, encoder), _report(data, corpus, encoder)
            blocks += [table for table in tables if table.rows]
    return Section(
        id="multilingual",
        title="Languages in detail",
        lead="The same images, searched in other languages. nDCG@20 measures the agreement of the ranked list in a "
        "language with that for the English original: consistency, not quality.",
        blocks=tuple(blocks),
    )


def _encoders(data: ReportData, corpus: str) -> list[str]:
    """Encoders with results per language, best mean over the other languages first."""
    reference = data.corpora[corpus].languages_reference
    means = {n: language_mean(data, corpus, n, without=reference) for n in data.encoder_names(corpus)}
    return sorted((n for n in means if means[n] is not None), key=lambda n: (-(means[n] or 0.0), n)) or sorted(means)


def _columns(data: ReportData, corpus: str, cell: Callable[[T, str, str], Cell]) -> list[ColumnOf[T]]:
    """A column for each direction and metric that has results per language."""
    stored = {
        (parts.direction, r["metric"])
        for r in data.results
        if r["corpus"] == corpus and (parts := cross_lingual(r["protocol"])) is not None
    }

    def column(direction: str, metric: str) -> ColumnOf[T]:
        return numbers(
            metric_title(metric),
            lambda row: cell(row, direction, metric),
            group=f"{DIRECTION_TITLES[direction]} ({direction})",
        )

    return [column(*measure) for measure in MEASURES if measure in stored]


def _heat_table(data: ReportData, corpus: str, encoders: list[str]) -> Table:
    codes = languages(data, corpus)
    reference = data.corpora[corpus].languages_reference
    values = {(n, c): over_translators(data, corpus, n, "t2i", c, "R@1") for n in encoders for c in codes}
    stored = [v for v in values.values() if v is not None]
    low, high = (min(stored), max(stored)) if stored else (0.0, 1.0)

    def encoder_column(name: str) -> ColumnOf[str]:
        def cell(code: str) -> Cell:
            v = values[name, code]
            return Cell(text=show.percent(v), sort=show.exact(v), heat=heat(v, low, high))

        return numbers(name, cell)

    def mean_row(label: str, without: str | None) -> list[Cell]:
        means = [language_mean(data, corpus, n, without=without) for n in encoders]
        return [Cell(text=label, mark="muted"), *(value(m, show.percent(m), mark="muted") for m in means)]

    return pivot(
        f"languages-{corpus}",
        f"{corpus} · text to image (t2i/…) · R@1, percent, mean over "
        f"{show.count(len(translators(data, corpus)), 'translator')}",
        codes,
        LANGUAGE,
        *map(encoder_column, encoders),
        extra_rows=[
            mean_row(f"mean without {language_name(reference)}", reference),
            mean_row("mean of all", None),
        ],
        note="The published COCO-SM “Mean” includes English; the mean without it describes the other languages. "
        "The tables below have the intervals of every language and translator.",
        sortable=True,
    )


def _code_cell(code: str) -> Cell:
    return Cell(text=code, title=language_name(code))


def _heat_map(data: ReportData, corpus: str, encoders: list[str]) -> Chart:
    codes, ways = languages(data, corpus), translators(data, corpus)
    points = [
        {**charts.interval_point(row), "language": language_name(code), "translator": way}
        for code in codes
        for name in encoders
        for way in ways
        if (row := data.row(corpus, f"t2i/{code}/{way}", "R@1", name)) is not None and row["value"] is not None
    ]
    picture = (
        alt.Chart(alt.Data(values=points))
        .mark_rect(stroke="currentColor", strokeOpacity=0.15, color=charts.PALETTE[2])
        .encode(
            x=alt.X("encoder:N", sort=encoders, title=None, axis=alt.Axis(labelAngle=-35)),
            y=alt.Y("language:N", sort=[language_name(code) for code in codes], title=None),
            fillOpacity=alt.FillOpacity("value:Q", title="R@1, percent", scale=alt.Scale(range=[0.04, 1])),
            tooltip=charts.tooltips("encoder", "language", "translator", "text"),
        )
        .properties(width=max(70, 26 * len(encoders)), height=15 * len(codes))
        .facet(column=alt.Column("translator:N", sort=ways, title=None))
    )
    spread = [
        f"{name}: from {show.number(min(own)[0])} in {min(own)[1]} to {show.number(max(own)[0])} in {max(own)[1]}"
        for name in encoders
        if (own := [(p["value"], p["language"]) for p in points if p["encoder"] == name])
    ]

    def column(name: str, way: str) -> ColumnOf[str]:
        return numbers(way, lambda code: result_cell(data.row(corpus, f"t2i/{code}/{way}", "R@1", name)), group=name)

    return charts.finish(
        picture,
        name=f"languages-{corpus}-map",
        title=f"R@1 by language, encoder and translator, {corpus}",
        alt_text=f"Heat map of R@1, text to image, for {show.count(len(codes), 'language')} and "
        f"{show.count(len(ways), 'translator')}. {'; '.join(spread)}.",
        data=pivot(
            f"languages-{corpus}-data",
            "R@1, text to image, per language and translator",
            codes,
            LANGUAGE,
            *(column(name, way) for name in encoders for way in ways),
            dense=True,
        ),
    )


def _report(data: ReportData, corpus: str, encoder: str) -> Table:
    """One row per language and translator, like the ``report.csv`` of COCO-SM, with intervals."""
    parts = [(code, way) for code in languages(data, corpus) for way in translators(data, corpus, code)]

    def cell(part: tuple[str, str], direction: str, metric: str) -> Cell:
        return result_cell(data.row(corpus, f"{direction}/{part[0]}/{part[1]}", metric, encoder))

    return pivot(
        f"languages-{corpus}-{encoder}-report",
        f"{encoder} on {corpus}, per language and translator",
        parts,
        texts("language", lambda part: _code_cell(part[0])),
        *_columns(data, corpus, cell),
        texts("translator", lambda part: part[1]),
        sortable=True,
        dense=True,
        folded=f"{encoder}: all {show.count(len(parts), 'language and translator', 'languages and translators')}",
    )


def _reduced(data: ReportData, corpus: str, encoder: str) -> Table:
    """Mean over translators per language, then over all and per translator, like the ``reduced.csv`` of COCO-SM."""
    codes, reference = languages(data, corpus), data.corpora[corpus].languages_reference
    rows: list[tuple[str, list[str], str]] = [(code, [code], "") for code in codes]  # label, languages, translator
    for without in ("", reference):
        kept = [code for code in codes if code != without]
        suffix = f" without {without}" if without else ""
        rows += [(f"{way or 'all'}{suffix}", kept, way) for way in ("", *translators(data, corpus))]

    def cell(row: tuple[str, list[str], str], direction: str, metric: str) -> Cell:
        _, kept, way = row
        values = [
            data.value(corpus, f"{direction}/{code}/{way}", metric, encoder)
            if way
            else over_translators(data, corpus, encoder, direction, code, metric)
            for code in kept
        ]
        return value(mean(values), mean_text(values) or show.ABSENT)

    return pivot(
        f"languages-{corpus}-{encoder}-reduced",
        f"{encoder} on {corpus}, reduced: mean over translators; below, mean ± sd over languages",
        rows,
        texts("language", lambda row: _code_cell(row[0]) if row[0] in codes else row[0]),
        *_columns(data, corpus, cell),
        dense=True,
        folded=f"{encoder}: the reduced table",
        note="Fractions with three decimals and standard deviations with n − 1, as COCO-SM prints them.",
    )


def _over_all(data: ReportData, corpus: str, encoder: str) -> Table:
    """The stored results over all languages, with their intervals; without rows where none are stored."""

    def cell(suffixes: tuple[str, str, str], direction: str, metric: str) -> Cell:
        _, protocol, metric_suffix = suffixes
        row = data.row(corpus, f"{direction}/{protocol}", f"{metric}{metric_suffix}", encoder)
        made = result_cell(row)
        by_noise = None if row is None else noise(row)
        return made if by_noise is None else dataclasses.replace(made, note=f"noise {show.percent(by_noise)}")

    rows = [
        suffixes for suffixes in over_languages(data, corpus) if any(cell(suffixes, d, m).sort for d, m in MEASURES)
    ]
    return pivot(
        f"languages-{corpus}-{encoder}-all",
        f"{encoder} on {corpus}, over all languages",
        rows,
        texts("over", lambda suffixes: suffixes[0]),
        *_columns(data, corpus, cell),
        dense=True,
        folded=f"{encoder}: means over languages with intervals, by speakers, and η²",
        note="A mean over languages averages the means over the translators of each language; all languages share the "
        "same bootstrap draws of images. η² describes how the figures of this table vary, in percent; where figures "
        "differ by noise alone, it is what stands beside it, because languages are many and translators few.",
    )
