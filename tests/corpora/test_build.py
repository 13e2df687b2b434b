from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    keep_images,
)
from capim.tasks.corpora.subset import sample_corpus, without_images
from tests.corpora.own_data import png

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


def test_every_kind_of_fault_is_named_at_once() -> None:
    message = refused(
        [ImageRow("a"), ImageRow("a"), ImageRow("")],
        [CaptionRow("x", "a", "1"), CaptionRow("x", "z", "2")],
        pairs=[PairRow("p", "q", "x", "y", "c"), PairRow("p", "a", "x", "x", "c")],
        quadruples=[QuadrupleRow("w", "a", "b", "x", "y")],
        relevance=[
            *(RelevanceRow("cxc", "t2i", "x", "zz", grade) for grade in (2, 1)),
            RelevanceRow("cxc", "up", "x", "a"),
        ],
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
        "positives listed twice in a ground truth: cxc 'x', 'zz', with 2 and 1",
        "directions other than t2i, i2t, i2i, t2t in a ground truth: 'up'",
    ):
        assert f"corpus 'c': {expected}" in message


def test_an_image_that_cannot_be_read_is_named_with_the_reason() -> None:
    assert "images that cannot be read: 'b' (no b)" in refused(TWO, TEXTS, source=Bytes({"a": png("red")}))


BAD = CaptionRow("bad", "a", "\ud800")


@pytest.mark.parametrize(
    ("images", "captions", "skipped", "expected"),
    [
        ([], [], [], "no images"),
        (TWO, [], [], "no captions for its 2 images"),
        ([], [], [SkippedRow("a", "no file a.jpg")], "all 1 were left out; the first: no file a.jpg"),
        (TWO, [*TEXTS, BAD], [], "row 'bad' has text '\\ud800'"),
        (TWO, [*TEXTS, BAD._replace(text=3)], [], "row 'bad' has text 3, expected string"),  # type: ignore[arg-type]
    ],
)
def test_an_empty_corpus_and_a_value_that_is_no_text_are_refused(
    images: list[ImageRow], captions: list[CaptionRow], skipped: list[SkippedRow], expected: str
) -> None:
    assert expected in refused(images, captions, skipped=skipped)


def test_captions_without_a_number_are_numbered_within_image_language_and_translator() -> None:
    more = [CaptionRow("a1", "a", "1"), CaptionRow("d", "a", "2", language="de"), CaptionRow("a9", "a", "3", 9)]
    captions = build_corpus("c", TWO, [*TEXTS, *more], source=None).captions
    assert captions["ordinal"].to_pylist() == [0, 0, 0, 1, 0, 9]


def test_the_fingerprint_changes_with_every_part_and_not_with_keys() -> None:
    def made(**changes: object) -> Corpus:
        parts: dict[str, object] = {
            "images": TWO,
            "captions": TEXTS,
            "source": Bytes({"a": png("red"), "b": png("blue"), "folder/b": png("blue")}),
            "pairs": [PairRow("p", "a", "a0", "n", "swap")],
        }
        return build_corpus("c", **{**parts, **changes})  # type: ignore[arg-type]

    whole, prints = made().fingerprint, set[str]()
    assert made(images=[ImageRow("a"), ImageRow("b", "folder/b")]).fingerprint == whole
    change: dict[str, Any]
    for change in (
        {"images": list(reversed(TWO))},
        {"captions": [*TEXTS[:-1], CaptionRow("n", None, "other")]},
        {"pairs": []},
        {"relevance": [RelevanceRow("cxc", "t2i", "a0", "b")]},
        {"relevance": [RelevanceRow("cxc", "t2i", "a0", "b", 2)]},
        {"skipped": [SkippedRow("c", "gone")]},
        {"source": Bytes({"a": png("red"), "b": png("navy")})},
    ):
        prints.add(made(**change).fingerprint)
    assert whole not in prints
    assert len(prints) == 7


def retrieval(n: int) -> Corpus:
    return build_corpus(
        "r",
        [ImageRow(f"i{k}") for k in range(n)],
        [CaptionRow(f"i{k}#{c}", f"i{k}", "t") for k in range(n) for c in range(3)],
        source=None,
        relevance=[RelevanceRow("cxc", "t2i", f"i{k}#0", f"i{(k + 1) % n}") for k in range(n)]
        + [RelevanceRow("cxc", "i2t", f"i{k}", f"i{(k + 1) % n}#1") for k in range(n)],
    )


def compositional(n: int) -> Corpus:
    """n quadruples over 2n images, then one pair with a negative on every image."""
    images = [ImageRow(f"{q}/{i}") for q in range(n) for i in range(2)]
    captions = [CaptionRow(f"{q}/{i}", f"{q}/{i}", "t") for q in range(n) for i in range(2)]
    negatives = [CaptionRow(f"{q}/{i}!", None, "t") for q in range(n) for i in range(2)]
    pairs = [PairRow(row.id, row.id, row.id, f"{row.id}!", "swap") for row in images]
    quadruples = [QuadrupleRow(str(q), f"{q}/0", f"{q}/1", f"{q}/0", f"{q}/1", ["tag"]) for q in range(n)]
    distractor = CaptionRow("distractor", None, "never used by a pair")
    return build_corpus(
        "w", images, [*captions, *negatives, distractor], source=None, pairs=pairs, quadruples=quadruples
    )


@given(n=st.integers(2, 30), size=st.integers(1, 29), seed=st.integers(0, 5))
def test_a_sample_keeps_order_captions_and_closed_ground_truths(n: int, size: int, seed: int) -> None:
    whole = retrieval(n)
    drawn = sample_corpus(whole, size, seed=seed)
    images: list[Any] = drawn.images["id"].to_pylist()
    assert len(images) == min(n, size)
    assert images == [image for image in whole.images["id"].to_pylist() if image in set(images)]
    assert drawn.captions["id"].to_pylist() == [f"{image}#{c}" for image in images for c in range(3)]
    for row in drawn.relevance.to_pylist():
        assert {row["query_id"].split("#")[0], row["item_id"].split("#")[0]} <= set(images)
    expected = sum(f"i{(int(image[1:]) + 1) % n}" in images for image in images)
    assert drawn.relevance.num_rows == 2 * expected


def test_same_seed_same_draw_another_seed_another_and_a_larger_draw_holds_the_smaller() -> None:
    whole = retrieval(200)
    draws = {(size, seed): sample_corpus(whole, size, seed=seed) for size in (20, 40) for seed in (0, 1)}
    assert draws[20, 0].fingerprint == sample_corpus(whole, 20, seed=0).fingerprint
    assert draws[20, 0].images["id"].to_pylist() != draws[20, 1].images["id"].to_pylist()
    assert set(draws[20, 1].images["id"].to_pylist()) < set(draws[40, 1].images["id"].to_pylist())
    assert [draws[key].name for key in draws] == ["r-sample20", "r-sample20-seed1", "r-sample40", "r-sample40-seed1"]


def test_a_sample_as_large_as_the_corpus_is_the_corpus() -> None:
    whole = retrieval(5)
    assert sample_corpus(whole, 5, seed=3) is whole


@given(n=st.integers(2, 10), size=st.integers(2, 19), seed=st.integers(0, 5))
def test_a_sample_never_tears_a_quadruple_or_a_pair(n: int, size: int, seed: int) -> None:
    whole = compositional(n)
    drawn = sample_corpus(whole, size, seed=seed)
    assert drawn.images.num_rows in {size - size % 2, 2 * n}
    assert drawn.quadruples.num_rows * 2 == drawn.pairs.num_rows == drawn.images.num_rows
    assert drawn.captions.num_rows == 2 * drawn.images.num_rows + 1
    present = set(drawn.captions["id"].to_pylist())
    assert {row["negative_id"] for row in drawn.pairs.to_pylist()} | {"distractor"} <= present


def test_a_sample_that_is_too_small_says_so() -> None:
    with pytest.raises(RequestError, match="at least 1 image, got 0"):
        sample_corpus(retrieval(3), 0, seed=0)
    with pytest.raises(RequestError, match="a sample of 1 cannot hold the 2 images that one quadruple needs"):
        sample_corpus(compositional(3), 1, seed=0)


def test_images_left_out_are_listed_and_nothing_hangs_on_them() -> None:
    smaller = without_images(compositional(2), [SkippedRow("0/1", "corrupt")])
    assert smaller.skipped.to_pylist() == [{"item_id": "0/1", "reason": "corrupt", "modality": "image"}]
    assert smaller.quadruples["id"].to_pylist() == ["1"]
    assert smaller.pairs["id"].to_pylist() == ["0/0", "1/0", "1/1"]
    assert "0/1!" not in smaller.captions["id"].to_pylist()
    assert "0/0!" in smaller.captions["id"].to_pylist()


def test_keeping_everything_changes_nothing() -> None:
    for whole in (retrieval(4), compositional(3)):
        assert keep_images(whole, whole.images["id"].combine_chunks()).fingerprint == whole.fingerprint
