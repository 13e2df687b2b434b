"""Languages: a heat map over encoders, and COCO-SM's own two tables for each encoder."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from reports import format as show
from reports.elements import charts
from reports.elements.cells import heat, metric_title, result_cell
from reports.elements.page import Block, Cell, Chart, Column, Section, Table
from reports.rows.languages import (
    NDCG,
    RBO,
    cross_lingual,
    deviation,
    figure,
    language_mean,
    language_name,
    languages,
    mean,
    over_languages,
    over_translators,
    translators,
)
from reports.rows.report_data import Evidence

COLUMNS = (
    *((direction, f"R@{k}") for direction in ("t2i", "i2t") for k in (1, 5, 10)),
    ("t2i", NDCG),
    ("i2t", NDCG),
    ("t2i", RBO),
    ("i2t", RBO),
)


def section(evidence: Evidence) -> Section | None:
    """Corpora with figures per language."""
    blocks: list[Block] = []
    for corpus in evidence.corpus_names(lambda p: cross_lingual(p) is not None):
        encoders = _encoders(evidence, corpus)
        blocks.append(_heat_table(evidence, corpus, encoders))
        blocks.append(_heat_map(evidence, corpus, encoders))
        for encoder in encoders:
            if (summary := _over_all(evidence, corpus, encoder)) is not None:
                blocks.append(summary)
            blocks += [_reduced(evidence, corpus, encoder), _report(evidence, corpus, encoder)]
    if not blocks:
        return None
    return Section(
        id="multilingual",
        title="Languages",
        lead="The same images, searched in other languages. nDCG@20 says how far the list in a language agrees with "
        "the list for the English original: consistency, not quality.",
        blocks=tuple(blocks),
    )


def _encoders(evidence: Evidence, corpus: str) -> list[str]:
    """Encoders with per-language figures, best mean over the other languages first."""
    reference = evidence.corpora[corpus].languages_reference
    means = {
        name: language_mean(evidence, corpus, name, "t2i", "R@1", without=reference)
        for name in evidence.encoder_names(corpus)
    }
    return sorted((n for n in means if means[n] is not None), key=lambda n: (-(means[n] or 0.0), n)) or sorted(means)


def _present(evidence: Evidence, corpus: str) -> list[tuple[str, str]]:
    have = {(c.direction, r["metric"]) for r in evidence.results if r["corpus"] == corpus
            and (c := cross_lingual(r["protocol"])) is not None}  # fmt: skip
    return [column for column in COLUMNS if column in have]


def _heat_table(evidence: Evidence, corpus: str, encoders: list[str]) -> Table:
    codes = languages(evidence, corpus)
    reference = evidence.corpora[corpus].languages_reference
    values = {(n, c): over_translators(evidence, corpus, n, "t2i", c, "R@1") for n in encoders for c in codes}
    known = [v for v in values.values() if v is not None]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    rows = [
        (
            Cell(text=language_name(code), title=code),
            *(
                Cell(
                    text=show.percent(values[n, code]),
                    sort=show.exact(values[n, code]),
                    heat=heat(values[n, code], low, high),
                )
                for n in encoders
            ),
        )
        for code in codes
    ]
    for label, without in ((f"mean without {language_name(reference)}", reference), ("mean of all", None)):
        means = [language_mean(evidence, corpus, n, "t2i", "R@1", without=without) for n in encoders]
        rows.append(
            (
                Cell(text=label, mark="muted"),
                *(Cell(text=show.percent(m), sort=show.exact(m), mark="muted") for m in means),
            )
        )
    ways = show.count(len(translators(evidence, corpus)), "translator")
    return Table(
        id=f"languages-{corpus}",
        caption=f"{corpus} · t2i/<language>/<translator> · R@1, mean over {ways}",
        columns=(Column(heading="Language"), *(Column(heading=n, numeric=True) for n in encoders)),
        rows=tuple(rows),
        note="The published COCO-SM “Mean” includes English; the mean without it says how the encoder does elsewhere. "
        "The intervals of every language and translator are in the tables below.",
        sortable=True,
    )


def _heat_map(evidence: Evidence, corpus: str, encoders: list[str]) -> Chart:
    codes, ways = languages(evidence, corpus), translators(evidence, corpus)
    cells = [
        {"language": language_name(code), "encoder": name, "translator": way, "value": 100 * row["value"],
         "text": f"{show.percent(row['value'])} % ({show.percent_range(row['ci_low'], row['ci_high'])})"}
        for code in codes for name in encoders for way in ways
        if (row := figure(evidence, corpus, name, "t2i", code, way, "R@1")) is not None and row["value"] is not None
    ]  # fmt: skip
    names = [language_name(code) for code in codes]
    picture = (
        alt.Chart(charts.values(cells))
        .mark_rect(stroke="currentColor", strokeOpacity=0.15)
        .encode(
            x=alt.X("encoder:N", sort=encoders, title=None, axis=alt.Axis(labelAngle=-35)),
            y=alt.Y("language:N", sort=names, title=None),
            color=alt.Color("value:Q", title="R@1, percent", scale=alt.Scale(scheme="viridis")),
            tooltip=[alt.Tooltip(f"{f}:N") for f in ("encoder", "language", "translator", "text")],
        )
        .properties(width=max(70, 26 * len(encoders)), height=15 * len(codes))
        .facet(column=alt.Column("translator:N", sort=ways, title=None))
    )
    spread = [
        f"{name}: from {show.percent(min(own)[0])} in {min(own)[1]} to {show.percent(max(own)[0])} in {max(own)[1]}"
        for name in encoders
        if (own := [(c["value"] / 100, c["language"]) for c in cells if c["encoder"] == name])
    ]
    return charts.finish(
        picture,
        name=f"languages-{corpus}-map",
        title=f"R@1 by language, encoder and translator, {corpus}",
        alt_text=f"Heat map of R@1 under t2i for {show.count(len(codes), 'language')} and "
        f"{show.count(len(ways), 'translator')}. {'; '.join(spread)}.",
        data=Table(
            id=f"languages-{corpus}-data",
            caption="R@1, t2i, per language and translator",
            columns=(
                Column(heading="Language"),
                *(Column(heading=way, group=name, numeric=True) for name in encoders for way in ways),
            ),
            rows=tuple(
                (
                    Cell(text=language_name(code), title=code),
                    *(
                        result_cell(figure(evidence, corpus, name, "t2i", code, way, "R@1"))
                        for name in encoders
                        for way in ways
                    ),
                )
                for code in codes
            ),
            dense=True,
        ),
    )


def _report(evidence: Evidence, corpus: str, encoder: str) -> Table:
    """One row per language and translator, like the seed's ``report.csv``, with intervals."""
    columns = _present(evidence, corpus)
    rows = [
        (
            Cell(text=code, title=language_name(code)),
            *(result_cell(figure(evidence, corpus, encoder, d, code, way, m)) for d, m in columns),
            Cell(text=way),
        )
        for code in languages(evidence, corpus)
        for way in translators(evidence, corpus, code)
    ]
    return Table(
        id=f"languages-{corpus}-{encoder}-report",
        caption=f"{encoder} on {corpus}, per language and translator",
        columns=(
            Column(heading="language"),
            *_measured(columns),
            Column(heading="translator"),
        ),
        rows=tuple(rows),
        sortable=True,
        dense=True,
        folded=f"{encoder}: all {show.count(len(rows), 'language and translator', 'languages and translators')}",
    )


def _reduced(evidence: Evidence, corpus: str, encoder: str) -> Table:
    """Mean over translators per language, then over all and per translator, like the seed's ``reduced.csv``."""
    columns = _present(evidence, corpus)
    codes, ways = languages(evidence, corpus), translators(evidence, corpus)
    reference = evidence.corpora[corpus].languages_reference
    rows = [
        (
            Cell(text=code, title=language_name(code)),
            *(_fraction([over_translators(evidence, corpus, encoder, d, code, m)]) for d, m in columns),
        )
        for code in codes
    ]
    for without in (None, reference):
        kept = [code for code in codes if code != without]
        suffix = f" without {without}" if without else ""
        rows.append(
            (
                Cell(text=f"all{suffix}"),
                *(
                    _fraction([over_translators(evidence, corpus, encoder, d, c, m) for c in kept], spread=True)
                    for d, m in columns
                ),
            )
        )
        rows += [
            (
                Cell(text=f"{way}{suffix}"),
                *(
                    _fraction([_value(evidence, corpus, encoder, d, c, way, m) for c in kept], spread=True)
                    for d, m in columns
                ),
            )
            for way in ways
        ]
    return Table(
        id=f"languages-{corpus}-{encoder}-reduced",
        caption=f"{encoder} on {corpus}, reduced: mean over translators; below, mean ± sd over languages",
        columns=(
            Column(heading="language"),
            *_measured(columns),
        ),
        rows=tuple(rows),
        dense=True,
        folded=f"{encoder}: the reduced table",
        note="Fractions with three decimals and standard deviations with n − 1, as COCO-SM prints them.",
    )


def _measured(columns: list[tuple[str, str]]) -> tuple[Column, ...]:
    """A column of figures for each direction and metric."""
    return tuple(Column(heading=f"{d} {metric_title(m)}", numeric=True) for d, m in columns)


def _over_all(evidence: Evidence, corpus: str, encoder: str) -> Table | None:
    """The stored figures over all languages, with their intervals; None before `capim evaluate` saw them all."""
    columns = _present(evidence, corpus)
    rows = []
    for label, protocol, metric in over_languages(evidence, corpus):
        found = [evidence.figures.get((corpus, f"{d}/{protocol}", f"{m}{metric}", encoder)) for d, m in columns]
        if any(row is not None and row["value"] is not None for row in found):
            rows.append((Cell(text=label), *map(result_cell, found)))
    if not rows:
        return None
    return Table(
        id=f"languages-{corpus}-{encoder}-all",
        caption=f"{encoder} on {corpus}, over all languages",
        columns=(
            Column(heading="over"),
            *_measured(columns),
        ),
        rows=tuple(rows),
        dense=True,
        folded=f"{encoder}: means over languages with intervals, by speakers, and where the variance is",
        note="A mean is over languages, each the mean of its translators; all of them see the same draws of images. "
        "The three shares of the variance add up to all of it and have no interval.",
    )


def _value(
    evidence: Evidence, corpus: str, encoder: str, direction: str, code: str, way: str, metric: str
) -> float | None:
    row = figure(evidence, corpus, encoder, direction, code, way, metric)
    value: float | None = row["value"] if row is not None else None
    return value


def _fraction(values: Sequence[float | None], *, spread: bool = False) -> Cell:
    centre, sd = mean(values), deviation(values)
    text = show.number(centre, 3)
    return Cell(text=f"{text} ± {show.number(sd, 3)}" if spread and sd is not None else text, sort=show.exact(centre))
