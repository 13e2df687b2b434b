"""Files larger than memory are imported part by part, and stored in one commit of files that need no compaction."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from capim.store import RequestError, WorkError, connection
from capim.store.sets import embedding_files
from capim.store.sets.embedding_files import open_embedding_file
from capim.store.tables import skipping_bad_rows
from tests.benchmarks.made import by_number, dense_blocks, opened
from tests.imported import import_embeddings
from tests.store.toy import make_corpus


@pytest.mark.parametrize("many", [False, True])
def test_a_parquet_file_in_any_order_is_read_in_parts_and_is_the_same_set_as_an_npz(store, tmp_path, monkeypatch, many):
    store.write_corpus(make_corpus(20))
    rng = np.random.default_rng(0)
    order, counts = rng.permutation(20), rng.integers(1, 4, 20) if many else np.ones(20, int)
    ids = [f"i{position:05d}" for position in order]
    offsets = np.concatenate([[0], np.cumsum(counts)])
    values = rng.standard_normal((offsets[-1], 8)).astype(np.float16)
    arrays: dict[str, Any] = {"embeddings": values, "ids": ids} | ({"offsets": offsets} if many else {})
    np.savez(tmp_path / "a.npz", **arrays)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), 8)
    column = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), vectors) if many else vectors
    pq.write_table(pa.table({"id": ids, "embedding": column}), tmp_path / "a.parquet", row_group_size=7)
    assert max(map(len, open_embedding_file(tmp_path / "a.parquet").read(4))) == 4
    with monkeypatch.context() as small:
        small.setattr(embedding_files, "ROWS_AT_ONCE", {"single": 4, "multi": 4})
        (streamed,) = import_embeddings(store, encoder="parquet", corpus="toy", images=tmp_path / "a.parquet")
    (whole,) = import_embeddings(store, encoder="npz", corpus="toy", images=tmp_path / "a.npz")
    assert (streamed.digest, streamed.n_vectors) == (whole.digest, len(values))
    assert streamed.version == 2  # created, and filled in one commit


def test_what_was_read_of_a_parquet_file_does_not_stay_in_memory(tmp_path):
    path = tmp_path / "images.parquet"
    values = pa.array(np.random.default_rng(0).standard_normal(16 * 4096 * 64, np.float32))
    table = pa.table({"embedding": pa.FixedSizeListArray.from_arrays(values, 64)})
    pq.write_table(table, path, row_group_size=4096, compression="none")
    del values, table
    before = pa.total_allocated_bytes()
    held = [pa.total_allocated_bytes() - before for _ in open_embedding_file(path).read(1024)]
    assert len(held) == 64
    assert max(held) < path.stat().st_size / 4


def test_the_files_of_a_large_write_are_as_large_as_compaction_would_make_them(tmp_path, monkeypatch):
    monkeypatch.setattr(connection, "FILE_BYTES", 4 << 20)
    n = 80_000
    store, spec, key = opened(tmp_path / "store", by_number(n), 128)
    store.writer(key).put_all(spec, dense_blocks(n, 128, 4096))
    before = store.connection.find(key.table)
    assert before is not None
    assert len(before.get_fragments()) > 2
    assert store.seal(key).version == before.version
    assert len(store.missing(key)) == 0


def test_a_large_write_that_fails_leaves_no_row_and_no_file(tmp_path):
    store, spec, key = opened(tmp_path / "store", by_number(2000), 8)

    def blocks():
        yield next(iter(dense_blocks(2000, 8, 1000)))
        raise RequestError("vectors.npy cannot be read")

    with pytest.raises(WorkError, match=r"vectors.npy cannot be read"):
        store.writer(key).put_all(spec, blocks())
    assert len(store.missing(key)) == 2000
    assert not list((tmp_path / "store" / f"{key.table}.lance" / "data").iterdir())


@pytest.mark.parametrize("shape", [(24, 8), (24, 3, 8)])
def test_rows_that_are_left_out_may_fill_a_whole_part(store, tmp_path, monkeypatch, shape):
    store.write_corpus(make_corpus(20))
    ids = [*(f"strange{n}" for n in range(4)), *(f"i{position:05d}" for position in range(20))]
    np.savez(tmp_path / "a.npz", embeddings=np.random.default_rng(0).standard_normal(shape), ids=ids)
    monkeypatch.setattr(embedding_files, "ROWS_AT_ONCE", {"single": 4, "multi": 4})
    with skipping_bad_rows(True):
        (sealed,) = import_embeddings(store, encoder="e", corpus="toy", images=tmp_path / "a.npz")
    assert sealed.n_rows == 20
