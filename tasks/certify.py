"""What is promised of the figures of a stored corpus, simulated on its own structure (``tasks.statistics.certify``).

Stored as slices of the analysis ``promises``: `capim report` says beside the answer what holds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from capim.store import EmbeddingStore
from capim.store.errors import RequestError
from capim.store.types import Corpus
from capim.tasks.analyses.analysis import Slice, slice_rows
from capim.tasks.analyses.table import PROMISES
from capim.tasks.derive import Derivation, derive, one_by_one
from capim.tasks.metrics import METRICS, bounds_of, version_of
from capim.tasks.metrics.table import Figure, headline_of
from capim.tasks.protocols import Protocol
from capim.tasks.ranking.layout import drawn_clusters
from capim.tasks.runtime.stored import read_outcomes
from capim.tasks.statistics.certify import DATASETS, Check, Population, certify
from capim.tasks.statistics.clusters import Clusters, known_queries
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.intervals import Interval

Row = Mapping[str, Any]
_DETAIL = ("standard_error", "promised", "holds")
MOST_FIGURES = 4  # of a corpus with many headlines, such as languages: those with the lowest and the highest values


def certified(store: EmbeddingStore, corpus: str, results: Sequence[Row], *, seed: int) -> list[dict[str, object]]:
    """A row for each promise of each headline figure, of two of the encoders that these current results are of.

    What was simulated of the same outcomes before is read from the store.

    Raises:
        RequestError: Fewer than two encoders have a headline figure.
    """
    stored = store.corpus(corpus)
    best_two = _best_two(corpus, results)
    both = [row for rows in best_two.values() for row in rows]

    def rows_of(_: Derivation) -> pa.Table:
        parts = []
        for figure, rows in best_two.items():
            population = _population(store, stored, rows, figure)
            names = (str(rows[0]["encoder"]), str(rows[1]["encoder"]))
            checks = certify(names, population, Resampling(seed=seed), n_datasets=DATASETS // len(best_two))
            parts.append(
                slice_rows(
                    [_slice(check, names[0], figure, population.clusters) for check in checks],
                    corpus=stored,
                    protocol=figure.protocol,
                    fingerprints={row["encoder"]: row["encoder_fingerprint"] for row in both},
                    run=PROMISES,
                )
            )
        return pa.concat_tables(parts)

    promises = Derivation(
        kind=PROMISES,
        subject={"analysis": PROMISES, "corpus": stored.fingerprint},
        inputs=[f"{row['encoder']} {row['evaluation']}" for row in both],
        settings={"seed": seed},
        version="; ".join(f"{figure.metric} {version_of(figure.metric)}" for figure in best_two),
    )
    derive(store, "slices", [promises], one_by_one(rows_of), run=PROMISES)
    order = {figure: at for at, figure in enumerate(best_two)}
    found = store.rows("slices", derived=promises.key).to_pylist()
    return [
        {
            "protocol": row["protocol"],
            "metric": row["metric"],
            "what": row["feature"],
            "of": row["level_name"],
            "rate": row["value"],
            **{name: json.loads(row["detail"])[name] for name in _DETAIL},
            "note": row["reason"],
        }
        for row in sorted(found, key=lambda row: order[Figure(row["protocol"], row["metric"])])
    ]


def _best_two(corpus: str, results: Sequence[Row]) -> dict[Figure, list[Row]]:
    """Each headline figure that is simulated, and the results of the best two encoders under it."""
    protocols = {Protocol.of(row["protocol"]) for row in results}
    best_two = {}
    for figure in headline_of(protocol for protocol in protocols if not protocol.is_combined):
        rows = [row for row in results if Figure(row["protocol"], row["metric"]) == figure and row["value"] is not None]
        ranked = sorted(rows, key=lambda row: (-row["value"], row["encoder"]))
        names = [row["encoder"] for row in ranked]  # two revisions of one encoder are told apart by no row
        best_two[figure] = [row for at, row in enumerate(ranked) if row["encoder"] not in names[:at]][:2]
        if len(best_two[figure]) < 2:
            raise RequestError(
                f"certify simulates two encoders, and {figure.metric} of {figure.protocol} on {corpus} has "
                f"{len(rows)}; evaluate another one: capim evaluate --corpora {corpus} --encoders NAME"
            )
    if len(best_two) > MOST_FIGURES:
        by_value = sorted(best_two, key=lambda figure: best_two[figure][0]["value"])
        best_two = {each: best_two[each] for each in (*by_value[: MOST_FIGURES // 2], *by_value[-MOST_FIGURES // 2 :])}
    return best_two


def _slice(check: Check, encoder: str, figure: Figure, clusters: Clusters) -> Slice:
    rate = np.nan if check.rate is None else check.rate
    return Slice(
        encoder,
        PROMISES,
        check.what,
        figure.metric,
        Interval(value=rate, reason=check.note),
        clusters.n_queries,
        clusters.n_occupied,
        level_name=check.of,
        detail={name: getattr(check, name) for name in _DETAIL},
    )


def _population(store: EmbeddingStore, corpus: Corpus, rows: Sequence[Row], figure: Figure) -> Population:
    protocol, metric = Protocol.of(figure.protocol), METRICS[figure.metric]
    both = [read_outcomes(store, row["evaluation"], protocol) for row in rows]
    values = np.stack([metric.per_query(outcomes) for outcomes in both])
    clusters = Clusters.of(both[0].clusters, drawn_clusters(corpus, protocol), both[0].weights)
    known = known_queries(values.T)
    return Population(values[:, known], clusters.only(known), share=metric.share, bounds=bounds_of(metric))
