"""Languages: every encoder in every language, a map over encoders and translators, and the means with every figure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import altair as alt

from capim.reports import format as show
from capim.reports.elements import charts
from capim.reports.elements.page import Block, Cell, Chart, Section, Table
from capim.reports.elements.tables import ColumnOf, T, numbers, pivot, result_cell, texts
from capim.reports.rows import standing
from capim.reports.rows.report_data import R1, ReportData
from capim.reports.rows.standing import MEASURES
from capim.tasks.protocols import DIRECTION_TITLES, EVERY, Direction, Protocol, language_id, language_name

LANGUAGE: ColumnOf[str] = texts("Language", lambda code: Cell(text=language_name(code), title=code))


def overview_section(data: ReportData) -> Section:
    """Every encoder in every language, which the means of the grid could hide."""
    corpora = _corpora(data) if standing.conclusions(data) else []
    blocks = tuple(_heat_map(data, corpus, _encoders(data, corpus)) for corpus in corpora)
    return Section(id="languages", title="Every language", blocks=blocks)


def _corpora(data: ReportData) -> list[str]:
    """The corpora with results per language."""
    return data.corpus_names(lambda p: Protocol.of(p).is_of_language)


def _encoders(data: ReportData, corpus: str) -> list[str]:
    """The encoders with results on a corpus, the best mean over its languages first."""
    return [r.encoder for r in data.ranked(corpus, language_id("t2i"), R1)] or data.encoder_names(corpus)


def section(data: ReportData) -> Section:
    """Corpora with results per language, in detail."""
    blocks: list[Block] = []
    for corpus in _corpora(data):
        encoders = _encoders(data, corpus)
        blocks += [made for made in (_over_all(data, corpus, encoders), _report(data, corpus, encoders)) if made.rows]
    return Section(
        id="multilingual",
        title="Languages in detail",
        lead="The same images, searched in other languages. nDCG@20 measures the agreement of the ranked list in a "
        "language with that for the English original: consistency, not quality. `capim export results --format "
        "coco-sm` writes COCO-SM’s own tables.",
        blocks=tuple(blocks),
    )


def language_parts(data: ReportData, corpus: str) -> list[tuple[str, str]]:
    """The languages of a corpus, each with every translator that has results in it."""
    codes = standing.languages(data, corpus)
    return [(code, translator) for code in codes for translator in standing.translators(data, corpus, code)]


def _columns(data: ReportData, corpus: str, cell: Callable[[T, str, str], Cell]) -> list[ColumnOf[T]]:
    """A column for each direction and metric that has results per language."""
    parts = ((Protocol.of(r.protocol), r.metric) for r in data.results if r.corpus == corpus)
    stored = {(of.direction, metric) for of, metric in parts if of.is_of_language and not of.orientation}

    def column(direction: Direction, metric: str) -> ColumnOf[T]:
        group = f"{DIRECTION_TITLES[direction]} ({direction})"
        return numbers(data.metric(metric).label, lambda row: cell(row, direction, metric), group=group)

    return [column(*measure) for measure in MEASURES if measure in stored]


def _result(data: ReportData, corpus: str, protocol: str, metric: str, encoder: str) -> Cell:
    """A result in one language, with what has to be said beside chance."""
    row = data.row(corpus, protocol, metric, encoder)
    weak = standing.chance_of(row)
    return result_cell(data, row, state=weak, mark="bad" if weak else "")


def _heat_map(data: ReportData, corpus: str, encoders: list[str]) -> Chart:
    codes, ways = standing.languages(data, corpus), standing.translators(data, corpus)
    points = [
        {**charts.interval_point(row), "language": language_name(code), "translator": way}
        for code in codes
        for name in encoders
        for way in ways
        if (row := data.row(corpus, language_id("t2i", code, way), R1, name)) is not None and row.value is not None
    ]
    cell = max(26, min(60, charts.WIDTH // (len(encoders) * len(ways))))
    shades = alt.Scale(range=[f"{charts.PALETTE[2]}0a", f"{charts.PALETTE[2]}c0"], interpolate="rgb")
    legend = alt.Legend(orient="top", direction="horizontal", titleOrient="left", gradientLength=160)
    base = alt.Chart(alt.Data(values=points)).encode(
        x=alt.X("encoder:N", sort=encoders, title=None, axis=alt.Axis(labelAngle=-35)),
        y=alt.Y("language:N", sort=[language_name(code) for code in codes], title=None),
        tooltip=charts.tooltips("language", "translator", "text"),
    )
    colour = alt.Color("value:Q", title="R@1, percent", scale=shades, legend=legend)
    number = base.mark_text(fontSize=11, color="currentColor").encode(text=alt.Text("value:Q", format=".0f"))
    square = base.mark_rect(stroke="currentColor", strokeOpacity=0.15).encode(color=colour)
    size = {"width": max(70, cell * len(encoders)), "height": 20 * len(codes)}
    picture = alt.layer(square, number).properties(**size)
    if len(ways) > 1:
        picture = picture.facet(column=alt.Column("translator:N", sort=ways, title=None))
    spread = [
        f"{name}: from {show.number(min(own)[0])} in {min(own)[1]} to {show.number(max(own)[0])} in {max(own)[1]}"
        for name in encoders
        if (own := [(p["value"], p["language"]) for p in points if p[charts.ENCODER] == name])
    ]

    def column(name: str, way: str) -> ColumnOf[str]:
        return numbers(way, lambda code: _result(data, corpus, language_id("t2i", code, way), R1, name), group=name)

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
        ),
    )


def _report(data: ReportData, corpus: str, encoders: list[str]) -> Table:
    """One row per encoder, language and translator, like the ``report.csv`` of COCO-SM, with intervals."""
    parts = language_parts(data, corpus)

    def cell(row: tuple[str, str, str], direction: str, metric: str) -> Cell:
        encoder, code, way = row
        return _result(data, corpus, language_id(direction, code, way), metric, encoder)

    return pivot(
        f"languages-{corpus}-report",
        f"{corpus}, per language and translator",
        [(name, *part) for name in encoders for part in parts],
        texts("Encoder", lambda row: row[0]),
        texts("language", lambda row: Cell(text=row[1], title=language_name(row[1]))),
        texts("translator", lambda row: row[2]),
        *_columns(data, corpus, cell),
        folded=f"{corpus}: all {show.count(len(parts), 'language and translator', 'languages and translators')}",
    )


def _over_all(data: ReportData, corpus: str, encoders: list[str]) -> Table:
    """The stored results over all languages, with their intervals; without rows where none are stored."""

    def cell(of: tuple[str, tuple[str, str, str, str]], direction: str, metric: str) -> Cell:
        encoder, (_, translator, weights, metric_suffix) = of
        row = data.row(corpus, language_id(direction, EVERY, translator, weights), f"{metric}{metric_suffix}", encoder)
        made, by_noise = result_cell(data, row), None if row is None else standing.noise(row)
        return made if by_noise is None else replace(made, note=f"noise {show.percent(by_noise)}")

    over = [(name, suffixes) for name in encoders for suffixes in standing.over_languages(data, corpus)]
    return pivot(
        f"languages-{corpus}-all",
        f"{corpus}, over all languages",
        [of for of in over if any(cell(of, *measure).sort for measure in MEASURES)],
        texts("Encoder", lambda of: of[0]),
        texts("over", lambda of: of[1][0]),
        *_columns(data, corpus, cell),
        folded=f"{corpus}: means over languages with intervals, by speakers, and η²",
        note="A mean over languages averages the means over the translators of each language; in its interval an image "
        "is one in all languages. η² describes how the figures of this table vary, in percent; where figures "
        "differ by noise alone, it is what stands beside it, because languages are many and translators few.",
    )
