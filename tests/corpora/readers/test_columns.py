"""Which column of a table holds what."""

from __future__ import annotations

import pytest

from capim.tasks.corpora import open_corpus
from capim.tasks.corpora.check import check_corpus
from tests.corpora.own_data import TWO, Put, refusal, texts


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
        ("url,caption", "'url' holds addresses: download the images first"),
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
    assert corpus.images["id"].to_pylist() == ["a.png", "b.png"]


def test_pairs_and_quadruples_are_recognised_by_their_columns(put: Put) -> None:
    root = put({"image_text_pairs.csv": "image,caption\na.png,red\nb.png,blue\n"}, "a.png", "b.png")
    assert texts(open_corpus(root)) == TWO
    put({"image_text_pairs.csv": "image,caption,negative_caption\na.png,red,blue\n"})
    assert open_corpus(root).pairs.num_rows == 1
    put({"image_text_pairs.csv": "image_0,image_1,caption_0,caption_1\na.png,b.png,red,blue\n"})
    assert open_corpus(root).quadruples.num_rows == 1
