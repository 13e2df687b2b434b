"""Files of embeddings as blocks for the store: in corpus order, with unit norm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from store.errors import RequestError
from store.exchange.embedding_files import EmbeddingFile
from store.ragged import Ragged
from store.sets.checks import UNIT_TOLERANCE, Block
from store.types import Embeddings, EncoderSpec

_ROWS = {"single": 8192, "multi": 64}


def order_of(contents: EmbeddingFile, ids: list[str], corpus: str) -> NDArray[np.int64]:
    """For each position of the corpus the item of the file, shape ``(n,)``.

    Raises:
        RequestError: Ids are unknown, missing or repeated, or a file without ids has another number of items.
    """
    if contents.ids is None:
        if len(contents) != len(ids):
            raise RequestError(
                f"expected the {len(ids)} items of {corpus}, got {len(contents)} without ids; give ids or all items"
            )
        return np.arange(len(ids))
    row_of = {identifier: row for row, identifier in enumerate(contents.ids)}
    faults = []
    repeated = [identifier for identifier, count in Counter(contents.ids).items() if count > 1]
    if repeated:
        faults.append(f"id {repeated[0]!r} comes more than once")
    expected = set(ids)
    unknown = [row for row, identifier in enumerate(contents.ids) if identifier not in expected]
    if unknown:
        faults.append(f"{len(unknown)} ids are not in {corpus}, first {contents.ids[unknown[0]]!r} at row {unknown[0]}")
    missing = [identifier for identifier in ids if identifier not in row_of]
    if missing:
        faults.append(f"{len(missing)} of {len(ids)} items of {corpus} are not in the file, first {missing[0]!r}")
    if faults:
        raise RequestError(faults)
    return np.array([row_of[identifier] for identifier in ids], dtype=np.int64)


def blocks_of(
    contents: EmbeddingFile, order: NDArray[np.int64], ids: list[str], spec: EncoderSpec
) -> Iterator[tuple[Block, NDArray[np.floating]]]:
    """Blocks of the items in corpus order, each with its unit vectors in the precision of the file."""
    window = _ROWS[spec.vectors]
    for start in range(0, len(order), window):
        items = order[start : start + window]
        embeddings, unit = _embeddings(contents, items)
        block = Block(
            ords=np.arange(start, start + len(items), dtype=np.int32),
            ids=ids[start : start + len(items)],
            embeddings=embeddings,
            input_shas=[""] * len(items),
            batch_id=f"import-{spec.fingerprint}",
        )
        yield block, unit


def _embeddings(contents: EmbeddingFile, items: NDArray[np.int64]) -> tuple[Embeddings, NDArray[np.floating]]:
    """The chosen items as unit vectors; vectors of unit norm stay as they are, to the last bit."""
    counts = np.ones(len(contents), np.int64) if contents.offsets is None else np.diff(contents.offsets)
    chosen = Ragged.from_counts(contents.values, counts).take(items)
    values = np.asarray(chosen.values)
    norms = np.sqrt(np.square(values, dtype=np.float64).sum(axis=1))
    scale = np.where(np.abs(norms - 1.0) <= UNIT_TOLERANCE, 1.0, norms)
    scale = np.where(np.isfinite(scale) & (scale > 0), scale, 1.0)  # check_block names the row and the id
    unit = values
    if not (scale == 1.0).all():
        unit = (values / scale[:, None]).astype(np.float64 if values.dtype == np.float64 else np.float32)
    if contents.norm is not None:
        kept = contents.norm[items]
    else:
        owners = np.repeat(np.arange(len(items)), chosen.counts)
        kept = (np.bincount(owners, norms, len(items)) / np.maximum(chosen.counts, 1)).astype(np.float32)
    embeddings = Embeddings(
        values=np.asarray(unit, dtype=np.float32),
        norms=kept,
        n_tokens=np.zeros(len(items), np.int32) if contents.n_tokens is None else contents.n_tokens[items],
        truncated=np.zeros(len(items), bool) if contents.truncated is None else contents.truncated[items],
        offsets=None if contents.offsets is None else chosen.offsets,
    )
    return embeddings, unit
