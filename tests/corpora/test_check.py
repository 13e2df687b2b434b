"""Facts, checks before a run, and changes between two states."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from capim.store.types import Corpus
from capim.tasks.corpora.build import (
    CaptionRow,
    ImageRow,
    PairRow,
    QuadrupleRow,
    RelevanceRow,
    SkippedRow,
    build_corpus,
)
from capim.tasks.corpora.check import CorpusCheck, check_corpus, corpus_facts, describe_change
from capim.tasks.corpora.description import open_corpus
from capim.tasks.corpora.subset import index_images
from tests.corpora.own_data import png, write


def test_facts_count_by_hand() -> None:
    corpus = build_corpus(
        "c",
        [ImageRow("a", sha="1", objects=["dog"]), ImageRow("b", sha="1"), ImageRow("c", sha="2"), ImageRow("d")],
        [
            CaptionRow("a0", "a", "red"),
            CaptionRow("a1", "a", "red"),
            CaptionRow("a2", "a", "rot", language="de", translator="google"),
            CaptionRow("b0", "b", "red"),
            CaptionRow("b1", "b", "rot", language="de"),
            CaptionRow("c0", "c", "  "),
            CaptionRow("n", None, "red"),
        ],
        source=None,
        pairs=[PairRow("p", "a", "a0", "n", "swap")],
        quadruples=[QuadrupleRow("q", "a", "b", "a0", "b0")],
        relevance=[RelevanceRow("cxc", "t2i", "a0", "a"), RelevanceRow("cxc", "t2i", "a0", "b")],
        skipped=[SkippedRow("z", "corrupt")],
    )
    facts = corpus_facts(corpus)
    assert facts["captions per image"] == {1: 2, 2: 1}  # a has two in English, b one in each language, c one
    assert facts["undescribed"] == 1
    assert facts["duplicate images"] == 1
    assert facts["duplicate captions"] == 2  # "red" three times; "rot" is by two translators; a negative is no repeat
    assert facts["empty captions"] == 1
    assert (facts["images"], facts["captions"], facts["negatives"], facts["skipped"]) == (4, 7, 1, 1)
    assert (facts["languages"], facts["translators"]) == ({"de": 2, "en": 5}, {"google": 1, "human": 6})
    assert (facts["annotated"], facts["without bytes"], facts["pairs"], facts["quadruples"]) == (1, 1, {"swap": 1}, 1)
    assert facts["positives"] == {"cxc t2i": 1}
    assert {"captions per image: 1: 2, 2: 1", "positives: cxc t2i: 1", "captions: 7"} <= {
        *CorpusCheck(facts=facts).lines()
    }


def test_judged_documents_may_all_be_irrelevant() -> None:
    irrelevant = RelevanceRow("judged", "t2i", "q", "a", 0)
    corpus = build_corpus("c", [ImageRow("a")], [CaptionRow("q", None, "red")], source=None, relevance=[irrelevant])
    assert list(corpus_facts(corpus)["judged"].values()) == [1, 0, 0]


def test_a_check_tells_what_a_run_would_leave_out(coco_folder: Path) -> None:
    images = coco_folder / "images"
    (images / "green.png").write_bytes(b"junk")
    (images / "blue.png").write_bytes((images / "red.png").read_bytes())
    content = json.loads((coco_folder / "captions.json").read_text())
    content["annotations"][0]["caption"] = content["annotations"][3]["caption"] = "same"
    content["annotations"].append({"id": 999, "image_id": 12, "caption": " "})
    (coco_folder / "captions.json").write_text(json.dumps(content))
    checked = check_corpus(coco_folder)
    assert checked.ok
    assert checked.warnings == (
        "image 11 is left out: unknown image format (starts with b'junk')",
        "2 captions are left out with their images",
        "1 images have the same bytes as another image: they tie in every ranking",
        "1 captions repeat another caption of the same language: they tie in every ranking",
        "1 captions are empty, or nan, none or null",
    )
    assert checked.lines()[-2:] == [
        f"three ({checked.fingerprint}) can be run",
        f"next: capim run --corpora {coco_folder} --encoders NAME (names: capim list encoders)",
    ]


def test_a_check_with_missing_images_skipped_tells_what_is_left_and_the_lines_that_say_so(coco_folder: Path) -> None:
    (coco_folder / "images" / "green.png").unlink()
    assert 'leave them out with missing = "skip"' in check_corpus(coco_folder).faults[0]
    checked = check_corpus(coco_folder, missing="skip")
    assert (checked.facts["images"], checked.warnings[0]) == (2, "image 11 is left out: no file green.png")
    assert {'  reader = "coco-captions"', '  missing = "skip"'} <= {*checked.lines()}
    (coco_folder / "corpus.toml").write_text("\n".join(line for line in checked.lines() if line.startswith("  ")))
    assert check_corpus(coco_folder).fingerprint == checked.fingerprint
    assert "its reader has no option 'missing'; it takes" in check_corpus("shapes", missing="skip").faults[0]


def test_a_check_says_that_ids_have_no_files_and_that_one_image_holds_most_of_the_queries(tmp_path: Path) -> None:
    """Ten images, one with 50 captions: every interval and test took them for ten."""
    rows = [f"{image}.jpg,thing {image} {n}" for image in range(10) for n in range(50 if image == 0 else 1)]
    (tmp_path / "c.csv").write_text("\n".join(["image,caption", *rows]))
    assert check_corpus({"reader": "table", "root": str(tmp_path / "c.csv"), "ids_only": True}).warnings == (
        "10 images are ids without files: only imported embeddings can be evaluated",
        "one image holds 85 % of the queries: 10 images count as 1.4 of equal weight",
    )


def test_a_change_of_files_is_named_by_what_it_touched(coco_folder: Path) -> None:
    file, red = coco_folder / "captions.json", coco_folder / "images" / "red.png"
    opened = open_corpus(coco_folder)

    def changed(edit: Callable[[dict], object] = lambda _: None) -> list[str]:
        """What changes with the contents of the captions file."""
        content = json.loads(file.read_text())
        edit(content)
        write(coco_folder, {"captions.json": json.dumps(content)})
        nonlocal opened
        before, opened = opened, index_images(open_corpus(coco_folder), known={}, sink=lambda _: None)
        return describe_change(before, opened)

    assert changed() == []
    red.write_bytes(png("pink"))
    assert changed() == ["images with other contents: '10'"]
    assert changed(lambda c: c["annotations"][0].update(caption="new")) == ["captions with other text: '100'"]
    assert changed(lambda c: c["annotations"].pop(0))[0] == "removed captions: '100'"
    assert changed(lambda c: c["annotations"][0].update(image_id=12))[0] == "captions with other image: '101'"
    assert changed(lambda c: c.update(images=c["images"][::-1])) == ["another order of the items"]
    (coco_folder / "instances.json").unlink()
    assert changed() == ["images with other objects: '11', '10'"]
    red.write_bytes(b"junk")
    assert changed() == ["removed images: '10'", "removed captions: '110'", "new skipped items: '10'"]


def test_changes_of_pairs_quadruples_and_ground_truths_are_named() -> None:
    def made(negative: str = "n", truth: str = "a", tags: tuple[str, ...] = ()) -> Corpus:
        return build_corpus(
            "c",
            [ImageRow("a"), ImageRow("b")],
            [CaptionRow(id_, id_ if id_ in "ab" else None, id_) for id_ in "abnm"],
            source=None,
            pairs=[PairRow("p", "a", "a", negative, "swap")],
            quadruples=[QuadrupleRow("q", "a", "b", "a", "b", tags)],
            relevance=[RelevanceRow("cxc", "t2i", "a", truth)],
        )

    assert describe_change(made(), made("m", "b", ("Object",))) == [
        "pairs with other negative_id: 'p'",
        "quadruples with other tags: 'q'",
        "removed positives: 'cxc' 't2i' 'a' 'a'",
        "new positives: 'cxc' 't2i' 'a' 'b'",
    ]


def test_a_check_says_that_prompts_call_classes_by_their_numbers(tmp_path: Path) -> None:
    rows = "image,label\n" + "".join(f"{n}.png,{n % 2}\n" for n in range(4))
    write(tmp_path, {**{f"{n}.png": None for n in range(4)}, "labels.csv": rows})
    expected = "2 classes are called by a number, the first in 'a photo of a 0.'; name them with classes = { \"0\" = "
    assert any(line.startswith(expected) for line in check_corpus(tmp_path).warnings)
    named = {"reader": "labels", "root": str(tmp_path / "labels.csv"), "classes": {"0": "cat", "1": "dog"}}
    assert check_corpus(named).warnings == ()


def warned(folder: Path, content: str, name: str = "captions.csv", **description: str) -> str:
    """The warnings of a check of a table beside two images."""
    write(folder, {"a.png": None, "b.png": None, name: content})
    described = {"reader": "table", "root": str(folder / name), **description} if description else folder / name
    checked = check_corpus(described)
    assert checked.ok, checked.faults
    return "\n".join((*checked.columns, *checked.warnings))


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("一只猫,en", "captions in 'en' are written in CJK letters: give their language in a column"),
        ("кошка,de", "captions in 'de' are written in Cyrillic letters"),
        ("a cat,English", "language 'English' is not a usual code; write 'en', under which other corpora have it"),
        ("a cat,cz", "language 'cz' is not a usual code; write one of BCP 47, such as 'de'"),
    ],
)
def test_a_check_warns_of_languages_that_do_not_look_like_their_code(tmp_path: Path, row: str, expected: str) -> None:
    assert expected in warned(tmp_path, f"image,caption,language\na.png,{row}\n")


@pytest.mark.parametrize(
    "row", ["猫,zh", "ねこ,ja", "고양이,ko", "кошка,ru", "a cat,en", "gato,pt-BR", "pusa,fil", "7,en"]
)
def test_a_check_warns_of_no_language_that_looks_like_its_code(tmp_path: Path, row: str) -> None:
    said = warned(tmp_path, f"image,caption,language\na.png,{row}\n")
    assert "letters" not in said
    assert "usual code" not in said


def test_a_check_names_images_that_are_in_no_row_or_have_another_name(tmp_path: Path) -> None:
    assert "1 images of the folder are in no row read, first 'b.png'" in warned(tmp_path, "image,caption\na.png,red\n")
    assert "in no row" not in warned(tmp_path, "image,caption\na.png,red\nb.png,blue\n")
    inner = write(tmp_path / "inner", {"images/a.png": None, "captions.csv": "image,caption\nimages/a.png,red\n"})
    assert "in no row" not in "\n".join(check_corpus(inner / "captions.csv").columns)
    folder = tmp_path / "my photos"
    assert "1 images are files with another name, the first 'a.PNG': 'a.png'" in warned(
        folder, "image,caption\na.PNG,red\n"
    )
    assert f"capim run --corpora '{folder}' --encoders" in check_corpus(folder).lines()[-1]
    (folder / "a.png").rename(folder / "cafe\u0301.png")  # the same name in Unicode's other form
    assert "another name" not in warned(folder, "image,caption\ncaf\u00e9.png,red\n")


def test_rows_without_a_caption_are_left_out_on_request_and_told(tmp_path: Path) -> None:
    said = warned(tmp_path, "image,caption\na.png,red\nb.png,\n,blue\n", missing="skip")
    assert "caption row2 is left out: no caption in it" in said
    assert "caption row3 is left out: no image in it" in said


def test_pairs_and_quadruples_that_no_model_can_get_right_are_counted(tmp_path: Path) -> None:
    said = "pairs or quadruples have one text, or image, on both sides: no model is right"
    pairs = "image,caption,negative\na.png,red,red\nb.png,blue,red\n"
    assert f"1 {said}" in warned(tmp_path / "pairs", pairs, "pairs.csv")
    rows = "image_0,image_1,caption_0,caption_1\na.png,a.png,red,blue\na.png,b.png,red,red\na.png,b.png,red,blue\n"
    assert f"2 {said}" in warned(tmp_path / "quadruples", rows, "quadruples.csv")


def test_labels_of_several_classes_in_one_cell_are_cut_on_request(tmp_path: Path) -> None:
    table = "image,label\na.png,red\nb.png,blue\nc.png,red|blue\n"
    write(tmp_path, {"c.png": png("red")})
    assert "1 labels look like several others, first 'red|blue'; cut them with separator = \"|\"" in warned(
        tmp_path, table, "labels.csv"
    )
    corpus = open_corpus({"reader": "labels", "root": str(tmp_path / "labels.csv"), "separator": "|"})
    assert corpus.relevance["item_id"].to_pylist() == ["red#0", "blue#0", "red#0", "blue#0"]


def test_folders_that_are_called_as_splits_are_no_classes(tmp_path: Path) -> None:
    write(tmp_path, {"train2014/1.png": None, "val2014/2.png": None})
    assert any("in the folders train2014, val2014, and no captions" in fault for fault in check_corpus(tmp_path).faults)
