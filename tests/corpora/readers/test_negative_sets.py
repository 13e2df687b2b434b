"""SugarCrepe++ and NegBench: sets of several right captions, or of several wrong ones."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from capim.store.errors import RequestError
from capim.store.types import Corpus
from capim.tasks.corpora import open_corpus
from capim.tasks.corpora.readers.negatives import read_negbench
from capim.tasks.corpora.readers.published import table_reader
from capim.tasks.ranking.protocols import protocols_of

# DATA_SIZE in evaluate_ulms.py of github.com/Sri-Harsha/scpp
PUBLISHED = {"replace_att": 788, "replace_rel": 1406, "swap_att": 666}
HERE = ["replace_att", "replace_rel", "swap_att"]


@pytest.fixture(scope="module")
def real(shared_data: Path) -> Corpus:
    return table_reader("sugarcrepe-pp")(shared_data / "sugarcrepe_pp", categories=HERE)


def test_sugarcrepe_pp_has_the_published_counts_and_two_captions_per_negative(real: Corpus) -> None:
    counts = Counter(real.pairs["category"].to_pylist())
    assert counts == {category: 2 * n for category, n in PUBLISHED.items()}
    negatives = Counter(real.pairs["negative_id"].to_pylist())
    assert set(negatives.values()) == {2}
    assert real.captions.num_rows == 3 * sum(PUBLISHED.values())


def test_sugarcrepe_pp_texts_and_images_are_those_of_the_files(real: Corpus, shared_data: Path) -> None:
    text = dict(zip(real.captions["id"].to_pylist(), real.captions["text"].to_pylist(), strict=True))
    image = {row["caption_id"]: row["image_id"] for row in real.pairs.to_pylist()}
    for category in HERE:
        for entry in json.loads((shared_data / "sugarcrepe_pp" / f"{category}.json").read_text()):
            item = f"{category}/{entry['id']}"
            expected = [entry[name] for name in ("caption", "caption2", "negative_caption")]
            assert [text[f"{item}{end}"] for end in ("", "/2", "/negative")] == expected
            assert {image[item], image[f"{item}/2"]} == {str(int(entry["filename"][:12]))}


def test_sugarcrepe_pp_on_the_real_photographs(shared_data: Path) -> None:
    images = shared_data / "coco_photos" / "images"
    corpus = table_reader("sugarcrepe-pp")(
        shared_data / "sugarcrepe_pp", images=images, categories=HERE, missing="skip"
    )
    assert corpus.images["sha"].null_count == 0
    assert corpus.captions.num_rows == 3 * corpus.pairs.num_rows // 2 > 0


def test_a_folder_of_sugarcrepe_is_not_one_of_sugarcrepe_pp(shared_data: Path) -> None:
    assert open_corpus(shared_data / "sugar_crepe").name == "sugarcrepe"
    with pytest.raises(
        RequestError, match=r"no replace_obj.json, swap_obj.json in it; .* name the files that you have"
    ):
        open_corpus(shared_data / "sugarcrepe_pp")
    with pytest.raises(RequestError, match=r"replace_att.json: item 0: no 'caption2'; it has"):
        table_reader("sugarcrepe-pp")(shared_data / "sugar_crepe")


def csv_file(file: Path, rows: list[dict[str, Any]]) -> Path:
    with file.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return file


QUESTION = {
    "correct_answer": 2,
    **{f"caption_{n}": f"option {n}" for n in range(4)},
    "correct_answer_template": "negative",
    "image_path": "data/val2017/000000000007.jpg",
}


def test_a_negbench_question_is_a_caption_and_the_other_options(tmp_path: Path) -> None:
    file = csv_file(tmp_path / "VOC2007_mcq.csv", [QUESTION, {**QUESTION, "correct_answer_template": "hybrid"}])
    corpus = read_negbench(file)
    assert corpus.name == "negbench-VOC2007_mcq"
    assert corpus.images["id"].to_pylist() == ["7"]
    text = dict(zip(corpus.captions["id"].to_pylist(), corpus.captions["text"].to_pylist(), strict=True))
    first = [row for row in corpus.pairs.to_pylist() if row["caption_id"] == "0"]
    assert [(text[row["caption_id"]], text[row["negative_id"]], row["category"]) for row in first] == [
        ("option 2", f"option {n}", "negative") for n in (0, 1, 3)
    ]
    ids = [protocol.id for protocol in protocols_of(corpus)]
    assert ids == ["negbench/negative", "negbench/hybrid", "negbench/macro", "negbench/micro"]


def test_negbench_with_two_options_and_no_template_has_one_category(tmp_path: Path) -> None:
    row = {"image_path": "a.jpg", "caption_0": "with", "caption_1": "without", "correct_answer": 1}
    corpus = read_negbench(csv_file(tmp_path / "chexpert_binary_mcq.csv", [row]))
    assert [protocol.id for protocol in protocols_of(corpus)] == ["negbench/all"]


def test_negbench_retrieval_files_are_corpora_of_captions(tmp_path: Path) -> None:
    rows = [
        {"filepath": f"/x/val2017/{k:012d}.jpg", "image_id": k, "captions": repr([f"no {n} in {k}" for n in range(5)])}
        for k in (7, 9)
    ]
    corpus = read_negbench(csv_file(tmp_path / "COCO_val_negated_retrieval.csv", rows))
    assert corpus.images["id"].to_pylist() == ["7", "9"]
    assert corpus.captions["text"].to_pylist()[:2] == ["no 0 in 7", "no 1 in 7"]
    assert {"t2i/all", "i2t/any"} <= {protocol.id for protocol in protocols_of(corpus)}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"correct_answer": 4}, "row 0: expected correct_answer to be the number of one of caption_0, .* got '4'"),
        ({"correct_answer": "c"}, "got 'c'"),
        ({"image_path": None}, "expected a column image_path or filepath, and correct_answer"),
    ],
)
def test_what_is_wrong_in_a_negbench_file_is_named(tmp_path: Path, change: dict[str, Any], expected: str) -> None:
    row = {name: value for name, value in {**QUESTION, **change}.items() if value is not None}
    with pytest.raises(RequestError, match=expected):
        read_negbench(csv_file(tmp_path / "mcq.csv", [row]))


def test_negbench_images_of_one_name_in_two_folders_are_refused(tmp_path: Path) -> None:
    rows = [{**QUESTION, "image_path": f"{folder}/1.jpg"} for folder in "ab"]
    with pytest.raises(RequestError, match="images in different folders have the same name"):
        read_negbench(csv_file(tmp_path / "mcq.csv", rows))


def test_negbench_retrieval_reads_lists_and_no_expressions(tmp_path: Path) -> None:
    row = {"filepath": "a.jpg", "captions": "__import__('os').system('true')"}
    with pytest.raises(RequestError, match="row 0: expected a list of texts"):
        read_negbench(csv_file(tmp_path / "retrieval.csv", [row]))
