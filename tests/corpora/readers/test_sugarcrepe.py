from __future__ import annotations

import collections
import json
from pathlib import Path

import pytest

from capim.store.errors import RequestError
from capim.tasks.corpora import open_corpus
from capim.tasks.corpora.readers.published import table_reader

# Table 3 of Hsieh et al. 2023, and the published files.
PUBLISHED = {
    "add_att": 692,
    "add_obj": 2062,
    "replace_att": 788,
    "replace_obj": 1652,
    "replace_rel": 1406,
    "swap_att": 666,
    "swap_obj": 245,
}


def test_the_real_files_have_the_published_counts_and_texts(shared_data: Path) -> None:
    root = shared_data / "sugar_crepe"
    corpus = open_corpus(root)
    assert collections.Counter(corpus.pairs["category"].to_pylist()) == PUBLISHED
    assert corpus.pairs.num_rows == 7511 == sum(PUBLISHED.values())
    text = dict(zip(corpus.captions["id"].to_pylist(), corpus.captions["text"].to_pylist(), strict=True))
    for category in PUBLISHED:
        content = json.loads((root / f"{category}.json").read_text())
        pairs = [row for row in corpus.pairs.to_pylist() if row["category"] == category]
        for (number, item), pair in zip(content.items(), pairs, strict=True):
            assert pair["id"] == f"{category}/{number}"
            assert pair["image_id"] == str(int(item["filename"][:12]))
            assert text[pair["caption_id"]] == item["caption"]
            assert text[pair["negative_id"]] == item["negative_caption"]


def test_negatives_describe_no_image_and_captions_theirs(shared_data: Path) -> None:
    corpus = open_corpus(shared_data / "sugar_crepe")
    image_of = dict(zip(corpus.captions["id"].to_pylist(), corpus.captions["image_id"].to_pylist(), strict=True))
    for pair in corpus.pairs.to_pylist():
        assert image_of[pair["caption_id"]] == pair["image_id"]
        assert image_of[pair["negative_id"]] is None


def test_on_the_real_photographs_152_items_can_be_run(shared_data: Path) -> None:
    corpus = table_reader("sugarcrepe")(
        shared_data / "sugar_crepe", images=shared_data / "coco_photos" / "images", missing="skip"
    )
    counts = collections.Counter(corpus.pairs["category"].to_pylist())
    assert counts == {
        "add_att": 14,
        "add_obj": 39,
        "replace_att": 15,
        "replace_obj": 28,
        "replace_rel": 29,
        "swap_att": 18,
        "swap_obj": 9,
    }
    assert corpus.captions.num_rows == 2 * 152
    assert corpus.images["sha"].null_count == 0
    assert set(corpus.pairs["image_id"].to_pylist()) == set(corpus.images["id"].to_pylist())


def test_a_missing_file_and_an_unknown_category_are_named(shared_data: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"no add_att.json, .* in it; download from github.com/RAIVNLab"):
        table_reader("sugarcrepe")(tmp_path)
    what = {"reader": "sugarcrepe", "root": shared_data / "sugar_crepe", "categories": ["swap_all"]}
    with pytest.raises(RequestError, match=r"categories must be a list of 'add_att', .* got \['swap_all'\]"):
        open_corpus(what)
