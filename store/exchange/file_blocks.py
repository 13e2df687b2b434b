"""Files of embeddings as blocks for the store: in the order of the file, with unit norm."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from capim.store.errors import RequestError
from capim.store.exchange.embedding_files import EmbeddingFile, EmbeddingParts
from capim.store.schema import texts
from capim.store.sets.checks import UNIT_TOLERANCE, Block
from capim.store.types import Embeddings, EncoderSpec

_ROWS = {"single": 8192, "multi": 64}


def positions_of(file: EmbeddingParts, items: pa.Array, corpus: str) -> NDArray[np.int32]:
    """For each item of the file its position among the ids of the corpus, ``items``; shape ``(n,)``.

    Raises:
        RequestError: Ids are unknown, missing or repeated, or a file without ids has another number of items.
    """
    n = len(items)
    if file.ids is None and file.n != n:
        raise RequestError(f"expected the {n} items of {corpus}, got {file.n} without ids; give ids or all items")
    if file.ids is None or file.ids.equals(items):
        return np.arange(n, dtype=np.int32)
    if len(file.ids) != file.n:
        raise RequestError(f"expected {file.n} ids, one per item, got {len(file.ids)}")
    found = pc.index_in(file.ids, items).fill_null(-1).to_numpy()
    times = np.bincount(found[found >= 0], minlength=n)
    unknown, missing = np.flatnonzero(found < 0), np.flatnonzero(times == 0)
    repeated = np.flatnonzero(times[found] * (found >= 0) > 1)
    faults = []
    if len(repeated):
        faults.append(f"id {file.ids[int(repeated[0])].as_py()!r} comes more than once")
    if len(unknown):
        first = file.ids[int(unknown[0])].as_py()
        faults.append(f"{len(unknown)} ids are not in {corpus}, first {first!r} at row {unknown[0]}")
    if len(missing):
        first = items[int(missing[0])].as_py()
        faults.append(f"{len(missing)} of {n} items of {corpus} are not in the file, first {first!r}")
    if faults:
        raise RequestError(faults)
    positions: NDArray[np.int32] = found.astype(np.int32)
    return positions


def blocks_of(
    file: EmbeddingParts, positions: NDArray[np.int32], items: pa.Array, spec: EncoderSpec
) -> Iterator[tuple[Block, NDArray[np.floating]]]:
    """Blocks of the items in the order of the file, each with its unit vectors in the precision of the file."""
    start = 0
    for part in file.read(_ROWS[spec.vectors]):
        ords = positions[start : start + len(part)]
        start += len(part)
        embeddings, unit = _embeddings(part)
        block = Block(
            ords=ords,
            ids=texts(items.take(ords)),
            embeddings=embeddings,
            input_shas=[""] * len(part),
            batch_id=f"import-{spec.fingerprint}",
        )
        yield block, unit


def _embeddings(part: EmbeddingFile) -> tuple[Embeddings, NDArray[np.floating]]:
    """The items as unit vectors; vectors of unit norm stay as they are, to the last bit."""
    n, values = len(part), np.asarray(part.values)
    counts = np.ones(n, np.int64) if part.offsets is None else np.diff(part.offsets)
    norms = np.sqrt(np.square(values, dtype=np.float64).sum(axis=1))
    scale = np.where(np.abs(norms - 1.0) <= UNIT_TOLERANCE, 1.0, norms)
    scale = np.where(np.isfinite(scale) & (scale > 0), scale, 1.0)  # check_block names the row and the id
    unit = values
    if not (scale == 1.0).all():
        unit = (values / scale[:, None]).astype(np.float64 if values.dtype == np.float64 else np.float32)
    kept = part.norm
    if kept is None:
        owners = np.repeat(np.arange(n), counts)
        kept = (np.bincount(owners, norms, n) / np.maximum(counts, 1)).astype(np.float32)
    embeddings = Embeddings(
        values=np.asarray(unit, dtype=np.float32),
        norms=kept,
        n_tokens=np.zeros(n, np.int32) if part.n_tokens is None else part.n_tokens,
        truncated=np.zeros(n, bool) if part.truncated is None else part.truncated,
        offsets=part.offsets,
    )
    return embeddings, unit
