"""Embeddings and rows that were made elsewhere, into a store: checked whole before the first of them is written."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from store.embedding_store import EmbeddingStore
from store.errors import RequestError
from store.exchange.embedding_files import EmbeddingFile, read_embedding_file
from store.exchange.row_files import read_row_file
from store.keys import is_fingerprint
from store.sets.checks import UNIT_TOLERANCE, Block
from store.sets.seal import SealedSet
from store.types import Embeddings, EncoderSpec, Modality, SetKey

_ROWS = {"single": 8192, "multi": 64}


def import_embeddings(
    store: EmbeddingStore,
    *,
    encoder: str,
    corpus: str,
    images: Path | None = None,
    captions: Path | None = None,
    storage: str = "float16",
    spec: EncoderSpec | None = None,
) -> list[SealedSet]:
    """Writes and seals the sets that files hold; formats as in ``store.exchange.embedding_files``.

    Vectors whose norm is not 1 are normalised, and the norm is kept. With ids every item of the corpus must be there
    once, in any order; without ids the rows are the corpus' items in order.

    Args:
        store: Where; holds the corpus.
        encoder: Name to register the vectors under.
        corpus: Name or fingerprint.
        images: File with the images' vectors.
        captions: File with the captions' vectors. Given together the two make one encoder; another content of any of
            them makes another fingerprint.
        storage: ``float16`` or ``float32``.
        spec: The encoder that made them, if it is one of the catalog; otherwise one is made from the files' contents.

    Returns:
        What was sealed, images first.

    Raises:
        RequestError: Files, ids or values are wrong; all faults are listed, nothing was written.
    """
    files: dict[Modality, Path] = {}
    if images is not None:
        files["image"] = images
    if captions is not None:
        files["caption"] = captions
    if not files:
        raise RequestError("say what to import: a file with the images' embeddings, the captions', or both")
    if storage not in ("float16", "float32"):
        raise RequestError(f"storage must be float16 or float32, got {storage!r}")
    contents = {modality: read_embedding_file(path) for modality, path in files.items()}
    spec = spec or _spec_of(encoder, files, contents, storage)
    stored = store.corpus(corpus)
    keys = {
        modality: SetKey(
            corpus=stored.name,
            corpus_fingerprint=stored.fingerprint,
            modality=modality,
            encoder=spec.name,
            encoder_fingerprint=spec.fingerprint,
            vectors=spec.vectors,
        )
        for modality in contents
    }
    orders: dict[Modality, NDArray[np.int64]] = {}
    faults: list[str] = []
    for modality, key in keys.items():
        ids = (stored.images if modality == "image" else stored.captions).column("id").to_pylist()
        try:
            orders[modality] = _order(files[modality], contents[modality], ids, f"corpus {stored.name!r}")
            for block in _blocks(contents[modality], orders[modality], ids, spec):
                store.check(key, spec, block)
        except RequestError as fault:
            faults += [f"{files[modality]}: {line}" for line in fault.faults]
    if faults:
        raise RequestError(faults)
    store.write_encoder(spec)
    sealed = []
    for modality, key in keys.items():
        ids = (stored.images if modality == "image" else stored.captions).column("id").to_pylist()
        for block in _blocks(contents[modality], orders[modality], ids, spec):
            store.put(key, spec, block)
        sealed.append(store.seal(key, n_items=len(ids)))
    return sealed


def import_rows(store: EmbeddingStore, table: str, path: Path) -> int:
    """Writes rows of an analysis table from .parquet, .csv or .json as ``export_rows`` wrote them; known keys stay.

    Raises:
        RequestError: The file or a column is wrong; nothing was written.
    """
    return store.write_rows(table, read_row_file(path, table))


def _spec_of(
    encoder: str, files: dict[Modality, Path], contents: dict[Modality, EmbeddingFile], storage: str
) -> EncoderSpec:
    """An encoder that stands for these files: its revision is the digest of what is in them."""
    shapes = {modality: (found.values.shape[1], found.offsets is not None) for modality, found in contents.items()}
    if len(set(shapes.values())) > 1:
        raise RequestError(
            "; ".join(
                f"{files[modality]} holds {'many vectors' if multi else 'one vector'} per item of {dim} components"
                for modality, (dim, multi) in shapes.items()
            )
            + ": images and captions must be of one encoder"
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
            storage="float16" if storage == "float16" else "float32",
        )
    except ValueError as fault:
        raise RequestError(str(fault)) from fault


def _order(path: Path, contents: EmbeddingFile, ids: list[str], corpus: str) -> NDArray[np.int64]:
    """For each position of the corpus the item of the file, shape ``(n,)``."""
    if contents.ids is None:
        if len(contents) != len(ids):
            raise RequestError(
                f"{len(contents)} items without ids, {corpus} has {len(ids)}: give ids, or exactly its items"
            )
        return np.arange(len(ids))
    place = {identifier: position for position, identifier in enumerate(contents.ids)}
    faults = []
    if len(place) != len(contents.ids):
        seen: set[str] = set()
        twice = next(one for one in contents.ids if one in seen or seen.add(one))  # type: ignore[func-returns-value]
        faults.append(f"id {twice!r} comes more than once")
    known = set(ids)
    unknown = [position for position, identifier in enumerate(contents.ids) if identifier not in known]
    if unknown:
        faults.append(f"{len(unknown)} ids are not in {corpus}, first {contents.ids[unknown[0]]!r} at row {unknown[0]}")
    missing = [identifier for identifier in ids if identifier not in place]
    if missing:
        faults.append(f"{len(missing)} of {len(ids)} items of {corpus} are not in the file, first {missing[0]!r}")
    if faults:
        raise RequestError(faults)
    return np.array([place[identifier] for identifier in ids], dtype=np.int64)


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
    """The chosen items as unit vectors; vectors that are unit already stay as they are, to the last bit."""
    if contents.offsets is None:
        offsets = None
        values = np.asarray(contents.values[items], dtype=np.float32)
    else:
        counts = np.diff(contents.offsets)[items]
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        rows = np.repeat(contents.offsets[:-1][items] - offsets[:-1], counts) + np.arange(offsets[-1])
        values = np.asarray(contents.values[rows], dtype=np.float32)
    norms = np.sqrt(np.einsum("ij,ij->i", values, values, dtype=np.float64))
    scale = np.where(np.abs(norms - 1.0) <= UNIT_TOLERANCE, 1.0, norms)
    scale = np.where(np.isfinite(scale) & (scale > 0), scale, 1.0)  # left for the check, which names row and id
    unit = values if (scale == 1.0).all() else (values / scale[:, None]).astype(np.float32)
    if contents.norms is not None:
        kept = contents.norms[items]
    elif offsets is None:
        kept = norms.astype(np.float32)
    else:
        owners = np.repeat(np.arange(len(items)), np.diff(offsets))
        kept = (np.bincount(owners, norms, len(items)) / np.maximum(np.diff(offsets), 1)).astype(np.float32)
    return Embeddings(
        values=unit,
        norms=kept,
        n_tokens=np.zeros(len(items), np.int32) if contents.n_tokens is None else contents.n_tokens[items],
        truncated=np.zeros(len(items), bool) if contents.truncated is None else contents.truncated[items],
        offsets=offsets,
    )
