"""Both directions side by side, and how the order of encoders moves with the ground truth."""

from __future__ import annotations

import altair as alt

from reports import format as show
from reports.elements import charts
from reports.elements.cells import axis_of, heading_groups, is_best, metric_title, result_cell
from reports.elements.page import Block, Cell, Chart, Column, Section, Table
from reports.rows.report_data import Evidence
from reports.sections.leaderboard import HEADLINES

ORDER = (
    "t2i/all", "t2i/first", "t2i/ordinal-mean", "t2i/1k", "t2i/cxc", "t2i/eccv",
    "i2t/any", "i2t/any5", "i2t/symmetric-first", "i2t/symmetric-mean", "i2t/1k", "i2t/cxc", "i2t/eccv",
)  # fmt: skip
GROUND_TRUTHS = (("t2i/all", "R@1"), ("t2i/1k", "R@1"), ("t2i/cxc", "R@1"), ("t2i/eccv", "R@1"), ("t2i/eccv", "mAP@R"))
EXTRA_METRICS = ("MRR", "median_rank", "mean_rank", "mAP@R", "R-Precision", "nDCG@10", "RSUM")


def section(evidence: Evidence) -> Section | None:
    """Where a corpus has more protocols than the leaderboard shows."""
    blocks: list[Block] = []
    for corpus in evidence.corpus_names():
        have = [p for p in evidence.protocols(corpus) if evidence.ranked(corpus, p, "R@1")]
        protocols = [p for known in ORDER for p in have if p.split("@")[0] == known]
        if set(protocols) <= set(HEADLINES):
            continue
        for direction in ("t2i", "i2t"):
            side = [p for p in protocols if p.startswith(direction)]
            if side:
                blocks.append(_table(evidence, corpus, direction, side))
        panel = _panel(evidence, corpus)
        if panel is not None:
            blocks.append(panel)
        extra = _extra(evidence, corpus)
        if extra is not None:
            blocks.append(extra)
    if not blocks:
        return None
    return Section(
        id="directions",
        title="Directions and protocols",
        lead="The same embeddings under every protocol. Text to image and image to text may be compared with each "
        "other only under the symmetric protocols, where both have one right answer; i2t/any counts any of several.",
        blocks=tuple(blocks),
    )


def _table(evidence: Evidence, corpus: str, direction: str, protocols: list[str]) -> Table:
    order = [r["encoder"] for r in evidence.ranked(corpus, protocols[0], "R@1")]
    ranked = {p: evidence.ranked(corpus, p, "R@1") for p in protocols}
    columns = (
        Column(heading="Encoder"),
        *(Column(heading=p, numeric=True, explain=_explain(p)) for p in protocols),
    )
    title = {"t2i": "text to image", "i2t": "image to text"}[direction]
    return Table(
        id=f"directions-{corpus}-{direction}",
        caption=f"{corpus} · {title} · R@1",
        columns=columns,
        rows=tuple(
            (
                Cell(text=name),
                *(
                    result_cell(
                        evidence.figures.get((corpus, p, "R@1", name)),
                        mark="best" if is_best(name, ranked[p]) else "",
                        axis=axis_of(ranked[p]),
                    )
                    for p in protocols
                ),
            )
            for name in order
        ),
        sortable=True,
    )


_EXPLANATIONS = {
    "t2i/all": "every caption over every image",
    "t2i/first": "the first caption of every image: a biased draw",
    "t2i/ordinal-mean": "mean over the caption positions: the fair pair of i2t/symmetric-mean",
    "t2i/1k": "mean of five folds of 1,000 images",
    "t2i/cxc": "Crisscrossed Captions positives",
    "t2i/eccv": "ECCV Caption positives",
    "i2t/any": "every image over every caption, any own caption counts",
    "i2t/any5": "as i2t/any over captions 0 to 4",
    "i2t/symmetric-first": "every image over the first captions: one right answer",
    "i2t/symmetric-mean": "mean over the caption positions, one right answer each",
    "i2t/1k": "mean of five folds of 1,000 images",
    "i2t/cxc": "Crisscrossed Captions positives",
    "i2t/eccv": "ECCV Caption positives",
}


def _explain(protocol: str) -> str:
    base, _, orientation = protocol.partition("@")
    return _EXPLANATIONS[base] + (f"; late interaction, {orientation}" if orientation else "")


def _extra(evidence: Evidence, corpus: str) -> Table | None:
    """Metrics beside R@k, folded."""
    wanted = [(p, m) for p in evidence.protocols(corpus) for m in EXTRA_METRICS if evidence.ranked(corpus, p, m)]
    wanted = [(p, m) for p, m in wanted if p.count("/") == 1]
    if not wanted:
        return None
    columns = (
        Column(heading="Encoder"),
        *(Column(heading=metric_title(m), group=p, numeric=True) for p, m in wanted),
    )
    return Table(
        id=f"directions-{corpus}-extra",
        caption=f"{corpus} · further metrics",
        columns=columns,
        rows=tuple(
            (Cell(text=name), *(result_cell(evidence.figures.get((corpus, p, m, name))) for p, m in wanted))
            for name in evidence.encoder_names(corpus)
        ),
        groups=heading_groups(columns),
        sortable=True,
        dense=True,
        folded=f"Further metrics on {corpus}",
    )


def _panel(evidence: Evidence, corpus: str) -> Chart | None:
    """Places under the several ground truths, as lines: crossings are changes of the order."""
    columns = [(p, m) for p, m in GROUND_TRUTHS if evidence.ranked(corpus, p, m)]
    names = [r["encoder"] for r in evidence.ranked(corpus, *columns[0])] if columns else []
    if len(columns) < 2 or len(names) < 2 or not any(p in ("t2i/cxc", "t2i/eccv") for p, _ in columns):
        return None
    places = {
        (p, m): {r["encoder"]: i for i, r in enumerate(evidence.ranked(corpus, p, m), 1) if r["value"] is not None}
        for p, m in columns
    }
    heads = [f"{m}, {p}" for p, m in columns]
    points = [
        {"encoder": name, "truth": head, "place": places[key][name], "order": i}
        for i, (key, head) in enumerate(zip(columns, heads, strict=True))
        for name in names
        if name in places[key]
    ]
    everyone = evidence.encoder_names()
    places_axis = alt.Axis(values=list(range(1, len(names) + 1)), format="d", grid=False)
    base = alt.Chart(charts.values(points)).encode(
        x=alt.X(
            "truth:N",
            sort=heads,
            title=None,
            axis=alt.Axis(labelAngle=0, orient="top"),
            scale=alt.Scale(padding=0.4),
        ),
        y=alt.Y("place:Q", title="place", scale=alt.Scale(reverse=True, nice=False, padding=14), axis=places_axis),
        color=alt.Color("encoder:N", scale=charts.colours(names, everyone), legend=None),
        tooltip=[alt.Tooltip(f"{f}:N") for f in ("encoder", "truth", "place")],
    )
    last = f"datum.order == {len(columns) - 1}"
    picture = alt.layer(
        base.mark_line(strokeWidth=2.5),
        base.mark_point(filled=True, size=110, opacity=1).encode(
            shape=alt.Shape("encoder:N", scale=charts.shapes(names, everyone), legend=None)
        ),
        base.transform_filter(last)
        .mark_text(align="left", dx=12)
        .encode(text="encoder:N", color=alt.value("currentColor")),
    ).properties(width=charts.WIDTH, height=max(160, 34 * len(names)))
    moved = [f"{name}: " + ", ".join(f"{places[key].get(name, show.ABSENT)}" for key in columns) for name in names]
    return charts.finish(
        picture,
        name=f"truths-{corpus}",
        title=f"How the order moves with the ground truth, {corpus}",
        alt_text=f"Places of {show.count(len(names), 'encoder')} under {show.listing(heads)}. {'; '.join(moved)}.",
        data=Table(
            id=f"truths-{corpus}-data",
            caption="Figure and place under each ground truth",
            columns=(Column(heading="Encoder"), *(Column(heading=h, numeric=True) for h in heads)),
            rows=tuple(
                (
                    Cell(text=name),
                    *(_placed(evidence, corpus, p, m, name, places[p, m].get(name)) for p, m in columns),
                )
                for name in names
            ),
        ),
        room_right=110,
        note="Few captions are the only right one for their image: CxC and ECCV Caption count the others as well.",
    )


def _placed(evidence: Evidence, corpus: str, protocol: str, metric: str, name: str, place: int | None) -> Cell:
    row = evidence.figures.get((corpus, protocol, metric, name))
    if row is None or row["value"] is None or place is None:
        return result_cell(row)
    return Cell(text=show.percent(row["value"]), note=f"place {place}", sort=show.exact(row["value"]))
