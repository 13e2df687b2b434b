from __future__ import annotations

import collections
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from capim.store.errors import RequestError
from capim.store.types import Corpus
from capim.tasks.corpora.check import corpus_facts
from capim.tasks.corpora.description import open_corpus
from capim.tasks.corpora.readers.coco_captions import CATEGORIES_OF, SUPERCATEGORY_OF
from capim.tasks.corpora.readers.karpathy import SIXTH_CAPTIONS, karpathy_test_annotation_ids, read_coco_karpathy
from tests.corpora import own_data
from tests.corpora.own_data import refusal


def edit(file: Path, change: Callable[[Any], object]) -> None:
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


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
    objects = [["bus", "person"], [], None]  # categories of the boxes: empty without a box, null without annotation
    assert corpus.images["objects"].to_pylist() == objects


def test_a_captions_file_that_is_no_json(coco_folder: Path) -> None:
    file = coco_folder / "captions.json"
    file.write_text('{"images": [}')
    assert f"{file}: not JSON at line 1, column 13" in refusal(coco_folder)
    file.write_bytes(b'{"images": "\xff"}')
    assert "not UTF-8 text (byte 12)" in refusal(coco_folder)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda c: c["images"].pop(), "images that are not in the corpus: '102' of '12', '112' of '12'"),
        (lambda c: c["annotations"][1].pop("caption"), "annotation 1: no 'caption'; it has 'id', 'image_id'"),
        (lambda c: c["annotations"][1].update(caption=7), "annotation 1: 'caption' is 7, expected str"),
    ],
)
def test_what_is_wrong_in_the_file_is_named_with_its_place(
    coco_folder: Path, change: Callable[[Any], object], expected: str
) -> None:
    edit(coco_folder / "captions.json", change)
    assert expected in refusal(coco_folder)


def test_a_folder_that_is_empty_or_a_file(tmp_path: Path, coco_folder: Path) -> None:
    a_file = refusal({"reader": "coco-captions", "root": str(coco_folder / "captions.json")})
    assert "is a file; give the folder that holds it" in a_file
    (tmp_path / "empty").mkdir()
    assert "is empty; expected images with a captions file" in refusal(tmp_path / "empty")


@pytest.fixture(scope="module")
def test_5k(shared_data: Path) -> Corpus:
    return open_corpus(shared_data / "coco_karpathy")  # recognised by its file


def test_the_test_split_has_5000_images_and_25010_captions_as_in_the_file(test_5k: Corpus, shared_data: Path) -> None:
    facts, texts = corpus_facts(test_5k), test_5k.captions["text"].to_pylist()
    assert (facts["images"], facts["captions"], facts["captions per image"]) == (5000, 25_010, {5: 4990, 6: 10})
    assert facts["duplicate captions"] == len(texts) - len(set(texts)) > 0
    entries = json.loads((shared_data / "coco_karpathy" / "test_5k.json").read_text())
    assert test_5k.images["id"].to_pylist() == [str(entry["image_id"]) for entry in entries]
    assert texts == [text for entry in entries for text in entry["captions"]]
    ends = [f"{entry['image_id']}#{n}" for entry in entries for n in range(len(entry["captions"]))]
    assert test_5k.captions["id"].to_pylist() == ends
    assert test_5k.images["objects"].to_pylist() == [entry["objects"] for entry in entries]
    sixth = test_5k.captions.filter(test_5k.captions["annotation_id"].is_null())
    assert sixth["ordinal"].to_pylist() == [5] * 8


def test_the_two_sixth_captions_that_eccv_names_are_those_whose_number_follows_on_the_fifth(test_5k: Corpus) -> None:
    rows = {(row["image_id"], row["ordinal"]): row for row in test_5k.captions.to_pylist()}
    texts = {"575916": "A serving dish has fruits stacked upon it.", "446459": "a young white and black"}
    for image, text in texts.items():
        fifth, sixth = rows[image, 4], rows[image, 5]
        assert sixth["text"].startswith(text)
        assert sixth["annotation_id"] == SIXTH_CAPTIONS[image]
        assert 0 < int(SIXTH_CAPTIONS[image]) - int(fifth["annotation_id"]) < 6000


def test_cxc_has_24972_caption_queries_with_a_positive_and_eccv_1332_captions_and_1261_images(test_5k: Corpus) -> None:
    expected = {"cxc t2i": 24_972, "cxc i2t": 5000, "eccv t2i": 1332, "eccv i2t": 1261}
    assert corpus_facts(test_5k)["positives"] == expected


@pytest.mark.peers
def test_the_positives_equal_those_that_the_eccv_caption_package_works_with(test_5k: Corpus) -> None:
    peer = pytest.importorskip("eccv_caption").Metrics()
    annotation = {row["id"]: row["annotation_id"] for row in test_5k.captions.to_pylist()}
    ours: dict[tuple[str, str], dict[int, list[int]]] = collections.defaultdict(lambda: collections.defaultdict(list))
    for row in test_5k.relevance.to_pylist():
        query, item = row["query_id"], row["item_id"]
        pair = (annotation[query], item) if row["direction"] == "t2i" else (query, annotation[item])
        ours[row["ground_truth"], row["direction"]][int(pair[0])].append(int(pair[1]))
    for truth, theirs in (("cxc", peer.cxc_gts), ("eccv", peer.eccv_gts)):
        for direction in ("t2i", "i2t"):
            assert ours[truth, direction] == {query: items for query, items in theirs[direction].items() if items}


def test_annotation_ids_of_the_package_equal_those_of_the_file(test_5k: Corpus) -> None:
    known = karpathy_test_annotation_ids()
    rows = test_5k.captions.to_pylist()
    assert len(known) == 5000
    assert all(row["ordinal"] >= 5 or known[row["image_id"]][row["ordinal"]] == row["annotation_id"] for row in rows)


def forms(tmp_path: Path) -> dict[str, Path]:
    """Two real images of the split in the three JSON forms."""
    known = karpathy_test_annotation_ids()
    images, albef, karpathy = [], [], []
    for number, texts in ((391895, ["one", "two"]), (60623, ["three", "four"])):
        name, ids = f"COCO_val2014_{number:012d}.jpg", [int(each) for each in known[str(number)][:2]]
        path, sentences = f"val2014/{name}", [{"raw": text} for text in texts]
        images.append({"image_id": number, "file_name": path, "captions": texts, "annotation_ids": ids})
        albef.append({"image": path, "caption": texts})
        row = {"filepath": "val2014", "filename": name, "split": "test", "cocoid": number}
        karpathy.append({**row, "sentids": ids, "sentences": sentences})
    contents = {"test_2.json": images, "coco_karpathy_test.json": albef, "dataset_coco.json": {"images": karpathy}}
    own_data.write(tmp_path, {name: json.dumps(content) for name, content in contents.items()})
    return {name: tmp_path / name for name in contents}


def test_all_three_forms_of_the_captions_file_give_the_same_fingerprint(tmp_path: Path) -> None:
    corpora = {name: read_coco_karpathy(file) for name, file in forms(tmp_path).items()}
    assert len({corpus.fingerprint for corpus in corpora.values()}) == 1
    first = corpora["coco_karpathy_test.json"].captions.to_pylist()[0]
    assert (first["id"], first["annotation_id"]) == ("391895#0", "770337")


def test_the_folder_of_real_photographs_gives_the_part_of_the_split_that_is_there(shared_data: Path) -> None:
    file, images = shared_data / "coco_karpathy" / "test_5k.json", shared_data / "coco_photos" / "images"
    with pytest.raises(RequestError, match=r"4990 of its images are not in .*missing = \"skip\""):
        read_coco_karpathy(file, images=images)
    skipping = {"reader": "coco-karpathy", "root": str(file), "images": str(images), "missing": "skip"}
    corpus = open_corpus(skipping)
    assert (corpus.images.num_rows, corpus.captions.num_rows, corpus.skipped.num_rows) == (10, 50, 4990)
    assert corpus.images["sha"].null_count == 0
    assert corpus.relevance.num_rows == 105
    assert all(len(data) > 1000 for data in own_data.contents(corpus))


def test_objects_can_come_from_a_file_of_their_own(tmp_path: Path) -> None:
    listed, names = tmp_path / "objects.json", ["bowl", "cup"]
    categories = [{"id": n, "name": name} for n, name in enumerate(names)]
    annotations = [{"image_id": 60623, "category_id": n} for n in (1, 0, 1)]
    of_boxes = {"categories": categories, "images": [], "annotations": annotations}
    listed.write_text(json.dumps(of_boxes))
    corpus = read_coco_karpathy(forms(tmp_path)["coco_karpathy_test.json"], objects=listed)
    assert corpus.images["objects"].to_pylist() == [None, names]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("7", "expected Karpathy's JSON (an object with 'images') or a list of images"),
        ("[]", "expected Karpathy's JSON"),
        ("[3]", "image 0: expected an object, got int"),
        ('[{"image": "a.jpg"}]', "image 0: expected a file name (file_name, filename, image_path, image) and captions"),
        ('[{"image": "a.jpg", "caption": [1]}]', "image 0: 'caption' is [1], expected a text or a list of texts"),
    ],
)
def test_a_captions_file_of_no_known_form_is_refused_with_its_place(
    tmp_path: Path, content: str, expected: str
) -> None:
    (tmp_path / "captions.json").write_text(content)
    assert expected in refusal({"reader": "coco-karpathy", "root": str(tmp_path / "captions.json")})


def test_a_file_of_another_split_is_refused(tmp_path: Path) -> None:
    (tmp_path / "coco_karpathy_val.json").write_text('[{"image": "a.jpg", "caption": "x"}]')
    with pytest.raises(RequestError, match="expected split 'test', got a file of split 'val' by its name"):
        read_coco_karpathy(tmp_path / "coco_karpathy_val.json")
    assert read_coco_karpathy(tmp_path / "coco_karpathy_val.json", split="val").name == "coco-karpathy-val"
    with pytest.raises(RequestError, match="no images of split 'val'; it has test"):
        read_coco_karpathy(forms(tmp_path)["dataset_coco.json"], split="val")


def test_the_80_categories_have_12_supercategories(shared_data: Path) -> None:
    published = json.loads((shared_data / "coco_karpathy" / "coco80_supercategories.json").read_text())
    assert published == SUPERCATEGORY_OF
    assert (len(SUPERCATEGORY_OF), len(CATEGORIES_OF)) == (80, 12)
