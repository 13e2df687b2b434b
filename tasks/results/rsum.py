"""RSUM: the sum of R@1, R@5 and R@10 of both directions, with the interval of the sum (``docs/protocols.md`` §5)."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from capim.store.errors import RequestError
from capim.tasks.metrics.metric import Ties
from capim.tasks.metrics.retrieval import RECALLS
from capim.tasks.results.summary import Evaluated, Provenance, result_row, results_table, tie_share
from capim.tasks.scoring.outcomes import Outcomes
from capim.tasks.statistics.bootstrap import bootstrap_statistic
from capim.tasks.statistics.clusters import Drawn
from capim.tasks.statistics.resampling import Resampling
from capim.tasks.statistics.statistic import stacked_statistic


def rsum_row(t2i: Outcomes, i2t: Outcomes, provenance: Provenance, *, drawn: Drawn, resampling: Resampling) -> pa.Table:
    """The row of ``schema.RESULTS`` of two protocols together, in points, 0..600; its protocol is ``<t2i>+<i2t>``.

    Both directions share the draws, so the interval is that of the sum: narrower than the sum of six intervals. They
    must be of the same encoder and corpus, and ``provenance.evaluation`` must identify the two together.

    Raises:
        RequestError: ``t2i`` or ``i2t`` is of another direction.

    Examples:
        >>> from capim.tasks.metrics.examples import outcomes_of
        >>> t2i = outcomes_of([[1], [2], [3], [20]], direction="t2i", protocol="t2i/all")
        >>> i2t = outcomes_of([[1], [1], [7], [1]])
        >>> names = ("evaluation", "encoder", "encoder_fingerprint", "corpus", "corpus_fingerprint", "run")
        >>> source = Provenance(**dict.fromkeys(names, ""))
        >>> row = rsum_row(t2i, i2t, source, drawn=4, resampling=Resampling(replicates=100))
        >>> row["protocol"][0].as_py(), row["value"][0].as_py()  # 25 + 75 + 75 and 75 + 75 + 100
        ('t2i/all+i2t/any', 425.0)
    """
    if (t2i.protocol.direction, i2t.protocol.direction) != ("t2i", "i2t"):
        raise RequestError(
            f"RSUM adds one t2i and one i2t protocol, got {t2i.protocol.id!r} ({t2i.protocol.direction}) "
            f"and {i2t.protocol.id!r} ({i2t.protocol.direction})"
        )
    both = [
        Evaluated(outcomes=outcomes, metrics=RECALLS, provenance=provenance, drawn=drawn) for outcomes in (t2i, i2t)
    ]
    means = stacked_statistic([sample for each in both for _, sample in each.samples])

    def total(weights: NDArray[np.uint8]) -> NDArray[np.float64]:
        summed: NDArray[np.float64] = 100 * means(weights).sum(axis=0, keepdims=True)
        return summed

    def points(ties: Ties) -> float:
        """The sum of the six means."""
        return 100 * math.fsum(m.value(each.outcomes, ties) for each in both for m in RECALLS)

    n_occupied = len(np.union1d(t2i.clusters, i2t.clusters))
    [interval] = bootstrap_statistic(total, resampling, n_clusters=both[0].clusters.n_clusters, occupied=[n_occupied])
    chances = [chance for each in both for m in RECALLS if (chance := m.chance(each.outcomes)) is not None]
    row = {
        **result_row(
            provenance,
            resampling,
            interval,
            protocol=f"{t2i.protocol.id}+{i2t.protocol.id}",
            metric="RSUM",
            value=points("expected"),
            n_queries=len(t2i) + len(i2t),
            n_clusters=n_occupied,
            chance=100 * math.fsum(chances) if len(chances) == 2 * len(RECALLS) else None,
        ),
        "value_ties_lost": points("lost"),
        "value_ties_won": points("won"),
        "tie_share": tie_share(t2i, i2t),
    }
    return results_table([row])
