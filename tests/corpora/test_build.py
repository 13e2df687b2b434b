from __future__ import annotations

from typing import Any

import pytest
from PIL import Image

from capim.store.errors import RequestError
from capim.store.types import Corpus
from capim.tasks.corpora.build import (
    CaptionRow,
    ImageRow,
    PairRow,
    QuadrupleRow,
    RelevanceRow,
    SkippedRow,
    build_corpus,
)

TWO = [ImageRow("a"), ImageRow("b")]
TEXTS = [CaptionRow("a0", "a", "one"), CaptionRow("b0", "b", "two"), CaptionRow("n", None, "negative")]


class Bytes:
    """An image source over a dict."""

    def __init__(self, images: dict[str, bytes]) -> None:
        self.images = images

    def read(self, key: str) -> bytes:
        if key not in self.images:
            raise FileNotFoundError(f"no {key}")
        return self.images[key]


def refused(*args: object, **kwargs: object) -> str:
    with pytest.raises(RequestError) as caught:
        build_corpus("c", *args, **{"source": None, **kwargs})  # type: ignore[arg-type]
    return str(caught.value)


def test_ordinals_count_within_image_language_and_translator() -> None:
    corpus = build_corpus(
        "c",
        TWO,
        [
            CaptionRow("1", "a", "x"),
            CaptionRow("2", "b", "x"),
            CaptionRow("3", "a", "x", language="de"),
            CaptionRow("4", "a", "x", language="de", translator="google"),
            CaptionRow("5", "a", "x"),
        ],
        source=None,
    )
    assert corpus.captions["ordinal"].to_pylist() == [0, 0, 0, 0, 1]


def test_images_are_hashed_and_measured_from_their_source(picture) -> None:
    data = picture("red", (7, 5))
    corpus = build_corpus("c", TWO, TEXTS, source=Bytes({"a": data, "b": data}))
    row = corpus.images.to_pylist()[0]
    assert (row["width"], row["height"]) == (7, 5)
    assert row["sha"] == corpus.images["sha"][1].as_py()
    assert len(row["sha"]) == 32


def test_every_kind_of_fault_is_named_at_once() -> None:
    message = refused(
        [ImageRow("a"), ImageRow("a"), ImageRow("")],
        [CaptionRow("x", "a", "1"), CaptionRow("x", "z", "2")],
        pairs=[PairRow("p", "q", "x", "y", "c"), PairRow("p", "a", "x", "x", "c")],
        quadruples=[QuadrupleRow("w", "a", "b", "x", "y")],
        relevance=[RelevanceRow("cxc", "t2i", "x", "zz"), RelevanceRow("cxc", "up", "x", "a")],
        skipped=[SkippedRow("a", "gone")],
    )
    for expected in (
        "duplicate image ids: 'a'",
        "images without an id",
        "images both listed and skipped: 'a'",
        "duplicate caption ids: 'x'",
        "captions of images that are not in the corpus: 'x' of 'z'",
        "duplicate pair ids: 'p'",
        "pairs of images that are not in the corpus: 'p' of 'q'",
        "pairs of captions that are not in the corpus: 'p' of 'y'",
        "quadruples of images that are not in the corpus: 'w' of 'b'",
        "positives of a ground truth that are not in the corpus: cxc 'zz'",
        "directions other than t2i and i2t in a ground truth: 'up'",
    ):
        assert f"corpus 'c': {expected}" in message


def test_many_faults_of_one_kind_are_one_line_with_their_count() -> None:
    message = refused(TWO, [CaptionRow(str(i), "z", "t") for i in range(9)])
    assert message.count("\n") == 0
    assert "captions of images that are not in the corpus: '0' of 'z'" in message
    assert message.endswith("and 4 more")


def test_an_image_that_cannot_be_read_is_named_with_the_reason(picture) -> None:
    assert "images that cannot be read: 'b' (no b)" in refused(TWO, TEXTS, source=Bytes({"a": picture("red")}))


@pytest.mark.parametrize(
    ("images", "captions", "expected"), [([], [], "no images"), (TWO, [], "no captions for its 2 images")]
)
def test_an_empty_corpus_is_an_error(images: list[ImageRow], captions: list[CaptionRow], expected: str) -> None:
    assert expected in refused(images, captions)


def test_a_corpus_whose_images_were_all_left_out_says_why() -> None:
    assert "all 1 were left out; the first: no file a.jpg" in refused(
        [], [], skipped=[SkippedRow("a", "no file a.jpg")]
    )


def test_a_text_that_is_not_unicode_is_named() -> None:
    assert "row 'bad' has text '\\ud800'" in refused(TWO, [*TEXTS, CaptionRow("bad", "a", "\ud800")])


def test_a_value_of_the_wrong_type_is_named() -> None:
    assert "row 'bad' has text 3, expected string" in refused(TWO, [*TEXTS, CaptionRow("bad", "a", 3)])  # type: ignore[arg-type]


def test_objects_are_sorted_and_null_where_not_annotated() -> None:
    corpus = build_corpus("c", [ImageRow("a", objects=["dog", "cat", "dog"]), ImageRow("b")], TEXTS, source=None)
    assert corpus.images["objects"].to_pylist() == [["cat", "dog"], None]


def test_the_fingerprint_changes_with_every_part_and_not_with_keys(picture) -> None:
    def made(**changes: object) -> Corpus:
        parts: dict[str, object] = {
            "images": TWO,
            "captions": TEXTS,
            "source": Bytes({"a": picture("red"), "b": picture("blue"), "folder/b": picture("blue")}),
            "pairs": [PairRow("p", "a", "a0", "n", "swap")],
        }
        return build_corpus("c", **{**parts, **changes})  # type: ignore[arg-type]

    whole = made().fingerprint
    assert made(images=[ImageRow("a"), ImageRow("b", "folder/b")]).fingerprint == whole
    change: dict[str, Any]
    for change in (
        {"images": list(reversed(TWO))},
        {"captions": [*TEXTS[:-1], CaptionRow("n", None, "other")]},
        {"pairs": []},
        {"relevance": [RelevanceRow("cxc", "t2i", "a0", "b")]},
        {"skipped": [SkippedRow("c", "gone")]},
        {"source": Bytes({"a": picture("red"), "b": picture("navy")})},
    ):
        assert made(**change).fingerprint != whole


def test_rows_may_come_from_generators_over_several_blocks() -> None:
    n = 10_000
    corpus = build_corpus(
        "c", (ImageRow(str(i)) for i in range(n)), (CaptionRow(f"{i}#0", str(i), "t") for i in range(n)), source=None
    )
    assert corpus.images["id"].to_pylist() == [str(i) for i in range(n)]
    assert corpus.captions.num_rows == n


def test_the_size_is_that_of_the_upright_image(tmp_path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (20, 10)).save(tmp_path / "x.jpg", exif=exif)
    data = (tmp_path / "x.jpg").read_bytes()
    corpus = build_corpus("c", [ImageRow("a")], [CaptionRow("a0", "a", "t")], source=Bytes({"a": data}))
    assert (corpus.images["width"][0].as_py(), corpus.images["height"][0].as_py()) == (10, 20)
