"""The table of metrics, and the headline metrics of a corpus.

To add a metric: a :class:`Metric` in the list of a file of its kind. Its fields determine where a report shows it.

A package of your own names a :class:`Metric` in an entry point ``capim.metrics`` (``docs/own_model.md``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capim.store.plugins import OWN, Plugin, PluginTable
from capim.store.types import MetricFacts, canonical_json
from capim.tasks.metrics.compositional import PAIR_ACCURACY, WINOGROUND
from capim.tasks.metrics.crosslingual import CONSISTENCY_NDCG, CONSISTENCY_RBO
from capim.tasks.metrics.metric import Metric, Ties
from capim.tasks.metrics.retrieval import OF_RETRIEVAL, RECALLS
from capim.tasks.protocols import LANGUAGES_FIRST, MAIN, NO_HEADLINE, Kind, Protocol
from capim.tasks.ranking.outcomes import Outcomes

_OWN = {
    metric.name: metric for metric in (*OF_RETRIEVAL, *WINOGROUND, PAIR_ACCURACY, CONSISTENCY_NDCG, CONSISTENCY_RBO)
}


def _of_package(plugin: Plugin, found: object) -> Metric:
    """Return the metric of a package, with errors that name the package."""
    if not isinstance(found, Metric):
        raise TypeError(f"expected a capim.tasks.metrics.Metric, got {type(found).__name__}")
    if found.name != plugin.point.name:
        raise ValueError(f"the metric has another name, {found.name!r}")

    def values(outcomes: Outcomes, ties: Ties) -> NDArray[np.float64]:
        with plugin.failures("metric"):
            return found.checked(found.values(outcomes, ties), outcomes.query_ids)

    return replace(found, values=values, version=f"{found.version} of {plugin.package} {plugin.version}")


METRICS = PluginTable("capim.metrics", _OWN, _of_package)
HEADLINES = {metric.headline: metric.name for metric in _OWN.values() if metric.headline}
"""Kind of protocols -> its headline metric."""
_RSUM = MetricFacts(
    name="RSUM", title="R@1, R@5 and R@10 of both directions added up, 0 to 600", unit="points", place="none"
)


def on_leaderboard(kind: Kind) -> list[str]:
    """Return the metrics of the leaderboard for one kind of protocols, in the order of the table."""
    return [metric.name for metric in METRICS.values() if kind in metric.leaderboard]


def beside_chance() -> set[str]:
    """Return the metrics that reports test against chance."""
    return {metric.name for metric in METRICS.values() if metric.beside_chance}


class Figure(NamedTuple):
    """One metric under one protocol."""

    protocol: str
    metric: str


RSUM = Figure("+".join(MAIN), _RSUM.name)
"""The sum of six recalls under the two protocols of the literature."""


def facts_of(metric: str) -> MetricFacts | None:
    """Return the facts about the metric of this name; None if it does not come from a metric of the table."""
    if metric == RSUM.metric:
        return _RSUM
    known = dict(METRICS.items()).get(metric)
    return None if known is None else MetricFacts(name=metric, **known.columns())


def stored_facts(metric: Metric) -> str | None:
    """Return a metric's facts for the ledger, as JSON; None for a built-in one, which the table has."""
    is_own = METRICS.package(metric.name) == OWN and not metric.of_user
    return None if is_own else canonical_json(metric.columns())


def metrics_of(outcomes: Outcomes, metrics: Iterable[Metric] | None = None) -> list[Metric]:
    """Return the metrics, of the given ones or of the table, that apply to these outcomes and are known, in order."""
    return [metric for metric in metrics or METRICS.values() if metric.applies(outcomes) and is_known(metric, outcomes)]


def version_of(metric: str) -> str | None:
    """Return the current version of the code behind a result of this name.

    Sums and means of several metrics combine the versions of these. None if no metric of the table has the name: it is
    a custom metric, or one of a package that is not installed or cannot be used.
    """
    parts = [each.name for each in RECALLS] if metric == RSUM.metric else [metric]
    return ", ".join(str(part.version) for part in METRICS.values() if part.name in parts) or None


def is_known(metric: Metric, outcomes: Outcomes) -> bool:
    """True if outcomes determine a metric.

    They do unless some ranks are unknown (``Outcomes.n_ranked``, imported outcomes) and a query's value differs between
    the best and the worst possible ranks.
    """
    if outcomes.n_ranked is None:
        return True
    best, worst = (metric.per_query(bound) for bound in outcomes.bounds())
    return np.array_equal(best, worst, equal_nan=True)


def headline_of(protocols: Iterable[Protocol]) -> tuple[Figure, ...]:
    """Return the headline results of a corpus that was evaluated by these protocols; their mean is the headline.

    The first available in this list (``Protocol.headline``), for retrieval one per direction:

    1. quadruples: the group score of all, or of each tag if only these were evaluated;
    2. pairs: the accuracy, as the mean over categories, or of each category;
    3. judged documents: the metric that the corpus names, else nDCG@10;
    4. captions in several languages: R@1 of each part, in the evaluated directions;
    5. retrieval: R@1 under ``t2i/all`` and ``i2t/any``, or under the one that was evaluated;
    6. captions of one language: R@1 by each translator;
    7. R@1 under the first other protocol of each direction, by name;
    8. labels: R@1 of classification, as the mean over classes (plain accuracy rewards predicting the largest class);
    9. the first metric of a protocol that has its own: landmarks (medium), images with texts, rated pairs.

    Examples:
        >>> retrieval = list(map(Protocol.of, ("t2i/all", "t2i/first", "i2t/any")))
        >>> headline_of(retrieval)
        (Figure(protocol='t2i/all', metric='R@1'), Figure(protocol='i2t/any', metric='R@1'))
        >>> headline_of([*retrieval, Protocol.of("winoground"), Protocol.of("winoground/Object")])
        (Figure(protocol='winoground', metric='winoground_group'),)
    """
    known = sorted((p for p in protocols if not p.orientation), key=lambda p: (p.direction == "i2t", p.id))
    several = len({p.language for p in known if p.is_of_language}) > 1
    places = [LANGUAGES_FIRST if several and p.is_of_language else p.headline_place for p in known]
    first = min(places, default=NO_HEADLINE)
    found = [p for p, place in zip(known, places, strict=True) if place == first < NO_HEADLINE]
    if all(p.is_retrieval and not p.is_of_language for p in found):
        found = [p for at, p in enumerate(found) if p.direction not in {each.direction for each in found[:at]}]
    return tuple(Figure(p.id, p.main_metric or (*p.metrics, HEADLINES.get(p.kind, ""))[0]) for p in found)


def planned_figures(protocols: Iterable[Protocol]) -> frozenset[Figure]:
    """Return the planned results, by which encoders are compared: the headline and RSUM.

    For captions in several languages these are only the means over the languages: no single language is planned, and
    RSUM is the result of one, the reference language. ``protocols`` are all that fit the corpus, evaluated or not: the
    plan does not depend on the data seen.
    """
    by_id = {protocol.id: protocol for protocol in protocols}
    several = len({protocol.language for protocol in by_id.values() if protocol.is_of_language}) > 1
    means = {p.id: p.mean_over_languages.id for p in by_id.values() if several and p.is_of_language}
    headline = (Figure(means.get(id_, id_), metric) for id_, metric in headline_of(by_id.values()))
    return frozenset({*headline, *([RSUM] if by_id.keys() >= set(MAIN) and not several else ())})
