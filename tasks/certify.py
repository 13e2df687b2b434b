"""What is promised of the figures of a stored corpus, simulated on its own structure (``tasks.statistics.certify``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from capim.store import EmbeddingStore
from capim.store.errors import RequestError
from capim.store.types import Corpus
from capim.tasks.metrics import METRICS, bounds_of
from capim.tasks.metrics.table import Figure, headline_of
from capim.tasks.protocols import Protocol
from capim.tasks.ranking.layout import drawn_clusters
from capim.tasks.runtime.stored import read_outcomes
from capim.tasks.statistics.certify import DATASETS, Population, certify
from capim.tasks.statistics.clusters import Clusters, known_queries
from capim.tasks.statistics.draws import Resampling

Row = Mapping[str, Any]
MOST_FIGURES = 4  # of a corpus with many headlines, such as languages: those with the lowest and the highest values


def certified(store: EmbeddingStore, corpus: str, results: Sequence[Row], *, seed: int) -> Iterator[dict[str, object]]:
    """A row for each promise of each headline figure, of two of the encoders that these current results are of.

    Raises:
        RequestError: Fewer than two encoders have a headline figure.
    """
    protocols = {Protocol.of(row["protocol"]) for row in results}
    figures = headline_of(protocol for protocol in protocols if not protocol.is_combined)
    stored, best_two = store.corpus(corpus), {}
    for figure in figures:
        rows = [row for row in results if Figure(row["protocol"], row["metric"]) == figure and row["value"] is not None]
        best_two[figure] = sorted(rows, key=lambda row: (-row["value"], row["encoder"]))[:2]
        if len(best_two[figure]) < 2:
            raise RequestError(
                f"certify simulates two encoders, and {figure.metric} of {figure.protocol} on {corpus} has "
                f"{len(rows)}; evaluate another one: capim evaluate --corpora {corpus} --encoders NAME"
            )
    if len(figures) > MOST_FIGURES:
        ranked = sorted(figures, key=lambda figure: best_two[figure][0]["value"])
        figures = (*ranked[: MOST_FIGURES // 2], *ranked[-MOST_FIGURES // 2 :])
    n_datasets = DATASETS // max(len(figures), 1)
    for figure in figures:
        best = best_two[figure]
        names = (str(best[0]["encoder"]), str(best[1]["encoder"]))
        population = _population(store, stored, best, figure)
        for check in certify(names, population, Resampling(seed=seed), n_datasets=n_datasets):
            yield {"protocol": figure.protocol, "metric": figure.metric, **check._asdict()}


def _population(store: EmbeddingStore, corpus: Corpus, rows: Sequence[Row], figure: Figure) -> Population:
    protocol, metric = Protocol.of(figure.protocol), METRICS[figure.metric]
    both = [read_outcomes(store, row["evaluation"], protocol) for row in rows]
    values = np.stack([metric.per_query(outcomes) for outcomes in both])
    clusters = Clusters.of(both[0].clusters, drawn_clusters(corpus, protocol), both[0].weights)
    known = known_queries(values.T)
    return Population(values[:, known], clusters.only(known), share=metric.share, bounds=bounds_of(metric))
