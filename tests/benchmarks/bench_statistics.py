"""Statistics: time and memory of intervals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from scipy import stats

from capim.tasks.metrics import METRICS
from capim.tasks.ranking.outcomes import Outcomes, outcomes_of
from capim.tasks.results.summary import Evaluated, result_rows
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.intervals import interval_of
from tests.benchmarks.own_process import alone, peak_gib
from tests.benchmarks.rows import Row, timed
from tests.repeated import SOURCE

N_ENCODERS, N_PROTOCOLS, N_IMAGES, PER_IMAGE = 9, 12, 5_000, 5
RECALLS = [METRICS[name] for name in ("R@1", "R@5", "R@10")]


def run(quick: bool = False) -> list[Row]:
    """Time compared with SciPy, and peak memory of a process of its own; ``quick`` takes fewer replicates."""
    replicates = 1_000 if quick else 10_000
    n_metrics = N_ENCODERS * N_PROTOCOLS * len(RECALLS)
    rows, peak = alone(all_rows, replicates)
    intervals, _ = alone(all_intervals, replicates)
    peer = scipy_per_metric(replicates) * n_metrics
    what = f"{replicates:,} replicates, {N_ENCODERS} encoders x {N_PROTOCOLS} protocols x R@1/5/10, {N_IMAGES:,} images"
    peer_note = f"vectorised, on the same cluster sums, metric by metric: {peer:.0f} s for {n_metrics}"
    name, scipy = "result rows with the default intervals of shares", "scipy.stats.bootstrap"
    return [
        Row(f"{name}: time", rows, "s", "<= 10", "", what),
        Row(f"{name}: peak memory", peak, "GiB", "<= 1", "", "imports included"),
        Row("intervals alone: time", intervals, "s", "<= 10", "", what),
        Row("intervals: speed relative to SciPy", peer / intervals, "times", ">= 100", scipy, peer_note),
    ]


def of_coco(encoder: int, protocol: int) -> Outcomes:
    """COCO-sized outcomes: every second protocol has five queries per image, the others one."""
    rng = np.random.default_rng((encoder, protocol))
    clusters = np.repeat(np.arange(N_IMAGES, dtype=np.int32), PER_IMAGE if protocol % 2 else 1)
    ranks = rng.geometric(1 / (1 + 9 * rng.random(N_IMAGES)[clusters]))
    found = outcomes_of(ranks[:, None].tolist(), n_gallery=N_IMAGES, protocol=f"t2i/{protocol}")
    return replace(found, clusters=clusters)


def all_rows(replicates: int) -> tuple[float, float]:
    """Seconds and peak GiB for all result rows of a COCO run, encoder by encoder as ``capim run`` makes them."""
    return _per_encoder(lambda evaluated: result_rows(evaluated, Resampling(replicates=replicates)))


def all_intervals(replicates: int) -> tuple[float, float]:
    """Seconds and peak GiB for percentile intervals of these rows alone: what SciPy is compared with."""
    return _per_encoder(
        lambda evaluated: [
            interval_of(*sample, Resampling(replicates=replicates, method="percentile"))
            for each in evaluated
            for _, sample in each.samples
        ]
    )


def _per_encoder(work: Callable[[list[Evaluated]], object]) -> tuple[float, float]:
    seconds = 0.0
    for encoder in range(N_ENCODERS):
        source = replace(SOURCE, evaluation=str(encoder), encoder=str(encoder))
        evaluated = [
            Evaluated(outcomes=of_coco(encoder, protocol), metrics=RECALLS, source=source, drawn=N_IMAGES)
            for protocol in range(N_PROTOCOLS)
        ]
        seconds += timed(partial(work, evaluated))
    return seconds, peak_gib()


def scipy_per_metric(replicates: int) -> float:
    """Seconds that ``scipy.stats.bootstrap`` takes for one metric: vectorised, on the clusters' sums and sizes."""
    outcomes = of_coco(0, 1)
    sizes = np.bincount(outcomes.clusters).astype(float)

    def each() -> None:
        for metric in RECALLS:
            sums = np.bincount(outcomes.clusters, weights=metric.per_query(outcomes))
            stats.bootstrap(
                (sums, sizes), lambda s, n, axis=-1: s.sum(axis=axis) / n.sum(axis=axis), n_resamples=replicates,
                batch=100, paired=True, vectorized=True, method="percentile", rng=np.random.default_rng(0),
            )  # fmt: skip

    return timed(each) / len(RECALLS)
