"""Throughput of encoders that ran on several devices."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from capim.store.schema import SLICES
from capim.store.types import Corpus
from capim.tasks.diagnosis.slices import Slice, slice_rows
from capim.tasks.statistics.bootstrap import Interval


def device_rows(batches: pa.Table, *, corpus: Corpus, run: str) -> pa.Table:
    """Items per second of the forward pass per encoder, modality and device: rows of analysis ``hardware``.

    ``batches`` are rows of ``schema.BATCHES``. The value is the median over batches without warm-up, the ends are the
    quartiles. An encoder that ran on one device only has no rows.
    """
    rates: dict[tuple[str, str, str], dict[str, list[float]]] = {}
    for row in batches.to_pylist():
        if row["forward_seconds"] and not row["warmup"]:
            devices = rates.setdefault((row["encoder"], row["encoder_fingerprint"], row["modality"]), {})
            devices.setdefault(row["device"], []).append(row["n_items"] / row["forward_seconds"])
    tables = [
        slice_rows(
            [_slice(encoder, modality, device, per_second) for device, per_second in devices.items()],
            corpus=corpus,
            protocol=f"encode/{modality}",
            fingerprints={encoder: fingerprint},
            run=run,
        )
        for (encoder, fingerprint, modality), devices in rates.items()
        if len(devices) > 1
    ]
    return pa.concat_tables([SLICES.empty_table(), *tables])


def _slice(encoder: str, modality: str, device: str, rates: list[float]) -> Slice:
    low, median, high = np.quantile(rates, (0.25, 0.5, 0.75)).tolist()
    return Slice(
        encoder=encoder,
        analysis="hardware",
        feature=modality,
        level_name=device,
        metric="items per second",
        interval=Interval(value=median, low=low, high=high, reason="quartiles over batches, not a confidence interval"),
        n_queries=len(rates),
        n_clusters=len(rates),
        detail={"batches": len(rates)},
    )
