"""A small local copy of every corpus, in the very formats in which the real ones are published."""

from __future__ import annotations

import gzip
import inspect
import json
from pathlib import Path
from typing import Any, NamedTuple

from capim.tasks.corpora import CORPORA
from capim.tasks.corpora.description import load_reader, open_corpus
from tests.corpora.own_data import csv_file, jpeg, json_lines, png, publish, shard, three_images, write

COCO_IDS = (391895, 60623, 483108)
COCO_2014 = [f"val2014/COCO_val2014_{i:012d}.jpg" for i in COCO_IDS]
VAL2017 = ["val2017/000000000007.jpg", "val2017/000000000008.jpg"]
SMALL = {  # generated corpora, of which a part is enough
    "shapes": {"n_scenes": 12},
    "shapes-winoground": {"n_quadruples": 12},
    "shapes-multilingual": {"n_scenes": 12},
    "shapes-labels": {"n_scenes": 20},
    "pages": {"n_reports": 3},
}


class Copy(NamedTuple):
    """A description that opens the copy, and what must come out."""

    description: dict[str, Any]
    n_images: int
    n_captions: int
    first: tuple[str, str]
    last: tuple[str, str]
    n_pairs: int = 0
    n_quadruples: int = 0


def opened(reader: str, root: Path, **options: Any) -> dict[str, Any]:
    """The description of a copy, with its folder of images within the root."""
    folders = options.pop("images", None)
    if folders is not None:
        options["images"] = [str(root / each) for each in folders] if isinstance(folders, list) else str(root / folders)
    return {"reader": reader, "root": str(root), **options}


def images(*names: str) -> dict[str, None]:
    return dict.fromkeys(names)


def coco_karpathy(root: Path) -> Copy:
    split = [
        {
            "filepath": "val2014",
            "filename": Path(name).name,
            "split": split,
            "cocoid": i,
            "sentids": [10 * k, 10 * k + 1],
            "sentences": [{"raw": f"caption {c} of {i}", "sentid": 10 * k + c} for c in range(2)],
        }
        for k, (i, name, split) in enumerate(zip(COCO_IDS, COCO_2014, ("test", "restval", "test"), strict=True))
    ]
    write(root, {**images(*COCO_2014), "dataset_coco.json": json.dumps({"images": split, "dataset": "coco"})})
    first, last = ("391895#0", "caption 0 of 391895"), ("483108#1", "caption 1 of 483108")
    return Copy(opened("coco-karpathy", root, images="."), 2, 4, first, last)


def flickr30k_karpathy(root: Path) -> Copy:
    entries = [{"image": f"flickr30k-images/{k}.jpg", "caption": [f"{k} {c}" for c in range(5)]} for k in (11, 12)]
    write(root, {**images("images/11.jpg", "images/12.jpg"), "flickr30k_test.json": json.dumps(entries)})
    return Copy(opened("flickr30k-karpathy", root, images="images"), 2, 10, ("11#0", "11 0"), ("12#4", "12 4"))


def winoground(root: Path, n: int = 2) -> Copy:
    sides = [(k, side) for k in range(n) for side in range(2)]
    examples = [
        {
            "id": k,
            **{f"image_{side}": f"ex_{k}_img_{side}" for side in range(2)},
            "caption_0": f"{k} old",
            "caption_1": f"old {k}",
            "tag": "Noun, Adjective",
            "secondary_tag": "Pragmatics" if k else "",
            "num_main_preds": 1 + k % 2,
            "collapsed_tag": "Object",
        }
        for k in range(n)
    ]
    json_lines(root / "examples.jsonl", examples)
    pictures = {f"images/ex_{k}_img_{side}.png": png((90 * k % 256, 90 * side, 9)) for k, side in sides}
    write(root, {"tags.json": json.dumps({"0": ["Unusual Image"], "1": []}), **pictures})
    description = opened("winoground", root, tags=str(root / "tags.json"))
    return Copy(description, 2 * n, 2 * n, ("0/0", "0 old"), (f"{n - 1}/1", f"old {n - 1}"), n_quadruples=n)


def bivlc(root: Path) -> Copy:
    texts = {"caption": ["a red bus", "two dogs"], "negative_caption": ["a blue bus", "two cats"]}
    pictures = {"image": [jpeg(0), jpeg(1)], "negative_image": [jpeg(2), jpeg(3)]}
    publish(root, {**texts, **pictures, "type": ["replace", "swap"], "subtype": ["att", "obj"]})
    return Copy(opened("bivlc", root), 4, 4, ("0/0", "a red bus"), ("1/1", "two cats"), n_quadruples=2)


def mmvp_vlm(root: Path) -> Copy:
    questions = [
        *(("1", "Camera Perspective", "from above"), ("2", "Camera Perspective", "from below")),
        *(("3", "Color", "red"), ("4", "Color", 'blue, not "red"')),
    ]
    write(root, images(*(f"MLLM_VLM Images/{pattern}/{number}.jpg" for number, pattern, _ in questions)))
    columns = ("Question ID", "Type", "Statement")
    csv_file(root / "Questions.csv", *(dict(zip(columns, row, strict=True)) for row in questions))
    first, last = ("1-2/0", "a photo of from above"), ("3-4/1", 'a photo of blue, not "red"')
    return Copy(opened("mmvp-vlm", root), 4, 4, first, last, n_quadruples=2)


def sugarcrepe(root: Path) -> Copy:
    for category in CORPORA["sugarcrepe"].table["categories"]:
        items = {
            str(n): {"filename": f"{n + 7:012d}.jpg", "caption": f"{category} {n}", "negative_caption": f"not {n}"}
            for n in range(2)
        }
        write(root, {**images(*VAL2017), f"{category}.json": json.dumps(items)})
    first, last = ("add_att/0", "add_att 0"), ("swap_obj/1/negative", "not 1")
    return Copy(opened("sugarcrepe", root, images="val2017"), 2, 28, first, last, n_pairs=14)


def sugarcrepe_pp(root: Path) -> Copy:
    for category in CORPORA["sugarcrepe-pp"].table["categories"]:
        texts = {"caption": f"{category} {{}}", "caption2": f"{{}} {category}", "negative_caption": "not {}"}
        items = [
            {"id": n, "filename": f"{n + 7:012d}.jpg", **{name: text.format(n) for name, text in texts.items()}}
            for n in range(2)
        ]
        write(root, {**images(*VAL2017), f"{category}.json": json.dumps(items)})
    first, last = ("replace_att/0", "replace_att 0"), ("swap_obj/1/negative", "not 1")
    return Copy(opened("sugarcrepe-pp", root, images="val2017"), 2, 30, first, last, n_pairs=20)


def aro(root: Path) -> Copy:
    items = [
        {"image_path": "1.jpg", "bbox_x": 2 * k, "bbox_y": 1, "bbox_w": 8, "bbox_h": 6, "relation_name": "behind"}
        | {"true_caption": f"the dog {k} is behind the tree", "false_caption": f"the tree is behind the dog {k}"}
        for k in range(3)
    ]
    write(root, {**images("images/1.jpg"), "visual_genome_relation.json": json.dumps(items)})
    first, last = ("0", "the dog 0 is behind the tree"), ("2/negative-0", "the tree is behind the dog 2")
    return Copy(opened("aro", root, part="relation"), 3, 6, first, last, n_pairs=3)


def crepe(root: Path) -> Copy:
    name = "prod_vg_hard_negs_atom_complexity_4"
    box = {"y": 0, "width": 10, "height": 8}
    rows = [
        {"": k, "image_id": "5.0", "x": k, **box, "caption": f"cat {k}", "hard_negs": repr([f"dog {k}", f"it's {k}"])}
        for k in range(2)
    ]
    write(root, images("VG_100K_2/5.jpg"))
    csv_file(root / "prod" / "atom" / f"{name}.csv", *rows)
    first, last = (f"{name}/0", "cat 0"), (f"{name}/1/negative-1", "it's 1")
    return Copy(opened("crepe", root, images="."), 2, 6, first, last, n_pairs=4)


def negbench(root: Path) -> Copy:
    rows = [
        {
            "correct_answer": k % 2,
            **{f"caption_{n}": f"question {k}, option {n}" for n in range(4)},
            "correct_answer_template": template,
            "image_path": f"/data/coco/images/{VAL2017[k % 2]}",
        }
        for k, template in enumerate(("positive", "negative", "hybrid"))
    ]
    write(root, images(*VAL2017))
    csv_file(root / "COCO_val_mcq_llama3.1_rephrased.csv", *rows)
    first, last = ("0", "question 0, option 0"), ("2/negative-2", "question 2, option 3")
    return Copy(opened("negbench", root, images="val2017"), 2, 12, first, last, n_pairs=9)


def coco_sm(root: Path) -> Copy:
    def captions(language: str, system: str) -> list[str]:
        return [f"{language} {'' if language == 'en' else system} {c}" for c in range(5)]

    names = [Path(name).name for name in COCO_2014]
    for system in ("google", "bing", "nllb"):
        meta = {
            language: [{"filename": name, "captions": captions(language, system)} for name in names[:2]]
            for language in CORPORA["coco-sm"].languages
        }
        write(root, {f"meta/{system}.json": json.dumps(meta)})
    mapping = {"image2text": {str(i): [5 * i + c for c in range(5)] for i in range(2)}}
    lists: dict[str, str] = {"meta/excluded.txt": names[2] + "\n", "meta/id_mapping.json": json.dumps(mapping)}
    write(root, {**images(*COCO_2014[:2]), **lists})
    first, last = ("391895#en-google-0", "en  0"), ("60623#zh-nllb-4", "zh nllb 4")
    return Copy(opened("coco-sm", root, images="val2014"), 2, 63 * 2 * 5, first, last)


def xflickrco(root: Path) -> Copy:
    names = [("1007129816", "1007129816.jpg"), (391895, "COCO_val2014_000000391895.jpg")]
    for language in CORPORA["xflickrco"].languages:
        rows = [{"sentences": [f"{language} {i}"], "id": i, "img_path": name} for i, name in names]
        json_lines(root / f"{language}.jsonl", rows)
    write(root, images("flickr/1007129816.jpg", "coco/000000391895.jpg"))
    first, last = ("1007129816#en-0", "en 1007129816"), ("391895#zh-0", "zh 391895")
    return Copy(opened("xflickrco", root, images=["flickr", "coco"]), 2, 16, first, last)


def xtd10(root: Path) -> Copy:
    for folder, languages in (("XTD10", "en es it ko pl ru tr zh"), ("MIC", "de en fr"), ("STAIR", "jp")):
        files = {f"{folder}/test_1kcaptions_{each}.txt": f"{each} 0\n{each} 1\n" for each in languages.split()}
        write(root, {**files})
    names = [f"COCO_train2014_{i:012d}.jpg" for i in (5, 9)]
    listed = "\n".join(names) + "\n"
    write(root, {**images(*(f"images/{name}" for name in names)), "XTD10/test_image_names.txt": listed})
    return Copy(opened("xtd10", root, images="images"), 2, 22, ("5#en-0", "en 0"), ("9#zh-0", "zh 1"))


def crossmodal3600(root: Path) -> Copy:
    languages = CORPORA["crossmodal3600"].languages
    entries = [
        {"image/key": key, **{each: {"caption": [f"{each} {key} {c}" for c in range(2)]} for each in languages}}
        for key in ("00a1", "00b2")
    ]
    write(root, images("images/00a1.jpg", "images/00b2.jpg"))
    json_lines(root / "captions.jsonl", entries)
    return Copy(opened("crossmodal3600", root), 2, 144, ("00a1#en-0", "en 00a1 0"), ("00b2#zh-1", "zh 00b2 1"))


def multi30k(root: Path) -> Copy:
    base = root / "data" / "task1"
    write(base, {"image_splits/test_2016_flickr.txt": "17.jpg\n18.jpg\n"})
    for language in ("en", "de", "fr", "cs"):
        lines = gzip.compress(f"{language} 17\n{language} 18\n".encode())
        write(base, {f"raw/test_2016_flickr.{language}.gz": lines})
    write(root, images("flickr30k-images/17.jpg", "flickr30k-images/18.jpg"))
    return Copy(opened("multi30k", root, images="flickr30k-images"), 2, 8, ("17#en-0", "en 17"), ("18#cs-0", "cs 18"))


def write_shards(folder: Path, pattern: str = "{}.tar") -> None:
    for number in range(2):
        members: dict[str, bytes] = {}
        for i in (2 * number, 2 * number + 1):
            listed = json.dumps({"caption": [f"one {i}", f"two {i}"]}).encode()
            members |= {f"{i:05d}.jpg": jpeg(i), f"{i:05d}.txt": f"caption {i}".encode(), f"{i:05d}.json": listed}
        shard(folder / pattern.format(f"{number:04d}"), members)


def cc3m(root: Path) -> Copy:
    write_shards(root, "cc3m-validation-{}.tar")
    return Copy(opened("cc3m", root), 4, 4, ("00000#0", "caption 0"), ("00003#0", "caption 3"))


def webdataset(root: Path) -> Copy:
    write_shards(root)
    return Copy(opened("webdataset", root, caption="json"), 4, 8, ("00000#0", "one 0"), ("00003#1", "two 3"))


def urban1k(root: Path) -> Copy:
    write(root, images("image/2.jpg", "image/10.jpg"))
    write(root, {f"caption/{number}.txt": f"\n A long street {number}. \nA second line.\n" for number in (2, 10)})
    return Copy(opened("urban1k", root), 2, 2, ("2#en-0", "A long street 2."), ("10#en-0", "A long street 10."))


def docci(root: Path) -> Copy:
    rows = [
        {"example_id": name, "split": name[:-6], "image_file": f"{name}.jpg", "description": f"An indoor view: {name}."}
        for name in ("train_00000", "test_00000", "test_00001", "qual_dev_00000")
    ]
    write(root, images("images/test_00000.jpg", "images/test_00001.jpg"))
    json_lines(root / "docci_descriptions.jsonlines", rows)
    first, last = ("test_00000#en-0", "An indoor view: test_00000."), ("test_00001#en-0", "An indoor view: test_00001.")
    return Copy(opened("docci", root), 2, 2, first, last)


def coco_captions(root: Path) -> Copy:
    return Copy(opened("coco-captions", three_images(root)), 3, 6, ("100", "red 0"), ("112", "blue 1"))


def table(root: Path) -> Copy:
    rows = 'image,caption\na.jpg,"red, and more"\na.jpg,blue\nb.jpg,green\n'
    write(root, {**images("images/a.jpg", "images/b.jpg"), "captions.csv": rows})
    return Copy(opened("table", root), 2, 3, ("row1", "red, and more"), ("row3", "green"))


def image_texts(root: Path) -> Copy:
    write(root, {**images("a.jpg", "deep/b.jpg"), "a.txt": "red, and more\n", "deep/b.txt": "blue\n"})
    return Copy(opened("image-texts", root), 2, 2, ("a#0", "red, and more"), ("deep/b#0", "blue"))


def labels(root: Path) -> Copy:
    write(root, images("owl/1.jpg", "red_fox/1.jpg", "red_fox/2.jpg"))
    return Copy(opened("labels", root), 3, 2, ("owl#0", "a photo of a owl."), ("red_fox#0", "a photo of a red fox."))


def image_queries(root: Path) -> Copy:
    rows = 'reference,caption,target\na.jpg,"red, and more",b.jpg\nb.jpg,blue,c.jpg\n'
    write(root, {**images("a.jpg", "b.jpg", "c.jpg"), "texts.csv": rows})
    description = {"reader": "image-queries", "root": str(root / "texts.csv")}
    return Copy(description, 3, 2, ("0", "red, and more"), ("1", "blue"))


def hub(root: Path) -> Copy:
    dataset = publish(root, {"photo": [jpeg(0), jpeg(1)], "caption": ["red", "blue"]})
    description = {"reader": "hub", "dataset": dataset, "columns": {"image": "photo"}}
    return Copy(description, 2, 2, ("row1", "red"), ("row2", "blue"))


def judged(root: Path) -> Copy:
    queries = "id\ttext\nq0\twhat is red\nq1\twhat is blue\n"
    qrels = "query-id\tcorpus-id\tscore\nq0\tp0\t2\nq0\tp1\t1\nq1\tp2\t1\n"
    write(root, {**images(*(f"images/p{n}.jpg" for n in range(3))), "queries.tsv": queries, "qrels.tsv": qrels})
    description = {"reader": "judged", "dataset": str(root)}
    return Copy(description, 3, 2, ("q0", "what is red"), ("q1", "what is blue"))


def _as_made(description: dict[str, Any]) -> Copy:
    """A generated corpus has no published rows to pin: tests/corpora/readers/test_rendered.py does that."""
    corpus = open_corpus(description)
    first, *_, last = ((row["id"], row["text"]) for row in corpus.captions.to_pylist())
    counts = [table.num_rows for table in (corpus.images, corpus.captions, corpus.pairs, corpus.quadruples)]
    return Copy(description, counts[0], counts[1], first, last, counts[2], counts[3])


def copy_of(name: str, root: Path) -> Copy | None:
    """The local copy of a corpus: by the function here that has its name; for a generated corpus what is generated.

    None if it needs files and no function here writes them.
    """
    if make := globals().get(name.replace("-", "_")):
        copy: Copy = make(root)
        return copy
    files = any(p.default is p.empty for p in inspect.signature(load_reader(name)).parameters.values())
    return None if files or CORPORA[name].hub else _as_made({"reader": name, **SMALL.get(name, {})})
