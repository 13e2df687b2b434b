"""Bootstrap replicates kept for later: rows of ``schema.REPLICATES``, as ``capim run --keep-replicates`` stores them.

Two rows with the same ``corpus_fingerprint``, ``n_clusters``, ``seed`` and number of replicates come from the same
draws, whenever and wherever they were made: subtract them, and the result is the paired bootstrap of the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime

import pyarrow as pa

from store.errors import RequestError
from store.schema import REPLICATES
from tasks.metrics import Metric
from tasks.results.summary import Provenance, result_key
from tasks.scoring.outcomes import Outcomes
from tasks.statistics.bootstrap import Interval, bootstrap_replicates, interval_of
from tasks.statistics.clusters import Clusters
from tasks.statistics.resampling import Resampling
from tasks.statistics.statistic import statistic_of


def replicate_rows(
    outcomes: Outcomes,
    metrics: Sequence[Metric],
    provenance: Provenance,
    *,
    n_clusters: int,
    resampling: Resampling,
) -> pa.Table:
    """One row of ``schema.REPLICATES`` per metric: the metric of every draw behind its results row.

    Arguments are those of :func:`tasks.results.summary.result_rows`; ``result`` is the key of the results row.
    """
    clusters = Clusters.of(outcomes.clusters, n_clusters, outcomes.weights)
    created = datetime.now(UTC)
    rows = []
    for metric in metrics:
        statistic = statistic_of(metric.per_query(outcomes), clusters, metric.reduce)
        [drawn] = bootstrap_replicates(statistic, n_clusters, replicates=resampling.replicates, seed=resampling.seed)
        whose = asdict(provenance)
        rows.append(
            {
                **{name: whose[name] for name in REPLICATES.names if name in whose},
                "result": result_key(provenance, outcomes.protocol.id, metric.name),
                "protocol": outcomes.protocol.id,
                "metric": metric.name,
                "value": metric.value(outcomes),
                "replicate_values": drawn,
                "n_clusters": n_clusters,
                "seed": resampling.seed,
                "created": created,
            }
        )
    return pa.Table.from_pylist(rows, schema=REPLICATES)


def stored_difference(rows: pa.Table, *, level: float = 0.95) -> Interval:
    """The difference of two stored rows, the first minus the second, with its paired percentile interval.

    Args:
        rows: Two rows of ``schema.REPLICATES``.
        level: Of the interval.

    Raises:
        RequestError: Not two rows, or rows that do not share their draws.
    """
    if rows.num_rows != 2:
        raise RequestError(f"a difference needs two rows of replicates, got {rows.num_rows}")
    a, b = rows.to_pylist()
    shared = ("corpus_fingerprint", "n_clusters", "seed", "metric")
    faults = [f"{name} {a[name]!r} and {b[name]!r}" for name in shared if a[name] != b[name]]
    if len(a["replicate_values"]) != len(b["replicate_values"]):
        faults.append(f"{len(a['replicate_values'])} and {len(b['replicate_values'])} replicates")
    if faults:
        raise RequestError(
            f"these replicates are not paired: {', '.join(faults)}; evaluate both with the same settings"
        )
    drawn = rows["replicate_values"].combine_chunks().flatten().to_numpy().reshape(2, -1)
    return interval_of(a["value"] - b["value"], drawn[0] - drawn[1], level=level)
