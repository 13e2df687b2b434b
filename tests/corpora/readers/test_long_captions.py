"""Urban1k and DOCCI: one long caption per image."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from capim.store.errors import RequestError
from capim.tasks.corpora import open_corpus
from capim.tasks.corpora.readers.published import table_reader
from capim.tasks.corpora.readers.translations import read_urban1k
from capim.tasks.ranking.protocols import protocols_of


def test_urban1k_captions_are_first_lines_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    (tmp_path / "caption").mkdir()
    for number in (1, 2, 10):
        (tmp_path / "caption" / f"{number}.txt").write_text(f"\n Street {number}. \nmore\n")
    corpus = read_urban1k(tmp_path)
    assert corpus.name == "urban1k"
    assert corpus.images["id"].to_pylist() == ["1", "2", "10"]
    assert corpus.captions["text"].to_pylist() == ["Street 1.", "Street 2.", "Street 10."]
    assert [protocol.id for protocol in protocols_of(corpus)] == ["t2i/all", "i2t/any"]


def test_urban1k_says_where_its_files_are(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"no caption/\*.txt in it; unpack Urban1k.zip of huggingface.co/datasets"):
        read_urban1k(tmp_path)


def descriptions(folder: Path, *splits: str) -> Path:
    lines = [
        {"example_id": f"{s}_{k}", "split": s, "image_file": f"{s}_{k}.jpg", "description": f"{s} {k}"}
        for s in splits
        for k in range(2)
    ]
    (folder / "docci_descriptions.jsonlines").write_text("\n".join(map(json.dumps, lines)))
    return folder


def test_docci_splits_are_corpora_of_their_own(tmp_path: Path) -> None:
    folder = descriptions(tmp_path, "train", "test", "qual_dev")
    assert open_corpus(folder).captions["text"].to_pylist() == ["test 0", "test 1"]
    dev = table_reader("docci")(folder, split="qual_dev")
    assert (dev.name, dev.images["id"].to_pylist()) == ("docci-qual_dev", ["qual_dev_0", "qual_dev_1"])
    with pytest.raises(RequestError, match="no images of split 'qual_test' in it"):
        table_reader("docci")(folder, split="qual_test")


def test_docci_names_a_missing_field_and_the_place_of_its_files(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"no docci_descriptions.jsonlines in it; download .*google.github.io/docci"):
        table_reader("docci")(tmp_path)
    (tmp_path / "docci_descriptions.jsonlines").write_text('{"split": "test", "example_id": "a"}\n')
    with pytest.raises(RequestError, match="line 1: no 'image_file'"):
        table_reader("docci")(tmp_path)
