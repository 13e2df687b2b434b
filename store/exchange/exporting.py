"""Embeddings and rows of a store, written to files for other programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from store.embedding_store import EmbeddingStore
from store.exchange.embedding_files import EmbeddingFile, write_embedding_file
from store.exchange.row_files import write_row_file
from store.files import replacing
from store.schema import texts
from store.sets.decoding import StoredRows, joined
from store.types import Modality

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
        ids=texts(ids.take(rows.ords)),
        norm=rows.norms,
        n_tokens=rows.n_tokens,
        truncated=rows.truncated,
    )
    write_embedding_file(path, contents)
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


def export_rows(store: EmbeddingStore, table: str, path: Path, **equals: str | Sequence[str]) -> int:
    """Writes the rows of ``EmbeddingStore.rows`` to a .parquet, .csv or .json file; returns their number."""
    rows = store.rows(table, **equals)
    write_row_file(path, rows)
    return int(rows.num_rows)
