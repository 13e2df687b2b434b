"""The input of every analysis: outcomes of several encoders on the same queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from capim.store.errors import RequestError
from capim.store.types import Corpus, EncoderSpec
from capim.store.values import Ragged
from capim.tasks.analyses.slices import Slice
from capim.tasks.metrics import METRICS
from capim.tasks.protocols import Protocol
from capim.tasks.ranking.layout import drawn_clusters
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import build_task
from capim.tasks.ranking.tasks import RetrievalTask
from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.intervals import Interval
from capim.tasks.statistics.resampling import Resampling

# --- The stored vectors of one encoder on one corpus, as the analyses read them.


Matrix: TypeAlias = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, eq=False)
class SingleVectors:
    """One unit vector per item.

    Attributes:
        images: float32, shape ``(n_images, dim)``, in corpus order.
        captions: float32, shape ``(n_captions, dim)``, in corpus order.
        image_norms: Norms before normalisation, shape ``(n_images,)``.
        caption_norms: The same for captions.
    """

    images: Matrix
    captions: Matrix
    image_norms: NDArray[np.float32]
    caption_norms: NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, eq=False)
class LateInteractionVectors:
    """Many unit vectors per item, float32.

    Attributes:
        images: All images, or a sample of them; their ``ords`` tell which, ascending.
        captions: All captions.
    """

    images: Ragged
    captions: Ragged


StoredVectors: TypeAlias = SingleVectors | LateInteractionVectors


METRIC = "R@1"


@dataclass(frozen=True, kw_only=True, eq=False)
class AnalysisInput:
    """The outcomes of some encoders under one protocol on one corpus.

    Attributes:
        corpus: Its captions, objects, tags and extra ground truths are what the analyses look at.
        outcomes: Encoder name -> outcomes; the same queries in the same order for all.
        specs: Encoder name -> specification; encoders may be absent (outcomes computed elsewhere).
        resampling: How intervals are drawn: as for the results of the corpus, so that slices and results agree.
        vectors: Encoder name -> its stored vectors, read on each call; None for an encoder without vectors.
        truncated: Encoder name -> which captions are longer than its model reads, bool, shape ``(n_captions,)``; only
            encoders that truncate any.
        metric: The metric whose means over parts of the queries are slices.
        given: Encoder name -> the value of ``metric`` per query, NaN where it does not apply, for a metric that is not
            in the table; None for one that is.
    """

    corpus: Corpus
    protocol: Protocol
    outcomes: Mapping[str, Outcomes]
    specs: Mapping[str, EncoderSpec] = field(default_factory=dict)
    resampling: Resampling = field(default_factory=Resampling)
    vectors: Callable[[str], StoredVectors | None] = lambda _: None
    truncated: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    metric: str = METRIC
    given: Mapping[str, NDArray[np.float64]] | None = None

    def __post_init__(self) -> None:
        if not self.outcomes:
            raise RequestError(f"no outcomes of protocol {self.protocol.id!r} on corpus {self.corpus.name!r}")
        first, *others = self.outcomes
        for name in others:
            if not np.array_equal(self.outcomes[name].query_ords, self.outcomes[first].query_ords):
                raise RequestError(
                    f"encoders {first!r} and {name!r} were evaluated on different queries under {self.protocol.id!r}; "
                    f"run `capim evaluate --corpora {self.corpus.name} --encoders {first},{name}`"
                )

    @property
    def encoders(self) -> list[str]:
        """Encoder names, in the order of ``outcomes``."""
        return list(self.outcomes)

    @property
    def queries(self) -> Outcomes:
        """The outcomes of the first encoder, for what all share: query ids and ords, clusters and weights."""
        return next(iter(self.outcomes.values()))

    @cached_property
    def clusters(self) -> Clusters:
        """The image that each query belongs to; for quadruples, those that share an image."""
        return Clusters.of(self.queries.clusters, drawn_clusters(self.corpus, self.protocol), self.queries.weights)

    @cached_property
    def second_half(self) -> NDArray[np.bool_]:
        """Which images (of quadruples: which of them) are in the second of two halves drawn at random, by ord.

        What is fitted to data is fitted on one half and tested on the other. Those with a query, and those without, are
        split evenly.
        """
        drawn = drawn_clusters(self.corpus, self.protocol)
        n = drawn if isinstance(drawn, int) else len(self.corpus.images)
        order = np.random.default_rng([self.resampling.seed, 1]).permutation(n)
        occupied = np.bincount(self.queries.clusters, minlength=n)[order] > 0
        second = np.zeros(len(order), dtype=np.bool_)
        for part in (order[occupied], order[~occupied]):
            second[part[: len(part) // 2]] = True
        return second

    @cached_property
    def task(self) -> RetrievalTask:
        """The queries, galleries and relevant items; only for retrieval protocols."""
        return cast("RetrievalTask", build_task(self.corpus, self.protocol))

    def values(self, metric: str) -> NDArray[np.float64]:
        """The metric of every query, shape ``(n_encoders, n_queries)``."""
        if self.given is not None and metric == self.metric:
            return np.stack([self.given[encoder] for encoder in self.outcomes])
        return np.stack([METRICS[metric].per_query(outcomes) for outcomes in self.outcomes.values()])

    def is_share(self, metric: str) -> bool:
        """Whether a metric is a share of hits that scores can change; in a small gallery any scores may have it."""
        if metric not in METRICS or not METRICS[metric].share:
            return False
        return METRICS[metric].chance(self.queries) != 1

    def slice(
        self,
        encoder: str,
        analysis: str,
        feature: str,
        metric: str,
        interval: Interval,
        *,
        level_name: str = "",
        counts: tuple[int, int] | None = None,
        p_adjusted: float | None = None,
        detail: Mapping[str, object] | None = None,
    ) -> Slice:
        """A slice over some queries; ``counts`` are the numbers of queries and images, None for all."""
        n_queries, n_clusters = counts or (len(self.queries), self.clusters.n_occupied)
        return Slice(
            encoder=encoder,
            analysis=analysis,
            feature=feature,
            level_name=level_name,
            metric=metric,
            interval=interval,
            n_queries=n_queries,
            n_clusters=n_clusters,
            p_adjusted=p_adjusted,
            detail=detail,
        )

    def with_lists(self) -> Iterator[tuple[str, Outcomes, NDArray[np.int32]]]:
        """Name, outcomes and ``top_ords`` of the encoders with stored result lists; imported ranks have none."""
        for encoder, outcomes in self.outcomes.items():
            if outcomes.top_ords is not None:
                yield encoder, outcomes, outcomes.top_ords
