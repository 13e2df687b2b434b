"""Metrics of the first relevant item: hits in the top k, reciprocal rank, rank (``docs/protocols.md`` §4 and §5)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from capim.tasks.metrics.metric import RETRIEVAL, Metric, Ties
from capim.tasks.scoring.outcomes import Outcomes


def expected_hit(
    rank_best: NDArray[np.int32], rank_worst: NDArray[np.int32], n_tied_relevant: NDArray[np.int32], *, k: int
) -> NDArray[np.float64]:
    """Probability that a relevant item is among the top ``k`` when equal scores come in random order.

    With ``a`` items above, ``b`` irrelevant and ``c`` relevant items tied: 0 if ``a >= k``, else
    ``1 - C(b, m) / C(b + c, m)`` with ``m = min(k - a, b + c)``.

    Args:
        rank_best: ``a + 1``, shape ``(n_queries,)``.
        rank_worst: ``a + b + 1``, same shape.
        n_tied_relevant: ``c``, same shape.

    Examples:
        One relevant item, nothing above it, three irrelevant ones tied: one chance in four to be first.

        >>> expected_hit(np.int32([1]), np.int32([4]), np.int32([1]), k=1).tolist()
        [0.25]

        Two of four tied items are relevant: both of the top two are irrelevant with probability 1/6.

        >>> round(float(expected_hit(np.int32([1]), np.int32([3]), np.int32([2]), k=2)[0]), 4)
        0.8333
    """
    above = rank_best.astype(np.float64) - 1
    irrelevant = (rank_worst - rank_best).astype(np.float64)
    relevant = n_tied_relevant.astype(np.float64)
    places = np.clip(k - above, 0, irrelevant + relevant)
    miss = np.ones(len(above))
    for drawn in range(k):
        chance = np.maximum(irrelevant - drawn, 0) / np.maximum(irrelevant + relevant - drawn, 1)
        miss = np.where(drawn < places, miss * chance, miss)
    # one relevant item: the plain quotient, so that a constant scorer gets k/N to the last digit
    return np.where(relevant == 1, places / (irrelevant + 1), 1 - miss)


def rank_of_first(outcomes: Outcomes, ties: Ties) -> NDArray[np.float64]:
    """Rank of the first relevant item, shape ``(n_queries,)``: ``a + (b + c + 1) / (c + 1)`` in expectation.

    The first of ``c`` items placed at random among ``b + c`` stands at ``(b + c + 1) / (c + 1)`` on average.
    """
    if ties != "expected":
        return (outcomes.rank_worst if ties == "lost" else outcomes.rank_best).astype(np.float64)
    tied = (outcomes.rank_worst - outcomes.rank_best).astype(np.float64) + outcomes.n_tied_relevant
    return outcomes.rank_best - 1 + (tied + 1) / (outcomes.n_tied_relevant + 1)


def reciprocal_rank(outcomes: Outcomes, ties: Ties) -> NDArray[np.float64]:
    """``E[1 / rank]`` of the first relevant item, shape ``(n_queries,)``, equal scores in random order.

    McSherry and Najork (2008), Computing information retrieval performance measures efficiently in the presence of
    tied scores. Not ``1 / E[rank]``: one of three tied items is right, 0.611 and not 0.5 on average.
    """
    if ties != "expected":
        return 1 / rank_of_first(outcomes, ties)
    cases = np.stack(
        [outcomes.rank_best - 1, outcomes.rank_worst - outcomes.rank_best, outcomes.n_tied_relevant], axis=1
    )
    distinct, case_of = np.unique(cases, axis=0, return_inverse=True)
    expected = np.array([expected_reciprocal(*case) for case in distinct.tolist()], dtype=np.float64)
    return expected[case_of.ravel()]


def expected_reciprocal(above: int, irrelevant: int, relevant: int) -> float:
    """Expected ``1 / rank`` of the first relevant item with ``above`` items before a tie in random order.

    The first of ``c`` relevant among ``b`` irrelevant tied items stands at place ``j`` of the tie, from 0, with
    probability ``C(b + c - 1 - j, c - 1) / C(b + c, c)``.

    Examples:
        ``(1 + 1/2 + 1/3) / 3``:

        >>> round(expected_reciprocal(0, 2, 1), 4), expected_reciprocal(3, 0, 1)
        (0.6111, 0.25)
    """
    places = np.arange(irrelevant + 1)
    misses = (irrelevant - places[:-1]) / (irrelevant + relevant - 1 - places[:-1])  # of one place after another
    first_at = relevant / (irrelevant + relevant) * np.cumprod(np.concatenate([[1.0], misses]))
    return float((first_at / (above + 1 + places)).sum())


def random_median_rank(outcomes: Outcomes) -> float:
    """Median rank of the first relevant item when all galleries are in random order.

    The median of the distribution over all queries together, not of their expected ranks: with five relevant items
    among 25,010 it is 3,237, the expected rank 4,168.
    """
    cases = np.stack([outcomes.n_gallery, outcomes.n_relevant], axis=1)
    distinct, n_queries = np.unique(cases, axis=0, return_counts=True)
    later = np.zeros(int(distinct[:, 0].max()) + 1)  # share of queries without a relevant item up to each rank
    for (n_gallery, n_relevant), count in zip(distinct.tolist(), n_queries.tolist(), strict=True):
        ranks = np.arange(n_gallery - n_relevant)
        missed = np.cumprod((n_gallery - n_relevant - ranks) / (n_gallery - ranks))
        later[1 : len(missed) + 1] += count * missed
        later[0] += count
    later /= later[0]
    first, last = (np.argmax(later <= 0.5 + side * 1e-9) for side in (1, -1))
    return float(first + last) / 2  # the middle, where half of all orders have the item at or before a rank


def hit_at(k: int, *, judged: bool = False) -> Metric:
    """Share of queries with any relevant item in the top ``k``: ``R@k``, or ``success@k`` of judged documents.

    Not true recall; see ``recall_all@k`` and ``recall@k``.
    """

    def hits(outcomes: Outcomes, ties: Ties) -> NDArray[np.float64]:
        if ties == "expected":
            return expected_hit(outcomes.rank_best, outcomes.rank_worst, outcomes.n_tied_relevant, k=k)
        return (rank_of_first(outcomes, ties) <= k).astype(np.float64)

    title = f"Any relevant item in the top {k}"
    name = f"success@{k}" if judged else f"R@{k}"
    return Metric(name=name, title=title, directions=RETRIEVAL, values=hits, share=True, judged=judged)


RECALLS = (hit_at(1), hit_at(5), hit_at(10))
MRR = Metric(
    name="MRR",
    title="Mean reciprocal rank",
    directions=RETRIEVAL,
    values=reciprocal_rank,
)
MEAN_RANK = Metric(
    name="mean_rank",
    title="Mean rank of the first relevant item",
    directions=RETRIEVAL,
    values=rank_of_first,
    higher_is_better=False,
    judged=False,
)
MEDIAN_RANK = replace(
    MEAN_RANK,
    name="median_rank",
    title="Median rank of the first relevant item",
    reduce="median",
    guess=random_median_rank,
)
