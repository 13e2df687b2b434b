"""Metrics of the first relevant item: hits in the top k, reciprocal rank, rank (``docs/metrics.md``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from capim.store.schema import UNLISTED
from capim.store.vectors import positions_within
from capim.tasks.metrics.metric import OF_SEARCHES, RETRIEVAL, Metric, Ties, decided, first_of_ties, stored_values
from capim.tasks.ranking.outcomes import Outcomes


def expected_hit(
    rank_best: NDArray[np.int32], rank_worst: NDArray[np.int32], n_tied_relevant: NDArray[np.int32], *, k: int
) -> NDArray[np.float64]:
    """Return the probability that a relevant item is in the top ``k`` if equal scores are in random order.

    With ``a`` items above, ``b`` irrelevant and ``c`` relevant items tied: 0 if ``a >= k``, else
    ``1 - C(b, m) / C(b + c, m)`` with ``m = min(k - a, b + c)``.

    Args:
        rank_best: ``a + 1``, shape ``(n_queries,)``.
        rank_worst: ``a + b + 1``, same shape.
        n_tied_relevant: ``c``, same shape.

    Examples:
        One relevant item, nothing above it, three tied irrelevant ones: one chance in four to be first.

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
    """Return the rank of the first relevant item, shape ``(n_queries,)``: ``a + (b + c + 1) / (c + 1)`` in expectation.

    The first of ``c`` items placed at random among ``b + c`` has the rank ``(b + c + 1) / (c + 1)`` on average.
    """
    if ties != "expected":
        return (outcomes.rank_worst if ties == "lost" else outcomes.rank_best).astype(np.float64)
    tied = (outcomes.rank_worst - outcomes.rank_best).astype(np.float64) + outcomes.n_tied_relevant
    return outcomes.rank_best - 1 + (tied + 1) / (outcomes.n_tied_relevant + 1)


def reciprocal_rank(outcomes: Outcomes, ties: Ties) -> NDArray[np.float64]:
    """Return ``E[1 / rank]`` of the first relevant item, shape ``(n_queries,)``, with equal scores in random order.

    McSherry and Najork (2008), Computing information retrieval performance measures efficiently in the presence of
    tied scores. Not ``1 / E[rank]``: if one of three tied items is relevant, the average is 0.611 and not 0.5.
    """
    if ties != "expected":
        return np.where(outcomes.rank_best < UNLISTED, 1 / rank_of_first(outcomes, ties), 0.0)
    cases = np.stack(
        [outcomes.rank_best - 1, outcomes.rank_worst - outcomes.rank_best, outcomes.n_tied_relevant], axis=1
    )
    distinct, case_of = np.unique(cases, axis=0, return_inverse=True)
    expected = np.array([expected_reciprocal(*case) for case in distinct.tolist()], dtype=np.float64)
    return np.where(outcomes.rank_best < UNLISTED, expected[case_of.ravel()], 0.0)


def expected_reciprocal(above: int, irrelevant: int, relevant: int) -> float:
    """Return the expected ``1 / rank`` of the first relevant item with ``above`` items before a tie in random order.

    The first of ``c`` relevant among ``b`` irrelevant tied items is at place ``j`` of the tie, from 0, with probability
    ``C(b + c - 1 - j, c - 1) / C(b + c, c)``.

    Examples:
        ``(1 + 1/2 + 1/3) / 3``:

        >>> round(expected_reciprocal(0, 2, 1), 4), expected_reciprocal(3, 0, 1)
        (0.6111, 0.25)
    """
    places = np.arange(irrelevant + 1)
    misses = (irrelevant - places[:-1]) / (irrelevant + relevant - 1 - places[:-1])  # of each place in turn
    first_at = relevant / (irrelevant + relevant) * np.cumprod(np.concatenate([[1.0], misses]))
    return float((first_at / (above + 1 + places)).sum())


def random_median_rank(outcomes: Outcomes) -> float:
    """Return the median rank of the first relevant item if all galleries are in random order.

    This is the median of the distribution over all queries together, not of their expected ranks: with five relevant
    items among 25,010 it is 3,237, while the expected rank is 4,168.
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
    """Make the share of queries with any relevant item in the top ``k``: ``R@k``; ``success@k`` for judged documents.

    This is not true recall; see ``recall_all@k`` and ``recall@k``.
    """

    def hits(outcomes: Outcomes, ties: Ties) -> NDArray[np.float64]:
        if ties == "expected":
            return expected_hit(outcomes.rank_best, outcomes.rank_worst, outcomes.n_tied_relevant, k=k)
        return (rank_of_first(outcomes, ties) <= k).astype(np.float64)

    first = k == 1 and not judged
    return Metric(
        name=f"success@{k}" if judged else f"R@{k}",
        title=f"Any relevant item in the top {k}",
        headline="retrieval" if first else "",
        leaderboard=() if judged else ("retrieval", "labels") if k in (1, 5) else ("retrieval",),
        beside_chance=first,
        values=hits,
        share=True,
        judged=judged,
        **OF_SEARCHES,
    )


RECALLS = (hit_at(1), hit_at(5), hit_at(10))
MRR = Metric(name="MRR", title="Mean reciprocal rank", leaderboard=("judged",), values=reciprocal_rank, **OF_SEARCHES)
MEAN_RANK = Metric(
    name="mean_rank",
    heading="mean rank",
    unit="rank",
    title="Mean rank of the first relevant item",
    place="none",
    directions=RETRIEVAL,
    values=rank_of_first,
    bounds=(1.0, np.inf),
    higher_is_better=False,
    judged=False,
)
MEDIAN_RANK = replace(
    MEAN_RANK,
    name="median_rank",
    heading="median rank",
    title="Median rank of the first relevant item",
    reduce="median",
    guess=random_median_rank,
)


# --- Metrics of all relevant items of a query: recall@k, AP, mAP@R, R-Precision, nDCG@k, with ties in expectation.
#
# Equal scores are averaged over random orders (McSherry and Najork, "Computing Information Retrieval Performance
# Measures Efficiently in the Presence of Tied Scores", ECIR 2008).


class TieGroups(NamedTuple):
    """Runs of equal scores that hold a relevant item; arrays of shape ``(n_groups,)``, queries in order."""

    query: NDArray[np.int64]
    above: NDArray[np.int64]  # items above the group
    relevant_above: NDArray[np.int64]
    relevant: NDArray[np.int64]  # in the group
    gain: NDArray[np.int64]  # sum of the grades of these, or their number without grades
    size: NDArray[np.int64]  # of the group, including irrelevant items


def tie_groups(outcomes: Outcomes) -> TieGroups:
    """Return the groups behind ``relevant_rank_best`` and ``relevant_rank_worst``; see :func:`first_of_ties`."""
    low, high = outcomes.relevant_rank_best.astype(np.int64), outcomes.relevant_rank_worst.astype(np.int64)
    query = outcomes.query_of_relevant
    first = np.flatnonzero(first_of_ties(outcomes))
    relevant = np.diff(np.append(first, len(low)))
    grades = outcomes.relevant_grades
    return TieGroups(
        query=query[first],
        above=low[first] - 1,
        relevant_above=first - outcomes.offsets[query[first]],
        relevant=relevant,
        gain=relevant if grades is None else np.add.reduceat(grades.astype(np.int64), first),
        size=high[first] - low[first] + relevant,
    )


def found_in_top(outcomes: Outcomes, k: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the expected number of relevant items in the top ``k`` (one ``k`` per query), shape ``(n_queries,)``."""
    groups = tie_groups(outcomes)
    places = np.clip(k[groups.query] - groups.above, 0, groups.size)
    found = groups.relevant * places / groups.size
    return np.bincount(groups.query, weights=found, minlength=len(outcomes)).astype(np.float64)


def average_precision(outcomes: Outcomes, k: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the expected sum of precisions at relevant items within the top ``k``, over ``min(k, n_relevant)``.

    With ``k = n_relevant`` this is AP@R of ECCV Caption (Musgrave et al. 2020, Chun et al. 2022); with ``k`` at the end
    of the list, trec_eval's average precision.

    Examples:
        Relevant items at ranks 1 and 3, R = 2: only the first is within the top 2, with precision 1; 1 / 2.

        >>> from capim.tasks.ranking.outcomes import outcomes_of
        >>> average_precision(outcomes_of([[1, 3]]), np.array([2])).tolist()
        [0.5]
    """
    groups = tie_groups(outcomes)
    places = np.clip(k[groups.query] - groups.above, 0, groups.size)

    def precision(group: NDArray[np.int64], place: NDArray[np.int64]) -> NDArray[np.float64]:
        others = (groups.relevant[group] - 1) / np.maximum(groups.size[group] - 1, 1)
        share = groups.relevant[group] / groups.size[group]
        before = groups.relevant_above[group] + 1 + (place - 1) * others
        return share * before / (groups.above[group] + place)

    values = _over_places(groups, places, precision, len(outcomes))
    values /= np.minimum(k, outcomes.n_relevant)
    return values


def trapezoid_precision(outcomes: Outcomes) -> NDArray[np.float64]:
    """Return the area under precision over recall by trapezoids, as revisitop's ``compute_ap``; expected over ties.

    It averages the precisions just before and at every relevant item; before the first place the precision is 1.

    Examples:
        Relevant items at ranks 1 and 3: the mean of (1 + 1) / 2 and (1/2 + 2/3) / 2.

        >>> from capim.tasks.ranking.outcomes import outcomes_of
        >>> trapezoid_precision(outcomes_of([[1, 3]])).round(4).tolist()
        [0.7917]
    """
    groups = tie_groups(outcomes)

    def precision(group: NDArray[np.int64], place: NDArray[np.int64]) -> NDArray[np.float64]:
        others = (groups.relevant[group] - 1) / np.maximum(groups.size[group] - 1, 1)
        before, rank = groups.relevant_above[group] + (place - 1) * others, groups.above[group] + place
        ahead = np.where(rank > 1, before / np.maximum(rank - 1, 1), 1.0)
        areas: NDArray[np.float64] = groups.relevant[group] / groups.size[group] * (ahead + (before + 1) / rank) / 2
        return areas

    return _over_places(groups, groups.size, precision, len(outcomes)) / outcomes.n_relevant


def rank_correlation(scores: NDArray[np.floating], ratings: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return values with Spearman's correlation of scores and ratings as their mean, shape ``(n_pairs,)``.

    A pair's value is the correlation plus the pair's influence on it, through its own ranks and those of others: the
    spread of the values is the variation of the correlation between samples of pairs. NaN if scores or ratings are
    constant.

    Examples:
        >>> round(float(rank_correlation(np.array([0.1, 0.5, 0.4]), np.array([1, 2, 3])).mean()), 4)
        0.5
    """
    below = [(np.sign(of[None] - of[:, None]) + 1) / 2 for of in (scores, ratings)]  # 1/2 for a tie, and for itself
    one, other = (table.mean(axis=0) - 0.5 for table in below)  # ranks, as shares of the pairs

    def covariance(a: int, b: int) -> tuple[float, NDArray[np.float64]]:
        first, second = (one, other)[a], (one, other)[b]
        found = first * second + below[a] @ second / len(one) + below[b] @ first / len(one)
        return float((first * second).mean()), found - found.mean()

    (shared, of_shared), (spread, of_spread), (other_spread, of_other) = (
        covariance(*sides) for sides in ((0, 1), (0, 0), (1, 1))
    )
    if spread == 0 or other_spread == 0:
        return np.full(len(scores), np.nan)
    value, scale = shared / np.sqrt(spread * other_spread), np.sqrt(spread * other_spread)
    values: NDArray[np.float64] = value + of_shared / scale - value / 2 * (of_spread / spread + of_other / other_spread)
    return values


def ndcg(outcomes: Outcomes, k: int) -> NDArray[np.float64]:
    """Return nDCG@k with grades as gains and discount ``1 / log2(rank + 1)``, expected over ties, ``(n_queries,)``.

    Gains are linear, as in trec_eval; the ideal list holds all relevant items. Without grades every gain is 1.

    Examples:
        One relevant item at rank 3: 1 / log2(4), ideal 1.

        >>> from capim.tasks.ranking.outcomes import outcomes_of
        >>> ndcg(outcomes_of([[3]]), 10).tolist()
        [0.5]
    """
    groups = tie_groups(outcomes)
    places = np.clip(k - groups.above, 0, groups.size)

    def gain(group: NDArray[np.int64], place: NDArray[np.int64]) -> NDArray[np.float64]:
        share = groups.gain[group] / groups.size[group]
        gains: NDArray[np.float64] = share / np.log2(groups.above[group] + place + 1)
        return gains

    values: NDArray[np.float64] = _over_places(groups, places, gain, len(outcomes))
    values /= _ideal(outcomes, k)
    return values


def _ideal(outcomes: Outcomes, k: int) -> NDArray[np.float64]:
    """Return the DCG@k of the list with the highest grades first, shape ``(n_queries,)``."""
    grades = outcomes.relevant_grades
    if grades is None:
        ideal = np.concatenate([[0.0], np.cumsum(1 / np.log2(np.arange(2, k + 2)))])
        return ideal[np.minimum(outcomes.n_relevant, k)]
    query, place = outcomes.query_of_relevant, positions_within(outcomes.n_relevant)
    gains = grades[np.lexsort((-grades, query))] / np.log2(place + 2)
    return np.bincount(query, weights=np.where(place < k, gains, 0.0), minlength=len(outcomes)).astype(np.float64)


def _over_places(
    groups: TieGroups,
    places: NDArray[np.int64],
    term: Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float64]],
    n_queries: int,
) -> NDArray[np.float64]:
    """Sum ``term(group, place)`` over the first ``places`` places (1-based) of every group, per query."""
    group = np.repeat(np.arange(len(places)), places)
    place = positions_within(places) + 1
    return np.bincount(groups.query[group], weights=term(group, place), minlength=n_queries).astype(np.float64)


def _of_all_relevant(
    name: str, title: str, measure: Callable[[Outcomes], NDArray[np.float64]], *, judged: bool | None, **facts: Any
) -> Metric:
    """Make a metric of all relevant items; its bounds are its values with all ties lost and with all ties won."""
    return Metric(
        name=name,
        title=title,
        values=lambda o, ties: measure(decided(o, ties)),
        several=True,
        judged=judged,
        version=2,
        **{**OF_SEARCHES, **facts},
    )


def precision_at(k: int) -> Metric:
    """Make ``P@k`` of judged documents: the share of relevant ones in the top ``k``, even if fewer are listed."""
    title = f"Share of the top {k} that is relevant"
    return _of_all_relevant(f"P@{k}", title, lambda o: found_in_top(o, np.full(len(o), k)) / k, judged=True)


def recall_all_at(k: int, *, judged: bool = False, **facts: Any) -> Metric:
    """Make true recall, the share of a query's relevant items in the top ``k``: ``recall@k`` of judged documents.

    Elsewhere it is ``recall_all@k``, because the image-text retrieval literature calls a hit recall.
    """
    return _of_all_relevant(
        f"recall@{k}" if judged else f"recall_all@{k}",
        f"Share of all relevant items in the top {k}",
        lambda o: found_in_top(o, np.full(len(o), k)) / o.n_relevant,
        judged=judged,
        **facts,
    )


def ndcg_at(k: int, *, judged: bool | None = None, **facts: Any) -> Metric:
    """Make ``nDCG@k``: the gain is the grade of a judged document, else 1."""
    title = f"Normalised discounted cumulative gain at {k}"
    facts = {"leaderboard": ("judged",), "beside_chance": True, **facts}
    return _of_all_relevant(f"nDCG@{k}", title, lambda o: ndcg(o, k), judged=judged, **facts)


def average_precision_at(k: int) -> Metric:
    """Make ``AP@k``, divided by the number of relevant items or ``k``, whichever is less; its mean is CIRCO's mAP@k."""
    title = f"Average precision at {k}"
    return _of_all_relevant(
        f"AP@{k}", title, lambda o: average_precision(o, np.full(len(o), k)), judged=None, special=True
    )


SPEARMAN = Metric(
    name="Spearman",
    unit="percent",
    title="Rank correlation of cosines with human similarity ratings of image pairs",
    place="none",
    directions=RETRIEVAL,
    values=lambda o, _: rank_correlation(o.best_score, np.asarray(o.relevant_grades)[o.offsets[:-1]]),
    guess=lambda _: 0.0,
    judged=True,
    special=True,
)
SPECIAL = (
    *(replace(hit_at(k), leaderboard=(), special=True) for k in (2, 3, 50)),
    *(average_precision_at(k) for k in (5, 10, 25, 50)),
    _of_all_relevant(
        "AP by trapezoids", "Average precision as revisitop has it", trapezoid_precision, judged=None, special=True
    ),
    SPEARMAN,
)


JUDGED_RECALLS = (
    recall_all_at(1, judged=True),
    *(recall_all_at(k, judged=True, leaderboard=("judged",)) for k in (5, 10)),
)
NDCG_5 = ndcg_at(5, judged=True)
NDCG_10 = ndcg_at(10, headline="judged")
MAP_AT_R = _of_all_relevant(
    "mAP@R",
    "Mean average precision at R, the number of relevant items",
    lambda o: average_precision(o, o.n_relevant.astype(np.int64)),
    judged=False,
    leaderboard=("labels",),
)
R_PRECISION = _of_all_relevant(
    "R-Precision",
    "Precision at R, the number of relevant items",
    lambda o: found_in_top(o, o.n_relevant.astype(np.int64)) / o.n_relevant,
    judged=None,
)
AVERAGE_PRECISION = _of_all_relevant(
    "AP",
    "Average precision over the whole list (trec_eval's map)",
    lambda o: average_precision(o, o.n_gallery.astype(np.int64)),
    judged=True,
    leaderboard=("judged",),
)
UNJUDGED = Metric(
    name="unjudged@10",
    heading="unjudged in the top 10",
    title="Share of the top 10 that nobody judged: counted as not relevant, and may be relevant",
    leaderboard=("judged",),
    values=lambda o, _: stored_values(o, "unjudged", " has no judged documents"),
    judged=True,
    needs="unjudged",
    higher_is_better=False,
    **OF_SEARCHES,
)


# --- trec_eval's measures of an imported run, in its order: equal scores by id; unlisted items are not retrieved.

_TREC_LEADERBOARD = ("map", "P_10", "recip_rank", "ndcg_cut_10", "Rprec", "bpref")


def _as_trec_eval(name: str, title: str, values: Callable[[Outcomes, Ties], NDArray[np.float64]]) -> Metric:
    return Metric(
        name=name,
        title=f"{title}, as trec_eval has it",
        values=lambda o, _: values(o, "expected"),
        leaderboard=("judged",) if name in _TREC_LEADERBOARD else (),
        judged=True,
        needs="bpref",
        **OF_SEARCHES,
    )


TREC_EVAL = (
    _as_trec_eval("map", "Average precision", average_precision_at(UNLISTED - 1).values),
    *(_as_trec_eval(f"P_{k}", f"Precision in the top {k}", precision_at(k).values) for k in (5, 10, 20)),
    _as_trec_eval("recip_rank", "Reciprocal rank", reciprocal_rank),
    _as_trec_eval("ndcg", "nDCG of the whole list", ndcg_at(UNLISTED - 1).values),
    *(_as_trec_eval(f"ndcg_cut_{k}", f"nDCG at {k}", ndcg_at(k).values) for k in (5, 10, 20)),
    _as_trec_eval("Rprec", "Precision at R", R_PRECISION.values),
    _as_trec_eval("bpref", "Binary preference", lambda o, _: stored_values(o, "bpref", " is not in trec_eval's order")),
    *(_as_trec_eval(f"recall_{k}", f"Recall in the top {k}", recall_all_at(k).values) for k in (10, 100)),
    *(_as_trec_eval(f"success_{k}", f"Any relevant document in the top {k}", hit_at(k).values) for k in (1, 5, 10)),
)

OF_RETRIEVAL = (
    *RECALLS,
    MEDIAN_RANK,
    MEAN_RANK,
    MAP_AT_R,
    R_PRECISION,
    NDCG_5,
    NDCG_10,
    recall_all_at(10),
    *JUDGED_RECALLS,
    AVERAGE_PRECISION,
    MRR,
    *(hit_at(k, judged=True) for k in (1, 5, 10)),
    *(precision_at(k) for k in (1, 5, 10)),
    UNJUDGED,
    *SPECIAL,
    *TREC_EVAL,
)
"""The metrics of retrieval, in the order of the table."""
