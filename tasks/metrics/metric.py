"""A metric as a value: its name, its value per query, and its chance value."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from capim.store.errors import RequestError
from capim.store.types import MetricFacts
from capim.store.vectors import positions_within
from capim.tasks.protocols import Direction, Kind, Protocol
from capim.tasks.ranking.outcomes import Outcomes

Ties: TypeAlias = Literal["lost", "expected", "won"]
Reduce: TypeAlias = Literal["mean", "median"] | Callable[[NDArray[np.float64]], float]
"""How values of queries become one result; a function receives the values of some queries and may return NaN."""

RETRIEVAL: frozenset[Direction] = frozenset({"t2i", "i2t", "i2i", "t2t"})
FRACTION: Mapping[str, Any] = {"unit": "percent", "bounds": (0.0, 1.0)}
"""The unit and the bounds of a fraction, as arguments of :class:`Metric`."""
OF_SEARCHES: Mapping[str, Any] = {"directions": RETRIEVAL, "place": "none", **FRACTION}
"""The arguments of a fraction of retrieval, in no table of its own."""
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class GivenValues:
    """Precomputed values of queries: ``Metric.values`` of a custom metric.

    Attributes:
        values: Evaluation -> tie rule -> the value of each query.
    """

    values: Mapping[str, Mapping[Ties, NDArray[np.float64]]]

    def __call__(self, outcomes: Outcomes, ties: Ties) -> NDArray[np.float64]:
        """Return the values for these stored outcomes."""
        return self.values[outcomes.evaluation][ties]

    def digest(self, evaluation: str) -> str:
        """Return a digest of one evaluation's values, which may change without the code if it reads a file."""
        return hashlib.sha256(self.values[evaluation]["expected"].tobytes()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Metric(MetricFacts):
    """One row of ``METRICS``: all facts about a metric, and the functions that compute it.

    Attributes:
        directions: Directions of the protocols for which it can be computed.
        values: Computes :meth:`per_query`.
        reduce: How values of queries become one value: their mean, weighted by ``Outcomes.weights``, their median, or a
            function of them (an aggregate).
        bounds: Lowest and highest possible value of a query, infinite if there is none; None if unknown. Intervals of
            means, and the margin of equivalence tests, follow from them.
        guess: Expected value of random scores, for all queries or for each. ``"tied"``: the value with all scores
            equal, which an aggregate, or a metric that ignores ties, does not have. None: unknown.
        leaderboard: Kinds of protocols with a leaderboard column for it, in the order of the table.
        beside_chance: True if reports test its results against chance.
        several: True if it differs from other metrics only for queries with several relevant items.
        version: Raised when the values of the same outcomes change: stored results are then computed again. The metric
            of a package also has the version of the package; a custom metric, a digest of its source.
        share: True for a fraction of queries that hit; its interval is Wilson's unless another one is requested.
        judged: True if it is for judged documents only, False if never for these, None for any retrieval.
        needs: Attribute of the outcomes that it reads; the metric cannot be computed where this is None.
        special: True if it is only for protocols that name it (``Protocol.metrics``).
        of_user: True for a custom metric of one run; it fits every protocol of its directions.
        of_sample: True if values of queries are weighted for a sample of them: only their mean lies within the bounds.

    Raises:
        ValueError: If bounds are not in order, if a share is not between 0 and 1, or if the unit is percent and values
            may lie outside -1 to 1 (always, for an aggregate of unknown range).
    """

    aggregate: bool = field(init=False, default=False)  # follows from ``reduce``
    directions: frozenset[Direction]
    values: Callable[[Outcomes, Ties], NDArray[np.float64]]
    reduce: Reduce = "mean"
    bounds: tuple[float, float] | None = None
    guess: Callable[[Outcomes], float | NDArray[np.float64]] | Literal["tied"] | None = "tied"
    leaderboard: tuple[Kind, ...] = ()
    beside_chance: bool = False
    several: bool = False
    version: int | str = 1
    share: bool = False
    judged: bool | None = None
    needs: str = ""
    special: bool = False
    of_user: bool = False
    of_sample: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "aggregate", callable(self.reduce))
        if self.bounds is not None and not self.bounds[0] < self.bounds[1]:
            raise ValueError(f"metric {self.name!r}: bounds are {self.bounds}, expected the lowest value first")
        if self.share and self.bounds != (0.0, 1.0):
            raise ValueError(f"metric {self.name!r} is a share: its bounds are {self.bounds}, expected (0, 1)")
        low, high = self.bounds or ((-np.inf, np.inf) if self.aggregate else (-1.0, 1.0))
        if self.unit == "percent" and (low < -1 or high > 1):
            raise ValueError(
                f"metric {self.name!r}: unit is 'percent' with bounds {self.bounds}; a fraction has bounds=(0, 1), "
                "any other number unit='own'"
            )

    def __str__(self) -> str:
        return self.name

    def inputs(self, evaluations: Iterable[str]) -> list[str]:
        """Return the inputs of its results other than stored outcomes: digests of values from custom code."""
        return [self.values.digest(each) for each in evaluations] if isinstance(self.values, GivenValues) else []

    def per_query(self, outcomes: Outcomes, ties: Ties = "expected") -> NDArray[np.float64]:
        """Return float64 values, shape ``(n_queries,)``: expected over orders of ties, or with every tie lost or won.

        NaN for a query to which the metric does not apply. For an aggregate a query may have several numbers, shape
        ``(n_queries, ...)``.

        Raises:
            RequestError: If the function of the metric returned something else, or a value outside the bounds.
        """
        return self.checked(self.values(outcomes, ties), outcomes.query_ids)

    def checked(self, returned: Any, ids: NDArray[np.object_]) -> NDArray[np.float64]:
        """Return values of these queries as read by :func:`checked_values`; for a mean, check the bounds."""
        values = checked_values(self.name, returned, ids, several=self.aggregate)
        if self.bounds is not None and not (self.aggregate or self.of_sample):
            low, high = self.bounds
            outside = (values < low - _ROUNDING) | (values > high + _ROUNDING)
            if outside.any():
                at = int(np.argmax(outside))
                raise RequestError(
                    f"metric {self.name!r}: the value of query {ids[at]!r} is {values[at]:g}, outside its bounds "
                    f"({low:g}, {high:g}); change `bounds` of the metric"
                )
        return values

    def value(self, outcomes: Outcomes, ties: Ties = "expected") -> float:
        """Return the value over the queries to which the metric applies; NaN if there are none.

        Raises:
            RequestError: As :meth:`per_query`, or if the unit is percent and the value is not between -1 and 1.
        """
        found = self._reduced(self.per_query(outcomes, ties), outcomes)
        if self.unit == "percent" and abs(found) > 1 + _ROUNDING:
            raise RequestError(
                f"metric {self.name!r}: unit is 'percent' and the value {found:g}, expected a fraction between 0 and "
                "1; set unit='own'"
            )
        return found

    def chance(self, outcomes: Outcomes) -> float | None:
        """Return the chance value on the same queries and galleries; None if unknown."""
        found = self.chances(outcomes)
        return found if found is None or isinstance(found, float) else self._reduced(found, outcomes)

    def chances(self, outcomes: Outcomes) -> float | NDArray[np.float64] | None:
        """Return the chance value of each query, or of all together if it has no parts; None if unknown."""
        if callable(self.guess):
            return self.guess(outcomes)
        if self.guess is None or self.needs or self.aggregate:
            return None
        tied = _all_tied(outcomes)
        first = replace(tied, rank_worst=tied.rank_best, relevant_rank_worst=tied.relevant_rank_best)
        found = self.per_query(tied)
        if not np.array_equal(found, self.per_query(tied, "won"), equal_nan=True):
            return found
        ignores_ties = not np.array_equal(found, self.per_query(first), equal_nan=True)
        return None if ignores_ties else found

    def suits(self, protocol: Protocol) -> bool:
        """True if the metric may apply to a protocol's outcomes."""
        if protocol.direction not in self.directions:
            return False
        if protocol.metrics and not self.of_user:
            return self.name in protocol.metrics
        return not self.special and self.judged in (None, protocol.kind == "judged")

    def applies(self, outcomes: Outcomes) -> bool:
        """True if it can be computed from these outcomes and does not duplicate another metric on them."""
        if not self.suits(outcomes.protocol) or (self.needs and getattr(outcomes, self.needs) is None):
            return False
        if self.of_user:
            return True
        if outcomes.bpref is not None:
            return self.needs == "bpref"  # trec_eval's order has only the metrics named by trec_eval
        judged = outcomes.relevant_grades is not None
        if self.judged is not None and self.judged != judged:
            return False
        repeats = self.several and not judged and not bool((outcomes.n_relevant > 1).any())
        return self.name in outcomes.protocol.metrics or not repeats

    def _reduced(self, values: NDArray[np.float64], outcomes: Outcomes) -> float:
        known = ~np.isnan(values.reshape(len(values), -1)).any(axis=1)
        if not known.any():
            return float("nan")
        if callable(self.reduce):
            return float(self.reduce(values[known]))
        if self.reduce == "median":
            return float(np.median(values[known]))
        return float(np.average(values[known], weights=outcomes.weights[known]))


def checked_values(name: str, returned: Any, ids: NDArray[np.object_], *, several: bool) -> NDArray[np.float64]:
    """Return a metric function's values as float64 in the order of the queries, one number or row per query.

    A pandas Series or DataFrame is read by its index: the query ids in any order, or 0, 1, 2 … in query order.

    Args:
        name: Name of the metric, for messages.
        ids: Ids of the queries.
        several: True if a query may have several numbers, in a row.

    Raises:
        RequestError: If values have another length or index, are not numbers, or are infinite.
    """
    n, kind = len(ids), type(returned).__name__
    if hasattr(returned, "reindex"):
        index = list(returned.index)
        if len(index) == n and {*index} == {*ids}:
            returned = returned.reindex(ids)
        elif index != [*range(len(index))]:
            raise RequestError(
                f"metric {name!r} returned a {kind} of length {len(index)} with an index ({index[0]!r}, …) that does "
                f"not name each of the {n} queries once; use outcomes.query_id as the index, or return an array in "
                "query order"
            )
    try:
        values = np.asarray(returned, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise RequestError(f"metric {name!r} returned {kind}, expected {n} numbers") from error
    if values.shape[:1] != (n,) or (values.ndim > 1 and not several):
        wanted = f"one number per query, ({n},)" + " or one row per query" * several
        raise RequestError(f"metric {name!r} returned shape {values.shape}, expected {wanted}")
    if (infinite := np.isinf(values.reshape(n, -1)).any(axis=1)).any():
        query = ids[int(np.argmax(infinite))]
        raise RequestError(
            f"metric {name!r}: the value of query {query!r} is infinite; return NaN where the metric does not apply"
        )
    return values


def stored_values(outcomes: Outcomes, name: str, lacks: str) -> NDArray[Any]:
    """Return an attribute of outcomes that only some protocols have.

    Raises:
        ValueError: If the outcomes lack it; ``lacks`` is the end of the message.
    """
    values: NDArray[Any] | None = getattr(outcomes, name)
    if values is None:
        raise ValueError(f"protocol {outcomes.protocol.id!r}{lacks}")
    return values


def decided(outcomes: Outcomes, ties: Ties) -> Outcomes:
    """Return the outcomes with every tie lost or won; unchanged for the expectation."""
    if ties == "expected":
        return outcomes
    lost = ties == "lost"
    first = outcomes.rank_worst if lost else outcomes.rank_best
    every = outcomes.relevant_rank_worst if lost else outcomes.relevant_rank_best
    grades = outcomes.relevant_grades
    if lost and grades is not None:  # the highest of a tie comes last
        grades = grades[np.lexsort((grades, np.cumsum(first_of_ties(outcomes))))]
    return replace(
        outcomes,
        rank_best=first,
        rank_worst=first,
        relevant_rank_best=every,
        relevant_rank_worst=every,
        relevant_grades=grades,
        relevant_scores=None,
    )


def first_of_ties(outcomes: Outcomes) -> NDArray[np.bool_]:
    """Return a mask of the relevant items that begin a run of equal scores, one per entry of ``relevant_rank_best``.

    Without scores, neighbours count as tied if they are consecutive in rank and tied with the same number of irrelevant
    items; consecutive ranks without any such item may be split, which changes nothing without grades.
    """
    low, high = outcomes.relevant_rank_best, outcomes.relevant_rank_worst
    query = outcomes.query_of_relevant
    scores, tied = outcomes.relevant_scores, high - low
    new = np.ones(len(low), dtype=np.bool_)
    if scores is not None:
        same = scores[1:] == scores[:-1]
    else:
        same = (low[1:] == low[:-1] + 1) & (tied[1:] == tied[:-1]) & (tied[1:] > 0)
    new[1:] = (query[1:] != query[:-1]) | ~same
    return new


def _all_tied(outcomes: Outcomes) -> Outcomes:
    """Return the outcomes of a scorer that gives every item the same score."""
    n_irrelevant = outcomes.n_gallery - outcomes.n_relevant
    low = (positions_within(outcomes.n_relevant) + 1).astype(np.int32)
    grades, query = outcomes.relevant_grades, outcomes.query_of_relevant
    return replace(
        outcomes,
        rank_best=np.ones_like(outcomes.rank_best),
        rank_worst=n_irrelevant + 1,
        n_tied_relevant=outcomes.n_relevant,
        relevant_rank_best=low,
        relevant_rank_worst=low + np.repeat(n_irrelevant, outcomes.n_relevant),
        relevant_grades=None if grades is None else grades[np.lexsort((-grades, query))],
        relevant_scores=None if grades is None else np.zeros(len(grades), dtype=np.float32),
        top_ords=None,
        top_scores=None,
    )
