# ruff: noqa: E501 - a table of one line a case
"""Columns of files: which are read, which are not and should be, and `--columns role=name` for names of their own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from capim.store import EmbeddingStore
from capim.store.schema import Result
from capim.store.types import Corpus
from capim.tasks.corpora.description import open_corpus
from tests.command import command

N = 4
IMAGES = [f"{n}.jpg" for n in range(N)]
ROWS = [f"row{n + 1}" for n in range(N)]
TEXTS = ("two red mugs on a table", "a brown dog on a sofa", "the old town at night", "a bus in the rain")
IMPORT = "--corpus photos/captions.csv --encoder theirs --quiet"
SPLITS, GRADES, TONGUES = "looks like splits", "looks like grades of relevance or confidence", "looks like languages"
CAPTIONS, NONE = "looks like captions, right or wrong ones", "no option reads it"
JUDGED = 'reader = "judged" and columns = { "queries.query" = "…", "judgements.grade" = "%s" }'


def csv(header: str, *columns: Any) -> str:
    return "\n".join([header, *(",".join(map(str, row)) for row in zip(*columns, strict=True))])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four images in photos/, in the working folder."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "photos"
    folder.mkdir()
    for n, name in enumerate(IMAGES):
        Image.new("RGB", (8, 6), (60 * n, 9, 9)).save(folder / name)
    return folder


@pytest.fixture
def photos(folder: Path) -> Path:
    """These images with captions."""
    (folder / "captions.csv").write_text(csv("image,caption", IMAGES, TEXTS))
    return folder


@pytest.fixture
def table(folder: Path) -> Callable[..., str]:
    """Writes a table of these images, with these columns, and gives what a check of it prints."""

    def write(columns: Mapping[str, Any], name: str = "t.csv") -> str:
        columns = {"image": IMAGES, **columns}
        if name.endswith("l"):
            rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
            (folder / name).write_text("\n".join(map(json.dumps, rows)))
        else:
            (folder / name).write_text(csv(",".join(columns), *columns.values()))
        return command(f"check photos/{name}").out

    return write


LOOKS: dict[str, tuple[dict[str, Any], str, str]] = {
    "languages by name": ({"caption": TEXTS, "l": ["German", "cz", "EN", "fr-FR"]}, TONGUES, 'columns.language = "l"'),
    "one language, and not the usual one": ({"caption": TEXTS, "x": ["de"] * 4}, TONGUES, 'columns.language = "x"'),
    "splits in capitals": ({"caption": TEXTS, "split": ["Train", "Test", "Train", "Val"]}, SPLITS, 'split = "Test"'),
    "splits under another name": ({"caption": TEXTS, "x": ["train", "testA", "dev", "val"]}, SPLITS, 'columns.split = "x"'),
    "grades of captions": ({"caption": TEXTS, "agg_score": [4.5, 0.2, 3.0, 5]}, GRADES, JUDGED % "agg_score"),
    "grades of queries": ({"query": TEXTS, "label": [1, 0, 0, 1]}, GRADES, 'columns = { "judgements.grade" = "label" }'),
    "confidence of labels": ({"class": ["a", "b", "a", "b"], "Confidence": [1, 0, 0, 1]}, GRADES, NONE),
    "foils": ({"caption": TEXTS, "foil": ["two blue mugs on a table", *TEXTS[::-1][:3]]}, CAPTIONS, 'columns.negative = "foil"'),
    "captions like the captions": ({"caption": TEXTS, "x": [f"{t} today" for t in TEXTS]}, CAPTIONS, 'columns.negative = "x"'),
}  # fmt: skip


@pytest.mark.parametrize("name", LOOKS)
def test_a_column_that_is_not_read_and_looks_as_if_it_should_be_is_a_warning_that_names_the_option(
    table: Callable[..., str], name: str
) -> None:
    columns, looks, way = LOOKS[name]
    *first, last = columns
    read = "columns read: " + (", ".join([*first, "image"]) if "query" in columns else ", ".join(["image", *first]))
    said = table(columns).splitlines()
    assert f"{read}; not read: {last}" in next(line for line in said if "columns read" in line)
    [warning] = [line for line in said if line.startswith("warning: ") and "is not read" in line]
    assert f"column {last!r} is not read, but {looks} (" in warning
    assert way in warning


def test_a_column_that_is_only_not_needed_is_named_without_a_warning(table: Callable[..., str]) -> None:
    others = {
        "n": range(4),
        "of": [0, 1, 2, 0],
        "width": [640, 800, 640, 8],
        "url": ["http://a/b c"] * 4,
        "x": ["en"] * 4,
    }
    said = table({"caption": TEXTS, **others, "set": ["test"] * 4, "kind": ["cat", "dog", "it", "cat"]})
    assert "columns read: image, caption; not read: n, of, width, url, x, set, kind\n" in said
    assert "is not read, but" not in said


def test_a_run_begins_with_what_was_read(table: Callable[..., str], tmp_path: Path) -> None:
    table({"caption": TEXTS, "lang": ["de", "fr", "de", "en"]})
    said = command("run --corpora photos/t.csv --encoders tiny-clip --dry-run --quiet", tmp_path / "w").err.splitlines()
    assert said[0].endswith("t.csv: columns read: image, caption; not read: lang")
    assert 'columns.language = "lang"' in said[1]


def judged(corpus: Corpus) -> list[tuple[Any, Any]]:
    text_of = dict(zip(corpus.captions["id"].to_pylist(), corpus.captions["text"].to_pylist(), strict=True))
    return [(text_of[row["query_id"]], row["item_id"]) for row in corpus.relevance.to_pylist()]


def test_a_list_of_queries_is_several_queries_in_every_layout(table: Callable[..., str], tmp_path: Path) -> None:
    table({"query": [["city", "tokyo"], ["bus"], 7, "red"]}, "asked.jsonl")
    wanted = [("city", IMAGES[0]), ("tokyo", IMAGES[0]), ("bus", IMAGES[1]), ("7", IMAGES[2]), ("red", IMAGES[3])]
    assert judged(open_corpus("photos/asked.jsonl")) == wanted
    queries: list[dict[str, Any]] = [{"id": "a", "query": ["city", "tokyo"]}, {"id": "b", "query": "['bus']"}]
    photos = tmp_path / "photos"
    (photos / "asked.jsonl").unlink()
    (photos / "qrels.csv").write_text("query-id,corpus-id,score\na,0,1\nb,1,2\n")
    for name, content in (
        ("queries.jsonl", "\n".join(map(json.dumps, queries))),
        ("queries.json", json.dumps({row["id"]: row["query"] for row in queries})),
    ):
        (photos / name).write_text(content)
        corpus = open_corpus("photos")
        assert judged(corpus) == [("city", "0"), ("tokyo", "0"), ("bus", "1")]
        assert corpus.captions["query_group"].to_pylist() == ["a", "a", None]
        (photos / name).unlink()


def test_a_query_that_is_neither_text_nor_number_is_refused_with_its_row(folder: Path) -> None:
    (folder / "asked.jsonl").write_text('{"image": "0.jpg", "query": {"en": "city"}}\n')
    said = command("check photos/asked.jsonl", code=2).out
    assert "asked.jsonl: row 1: expected a text, a number or a list of texts, got {'en': 'city'}" in said


@pytest.mark.parametrize(
    ("header", "rows", "unsaid"),
    [
        ("title,filepath,neg_caption", ["a dog,0.jpg,a cat"], 'columns.caption = "neg_caption"'),
        ("image1,image2,caption", ["0.jpg,1.jpg,a dog"], 'columns.image = "image2"'),
        ("image,capton,captoin", ["0.jpg,a dog,a cat"], 'columns.caption = "capt'),
        ("image,captoin", ["0.jpg,17"], 'columns.caption = "capt'),
    ],
)
def test_advice_shows_the_first_row_and_names_a_column_only_where_it_is_the_only_one(
    folder: Path, header: str, rows: list[str], unsaid: str
) -> None:
    (folder / "t.csv").write_text("\n".join([header, *rows]))
    said = command("check photos/t.csv", code=2).out
    assert unsaid not in said
    first = zip(header.split(","), rows[0].split(","), strict=True)
    assert "its first row: " + ", ".join(f"{name} {cell!r}" for name, cell in first) in said


def test_an_import_of_vectors_and_its_plan_say_which_columns_they_read(photos: Path, tmp_path: Path) -> None:
    vectors = np.eye(4, dtype=np.float32).tolist()
    pq.write_table(pa.table({"id": IMAGES, "embedding": vectors, "weight": [0.5] * 4}), tmp_path / "images.parquet")
    (tmp_path / "captions.csv").write_text("id,part,a,b,c,d\n" + "".join(f"{one},x,.5,1,2,3\n" for one in ROWS))
    for more in ("--dry-run", ""):
        said = command(f"import --images images.parquet --captions captions.csv {IMPORT} {more}", tmp_path / "w").err
        assert "images.parquet (vectors of 4 numbers): columns read: id, embedding; not read: weight" in said
        assert "captions.csv (vectors of 4 numbers): columns read: embeddings, id; not read: part" in said


def test_norms_of_a_parquet_file_are_read_from_the_column_that_the_command_names(photos: Path, tmp_path: Path) -> None:
    vectors = np.eye(4, dtype=np.float32).tolist()
    pq.write_table(pa.table({"id": IMAGES, "embedding": vectors, "length": [2.0] * 4}), tmp_path / "images.parquet")
    said = command(f"import --images images.parquet --columns norm=length {IMPORT}", tmp_path / "w").err
    assert "columns read: id, embedding, norm" in said
    store = EmbeddingStore.open(tmp_path / "w" / "store")
    [sealed] = store.sealed_sets()
    assert [rows.norms.tolist() for rows in store.stored_blocks(sealed.key)] == [[2.0] * 4]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("run.csv", "query_id,rank,doc_id,sim\n" + "".join(f"row{n + 1},1,{n}.jpg,.5\n" for n in range(4)),
         "run.csv: columns read: query_id, doc_id, sim; not read: rank"),
        ("t2i.jsonl", "\n".join(json.dumps({"query_id": f"row{n + 1}", "items": [f"{n}.jpg"], "took": n}) for n in range(4)),
         "t2i.jsonl: columns read: query_id, items; not read: took"),
        ("ranks.csv", "id,rank,seconds\n" + "".join(f"row{n + 1},1,{n}\n" for n in range(4)),
         "columns read: id, rank; not read: seconds"),
        ("scores.csv", "id,0.jpg,1.jpg,2.jpg,3.jpg\n" + "".join(f"row{n + 1},.1,.2,.3,.4\n" for n in range(4)),
         "scores.csv: columns read: id, 0.jpg, 1.jpg, 2.jpg, 3.jpg\n"),
    ],
    ids=("run", "lists", "outcomes", "scores"),
)  # fmt: skip
def test_runs_outcomes_and_scores_say_which_columns_were_read(
    photos: Path, tmp_path: Path, name: str, content: str, expected: str
) -> None:
    (tmp_path / name).write_text(content)
    assert expected in command(f"import {name} {IMPORT} --dry-run", tmp_path / "w").err


def test_lists_of_whole_numbers_in_cells_are_no_vectors(photos: Path, tmp_path: Path) -> None:
    """Chinese-CLIP's predictions."""
    lists = [[n, (n + 1) % 4, (n + 2) % 4] for n in range(4)]
    rows: list[dict[str, Any]] = [{"text_id": f"row{n + 1}", "image_ids": each} for n, each in enumerate(lists)]
    (tmp_path / "top.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "top.csv").write_text(
        "text_id,image_ids\n" + "".join(f'{r["text_id"]},"{r["image_ids"]}"\n' for r in rows)
    )
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "top.parquet")
    for name in ("top.jsonl", "top.csv", "top.parquet"):
        said = command(f"import {name} {IMPORT}", tmp_path / "w", code=2).err
        assert "holds whole numbers and is no embedding; it looks like a run" in said
        assert "--run FILE" in said
    mixed = [{"id": f"row{n + 1}", "box": [1, n], "embedding": [0.5, n]} for n in range(4)]
    (tmp_path / "boxed.json").write_text(json.dumps(mixed))
    assert "embedding" in command(f"import --captions boxed.json {IMPORT}", tmp_path / "w").err


CORPORA: dict[str, tuple[str, str, str]] = {
    "captions": (csv("bild,titel", IMAGES, TEXTS), "image=bild,caption=titel", "captions: 4"),
    "captions in two columns": (csv("image,a,b", IMAGES, TEXTS, TEXTS[::-1]), "caption=a,caption=b", "captions per image: 2: 4"),
    "pairs": (csv("image,caption,foil", IMAGES, TEXTS, TEXTS[::-1]), "negative=foil", "pairs"),
    "labels": (csv("image,dx", IMAGES, "abab"), "label=dx", "classes: 2"),
    "ratings": (csv("image1,image2,agg_score", IMAGES, IMAGES[::-1], (1, 2.5, 3, 4)), "score=agg_score", "similarity i2i: 4"),
    "composed": (csv("candidate,caption,goal", IMAGES, TEXTS, IMAGES[::-1]), "reference=candidate,target=goal", "composed"),
}  # fmt: skip


@pytest.mark.parametrize("name", CORPORA)
def test_a_corpus_of_every_form_is_read_by_columns_that_the_command_names(folder: Path, name: str) -> None:
    content, columns, expected = CORPORA[name]
    (folder / "t.csv").write_text(content)
    said = command(f"check photos/t.csv --columns {columns}").out
    assert expected in said
    assert "can be run" in said
    for word in columns.split(","):  # and the same as lines of a description
        assert f"columns.{word.split('=')[0]} = " in said


def test_tables_of_a_judged_corpus_have_roles_with_their_name(folder: Path) -> None:
    (folder / "queries.csv").write_text(csv("id,frage", ("a", "b"), TEXTS[:2]))
    (folder / "qrels.csv").write_text(csv("query-id,seite,score", ("a", "b"), ("0", "1"), (1, 2)))
    said = command("check photos", code=2).out
    assert "name it with columns = { \"judgements.document\" = \"…\" } (--columns judgements.document=…)" in said  # fmt: skip
    said = command("check photos --columns queries.query=frage,judgements.document=seite").out
    assert "judgements: 2" in said


UNIT = np.eye(N, 8, dtype=np.float32)
LISTS = [[float(x) for x in row] for row in UNIT]


def run_of(folder: Path) -> str:
    (folder / "run.csv").write_text(csv("frage,bild,punkte", ROWS, IMAGES, (0.9, 0.8, 0.7, 0.6)))
    return "run.csv --columns query=frage,item=bild,score=punkte"


def outcomes(folder: Path) -> str:
    (folder / "o.csv").write_text(csv("frage,platz", ROWS, (1, 1, 2, 1)))
    return "o.csv --columns query=frage,rank=platz"


def scores(folder: Path) -> str:
    header = ",".join([IMAGES[0], "frage", *IMAGES[1:]])
    (folder / "s.csv").write_text(csv(header, UNIT[0][:4], ROWS, *UNIT[1:4, :4]))
    return "--scores s.csv --columns queries=frage"


def arrays(folder: Path) -> str:
    np.savez(folder / "v.npz", a=UNIT, b=-UNIT, foto=IMAGES)
    np.savez(folder / "c.npz", vector=UNIT, id=ROWS)
    return "--images v.npz --captions c.npz --columns vector=a,id=foto"


def parquet(folder: Path) -> str:
    pq.write_table(pa.table({"foto": IMAGES, "a": LISTS, "b": LISTS[::-1]}), folder / "v.parquet")
    np.savez(folder / "c.npz", vector=UNIT, id=ROWS)
    return "--images v.parquet --captions c.npz --columns vector=a,id=foto"


@pytest.mark.parametrize("form", [run_of, outcomes, scores, arrays, parquet])
def test_an_import_of_every_form_is_read_by_columns_that_the_command_names(
    photos: Path, tmp_path: Path, form: Callable[[Path], str]
) -> None:
    words = form(tmp_path)
    command(f"import {words} {IMPORT}", tmp_path / "w")
    store = EmbeddingStore.open(tmp_path / "w" / "store")
    if store.sealed_sets():
        command("evaluate --protocols t2i/all --replicates 100 --quiet", tmp_path / "w")
    [value] = [row.value for row in store.all(Result) if (row.protocol, row.metric) == ("t2i/all", "R@1")]
    assert value == (0.75 if form is outcomes else 1.0)


def test_a_column_that_no_file_has_and_a_role_that_is_none_are_refused(photos: Path, tmp_path: Path) -> None:
    arrays(tmp_path)
    for columns, fault in (("id=fota", "no column 'fota' for role 'id'"), ("ide=foto", "unknown role 'ide'")):
        said = command(f"import --images v.npz {IMPORT} --columns {columns}", tmp_path / "w", code=2).err
        assert fault in said
    run_of(tmp_path)
    said = command(f"import --run run.csv {IMPORT}", tmp_path / "w", code=2).err
    assert "no column for query; it has frage, bild, punkte; name it with columns.query" in said
    assert "(--columns query=" in said


def test_rows_that_cannot_be_read_are_left_out_and_counted_on_request(photos: Path, tmp_path: Path) -> None:
    (photos / "captions.csv").write_text(csv("image,caption", IMAGES, [*TEXTS[:3], "a bus, red"]))
    assert "row 4: expected 2 cells as in the header, got 3" in command("check photos", code=2).out
    said = command("check photos --missing skip").out
    assert "1 rows cannot be read and are left out" in said
    assert "captions: 3" in said
    (photos / "captions.csv").write_text(csv("image,caption", IMAGES, TEXTS))
    (tmp_path / "run.trec").write_text(
        "".join(f"{q} Q0 {i} 1 0.5 x\n" for q, i in zip(ROWS, IMAGES, strict=True)) + "half a line\n"
    )
    assert "line 5: expected `query Q0 item" in command(f"import run.trec {IMPORT}", tmp_path / "w", code=2).err
    said = command(f"import run.trec {IMPORT} --skip-bad-rows", tmp_path / "w").err
    assert "1 rows cannot be read and are left out" in said


def test_vectors_of_more_items_than_the_corpus_has_are_left_out_and_counted_on_request(
    photos: Path, tmp_path: Path
) -> None:
    np.savez(tmp_path / "v.npz", embeddings=np.eye(6, 8), ids=[*IMAGES, "x.jpg", "y.jpg"])
    said = command(f"import --images v.npz {IMPORT}", tmp_path / "w", code=2).err
    assert "2 of 6 ids are not among" in said
    assert "--skip-bad-rows leaves these rows out" in said
    said = command(f"import --images v.npz {IMPORT} --skip-bad-rows", tmp_path / "w").err
    assert "4 of 6 rows matched" in said
    assert "2 are of images that the corpus does not have, first 'x.jpg'" in said


def test_equal_vectors_of_one_item_are_one_and_others_are_refused(photos: Path, tmp_path: Path) -> None:
    twice, vectors = [*IMAGES, *IMAGES], np.concatenate([np.eye(4, 8), np.eye(4, 8)])
    np.savez(tmp_path / "v.npz", embeddings=vectors, ids=twice)
    assert "4 repeat a row with the same vector" in command(f"import --images v.npz {IMPORT}", tmp_path / "w").err
    shutil.copy("v.npz", "u.npz")
    both = command(f"import v.npz u.npz {IMPORT}", tmp_path / "w", code=2).err
    assert "both taken for vectors; name their kinds with --images and --captions" in both
    vectors[7] = vectors[0]
    np.savez(tmp_path / "v.npz", embeddings=vectors, ids=twice)
    said = command(f"import --images v.npz {IMPORT.replace('theirs', 'x')}", tmp_path / "w", code=2).err
    assert "4 images have more than one row, first '3.jpg' in rows 4 and 8, which have different vectors" in said


def test_forms_of_others_are_read_as_they_are(folder: Path) -> None:
    """Chinese-CLIP's texts, and a table beside images/ in data/."""
    texts = [{"text_id": n, "text": text, "image_ids": [n]} for n, text in enumerate(TEXTS)]
    (folder / "texts.jsonl").write_text("\n".join(map(json.dumps, texts)))
    assert "captions: 4" in command("check photos").out
    (folder / "texts.jsonl").write_text(json.dumps({**texts[0], "image_ids": [0, 1]}))
    assert 'judgements: read them with reader = "judged"' in command("check photos", code=2).out
    (folder / "texts.jsonl").unlink()
    (folder / "data").mkdir()
    (folder / "images").mkdir()
    for name in IMAGES:
        shutil.move(folder / name, folder / "images")
    (folder / "data" / "train.csv").write_text(csv("img,txt", IMAGES, TEXTS))
    assert "captions: 4" in command("check photos").out


def test_images_in_a_folder_beside_are_named_with_the_option(photos: Path, tmp_path: Path) -> None:
    """Flickr8k as it is unpacked: texts in one folder, images in another."""
    (tmp_path / "texts").mkdir()
    shutil.move(photos / "captions.csv", tmp_path / "texts")
    assert f'they may be in {photos}: images = "{photos}"' in command("check texts", code=2).out
    table = tmp_path / "texts" / "captions.csv"
    table.write_text(table.read_text().replace(".jpg", "").replace(".png", ""))
    assert f'they may be in {photos}: images = "{photos}"' in command("check texts", code=2).out
    table.write_text(csv("image,caption", [f"http://x/{name}" for name in IMAGES], TEXTS))
    assert "they may be in" not in command("check texts", code=2).out


def test_rated_pairs_without_texts_and_images_are_evaluated_by_vectors_of_the_images_alone(
    photos: Path, tmp_path: Path
) -> None:
    (tmp_path / "rated.csv").write_text(csv("image1,image2,agg_score", ("a", "a", "a"), ("b", "c", "d"), (3, 2, 1)))
    words = 'reader = "image-queries"\nroot = "rated.csv"\nids_only = true\ncolumns.score = "agg_score"\n'
    (tmp_path / "sits.toml").write_text(words)
    vectors = np.array([[1, 0], [0.9, 0.1], [0.5, 0.5], [0.0, 1]])
    np.savez(tmp_path / "v.npz", embeddings=vectors, ids=["a", "b", "c", "d"])
    said = command("import v.npz --corpus sits.toml --encoder theirs --quiet", tmp_path / "w").err
    assert "run `capim evaluate --corpora sits --encoders theirs`" in said
    command("evaluate --corpora sits --encoders theirs --replicates 100 --quiet", tmp_path / "w")
    [row] = [row for row in EmbeddingStore.open(tmp_path / "w" / "store").all(Result) if row.metric == "Spearman"]
    assert row.value == pytest.approx(1.0)


def test_titles_beside_labels_are_named_as_captions(folder: Path) -> None:
    (folder / "shop.csv").write_text(csv("image,title_en,category", IMAGES, TEXTS, "abab"))
    assert "'title_en' is not read, but looks like texts" in (said := command("check photos").out)
    assert "(--columns caption=title_en)" in said


def test_what_is_given_for_another_thing_says_where_it_belongs(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "suite.toml").write_text('corpora = ["shapes"]\nencoders = ["tiny-clip"]\n')
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "model" / "model.safetensors").write_text("")
    for words, expected in (
        ("--corpora suite.toml --encoders tiny-clip", "is a suite, which names corpora: run it with `capim run"),
        ("--corpora model --encoders tiny-clip", "holds a model, not a corpus: give it as --encoders"),
        ("--corpora photos --encoders photos", "images are a corpus: --corpora photos"),
        ("photos --encoders tiny-clip", "a folder is a corpus: --corpora photos"),
    ):
        assert expected in command(f"run {words} --dry-run --quiet", tmp_path / "w", code=2).err
