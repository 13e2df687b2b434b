"""The table of metrics, and which of them is the headline of a corpus.

To add one: a :class:`Metric` in a file of its kind, and a row here.

A package of your own names a :class:`Metric` in an entry point ``capim.metrics`` (``docs/own_model.md``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capim.store.plugins import Plugin, PluginTable
from capim.store.types import MetricFacts
from capim.tasks.metrics.compositional import PAIR_ACCURACY, WINOGROUND_GROUP, WINOGROUND_IMAGE, WINOGROUND_TEXT
from capim.tasks.metrics.crosslingual import CONSISTENCY_NDCG, CONSISTENCY_RBO
from capim.tasks.metrics.metric import Metric, Ties, checked_values
from capim.tasks.metrics.retrieval import (
    AVERAGE_PRECISION,
    MAP_AT_R,
    MEAN_RANK,
    MEDIAN_RANK,
    MRR,
    R_PRECISION,
    RECALLS,
    SPEARMAN,
    SPECIAL,
    TREC_EVAL,
    UNJUDGED,
    hit_at,
    ndcg_at,
    precision_at,
    recall_all_at,
)
from capim.tasks.protocols import ALL_NEGATIVES, BALANCED, CLASS, MACRO, MAIN, MEDIUM, MICRO, Kind, Protocol
from capim.tasks.ranking.outcomes import Outcomes

_OWN = {
    metric.name: metric
    for metric in (
        *RECALLS,
        MRR,
        MEDIAN_RANK,
        MEAN_RANK,
        MAP_AT_R,
        R_PRECISION,
        ndcg_at(5, judged=True),
        ndcg_at(10),
        recall_all_at(10),
        *(recall_all_at(k, judged=True) for k in (1, 5, 10)),
        AVERAGE_PRECISION,
        *(hit_at(k, judged=True) for k in (1, 5, 10)),
        *(precision_at(k) for k in (1, 5, 10)),
        UNJUDGED,
        *SPECIAL,
        *TREC_EVAL,
        WINOGROUND_TEXT,
        WINOGROUND_IMAGE,
        WINOGROUND_GROUP,
        PAIR_ACCURACY,
        CONSISTENCY_NDCG,
        CONSISTENCY_RBO,
    )
}


def _of_package(plugin: Plugin, found: object) -> Metric:
    """The metric, whose errors name the package."""
    if not isinstance(found, Metric):
        raise TypeError(f"expected a capim.tasks.metrics.Metric, got {type(found).__name__}")
    if found.name != plugin.point.name:
        raise ValueError(f"the metric has another name, {found.name!r}")

    def values(outcomes: Outcomes, ties: Ties) -> NDArray[np.float64]:
        with plugin.failures("metric"):
            values, several = found.values(outcomes, ties), callable(found.reduce)
            return checked_values(found.name, values, outcomes.query_ids, several=several)

    return replace(found, values=values, version=f"{found.version} of {plugin.package} {plugin.version}")


METRICS = PluginTable("capim.metrics", _OWN, _of_package)
_HEADLINES = {metric.headline: metric.name for metric in _OWN.values()}
_RSUM = MetricFacts(name="RSUM", title="R@1, R@5 and R@10 of both directions added up, 0 to 600", unit="points")
_ETA = "_eta2_"  # in names of figures over languages: a metric, and the share of its variation of one source

SHOWN: Mapping[Kind, tuple[str, ...]] = {
    "retrieval": tuple(metric.name for metric in RECALLS),
    "judged": ("nDCG@5", "nDCG@10", "recall@5", "recall@10", AVERAGE_PRECISION.name, MRR.name, UNJUDGED.name),
    "labels": ("R@1", "R@5", "mAP@R"),
    "images": (),
    "quadruples": tuple(metric.name for metric in (WINOGROUND_TEXT, WINOGROUND_IMAGE, WINOGROUND_GROUP)),
    "pairs": (PAIR_ACCURACY.name,),
}
"""The metrics of a table of results by the kind of its protocols, in this order; of images those of the protocol."""
TREC_SHOWN = ("map", "P_10", "recip_rank", "ndcg_cut_10", "Rprec", "bpref")
"""The metrics of a table of imported runs in trec_eval's order."""
FURTHER = (*(metric.name for metric in (MRR, MEDIAN_RANK, MEAN_RANK, MAP_AT_R, R_PRECISION)), "nDCG@10")
"""Further metrics of retrieval, in a table of their own."""


class Figure(NamedTuple):
    """One metric under one protocol."""

    protocol: str
    metric: str


RSUM = Figure("+".join(MAIN), _RSUM.name)
"""The sum of six recalls under the two protocols of the literature."""


def facts_of(metric: str) -> MetricFacts | None:
    """What is stored beside the figures of this name; None where no metric of the table is behind it."""
    if metric == RSUM.metric:
        return _RSUM
    base, of_source, _ = metric.partition(_ETA)
    if base not in METRICS:
        return None
    return MetricFacts(name=metric, title=METRICS[base].title) if of_source else METRICS[base]


def bounds_of(metric: Metric) -> tuple[float, float] | None:
    """The lowest and the highest value that a query can have; None where there are none, or none that are known."""
    if _OWN.get(metric.name) is not metric or metric is SPEARMAN:
        return None
    return (1.0, np.inf) if metric in (MEAN_RANK, MEDIAN_RANK) else (0.0, 1.0)


def metrics_of(outcomes: Outcomes) -> list[Metric]:
    """The metrics that apply to these outcomes and that they determine, in the order of the table."""
    return [metric for metric in METRICS.values() if metric.applies(outcomes) and is_known(metric, outcomes)]


def version_of(metric: str) -> str | None:
    """The version that a figure of this name is computed by now.

    Sums and means of several metrics have the versions of these. None where no metric of the table has the name: it is
    a user's, or one of a package that is not installed or cannot be used.
    """
    parts = [each.name for each in RECALLS] if metric == RSUM.metric else [metric.partition(_ETA)[0]]
    return ", ".join(str(part.version) for part in METRICS.values() if part.name in parts) or None


def is_known(metric: Metric, outcomes: Outcomes) -> bool:
    """Whether outcomes determine a metric.

    They do unless some ranks are not known (``Outcomes.n_ranked``, imported outcomes) and a query has another value
    with these ranks at their best than at their worst.
    """
    if outcomes.n_ranked is None:
        return True
    best, worst = (metric.per_query(bound) for bound in outcomes.bounds())
    return np.array_equal(best, worst, equal_nan=True)


def headline_of(protocols: Iterable[Protocol]) -> tuple[Figure, ...]:
    """The figures of a corpus that was evaluated by these protocols; their mean is the headline.

    The first that it has of

    1. quadruples: the group score of all, or of each tag where only these were evaluated;
    2. pairs: the accuracy, as the mean over categories, or of each category;
    3. judged documents: the metric that the corpus names, else nDCG@10;
    4. captions in several languages: R@1 of each part, in the directions that were evaluated;
    5. retrieval: R@1 under ``t2i/all`` and ``i2t/any``, or under the one that was evaluated;
    6. captions of one language: R@1 by each translator;
    7. R@1 under the first other protocol of each direction, by name;
    8. labels: R@1 of classification, as the mean over classes (plain accuracy rewards answers of the largest class);
    9. the first metric of a protocol that has its own: landmarks (medium), images with texts, rated pairs.

    Examples:
        >>> retrieval = list(map(Protocol.of, ("t2i/all", "t2i/first", "i2t/any")))
        >>> headline_of(retrieval)
        (Figure(protocol='t2i/all', metric='R@1'), Figure(protocol='i2t/any', metric='R@1'))
        >>> headline_of([*retrieval, Protocol.of("winoground"), Protocol.of("winoground/Object")])
        (Figure(protocol='winoground', metric='winoground_group'),)
    """
    of_kind: dict[Kind, list[Protocol]] = {}
    for protocol in sorted(protocols, key=lambda p: p.id):
        if not protocol.orientation:
            of_kind.setdefault(protocol.kind, []).append(protocol)
    quadruples, pairs, judged, retrieval, labels, images = (
        of_kind.get(kind, []) for kind in ("quadruples", "pairs", "judged", "retrieval", "labels", "images")
    )
    images.sort(key=lambda protocol: protocol.name != MEDIUM)
    first = {protocol.direction: protocol for protocol in reversed(retrieval)}
    recall = _HEADLINES["retrieval"]
    spoken = sorted((p for p in retrieval if p.is_of_language), key=lambda p: p.direction == "i2t")
    candidates = (
        (_HEADLINES["quadruples"], [p for p in quadruples if not p.name] or quadruples),
        (_HEADLINES["pairs"], [p for p in pairs if p.name == MACRO]),
        (_HEADLINES["pairs"], [p for p in pairs if p.name not in (MICRO, ALL_NEGATIVES)] or pairs[:1]),
        (judged[0].main_metric or _HEADLINES["judged"] if judged else "", judged[:1]),
        (recall, spoken if len({p.language for p in spoken}) > 1 else []),
        (recall, [p for id_ in MAIN for p in retrieval if p.id == id_]),
        (recall, spoken),
        (recall, [first[direction] for direction in ("t2i", "i2t") if direction in first]),
        *((recall, [p for p in labels if p.name == name]) for name in (BALANCED, CLASS)),
        (images[0].metrics[0] if images else "", images[:1]),
    )
    return next((tuple(Figure(p.id, metric) for p in found) for metric, found in candidates if found), ())


def planned_figures(protocols: Iterable[Protocol]) -> frozenset[Figure]:
    """The figures by which encoders are compared on purpose: the headline and RSUM.

    Of captions in several languages these are the means over the languages alone: no figure of one language is planned,
    and RSUM is one, of the reference language.
    ``protocols`` are all that fit the corpus, whether they were evaluated or not: what is planned does not depend on
    what was looked at.
    """
    by_id = {protocol.id: protocol for protocol in protocols}
    several = len({protocol.language for protocol in by_id.values() if protocol.is_of_language}) > 1
    means = {p.id: p.mean_over_languages.id for p in by_id.values() if several and p.is_of_language}
    headline = (Figure(means.get(id_, id_), metric) for id_, metric in headline_of(by_id.values()))
    return frozenset({*headline, *([RSUM] if by_id.keys() >= set(MAIN) and not several else ())})
