"""Statistics: how fast, in how much memory, and whether the intervals and tests keep their promises.

Run by ``make bench``, or alone: ``python tests/benchmarks/bench_statistics.py [--quick]``.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from time import perf_counter

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY), str(Path(__file__).parent)]

import numpy as np  # noqa: E402
from rows import Row  # noqa: E402

from store.types import EvalProtocol  # noqa: E402
from tasks.analysis.bootstrap import bootstrap_samples  # noqa: E402
from tasks.analysis.clusters import Clusters  # noqa: E402
from tasks.analysis.statistic import Sample  # noqa: E402
from tasks.analysis.summary import Provenance, result_rows  # noqa: E402
from tasks.analysis.validity import Scenario, study  # noqa: E402
from tasks.metrics import METRICS  # noqa: E402
from tasks.scoring.outcomes import Outcomes  # noqa: E402

N_ENCODERS, N_PROTOCOLS, N_IMAGES, PER_IMAGE = 9, 12, 5_000, 5
RECALLS = [METRICS[name] for name in ("R@1", "R@5", "R@10")]


def run(quick: bool = False) -> list[Row]:
    """All rows; ``quick`` uses fewer replicates and data sets."""
    return [*speed(1_000 if quick else 10_000), *validity(200 if quick else 10_000, 1_000 if quick else 5_000)]


def outcomes_of(encoder: int, protocol: int) -> Outcomes:
    """COCO-sized outcomes: every second protocol has five queries per image, the others one."""
    rng = np.random.default_rng((encoder, protocol))
    clusters = np.repeat(np.arange(N_IMAGES, dtype=np.int32), PER_IMAGE if protocol % 2 else 1)
    n = len(clusters)
    ranks = rng.geometric(1 / (1 + 9 * rng.random(N_IMAGES)[clusters])).astype(np.int32)
    ones = np.ones(n, dtype=np.int32)
    return Outcomes(
        protocol=EvalProtocol(id=f"t2i/{protocol}", direction="t2i", title="simulated"),
        query_ids=np.arange(n).astype(str).astype(object), query_ords=np.arange(n, dtype=np.int32), clusters=clusters,
        rank_low=ranks, rank_high=ranks, n_relevant=ones, n_tied_relevant=ones, n_gallery=ones * N_IMAGES,
        weights=np.ones(n), best_score=np.zeros(n, dtype=np.float32), relevant_low=ranks, relevant_high=ranks,
    )  # fmt: skip


def all_rows(replicates: int) -> float:
    """Seconds for every results row of a COCO run of nine encoders, one evaluation after the other."""
    seconds = 0.0
    for encoder in range(N_ENCODERS):
        provenance = Provenance(
            evaluation=str(encoder), encoder=str(encoder), encoder_fingerprint="", corpus="coco", corpus_fingerprint="",
            image_tag="", caption_tag="", run="",
        )  # fmt: skip
        for protocol in range(N_PROTOCOLS):
            outcomes = outcomes_of(encoder, protocol)
            start = perf_counter()
            result_rows(outcomes, RECALLS, provenance, n_clusters=N_IMAGES, seed=0, replicates=replicates)
            seconds += perf_counter() - start
    return seconds


def all_intervals(replicates: int) -> float:
    """Seconds for the intervals of the same run, all encoders and protocols at once."""
    samples = [
        Sample([metric.per_query(outcomes) for metric in RECALLS], Clusters.of(outcomes.clusters, N_IMAGES))
        for outcomes in (outcomes_of(e, p) for e in range(N_ENCODERS) for p in range(N_PROTOCOLS))
    ]
    start = perf_counter()
    bootstrap_samples(samples, seed=0, replicates=replicates)
    return perf_counter() - start


def scipy_per_metric(replicates: int) -> float:
    """Seconds that ``scipy.stats.bootstrap`` takes for one metric: vectorised, on the clusters' sums and sizes."""
    from scipy import stats

    outcomes = outcomes_of(0, 1)
    sizes = np.bincount(outcomes.clusters).astype(float)
    start = perf_counter()
    for metric in RECALLS:
        sums = np.bincount(outcomes.clusters, weights=metric.per_query(outcomes))
        stats.bootstrap(
            (sums, sizes),
            lambda s, n, axis=-1: s.sum(axis=axis) / n.sum(axis=axis),
            n_resamples=replicates, batch=100, paired=True, vectorized=True, method="percentile",
            rng=np.random.default_rng(0),
        )  # fmt: skip
    return (perf_counter() - start) / len(RECALLS)


def alone(function: str, replicates: int) -> tuple[float, float]:
    """Seconds and peak GiB of one of the functions above in a process of its own."""
    code = f"import bench_statistics as b, resource; print(b.{function}({replicates}), \
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    command = [sys.executable, "-c", code]
    printed = subprocess.run(command, cwd=Path(__file__).parent, check=True, capture_output=True, text=True).stdout
    seconds, kilobytes = printed.split()
    return float(seconds), int(kilobytes) / 2**20


def speed(replicates: int) -> list[Row]:
    """Time beside SciPy's, and peak memory of a process of its own."""
    n_metrics = N_ENCODERS * N_PROTOCOLS * len(RECALLS)
    rows, peak_rows = alone("all_rows", replicates)
    together, peak_together = alone("all_intervals", replicates)
    peer = scipy_per_metric(replicates) * n_metrics
    what = f"{replicates:,} replicates, {N_ENCODERS} encoders x {N_PROTOCOLS} protocols x R@1/5/10, {N_IMAGES:,} images"
    peer_note = f"vectorised, on the same cluster sums, metric by metric: {peer:.0f} s for {n_metrics}"
    return [
        Row("results rows of a COCO run, evaluation by evaluation", rows, "s", "<= 10", "", what),
        Row("its intervals, all at once", together, "s", "<= 10", "", what),
        Row("peak memory of the process", max(peak_rows, peak_together), "GiB", "<= 1", "", "imports included"),
        Row("all at once, times faster than SciPy", peer / together, "x", ">= 100", "scipy.stats.bootstrap", peer_note),
        Row("row by row, times faster than SciPy", peer / rows, "x", "", "scipy.stats.bootstrap", peer_note),
    ]


def validity(n_datasets: int, n_clusters: int) -> list[Row]:
    """Coverage and type-I error for correlations 0, 0.5, 0.9 and one or five queries per image, worst cases as bars."""
    rows = []
    for per_cluster in (1, 5):
        for correlation in (0.0, 0.5, 0.9):
            scenario = Scenario(n_clusters=n_clusters, per_cluster=per_cluster, correlation=correlation)
            for rate in study(scenario, n_datasets=n_datasets, seed=7):
                kind, name = rate.name.split("/", 1)
                title = {"coverage": "coverage of the 95 % interval", "error": "type-I error at 5 %"}[kind]
                label = f"{title}, {name}, correlation {correlation}, {per_cluster} per image"
                note = (
                    f"{rate.n:,} data sets of {n_clusters:,} images, standard error {100 * rate.standard_error:.2f} %"
                )
                low, high = (94, 96) if kind == "coverage" else (4, 6)
                value = 100 * rate.rate
                rows.append(Row(label, value, "%", f">= {low}", "", note))
                rows.append(Row(label, value, "%", f"<= {high}", "", note))
    return rows


if __name__ == "__main__":
    for row in run(quick="--quick" in sys.argv):
        sys.stdout.write(f"{row.value:10.3f} {row.unit:4} {row.bar:8} {row.name}  ({row.note})\n")
