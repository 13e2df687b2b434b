from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from capim.store.errors import RequestError
from capim.tasks.corpora import open_corpus
from capim.tasks.corpora.readers.table import read_table


@pytest.fixture
def folder(tmp_path: Path, picture: Callable[..., bytes]) -> Path:
    for name, colour in (("a.png", "red"), ("b.png", "blue"), ("deep/c.png", "green")):
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(colour))
    return tmp_path


def refusal(what: Any, **options: Any) -> str:
    with pytest.raises(RequestError) as caught:
        read_table(what, **options)
    return str(caught.value)


ROWS = [("a.png", "one", "en"), ("a.png", "zwei, drei", "de"), ("deep/c.png", "été\n2", "fr")]


def test_csv_tsv_jsonl_and_parquet_give_the_same_corpus(folder: Path) -> None:
    quoted = [(image, f'"{text}"', language) for image, text, language in ROWS]
    files = {
        "t.csv": "image,caption,language\n" + "".join(",".join(row) + "\n" for row in quoted),
        "t.tsv": "\ufeffimage\tcaption\tlanguage\n" + "".join("\t".join(row) + "\n" for row in quoted),
        "t.jsonl": "".join(
            pa.Table.from_pylist([dict(zip(("image", "caption", "language"), row, strict=True))])
            .to_pandas()
            .to_json(orient="records", lines=True, force_ascii=False)
            for row in ROWS
        ),
    }
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")
    columns = dict(zip(("image", "caption", "language"), map(list, zip(*ROWS, strict=True)), strict=True))
    pq.write_table(pa.table(columns), folder / "t.parquet")
    corpora = [read_table(folder / f"t{suffix}", name="t") for suffix in (".csv", ".tsv", ".jsonl", ".parquet")]
    assert len({corpus.fingerprint for corpus in corpora}) == 1
    assert corpora[0].captions["text"].to_pylist() == ["one", "zwei, drei", "été\n2"]
    assert corpora[0].images["id"].to_pylist() == ["a.png", "deep/c.png"]


def test_rows_without_captions_and_files_that_are_missing_are_told_at_once(folder: Path) -> None:
    (folder / "t.csv").write_text("image,caption\na.png,\nb.png,two\ngone.png,three\n")
    said = refusal(folder / "t.csv", images=folder / "images")
    assert "rows without caption: row 1" in said
    assert "1 of its images are not in" in said


def test_a_list_of_captions_in_one_cell_is_several_captions_of_one_image(folder: Path) -> None:
    (folder / "captions.jsonl").write_text('{"file_name": "a.png", "captions": ["one", "two"], "objects": ["dog"]}\n')
    corpus = open_corpus(folder)
    assert corpus.captions.select(["id", "ordinal", "text"]).to_pylist() == [
        {"id": "row1#0", "ordinal": 0, "text": "one"},
        {"id": "row1#1", "ordinal": 1, "text": "two"},
    ]
    assert corpus.images["objects"].to_pylist() == [["dog"]]


def test_the_reference_language_of_multilingual_data_is_the_users(folder: Path) -> None:
    (folder / "captions.csv").write_text("image,caption,language\na.png,rot,de\na.png,red,en\n")
    assert read_table(folder, reference_language="de").languages_reference == "de"


def test_pairs_and_quadruples_are_recognised_by_the_name_of_the_table(folder: Path) -> None:
    (folder / "pairs.csv").write_text("image,caption,negative,category\na.png,red,blue,swap\nb.png,blue,red,\n")
    pairs = read_table(folder / "pairs.csv")
    assert pairs.pairs["category"].to_pylist() == ["swap", "all"]
    assert pairs.captions["image_id"].to_pylist() == ["a.png", None, "b.png", None]
    (folder / "quadruples.csv").write_text(
        "image_0,image_1,caption_0,caption_1,tags\na.png,b.png,red on blue,blue on red,Object; Both\n"
    )
    quadruples = read_table(folder / "quadruples.csv")
    assert quadruples.quadruples["tags"].to_pylist() == [["Object", "Both"]]
    assert quadruples.captions["image_id"].to_pylist() == ["a.png", "b.png"]


def test_ids_alone_are_enough_for_embeddings_made_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "ids.csv").write_text("image,caption_id\n17,c1\n17,c2\n18,c3\n")
    corpus = read_table(tmp_path / "ids.csv", ids_only=True)
    assert corpus.images["id"].to_pylist() == ["17", "18"]
    assert corpus.captions.select(["id", "image_id", "text", "ordinal"]).to_pylist()[1] == {
        "id": "c2",
        "image_id": "17",
        "text": None,
        "ordinal": 1,
    }
    assert corpus.source is None


def test_images_without_a_file_are_an_error_or_a_listed_skip(folder: Path) -> None:
    (folder / "captions.csv").write_text("image,caption\na.png,one\ngone.png,two\n")
    assert "1 of its images are not in" in refusal(folder)
    corpus = read_table(folder, missing="skip")
    assert corpus.skipped["reason"].to_pylist() == ["no file gone.png"]
    assert corpus.captions["text"].to_pylist() == ["one"]
    (folder / "pairs.csv").write_text("image,caption,negative\na.png,x,y\ngone.png,z,w\n")
    pairs = read_table(folder / "pairs.csv", missing="skip")
    assert pairs.captions["text"].to_pylist() == ["x", "y"]
    (folder / "quadruples.csv").write_text("image_0,image_1,caption_0,caption_1\na.png,gone.png,x,y\na.png,b.png,z,w\n")
    quadruples = read_table(folder / "quadruples.csv", missing="skip")
    assert quadruples.quadruples["id"].to_pylist() == ["row2"]
    assert quadruples.captions["text"].to_pylist() == ["x", "z", "w"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "no column for image; it has none"),
        ("a,b\n1,2\n", 'no column for caption; it has a, b; name it with columns.caption = "…"'),
        ("image,caption\n", "no images; check"),
        (
            "image,caption\na.png,one,two\n",
            "row 1: expected 2 cells as in the header, got 3; put texts that contain the separator in quotes",
        ),
        ("image,image\na,b\n", "two columns are named 'image'; rename one of them"),
        ("image,caption\n,one\na.png,\n", "rows without image: row 1"),
        ("image,caption\n,one\na.png,\n", "rows without caption: row 2"),
        ("image,caption,ordinal\na.png,one,first\n", "row 1 ('first')"),
        ("image,caption,ordinal\na.png,one,1\na.png,two,0\n", "ordinals do not rise within image"),
        ("id,image,caption\nx,a.png,one\nx,b.png,two\n", "image ids with several files: 'x' ('a.png' and 'b.png')"),
        ("image,caption,caption_id\na.png,one,c\nb.png,two,c\n", "duplicate caption ids: 'c'"),
        ("image,caption\n../../etc/passwd,one\n", "'../../etc/passwd' leaves the folder"),
        ("image,caption\n/etc/passwd,one\n", "'/etc/passwd' leaves the folder"),
    ],
)
def test_what_is_wrong_in_a_table_is_named(folder: Path, content: str, expected: str) -> None:
    (folder / "captions.csv").write_text(content)
    assert expected in refusal(folder)


def test_files_that_are_not_what_their_suffix_says(folder: Path) -> None:
    (folder / "t.parquet").write_bytes(b"PAR1 not really")
    assert "not a Parquet file" in refusal(folder / "t.parquet")
    (folder / "t.jsonl").write_text('{"image": "a.png", "caption": "x"}\n[1]\n')
    assert "line 2 holds list, expected an object" in refusal(folder / "t.jsonl")
    (folder / "t.jsonl").write_text("{nope\n")
    assert "line 1 is not JSON" in refusal(folder / "t.jsonl")
    (folder / "t.csv").write_bytes(b"image,caption\na.png,caf\xe9\n")
    assert "not a table in UTF-8" in refusal(folder / "t.csv")
    (folder / "t.xlsx").write_bytes(b"")
    assert "expected a table (.csv, .tsv, .jsonl, .ndjson, .json, .parquet, .txt, .token), got .xlsx" in refusal(
        folder / "t.xlsx"
    )
    assert "no table in it" in refusal(folder / "images")
    assert "does not exist" in refusal(folder / "gone.csv")


def test_cells_of_the_wrong_kind_are_named(folder: Path) -> None:
    (folder / "t.jsonl").write_text(
        '{"image": {"bytes": "x"}, "caption": "a"}\n'
        '{"image": "a.png", "caption": 7}\n{"image": "b.png", "caption": []}\n'
    )
    message = refusal(folder / "t.jsonl")
    assert "rows whose image is neither text nor number: row 1 (dict)" in message
    assert "rows whose caption is not a text or a list of texts: row 2 (7), row 3 ([])" in message
