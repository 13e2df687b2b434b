"""Both directions under every protocol: subsets, folds, and further ground truths."""

from __future__ import annotations

from capim.reports.elements.page import Block, Section, Table
from capim.reports.elements.tables import pivot, result_column, texts
from capim.reports.rows.names import DIRECTION_TITLES, VARIANTS, named
from capim.reports.rows.report_data import ReportData
from capim.reports.sections.leaderboard import HEADLINES

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
        blocks.append(_further_metrics(data, corpus))
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
