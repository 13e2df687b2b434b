"""Checks of a block of embeddings before any row of it is written; every fault names the row and the item."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from capim.store.errors import RequestError
from capim.store.layout import layout_fault
from capim.store.tables.corpora import ItemIndex
from capim.store.types import Embeddings, EncoderSpec, SetKey

UNIT_TOLERANCE = 1e-3  # of a float32 norm: encoders normalise in float32, whatever the precision of the model
_SHOWN = 5  # faults of one kind that a message lists
_FLOAT16_MAX = 65504.0


@dataclass(frozen=True, kw_only=True)
class Block:
    """Embeddings of some items of a corpus, to be written to the store.

    Attributes:
        ords: Positions of the items in the corpus, shape ``(n,)``, each once, in any order.
        ids: Their ids, as in the corpus.
        embeddings: float32, unit norm, row ``i`` for ``ords[i]``.
        input_shas: blake2b-128 of the encoded bytes or text, hexadecimal; empty where unknown.
        batch_id: Key of the row of table ``batches`` with time, host and device.
    """

    ords: NDArray[np.int32]
    ids: Sequence[str]
    embeddings: Embeddings
    input_shas: Sequence[str]
    batch_id: str

    def __len__(self) -> int:
        return len(self.ords)


def check_key(key: SetKey, spec: EncoderSpec) -> None:
    """Raises :class:`RequestError` if the spec is not the encoder of the set."""
    faults = []
    if spec.fingerprint != key.encoder_fingerprint:
        faults.append(
            f"encoder {spec.name!r} has fingerprint {spec.fingerprint}, the set belongs to {key.encoder_fingerprint}: "
            "a different revision, precision, prompt or option makes another set"
        )
    if spec.vectors != key.vectors:
        faults.append(f"encoder {spec.name!r} gives {spec.vectors} vectors, the set holds {key.vectors}")
    if faults:
        raise RequestError(faults)


def check_block(key: SetKey, spec: EncoderSpec, block: Block, items: ItemIndex) -> None:
    """Raises :class:`RequestError` with every kind of fault that the block has."""
    faults = list(_shape_faults(spec, block)) or [*_identity_faults(block, items), *_value_faults(spec, block)]
    if faults:
        raise RequestError([f"{key.modality}s of {key.corpus!r} by {key.encoder!r}: {fault}" for fault in faults])


def _shape_faults(spec: EncoderSpec, block: Block) -> Iterator[str]:
    n = len(block)
    if block.ords.ndim != 1 or block.ords.dtype.kind not in "iu":
        yield f"ords must be integers of shape (n,), got {block.ords.dtype} of shape {block.ords.shape}"
    if not len(block.ids) == len(block.embeddings) == len(block.input_shas) == n:
        yield (
            f"expected {n} ids, embeddings and input hashes for {n} positions, got {len(block.ids)} ids, "
            f"{len(block.embeddings)} embeddings and {len(block.input_shas)} input hashes"
        )
    if block.embeddings.values.shape[1] != spec.dim:
        yield f"vectors have {block.embeddings.values.shape[1]} components, encoder {spec.name!r} has dim {spec.dim}"
    if (block.embeddings.offsets is not None) != (spec.vectors == "multi"):
        given = "single" if block.embeddings.offsets is None else "multi"
        yield f"vectors are {given}, encoder {spec.name!r} gives {spec.vectors}"


def _identity_faults(block: Block, items: ItemIndex) -> Iterator[str]:
    ords = block.ords.astype(np.int64)
    outside = (ords < 0) | (ords >= len(items))
    yield from _rows(
        outside,
        block,
        lambda row: f"position {ords[row]} is outside the corpus, which has {len(items)} {items.modality}s",
    )
    _, first = np.unique(ords, return_index=True)
    repeated = np.ones(len(ords), dtype=bool)
    repeated[first] = False
    yield from _rows(repeated, block, lambda row: f"position {ords[row]} occurs twice in this block")
    if outside.any():
        return
    expected = items.ids.take(ords).to_pylist()
    wrong = np.fromiter((a != b for a, b in zip(block.ids, expected, strict=True)), dtype=bool, count=len(ords))
    yield from _rows(
        wrong, block, lambda row: f"unexpected id at position {ords[row]}, where the corpus has {expected[row]!r}"
    )


def _value_faults(spec: EncoderSpec, block: Block) -> Iterator[str]:
    embeddings = block.embeddings
    empty = embeddings.counts < 1
    yield from _rows(empty, block, lambda _: "no vector")
    squares = np.einsum("ij,ij->i", embeddings.values, embeddings.values, dtype=np.float32)
    finite = np.isfinite(squares)
    norms = np.sqrt(np.where(finite, squares, 0.0))
    wrong = ~finite | (np.abs(norms - 1.0) > UNIT_TOLERANCE)
    if wrong.any():
        first_bad = np.full(len(block), -1, dtype=np.int64)  # of every item: its first wrong vector
        vectors = np.flatnonzero(wrong)[::-1]
        offsets = embeddings.offsets
        owners = vectors if offsets is None else np.searchsorted(offsets, vectors, side="right") - 1
        first_bad[owners] = vectors
        yield from _rows(first_bad >= 0, block, lambda row: _vector_words(spec, embeddings, int(first_bad[row]), row))
    bad_norm = ~np.isfinite(embeddings.norms) | (embeddings.norms <= 0)
    yield from _rows(bad_norm, block, lambda row: f"norm before normalisation is {embeddings.norms[row]}, expected > 0")
    layouts = embeddings.layouts or ()
    faults = [layout_fault(*each) for each in zip(layouts, embeddings.counts.tolist(), strict=True)] if layouts else []
    yield from _rows(
        np.array([fault is not None for fault in faults], bool), block, lambda row: f"layout: {faults[row]}"
    )
    negative = embeddings.n_tokens < 0
    yield from _rows(negative, block, lambda row: f"{embeddings.n_tokens[row]} tokens")


def _vector_words(spec: EncoderSpec, embeddings: Embeddings, vector: int, row: int) -> str:
    values = embeddings.values[vector]
    which = "" if embeddings.offsets is None else f"vector {vector - int(embeddings.offsets[row])}: "
    if np.isnan(values).any():
        return f"{which}NaN at component {int(np.isnan(values).argmax())}"
    if np.isinf(values).any():
        return f"{which}infinity at component {int(np.isinf(values).argmax())}"
    if not values.any():
        return f"{which}all components are zero"
    largest = float(np.abs(values).max())
    if spec.storage == "float16" and largest > _FLOAT16_MAX:
        return f"{which}{largest:g} is beyond float16, expected unit norm"
    norm = float(np.linalg.norm(values.astype(np.float64)))
    return f"{which}norm is {norm:g}, expected 1 within {UNIT_TOLERANCE:g}: normalise before storing"


def _rows(wrong: NDArray[np.bool_], block: Block, words: Callable[[int], str]) -> Iterator[str]:
    """A fault for each of the first few wrong rows, and the number of further ones."""
    rows = np.flatnonzero(wrong)
    for row in rows[:_SHOWN].tolist():
        yield f"row {row} (id {block.ids[row]!r}): {words(row)}"
    if len(rows) > _SHOWN:
        yield f"… and {len(rows) - _SHOWN} more rows with the same fault"
