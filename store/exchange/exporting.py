"""Embeddings and rows of a store, written to files for other programs."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from capim.store.embedding_store import EmbeddingStore
from capim.store.errors import RequestError, unknown
from capim.store.exchange.embedding_files import COLUMN_TYPES, SUFFIXES, EmbeddingFile, ids_beside
from capim.store.files import replacing
from capim.store.safe_text import csv_text
from capim.store.schema import texts
from capim.store.sets.decoding import StoredRows, joined
from capim.store.types import Modality

_WINDOW = {"single": 8192, "multi": 256}


def export_embeddings(
    store: EmbeddingStore,
    path: Path,
    *,
    encoder: str,
    corpus: str,
    modality: Modality,
    language: str | None = None,
    translator: str | None = None,
) -> int:
    """Writes a sealed set as it is stored (float16 or float32, unit norm), in the format of the file's suffix.

    Formats as in ``store.exchange.embedding_files``; importing the file gives the same set, bit for bit. Parquet is
    written in bounded memory, the other formats hold the set in memory.

    Returns:
        Items written.

    Raises:
        RequestError: There is no such set, or the format cannot hold it.
        WorkError: A row was changed on disk, or the file cannot be written; no file is left then.
    """
    key = store.key(encoder=encoder, corpus=corpus, modality=modality)
    ids, multi = store.item_index(key).ids, key.vectors == "multi"
    blocks = store.stored_blocks(key, language=language, translator=translator, window=_WINDOW[key.vectors])
    if path.suffix == ".parquet":
        return _write_parquet(path, blocks, ids, multi)
    rows = joined(list(blocks))
    contents = EmbeddingFile(
        values=rows.vectors.values,
        offsets=rows.vectors.offsets if multi else None,
        norm=rows.norms,
        n_tokens=rows.n_tokens,
        truncated=rows.truncated,
    )
    _write_file(path, contents, texts(ids.take(rows.ords)))
    return len(contents)


def _write_parquet(path: Path, blocks: Iterator[StoredRows], ids: pa.Array, multi: bool) -> int:
    import pyarrow.parquet as pq

    written, writer = 0, None
    with replacing(path) as temporary:
        try:
            for rows in blocks:
                values, offsets = rows.vectors.values, rows.vectors.offsets
                vectors = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
                columns: dict[str, pa.Array] = {
                    "id": ids.take(rows.ords),
                    "ord": pa.array(rows.ords),
                    "embedding": pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), vectors) if multi else vectors,
                    "norm": pa.array(rows.norms),
                    "n_tokens": pa.array(rows.n_tokens),
                    "truncated": pa.array(rows.truncated),
                }
                table = pa.table(columns)
                writer = writer or pq.ParquetWriter(temporary, table.schema, compression="none")
                writer.write_table(table)
                written += len(table)
        finally:
            if writer is not None:
                writer.close()
    return written


def _write_file(path: Path, contents: EmbeddingFile, ids: list[str]) -> None:
    """Writes a file in the format of its suffix, complete or not at all; but for Parquet."""
    if path.suffix not in SUFFIXES:
        raise RequestError(unknown(f"{path}: suffix", path.suffix, SUFFIXES))
    if contents.offsets is not None and path.suffix in (".npy", ".csv"):
        raise RequestError(f"{path}: {path.suffix} holds one vector per item; use .npz, .safetensors or .parquet")
    with replacing(path) as temporary:
        if path.suffix in (".npy", ".npz"):
            with temporary.open("wb") as file:
                if path.suffix == ".npy":
                    np.save(file, contents.values)
                else:
                    arrays: dict[str, Any] = {**_named(contents), "ids": np.array(ids)}
                    np.savez(file, **arrays)
        elif path.suffix == ".safetensors":
            from safetensors.numpy import save_file

            save_file(_named(contents), temporary, metadata={"ids": json.dumps(ids)})
        else:
            _write_csv(temporary, contents, ids)
    if path.suffix == ".npy":
        with replacing(ids_beside(path)) as temporary:
            temporary.write_text("".join(f"{identifier}\n" for identifier in ids), encoding="utf-8")


def _named(contents: EmbeddingFile) -> dict[str, NDArray[Any]]:
    columns = {name: getattr(contents, name) for name in COLUMN_TYPES if getattr(contents, name) is not None}
    return {"embeddings": np.ascontiguousarray(contents.values), **columns}


def _write_csv(path: Path, contents: EmbeddingFile, ids: list[str]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", *(f"c{component}" for component in range(contents.values.shape[1]))])
        # The shortest decimal number that is read, as float32, as the same stored number.
        rows = contents.values.astype(np.float32)
        writer.writerows([csv_text(identifier), *map(str, row)] for identifier, row in zip(ids, rows, strict=True))
