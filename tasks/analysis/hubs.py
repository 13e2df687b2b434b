"""Hubs: items that turn up in far more result lists than their share (Radovanović et al., JMLR 11, 2010).

``N_k`` of an item is the number of queries that have it among their first ``k``. Hubs make its distribution skewed:
some items are found for everything, many for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tasks.analysis.bootstrap import NO_SPREAD, Interval, interval_of
from tasks.analysis.draws import count_blocks
from tasks.analysis.subject import Slice, Subject
from tasks.scoring.judgements import RetrievalJudgement
from tasks.scoring.outcomes import Outcomes
from tasks.scoring.protocols import judge

K = 10
WORST = 10  # hubs listed
REPLICATES = 1000  # each draw counts every list again, so fewer than elsewhere


def hubs(subject: Subject) -> Iterator[Slice]:
    """Skewness of ``N_10``, shares of hubs and of items that nobody finds, and the worst hubs by name.

    Protocols without result lists (hit lists from elsewhere, quadruples) have no such rows.
    """
    judgement = judge(subject.corpus, subject.protocol)
    if not isinstance(judgement, RetrievalJudgement):
        return
    searched = np.unique(np.concatenate(judgement.galleries))
    items = subject.corpus.images if subject.protocol.direction == "t2i" else subject.corpus.captions
    for encoder, outcomes in subject.outcomes.items():
        if outcomes.top_ords is None:
            continue
        counts = k_occurrence(outcomes.top_ords, K, len(items))
        figures = np.array(_figures(counts[searched][None].astype(np.float64)))[:, 0]
        drawn = _drawn(subject, outcomes, searched, len(items))
        worst = _worst(outcomes, counts, items["id"].to_pylist())
        names = (("skewness", "N_10"), ("share of hubs", "N_10 over mean + 2 sd"), ("share never found", "N_10 = 0"))
        for (feature, level_name), figure, replicates in zip(names, figures, drawn, strict=True):
            spread = bool(np.isfinite(figure)) and replicates.min() < replicates.max()
            yield Slice(
                encoder=encoder,
                analysis="hubs",
                feature=feature,
                level_name=level_name,
                metric=feature,
                interval=interval_of(float(figure), replicates, level=subject.settings.level)
                if spread
                else Interval(value=float(figure), reason=NO_SPREAD),
                n_queries=len(outcomes),
                n_clusters=subject.clusters.n_occupied,
                detail={"replicates": min(REPLICATES, subject.settings.replicates), "worst": worst},
            )


def k_occurrence(top_ords: NDArray[np.int32], k: int, n_items: int) -> NDArray[np.int64]:
    """``N_k`` of every item: int64, shape ``(n_items,)``.

    Args:
        top_ords: Best items of every query, shape ``(n_queries, width)``, -1 beyond the gallery.
        k: Length of the lists looked at.
        n_items: Of the corpus, searched or not.

    Examples:
        >>> k_occurrence(np.int32([[0, 1], [0, 2], [1, 0]]), 2, 4).tolist()
        [3, 2, 1, 0]
    """
    found = top_ords[:, :k].ravel()
    return np.bincount(found[found >= 0], minlength=n_items)


def is_hub(counts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which items are hubs: ``N_k`` more than two standard deviations above the mean.

    Examples:
        >>> is_hub(np.array([1, 1, 1, 1, 1, 1, 1, 20])).tolist().index(True)
        7
    """
    hub: NDArray[np.bool_] = counts > counts.mean() + 2 * counts.std()
    return hub


def _figures(counts: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Skewness, share of hubs, share never found, of each row of counts (n_draws, n_items)."""
    mean = counts.mean(axis=1, keepdims=True)
    spread = counts.std(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        skewness = (((counts - mean) / spread) ** 3).mean(axis=1)
    return skewness, (counts > mean + 2 * spread).mean(axis=1), (counts == 0).mean(axis=1)


def _drawn(subject: Subject, outcomes: Outcomes, searched: NDArray[np.int32], n_items: int) -> NDArray[np.float64]:
    """The three figures of every draw: shape ``(3, replicates)``. A query drawn twice counts its list twice."""
    if outcomes.top_ords is None:
        raise ValueError(f"outcomes of {outcomes.protocol.id!r} have no result lists")
    lists = outcomes.top_ords[:, :K]
    owner = np.repeat(subject.clusters.labels, lists.shape[1])
    item = lists.ravel()
    real = item >= 0
    table = sparse.csr_matrix(
        (np.ones(real.sum(), dtype=np.float32), (owner[real], item[real])),
        shape=(subject.clusters.n_clusters, n_items),
    )[:, searched]
    columns = table.T.tocsr()
    replicates = min(REPLICATES, subject.settings.replicates)
    blocks = count_blocks(subject.clusters.n_clusters, replicates=replicates, seed=subject.settings.seed)
    figures = [_figures((columns @ counts.T.astype(np.float32)).T.astype(np.float64)) for counts in blocks]
    return np.concatenate([np.array(block) for block in figures], axis=1)


def _worst(outcomes: Outcomes, counts: NDArray[np.int64], ids: list[str]) -> list[dict[str, object]]:
    """The items that are most often first without being right."""
    if outcomes.top_ords is None:
        return []
    wrong = outcomes.top_ords[outcomes.rank_low > 1, 0]
    first = np.bincount(wrong[wrong >= 0], minlength=len(counts))
    order = np.lexsort((-counts, -first))[:WORST]
    return [{"id": ids[i], "wrongly_first": int(first[i]), "n_10": int(counts[i])} for i in order if first[i]]
