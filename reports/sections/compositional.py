"""Word order and binding: Winoground's three scores and SugarCrepe's categories, beside chance."""

from __future__ import annotations

import dataclasses

import altair as alt

from reports import format as show
from reports.elements import charts
from reports.elements.cells import axis_of, heading_groups, is_best, metric_title, result_cell
from reports.elements.page import Block, Cell, Chart, Column, Section, Table
from reports.rows.report_data import Evidence

PAIRS = "pair_accuracy"
WINOGROUND = ("winoground_text", "winoground_image", "winoground_group")


def section(evidence: Evidence) -> Section | None:
    """Winoground, then pairs; None without either."""
    blocks: list[Block] = []
    for corpus in evidence.corpus_names(lambda p: p == "winoground"):
        table = _winoground(evidence, corpus)
        chart = _against_chance(evidence, corpus, table)
        blocks += [table] if chart is None else [table, chart]
    blocks += [_pairs(evidence, corpus) for corpus in evidence.corpus_names() if pair_protocols(evidence, corpus)]
    if not blocks:
        return None
    return Section(
        id="compositional",
        title="Compositional reasoning",
        lead="Can the encoder tell captions apart that use the same words differently? A bag of words cannot. "
        "Only a strictly higher score counts: a tie is a miss, and is counted.",
        blocks=tuple(blocks),
    )


def _winoground(evidence: Evidence, corpus: str) -> Table:
    metrics = [m for m in WINOGROUND if evidence.ranked(corpus, "winoground", m)]
    ranked = evidence.ranked(corpus, "winoground", metrics[-1])
    columns = (
        Column(heading="Encoder"),
        *(Column(heading=metric_title(m), group="winoground", numeric=True) for m in metrics),
        Column(heading="ties", numeric=True, explain="Share of examples with a tied score, percent"),
    )
    rows = [
        (
            Cell(text=row["encoder"]),
            *(
                result_cell(
                    evidence.figures.get((corpus, "winoground", m, row["encoder"])),
                    mark="best" if is_best(row["encoder"], evidence.ranked(corpus, "winoground", m)) else "",
                    axis=axis_of(evidence.ranked(corpus, "winoground", m)),
                )
                for m in metrics
            ),
            Cell(text=show.percent(row["tie_share"]), sort=show.exact(row["tie_share"])),
        )
        for row in ranked
    ]
    chance = [evidence.ranked(corpus, "winoground", m)[0]["chance"] for m in metrics]
    rows.append(
        (
            Cell(text="chance", mark="muted"),
            *(Cell(text=show.percent(c), sort=show.exact(c), mark="muted") for c in chance),
            Cell(text=show.ABSENT, mark="muted"),
        )
    )
    return Table(
        id=f"winoground-{corpus}",
        caption=f"{corpus} · winoground · percent of {show.count(ranked[0]['n_queries'], 'example')}",
        columns=columns,
        rows=tuple(rows),
        groups=heading_groups(columns),
        note="Text: for both images the right caption wins. Image: for both captions the right image wins. "
        "Group: both. (The V28 seed’s printed columns have text and image exchanged.)",
        sortable=True,
    )


def _against_chance(evidence: Evidence, corpus: str, table: Table) -> Chart | None:
    """The three scores as points with intervals, each beside its own chance line."""
    metrics = [m for m in WINOGROUND if evidence.ranked(corpus, "winoground", m)]
    names = [r["encoder"] for r in evidence.ranked(corpus, "winoground", metrics[-1])]
    points = [
        {
            "encoder": r["encoder"],
            "score": metric_title(m),
            "value": 100 * r["value"],
            "ci_low": 100 * (r["value"] if r["ci_low"] is None else r["ci_low"]),
            "ci_high": 100 * (r["value"] if r["ci_high"] is None else r["ci_high"]),
            "chance": 100 * r["chance"],
            "text": f"{show.percent(r['value'])} % ({show.percent_range(r['ci_low'], r['ci_high'])})",
        }
        for m in metrics
        for r in evidence.ranked(corpus, "winoground", m)
        if r["value"] is not None and r["chance"] is not None
    ]
    if not points:
        return None
    everyone = evidence.encoder_names()
    base = alt.Chart().encode(
        y=alt.Y("encoder:N", sort=names, title=None),
        color=alt.Color("encoder:N", scale=charts.colours(names, everyone), legend=None),
        tooltip=[alt.Tooltip(f"{f}:N") for f in ("encoder", "score", "text")],
    )
    x = alt.X("ci_low:Q", title="percent", scale=alt.Scale(domainMin=0))
    picture = (
        alt.layer(
            alt.Chart().mark_rule(strokeDash=[3, 3], opacity=0.7).encode(x="mean(chance):Q"),
            base.mark_rule(strokeWidth=2, opacity=0.75).encode(x=x, x2="ci_high:Q"),
            base.mark_point(filled=True, size=90, opacity=1).encode(
                x="value:Q", shape=alt.Shape("encoder:N", scale=charts.shapes(names, everyone), legend=None)
            ),
        )
        .properties(width=170, height=max(60, 26 * len(names)))
        .facet(
            data=charts.values(points),
            column=alt.Column("score:N", sort=[metric_title(m) for m in metrics], title=None),
        )
    )
    told = [f"{p['encoder']}, {p['score']}: {p['text']}, chance {show.number(p['chance'])} %" for p in points]
    return charts.finish(
        picture,
        name=f"winoground-{corpus}-chance",
        title=f"Winoground’s scores beside chance, {corpus}",
        alt_text=f"Dot plot with intervals. {'; '.join(told)}.",
        data=dataclasses.replace(table, id=f"{table.id}-data", sortable=False),
        note="Dotted: chance.",
    )


def pair_protocols(evidence: Evidence, corpus: str) -> list[str]:
    """Protocols with hard negatives, by name, each family's means last."""
    protocols = [p for p in evidence.protocols(corpus) if evidence.ranked(corpus, p, PAIRS)]
    return sorted(protocols, key=lambda p: (p.split("/")[0], p.endswith(("/macro", "/micro")), p))


def _pairs(evidence: Evidence, corpus: str) -> Table:
    protocols = pair_protocols(evidence, corpus)
    order = [r["encoder"] for r in evidence.ranked(corpus, protocols[0], PAIRS)]
    columns = (
        Column(heading="Encoder"),
        *(
            Column(heading=p.split("/", 1)[1].replace("_", " "), group=p.split("/", 1)[0], numeric=True)
            for p in protocols
        ),
    )
    rows = [
        (
            Cell(text=name),
            *(
                result_cell(
                    evidence.figures.get((corpus, p, PAIRS, name)),
                    mark="best" if is_best(name, evidence.ranked(corpus, p, PAIRS)) else "",
                    axis=axis_of(evidence.ranked(corpus, p, PAIRS)),
                )
                for p in protocols
            ),
        )
        for name in order
    ]
    rows.append((Cell(text="chance", mark="muted"), *(Cell(text="50.0", sort="0.5", mark="muted") for _ in protocols)))
    return Table(
        id=f"pairs-{corpus}",
        caption=f"{corpus} · percent of pairs where the caption beats its hard negative",
        columns=columns,
        rows=tuple(rows),
        groups=heading_groups(columns),
        sortable=True,
    )
