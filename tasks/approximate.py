"""Task: what compressed vectors and approximate search cost, against exact search."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from capim.tasks.analyses.ablations.forms import LATE_QUERIES, SINGLE_QUERIES, restricted, sample_queries
from capim.tasks.analyses.compression.frontier import frontier, measured
from capim.tasks.analyses.compression.methods import METHODS, methods_of
from capim.tasks.metrics.table import headline_of
from capim.tasks.runtime.combining import text_to_image
from capim.tasks.runtime.progress import track
from capim.tasks.runtime.references import EvaluationRef
from capim.tasks.runtime.shell import shell
from capim.tasks.runtime.stored import WITHOUT_VECTORS, has_vectors
from capim.tasks.scoring.protocols.layout import drawn_clusters
from capim.tasks.scoring.threads import n_threads
from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.resampling import Resampling


@shell("approximate", run_name="approximate-{exact.sets.encoder}-{exact.sets.corpus}")
def approximate(
    exact: EvaluationRef, *, store_uri: str, methods: Sequence[str] = METHODS, resampling: Resampling, run: str
) -> int:
    """Measure methods on the headline metric of text to image; returns the number of slices stored.

    All items are in memory in the type that they are stored in, and all queries, or a sample of them, in float32. An
    encoder without stored vectors has no slices.
    """
    retrieval = text_to_image(store_uri, exact.sets, run)
    store, corpus, fingerprint = retrieval.store, retrieval.corpus, exact.sets.encoder_fingerprint
    spec = store.encoder(fingerprint)
    if spec.adapter in WITHOUT_VECTORS or not has_vectors(store, fingerprint, corpus.fingerprint):
        return 0
    many = spec.vectors == "multi"
    [gallery] = retrieval.task.galleries
    every = restricted(retrieval.task, gallery)
    task = sample_queries(every, LATE_QUERIES if many else SINGLE_QUERIES, seed=resampling.seed)
    items, queries = (
        retrieval.items(fingerprint, "image", gallery),
        retrieval.items(fingerprint, "caption", task.queries),
    )
    queries = queries.with_values(queries.values.astype(np.float32))
    [(_, metric)] = headline_of([retrieval.protocol])
    chosen = list(methods_of(items, methods, storage=spec.storage, many=many, seed=resampling.seed))
    rows = []
    with track(f"{spec.name} · {corpus.name} · methods", total=len(chosen), unit="methods") as advance:
        for row in measured(chosen, queries, task, metric):
            rows.append(row)
            advance(1)
    clusters = Clusters.of(task.clusters, drawn_clusters(corpus, retrieval.protocol), task.weights)
    found = frontier(
        spec.name,
        rows,
        clusters,
        resampling,
        metric=metric,
        n_all_queries=len(every.queries),
        threads=n_threads(),
    )
    return retrieval.write_slices(spec, found)
