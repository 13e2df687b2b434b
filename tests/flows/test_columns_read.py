# ruff: noqa: E501 - a table of one line a case
"""What was read of a file, what was not, and what looks as if it should have been: checks, runs and imports say it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from capim.store.types import Corpus
from capim.tasks.corpora.description import open_corpus
from tests.command import command

TEXTS = ("two red mugs on a table", "a brown dog on a sofa", "the old town at night", "a bus in the rain")
SPLITS, GRADES, TONGUES = "looks like splits", "looks like grades of relevance or confidence", "looks like languages"
CAPTIONS, NONE = "looks like captions, right or wrong ones", "no option reads it"
JUDGED = 'reader = "judged" and columns = { "queries.query" = "…", "judgements.grade" = "%s" }'


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Writes a table of four images into photos/, with these columns, and gives what a check of it prints."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    for n in range(4):
        Image.new("RGB", (8, 6), (60 * n, 9, 9)).save(tmp_path / "photos" / f"{n}.jpg")

    def write(columns: Mapping[str, Any], name: str = "t.csv", description: str = "") -> str:
        columns = {"image": [f"{n}.jpg" for n in range(4)], **columns}
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        lines = [*map(json.dumps, rows)] if name.endswith("l") else [",".join(map(str, row.values())) for row in rows]
        header = [] if name.endswith("l") else [",".join(columns)]
        (tmp_path / "photos" / name).write_text("\n".join([*header, *lines]))
        (tmp_path / "c.toml").write_text(description or f'reader = "table"\nroot = "photos/{name}"\n')
        return command(f"check {'c.toml' if description else f'photos/{name}'}").out

    return write


LOOKS: dict[str, tuple[dict[str, Any], str, str]] = {
    "languages by code": ({"caption": TEXTS, "lang": ["de", "fr", "pt-BR", "en"]}, TONGUES, 'columns.language = "lang"'),
    "languages by name": ({"caption": TEXTS, "l": ["German", "cz", "EN", "fr-FR"]}, TONGUES, 'columns.language = "l"'),
    "one language, and not the usual one": ({"caption": TEXTS, "x": ["de"] * 4}, TONGUES, 'columns.language = "x"'),
    "splits in capitals": ({"caption": TEXTS, "split": ["Train", "Test", "Train", "Val"]}, SPLITS, 'split = "Test"'),
    "splits under another name": ({"caption": TEXTS, "x": ["train", "testA", "dev", "val"]}, SPLITS, 'columns.split = "x"'),
    "grades of captions": ({"caption": TEXTS, "agg_score": [4.5, 0.2, 3.0, 5]}, GRADES, JUDGED % "agg_score"),
    "grades of queries": ({"query": TEXTS, "label": [1, 0, 0, 1]}, GRADES, 'columns = { "judgements.grade" = "label" }'),
    "truths of queries": ({"query": TEXTS, "ok": ["True", "False", "True", "True"]}, GRADES, '"judgements.grade" = "ok"'),
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


@pytest.mark.parametrize(
    ("columns", "more", "expected"),
    [
        (
            {"caption": TEXTS, "lang": ["de", "fr", "de", "en"]},
            'columns.language = "lang"',
            {"de": 2, "fr": 1, "en": 1},
        ),
        ({"caption": TEXTS, "x": ["Test", "Train", "Test", "Val"]}, 'columns.split = "x"\nsplit = "Test"', {"en": 2}),
        ({"caption": TEXTS, "foil": TEXTS[::-1]}, 'form = "pairs"\ncolumns.negative = "foil"', {"en": 8}),
    ],
)
def test_the_option_that_the_warning_names_reads_the_column(
    table: Callable[..., str], columns: dict[str, Any], more: str, expected: dict[str, int]
) -> None:
    said = table(columns, description=f'reader = "table"\nroot = "photos/t.csv"\n{more}\n')
    languages = open_corpus("c.toml").captions["language"].to_pylist()
    assert {code: languages.count(code) for code in languages} == expected
    assert "not read" not in said


def test_grades_beside_captions_are_read_by_the_reader_that_the_warning_names(table: Callable[..., str]) -> None:
    own = 'reader = "judged"\ndataset = "photos/t.csv"\ncolumns = { "queries.query" = "caption", '
    table({"caption": TEXTS, "X": [1, 0, 2, 1]}, description=f'{own}"judgements.grade" = "X" }}\n')
    assert open_corpus("c.toml").relevance["grade"].to_pylist() == [1, 2, 1]


def test_a_run_begins_with_what_was_read(table: Callable[..., str], tmp_path: Path) -> None:
    table({"caption": TEXTS, "lang": ["de", "fr", "de", "en"]})
    said = command("run --corpora photos/t.csv --encoders tiny-clip --dry-run --quiet", tmp_path / "w").err.splitlines()
    assert said[0].endswith("t.csv: columns read: image, caption; not read: lang")
    assert 'columns.language = "lang"' in said[1]


def judged(corpus: Corpus) -> list[tuple[Any, Any]]:
    text_of = dict(zip(corpus.captions["id"].to_pylist(), corpus.captions["text"].to_pylist(), strict=True))
    return [(text_of[row["query_id"]], row["item_id"]) for row in corpus.relevance.to_pylist()]


def test_a_list_of_queries_is_several_queries_in_every_layout(table: Callable[..., str], tmp_path: Path) -> None:
    names = [f"{n}.jpg" for n in range(4)]
    table({"query": [["city", "tokyo"], ["bus"], 7, "red"]}, "asked.jsonl")
    wanted = [("city", names[0]), ("tokyo", names[0]), ("bus", names[1]), ("7", names[2]), ("red", names[3])]
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


def test_a_query_that_is_neither_text_nor_number_is_refused_with_its_row(
    table: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "photos" / "asked.jsonl").write_text('{"image": "0.jpg", "query": {"en": "city"}}\n')
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
    table: Callable[..., str], tmp_path: Path, header: str, rows: list[str], unsaid: str
) -> None:
    (tmp_path / "photos" / "t.csv").write_text("\n".join([header, *rows]))
    said = command("check photos/t.csv", code=2).out
    assert unsaid not in said
    first = zip(header.split(","), rows[0].split(","), strict=True)
    assert "its first row: " + ", ".join(f"{name} {cell!r}" for name, cell in first) in said


@pytest.fixture
def store(table: Callable[..., str], tmp_path: Path) -> Path:
    """A workspace for imports of the corpus photos/t.csv."""
    table({"caption": TEXTS})
    return tmp_path / "w"


IMPORT = "--corpus photos/t.csv --encoder theirs --quiet"


def test_an_import_of_vectors_and_its_plan_say_which_columns_they_read(store: Path, tmp_path: Path) -> None:
    images, captions = [f"{n}.jpg" for n in range(4)], [f"row{n + 1}" for n in range(4)]
    vectors = np.eye(4, dtype=np.float32).tolist()
    pq.write_table(pa.table({"id": images, "embedding": vectors, "weight": [0.5] * 4}), tmp_path / "images.parquet")
    (tmp_path / "captions.csv").write_text("id,part,a,b,c,d\n" + "".join(f"{one},x,.5,1,2,3\n" for one in captions))
    for more in ("--dry-run", ""):
        said = command(f"import --images images.parquet --captions captions.csv {IMPORT} {more}", store).err
        assert "images.parquet (vectors of 4 numbers): columns read: id, embedding; not read: weight" in said
        assert "captions.csv (vectors of 4 numbers): columns read: embeddings, id; not read: part" in said


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
    store: Path, tmp_path: Path, name: str, content: str, expected: str
) -> None:
    (tmp_path / name).write_text(content)
    assert expected in command(f"import {name} {IMPORT} --dry-run", store).err


def test_lists_of_whole_numbers_in_cells_are_no_vectors(store: Path, tmp_path: Path) -> None:
    """Chinese-CLIP's predictions; as a run they are right, and arrays of numbers stay vectors."""
    lists = [[n, (n + 1) % 4, (n + 2) % 4] for n in range(4)]
    rows: list[dict[str, Any]] = [{"text_id": f"row{n + 1}", "image_ids": each} for n, each in enumerate(lists)]
    (tmp_path / "top.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "top.csv").write_text(
        "text_id,image_ids\n" + "".join(f'{r["text_id"]},"{r["image_ids"]}"\n' for r in rows)
    )
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "top.parquet")
    for name in ("top.jsonl", "top.csv", "top.parquet"):
        said = command(f"import {name} {IMPORT}", store, code=2).err
        assert "holds whole numbers and is no embedding; it looks like a run" in said
        assert "--run FILE" in said
    run = [{"query_id": row["text_id"], "items": [f"{n}.jpg" for n in lists[at]]} for at, row in enumerate(rows)]
    (tmp_path / "run.jsonl").write_text("\n".join(map(json.dumps, run)))
    command(f"import --run run.jsonl {IMPORT}", store)
    np.savez(tmp_path / "v.npz", embeddings=np.eye(4, 3) + np.arange(3), ids=[f"row{n + 1}" for n in range(4)])
    assert "4 of 4 rows matched" in command(f"import --captions v.npz {IMPORT.replace('theirs', 'x')}", store).err
    mixed = [{"id": f"row{n + 1}", "box": [1, n], "embedding": [0.5, n]} for n in range(4)]
    (tmp_path / "boxed.json").write_text(json.dumps(mixed))
    assert "embedding" in command(f"import --captions boxed.json {IMPORT.replace('theirs', 'y')}", store).err
