"""The same model computed otherwise: in another precision, or on other hardware.

Another precision of the forward pass is another encoder spec, with its own vectors: accuracy and vectors are compared
pairwise. Other hardware under the same spec is told apart by the batches' device: throughput per device. The vectors
of two stores are compared by ``EmbeddingStore.diff``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from itertools import combinations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from store.schema import SLICES
from store.types import EncoderSpec, canonical_json, digest16
from tasks.diagnosis.ablations.embedded import Single
from tasks.diagnosis.gap import DETERMINED
from tasks.diagnosis.subject import Slice, Subject
from tasks.statistics.bootstrap import Interval, paired_intervals

METRIC = "R@1"


def forward_precision(subject: Subject) -> Iterator[Slice]:
    """Encoders that differ in the precision of the forward pass alone: ``R@1`` and vectors, each against the finer.

    The difference is the coarser minus the finer, with its paired interval; the detail says on how many queries the
    first item is another one.
    """
    if subject.protocol.direction not in ("t2i", "i2t"):
        return
    values = subject.values(METRIC)
    percentile = replace(subject.resampling, method="percentile")
    for finer, coarser in same_but_for_precision({name: subject.specs[name] for name in subject.encoders}):
        rows = [subject.encoders.index(coarser), subject.encoders.index(finer)]
        [difference] = paired_intervals(values[rows], subject.clusters, [(0, 1)], percentile)
        yield Slice(
            encoder=coarser,
            analysis="forward precision",
            feature=f"minus {finer}",
            level_name="",
            metric=METRIC,
            interval=difference,
            n_queries=len(subject.queries),
            n_clusters=subject.clusters.n_occupied,
            detail={"first_item_differs": _first_differs(subject, coarser, finer)},
        )
        one, other = subject.embedded(coarser), subject.embedded(finer)
        if isinstance(one, Single) and isinstance(other, Single):
            for modality, a, b in (("images", one.images, other.images), ("captions", one.captions, other.captions)):
                cosines = vector_agreement(a.matrix, b.matrix)
                yield Slice(
                    encoder=coarser,
                    analysis="forward precision",
                    feature=f"cosine with {finer}",
                    level_name=modality,
                    metric="mean cosine",
                    interval=Interval(value=float(cosines.mean()), reason=DETERMINED),
                    n_queries=len(cosines),
                    n_clusters=len(cosines),
                    detail={"lowest": float(cosines.min())},
                )


def same_but_for_precision(specs: Mapping[str, EncoderSpec | str]) -> list[tuple[str, str]]:
    """Pairs of encoders, the finer precision first, whose specs are equal otherwise.

    Examples:
        >>> of = dict(adapter="a", checkpoint="c", revision="r", dim=2)
        >>> same_but_for_precision({"half": EncoderSpec(name="half", precision="bfloat16", **of),
        ...     "full": EncoderSpec(name="full", precision="float32", **of)})
        [('full', 'half')]
    """
    order = ("float32", "float16", "bfloat16")
    known = [(name, spec) for name, spec in specs.items() if isinstance(spec, EncoderSpec)]
    pairs = []
    for (a, spec_a), (b, spec_b) in combinations(known, 2):
        rest_a, rest_b = ({**spec.identity(), "precision": ""} for spec in (spec_a, spec_b))
        if rest_a == rest_b and spec_a.precision != spec_b.precision:
            finer_first = order.index(spec_a.precision) < order.index(spec_b.precision)
            pairs.append((a, b) if finer_first else (b, a))
    return pairs


def vector_agreement(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float64]:
    """Cosine of each item's two unit vectors: float64, shape ``(n,)``.

    Raises:
        ValueError: Another number of items or dimensions.

    Examples:
        >>> vector_agreement(np.float32([[1, 0], [0, 1]]), np.float32([[1, 0], [1, 0]])).tolist()
        [1.0, 0.0]
    """
    if a.shape != b.shape:
        raise ValueError(f"vectors of shape {a.shape} and {b.shape} are not of the same items")
    cosines: NDArray[np.float64] = np.einsum("nd,nd->n", a, b, dtype=np.float64)
    return cosines


def hardware_rows(batches: pa.Table, corpus_fingerprints: Mapping[str, str], *, run: str) -> pa.Table:
    """Throughput of each encoder on each device it ran on: rows of ``schema.SLICES`` with analysis ``hardware``.

    Median items per second of the forward pass over batches that are no warm-up, with the quartiles as the ends.
    Encoders that ran on one device alone have no such rows: there is nothing to compare.

    Args:
        batches: ``schema.BATCHES``.
        corpus_fingerprints: Corpus name -> fingerprint.
        run: Id of the run.
    """
    groups: dict[tuple[str, str, str, str], dict[str, list[float]]] = {}
    for row in batches.to_pylist():
        if row["warmup"] or not row["forward_seconds"] or row["corpus"] not in corpus_fingerprints:
            continue
        whose = (row["encoder"], row["encoder_fingerprint"], row["corpus"], row["modality"])
        groups.setdefault(whose, {}).setdefault(row["device"], []).append(row["n_items"] / row["forward_seconds"])
    created = datetime.now(UTC)
    rows = []
    for (encoder, fingerprint, corpus, modality), devices in groups.items():
        if len(devices) < 2:
            continue
        for device, rates in devices.items():
            low, middle, high = np.quantile(rates, (0.25, 0.5, 0.75)).tolist()
            identity = [fingerprint, corpus_fingerprints[corpus], modality, device]
            rows.append(
                {
                    "slice": digest16(["hardware", *identity]),
                    "encoder": encoder,
                    "encoder_fingerprint": fingerprint,
                    "corpus": corpus,
                    "corpus_fingerprint": corpus_fingerprints[corpus],
                    "protocol": f"encode/{modality}",
                    "metric": "items per second",
                    "analysis": "hardware",
                    "feature": modality,
                    "level_name": device,
                    "value": middle,
                    "ci_low": low,
                    "ci_high": high,
                    "p_adjusted": None,
                    "n_queries": len(rates),
                    "n_clusters": len(rates),
                    "reason": "quartiles over batches, not an interval of the median",
                    "detail": canonical_json({"batches": len(rates)}),
                    "run": run,
                    "created": created,
                }
            )
    return pa.Table.from_pylist(rows, schema=SLICES)


def _first_differs(subject: Subject, one: str, other: str) -> int | None:
    a, b = subject.outcomes[one].top_ords, subject.outcomes[other].top_ords
    return None if a is None or b is None else int((a[:, 0] != b[:, 0]).sum())
