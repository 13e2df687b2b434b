# ruff: noqa: E501 - a table of one line a form
"""Forms of data in public repositories and data cards: each is read as a careful person would, or refused with the way."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from capim.store.forms import Columns
from capim.tasks.corpora.check import CorpusCheck, check_corpus

NAMES = [f"{n}.png" for n in (11, 12, 13)]
TEXTS = ["a dog asleep", "two red mugs", "a boat at sea"]
PAIRS = list(zip(NAMES, TEXTS, strict=True))
ROWS = [{"image": name, "caption": text} for name, text in PAIRS]


class Stranger(NamedTuple):
    """Files beside three images, which one is checked, and what the check says of it.

    Attributes:
        files: Name -> text, or columns of a Parquet file.
        at: The file that is checked; the folder unless given.
        says: A text of the check.
        captions: Number of captions; 0 if the file is refused.
    """

    files: Mapping[str, str | Mapping[str, list[object]]]
    says: str
    captions: int = 0
    at: str = ""


def lines(rows: Sequence[Mapping[str, object]]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def csv(header: str, *rows: str) -> str:
    return "\n".join((header, *rows, ""))


QRELS = "query-id\tcorpus-id\tscore\n" + "".join(f"q{n}\t{name[:-4]}\t1\n" for n, name in enumerate(NAMES))
IMAGES = [{"id": n, "file_name": name} for n, name in enumerate(NAMES)]
CLASSES = [{"id": n, "name": name} for n, name in enumerate(("cat", "dog"))]
BOXES = json.dumps(
    {
        "images": IMAGES,
        "categories": CLASSES,
        "annotations": [{"id": n, "image_id": n, "category_id": n % 2, "bbox": [0, 0, 1, 1]} for n in range(3)],
    }
)
NOTES = [{"image_id": n, "id": 10 + n, "caption": text, "is_rejected": n == 1} for n, text in enumerate(TEXTS)]

STRANGERS = {
    "JSON lines named .json": Stranger({"captions.json": lines(ROWS)}, "columns read: image, caption", 3),
    "DOCCI's .jsonlines": Stranger({"d.jsonlines": lines(ROWS)}, "columns read: image, caption", 3, "d.jsonlines"),
    "captions by names without suffix": Stranger({"d.json": json.dumps({name[:-4]: [text] for name, text in PAIRS})}, "no column for image; it has key, caption", at="d.json"),
    "kohya's meta_cap.json": Stranger({"m.json": json.dumps({name[:-4]: {"caption": text} for name, text in PAIRS})}, "no column for image; it has key, caption", at="m.json"),
    "pandas' columns": Stranger({"d.json": json.dumps({"image": dict(enumerate(NAMES)), "caption": dict(enumerate(TEXTS))})}, 'to_json(FILE, orient="records")', at="d.json"),
    "COCO-CN's numbered names": Stranger({"c.txt": "".join(f"{name[:-4]}#0\t一个人站在那里\n" for name in NAMES)}, "columns read: image, caption, ordinal", 3, "c.txt"),
    "ROCO without a header": Stranger({"captions.txt": "".join(f"R{name[:-4]}\t{text}\n" for name, text in PAIRS)}, "write a line with the names of its columns above the rows", at="captions.txt"),
    "a comment above the header": Stranger({"captions.csv": csv("# ours", "image,caption", *map(",".join, PAIRS))}, "the names of columns into the first line"),
    "Shopify's products": Stranger({"p.csv": csv("Title,Image Src", "a mug,https://cdn.example/1.jpg")}, "'Image Src' holds addresses: download the images first", at="p.csv"),
    "Conceptual Captions": Stranger({"cc.tsv": csv("caption\timage", "a mug\thttps://cdn.example/1.jpg")}, "these are addresses: download the images first", at="cc.tsv"),
    "images in an archive": Stranger({"c.csv": csv("image,caption", "1.jpg,a mug"), "images.zip": "PK"}, "unpack images.zip first", at="c.csv"),
    "Label Studio's tasks": Stranger({"t.json": json.dumps([{"id": 1, "data": {"image": "/data/upload/1/1.jpg"}}])}, "'data' holds objects: write their fields as columns", at="t.json"),
    "Label Studio's paths": Stranger({"t.csv": csv("image,caption", "/data/upload/1/ab-11.png,a dog")}, "no image in it has the last part as its name", at="t.csv"),
    "several images in a cell": Stranger({"m.csv": csv("image,caption", """"['11.png','12.png']",two views""")}, "rows with several images, which are judgements", at="m.csv"),
    "FashionIQ": Stranger({"cap.dress.val.json": json.dumps([{"target": NAMES[1], "candidate": NAMES[0], "captions": ["is red", "is long"]}])}, "1 images of the folder are in no row read, first '13.png'; gallery = FILE.json names", 1, "cap.dress.val.json"),
    "CIRR": Stranger({"cap.rc2.val.json": json.dumps([{"pairid": 1, "reference": NAMES[0], "target_hard": NAMES[1], "caption": "is red", "img_set": {"members": NAMES}}])}, "images with texts that change them", 1, "cap.rc2.val.json"),
    "CIRCO": Stranger({"val.json": json.dumps([{"id": 1, "reference_img_id": 11, "gt_img_ids": [12], "relative_caption": "is red"}])}, "images with texts that change them", 1, "val.json"),
    "MS MARCO's files of a split": Stranger({"queries.dev.tsv": "".join(f"{n}\t{text}\n" for n, text in enumerate(TEXTS)), "qrels.dev.tsv": "".join(f"{n}\t0\t{name[:-4]}\t1\n" for n, name in enumerate(NAMES))}, "recognised: queries, documents and judgements", 3),
    "mteb's shards beside each other": Stranger({"corpus-00000-of-00001.parquet": {"id": [name[:-4] for name in NAMES], "image": [*NAMES]}, "query-00000-of-00001.parquet": {"id": ["q0", "q1", "q2"], "text": [*TEXTS]}, "qrels-00000-of-00001.parquet": {"query-id": ["q0", "q1", "q2"], "corpus-id": [name[:-4] for name in NAMES], "score": [1, 1, 1]}}, "judgements: 3", 3),
    "mteb's queries that are images": Stranger({"corpus.jsonl": lines([{"_id": name[:-4], "text": "a page"} for name in NAMES]), "queries.jsonl": lines([{"_id": "q0", "image": "11.png"}]), "qrels.tsv": QRELS}, "of images that search images: docs/labels.md"),
    "BEIR's judgements of other queries": Stranger({"corpus.jsonl": lines([{"_id": name[:-4]} for name in NAMES]), "queries.jsonl": lines([{"_id": f"q{n}", "text": TEXTS[n]} for n in (0, 1)]), "qrels.tsv": QRELS}, "1 judgements of queries without a row are left out, first 'q2'", 2),
    "VizWiz's rejected captions": Stranger({"val.json": json.dumps({"images": IMAGES, "annotations": NOTES})}, "column 'is_rejected' is not read, but looks like grades of relevance or confidence", 3, "val.json"),
    "Roboflow's lines in a split": Stranger({"train/_annotations.train.jsonl": lines([{"image": "11.png", "prefix": "caption", "suffix": "a dog"}])}, 'root = "train/_annotations.train.jsonl"'),
    "NumPy's lists as texts": Stranger({"captions.csv": csv("image,captions", *(f"{name},\"['{text}'\n 'also {text}']\"" for name, text in PAIRS))}, "captions per image: 2: 3", 6),
    "objects with a language each": Stranger({"c.jsonl": lines([{"image": name, "captions": [{"text": text, "lang": "en"}, {"text": text, "lang": "de"}]} for name, text in PAIRS])}, "objects: column 'lang' is not read, but looks like languages (en, de)", 6, "c.jsonl"),
    "Crossmodal-3600's rows": Stranger({"rows.jsonl": lines([{"image/key": "11", "image/locale": "en", "en": {"caption": ["a", "b"]}, "de": {"caption": ["ein"]}}])}, "languages: de: 1, en: 2", 3),
    "HF's translations": Stranger({"c.jsonl": lines([{"image": name, "caption": {"en": text}} for name, text in PAIRS])}, "rows where caption is an object: write its fields as columns: row 1 ({'en': 'a dog asleep", at="c.jsonl"),
    "numbers beside the names of files": Stranger({"c.csv": csv("image,path,caption", *(f"{24 - int(name[:-4])},{name},{text}" for name, text in PAIRS))}, "columns read: path, caption; not read: image", 3, "c.csv"),
    "captions between bars": Stranger({"captions.csv": csv("image,caption", *(f"{name},{text}|{text} at noon" for name, text in PAIRS))}, "3 of 3 texts look like several, and each is read as one caption, first 'a dog asleep|a dog asleep at noon'", 3),
    "Prodigy's answers": Stranger({"c.jsonl": lines([{**row, "answer": ("accept", "reject", "ignore")[n]} for n, row in enumerate(ROWS)])}, "column 'answer' is not read, but looks like grades", 3, "c.jsonl"),
    "folds": Stranger({"captions.csv": csv("image,caption,fold", *(f"{name},{text},{n % 2}" for n, (name, text) in enumerate(PAIRS)))}, "column 'fold' is not read, but looks like splits (0, 1)", 3),
    "ESCI's letters": Stranger({"e.csv": csv("query,image,esci_label", *(f"{text},{name},{letter}" for (name, text), letter in zip(PAIRS, "ESI", strict=True)))}, "column 'esci_label' is not read, but looks like grades", 3, "e.csv"),
    "two columns of usual names": Stranger({"c.csv": csv("image,text,description", *(f"{name},STOP {n},{text}" for n, (name, text) in enumerate(PAIRS)))}, "column 'description' is not read, but looks like captions", 3, "c.csv"),
    "wrong captions in a list": Stranger({"c.jsonl": lines([{**row, "negative_caption": ["a cat", "a car"]} for row in ROWS])}, "pairs: all: 6", 9, "c.jsonl"),
    "labels between bars": Stranger({"l.csv": csv("image,label", "11.png,Edema|Effusion", "12.png,No Finding", "13.png,No Finding")}, 'separator = "|"', 2, "l.csv"),
    "distances of images": Stranger({"s.csv": csv("image1,image2,distance", "11.png,12.png,0.5")}, "(--columns score=…); its first row"),
    "addresses with parts that are no name": Stranger({"c.csv": csv("image,caption", *(f"https://cdn.example/a%20b/{name}?w=100,{text}" for name, text in PAIRS))}, "captions per image: 1: 3", 3, "c.csv"),
    "names with blanks around them": Stranger({"c.csv": csv("image,caption", *(f"{name} ,{text}" for name, text in PAIRS))}, "captions per image: 1: 3", 3, "c.csv"),
    "a table beside a folder of its name": Stranger({"photos.csv": csv("image,caption", *map(",".join, PAIRS)), "photos/note.md": "ours"}, "recognised: a table, photos.csv", 3),
    "parts of a table": Stranger({f"part-{n:05}.csv": csv("image,caption", ",".join(PAIRS[n])) for n in range(3)}, "if they are parts of one table, join them"),
    "ids of another table": Stranger({"captions.csv": csv("image_id,caption", *(f"{24 - int(name[:-4])},{text}" for name, text in PAIRS)), "images.csv": csv("id,file_name", *(f"{24 - int(name[:-4])},{name}" for name, _ in PAIRS))}, "image_id '13' is an id in images.csv, which has the name of its file, '11.png'"),
    "numbers that are names, in two tables": Stranger({"captions.csv": csv("image_id,caption", *(f"{name[:-4]},{text}" for name, text in PAIRS)), "images.csv": csv("id,file_name", *(f"{name[:-4]},{name}" for name, _ in PAIRS))}, "columns read: image_id, caption", 3, "captions.csv"),
    "two lists in an object": Stranger({"d.json": json.dumps({"images": IMAGES, "captions": ROWS})}, "it has the lists images, captions", at="d.json"),
    "RSICD, in Karpathy's form": Stranger({"dataset_rsicd.json": json.dumps({"images": [{"filename": name, "sentences": [{"raw": text}, {"raw": "it"}]} for name, text in PAIRS], "dataset": "RSICD"})}, "recognised: a table, dataset_rsicd.json", 6),
    "TextCaps": Stranger({"TextCaps_val.json": json.dumps({"data": [{"image_id": name[:-4], "caption_str": text} for name, text in PAIRS]})}, "recognised: a table, TextCaps_val.json", 3),
    "Flickr30k's lists in cells": Stranger({"annotations_30k.csv": csv("raw,sentids,filename", '"[""thing 0"", ""it 0""]","[1, 2]",11.png')}, "recognised: a table, annotations_30k.csv", 2),
    "SugarCrepe's form, under another name": Stranger({"swap.json": json.dumps({n: {"filename": name, "caption": text, "negative_caption": "b"} for n, (name, text) in enumerate(PAIRS)})}, "recognised: a table, swap.json", 6),
    "texts by names of images": Stranger({"by_name.json": json.dumps({name: {"text": text} for name, text in PAIRS})}, "recognised: a table, by_name.json", 3),
    "COCO's boxes, under another name": Stranger({"_annotations.coco.json": BOXES}, "recognised: labelled images, by COCO's boxes", 2),
    "COCO's boxes, named": Stranger({"b.json": BOXES}, "recognised: labelled images, by COCO's boxes", 2, "b.json"),
    "pandas' nan as a text": Stranger({"captions.csv": csv("image,caption", "11.png,nan", "12.png,two mugs", "13.png,a boat")}, "1 captions are empty, or nan, none or null", 3),
}  # fmt: skip


def checked(folder: Path, stranger: Stranger, columns: Columns | None = None) -> CorpusCheck:
    """The check of a stranger's files, in a folder with three images."""
    for n, name in enumerate(NAMES):
        Image.new("RGB", (4, 4), (60 * n, 20, 90)).save(folder / name)
    for name, content in stranger.files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        if isinstance(content, str):
            (folder / name).write_text(content, encoding="utf-8")
        else:
            pq.write_table(pa.table(dict(content)), folder / name)
    return check_corpus(folder / stranger.at, columns=columns or {})


@pytest.mark.parametrize("name", STRANGERS)
def test_every_form_is_read_or_refused_with_the_way(name: str, tmp_path: Path) -> None:
    stranger = STRANGERS[name]
    check = checked(tmp_path, stranger)
    assert stranger.says in "\n".join(check.lines())
    assert check.ok == bool(stranger.captions)
    assert check.facts.get("captions", 0) == stranger.captions


@pytest.mark.parametrize("name", ["captions by names without suffix", "kohya's meta_cap.json"])
def test_names_without_suffix_are_images_where_the_user_says_so(name: str, tmp_path: Path) -> None:
    check = checked(tmp_path, STRANGERS[name], {"image": "key"})
    assert (check.ok, check.facts["captions"]) == (True, 3)


def test_a_language_of_three_letters_is_read_where_the_user_names_it_or_a_published_corpus_has_it(
    tmp_path: Path,
) -> None:
    table = csv("image,en,de,fil,ceb", *(f"{n}.png,a dog {n},ein Hund {n},isang aso {n},usa {n}" for n in (11, 12, 13)))
    check = checked(tmp_path, Stranger({"captions.csv": table}, ""))
    assert check.facts["languages"] == {"de": 3, "en": 3, "fil": 3}
    check = checked(tmp_path, Stranger({"captions.csv": table}, ""), {"caption_en": "en", "caption_ceb": "ceb"})
    assert check.facts["languages"] == {"ceb": 3, "en": 3}


def test_captions_in_columns_of_two_languages_are_a_warning_also_if_only_one_is_named(tmp_path: Path) -> None:
    table = csv("image,caption,caption_de", *(f"{name},{text},ein Bild" for name, text in PAIRS))
    check = checked(tmp_path, Stranger({"captions.csv": table}, ""), {"caption": ["caption", "caption_de"]})
    assert 'columns.caption_de = "caption_de"' in "\n".join(check.lines())
