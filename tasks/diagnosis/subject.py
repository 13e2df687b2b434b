"""What an analysis looks at, and the rows that it writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from store.errors import RequestError
from store.schema import SLICES
from store.types import Corpus, EncoderSpec, EvalProtocol, canonical_json, digest16
from tasks.diagnosis.ablations.embedded import Embedded
from tasks.metrics import METRICS
from tasks.scoring.outcomes import Outcomes
from tasks.scoring.protocols.layout import cluster_count
from tasks.statistics.bootstrap import Interval
from tasks.statistics.clusters import Clusters
from tasks.statistics.resampling import Resampling


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """Some encoders' outcomes under one protocol on one corpus.

    Attributes:
        corpus: Whose captions, objects, tags and extra ground truths are looked at.
        protocol: Of the outcomes.
        outcomes: Encoder -> outcomes; the same queries in the same order for all.
        specs: Encoder -> spec, or its fingerprint alone for outcomes from elsewhere.
        resampling: Draws and intervals: those of the corpus' results, so that slices and results go together.
        embedded: Encoder -> its stored vectors, read when an analysis asks; None where it has none.
    """

    corpus: Corpus
    protocol: EvalProtocol
    outcomes: Mapping[str, Outcomes]
    specs: Mapping[str, EncoderSpec | str]
    resampling: Resampling = field(default_factory=Resampling)
    embedded: Callable[[str], Embedded | None] = lambda _: None

    def __post_init__(self) -> None:
        if not self.outcomes:
            raise RequestError(
                f"protocol {self.protocol.id!r} of corpus {self.corpus.name!r} has no outcomes to analyse"
            )
        first = next(iter(self.outcomes))
        for name, outcomes in self.outcomes.items():
            if not np.array_equal(outcomes.query_ords, self.outcomes[first].query_ords):
                raise RequestError(
                    f"encoders {first!r} and {name!r} were asked other queries under {self.protocol.id!r}; "
                    "evaluate both on the same corpus"
                )

    @property
    def encoders(self) -> list[str]:
        """Names, in the order of ``outcomes``."""
        return list(self.outcomes)

    @property
    def queries(self) -> Outcomes:
        """Any encoder's outcomes, for what they all share: query ids and ords, clusters, weights."""
        return next(iter(self.outcomes.values()))

    @cached_property
    def clusters(self) -> Clusters:
        """The images that the queries belong to (for quadruples: themselves)."""
        n_clusters = cluster_count(self.corpus, self.protocol)
        return Clusters.of(self.queries.clusters, n_clusters, self.queries.weights)

    def values(self, metric: str) -> NDArray[np.float64]:
        """A metric's value of every query: float64, shape ``(n_encoders, n_queries)``."""
        return np.stack([METRICS[metric].per_query(outcomes) for outcomes in self.outcomes.values()])

    def fingerprint(self, encoder: str) -> str:
        """The fingerprint of an encoder of this subject."""
        spec = self.specs[encoder]
        return spec if isinstance(spec, str) else spec.fingerprint


@dataclass(frozen=True, kw_only=True)
class Slice:
    """One row of ``schema.SLICES``, before it is known whose it is.

    Attributes:
        encoder: Whose outcomes.
        analysis: Key of the analysis: ``complexity``, ``errors`` …
        feature: What is looked at: ``spatial``, ``person``, ``near miss`` …
        level_name: ``with``, ``without``, ``difference``, a bin or a variant; may be empty.
        metric: What ``interval`` is of: a metric's name, or the quantity's own.
        interval: The figure.
        n_queries: Queries that it is over.
        n_clusters: Images that they belong to.
        p_adjusted: Of a difference, adjusted over the features of one encoder.
        detail: Whatever the analysis adds: plain values for JSON.
    """

    encoder: str
    analysis: str
    feature: str
    level_name: str
    metric: str
    interval: Interval
    n_queries: int
    n_clusters: int
    p_adjusted: float | None = None
    detail: Mapping[str, object] | None = None


def slice_rows(subject: Subject, slices: Iterable[Slice], *, run: str) -> pa.Table:
    """Rows of ``schema.SLICES``; ``slice`` identifies what a row says, so that a later run replaces it."""
    created = datetime.now(UTC)
    corpus, protocol = subject.corpus, subject.protocol.id
    rows = []
    for each in slices:
        identity = [
            subject.fingerprint(each.encoder),
            corpus.fingerprint,
            protocol,
            each.metric,
            each.analysis,
            each.feature,
            each.level_name,
        ]
        value = each.interval.value
        rows.append(
            {
                "slice": digest16(identity),
                "encoder": each.encoder,
                "encoder_fingerprint": identity[0],
                "corpus": corpus.name,
                "corpus_fingerprint": corpus.fingerprint,
                "protocol": protocol,
                "metric": each.metric,
                "analysis": each.analysis,
                "feature": each.feature,
                "level_name": each.level_name,
                "value": value if np.isfinite(value) else None,
                "ci_low": each.interval.low,
                "ci_high": each.interval.high,
                "p_adjusted": each.p_adjusted,
                "n_queries": each.n_queries,
                "n_clusters": each.n_clusters,
                "reason": each.interval.reason,
                "detail": None if each.detail is None else canonical_json(each.detail),
                "run": run,
                "created": created,
            }
        )
    return pa.Table.from_pylist(rows, schema=SLICES)
