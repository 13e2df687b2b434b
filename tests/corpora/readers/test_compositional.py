"""Winoground, ARO, CREPE and the boxes of images that the last two ask about."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from capim.store.errors import RequestError
from capim.tasks.corpora import open_corpus
from capim.tasks.corpora.images.decode import decode_image
from capim.tasks.corpora.images.source import Crops, Folder, crop_key
from capim.tasks.corpora.readers.negatives import read_aro, read_crepe
from capim.tasks.corpora.readers.quadruples import read_winoground


@pytest.fixture
def winoground(tmp_path: Path) -> Path:
    """Forty examples without their pictures' variety: every image is one grey."""
    (tmp_path / "images").mkdir()
    lines = []
    for k in range(40):
        for side in range(2):
            Image.new("L", (4, 4), 6 * k + side).save(tmp_path / "images" / f"ex_{k}_img_{side}.png")
        lines.append(
            {
                "id": k,
                **{f"image_{side}": f"ex_{k}_img_{side}" for side in range(2)},
                **{f"caption_{side}": f"{k} {side}" for side in range(2)},
                "tag": "Scope",
                "secondary_tag": "",
                "num_main_preds": 2 if k % 2 else 1,
                "collapsed_tag": "Both",
            }
        )
    (tmp_path / "examples.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return tmp_path


def test_winoground_examples_carry_the_tags_of_both_papers(winoground: Path, shared_data: Path) -> None:
    tags = shared_data / "winoground_tags" / "new_tag_assignments.json"
    rows = read_winoground(winoground, tags=tags).quadruples.to_pylist()
    assert rows[0]["tags"] == ["Both", "1 Main Pred", "Scope", "No Tag"]
    assert rows[3]["tags"] == ["Both", "2 Main Preds", "Scope", "Ambiguously Correct"]
    assert rows[36]["tags"] == [
        *("Both", "1 Main Pred", "Scope"),
        *("Ambiguously Correct", "Unusual Image", "Visually Difficult"),
    ]
    assert read_winoground(winoground).quadruples.to_pylist()[0]["tags"] == ["Both", "1 Main Pred", "Scope"]


def test_winoground_says_what_is_missing(winoground: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(RequestError, match=r"no examples.jsonl or data/examples.jsonl in it"):
        read_winoground(tmp_path_factory.mktemp("empty"))
    (winoground / "images" / "ex_7_img_1.png").unlink()
    with pytest.raises(RequestError, match=r"1 of its images are not in .*: ex_7_img_1.png"):
        read_winoground(winoground)
    (winoground / "tags.json").write_text('["Object"]')
    with pytest.raises(RequestError, match="expected an object from example id to a list of tags"):
        read_winoground(winoground, tags=winoground / "tags.json")


def gradient(folder: Path) -> bytes:
    image = Image.fromarray(np.arange(20 * 30 * 3, dtype=np.uint8).reshape(20, 30, 3))
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    (folder / "1.png").write_bytes(buffer.getvalue())
    return buffer.getvalue()


def test_a_crop_is_the_box_of_the_decoded_image(tmp_path: Path) -> None:
    whole = decode_image(gradient(tmp_path))
    part = decode_image(Crops(Folder(tmp_path)).read(crop_key("1.png", 3, 5, 7, 6)))
    assert np.array_equal(np.asarray(part), np.asarray(whole)[5:11, 3:10])


def test_a_crop_that_cannot_be_had_is_an_os_error(tmp_path: Path) -> None:
    gradient(tmp_path)
    (tmp_path / "2.png").write_bytes(b"junk")
    source = Crops(Folder(tmp_path))
    for key, expected in (
        ("1.png", "is not the key of a box"),
        (crop_key("2.png", 0, 0, 1, 1), "2.png: unknown image format"),
        (crop_key("3.png", 0, 0, 1, 1), "No such file"),
        (crop_key("../1.png", 0, 0, 1, 1), "leaves the folder"),
        (crop_key("1.png", 0, 0, 10**6, 10**6), "a box of 1000000 x 1000000 pixels"),
        (crop_key("1.png", 0, 0, 0, 5), "a box of 0 x 5 pixels"),
    ):
        with pytest.raises(OSError, match=expected):
            source.read(key)


def test_aro_names_its_parts_and_where_its_files_are(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"part must be 'relation', 'attribution', .*, got 'count'"):
        open_corpus({"reader": "aro", "root": tmp_path, "part": "count"})
    with pytest.raises(RequestError, match=r"no visual_genome_relation.json in it; it is linked from github.com"):
        read_aro(tmp_path)
    with pytest.raises(RequestError, match="coco-order has no files"):
        read_aro(tmp_path, part="coco-order")


def test_aro_attribution_is_categorised_by_its_pair_of_attributes(tmp_path: Path) -> None:
    item = {"image_path": "1.jpg", "bbox_x": 0, "bbox_y": 0, "bbox_w": 4, "bbox_h": 4}
    texts = {"true_caption": "the white cat and the black dog", "false_caption": "the black cat and the white dog"}
    (tmp_path / "visual_genome_attribution.json").write_text(
        json.dumps([{**item, **texts, "attributes": ["white", "black"]}])
    )
    corpus = read_aro(tmp_path, part="attribution")
    assert corpus.pairs["category"].to_pylist() == ["white_black"]
    assert corpus.source is None


def crepe_file(folder: Path, name: str, **cells: str) -> None:
    with (folder / name).open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(cells))
        writer.writeheader()
        writer.writerow(cells)


BOX = {"image_id": "5", "x": "0", "y": "0", "width": "4", "height": "4", "caption": "a cat"}


def test_crepe_systematicity_tells_seen_from_unseen_and_takes_one_training_set(tmp_path: Path) -> None:
    for seen in ("seen", "unseen"):
        for train_set in ("cc12m", "yfcc"):
            crepe_file(
                tmp_path,
                f"syst_vg_hard_negs_{seen}_compounds_in_{train_set}.csv",
                **BOX,
                valid_hard_negs_atom="['a dog']",
                valid_hard_negs_comp="['a red cat', 'a blue cat']",
            )
    corpus = read_crepe(tmp_path)
    assert corpus.pairs["category"].to_pylist() == [
        *("systematicity/seen/atom", "systematicity/seen/comp", "systematicity/seen/comp"),
        *("systematicity/unseen/atom", "systematicity/unseen/comp", "systematicity/unseen/comp"),
    ]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({**BOX, "hard_negs": "__import__('os').system('true')"}, "expected a list of texts, got"),
        ({**BOX, "hard_negs": "['a', 3]"}, "expected a list of texts, got"),
        ({**BOX, "hard_negs": "['a']", "x": "left"}, "expected a box of four numbers, got ['left', '0', '4', '4']"),
        ({"image_id": "5", "caption": "c", "hard_negs": "['a']"}, "no column height, width, x, y"),
        (BOX, "no column hard_negs"),
    ],
)
def test_what_is_wrong_in_a_crepe_file_is_named(tmp_path: Path, cells: dict[str, str], expected: str) -> None:
    crepe_file(tmp_path, "prod_vg_hard_negs_swap_complexity_5.csv", **cells)
    with pytest.raises(RequestError) as caught:
        read_crepe(tmp_path)
    assert expected in str(caught.value)


def test_a_folder_without_crepe_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        RequestError, match=r"no prod_vg_hard_negs_\*.csv or syst_vg_hard_negs_\*_in_cc12m.csv below it"
    ):
        read_crepe(tmp_path)
