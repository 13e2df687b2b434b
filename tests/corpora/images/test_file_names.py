"""Image files under names that are not exactly theirs."""

from __future__ import annotations

import pytest

from capim.tasks.corpora import open_corpus
from tests.corpora.own_data import Put, files, refusal


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("a.png", "deep/er/a.png"),
        ("a", "a.png"),
        ("a", "deep/a.JPEG"),
        ("a.jpg", "a.JPEG"),
        ("a.jpg", "A.jpg"),
        ("IMG_1.jpg", "img_1.JPG"),
        ("photos/a.png", "a.png"),
        ("./a.png", "a.png"),
        ("deep\\a.png", "deep/a.png"),
        ("images/a.png", "images/a.png"),
        ("a.png", "images/a.png"),
        ("scan.v2", "scan.v2.png"),
        ("285", "val2017/000000000285.jpg"),
        ("e\u0301.png", "\u00e9.png"),
        ("/home/somebody/photos/a.png", "a.png"),
        ("../photos/a.png", "a.png"),
    ],
)
def test_names_that_are_not_exactly_those_of_files_find_them(put: Put, name: str, file: str) -> None:
    root = put({"captions.csv": f"image,caption\n{name},red\nb.png,blue\n"}, file, "b.png")
    corpus = open_corpus(root)
    assert corpus.images["id"].to_pylist() == [name, "b.png"]
    key = files(corpus)[0].replace("\\", "/")
    assert root / file in (root / key, root / "images" / key)
    assert corpus.images["sha"].null_count == 0


def test_an_absolute_path_inside_the_folder_is_inside(put: Put) -> None:
    root = put(None, "deep/a.png", "other/a.png")
    put({"captions.csv": f"image,caption\n{root}/deep/a.png,red\n"})
    assert files(open_corpus(root)) == ["deep/a.png"]


def test_a_name_that_fits_several_files_names_them(put: Put) -> None:
    root = put({"captions.csv": "image,caption\na.png,red\nb,blue\n"}, "x/a.png", "y/a.png", "b.png", "b.jpg")
    message = refusal(root)
    assert (
        "image names that fit several files; write their path: 'a.png' (x/a.png, y/a.png), 'b' (b.jpg, b.png)"
        in message
    )
    put({"captions.csv": "image,caption\nx/a.png,red\nfar/y/a.png,blue\n"})
    assert files(open_corpus(root)) == ["x/a.png", "y/a.png"]


def test_two_names_of_one_file_are_named(put: Put) -> None:
    root = put({"captions.csv": "image,caption\na.png,red\na,blue\n"}, "a.png")
    assert "image names that mean the same file: 'a.png' and 'a' (a.png)" in refusal(root)
    put({"captions.csv": "image,caption\na,red\na.png,blue\n"})
    assert "image names that mean the same file: 'a' and 'a.png' (a.png)" in refusal(root)


def test_a_missing_file_with_a_near_name_shows_it_and_numbers_are_no_near_names(put: Put) -> None:
    root = put({"captions.csv": "image,caption\nimg-01.png,red\nimg_3.png,blue\n"}, "img_1.png", "img_2.png")
    message = refusal(root)
    assert "img-01.png (is it img_1.png?), img_3.png; put them there" in message


def test_hidden_files_and_those_of_macos_are_no_images(put: Put) -> None:
    root = put(
        {"captions.csv": "image,caption\na.png,red\n"}, "x/a.png", "__MACOSX/x/a.png", ".cache/a.png", "x/._a.png"
    )
    assert files(open_corpus(root)) == ["x/a.png"]
