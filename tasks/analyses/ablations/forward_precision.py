"""The same model computed in another floating-point precision.

The precision of the forward pass is part of the encoder's specification, so each precision is an encoder with its own
vectors. The vectors of two stores are compared by ``EmbeddingStore.diff``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import permutations

import numpy as np
import pyarrow as pa

from capim.store.schema import SLICES
from capim.store.types import Corpus, EncoderSpec
from capim.tasks.analyses.analysis_input import METRIC, AnalysisInput, SingleVectors
from capim.tasks.analyses.hubs import NOT_SAMPLED
from capim.tasks.analyses.slice_means import paired_difference
from capim.tasks.analyses.slices import Slice, slice_rows
from capim.tasks.statistics.intervals import Interval

FINEST_FIRST = ("float32", "float16", "bfloat16")


def forward_precision(data: AnalysisInput) -> Iterator[Slice]:
    """``R@1`` and vectors of encoders that differ only in the precision of the forward pass, coarser minus finer.

    The detail of the difference tells for how many queries the first item differs.
    """
    values = data.values(METRIC)
    specs = {name: spec for name, spec in data.specs.items() if name in data.outcomes}
    for finer, coarser in differing_in_precision(specs):
        rows = [data.encoders.index(coarser), data.encoders.index(finer)]
        difference = paired_difference(values[rows], data.clusters, data.resampling)
        lists = [data.outcomes[name].top_ords for name in (coarser, finer)]
        firsts = [ords[:, 0] for ords in lists if ords is not None]
        differs = int((firsts[0] != firsts[1]).sum()) if len(firsts) == 2 else None
        detail = {"first_item_differs": differs}
        yield data.slice(coarser, "forward precision", f"minus {finer}", METRIC, difference, detail=detail)
        one, other = data.vectors(coarser), data.vectors(finer)
        if isinstance(one, SingleVectors) and isinstance(other, SingleVectors):
            for modality, a, b in (("images", one.images, other.images), ("captions", one.captions, other.captions)):
                cosines = np.einsum("nd,nd->n", a, b, dtype=np.float64)
                yield data.slice(
                    coarser,
                    "forward precision",
                    f"cosine with {finer}",
                    "mean cosine",
                    Interval(value=float(cosines.mean()), reason=NOT_SAMPLED),
                    level_name=modality,
                    counts=(len(cosines), len(cosines)),
                    detail={"lowest": float(cosines.min())},
                )


def differing_in_precision(specs: Mapping[str, EncoderSpec]) -> list[tuple[str, str]]:
    """Pairs of encoders that differ only in the precision of the forward pass, the finer one first.

    Examples:
        >>> of = dict(adapter="a", checkpoint="c", revision="r", dim=2)
        >>> differing_in_precision({"half": EncoderSpec(name="half", precision="bfloat16", **of),
        ...     "full": EncoderSpec(name="full", precision="float32", **of)})
        [('full', 'half')]
    """
    order = {name: FINEST_FIRST.index(spec.precision) for name, spec in specs.items()}
    rest = {name: {**spec.identity(), "precision": ""} for name, spec in specs.items()}
    return [(a, b) for a, b in permutations(specs, 2) if order[a] < order[b] and rest[a] == rest[b]]


# --- Throughput of encoders that ran on several devices.


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
