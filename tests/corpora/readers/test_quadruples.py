"""BiVLC and MMVP-VLM: quadruples with the ids and tags that outcomes computed elsewhere refer to."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from capim.store.errors import RequestError
from capim.tasks.corpora.readers.quadruples import read_bivlc, read_mmvp_vlm
from capim.tasks.ranking.protocols import protocols_of, select_protocols

# Table 1 of Miranda et al. 2024, and the published rows
BIVLC = {"replace": 2099, "swap": 359, "add": 475}


@pytest.mark.parametrize("model", ["ViT-B-32", "CLIP_TROHN-Text"])
def test_bivlc_from_published_rows_has_their_texts_types_and_positions(shared_data: Path, model: str) -> None:
    file = shared_data / "bivlc" / f"{model}.csv"
    corpus = read_bivlc(file)
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert (corpus.quadruples.num_rows, corpus.images.num_rows, corpus.captions.num_rows) == (2933, 5866, 5866)
    texts = corpus.captions["text"].to_pylist()
    assert texts == [text for row in rows for text in (row["caption"], row["negative_caption"])]
    assert corpus.quadruples.slice(17, 1).to_pylist() == [
        {
            "id": "17",
            "image_0": "17/0",
            "image_1": "17/1",
            "caption_0": "17/0",
            "caption_1": "17/1",
            "tags": [rows[17]["type"], rows[17]["subtype"]],
        }
    ]
    tags_of: list[Any] = corpus.quadruples["tags"].to_pylist()
    assert Counter(tags[0] for tags in tags_of) == BIVLC
    assert corpus.source is None


def test_both_published_files_are_the_same_corpus(shared_data: Path) -> None:
    files = [shared_data / "bivlc" / f"{model}.csv" for model in ("ViT-B-32", "CLIP_TROHN-Text")]
    assert len({read_bivlc(file).fingerprint for file in files}) == 1


def test_bivlc_is_scored_as_winoground_and_not_for_retrieval(shared_data: Path) -> None:
    corpus = read_bivlc(shared_data / "bivlc" / "ViT-B-32.csv")
    ids = [protocol.id for protocol in protocols_of(corpus)]
    assert "winoground" in ids
    assert not [id_ for id_ in ids if id_.startswith(("t2i", "i2t"))]
    with pytest.raises(RequestError, match="its captions were written as quadruples with hard negatives"):
        select_protocols(corpus, ["t2i/all"])


def test_bivlc_names_what_a_file_lacks(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("caption,type\na,b\n")
    with pytest.raises(RequestError, match="no column negative_caption, subtype; it has caption, type"):
        read_bivlc(tmp_path / "rows.csv")
    (tmp_path / "rows.csv").write_text("caption,negative_caption,type,subtype\na, b,c,replace,obj\n")
    with pytest.raises(RequestError, match="row 1: expected 4 cells as in the header, got 5"):
        read_bivlc(tmp_path / "rows.csv")


def questions(folder: Path, *rows: tuple[int, str, str]) -> Path:
    with (folder / "Questions.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("Question ID", "Type", "Statement"), *rows])
    return folder


def test_mmvp_pairs_follow_each_other_and_carry_their_pattern(tmp_path: Path) -> None:
    root = questions(tmp_path, (1, "Color", "A red cup"), (2, "Color", "A blue cup"))
    corpus = read_mmvp_vlm(root)
    assert corpus.name == "mmvp-vlm"
    assert corpus.quadruples.to_pylist()[0]["tags"] == ["Color"]
    assert corpus.images["key"].to_pylist() == ["Color/1.jpg", "Color/2.jpg"]
    assert corpus.captions["text"].to_pylist() == ["a photo of A red cup", "a photo of A blue cup"]
    assert read_mmvp_vlm(root, prompt="{}").captions["text"].to_pylist() == ["A red cup", "A blue cup"]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([(1, "Color", "a"), (2, "State", "b")], "row 1: expected two questions of one pattern one after the other"),
        ([(1, "Color", "a"), (2, "Color", "b"), (3, "Color", "c")], "row 3: expected two questions"),
    ],
)
def test_mmvp_rows_that_are_no_pair_are_refused(
    tmp_path: Path, rows: list[tuple[int, str, str]], expected: str
) -> None:
    with pytest.raises(RequestError, match=expected):
        read_mmvp_vlm(questions(tmp_path, *rows))


def test_mmvp_says_where_its_files_are(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"no Questions.csv in it; hf download MMVP/MMVP_VLM --repo-type dataset"):
        read_mmvp_vlm(tmp_path)
    with pytest.raises(RequestError, match=r"prompt must have \{\} where the statement belongs, got 'a photo'"):
        read_mmvp_vlm(questions(tmp_path, (1, "Color", "a"), (2, "Color", "b")), prompt="a photo")
