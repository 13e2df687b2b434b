"""The user's own tables: which column holds what, what is wrong in them, and how texts with separators are read."""

from __future__ import annotations

import gzip
import io
import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from capim.store.errors import RequestError
from capim.store.sets.columns_read import told
from capim.store.tables import open_table
from capim.store.types import Corpus
from capim.tasks.corpora.check import check_corpus
from capim.tasks.corpora.description import open_corpus
from tests.corpora.own_data import TWO, Put, files, refusal, texts


@pytest.fixture
def folder(put: Put) -> Path:
    return put(None, "images/a.png", "images/b.png", "images/deep/c.png")


def table(root: Path, **options: Any) -> Corpus:
    return open_corpus({"reader": "table", "root": str(root), **options})


def test_csv_tsv_jsonl_and_parquet_give_the_same_corpus(put: Put, folder: Path) -> None:
    names = ("image", "caption", "language")
    rows = [("a.png", "one", "en"), ("a.png", "zwei, drei", "de"), ("deep/c.png", "été\n2", "fr")]
    quoted = [names, *((image, f'"{text}"', language) for image, text, language in rows)]
    objects = [dict(zip(names, row, strict=True)) for row in rows]
    put({"t.csv": "".join(",".join(row) + "\n" for row in quoted)})
    put({"t.tsv": "\ufeff" + "".join("\t".join(row) + "\n" for row in quoted)})
    put({"t.jsonl": "\n".join(json.dumps(each, ensure_ascii=False) for each in objects)})
    pq.write_table(pa.Table.from_pylist(objects), folder / "t.parquet")
    corpora = [table(folder / f"t{suffix}", name="t") for suffix in (".csv", ".tsv", ".jsonl", ".parquet")]
    assert len({corpus.fingerprint for corpus in corpora}) == 1
    assert texts(corpora[0]) == [(image, text) for image, text, _ in rows]


def test_a_list_of_captions_in_one_cell_is_several_captions_of_one_image(put: Put, folder: Path) -> None:
    put({"captions.jsonl": '{"file_name": "a.png", "captions": ["one", "two"], "objects": ["dog"]}\n'})
    corpus = open_corpus(folder)
    assert texts(corpus) == [("a.png", "one"), ("a.png", "two")]
    assert corpus.captions["id"].to_pylist() == ["row1#0", "row1#1"]
    assert corpus.captions["ordinal"].to_pylist() == [0, 1]
    assert corpus.images["objects"].to_pylist() == [["dog"]]


def test_the_reference_language_of_multilingual_data_is_the_users(put: Put, folder: Path) -> None:
    put({"captions.csv": "image,caption,language\na.png,rot,de\na.png,red,en\n"})
    corpus = table(folder, reference_language="de")
    assert corpus.languages_reference == "de"
    assert corpus.captions["translator"].to_pylist() == ["human"] * 2
    put({"captions.csv": "image,caption,language,translator\na.png,rot,de,bing\na.png,red,en,\n"})
    assert table(folder).captions["translator"].to_pylist() == ["bing", "human"]


@pytest.mark.parametrize("names", [("pairs", "quadruples"), ("image_text_pairs", "image_text_pairs")])
def test_pairs_and_quadruples_are_recognised_by_the_name_of_the_table_or_its_columns(
    put: Put, folder: Path, names: tuple[str, str]
) -> None:
    put({f"{names[0]}.csv": "image,caption,negative,category\na.png,red,blue,swap\nb.png,blue,red,\n"})
    pairs = table(folder / f"{names[0]}.csv")
    assert pairs.pairs["category"].to_pylist() == ["swap", "all"]
    assert pairs.captions["image_id"].to_pylist() == ["a.png", None, "b.png", None]
    header = "image_0,image_1,caption_0,caption_1,tags"
    put({f"{names[1]}.csv": f"{header}\na.png,b.png,red on blue,blue on red,Object; Both\n"})
    quadruples = table(folder / f"{names[1]}.csv")
    assert quadruples.quadruples["tags"].to_pylist() == [["Object", "Both"]]
    assert quadruples.captions["image_id"].to_pylist() == ["a.png", "b.png"]


def test_rows_that_cannot_be_read_are_left_out_on_request_whatever_reads_the_table(put: Put) -> None:
    root = put({"classes.csv": "image,label\na.png,cat\nb.png,dog\nb.png\n"}, "a.png", "b.png") / "classes.csv"
    labels = {"reader": "labels", "root": str(root)}
    assert "expected 2 cells as in the header, got 1; put texts that contain the separator in quotes" in refusal(labels)
    assert open_corpus({**labels, "missing": "skip"}).images["id"].to_pylist() == ["a.png", "b.png"]


@pytest.mark.parametrize("label", ["", "  ", [], [""], None, math.nan], ids=repr)
def test_an_image_without_a_label_is_refused_or_left_out_with_a_word(put: Put, label: object) -> None:
    """An empty list was an image of no class, a blank text a class of its own, and ``missing = "skip"`` no help."""
    cells = zip("abc", ("dog", label, ["cat", "cat ", ""]), strict=True)
    rows = [{"image": f"{name}.png", "label": cell} for name, cell in cells]
    root = put({"classes.jsonl": "\n".join(map(json.dumps, rows))}, "a.png", "b.png", "c.png") / "classes.jsonl"
    labels = {"reader": "labels", "root": str(root), "prompts": "{}"}
    assert "classes.jsonl: rows without label: row 2" in refusal(labels)
    with told() as lines:
        corpus = open_corpus({**labels, "missing": "skip"})
    assert corpus.images["id"].to_pylist() == ["a.png", "c.png"]
    assert corpus.captions["text"].to_pylist() == ["cat", "dog"]
    assert f"warning: {root}: rows without label: row 2; they are left out" in lines
    put({"classes.jsonl": '{"image": "a.png", "label": "|"}'})
    assert "images without a label: 'a.png'" in refusal({**labels, "separator": "|"})


def test_images_without_a_file_are_an_error_or_a_listed_skip(put: Put, folder: Path) -> None:
    put({"captions.csv": "image,caption\na.png,one\ngone.png,two\n"})
    assert "1 of its images are not in" in refusal(folder)
    corpus = table(folder, missing="skip")
    assert corpus.skipped["reason"].to_pylist() == ["no file gone.png"]
    assert texts(corpus) == [("a.png", "one")]
    put({"pairs.csv": "image,caption,negative\na.png,x,y\ngone.png,z,w\n"})
    assert table(folder / "pairs.csv", missing="skip").captions["text"].to_pylist() == ["x", "y"]


CELLS = '{"image": {"bytes": "x"}, "caption": "a"}\n{"image": "a.png", "caption": 7}\n{"image": "b.png", "caption": []}'


TWICE = io.BytesIO()
pq.write_table(pa.table([pa.array([cell]) for cell in ("a.png", "x", "y")], ["image", "caption", "caption"]), TWICE)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("t.csv", "", "no column for image; it has none"),
        ("t.csv", "image,caption\n", "no images; check"),
        ("t.csv", "image,caption\na.png,one,two\n", "row 1: expected 2 cells as in the header, got 3; put texts that"),
        ("t.csv", "image,image\na,b\n", "two columns are named 'image'; rename one of them"),
        ("t.csv", "image,caption\n,one\na.png,\n", "rows without image (missing"),
        ("t.csv", "image,caption\na.png,\n", 'rows without caption (missing = "skip" leaves them out): row 1'),
        ("t.jsonl", '{"image": "a.png", "caption": NaN}\n{"image": "b.png", "caption": []}\n', "out): row 1, row 2"),
        ("t.csv", "image,caption\na.png,\ngone.png,three\n", "1 of its images are not in"),
        ("t.csv", "image,caption,ordinal\na.png,one,first\n", "row 1 ('first')"),
        ("t.csv", "image,caption,ordinal\na.png,one,1\na.png,two,0\n", "ordinals that do not rise within image"),
        ("t.csv", "id,image,caption\nx,a.png,one\nx,b.png,two\n", "several files: 'x' ('a.png' and 'b.png')"),
        ("t.csv", "image,caption\n../../etc/passwd,one\n", "'../../etc/passwd' leaves the folder"),
        ("t.csv", "image,caption\n/etc/passwd,one\n", "'/etc/passwd' leaves the folder"),
        ("t.parquet", b"PAR1 not really", "not a Parquet file"),
        ("t.jsonl", '{"image": "a.png", "caption": "x"}\n[1]\n', "line 2 holds list, expected an object"),
        ("t.jsonl", "{nope\n", "line 1 is not JSON"),
        ("t.jsonl", '{"image": "a.png", "caption": "x", "caption": "y"}', "line 1 has the key 'caption' 2 times"),
        ("t.json", '{"a.png": "x", "a.png": "y"}', "t.json: an object in it has the key 'a.png' 2 times"),
        ("t.parquet", TWICE.getvalue(), "t.parquet: two columns are named 'caption'; rename one of them"),
        ("t.jsonl", CELLS, "rows where image is neither text nor number: row 1 (dict)"),
        ("t.jsonl", CELLS, "a list of texts, or of objects with a text: row 2 (7)"),
        (
            "t.xlsx",
            "",
            "a table (.csv, .tsv, .jsonl, .ndjson, .jsonlines, .json, .parquet, .parq, .arrow, .feather, .txt, .token)",
        ),
    ],
)
def test_what_is_wrong_in_a_table_is_named(
    put: Put, folder: Path, name: str, content: str | bytes, expected: str
) -> None:
    put({name: content})
    assert expected in refusal({"reader": "table", "root": str(folder / name)})


def test_an_archive_is_to_be_unpacked(folder: Path) -> None:
    (folder / "photos.zip").touch()
    assert "is an archive: unpack it" in refusal(folder / "photos.zip")


def test_a_table_that_is_not_there_is_named(folder: Path) -> None:
    assert "no table in it" in refusal({"reader": "table", "root": str(folder / "images")})
    assert "does not exist" in refusal({"reader": "table", "root": str(folder / "gone.csv")})


def test_columns_that_are_numbered_are_the_captions_of_one_image_in_their_order(put: Put) -> None:
    root = put(None, "a.png", "b.png")
    for header in ("caption_2,image,caption_1,caption_10", "caption2,image,caption1,caption10",
                   "Caption 2,Image,Caption 1,Caption 10", "text_2,file_name,text_1,text_10",
                   "caption2,image,caption,caption3"):  # fmt: skip
        put({"captions.csv": f"{header}\ntwo,a.png,one,ten\n,b.png,one,ten\n"})
        corpus = open_corpus(root)
        assert texts(corpus) == [
            ("a.png", "one"), ("a.png", "two"), ("a.png", "ten"), ("b.png", "one"), ("b.png", "ten"),
        ], header  # fmt: skip
        assert corpus.captions["id"].to_pylist() == ["row1#0", "row1#1", "row1#2", "row2#0", "row2#1"]
    put({"captions.csv": "image,caption,caption_1\na.png,one,two\n"})
    assert 'name it with columns.caption = ["caption", "caption_1"]' in refusal(root)
    chosen = {"reader": "table", "root": str(root), "columns": {"caption": ["caption_1"]}}
    assert texts(open_corpus(chosen)) == [("a.png", "two")]
    put({"captions.csv": 'image,captions\na.png,"[\'one\', ""it\'s""]"\nb.png,[brackets]\n'})
    assert texts(open_corpus(root)) == [("a.png", "one"), ("a.png", "it's"), ("b.png", "[brackets]")]


def test_json_lines_of_which_a_later_one_has_more_keys_lose_nothing(put: Put) -> None:
    root = put(None, "a.png", "b.png")
    put({"x.jsonl": '{"image": "a.png", "caption_1": "one"}\n{"image": "b.png", "caption_1": "x", "caption_2": "y"}\n'})
    assert texts(open_corpus(root)) == [("a.png", "one"), ("b.png", "x"), ("b.png", "y")]


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("image,captoin", 'no column for caption; it has image, captoin; name it with columns.caption = "captoin"'),
        ("imgae,caption", 'no column for image; it has imgae, caption; name it with columns.image = "imgae"'),
        ("url,caption", "'url' may be meant, by its first cell"),
        ("image,title", 'name it with columns.caption = "…"'),
    ],
)
def test_a_column_that_is_nearly_right_is_shown_with_the_line_to_write(put: Put, header: str, expected: str) -> None:
    root = put({"data.csv": f"{header}\na.png,red\n"}, "a.png")
    message = refusal(root)
    assert expected in message
    assert f'write this into {root / "corpus.toml"}, with reader = "table" and root = "data.csv"' in message
    (root / "data.csv").rename(root / "captions.csv")
    checked = check_corpus(root)
    assert any(expected in fault for fault in checked.faults)
    assert checked.lines()[-3:] == ['  reader = "table"', '  root = "captions.csv"', '  name = "photos"']


def test_the_line_that_an_error_shows_works_as_it_is(put: Put) -> None:
    root = put({"captions.csv": "image,captoin\na.png,red\nb.png,blue\n"}, "a.png", "b.png")
    lines = [line.strip() for line in check_corpus(root).lines()[-3:]]
    (root / "corpus.toml").write_text("\n".join([*lines, 'columns.caption = "captoin"']))
    assert texts(open_corpus(root)) == TWO


def test_ids_of_captions_in_the_column_id_are_not_taken_for_ids_of_images(put: Put) -> None:
    root = put({"captions.csv": "id,image,caption\n1,a.png,red\n2,a.png,pink\n3,b.png,blue\n"}, "a.png", "b.png")
    assert 'images with several ids; if the column holds caption ids, write columns.caption_id = "id"' in refusal(root)
    (root / "corpus.toml").write_text('reader = "table"\nroot = "captions.csv"\ncolumns.caption_id = "id"\n')
    corpus = open_corpus(root)
    assert corpus.captions["id"].to_pylist() == ["1", "2", "3"]
    assert files(corpus) == ["a.png", "b.png"]


def rows(file: Path, content: str | bytes) -> list[tuple[str, ...]]:
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    columns, found = open_table(file)
    return [tuple(str(row.get(column)) for column in columns) for row in found]


def fault(file: Path, content: str | bytes) -> str:
    with pytest.raises(RequestError) as caught:
        rows(file, content)
    return str(caught.value)


def numbered(separator: str, *broken: int) -> str:
    """Three hundred rows; the caption of each broken one begins or ends with a quote."""
    lines = [f"{n:03d}.jpg{separator}caption {n}" for n in range(300)]
    for place, n in enumerate(broken):
        lines[n] = f"{n:03d}.jpg{separator}" + (f'"caption {n}' if place % 2 == 0 else f'caption {n}"')
    return "\n".join([f"image{separator}caption", *lines, ""])


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (numbered(",", 149), "line 151: a quote is opened here that no quote at the end of a cell closes"),
        (numbered(",", 100, 250), "line 102: a quote is opened here and closed lines later, which makes one cell of"),
        ('image,caption\na,b\nc,"d" e\n', "line 3: a quote is opened here"),
        ("image,caption\na,caf\xe9\n".encode("latin-1"), "not a table in UTF-8"),
        ("image,caption\na,b\n".encode("utf-16-le"), "not a table in UTF-8 (it has zero bytes); save it as UTF-8"),
    ],
)
def test_no_quote_or_encoding_makes_a_table_smaller_without_an_error(
    tmp_path: Path, content: str | bytes, expected: str
) -> None:
    assert expected in fault(tmp_path / "t.csv", content)


@pytest.mark.parametrize("order", ["{id},{text}", "{text},{id}"])
@pytest.mark.parametrize("identifier", ["{n}", "img_{n}", "{n}.png", "my photo.jpg"])
def test_swallowed_rows_are_seen_whatever_the_images_are_called(tmp_path: Path, order: str, identifier: str) -> None:
    texts = ['"red', "green", "blue", '5"']
    lines = [order.format(id=identifier.format(n=n), text=text) for n, text in enumerate(texts)]
    header = order.format(id="image", text="caption")
    message = fault(tmp_path / "t.csv", "\n".join([header, *lines, ""]))
    assert "line 2: a quote is opened here" in message


@pytest.mark.parametrize("order", [1, -1], ids=["image first", "caption first"])
def test_swallowed_rows_are_seen_where_images_have_names_without_digits(tmp_path: Path, order: int) -> None:
    """One row less in silence is a smaller gallery; in a TSV file such quotes are part of the text."""
    cells = [("image", "caption"), ("apple", '"a red'), ("pear", "a green"), ("plum", 'a blue"'), ("fig", "a brown")]
    content = {separator: "".join(separator.join(row[::order]) + "\n" for row in cells) for separator in ",\t"}
    assert "looks like a row of its own" in fault(tmp_path / "t.csv", content[","])
    assert rows(tmp_path / "t.tsv", content["\t"]) == [row[::order] for row in cells[1:]]


@pytest.mark.parametrize(
    ("suffix", "content", "expected"),
    [
        (
            "csv",
            'image,caption\n1.jpg,"Red, blue\nHowever, it is\n\n""green"""\n2.jpg,one\n',
            [("1.jpg", 'Red, blue\nHowever, it is\n\n"green"'), ("2.jpg", "one")],
        ),
        (
            "tsv",
            'image\tcaption\na.jpg\t"one\ntwo ""three"""\nb.jpg\tfour\n',
            [("a.jpg", 'one\ntwo "three"'), ("b.jpg", "four")],
        ),
        ("tsv", 'image\tcaption\na.jpg\t"Stop" says the man\n', [("a.jpg", '"Stop" says the man')]),
        ("csv", "red,a.jpg\nblue,b.jpg\n", [("red", "a.jpg"), ("blue", "b.jpg")]),
    ],
    ids=["several lines", "as programs write tabs", "quotes of the text", "no header"],
)
def test_quotes_and_headers_are_read_as_they_are_meant(
    tmp_path: Path, suffix: str, content: str, expected: list[tuple[str, str]]
) -> None:
    assert rows(tmp_path / f"t.{suffix}", content) == expected


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", "image,caption\na.jpg,été\n".encode("utf-16")),
        ("t.csv", '"sep=;"\r\nimage;caption\r\na.jpg;été\r\n'),
        ("t.csv.gz", gzip.compress("image,caption\na.jpg,été\n".encode())),
        ("t.JSON.gz", gzip.compress('[{"image": "a.jpg", "caption": "été"}]'.encode())),
    ],
    ids=["UTF-16 with its mark", "Excel's line", "compressed", "compressed JSON"],
)
def test_tables_are_read_as_excel_and_archives_write_them(tmp_path: Path, name: str, content: str | bytes) -> None:
    assert rows(tmp_path / name, content) == [("a.jpg", "été")]


def test_arrow_files_and_streams_are_tables(tmp_path: Path) -> None:
    table = pa.table({"image": ["a.jpg", "b.jpg"], "caption": ["one", "two"]})
    for name, writer in (("file.arrow", pa.ipc.new_file), ("stream.arrow", pa.ipc.new_stream)):
        with writer(str(tmp_path / name), table.schema) as out:
            out.write_table(table, max_chunksize=1)
        assert [*open_table(tmp_path / name).rows] == table.to_pylist()
    (tmp_path / "t.feather").write_bytes(b"no")
    with pytest.raises(RequestError, match="not an Arrow file"):
        open_table(tmp_path / "t.feather")


def test_an_object_with_other_than_objects_is_no_table(tmp_path: Path) -> None:
    """One of its rows would be left out without a word."""
    assert "expected a list of objects" in fault(tmp_path / "t.json", '{"1": {"image": "a.jpg"}, "2": "b.jpg"}')


def test_a_parquet_file_that_is_damaged_in_the_middle_is_named(tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    pq.write_table(
        pa.table({"image": [f"{n}.jpg" for n in range(9999)]}), file, compression="gzip", use_dictionary=False
    )
    content = bytearray(file.read_bytes())
    content[1000:3000] = bytes(2000)
    file.write_bytes(content)
    with pytest.raises(RequestError, match=r"cannot be read as \.parquet"):
        list(open_table(file).rows)


@pytest.mark.parametrize(
    ("name", "lines", "last"),
    [("t.csv", "image,caption\n" + "a.jpg,one,two\n" * 30, "row 20"), ("t.jsonl", "[1]\n" * 30, "line 20")],
)
def test_every_row_that_cannot_be_read_is_told(tmp_path: Path, name: str, lines: str, last: str) -> None:
    told = fault(tmp_path / name, lines).splitlines()
    assert sum("expected" in line for line in told) == 20
    assert last in told[-2]
    assert "10 more rows cannot be read" in told[-1]


def test_a_file_of_three_columns_without_a_header_is_refused(tmp_path: Path) -> None:
    message = fault(tmp_path / "t.csv", "1,a.jpg,red\n2,b.jpg,blue\n")
    assert "its first line is a row" in message
    assert "write a line with the names of its 3 columns above it" in message
