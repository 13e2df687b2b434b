"""Encoding times of stored batches, stage by stage, as medians and quantiles.

Warm-up batches are excluded (``docs/protocols.md`` §7); an encoder with only warm-up batches has no speed.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from capim.reports.rows.report_data import ReportData, grouped

STAGES = ("decode", "preprocess", "forward", "write")


class Rate(NamedTuple):
    """Items per second over batches: the middle half and the median."""

    lower: float
    median: float
    upper: float


@dataclass(frozen=True, kw_only=True)
class Speed:
    """One encoder on one modality of one corpus and one device.

    Attributes:
        stages: Stage to its rate, for the stages that were measured.
        latency: Seconds of a forward batch: 50th, 95th and 99th percentile.
        n_batches: Batches without the warm-up.
        n_items: Items in them.
        batch_size: The most frequent configured size.
        peak_memory_bytes: The largest of all batches; None if not measured.
    """

    encoder: str
    corpus: str
    modality: str
    device: str
    precision: str
    batch_size: int
    n_batches: int
    n_items: int
    stages: dict[str, Rate]
    latency: list[float] | None
    peak_memory_bytes: int | None


def speeds(data: ReportData) -> list[Speed]:
    """One entry per encoder, corpus, modality, device and precision that has counted batches."""
    timed = (row for row in data.batches if not row["warmup"] and row["n_items"] > 0)
    key = itemgetter("encoder", "corpus", "modality", "device", "forward_precision")
    made = []
    for (encoder, corpus, modality, device, precision), rows in sorted(grouped(timed, key).items(), key=itemgetter(0)):
        per_second = {
            stage: [r["n_items"] / r[f"{stage}_seconds"] for r in rows if r[f"{stage}_seconds"]] for stage in STAGES
        }
        forward = [r["forward_seconds"] for r in rows if r["forward_seconds"]]
        sizes = [r["batch_size"] for r in rows]
        memory = [r["peak_memory_bytes"] for r in rows if r["peak_memory_bytes"] is not None]
        made.append(
            Speed(
                encoder=encoder,
                corpus=corpus,
                modality=modality,
                device=device,
                precision=precision,
                batch_size=max(sorted(set(sizes)), key=sizes.count),
                n_batches=len(rows),
                n_items=sum(r["n_items"] for r in rows),
                stages={s: Rate(*np.quantile(of, [0.25, 0.5, 0.75]).tolist()) for s, of in per_second.items() if of},
                latency=np.quantile(forward, [0.5, 0.95, 0.99]).tolist() if forward else None,
                peak_memory_bytes=max(memory, default=None),
            )
        )
    return made


@dataclass(frozen=True, kw_only=True)
class Spent:
    """What an endpoint counted for the items of one encoder, corpus and modality, warm-up included.

    Attributes:
        n_items: Distinct items of the batches with a count.
        n_tokens: Tokens of their requests.
        cost: At the prices of the encoder's table when they were encoded; None without a price.
    """

    encoder: str
    modality: str
    n_items: int
    n_tokens: int
    cost: float | None


def spent(data: ReportData, corpus: str) -> list[Spent]:
    """One entry per encoder and modality on a corpus for which an endpoint counted tokens."""
    counted = (row for row in data.batches if row["corpus"] == corpus and row["n_tokens"] is not None)
    groups = grouped(counted, itemgetter("encoder", "modality"))
    return [
        Spent(
            encoder=encoder,
            modality=modality,
            n_items=sum(row["n_items"] for row in rows),
            n_tokens=sum(row["n_tokens"] for row in rows),
            cost=sum(costs) if (costs := [row["cost"] for row in rows if row["cost"] is not None]) else None,
        )
        for (encoder, modality), rows in sorted(groups.items(), key=itemgetter(0))
    ]


def image_rate(data: ReportData, corpus: str) -> dict[str, Speed]:
    """Encoder to its image speed on a corpus, where the forward pass was measured.

    An encoder measured on several devices is shown on the one with the most items.
    """
    measured = [s for s in speeds(data) if s.corpus == corpus and s.modality == "image" and "forward" in s.stages]
    return {s.encoder: s for s in sorted(measured, key=lambda s: s.n_items)}


def bytes_per_image(data: ReportData, corpus: str) -> dict[str, float]:
    """Encoder to stored bytes per image of its sealed set."""
    return {
        s.key.encoder: s.n_bytes / s.n_rows
        for s in data.sets
        if s.key.corpus == corpus and s.key.modality == "image" and s.n_rows
    }


def qps_v28(data: ReportData, corpus: str) -> dict[str, float]:
    """Encoder to the V28 seed's figure: images over the forward time of images and captions together.

    The seed also counted the time of the scores, which batches do not hold.
    """
    images: dict[str, int] = defaultdict(int)
    seconds: dict[str, float] = defaultdict(float)
    for row in data.batches:
        if row["corpus"] == corpus and row["forward_seconds"] is not None:
            seconds[row["encoder"]] += row["forward_seconds"]
            images[row["encoder"]] += row["n_items"] if row["modality"] == "image" else 0
    return {name: images[name] / seconds[name] for name in sorted(images) if images[name] and seconds[name]}
