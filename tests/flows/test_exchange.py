"""What goes in and out by the command line: searches, compression by name, imports that fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import capim
from capim.tasks.corpora.images.decode import decode_image
from capim.tasks.encoders import encode_captions, encode_images, load_encoder
from tests.command import command, json_rows

CORPUS = "shapes-sample12"


def test_compression_by_name_measures_every_method_and_one_that_cannot_be_built_is_a_slice_with_its_reason(
    own_demo: Path,
) -> None:
    command(f"analyse --analyses compression --protocols t2i/all --corpora {CORPUS} --replicates 200", own_demo)
    query = "SELECT encoder, feature, value, reason FROM slices WHERE analysis = 'approximate-search'"
    rows = json_rows(f'query "{query}"', own_demo)
    reasons = {(row["encoder"], row["feature"]): str(row["reason"]) for row in rows}
    assert "at least 256 vectors, got 12" in reasons["tiny-clip", "IVF_PQ"]
    assert {row["value"] for row in rows if "needs at least" in str(row["reason"])} == {None}
    indexes = {"IVF_PQ", "IVF_HNSW_SQ", "IVF_RQ"}
    assert {method for encoder, method in reasons if encoder == "tiny-clip"} == {"exact", "int8", "binary", *indexes}
    assert {"pooling", "colpali_engine pooling"} < {method for _, method in reasons}
    [forms] = json_rows("query \"SELECT count(*) AS n FROM slices WHERE analysis = 'truncation'\"", own_demo)
    assert forms["n"] > 0


@pytest.mark.parametrize("corpus", ["./nowhere", "shapes"])
def test_a_wrong_import_leaves_no_store_behind(tmp_path: Path, corpus: str) -> None:
    command(f"import --encoder theirs --corpus {corpus} --images x.npy", tmp_path / "new", code=2)
    assert not (tmp_path / "new").exists()


def test_a_text_and_an_image_are_searched_for_together_as_the_sum_of_their_unit_vectors(
    small_demo: Path, tmp_path: Path
) -> None:
    opened = capim.open(small_demo)
    where: Any = {"encoder": "tiny-clip", "corpus": CORPUS, "device": "cpu"}
    images = opened.vectors(encoder="tiny-clip", corpus=CORPUS, modality="image")
    [sha] = opened.sql(f"SELECT sha FROM images WHERE id = '{images.ids[3]}' LIMIT 1").sha
    picture = tmp_path / "picture.jpg"
    picture.write_bytes(opened.store.thumbnails([sha])[sha])
    encoder = load_encoder(opened.store.encoder("tiny-clip"), device="cpu")
    total = encode_captions(encoder, ["a red circle"]).values[0]
    total = total + encode_images(encoder, [decode_image(picture.read_bytes())]).values[0]
    query = total / np.linalg.norm(total)
    found = opened.search("a red circle", image=picture, k=12, **where)
    np.testing.assert_allclose(found.score, np.sort(images.matrix @ query)[::-1], atol=1e-6)
    assert [*found.id] == [*opened.search(vector=query, k=12, encoder="tiny-clip", corpus=CORPUS).id]
