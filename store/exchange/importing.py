"""Importing embeddings that were made elsewhere; everything is checked before the first row is written."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from store.embedding_store import EmbeddingStore
from store.errors import RequestError
from store.exchange.embedding_files import EmbeddingFile, read_embedding_file
from store.keys import is_fingerprint, set_key
from store.ragged import Ragged
from store.schema import texts
from store.sets.checks import UNIT_TOLERANCE, Block, check_block, check_key
from store.sets.seal import SealedSet
from store.types import Embeddings, EncoderSpec, Modality, Storage

_ROWS = {"single": 8192, "multi": 64}


def import_embeddings(
    store: EmbeddingStore,
    *,
    encoder: str,
    corpus: str,
    images: Path | None = None,
    captions: Path | None = None,
    storage: Storage = "float16",
    spec: EncoderSpec | None = None,
) -> list[SealedSet]:
    """Writes and seals the sets in files; formats as in ``store.exchange.embedding_files``.

    Vectors whose norm is not 1 are normalised, and the norm is kept. With ids, every item of the corpus must occur
    once, in any order; without ids, the rows are the items of the corpus in order.

    Args:
        store: Holds the corpus.
        encoder: Name to register the vectors under.
        corpus: Name or fingerprint.
        images: File with the vectors of the images.
        captions: File with the vectors of the captions. Both files belong to one encoder, whose fingerprint depends on
            their contents.
        storage: ``float16`` or ``float32``.
        spec: The encoder that made them, if it is in the catalog; otherwise one is made from the contents of the files.

    Returns:
        The sealed sets, images first.

    Raises:
        RequestError: Files, ids or values are wrong; all faults are listed, and nothing was written.
    """
    given: dict[Modality, Path | None] = {"image": images, "caption": captions}
    files = {modality: path for modality, path in given.items() if path is not None}
    if not files:
        raise RequestError("give a file to import: --images, --captions or both")
    contents = {modality: read_embedding_file(path) for modality, path in files.items()}
    spec = spec or _spec_of(encoder, files, contents, storage)
    stored = store.corpus(corpus)
    keys = {modality: set_key(spec, stored.name, stored.fingerprint, modality) for modality in contents}
    ids = {modality: texts(store.item_index(key).ids) for modality, key in keys.items()}
    orders: dict[Modality, NDArray[np.int64]] = {}
    faults: list[str] = []
    for modality, key in keys.items():
        try:
            orders[modality] = _order(contents[modality], ids[modality], f"corpus {stored.name!r}")
            check_key(key, spec)
            for block in _blocks(contents[modality], orders[modality], ids[modality], spec):
                check_block(key, spec, block, store.item_index(key))
        except RequestError as fault:
            faults += [f"{files[modality]}: {line}" for line in fault.faults]
    if faults:
        raise RequestError(faults)
    store.write_encoder(spec)
    sealed = []
    for modality, key in keys.items():
        for block in _blocks(contents[modality], orders[modality], ids[modality], spec):
            store.put(key, spec, block)
        sealed.append(store.seal(key, n_items=len(ids[modality])))
    return sealed


def _spec_of(
    encoder: str, files: dict[Modality, Path], contents: dict[Modality, EmbeddingFile], storage: Storage
) -> EncoderSpec:
    """The encoder of these files; its revision is the digest of their contents."""
    shapes = {modality: (file.values.shape[1], file.offsets is not None) for modality, file in contents.items()}
    if len(set(shapes.values())) > 1:
        raise RequestError(
            "; ".join(
                f"{files[modality]} has {'several vectors' if multi else 'one vector'} of {dim} components per item"
                for modality, (dim, multi) in shapes.items()
            )
            + ": images and captions must have embeddings of one encoder"
        )
    if is_fingerprint(encoder):
        raise RequestError(f"encoder name {encoder!r} looks like a fingerprint; choose another")
    dim, multi = next(iter(shapes.values()))
    digest = hashlib.sha256()
    for modality, path in files.items():
        digest.update(modality.encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    try:
        return EncoderSpec(
            name=encoder,
            adapter="imported",
            checkpoint="imported",
            revision=f"sha256-{digest.hexdigest()}",
            dim=dim,
            vectors="multi" if multi else "single",
            storage=storage,
        )
    except ValueError as fault:
        raise RequestError(str(fault)) from fault


def _order(contents: EmbeddingFile, ids: list[str], corpus: str) -> NDArray[np.int64]:
    """For each position of the corpus the item of the file, shape ``(n,)``."""
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


def _blocks(contents: EmbeddingFile, order: NDArray[np.int64], ids: list[str], spec: EncoderSpec) -> Iterator[Block]:
    window = _ROWS[spec.vectors]
    for start in range(0, len(order), window):
        items = order[start : start + window]
        ords = np.arange(start, start + len(items), dtype=np.int32)
        yield Block(
            ords=ords,
            ids=ids[start : start + len(items)],
            embeddings=_embeddings(contents, items),
            input_shas=[""] * len(items),
            batch_id=f"import-{spec.fingerprint}",
        )


def _embeddings(contents: EmbeddingFile, items: NDArray[np.int64]) -> Embeddings:
    """The chosen items as unit vectors; vectors of unit norm stay as they are, to the last bit."""
    counts = np.ones(len(contents), np.int64) if contents.offsets is None else np.diff(contents.offsets)
    chosen = Ragged.from_counts(contents.values, counts).take(items)
    values = np.asarray(chosen.values, dtype=np.float32)
    norms = np.sqrt(np.einsum("ij,ij->i", values, values, dtype=np.float64))
    scale = np.where(np.abs(norms - 1.0) <= UNIT_TOLERANCE, 1.0, norms)
    scale = np.where(np.isfinite(scale) & (scale > 0), scale, 1.0)  # check_block names the row and the id
    unit = values if (scale == 1.0).all() else (values / scale[:, None]).astype(np.float32)
    if contents.norm is not None:
        kept = contents.norm[items]
    else:
        owners = np.repeat(np.arange(len(items)), chosen.counts)
        kept = (np.bincount(owners, norms, len(items)) / np.maximum(chosen.counts, 1)).astype(np.float32)
    return Embeddings(
        values=unit,
        norms=kept,
        n_tokens=np.zeros(len(items), np.int32) if contents.n_tokens is None else contents.n_tokens[items],
        truncated=np.zeros(len(items), bool) if contents.truncated is None else contents.truncated[items],
        offsets=None if contents.offsets is None else chosen.offsets,
    )
