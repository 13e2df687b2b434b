from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from capim.store.errors import RequestError
from capim.tasks.corpora import open_corpus


def edit(file: Path, change: Callable[[Any], object]) -> None:
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def refusal(what: object) -> str:
    with pytest.raises(RequestError) as caught:
        open_corpus(what)  # type: ignore[arg-type]
    return str(caught.value)


def test_the_real_photographs_have_five_captions_each(shared_data: Path) -> None:
    corpus = open_corpus(shared_data / "coco_photos")
    assert (corpus.name, corpus.images.num_rows, corpus.captions.num_rows) == ("coco_photos", 91, 455)
    assert corpus.captions["ordinal"].to_pylist() == [0, 1, 2, 3, 4] * 91
    assert corpus.images["objects"].null_count == 91 - 25
    first, last = corpus.captions.to_pylist()[0], corpus.captions.to_pylist()[-1]
    assert (first["id"], first["text"]) == ("652864", "A big burly grizzly bear is show with grass in the background.")
    assert last["image_id"] == corpus.images["id"][90].as_py()


def test_captions_follow_their_image_in_the_order_of_the_file(coco_folder: Path) -> None:
    corpus = open_corpus(coco_folder)
    assert corpus.images["id"].to_pylist() == ["10", "11", "12"]
    assert corpus.captions["text"].to_pylist() == ["red 0", "red 1", "green 0", "green 1", "blue 0", "blue 1"]
    assert corpus.captions["annotation_id"].to_pylist()[:2] == ["100", "110"]


def test_objects_are_categories_of_the_boxes_empty_without_a_box_null_without_annotation(coco_folder: Path) -> None:
    assert open_corpus(coco_folder).images["objects"].to_pylist() == [["bus", "person"], [], None]


def test_a_captions_file_that_names_an_image_file_that_is_not_there(coco_folder: Path) -> None:
    (coco_folder / "images" / "green.png").unlink()
    message = refusal(coco_folder)
    assert "1 of its images are not in" in message
    assert 'green.png; put them there, or leave them out with missing = "skip"' in message
    corpus = open_corpus({"reader": "coco-captions", "root": str(coco_folder), "missing": "skip"})
    assert corpus.skipped.to_pylist() == [{"item_id": "11", "reason": "no file green.png", "modality": "image"}]
    assert corpus.captions["image_id"].to_pylist() == ["10", "10", "12", "12"]


def test_a_caption_of_an_image_that_is_not_listed(coco_folder: Path) -> None:
    edit(coco_folder / "captions.json", lambda c: c["images"].pop())
    assert "captions of images that are not in the corpus: '102' of '12', '112' of '12'" in refusal(coco_folder)


def test_an_empty_captions_file_and_one_that_is_no_json(coco_folder: Path) -> None:
    file = coco_folder / "captions.json"
    edit(file, lambda c: (c["images"].clear(), c["annotations"].clear()))
    assert "no images; check" in refusal(coco_folder)
    file.write_text('{"images": [}')
    assert f"{file}: not JSON at line 1, column 13" in refusal(coco_folder)
    file.write_bytes(b'{"images": "\xff"}')
    assert "not UTF-8 text (byte 12)" in refusal(coco_folder)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda c: c.pop("images"), "no 'images'; it has 'annotations'"),
        (lambda c: c["annotations"][1].pop("caption"), "annotation 1: no 'caption'; it has 'id', 'image_id'"),
        (lambda c: c["annotations"][1].update(caption=7), "annotation 1: 'caption' is 7, expected str"),
        (lambda c: c["images"][2].update(file_name="../secret.png"), "'../secret.png' leaves the folder"),
        (lambda c: c["images"].append(c["images"][0]), "duplicate image ids: '10'"),
    ],
)
def test_what_is_wrong_in_the_file_is_named_with_its_place(
    coco_folder: Path, change: Callable[[Any], object], expected: str
) -> None:
    edit(coco_folder / "captions.json", change)
    assert expected in refusal(coco_folder)


def test_a_folder_that_is_missing_empty_or_a_file(tmp_path: Path, coco_folder: Path) -> None:
    assert "no such folder or file" in refusal(str(tmp_path / "nowhere"))
    assert "does not exist" in refusal({"reader": "coco-captions", "root": str(tmp_path / "nowhere")})
    assert "is a file, not a folder" in refusal({"reader": "coco-captions", "root": str(coco_folder / "captions.json")})
    (tmp_path / "empty").mkdir()
    assert "is empty; expected images with a captions file" in refusal(tmp_path / "empty")
