"""Stored bootstrap replicates: rows of ``schema.REPLICATES``, which ``capim run --keep-replicates`` writes.

Two rows with the same ``corpus_fingerprint``, ``n_clusters``, ``seed`` and number of replicates come from the same
draws, whenever and wherever they were made: their difference is the paired bootstrap of the difference.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime

import pyarrow as pa

from capim.store.schema import REPLICATES
from capim.tasks.results.summary import Evaluated, result_key
from capim.tasks.statistics.bootstrap import bootstrap_replicates
from capim.tasks.statistics.resampling import Resampling
from capim.tasks.statistics.statistic import statistic_of


def replicate_rows(evaluated: Evaluated, resampling: Resampling) -> pa.Table:
    """One row of ``schema.REPLICATES`` per metric: its value in every draw; ``result`` is the id of its results row."""
    created = datetime.now(UTC)
    provenance, protocol = evaluated.provenance, evaluated.outcomes.protocol.id
    identity = {name: value for name, value in asdict(provenance).items() if name in REPLICATES.names}
    rows = []
    for metric, sample in evaluated.samples:
        statistic = statistic_of(*sample, metric.reduce)
        [replicates] = bootstrap_replicates(statistic, evaluated.clusters.n_clusters, resampling)
        rows.append(
            {
                **identity,
                "result": result_key(provenance, protocol, metric.name),
                "protocol": protocol,
                "metric": metric.name,
                "value": metric.value(evaluated.outcomes),
                "replicate_values": replicates,
                "n_clusters": evaluated.clusters.n_clusters,
                "seed": resampling.seed,
                "created": created,
            }
        )
    return pa.Table.from_pylist(rows, schema=REPLICATES)
