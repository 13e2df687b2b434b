"""Folders and files of the user's own, as they lie on people's disks."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from capim.tasks.corpora.check import check_corpus
from capim.tasks.corpora.description import open_corpus
from tests.corpora.own_data import JSONL, TWO, Put, files, png, publish, refusal, shard, texts

COCO_IMAGE = "val2014/COCO_val2014_00000000000{}.jpg"
IN_CELLS = [("image/0", "red"), ("image/1", "blue")]


def test_an_imagefolder_of_the_hub_has_its_splits_as_folders(put: Put) -> None:
    root = put({"train/metadata.jsonl": JSONL}, "train/a.png", "train/b.png")
    corpus = open_corpus(root)
    assert (corpus.name, texts(corpus)) == ("photos", TWO)
    put({"test/metadata.jsonl": JSONL.replace("red", "pink")}, "test/a.png", "test/b.png")
    assert texts(open_corpus(root))[0] == ("a.png", "pink")  # test of test and train
    assert check_corpus(root).recognised == "a table, test/metadata.jsonl (split test of test, train)"
    (root / "test").rename(root / "validation")
    message = refusal(root)
    assert "several splits, train, validation, and none is called test" in message
    assert f"`capim check {root / 'train'}`" in message
    assert texts(open_corpus(root / "train")) == TWO


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("captions.txt", "image\tcaption\na.png\tred\nb.png\tblue\n"),
        ("captions.txt", "image_name| comment_number| comment\na.png| 0| red \nb.png| 0| blue \n"),
        ("Flickr8k.token.txt", "a.png#0\tred\nb.png#0\tblue\n"),
        ("excel.csv", "image;caption\r\na.png;red\r\nb.png;blue\r\n"),
        ("spaces.csv", "image, caption\na.png, red\nb.png, blue\n"),
        ("headless.csv", "a.png,red\nb.png,blue\n"),
        ("Anything At All.csv", "File Name,Description\na.png,red\nb.png,blue\n"),
        ("anything.tsv", "fileName\tText\na.png\tred\nb.png\tblue\n"),
        ("anything.ndjson", JSONL),
        ("anything.json", json.dumps([{"image": "a.png", "caption": "red"}, {"image": "b.png", "caption": "blue"}])),
        ("anything.json", json.dumps({"a.png": "red", "b.png": ["blue"]})),
        ("UPPER.CSV", "IMAGE,CAPTION\na.png,red\nb.png,blue\n"),
    ],
)
def test_one_table_is_found_and_read_whatever_its_name_and_its_separator(put: Put, name: str, content: str) -> None:
    root = put({name: content, "README.txt": "Photographs, with captions\n", "sizes.csv": "image,width\na.png,8\n"})
    put(None, "a.png", "b.png")
    corpus = open_corpus(root)
    assert (corpus.name, texts(corpus)) == ("photos", TWO)
    assert texts(open_corpus(root / name)) == TWO
    assert check_corpus(root).recognised == f"a table, {name}"


def test_img2datasets_parquet_shards_are_read_and_failed_downloads_are_named(put: Put) -> None:
    root = put({"00000_stats.json": "{}"})
    downloads: list[list[bytes | None]] = [[png("red"), None], [png("blue")]]
    for number, cells in enumerate(downloads):
        numbers = [str(n) for n in range(len(cells))]
        status = ["success" if cell else "failed_to_download" for cell in cells]
        columns: dict[str, Any] = {"url": ["http://x"] * len(cells), "key": numbers, "status": status}
        columns |= {"caption": [f"{number} {n}" for n in numbers], "jpg": pa.array(cells, type=pa.binary())}
        pq.write_table(pa.table(columns), root / f"{number:05d}.parquet")
    assert "1 rows hold no image, the first 'jpg/1'; leave them out with missing = \"skip\"" in refusal(root)
    (root / "corpus.toml").write_text('reader = "hub"\ndataset = "."\nmissing = "skip"\n')
    corpus = open_corpus(root)
    assert texts(corpus) == [("jpg/0", "0 0"), ("jpg/2", "1 0")]
    reason = "the data set holds no image"
    assert corpus.skipped.to_pylist() == [{"item_id": "jpg/1", "reason": reason, "modality": "image"}]


def test_a_data_set_of_save_to_disk_and_of_several_splits(put: Put) -> None:
    import datasets

    features = datasets.Features({"image": datasets.Image(), "caption": datasets.Value("string")})
    cells = {"image": [{"bytes": png(c), "path": None} for c in ("red", "blue")], "caption": ["red", "blue"]}
    saved = datasets.Dataset.from_dict(cells, features=features)
    root = put()
    saved.save_to_disk(str(root / "one"))
    one = open_corpus(root / "one")
    assert (one.name, texts(one)) == ("one", IN_CELLS)
    assert pickle.loads(pickle.dumps(one.source)).read("image/0") == png("red")
    assert check_corpus(root / "one").recognised == "a data set of save_to_disk"
    several = datasets.DatasetDict({"train": saved, "test": saved.select([1])})
    several.save_to_disk(str(root / "two"))
    assert texts(open_corpus(root / "two")) == [("image/0", "blue")]
    two = {"reader": "hub", "dataset": str(root / "two")}
    assert len(texts(open_corpus({**two, "split": "train"}))) == 2
    assert "no split 'dev'; it has train, test" in refusal({**two, "split": "dev"})
    one_of = {"reader": "hub", "dataset": str(root / "one"), "split": "dev"}
    assert "one: no column 'split' for split = 'dev'; it has image, caption" in refusal(one_of)
    marked = saved.add_column("part", ["dev", "test"])
    marked.save_to_disk(str(root / "marked"))
    marked = {**one_of, "dataset": str(root / "marked"), "columns": {"split": "part"}}
    assert texts(open_corpus(marked)) == [("image/0", "red")]
    datasets.DatasetDict({"a": saved, "b": saved}).save_to_disk(str(root / "three"))
    assert 'it has several splits; name one of a, b, as in split = "a"' in refusal(root / "three")


def test_a_folder_in_the_hubs_layout_is_found_by_its_parquet_files(put: Put) -> None:
    root = put({"README.md": "# photos\n"})
    publish(root, {"image": [png("red"), png("blue")], "caption": ["red", "blue"]}, split="train")
    publish(root, {"image": [png("green")], "caption": ["green"]}, split="validation")
    assert 'it has several splits; name one of train, validation, as in split = "train"' in refusal(root)
    (root / "data" / "train-00000-of-00001.parquet").unlink()
    assert texts(open_corpus(root)) == [("image/0", "green")]


def test_a_text_file_beside_each_image(put: Put) -> None:
    root = put({"a.txt": "red\n", "deep/b.txt": "blue", "README.txt": "hello\nworld\n"}, "a.png", "deep/b.JPG")
    corpus = open_corpus(root)
    assert (corpus.name, texts(corpus)) == ("photos", [("a", "red"), ("deep/b", "blue")])
    assert files(corpus) == ["a.png", "deep/b.JPG"]
    assert check_corpus(root).recognised == "images with a text file of the same name each"
    put(None, "c.png")
    assert "images without a text file; write it, or leave them out with missing = \"skip\": 'c.png'" in refusal(root)
    left_out = open_corpus({"reader": "image-texts", "root": str(root), "missing": "skip"})
    assert left_out.skipped.to_pylist() == [{"item_id": "c.png", "reason": "no text file", "modality": "image"}]
    put({"c.txt": " \n"})
    assert "text files without text: c.txt" in refusal(root)
    put({"c.txt": "green", "d.txt": "gone"})
    assert "1 of its images are not in" in refusal(root)


def test_texts_of_several_lines_are_never_guessed(put: Put) -> None:
    root = put({"caption/a.txt": "red\npink\n", "caption/b.txt": "blue"}, "image/a.png", "image/b.png")
    message = refusal(root)
    assert '1 text files have several lines, the first caption/a.txt; write captions_in_file = "each"' in message
    each = open_corpus({"reader": "image-texts", "root": str(root), "captions_in_file": "each"})
    assert texts(each) == [("caption/a", "red"), ("caption/a", "pink"), ("caption/b", "blue")]
    one = open_corpus({"reader": "image-texts", "root": str(root), "captions_in_file": "one"})
    assert texts(one)[0] == ("caption/a", "red\npink")


def test_several_tables_are_listed_with_the_command_that_names_one(put: Put) -> None:
    table = "image,caption\na.png,red\n"
    root = put({"one.csv": table, "two.csv": table, "other.csv": "x,y\n1,2\n"}, "a.png")
    message = refusal(root)
    assert "several tables could be its captions: one.csv, two.csv; name one" in message
    assert f"`capim check {root / 'one.csv'}`" in message
    assert 'with reader = "table" and root = "one.csv"' in message
    put({"captions.csv": table})
    assert check_corpus(root).recognised == "a table, captions.csv"
    put({"metadata.jsonl": JSONL})
    assert "several tables could be its captions: captions.csv, metadata.jsonl" in refusal(root)


def test_a_table_in_annotations_names_images_of_the_whole_folder(put: Put) -> None:
    root = put({"annotations/captions.csv": "image,caption\na.png,red\n../images/b.png,blue\n"}, "images/a.png")
    put(None, "images/b.png")
    assert files(open_corpus(root)) == ["images/a.png", "images/b.png"]
    assert check_corpus(root).recognised == "a table, annotations/captions.csv"


def test_cocos_format_is_found_under_any_name(put: Put) -> None:
    caption = {"id": 2, "image_id": 1, "caption": "red"}
    coco = {"images": [{"id": 1, "file_name": "a.png"}], "annotations": [caption]}
    boxes = '{"images": [], "annotations": [], "categories": []}'
    root = put({"train.json": json.dumps(coco), "instances.json": boxes}, "deep/a.png")
    assert texts(open_corpus(root)) == [("1", "red")]
    put({"val.json": json.dumps(coco)})
    assert "several captions files in COCO's format: train.json, val.json; name one" in refusal(root)


def test_cocos_own_folders_are_read_by_the_captions_file_that_is_named(put: Put) -> None:
    def coco(image: int, **more: object) -> str:
        entry = {"id": image, "file_name": f"{image:012d}.jpg"}
        return json.dumps({"images": [entry], "annotations": [{"id": 7, "image_id": image, **more}], "categories": []})

    root = put({f"annotations/captions_{split}2017.json": coco(n, caption=split) for n, split in enumerate(("a", "b"))})
    put({f"annotations/instances_{split}2017.json": coco(9, category_id=1) for split in ("a", "b")})
    put({"annotations/instances_b2017.json": '{"images": [{"id": 1}], "annotations": [], "categories": []}'})
    put(None, "val2017/000000000000.jpg", "val2017/000000000001.jpg")
    message = refusal(root)
    assert "annotations/captions_a2017.json, annotations/captions_b2017.json; name one" in message
    corpus = open_corpus(root / "annotations" / "captions_b2017.json")
    assert (corpus.name, texts(corpus)) == ("captions_b2017", [("1", "b")])
    assert corpus.images["objects"].to_pylist() == [[]]


def test_images_under_rare_suffixes_are_read_and_those_in_other_formats_left_out_by_name(put: Put) -> None:
    check = check_corpus(put({"cat/3.HEIC": "ftypheic"}, "cat/1.ppm", "cat/2.png", "dog/1.avif"))
    assert (check.facts["images"], check.facts["classes"]) == (3, 2)
    assert "image cat/3.HEIC is left out: unknown image format (starts with b'ftypheic')" in check.warnings


def test_boxes_alone_and_an_image_in_no_class_are_named(put: Put) -> None:
    boxes = {"images": [], "annotations": [{"category_id": 1}]}
    root = put({"instances.json": json.dumps(boxes)}, "cat/1.png", "dog/1.png", "stray.png")
    assert f"instances.json has COCO's boxes, of labelled images (docs/labels.md): `capim check {root}" in refusal(root)
    (root / "instances.json").unlink()
    assert "as folders of classes (docs/labels.md), stray.png has none" in refusal(root)


def test_one_folder_of_images_without_captions_gets_an_error_with_what_is_missing(put: Put) -> None:
    message = refusal(put(None, "only/1.png", "only/2.png"))
    assert "has 2 images in the folders only, and no captions: write captions.csv" in message
    inner = put({"unzipped/captions.csv": "image,caption\na.png,red\n"}, "unzipped/a.png")
    assert f"the corpus may be a folder in it: {inner / 'unzipped'}" in refusal(inner)


def test_tar_shards_come_before_the_tables_that_img2dataset_writes_beside_them(put: Put) -> None:
    root = put({"00000.csv": "image,caption\nx,y\n", "00000_stats.json": "{}"})
    shard(root / "00000.tar", {"0.jpg": png("red"), "0.txt": b"red", "0.json": b"{}"})
    assert texts(open_corpus(root)) == [("0", "red")]
    assert check_corpus(root).recognised == "shards of webdataset, *.tar"


@pytest.mark.parametrize(("file", "image"), [("flickr30k_test.json", "{}.jpg"), ("coco_test.json", COCO_IMAGE)])
def test_the_captions_file_of_a_published_split_is_named_like_its_folder(put: Put, file: str, image: str) -> None:
    split = [{"image": image.format(n), "caption": [f"caption {n} {k}" for k in range(5)]} for n in range(2)]
    root = put({file: json.dumps(split)})
    alone, folder = check_corpus(root / file), check_corpus(root)
    assert (alone.name, alone.fingerprint) == (folder.name, folder.fingerprint)
    assert alone.name.startswith(file.partition("_")[0])
    assert alone.next_command.startswith("capim import ")
    put(None, *(f"pictures/{image.format(n)}" for n in range(2)))
    assert check_corpus(root / file).next_command.startswith("capim run ")
    assert check_corpus(root).next_command.startswith("capim run ")


def test_a_folder_that_is_called_like_a_published_corpus_is_pointed_at(
    put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(put({"urban1k/a.txt": "red"}, "urban1k/a.png"))
    assert "corpus 'urban1k' (the folder here is ./urban1k): missing option 'root'" in refusal("urban1k")


def _objects(n: int = 3, **more: object) -> list[dict[str, object]]:
    return [
        {"filename": f"{i}.png", "sentences": [{"raw": f"thing {i}"}, {"raw": f"it {i}"}], **more} for i in range(n)
    ]


def test_of_a_column_of_splits_the_test_split_is_read_and_another_on_request(put: Put) -> None:
    rows = [row for n, split in enumerate(("train", "test", "val")) for row in _objects(n + 1, split=split)]
    root = put({"dataset.json": json.dumps({"images": rows})}, "0.png", "1.png", "2.png")
    assert check_corpus(root).origin == f"{root / 'dataset.json'} (split test of train, test, val)"
    assert [text for _, text in texts(open_corpus(root))] == ["thing 0", "it 0", "thing 1", "it 1"]
    table = {"reader": "table", "root": str(root)}
    assert len(texts(open_corpus({**table, "split": "val"}))) == 6
    assert "no split 'dev'; it has train, test, val" in refusal({**table, "split": "dev"})
    put({"dataset.json": json.dumps(_objects())})
    assert "no column 'split' for split = 'test'; it has filename, sentences" in refusal({**table, "split": "test"})


def test_of_a_folder_without_a_corpus_json_files_and_those_not_read_are_named(put: Put) -> None:
    root = put({"captions.xlsx": "", "a.yaml": ""}, "0.png")
    assert "(a.yaml, captions.xlsx: not read; save it as a table of .csv, " in refusal(root)
    put({"share.json": json.dumps([{"image": "0.png", "conversations": []}]), "of.json": '{"a": 1}'})
    assert "share.json: no column for caption; it has image, conversations" in refusal(root)
    assert "of.json: expected a list of objects" in refusal(root)
    put({"share.json": json.dumps([{"image_1": "0.png", "image_2": "0.png", "caption_1": "a", "x" * 50: "b"}])})
    assert f"no column for image_0; it has image_1, image_2, caption_1, {'x' * 40}; name it" in refusal(root)
    (fault,) = (each for each in check_corpus(root, columns={"image_0": "image_2"}).faults if "share.json" in each)
    assert "no column for image_0" not in fault  # what the user named is not asked for again
    assert "no column for caption_0" in fault
    put({"image_splits/split.dress.val.json": "[]"})  # of FashionIQ; Multi30k has such a folder, too
    assert "no corpus found in it" in refusal(root)


def test_of_a_data_set_in_one_split_with_a_column_of_splits_the_test_rows_are_read(put: Put) -> None:
    """The hub's Flickr30k: one split, test, of 31,014 rows, and a column with train, val and test."""
    root = put({"notes.txt": "x"})
    rows = {"image": [png("red"), png("blue"), png("green")], "caption": ["a", "b", "c"]}
    publish(root, {**rows, "split": ["train", "test", "val"]}, split="test")
    corpus = open_corpus(root)
    assert texts(corpus) == [("image/1", "b")]
    assert corpus.origin.endswith("(split test of train, test, val)")


@pytest.mark.parametrize("names", [("en", "de", "pt-BR"), ("caption_en", "caption_de", "caption_pt-br")])
def test_a_column_for_each_language_holds_captions_in_it(put: Put, names: tuple[str, str, str]) -> None:
    texts_of = [("a 1", "ein 1", None), ("a 2", "ein 2", ["um", "outro"])]
    rows = [{"id": n, "image": f"{n}.png", **dict(zip(names, texts_of[n - 1], strict=True))} for n in (1, 2)]
    root = put({"captions.jsonl": "\n".join(map(json.dumps, rows))}, "1.png", "2.png")
    captions = open_corpus(root).captions.to_pylist()
    told = [(row["image_id"], row["language"], row["ordinal"], row["text"]) for row in captions]
    assert told == [
        ("1", "en", 0, "a 1"), ("1", "de", 0, "ein 1"), ("2", "en", 0, "a 2"), ("2", "de", 0, "ein 2"),
        ("2", "pt-BR", 0, "um"), ("2", "pt-BR", 1, "outro"),
    ]  # fmt: skip
    one = {"reader": "table", "root": str(root), "columns": {"caption": names[1]}, "language": "de"}
    assert [row["text"] for row in open_corpus(one).captions.to_pylist()] == ["ein 1", "ein 2"]
    rows.append({"id": 3, "image": "3.png", **dict.fromkeys(names)})
    put({"captions.jsonl": "\n".join(map(json.dumps, rows))}, "3.png")
    assert "captions.jsonl: rows without a caption in any language: row 3" in refusal(root)
    assert len(texts(open_corpus({"reader": "table", "root": str(root), "missing": "skip"}))) == 6
