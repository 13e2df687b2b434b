"""Exported embeddings are imported bit for bit; a wrong file is named before anything is written."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from capim.store import EmbeddingStore, RequestError
from capim.store.files import write_row_file
from capim.store.schema import texts
from capim.store.sets.columns_read import told
from capim.store.sets.embedding_files import export_embeddings
from tests.imported import import_embeddings
from tests.store.toy import fill, make_corpus, make_spec


@pytest.fixture
def other(tmp_path):
    """A second store with the same corpus and nothing else."""
    store = EmbeddingStore.open(tmp_path / "other", create=True)
    store.write_corpus(make_corpus(20))
    return store


@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".parquet"])
@pytest.mark.parametrize("vectors", ["single", "multi"])
def test_a_set_goes_out_and_comes_in_bit_for_bit(store, other, tmp_path, suffix, vectors):
    key = fill(store, make_corpus(20), make_spec(vectors=vectors))
    file = tmp_path / f"images{suffix}"
    assert export_embeddings(store, file, encoder="enc", corpus="toy", modality="image") == 20
    (sealed,) = import_embeddings(other, encoder="enc-again", corpus="toy", images=file)
    assert sealed.digest == store.sealed(key).digest
    assert other.encoder("enc-again").revision == "unversioned"


@pytest.mark.parametrize(
    ("suffix", "storage"), [(".npy", "float32"), (".csv", "float32"), (".npy", "float16"), (".csv", "float16")]
)
def test_plain_formats_keep_the_vectors_and_the_ids(store, other, tmp_path, suffix, storage):
    fill(store, make_corpus(20), make_spec(storage=storage))
    file = tmp_path / f"images{suffix}"
    export_embeddings(store, file, encoder="enc", corpus="toy", modality="image")
    import_embeddings(other, encoder="enc-again", corpus="toy", images=file)
    there = other.vectors(encoder="enc-again", corpus="toy", modality="image")
    here = store.vectors(encoder="enc", corpus="toy", modality="image")
    assert there.ids == here.ids
    np.testing.assert_array_equal(there.matrix, here.matrix)
    assert not list(tmp_path.glob(".*.part"))


def bad(values, **more):
    def write(path):
        np.savez(path, embeddings=values, **more)

    return write


GOOD = np.eye(20, 8, dtype=np.float32) + 1
IDS = np.array([f"i{position:05d}" for position in range(20)])


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (bad(GOOD[:19]), r"images\.npz: 19 rows without ids for 20 images: give"),
        (bad(GOOD, ids=IDS[:19]), "expected 20 ids, one per item, got 19"),
        (bad(GOOD[:19], ids=IDS[:19]), "1 of 20 images of corpus 'toy' are not in the file, first 'i00019'"),
        (bad(GOOD, ids=np.array([*IDS[:19], "nope"])), "`ids`: 1 of 20 ids are not among .* first 'nope' in row 20"),
        (bad(GOOD, ids=np.array([*IDS[:19], "i00003"])), "more than one row, first 'i00003' in rows 4 and 20"),
        (bad(GOOD, ids=np.array([*IDS[:19], "i00000"])), r"first 'i00000' in rows 1 and 20"),
        (bad(np.where(np.arange(20)[:, None] == 7, np.nan, GOOD)), r"'i00007': NaN"),
        (bad(np.where(np.arange(20)[:, None] == 7, 0, GOOD)), r"'i00007': all components are zero"),
        (bad(np.ones((20, 8), int)), "expected floating point numbers"),
        (bad(np.ones(20, np.float32)), r"expected floating point .* of shape \(20,\)"),
        (bad(GOOD, offsets=np.arange(20)), "offsets must increase from 0 to 20"),
        (lambda path: path.write_bytes(b"nonsense"), r"cannot be read as \.npz"),
        (lambda path: None, "no such file"),
        (bad(GOOD, ids=IDS.astype(object)), r"'ids.npy' holds Python objects, .*; save ids as text, with ids.astype"),
        (lambda path: np.savez(path, a=GOOD, b=GOOD), r"named 'embeddings', got a \(20 x 8\), b \(20 x 8\)"),
    ],
)
def test_a_wrong_file_is_named_and_nothing_is_kept(other, tmp_path, write, message):
    file = tmp_path / "images.npz"
    write(file)
    with pytest.raises(RequestError, match=message):
        import_embeddings(other, encoder="mine", corpus="toy", images=file)
    assert other.encoders() == []
    assert other.sealed_sets() == []
    assert not [name for name in other.connection.names() if name.startswith("single")]


ORDER = np.random.default_rng(5).permutation(20)
UNIT = (GOOD + np.arange(20)[:, None] / 99) / np.linalg.norm(GOOD + np.arange(20)[:, None] / 99, axis=1, keepdims=True)


@pytest.mark.parametrize("side", ["image", "caption"])
def test_vectors_whose_side_is_not_said_are_not_of_the_other_one_because_an_id_is_wrong(store, tmp_path, side):
    whole = make_corpus(20)
    corpus = replace(whole, captions=whole.captions.take(np.arange(0, 40, 2)))  # as many captions as images
    store.write_corpus(corpus)
    ids = corpus.items(side)["id"].to_pylist()
    np.savez(tmp_path / "x.npz", vectors=UNIT[ORDER], sku=np.array(["typo", *(ids[at] for at in ORDER[1:])]))
    with pytest.raises(RequestError, match=r"fits neither images nor captions .*`sku`: 1 of 20 ids are not among"):
        import_embeddings(store, encoder="m", corpus="toy", vectors=tmp_path / "x.npz")


@pytest.mark.parametrize(
    ("side", "other", "name"), [("caption", "image", "image_id"), ("image", "caption", "caption_id")]
)
@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_rows_with_ids_of_what_they_belong_to_are_not_taken_by_position(store, tmp_path, side, other, name, suffix):
    """Captions with the ids of their images were taken in the order of the corpus."""
    whole = make_corpus(20)
    corpus = replace(whole, captions=whole.captions.take(np.arange(0, 40, 2)))
    store.write_corpus(corpus)
    ids, file = corpus.items(other)["id"].take(ORDER).to_pylist(), tmp_path / f"x{suffix}"
    if suffix == ".npz":
        arrays: dict[str, Any] = {"vectors": UNIT[ORDER], name: ids}
        np.savez(file, **arrays)
    else:
        pd.DataFrame({name: ids, "vector": [*UNIT[ORDER]]}).to_parquet(file)
    import_embeddings(store, encoder="m", corpus="toy", **{f"{side}s": file})
    np.testing.assert_allclose(store.vectors(encoder="m", corpus="toy", modality=side).matrix, UNIT, atol=1e-6)
    store.write_corpus(whole)
    np.savez(tmp_path / "y.npz", vectors=np.repeat(UNIT, 2, 0), image_id=np.repeat(IDS[::-1], 2))
    with pytest.raises(RequestError, match=r"`image_id` holds ids of images, and .* is an id of 2 of the captions"):
        import_embeddings(store, encoder="n", corpus=whole.fingerprint, captions=tmp_path / "y.npz")


def test_a_matrix_of_scores_is_no_table_of_vectors(other, tmp_path):
    """Its columns are ids, which may be counted as components are."""
    corpus = make_corpus(20)
    table = pd.DataFrame(np.random.default_rng(1).random((40, 20)), texts(corpus.captions["id"]), IDS)
    table.to_csv(tmp_path / "x.csv")
    with pytest.raises(RequestError, match="its columns are the ids of the images: give a matrix of scores as --score"):
        import_embeddings(other, encoder="m", corpus="toy", vectors=tmp_path / "x.csv")


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (ORDER + 100_000, r"`sku` holds no ids of the images, first '1000\d\d'; .*in a column or array `image_id`"),
        (ORDER % 3, "column sku holds whole numbers among columns of real ones, some twice, .*name it `query` if they"),
    ],
)
def test_whole_numbers_before_real_ones_are_no_component(other, tmp_path, cells, message):
    table = pd.DataFrame(UNIT, columns=[f"v{at}" for at in range(8)])
    table.insert(0, "sku", cells)
    table.to_csv(tmp_path / "images.csv", index=False)
    with pytest.raises(RequestError, match=message):
        import_embeddings(other, encoder="m", corpus="toy", images=tmp_path / "images.csv")


@pytest.mark.parametrize(("n_each", "kind"), [(1, "single"), (3, "multi")])
def test_an_npy_of_three_dimensions_has_one_or_several_vectors_for_each_item(other, tmp_path, n_each, kind):
    values = np.random.default_rng(2).standard_normal((20, n_each, 8)).astype(np.float32)
    values /= np.linalg.norm(values, axis=2, keepdims=True)
    np.save(tmp_path / "images.npy", values)
    import_embeddings(other, encoder="m", corpus="toy", images=tmp_path / "images.npy")
    [sealed] = other.sealed_sets()
    assert sealed.key.vectors == kind
    stored = np.concatenate([rows.vectors.values for rows in other.stored_blocks(sealed.key, window=8)])
    tolerance = 0 if kind == "single" else 1e-3
    np.testing.assert_allclose(stored, values.reshape(-1, 8), atol=1e-6 + tolerance)


COUNTS = np.arange(20) % 3 + 1
PADDED = np.where(np.arange(4)[None, :, None] < COUNTS[:, None, None], 1.0, 0.0) * np.random.default_rng(3).random(
    (20, 4, 8)
)
OWN = PADDED.reshape(-1, 8)[PADDED.reshape(-1, 8).any(axis=1)]


def write_padded(path, form):
    """Multi-vectors of 1, 2 or 3 vectors for each item, in a file of a form."""
    if form == "a list of tensors":
        torch.save([torch.from_numpy(each) for each in PADDED], path)
    elif form == "a mask":  # what it leaves out need not be zero
        mask = (np.arange(4) < COUNTS[:, None]).astype(np.int64)
        np.savez(path, embeddings=PADDED + (1 - mask)[:, :, None], attention_mask=mask)
    elif form == "zeros at the end":
        np.savez(path, embeddings=PADDED)
    else:
        np.savez(path, embeddings=OWN, lengths=COUNTS)


@pytest.mark.parametrize("form", ["a list of tensors", "a mask", "zeros at the end", "lengths"])
def test_multi_vectors_may_be_padded_or_have_lengths(other, tmp_path, form):
    path = tmp_path / ("images.pt" if form == "a list of tensors" else "images.npz")
    write_padded(path, form)
    with told() as lines:
        import_embeddings(other, encoder="m", corpus="toy", images=path)
    [sealed] = other.sealed_sets()
    found = [rows.vectors for rows in other.stored_blocks(sealed.key, window=8)]
    assert np.concatenate([np.diff(each.offsets) for each in found]).tolist() == COUNTS.tolist()
    unit = OWN / np.linalg.norm(OWN, axis=1, keepdims=True)
    np.testing.assert_allclose(np.concatenate([each.values for each in found]), unit, atol=1e-3)
    by = "the mask" if form == "a mask" else "zeros at the end of items"
    assert any(f"41 of 80 vectors are padding by {by}, left out" in line for line in lines) == (form != "lengths")


def test_decimal_commas_are_numbers(other, tmp_path):
    lines = ["id;" + ";".join(f"c{at}" for at in range(8))]
    lines += [
        f"{name};" + ";".join(str(each).replace(".", ",") for each in row) for name, row in zip(IDS, UNIT, strict=True)
    ]
    (tmp_path / "images.csv").write_text("\n".join(lines))
    import_embeddings(other, encoder="m", corpus="toy", images=tmp_path / "images.csv")
    found = other.vectors(encoder="m", corpus="toy", modality="image").matrix
    np.testing.assert_allclose(found, UNIT, atol=1e-6)


def test_float16_is_stored_as_float32_if_its_vectors_do_not_have_unit_norm(other, tmp_path):
    """Divided by the norm and rounded again, MRR of a real model was .721467 instead of .721416."""
    values = (3 * UNIT).astype(np.float16)
    np.save(tmp_path / "images.npy", values)
    import_embeddings(other, encoder="m", corpus="toy", images=tmp_path / "images.npy")
    assert other.encoder("m").storage == "float32"
    exact = values.astype(float) / np.linalg.norm(values.astype(float), axis=1, keepdims=True)
    found = other.vectors(encoder="m", corpus="toy", modality="image").matrix
    np.testing.assert_allclose(found, exact, atol=1e-7)


def test_a_format_that_cannot_hold_many_vectors_says_which_can(store, tmp_path):
    fill(store, make_corpus(20), make_spec(vectors="multi"))
    with pytest.raises(RequestError, match=r"\.npy holds one vector per item; use \.npz"):
        export_embeddings(store, tmp_path / "a.npy", encoder="enc", corpus="toy", modality="image")
    with pytest.raises(RequestError, match="does not exist"):
        export_embeddings(store, tmp_path / "no" / "a.npz", encoder="enc", corpus="toy", modality="image")


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".json"])
def test_rows_are_written_to_the_last_bit(tmp_path, suffix):
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    kinds: dict[str, list[Any]] = {"text": ["", 'a "quoted", text'], "real": [0.1, 1 / 3], "whole": [1, 2]}
    kinds |= {"sure": [True, False], "at": [moment] * 2, "numbers": [[1, 2], []], "answers": [[True, False], [True]]}
    rows = pa.table({name: [*cells, None] for name, cells in kinds.items()})
    file = tmp_path / f"rows{suffix}"
    write_row_file(file, rows)
    if suffix == ".parquet":
        assert pq.read_table(file).equals(rows)
        return
    plain = json.loads(json.dumps(rows.to_pylist(), default=datetime.isoformat))
    if suffix == ".json":
        assert json.loads(file.read_text()) == plain
        return
    with file.open(newline="") as lines:
        cells = list(csv.DictReader(lines))
    expected = [{name: json.dumps(c) if isinstance(c, list) else "" if c is None else str(c) for name, c in row.items()}
                for row in plain]  # fmt: skip
    assert cells == expected
