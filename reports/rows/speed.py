"""Encoding speeds from stored batches, stage by stage, when two of them can be compared, and the size of vectors.

Warm-up batches are excluded (``docs/metrics.md``); an encoder with only warm-up batches has no speed. Batches of
one set are one observation: whatever else the machine does meanwhile slows them together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from statistics import geometric_mean, median
from typing import NamedTuple

import numpy as np

from capim.reports.rows.report_data import ReportData
from capim.store.current import grouped

STAGES = ("decode", "preprocess", "forward", "write")
LEAST_CORPORA = 3  # that say which of two encoders is faster


class Ratio(NamedTuple):
    """The ratio of two encoders' speeds, with its 95% interval and the number of corpora."""

    value: float
    low: float
    high: float
    n_corpora: int


@dataclass(frozen=True, kw_only=True)
class Speed:
    """One encoder on one modality, device and precision, over all its sets.

    Attributes:
        stages: Stage to items per second by corpus, the median over the batches of a set; only measured stages.
        latency: Seconds of a forward batch: 50th, 95th and 99th percentile.
        n_batches: Batches without the warm-up.
        n_items: Items in them.
        batch_size: The most frequent configured size.
        peak_memory_bytes: The largest of all batches; None if not measured.
    """

    encoder: str
    modality: str
    device: str
    precision: str
    batch_size: int
    n_batches: int
    n_items: int
    stages: dict[str, Mapping[str, float]]
    latency: list[float] | None
    peak_memory_bytes: int | None

    def rate(self, stage: str) -> float:
        """Return the items per second of a measured stage: the geometric mean over corpora."""
        return geometric_mean(self.stages[stage].values())


def speeds(data: ReportData) -> list[Speed]:
    """Return one entry per encoder, modality, device and precision that has counted batches."""
    timed = (row for row in data.batches if not row.warmup and row.n_items > 0)
    groups = grouped(timed, lambda row: (row.encoder, row.modality, row.device, row.forward_precision))
    made = []
    for (encoder, modality, device, precision), rows in sorted(groups.items(), key=itemgetter(0)):
        stages: dict[str, Mapping[str, float]] = {}
        for stage in STAGES:
            seconds = attrgetter(f"{stage}_seconds")
            known = grouped(filter(seconds, rows), lambda row: row.corpus)
            rates = {name: median(row.n_items / seconds(row) for row in of) for name, of in known.items()}
            stages |= {stage: rates} if rates else {}
        forward = [row.forward_seconds for row in rows if row.forward_seconds]
        sizes = [row.batch_size for row in rows]
        memory = [row.peak_memory_bytes for row in rows if row.peak_memory_bytes is not None]
        made.append(
            Speed(
                encoder=encoder,
                modality=modality,
                device=device,
                precision=precision,
                batch_size=max(sorted(set(sizes)), key=sizes.count),
                n_batches=len(rows),
                n_items=sum(row.n_items for row in rows),
                stages=stages,
                latency=np.quantile(forward, [0.5, 0.95, 0.99]).tolist() if forward else None,
                peak_memory_bytes=max(memory, default=None),
            )
        )
    return made


def image_rate(data: ReportData) -> dict[str, Speed]:
    """Return encoder -> image speed, where the forward pass was measured.

    An encoder measured on several devices is shown on the one with the most items.
    """
    measured = [s for s in speeds(data) if s.modality == "image" and "forward" in s.stages]
    return {s.encoder: s for s in sorted(measured, key=lambda s: s.n_items)}


def speed_ratio(a: Speed, b: Speed) -> Ratio | None:
    """Return how many times as fast ``a`` is as ``b``: Student's t interval of the log ratios of medians by corpus.

    None on different devices or in different precisions, or if they share fewer than three corpora.
    """
    from capim.tasks.statistics.intervals import student_interval  # SciPy, which results need not

    of_a, of_b = (each.stages["forward"] for each in (a, b))
    logs = np.log([rate / of_b[corpus] for corpus, rate in of_a.items() if corpus in of_b])
    if (a.device, a.precision) != (b.device, b.precision) or (n := len(logs)) < LEAST_CORPORA:
        return None
    mean = float(logs.mean())
    found = student_interval(mean, (logs - mean) / n, level=0.95, n_effective=n)
    if found.low is None or found.high is None:
        return None
    value, low, high = np.exp([mean, found.low, found.high]).tolist()
    return Ratio(value, low, high, n)


def bytes_per_image(data: ReportData) -> dict[str, float]:
    """Return encoder -> bytes of an image's vectors, the mean over its sets: vectors × components × their width."""
    sets = grouped((s for s in data.sets if s.key.modality == "image" and s.n_rows), attrgetter("key.encoder"))
    n_bytes = {name: sum(s.n_vectors * s.dim * np.dtype(s.storage).itemsize for s in of) for name, of in sets.items()}
    return {name: n_bytes[name] / sum(s.n_rows for s in of) for name, of in sets.items()}


def qps_v28(data: ReportData, corpus: str) -> dict[str, float]:
    """Return encoder -> the V28 seed's result: images over the forward time of images and captions together.

    The seed also counted the time of the scores, which batches do not hold.
    """
    images: dict[str, int] = defaultdict(int)
    seconds: dict[str, float] = defaultdict(float)
    for row in data.batches:
        if row.corpus == corpus and row.forward_seconds is not None:
            seconds[row.encoder] += row.forward_seconds
            images[row.encoder] += row.n_items if row.modality == "image" else 0
    return {name: images[name] / seconds[name] for name in sorted(images) if images[name] and seconds[name]}
