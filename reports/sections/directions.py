"""Both directions under every protocol, and the ranks of encoders under different ground truths."""

from __future__ import annotations

import altair as alt

from reports import format as show
from reports.elements import charts
from reports.elements.cells import result_cell, result_column
from reports.elements.page import Block, Cell, Chart, Section, Table
from reports.elements.tables import ColumnOf, numbers, pivot, texts, value
from reports.rows.names import DIRECTION_TITLES, VARIANTS, named
from reports.rows.report_data import ReportData
from reports.sections.leaderboard import HEADLINES

GROUND_TRUTHS = (  # as displayed, protocol, metric
    ("own captions", "t2i/all", "R@1"),
    ("1,000 images", "t2i/1k", "R@1"),
    ("CxC", "t2i/cxc", "R@1"),
    ("ECCV", "t2i/eccv", "R@1"),
    ("ECCV", "t2i/eccv", "mAP@R"),
)
EXTRA_METRICS = ("MRR", "median_rank", "mean_rank", "mAP@R", "R-Precision", "nDCG@10", "RSUM")


def section(data: ReportData) -> Section:
    """Tables of the corpora with more protocols than the leaderboard shows."""
    blocks: list[Block | None] = []
    for corpus in data.corpus_names():
        with_recall = [p for p in data.protocols(corpus) if data.ranked(corpus, p, "R@1")]
        protocols = [p for base in VARIANTS for p in with_recall if p.split("@")[0] == base]
        if set(protocols) <= set(HEADLINES):
            continue
        for direction, title in DIRECTION_TITLES.items():
            if shown := [p for p in protocols if p.startswith(direction)]:
                blocks.append(
                    pivot(
                        f"directions-{corpus}-{direction}",
                        f"{corpus} · {title} · R@1",
                        [r["encoder"] for r in data.ranked(corpus, shown[0], "R@1")],
                        texts("Encoder", str),
                        *(
                            result_column(
                                data, corpus, p, "R@1", heading=named(p), explain=VARIANTS[p.split("@")[0]][1]
                            )
                            for p in shown
                        ),
                        sortable=True,
                    )
                )
        blocks += [_ground_truths(data, corpus), _further_metrics(data, corpus)]
    return Section(
        id="directions",
        title="Directions and protocols",
        lead="The same embeddings under every protocol. Text-to-image and image-to-text results are comparable only "
        "with first captions or means over positions, where each query has one right item.",
        blocks=tuple(block for block in blocks if block is not None),
    )


def _further_metrics(data: ReportData, corpus: str) -> Table | None:
    """Metrics other than R@k, folded."""
    pairs = [(p, m) for p in data.protocols(corpus) for m in EXTRA_METRICS if data.ranked(corpus, p, m)]
    pairs = [(p, m) for p, m in pairs if p.count("/") == 1]
    if not pairs:
        return None
    return pivot(
        f"directions-{corpus}-extra",
        f"{corpus} · further metrics",
        data.encoder_names(corpus),
        texts("Encoder", str),
        *(result_column(data, corpus, p, m, group=named(p), plain=True) for p, m in pairs),
        sortable=True,
        dense=True,
        folded=f"Further metrics on {corpus}",
    )


def _ground_truths(data: ReportData, corpus: str) -> Chart | None:
    """Ranks under the several ground truths as lines: where lines cross, the order changes."""
    truths = {f"{m}, {of}": rows for of, p, m in GROUND_TRUTHS if (rows := data.ranked(corpus, p, m))}
    names = [r["encoder"] for r in next(iter(truths.values()), ())]
    if len(truths) < 2 or len(names) < 2 or not any("CxC" in t or "ECCV" in t for t in truths):
        return None
    ranks = {
        truth: {r["encoder"]: rank for rank, r in enumerate(rows, 1) if r["value"] is not None}
        for truth, rows in truths.items()
    }
    points = [
        charts.interval_point(row, truth=truth, rank=ranks[truth][row["encoder"]], order=i)
        for i, (truth, rows) in enumerate(truths.items())
        for row in rows
        if row["encoder"] in ranks[truth]
    ]
    everyone = data.encoder_names()
    base = alt.Chart(alt.Data(values=points)).encode(
        x=alt.X(
            "truth:N",
            sort=list(truths),
            title=None,
            axis=alt.Axis(labelAngle=0, orient="top"),
            scale=alt.Scale(padding=0.4),
        ),
        y=alt.Y(
            "rank:Q",
            scale=alt.Scale(reverse=True, nice=False, padding=14),
            axis=alt.Axis(values=list(range(1, len(names) + 1)), format="d", grid=False),
        ),
        color=charts.colour(names, everyone),
        tooltip=charts.tooltips("encoder", "truth", "rank"),
    )
    picture = alt.layer(
        base.mark_line(strokeWidth=2.5),
        base.mark_point(filled=True, size=110, opacity=1).encode(shape=charts.shape(names, everyone)),
        base.transform_filter(f"datum.order == {len(truths) - 1}")
        .mark_text(align="left", dx=12)
        .encode(text="encoder:N", color=alt.value("currentColor")),
    ).properties(width=charts.WIDTH, height=max(160, 34 * len(names)))

    def column(truth: str) -> ColumnOf[str]:
        rows = {r["encoder"]: r for r in truths[truth]}

        def cell(name: str) -> Cell:
            if name not in ranks[truth]:
                return result_cell(rows.get(name))
            number = rows[name]["value"]
            return value(number, show.percent(number), note=f"rank {ranks[truth][name]}")

        return numbers(truth, cell)

    by_name = [f"{name}: " + ", ".join(str(of.get(name, show.ABSENT)) for of in ranks.values()) for name in names]
    return charts.finish(
        picture,
        name=f"truths-{corpus}",
        title=f"Ranks under each ground truth, text to image, {corpus}",
        alt_text=f"Ranks of {show.count(len(names), 'encoder')} under {show.listing(list(truths))}. "
        f"{'; '.join(by_name)}.",
        data=pivot(
            f"truths-{corpus}-data",
            "Value and rank under each ground truth",
            names,
            texts("Encoder", str),
            *map(column, truths),
        ),
        right_margin=110,
        note="Most captions also describe other images: CxC and ECCV Caption count those as relevant too.",
    )
