"""Published corpora: their counts on the real files, what their rows become, and what is said of files at fault."""

from __future__ import annotations

import csv
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from capim.store.errors import RequestError
from capim.store.sets.columns_read import told
from capim.store.types import Corpus
from capim.tasks.corpora import CORPORA, CorpusEntry
from capim.tasks.corpora.check import check_corpus, corpus_facts
from capim.tasks.corpora.description import open_corpus
from capim.tasks.corpora.images.decode import decode_image
from capim.tasks.corpora.images.source import Crops, Folders, crop_key
from capim.tasks.corpora.readers.published_files import TRANSLATORS
from capim.tasks.ranking.protocols import protocols_of, select_protocols
from tests.corpora import local_copies
from tests.corpora.own_data import Put, csv_file, refusal, texts


def read(reader: str, root: Path, **options: Any) -> Corpus:
    return open_corpus({"reader": reader, "root": str(root), **options})


def protocols(corpus: Corpus) -> list[str]:
    return [protocol.id for protocol in protocols_of(corpus)]


def text_of(corpus: Corpus) -> dict[str, str]:
    return {row["id"]: row["text"] for row in corpus.captions.to_pylist()}


def tags_of(corpus: Corpus) -> list[list[str]]:
    return corpus.quadruples["tags"].to_pylist()  # type: ignore[return-value]


# --- Files at fault -------------------------------------------------------------------------------------------------

QUESTION = "correct_answer,caption_0,caption_1,correct_answer_template,image_path\n"
CREPE = "prod_vg_hard_negs_swap_complexity_5.csv"
BOX = "image_id,caption,x,y,width,height"
NEGATIVES = f"{BOX},hard_negs\n5,a cat,0,0,4,4,"
MMVP = "Question ID,Type,Statement\n1,Color,a\n"
CODE = "__import__('os').system('true')"
DE, VAL = {"languages": ["de"]}, {"val.txt": "17.jpg"}
XTD = {"test_image_names.txt": "5.jpg", "test_1kcaptions_de.txt": "eins\nzwei\n"}
DOCCI = "docci_descriptions.jsonlines"


TWO_FOLDERS = {
    "add_att.json": json.dumps([{"filename": f"{x}/1.jpg", "caption": "c", "negative_caption": "n"} for x in "ab"])
}


@pytest.mark.parametrize(
    ("reader", "files", "options", "expected"),
    [
        ("sugarcrepe", {}, {"categories": ["swap_all"]}, "categories must be a list of 'add_att', 'add_obj'"),
        ("sugarcrepe", {"add_att.json": "7"}, {"categories": ["add_att"]}, "expected a list of items, got int"),
        ("sugarcrepe", TWO_FOLDERS, {"categories": ["add_att"]}, "'1' of two files, 'a/1.jpg' and 'b/1.jpg'"),
        ("docci", {DOCCI: '{"split": "test", "example_id": "a"}\n'}, {}, "line 1: no 'image_file'"),
        ("urban1k", {}, {}, "no caption/*.txt in it; unpack Urban1k.zip of huggingface.co/datasets"),
        ("multi30k", {**VAL, "raw/val.de.gz": "not gzip"}, {"split": "val", **DE}, "val.de.gz: cannot be read"),
        ("xtd10", XTD, DE, "test_1kcaptions_de.txt: expected 1 captions, one a line, got 2"),
        ("negbench", {"a.csv": f"{QUESTION}c,a,b,t,7.jpg\n"}, {}, "one of caption_0, caption_1, got 'c'"),
        ("negbench", {"a.csv": "caption_0\na\n"}, {}, "expected a column image_path or filepath, and correct_answer"),
        ("negbench", {"a.csv": f"{QUESTION}0,a,b,t,a/1.jpg\n0,a,b,t,b/1.jpg\n"}, {}, "folders have the same name"),
        ("negbench", {"a.csv": f"filepath,captions\na.jpg,{CODE}\n"}, {}, f"row 0: 'captions' is \"{CODE}\", "),
        ("aro", {}, {"part": "count"}, "part must be 'relation', 'attribution', 'coco-order' or 'flickr-order', got"),
        ("aro", {}, {}, "no visual_genome_relation.json in it; it is linked from github.com"),
        ("aro", {}, {"part": "coco-order"}, "coco-order has no files"),
        ("crepe", {}, {}, "no prod_vg_hard_negs_*.csv or syst_vg_hard_negs_*_in_cc12m.csv below it"),
        ("crepe", {CREPE: f"{NEGATIVES}{CODE}\n"}, {}, f'"{CODE}", expected a list of texts'),
        ("crepe", {CREPE: NEGATIVES + "\"['a', 3]\"\n"}, {}, "\"['a', 3]\", expected a list of texts"),
        ("crepe", {CREPE: f"{BOX},hard_negs\n5,a,left,0,4,4,['a']\n"}, {}, "four numbers, got ['left', '0', '4', '4']"),
        ("crepe", {CREPE: "image_id,caption,hard_negs\n5,c,['a']\n"}, {}, "no column height, width, x, y"),
        ("crepe", {CREPE: f"{BOX}\n5,a cat,0,0,4,4\n"}, {}, "no column hard_negs"),
        ("winoground", {}, {}, "no examples.jsonl or data/examples.jsonl in it"),
        ("mmvp-vlm", {}, {}, "no Questions.csv in it; hf download MMVP/MMVP_VLM --repo-type dataset"),
        ("mmvp-vlm", {"Questions.csv": f"{MMVP}2,State,b\n"}, {}, "the other, got 1 and 2 of Color and State"),
        ("mmvp-vlm", {"Questions.csv": f"{MMVP}2,Color,b\n3,Color,c\n"}, {}, "row 3: expected two questions"),
    ],
)
def test_what_is_wrong_in_the_files_of_a_corpus_is_named(
    put: Put, reader: str, files: dict[str, str], options: dict[str, Any], expected: str
) -> None:
    assert expected in refusal({"reader": reader, "root": str(put(files)), **options})


def test_a_corpus_whose_files_are_tables_is_one_row(put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = {"id": "key", "image": "file", "caption": "words"}
    table = {"file": "{part}.json", "columns": columns, "images": "photos", "hint": "ask us"}
    entry = CorpusEntry(title="Ours", languages=("en", "de"), licence="ours", origin="here", table=table)
    monkeypatch.setitem(CORPORA, "our-photos", entry)
    rows = {language: json.dumps([{"key": 7, "file": "a.png", "words": language}]) for language in ("en", "de")}
    root = put({f"{language}.json": content for language, content in rows.items()}, "photos/a.png")
    corpus = read("our-photos", root)
    assert (corpus.name, corpus.licence, corpus.origin) == ("our-photos", "ours", "here")
    assert corpus.captions["id"].to_pylist() == ["7#en-0", "7#de-0"]
    assert corpus.images["sha"].null_count == 0
    what = {"reader": "our-photos", "root": str(root)}
    assert "unknown option 'split' of reader 'our-photos'; it takes name, root" in refusal({**what, "split": "x"})
    (root / "de.json").unlink()
    assert "no de.json in it; ask us" in refusal(what)


# --- Captions against hard negatives ----------------------------------------------------------------------------------

# Table 3 of Hsieh et al. 2023, and the published files.
SUGARCREPE = {
    "add_att": 692, "add_obj": 2062, "replace_att": 788, "replace_obj": 1652, "replace_rel": 1406, "swap_att": 666,
    "swap_obj": 245,
}  # fmt: skip
# DATA_SIZE in evaluate_ulms.py of github.com/Sri-Harsha/scpp
SUGARCREPE_PP = {"replace_att": 788, "replace_rel": 1406, "swap_att": 666}


def test_sugarcrepe_has_the_published_counts_texts_and_images(shared_data: Path) -> None:
    root = shared_data / "sugar_crepe"
    corpus = open_corpus(root)
    assert (corpus.name, corpus.pairs.num_rows) == ("sugarcrepe", 7511)
    assert Counter(corpus.pairs["category"].to_pylist()) == SUGARCREPE
    text = text_of(corpus)
    image_of = dict(zip(corpus.captions["id"].to_pylist(), corpus.captions["image_id"].to_pylist(), strict=True))
    pairs = iter(corpus.pairs.to_pylist())
    for category in SUGARCREPE:
        for number, item in json.loads((root / f"{category}.json").read_text()).items():
            pair = next(pairs)
            assert pair["id"] == f"{category}/{number}"
            assert pair["image_id"] == image_of[pair["caption_id"]] == str(int(item["filename"][:12]))
            assert image_of[pair["negative_id"]] is None, "a negative describes no image"
            assert (text[pair["caption_id"]], text[pair["negative_id"]]) == (item["caption"], item["negative_caption"])


def test_sugarcrepe_pp_has_the_published_counts_texts_and_two_captions_per_negative(shared_data: Path) -> None:
    root = shared_data / "sugarcrepe_pp"
    corpus = read("sugarcrepe-pp", root, categories=list(SUGARCREPE_PP))
    assert Counter(corpus.pairs["category"].to_pylist()) == {part: 2 * n for part, n in SUGARCREPE_PP.items()}
    assert set(Counter(corpus.pairs["negative_id"].to_pylist()).values()) == {2}
    assert corpus_facts(corpus)["pairs"] == SUGARCREPE_PP
    assert corpus.captions.num_rows == 3 * sum(SUGARCREPE_PP.values())
    text = text_of(corpus)
    image = {row["caption_id"]: row["image_id"] for row in corpus.pairs.to_pylist()}
    for category in SUGARCREPE_PP:
        for entry in json.loads((root / f"{category}.json").read_text()):
            item = f"{category}/{entry['id']}"
            expected = [entry[name] for name in ("caption", "caption2", "negative_caption")]
            assert [text[f"{item}{end}"] for end in ("", "/2", "/negative")] == expected
            assert {image[item], image[f"{item}/2"]} == {str(int(entry["filename"][:12]))}


def test_a_folder_of_sugarcrepe_is_not_one_of_sugarcrepe_pp(shared_data: Path) -> None:
    message = refusal(shared_data / "sugarcrepe_pp")
    assert "no replace_obj.json, swap_obj.json in it; " in message
    assert "name the files that you have" in message
    other = {"reader": "sugarcrepe-pp", "root": str(shared_data / "sugar_crepe")}
    assert "replace_att.json: item 0: no 'caption2'; it has" in refusal(other)


def test_a_negbench_question_is_a_caption_and_the_other_options(tmp_path: Path) -> None:
    options = {f"caption_{n}": f"option {n}" for n in range(4)}
    question = {"correct_answer": 2, **options, "image_path": "data/val2017/000000000007.jpg"}
    rows = [{**question, "correct_answer_template": template} for template in ("negative", "hybrid")]
    corpus = read("negbench", csv_file(tmp_path / "VOC2007_mcq.csv", *rows))
    assert (corpus.name, corpus.images["id"].to_pylist()) == ("negbench-VOC2007_mcq", ["7"])
    text = text_of(corpus)
    first = [row for row in corpus.pairs.to_pylist() if row["caption_id"] == "0"]
    assert [(text[row["caption_id"]], text[row["negative_id"]], row["category"]) for row in first] == [
        ("option 2", f"option {n}", "negative") for n in (0, 1, 3)
    ]
    assert protocols(corpus) == ["negbench/negative", "negbench/hybrid", "negbench/macro", "negbench/micro"]
    row = {"image_path": "a.jpg", "caption_0": "with", "caption_1": "without", "correct_answer": 1}
    assert protocols(read("negbench", csv_file(tmp_path / "binary_mcq.csv", row))) == ["negbench/all"]


def test_negbench_retrieval_files_are_corpora_of_captions(tmp_path: Path) -> None:
    captions = {k: repr([f"no {n} in {k}" for n in range(5)]) for k in (7, 9)}
    rows = [{"filepath": f"/x/val2017/{k:012d}.jpg", "captions": each} for k, each in captions.items()]
    corpus = read("negbench", csv_file(tmp_path / "COCO_val_negated_retrieval.csv", *rows))
    assert texts(corpus)[4:6] == [("7", "no 4 in 7"), ("9", "no 0 in 9")]
    assert {"t2i/all", "i2t/any"} <= {*protocols(corpus)}


def test_aro_attribution_is_categorised_by_its_pair_of_attributes(put: Put) -> None:
    item = {"image_path": "1.jpg", "bbox_x": 0, "bbox_y": 0, "bbox_w": 4, "bbox_h": 4, "attributes": ["white", "black"]}
    captions = {"true_caption": "the white cat and the black dog", "false_caption": "the black cat and the white dog"}
    root = put({f"visual_genome_{part}.json": json.dumps([item | captions]) for part in ("attribution", "relation")})
    with told() as lines:
        corpus = read("aro", root, part="attribution")
    assert corpus.pairs["category"].to_pylist() == ["white_black"]
    assert corpus.source is None
    assert [*lines] == [f'warning: {root}: visual_genome_relation.json is not read; part = "relation" reads it']


def test_crepe_systematicity_tells_seen_from_unseen_and_takes_one_training_set(tmp_path: Path) -> None:
    row = {**dict.fromkeys(BOX.split(","), "4"), "valid_hard_negs_atom": "['a dog']"}
    for seen in ("seen", "unseen"):
        for train_set in ("cc12m", "yfcc"):
            file = tmp_path / f"syst_vg_hard_negs_{seen}_compounds_in_{train_set}.csv"
            csv_file(file, {**row, "valid_hard_negs_comp": "['a red cat', 'a blue cat']"})
    categories = [f"systematicity/{seen}/{kind}" for seen in ("seen", "unseen") for kind in ("atom", "comp", "comp")]
    assert read("crepe", tmp_path).pairs["category"].to_pylist() == categories


def test_a_crop_is_the_box_of_the_decoded_image_or_an_os_error(tmp_path: Path) -> None:
    pixels = np.arange(20 * 30 * 3, dtype=np.uint8).reshape(20, 30, 3)
    Image.fromarray(pixels).save(tmp_path / "1.png")
    (tmp_path / "2.png").write_bytes(b"junk")
    source = Crops(Folders((tmp_path,)))
    assert np.array_equal(np.asarray(decode_image(source.read(crop_key("1.png", 3, 5, 7, 6)))), pixels[5:11, 3:10])
    for key, expected in (
        (crop_key("2.png", 0, 0, 1, 1), "2.png: unknown image format"),
        (crop_key("3.png", 0, 0, 1, 1), "No such file"),
        (crop_key("../1.png", 0, 0, 1, 1), "leaves the folder"),
        (crop_key("1.png", 0, 0, 10**6, 10**6), "a box of 1000000 x 1000000 pixels"),
        (crop_key("1.png", 0, 0, 0, 5), "a box of 0 x 5 pixels"),
    ):
        with pytest.raises(OSError, match=expected):
            source.read(key)


# --- Quadruples -------------------------------------------------------------------------------------------------------

# Table 1 of Miranda et al. 2024, and the published rows
BIVLC = {"replace": 2099, "swap": 359, "add": 475}


def test_bivlc_from_published_rows_has_their_texts_types_and_positions(shared_data: Path) -> None:
    files = [shared_data / "bivlc" / f"{model}.csv" for model in ("ViT-B-32", "CLIP_TROHN-Text")]
    corpus, other = (read("bivlc", file) for file in files)
    assert corpus.fingerprint == other.fingerprint
    with files[0].open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert (corpus.quadruples.num_rows, corpus.images.num_rows, corpus.captions.num_rows) == (2933, 5866, 5866)
    assert corpus.captions["text"].to_pylist() == [t for row in rows for t in (row["caption"], row["negative_caption"])]
    ids = {"id": "17", **{f"{kind}_{side}": f"17/{side}" for kind in ("image", "caption") for side in (0, 1)}}
    assert corpus.quadruples.slice(17, 1).to_pylist() == [{**ids, "tags": [rows[17]["type"], rows[17]["subtype"]]}]
    assert Counter(tags[0] for tags in tags_of(corpus)) == BIVLC
    assert corpus.source is None
    assert "winoground" in protocols(corpus)
    assert not [id_ for id_ in protocols(corpus) if id_.startswith(("t2i", "i2t"))]
    with pytest.raises(RequestError, match="its captions were written as quadruples with hard negatives"):
        select_protocols(corpus, ["t2i/all"])


def test_own_files_in_a_published_form_have_a_name_and_a_source_of_their_own(
    put: Put, tmp_path: Path, shared_data: Path
) -> None:
    item = {"filename": "1.jpg", "caption": "a", "negative_caption": "b"}
    own = put({f"{each}.json": json.dumps({"0": item}) for each in CORPORA["sugarcrepe"].table["categories"]})
    corpus = open_corpus(own)
    assert (corpus.name, corpus.licence) == (f"sugarcrepe-{own.name}", "the user's")
    assert corpus.origin == f"{own} (not the published set: 7 of 7,511 of sugarcrepe)"
    assert protocols(corpus)[-1] == "sugarcrepe/micro"
    whole, entry = read("sugarcrepe", shared_data / "sugar_crepe"), CORPORA["sugarcrepe"]
    assert (whole.name, whole.licence, whole.origin) == ("sugarcrepe", entry.licence, entry.origin)
    part = read("sugarcrepe", shared_data / "sugar_crepe", categories=["swap_obj"])
    assert (part.name, part.origin) == ("sugarcrepe", entry.origin)
    example = {"id": 0, "image_0": "a", "image_1": "b", "caption_0": "c", "caption_1": "d"}
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "examples.jsonl").write_text(json.dumps(example))
    quads = open_corpus({"reader": "winoground", "root": str(tmp_path / "mine"), "ids_only": True})
    assert (quads.name, quads.licence) == ("winoground-mine", "the user's")


def test_winoground_examples_carry_the_tags_of_both_papers(tmp_path: Path, shared_data: Path) -> None:
    winoground = tmp_path / "forty"
    local_copies.winoground(winoground, 40)
    tags = tags_of(read("winoground", winoground, tags=str(shared_data / "winoground_tags/new_tag_assignments.json")))
    assert tags[0] == ["Object", "1 Main Pred", "Noun, Adjective", "No Tag"]
    assert tags[3] == ["Object", "2 Main Preds", "Noun, Adjective", "Pragmatics", "Ambiguously Correct"]
    assert tags[36][4:] == ["Ambiguously Correct", "Unusual Image", "Visually Difficult"]
    assert tags_of(read("winoground", winoground))[0] == tags[0][:-1]
    (winoground / "tags.json").write_text('["Object"]')
    what = {"reader": "winoground", "root": str(winoground)}
    other = {**what, "tags": str(winoground / "tags.json")}
    assert "expected an object from example id to a list of tags" in refusal(other)
    (winoground / "images" / "ex_7_img_1.png").unlink()
    assert "1 of its images are not in" in refusal(what)
    assert read("winoground", winoground, missing="skip").quadruples.num_rows == 39
    shutil.rmtree(winoground / "images")
    assert "ids are enough for embeddings made elsewhere (ids_only, docs/embeddings.md)" in refusal(what)
    ids = read("winoground", winoground, ids_only=True)
    assert (ids.quadruples.num_rows, ids.images.num_rows, ids.source) == (40, 80, None)


# --- Captions in several languages, and long ones ---------------------------------------------------------------------


def test_xflickrco_has_2000_images_with_one_caption_in_each_of_8_languages(shared_data: Path) -> None:
    corpus = open_corpus(shared_data / "xflickrco")
    facts = corpus_facts(corpus)
    assert (facts["images"], facts["captions"], facts["captions per image"]) == (2000, 16_000, {1: 2000})
    assert facts["languages"] == dict.fromkeys(("de", "en", "es", "id", "ja", "ru", "tr", "zh"), 2000)
    assert facts["empty captions"] == 2  # one German, one Indonesian, as published
    text = text_of(corpus)
    assert text["1007129816#en-0"] == "The man with pierced ears is wearing glasses and an orange hat."
    assert text["1007129816#de-0"] == "Der Mann trägt eine orange Wollmütze."
    assert text["369771#en-0"] == "Arrows show what to do with the bowls of food."
    images = [str(shared_data / "coco_photos" / "images")]
    some = read("xflickrco", shared_data / "xflickrco", images=images, missing="skip")
    assert (some.images.num_rows, some.captions.num_rows, some.skipped.num_rows) == (4, 32, 1996)
    assert some.images["sha"].null_count == 0


def test_languages_that_list_other_images_are_refused(shared_data: Path, tmp_path: Path) -> None:
    for language in ("en", "de"):
        shutil.copy(shared_data / "xflickrco" / f"{language}.jsonl", tmp_path)
    lines = (tmp_path / "de.jsonl").read_text().splitlines()
    what = {"reader": "xflickrco", "root": str(tmp_path), "languages": ["en", "de"]}
    (tmp_path / "de.jsonl").write_text("\n".join([lines[1], lines[0], *lines[2:]]))
    assert text_of(open_corpus(what))["1007129816#de-0"] == "Der Mann trägt eine orange Wollmütze."
    (tmp_path / "de.jsonl").write_text("\n".join(lines[1:]))
    message = "xflickrco: de: expected the 2000 images of the first language, each once, got 1999; not so: 1007129816"
    assert message in refusal(what)
    (tmp_path / "de.jsonl").write_text("\n".join([*lines, lines[0]]))
    assert "got 2001; not so: 1007129816" in refusal(what)


@pytest.fixture
def coco_sm(shared_data: Path, tmp_path: Path) -> dict[str, Any]:
    """The real image list, id mapping and exclusions of COCO-SM, with stand-ins for two translations.

    The places of the ten images with six captions in ``id_mapping.json`` are those that they have by file name.
    """
    excluded = set((shared_data / "coco_sm" / "excluded.txt").read_text().split())
    entries = json.loads((shared_data / "coco_karpathy" / "test_5k.json").read_text())
    named = [(Path(entry["file_name"]).name, entry["captions"]) for entry in entries]
    kept = sorted((name, captions) for name, captions in named if name not in excluded)
    meta = {
        language: [{"filename": name, "captions": [start + caption for caption in captions]} for name, captions in kept]
        for language, start in (("en", ""), ("de", "de "))
    }
    for system in ("google", "bing"):
        (tmp_path / f"{system}.json").write_text(json.dumps(meta))
    for name in ("excluded.txt", "id_mapping.json"):
        shutil.copy(shared_data / "coco_sm" / name, tmp_path)
    return {"reader": "coco-sm", "root": str(tmp_path), "languages": ["en", "de"], "translators": ["google", "bing"]}


def test_coco_sm_is_the_test_split_without_the_7_excluded_images(coco_sm: dict[str, Any]) -> None:
    corpus = open_corpus(coco_sm)
    assert (corpus.images.num_rows, corpus.captions.num_rows) == (4993, 4 * 24_975)
    assert corpus_facts(corpus)["captions per image"] == {5: 4983, 6: 10}
    parts = zip(corpus.captions["language"].to_pylist(), corpus.captions["translator"].to_pylist(), strict=True)
    assert Counter(parts) == {(each, by): 24_975 for each in ("en", "de") for by in ("google", "bing")}
    assert (len(CORPORA["coco-sm"].languages), len(TRANSLATORS)) == (21, 3)


def test_coco_sm_is_compared_with_its_exclusions_and_id_mapping(coco_sm: dict[str, Any], tmp_path: Path) -> None:
    meta = json.loads((tmp_path / "google.json").read_text())
    (tmp_path / "bing.json").write_text(json.dumps({**meta, "de": meta["de"][1:]}))
    assert "bing.json: de: expected the 4993 images of the first language, each once, got 4992" in refusal(coco_sm)
    every = {"reader": "coco-sm", "root": str(tmp_path)}
    assert "no nllb.json in it; download from github.com/unum-cloud/coco-sm" in refusal(every)
    for entries in meta.values():
        entries[3]["filename"] = "COCO_val2014_000000457900.jpg"
    meta["de"][5]["captions"].pop()
    for system in ("google", "bing"):
        (tmp_path / f"{system}.json").write_text(json.dumps(meta))
    message = refusal(coco_sm)
    assert "lists COCO_val2014_000000457900.jpg, which excluded.txt leaves out" in message
    assert "as in id_mapping.json, got 4 in de by google" in message


def test_a_corpus_without_its_reference_language_is_warned_of(shared_data: Path) -> None:
    checked = check_corpus({"reader": "xflickrco", "root": str(shared_data / "xflickrco"), "languages": ["de", "ja"]})
    assert "no captions in the reference language 'en': no cross-lingual metrics" in checked.warnings


def test_docci_splits_are_corpora_of_their_own(put: Put) -> None:
    lines = [
        {"example_id": f"{s}_{k}", "split": s, "image_file": f"{s}_{k}.jpg", "description": f"{s} {k}"}
        for s in ("train", "test", "qual_dev")
        for k in range(2)
    ]
    root = put({"docci_descriptions.jsonlines": "\n".join(map(json.dumps, lines))})
    assert open_corpus(root).captions["text"].to_pylist() == ["test 0", "test 1"]
    dev = read("docci", root, split="qual_dev")
    assert (dev.name, dev.images["id"].to_pylist()) == ("docci-qual_dev", ["qual_dev_0", "qual_dev_1"])
    other = {"reader": "docci", "root": str(root), "split": "qual_test"}
    assert "docci_descriptions.jsonlines: no images of split 'qual_test' in it" in refusal(other)
