from __future__ import annotations

import json
from pathlib import Path

import pytest

from capim.store.errors import RequestError, WorkError
from capim.store.types import IndexedImage
from capim.tasks.corpora import open_corpus
from capim.tasks.corpora.subset import index_images


def test_every_image_content_is_decoded_once_and_only_once(coco_folder: Path) -> None:
    images = coco_folder / "images"
    (images / "blue.png").write_bytes((images / "red.png").read_bytes())
    corpus = open_corpus(coco_folder)
    indexed_images: list[IndexedImage] = []
    steps: list[tuple[int, int]] = []
    first = index_images(
        corpus, known={}, sink=indexed_images.extend, progress=lambda done, total: steps.append((done, total))
    )
    assert [image.sha for image in indexed_images] == corpus.images["sha"].unique().to_pylist()
    assert all(image.thumbnail and (image.width, image.height) == (8, 6) for image in indexed_images)
    assert steps[-1] == (2, 2)
    again: list[IndexedImage] = []
    second = index_images(corpus, known={image.sha: image.reason for image in indexed_images}, sink=again.extend)
    assert again == []
    assert first.fingerprint == second.fingerprint == corpus.fingerprint


def test_a_corrupt_image_is_a_listed_skip_with_its_captions_and_the_same_the_second_time(coco_folder: Path) -> None:
    (coco_folder / "images" / "green.png").write_bytes(b"not an image")
    corpus = open_corpus(coco_folder)
    indexed_images: list[IndexedImage] = []
    clean = index_images(corpus, known={}, sink=indexed_images.extend)
    assert clean.images["id"].to_pylist() == ["10", "12"]
    assert clean.captions["image_id"].to_pylist() == ["10", "10", "12", "12"]
    assert clean.skipped.to_pylist() == [
        {"item_id": "11", "reason": "unknown image format (starts with b'not an i')", "modality": "image"}
    ]
    again = index_images(corpus, known={image.sha: image.reason for image in indexed_images}, sink=lambda _: None)
    assert again.fingerprint == clean.fingerprint != corpus.fingerprint


def test_a_corpus_of_which_nothing_decodes_is_an_error(coco_folder: Path) -> None:
    for file in (coco_folder / "images").iterdir():
        file.write_bytes(b"junk")
    with pytest.raises(RequestError, match=r"none of its 3 images can be used; the first, '10': unknown image format"):
        index_images(open_corpus(coco_folder), known={}, sink=lambda _: None)


def test_an_image_that_vanishes_during_the_work_is_named(coco_folder: Path) -> None:
    corpus = open_corpus(coco_folder)
    (coco_folder / "images" / "green.png").unlink()
    with pytest.raises(WorkError, match=r"image 'green.png' was there when the corpus was opened"):
        index_images(corpus, known={}, sink=lambda _: None)


def test_an_image_that_changes_during_the_work_is_named_and_not_kept_under_the_old_hash(coco_folder: Path) -> None:
    corpus = open_corpus(coco_folder)
    (coco_folder / "images" / "green.png").write_bytes((coco_folder / "images" / "red.png").read_bytes())
    with pytest.raises(WorkError, match=r"image 'green.png' was changed after the corpus was opened"):
        index_images(corpus, known={}, sink=lambda _: None)


def test_a_corpus_without_images_of_its_own_comes_back_as_it_is() -> None:
    from capim.tasks.corpora.build import CaptionRow, ImageRow, build_corpus

    corpus = build_corpus("ids", [ImageRow("a")], [CaptionRow("a0", "a", None)], source=None)
    assert index_images(corpus, known={}, sink=lambda _: None) is corpus


def test_all_real_photographs_decode(shared_data: Path) -> None:
    photos = shared_data / "coco_photos"
    corpus = open_corpus(photos)
    indexed_images: list[IndexedImage] = []
    assert index_images(corpus, known={}, sink=indexed_images.extend).fingerprint == corpus.fingerprint
    listed = {image["id"]: image for image in json.loads((photos / "captions.json").read_text())["images"]}
    sizes = {image.sha: (image.width, image.height) for image in indexed_images}
    for row in corpus.images.to_pylist():
        assert sizes[row["sha"]] == (row["width"], row["height"])
        assert (row["width"], row["height"]) == (listed[int(row["id"])]["width"], listed[int(row["id"])]["height"])
