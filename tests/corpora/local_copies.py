"""A small local copy of every corpus, in the very formats in which the real ones are published."""

from __future__ import annotations

import csv
import gzip
import inspect
import io
import json
import tarfile
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from capim.tasks.corpora import CORPORA, open_corpus
from capim.tasks.corpora.description import load_reader

COLOURS = ("red", "green", "blue", "navy", "olive")


def png(colour: str, size: tuple[int, int] = (12, 10)) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, colour).save(buffer, format="PNG")
    return buffer.getvalue()


def jpeg(index: int, size: tuple[int, int] = (24, 20)) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, (index * 40 % 256, 90, 200 - index * 30 % 200)).save(buffer, format="JPEG")
    return buffer.getvalue()


def write_images(folder: Path, names: list[str]) -> Path:
    for index, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(index))
    return folder


class Copy(NamedTuple):
    """A description that opens the copy, and what must come out."""

    description: dict[str, Any]
    n_images: int
    n_captions: int
    first: tuple[str, str]
    last: tuple[str, str]
    n_pairs: int = 0
    n_quadruples: int = 0


COCO_IDS = (391895, 60623, 483108)
COCO_2014 = [f"val2014/COCO_val2014_{i:012d}.jpg" for i in COCO_IDS]


def coco_karpathy(root: Path) -> Copy:
    images = [
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
    root.mkdir()
    (root / "dataset_coco.json").write_text(json.dumps({"images": images, "dataset": "coco"}))
    write_images(root, COCO_2014)
    description = {"reader": "coco-karpathy", "root": str(root), "images": str(root)}
    return Copy(description, 2, 4, ("391895#0", "caption 0 of 391895"), ("483108#1", "caption 1 of 483108"))


def flickr30k_karpathy(root: Path) -> Copy:
    entries = [{"image": f"flickr30k-images/{k}.jpg", "caption": [f"{k} {c}" for c in range(5)]} for k in (11, 12)]
    root.mkdir()
    (root / "flickr30k_test.json").write_text(json.dumps(entries))
    write_images(root / "images", ["11.jpg", "12.jpg"])
    description = {"reader": "flickr30k-karpathy", "root": str(root), "images": str(root / "images")}
    return Copy(description, 2, 10, ("11#0", "11 0"), ("12#4", "12 4"))


def winoground(root: Path) -> Copy:
    examples = [
        {
            "id": k,
            "image_0": f"ex_{k}_img_0",
            "image_1": f"ex_{k}_img_1",
            "caption_0": f"{k} old",
            "caption_1": f"old {k}",
            "tag": "Noun, Adjective",
            "secondary_tag": "Pragmatics" if k else "",
            "num_main_preds": 1 + k,
            "collapsed_tag": "Object",
        }
        for k in range(2)
    ]
    (root / "images").mkdir(parents=True)
    (root / "examples.jsonl").write_text("\n".join(map(json.dumps, examples)) + "\n")
    for index, (k, side) in enumerate((k, side) for k in range(2) for side in range(2)):
        (root / "images" / f"ex_{k}_img_{side}.png").write_bytes(png(COLOURS[index]))
    (root / "tags.json").write_text(json.dumps({"0": ["Unusual Image"], "1": []}))
    description = {"reader": "winoground", "root": str(root), "tags": str(root / "tags.json")}
    return Copy(description, 4, 4, ("0/0", "0 old"), ("1/1", "old 1"), n_quadruples=2)


def bivlc(root: Path) -> Copy:
    import datasets

    pictures, text = datasets.Image(), datasets.Value("string")
    features = {"image": pictures, "caption": text, "negative_caption": text, "negative_image": pictures}
    cells = {
        "image": [{"bytes": jpeg(k), "path": None} for k in range(2)],
        "caption": ["a red bus", "two dogs"],
        "negative_caption": ["a blue bus", "two cats"],
        "negative_image": [{"bytes": jpeg(k), "path": None} for k in range(2, 4)],
        "type": ["replace", "swap"],
        "subtype": ["att", "obj"],
    }
    (root / "data").mkdir(parents=True)
    table = datasets.Dataset.from_dict(cells, features=datasets.Features({**features, "type": text, "subtype": text}))
    table.to_parquet(root / "data" / "test-00000-of-00001.parquet")
    description = {"reader": "bivlc", "root": str(root)}
    return Copy(description, 4, 4, ("0/0", "a red bus"), ("1/1", "two cats"), n_quadruples=2)


def mmvp_vlm(root: Path) -> Copy:
    questions = [(1, "Camera Perspective", "from above"), (2, "Camera Perspective", "from below"), (3, "Color", "red")]
    questions.append((4, "Color", 'blue, not "red"'))
    write_images(root / "MLLM_VLM Images", [f"{pattern}/{number}.jpg" for number, pattern, _ in questions])
    with (root / "Questions.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("Question ID", "Type", "Statement"), *questions])
    description = {"reader": "mmvp-vlm", "root": str(root)}
    last = ("3-4/1", 'a photo of blue, not "red"')
    return Copy(description, 4, 4, ("1-2/0", "a photo of from above"), last, n_quadruples=2)


def sugarcrepe(root: Path) -> Copy:
    root.mkdir()
    for category in CORPORA["sugarcrepe"].table["categories"]:
        items = {
            str(n): {"filename": f"{n + 7:012d}.jpg", "caption": f"{category} {n}", "negative_caption": f"not {n}"}
            for n in range(2)
        }
        (root / f"{category}.json").write_text(json.dumps(items))
    write_images(root / "val2017", [f"{n:012d}.jpg" for n in (7, 8)])
    description = {"reader": "sugarcrepe", "root": str(root), "images": str(root / "val2017")}
    return Copy(description, 2, 28, ("add_att/0", "add_att 0"), ("swap_obj/1/negative", "not 1"), n_pairs=14)


def sugarcrepe_pp(root: Path) -> Copy:
    root.mkdir()
    for category in CORPORA["sugarcrepe-pp"].table["categories"]:
        texts = {"caption": f"{category} {{}}", "caption2": f"{{}} {category}", "negative_caption": "not {}"}
        items = [
            {"id": n, "filename": f"{n + 7:012d}.jpg", **{name: text.format(n) for name, text in texts.items()}}
            for n in range(2)
        ]
        (root / f"{category}.json").write_text(json.dumps(items))
    write_images(root / "val2017", [f"{n:012d}.jpg" for n in (7, 8)])
    description = {"reader": "sugarcrepe-pp", "root": str(root), "images": str(root / "val2017")}
    first, last = ("replace_att/0", "replace_att 0"), ("swap_obj/1/negative", "not 1")
    return Copy(description, 2, 30, first, last, n_pairs=20)


def aro(root: Path) -> Copy:
    items = [
        {
            "image_path": "1.jpg",
            "bbox_x": 2 * k,
            "bbox_y": 1,
            "bbox_w": 8,
            "bbox_h": 6,
            "true_caption": f"the dog {k} is behind the tree",
            "false_caption": f"the tree is behind the dog {k}",
            "relation_name": "behind",
        }
        for k in range(3)
    ]
    write_images(root / "images", ["1.jpg"])
    (root / "visual_genome_relation.json").write_text(json.dumps(items))
    return Copy(
        {"reader": "aro", "root": str(root), "part": "relation"},
        3,
        6,
        ("0", "the dog 0 is behind the tree"),
        ("2/negative-0", "the tree is behind the dog 2"),
        n_pairs=3,
    )


def crepe(root: Path) -> Copy:
    write_images(root / "VG_100K_2", ["5.jpg"])
    (root / "prod" / "atom").mkdir(parents=True)
    with (root / "prod" / "atom" / "prod_vg_hard_negs_atom_complexity_4.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["", "image_id", "x", "y", "width", "height", "caption", "hard_negs"])
        for k in range(2):
            writer.writerow([k, 5, k, 0, 10, 8, f"cat {k}", repr([f"dog {k}", f"it's {k}"])])
    name = "prod_vg_hard_negs_atom_complexity_4"
    return Copy(
        {"reader": "crepe", "root": str(root), "images": str(root)},
        2,
        6,
        (f"{name}/0", "cat 0"),
        (f"{name}/1/negative-1", "it's 1"),
        n_pairs=4,
    )


def negbench(root: Path) -> Copy:
    names = ["000000000007.jpg", "000000000008.jpg"]
    columns = ["correct_answer", *(f"caption_{n}" for n in range(4)), "correct_answer_template", "image_path"]
    rows = [
        (k % 2, *(f"question {k}, option {n}" for n in range(4)), template, f"/data/coco/images/val2017/{names[k % 2]}")
        for k, template in enumerate(("positive", "negative", "hybrid"))
    ]
    write_images(root / "val2017", names)
    with (root / "COCO_val_mcq_llama3.1_rephrased.csv").open("w", newline="") as file:
        csv.writer(file).writerows([columns, *rows])
    description = {"reader": "negbench", "root": str(root), "images": str(root / "val2017")}
    first, last = ("0", "question 0, option 0"), ("2/negative-2", "question 2, option 3")
    return Copy(description, 2, 12, first, last, n_pairs=9)


def coco_sm(root: Path) -> Copy:
    (root / "meta").mkdir(parents=True)
    names = [Path(name).name for name in COCO_2014[:2]]
    for system in ("google", "bing", "nllb"):
        meta = {
            language: [
                {
                    "filename": name,
                    "captions": [f"{language} {'' if language == 'en' else system} {c}" for c in range(5)],
                }
                for name in names
            ]
            for language in CORPORA["coco-sm"].languages
        }
        (root / "meta" / f"{system}.json").write_text(json.dumps(meta))
    (root / "meta" / "excluded.txt").write_text(Path(COCO_2014[2]).name + "\n")
    mapping = {"image2text": {str(i): [5 * i + c for c in range(5)] for i in range(2)}}
    (root / "meta" / "id_mapping.json").write_text(json.dumps(mapping))
    write_images(root / "val2014", names)
    return Copy(
        {"reader": "coco-sm", "root": str(root), "images": str(root / "val2014")},
        2,
        63 * 2 * 5,
        ("391895#en-google-0", "en  0"),
        ("60623#zh-nllb-4", "zh nllb 4"),
    )


def xflickrco(root: Path) -> Copy:
    root.mkdir()

    files = [("1007129816", "1007129816.jpg"), (391895, "COCO_val2014_000000391895.jpg")]
    for language in CORPORA["xflickrco"].languages:
        lines = [{"sentences": [f"{language} {i}"], "id": i, "img_path": name} for i, name in files]
        (root / f"{language}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    write_images(root / "flickr", ["1007129816.jpg"])
    write_images(root / "coco", ["000000391895.jpg"])
    return Copy(
        {"reader": "xflickrco", "root": str(root), "images": [str(root / "flickr"), str(root / "coco")]},
        2,
        16,
        ("1007129816#en-0", "en 1007129816"),
        ("391895#zh-0", "zh 391895"),
    )


def xtd10(root: Path) -> Copy:
    for folder, languages in (("XTD10", "en es it ko pl ru tr zh"), ("MIC", "de en fr"), ("STAIR", "jp")):
        (root / folder).mkdir(parents=True)
        for language in languages.split():
            (root / folder / f"test_1kcaptions_{language}.txt").write_text(f"{language} 0\n{language} 1\n")
    names = [f"COCO_train2014_{i:012d}.jpg" for i in (5, 9)]
    (root / "XTD10" / "test_image_names.txt").write_text("\n".join(names) + "\n")
    write_images(root / "images", names)
    return Copy(
        {"reader": "xtd10", "root": str(root), "images": str(root / "images")},
        2,
        22,
        ("5#en-0", "en 0"),
        ("9#zh-0", "zh 1"),
    )


def crossmodal3600(root: Path) -> Copy:

    entries = [
        {
            "image/key": key,
            **{
                lang: {"caption": [f"{lang} {key} {c}" for c in range(2)]}
                for lang in CORPORA["crossmodal3600"].languages
            },
        }
        for key in ("00a1", "00b2")
    ]
    write_images(root / "images", ["00a1.jpg", "00b2.jpg"])
    (root / "captions.jsonl").write_text("\n".join(map(json.dumps, entries)))
    return Copy(
        {"reader": "crossmodal3600", "root": str(root)},
        2,
        2 * 2 * 36,
        ("00a1#en-0", "en 00a1 0"),
        ("00b2#zh-1", "zh 00b2 1"),
    )


def multi30k(root: Path) -> Copy:
    base = root / "data" / "task1"
    (base / "raw").mkdir(parents=True)
    (base / "image_splits").mkdir()
    (base / "image_splits" / "test_2016_flickr.txt").write_text("17.jpg\n18.jpg\n")
    for language in ("en", "de", "fr", "cs"):
        data = f"{language} 17\n{language} 18\n".encode()
        (base / "raw" / f"test_2016_flickr.{language}.gz").write_bytes(gzip.compress(data))
    write_images(root / "flickr30k-images", ["17.jpg", "18.jpg"])
    return Copy(
        {"reader": "multi30k", "root": str(root), "images": str(root / "flickr30k-images")},
        2,
        8,
        ("17#en-0", "en 17"),
        ("18#cs-0", "cs 18"),
    )


def add_member(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def write_shards(folder: Path, pattern: str = "{}.tar", n_shards: int = 2, per_shard: int = 2) -> Path:
    folder.mkdir(parents=True)
    for shard in range(n_shards):
        with tarfile.open(folder / pattern.format(f"{shard:04d}"), "w") as tar:
            for i in range(shard * per_shard, (shard + 1) * per_shard):
                add_member(tar, f"{i:05d}.jpg", jpeg(i))
                add_member(tar, f"{i:05d}.txt", f"caption {i}".encode())
                add_member(tar, f"{i:05d}.json", json.dumps({"caption": [f"one {i}", f"two {i}"]}).encode())
    return folder


def cc3m(root: Path) -> Copy:
    write_shards(root, "cc3m-validation-{}.tar")
    return Copy({"reader": "cc3m", "root": str(root)}, 4, 4, ("00000#0", "caption 0"), ("00003#0", "caption 3"))


def urban1k(root: Path) -> Copy:
    write_images(root / "image", ["2.jpg", "10.jpg"])
    (root / "caption").mkdir()
    for number in (2, 10):
        (root / "caption" / f"{number}.txt").write_text(f"A long street {number}.\nA second line.\n")
    description = {"reader": "urban1k", "root": str(root)}
    return Copy(description, 2, 2, ("2#en-0", "A long street 2."), ("10#en-0", "A long street 10."))


def docci(root: Path) -> Copy:
    write_images(root / "images", ["test_00000.jpg", "test_00001.jpg"])
    lines = [
        {"example_id": name, "split": name[:-6], "image_file": f"{name}.jpg", "description": f"An indoor view: {name}."}
        for name in ("train_00000", "test_00000", "test_00001", "qual_dev_00000")
    ]
    (root / "docci_descriptions.jsonlines").write_text("\n".join(map(json.dumps, lines)))
    first, last = ("test_00000#en-0", "An indoor view: test_00000."), ("test_00001#en-0", "An indoor view: test_00001.")
    return Copy({"reader": "docci", "root": str(root)}, 2, 2, first, last)


def webdataset(root: Path) -> Copy:
    write_shards(root)
    description = {"reader": "webdataset", "root": str(root), "caption": "json"}
    return Copy(description, 4, 8, ("00000#0", "one 0"), ("00003#1", "two 3"))


def coco_captions(root: Path) -> Copy:
    write_images(root / "images", ["a.jpg", "b.jpg"])
    content = {
        "images": [{"id": 1, "file_name": "a.jpg"}, {"id": 2, "file_name": "b.jpg"}],
        "annotations": [{"id": 10 + k, "image_id": 1 + k % 2, "caption": f"caption {k}"} for k in range(4)],
    }
    (root / "captions.json").write_text(json.dumps(content))
    description = {"reader": "coco-captions", "root": str(root)}
    return Copy(description, 2, 4, ("10", "caption 0"), ("13", "caption 3"))


def table(root: Path) -> Copy:
    write_images(root / "images", ["a.jpg", "b.jpg"])
    (root / "captions.csv").write_text('image,caption\na.jpg,"red, and more"\na.jpg,blue\nb.jpg,green\n')
    description = {"reader": "table", "root": str(root)}
    return Copy(description, 2, 3, ("row1", "red, and more"), ("row3", "green"))


def image_texts(root: Path) -> Copy:
    write_images(root, ["a.jpg", "deep/b.jpg"])
    (root / "a.txt").write_text("red, and more\n")
    (root / "deep" / "b.txt").write_text("blue\n")
    return Copy({"reader": "image-texts", "root": str(root)}, 2, 2, ("a#0", "red, and more"), ("deep/b#0", "blue"))


def hub(root: Path) -> Copy:
    import datasets

    features = datasets.Features({"photo": datasets.Image(), "caption": datasets.Value("string")})
    cells = {"photo": [{"bytes": jpeg(i), "path": None} for i in range(2)], "caption": ["red", "blue"]}
    (root / "data").mkdir(parents=True)
    datasets.Dataset.from_dict(cells, features=features).to_parquet(root / "data" / "test-00000-of-00001.parquet")
    return Copy(
        {"reader": "hub", "dataset": str(root), "columns": {"image": "photo"}},
        2,
        2,
        ("row1", "red"),
        ("row2", "blue"),
    )


def shapes(_root: Path) -> Copy:
    return _as_made({"reader": "shapes", "n_scenes": 12})


def _as_made(description: dict[str, Any]) -> Copy:
    """A generated corpus has no published rows to pin: tests/corpora/readers/test_shapes.py does that."""
    corpus = open_corpus(description)
    rows = corpus.captions.to_pylist()
    return Copy(
        description,
        corpus.images.num_rows,
        corpus.captions.num_rows,
        (rows[0]["id"], rows[0]["text"]),
        (rows[-1]["id"], rows[-1]["text"]),
        corpus.pairs.num_rows,
        corpus.quadruples.num_rows,
    )


def judged(root: Path) -> Copy:
    root.mkdir()
    write_images(root / "images", ["p0.jpg", "p1.jpg", "p2.jpg"])
    (root / "queries.tsv").write_text("id\ttext\nq0\twhat is red\nq1\twhat is blue\n")
    (root / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq0\tp0\t2\nq0\tp1\t1\nq1\tp2\t1\n")
    description = {"reader": "judged", "dataset": str(root)}
    return Copy(description, 3, 2, ("q0", "what is red"), ("q1", "what is blue"))


def copy_of(name: str, root: Path) -> Copy | None:
    """The local copy of a corpus: by the function here that has its name; for a generated corpus what is generated.

    None if it needs files and no function here writes them.
    """
    if write := globals().get(name.replace("-", "_")):
        copy: Copy = write(root)
        return copy
    files = any(p.default is p.empty for p in inspect.signature(load_reader(name)).parameters.values())
    return None if files or CORPORA[name].hub else _as_made({"reader": name})
