"""What a store holds, into files that other tools read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from store.embedding_store import EmbeddingStore
from store.exchange.embedding_files import EmbeddingFile, replacing, write_embedding_file
from store.exchange.row_files import write_row_file
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
    """Writes a sealed set as it is stored (float16 or float32, unit norm), by the file's suffix.

    Formats as in ``store.exchange.embedding_files``; importing the file again gives the same set, bit for bit.
    Parquet is written in bounded memory, the others hold the set once.

    Returns:
        Items written.

    Raises:
        RequestError: There is no such set, or the format cannot hold it.
        WorkError: A row was changed on disk, or the file cannot be written; there is no half file then.
    """
    key = store.key(encoder=encoder, corpus=corpus, modality=modality)
    ids = store.items(key.corpus_fingerprint, modality).column("id").combine_chunks()
    blocks = store.stored_blocks(
        encoder=encoder,
        corpus=corpus,
        modality=modality,
        language=language,
        translator=translator,
        window=_WINDOW[key.vectors],
    )
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        written, writer = 0, None
        with replacing(path) as temporary:
            try:
                for rows in blocks:
                    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.values.reshape(-1)), rows.values.shape[1])
                    if key.vectors == "multi":
                        vectors = pa.ListArray.from_arrays(pa.array(rows.offsets.astype(np.int32)), vectors)
                    columns = {
                        "id": ids.take(pa.array(rows.ords)),
                        "ord": pa.array(rows.ords),
                        "embedding": vectors,
                        "norm": pa.array(rows.norms),
                        "n_tokens": pa.array(rows.n_tokens),
                        "truncated": pa.array(rows.truncated),
                    }
                    table = pa.table(columns)
                    writer = writer or pq.ParquetWriter(temporary, table.schema, compression="none")
                    writer.write_table(table)
                    written += len(rows.ords)
            finally:
                if writer is not None:
                    writer.close()
        return written
    every = list(blocks)
    ords = np.concatenate([rows.ords for rows in every])
    counts = np.concatenate([np.diff(rows.offsets) for rows in every])
    write_embedding_file(
        path,
        EmbeddingFile(
            values=np.concatenate([rows.values for rows in every]),
            offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64) if key.vectors == "multi" else None,
            ids=ids.take(pa.array(ords)).to_pylist(),
            norms=np.concatenate([rows.norms for rows in every]),
            n_tokens=np.concatenate([rows.n_tokens for rows in every]),
            truncated=np.concatenate([rows.truncated for rows in every]),
        ),
    )
    return len(ords)


def export_rows(store: EmbeddingStore, table: str, path: Path, **equals: str | Sequence[str]) -> int:
    """Writes rows of an analysis table, filtered as by ``EmbeddingStore.rows``, to .parquet, .csv or .json.

    Returns:
        Rows written.
    """
    rows = store.rows(table, **equals)
    write_row_file(path, rows)
    return int(rows.num_rows)
