"""CSV and its like: no quote makes a table smaller without an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from capim.store.errors import RequestError
from capim.tasks.corpora.readers.table import delimited_rows


def rows(file: Path, content: str | bytes) -> list[tuple[str, ...]]:
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    columns, found = delimited_rows(file)
    return [tuple(str(row.get(column)) for column in columns) for row in found]


def refusal(file: Path, content: str | bytes) -> str:
    with pytest.raises(RequestError) as caught:
        rows(file, content)
    return str(caught.value)


def numbered(separator: str, *broken: int) -> str:
    """Three hundred rows; the caption of each broken one begins or ends with a quote."""
    lines = [f"{n:03d}.jpg{separator}caption {n}" for n in range(300)]
    for place, n in enumerate(broken):
        lines[n] = f"{n:03d}.jpg{separator}" + (f'"caption {n}' if place % 2 == 0 else f'caption {n}"')
    return "\n".join([f"image{separator}caption", *lines, ""])


def test_a_quote_that_is_never_closed_is_named_with_the_line_that_opens_it(tmp_path: Path) -> None:
    message = refusal(tmp_path / "t.csv", numbered(",", 149))
    assert "line 151: a quote is opened here that no quote at the end of a cell closes" in message


def test_a_quote_that_another_row_closes_does_not_swallow_the_rows_between(tmp_path: Path) -> None:
    message = refusal(tmp_path / "t.csv", numbered(",", 100, 250))
    assert "line 102: a quote is opened here and closed lines later" in message
    assert "looks like a row of its own" in message


@pytest.mark.parametrize("order", ["{id},{text}", "{text},{id}"])
@pytest.mark.parametrize("identifier", ["{n}", "img_{n}", "{n}.png", "my photo.jpg"])
def test_swallowed_rows_are_seen_whatever_the_images_are_called(tmp_path: Path, order: str, identifier: str) -> None:
    texts = ['"red', "green", "blue", '5"']
    lines = [order.format(id=identifier.format(n=n), text=text) for n, text in enumerate(texts)]
    header = order.format(id="image", text="caption")
    message = refusal(tmp_path / "t.csv", "\n".join([header, *lines, ""]))
    assert "line 2: a quote is opened here" in message


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
@pytest.mark.parametrize("caption_first", [False, True])
def test_swallowed_rows_are_seen_where_images_have_names_without_digits(
    tmp_path: Path, suffix: str, caption_first: bool
) -> None:
    """One row less in silence is a smaller gallery; in a TSV file such quotes are part of the text."""
    rows = [("apple", '"a red one'), ("pear", "a green one"), ("plum", 'a blue one"'), ("fig", "a brown one")]
    header = ("image", "caption")
    separator = {"csv": ",", "tsv": "\t"}[suffix]
    file = tmp_path / f"t.{suffix}"
    file.write_text("".join(separator.join(row[:: -1 if caption_first else 1]) + "\n" for row in (header, *rows)))
    if suffix == "tsv":
        assert [row["image"] for row in delimited_rows(file)[1]] == ["apple", "pear", "plum", "fig"]
    else:
        assert "looks like a row of its own" in refusal(file, file.read_text())


def test_captions_of_several_lines_are_read_where_the_quotes_are_right(tmp_path: Path) -> None:
    content = 'image,caption\n1.jpg,"Red, blue\nHowever, it is\n\n""green"""\n2.jpg,one\n'
    assert rows(tmp_path / "t.csv", content) == [("1.jpg", 'Red, blue\nHowever, it is\n\n"green"'), ("2.jpg", "one")]


def test_tabs_with_quotes_that_are_part_of_the_text_lose_no_row(tmp_path: Path) -> None:
    found = rows(tmp_path / "t.tsv", numbered("\t", 100, 250))
    assert len(found) == 300
    assert found[100] == ("100.jpg", '"caption 100')
    assert rows(tmp_path / "t.tsv", 'image\tcaption\na.jpg\t"Stop" says the man\n')[0][1] == '"Stop" says the man'


def test_tabs_with_paired_quotes_are_read_as_programs_write_them(tmp_path: Path) -> None:
    content = 'image\tcaption\na.jpg\t"one\ntwo ""three"""\nb.jpg\tfour\n'
    assert rows(tmp_path / "t.tsv", content) == [("a.jpg", 'one\ntwo "three"'), ("b.jpg", "four")]


def test_text_after_a_closing_quote_is_named(tmp_path: Path) -> None:
    assert "line 3: a quote is opened here" in refusal(tmp_path / "t.csv", 'image,caption\na,b\nc,"d" e\n')


def test_rows_of_another_length_are_named(tmp_path: Path) -> None:
    content = "image_name| comment_number| comment\na.jpg| 0| red\nb.jpg| 4   blue\n"
    assert "row 2: expected 3 cells as in the header, got 2" in refusal(tmp_path / "results.csv", content)


def test_a_file_without_a_header_has_two_columns_or_is_refused(tmp_path: Path) -> None:
    assert rows(tmp_path / "t.csv", "red,a.jpg\nblue,b.jpg\n") == [("red", "a.jpg"), ("blue", "b.jpg")]
    message = refusal(tmp_path / "t.csv", "1,a.jpg,red\n2,b.jpg,blue\n")
    assert "its first line is a row" in message
    assert "write a line with the names of its 3 columns above it" in message


def test_other_encodings_are_named(tmp_path: Path) -> None:
    assert "not a table in UTF-8" in refusal(tmp_path / "t.csv", "image,caption\na,caf\xe9\n".encode("latin-1"))
    assert "save it as UTF-8" in refusal(tmp_path / "t.csv", "image,caption\na,b\n".encode("utf-16"))
