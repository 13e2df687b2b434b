"""A corpus as arrays: which caption describes which image, with which ordinal, in which language."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from capim.store.schema import LABEL
from capim.store.types import Corpus
from capim.tasks.corpora.images.source import photograph_key
from capim.tasks.corpora.subset import first_linked
from capim.tasks.protocols import Protocol
from capim.tasks.statistics.clusters import SamplingFrame

T = TypeVar("T")
FIVE = 5  # COCO's captions per image; ten of its test images have a sixth


@dataclass(frozen=True, kw_only=True, eq=False)
class CorpusLayout:
    """Positions ("ords") instead of ids. Captions that describe no image (negatives) belong to no part.

    Attributes:
        caption_images: int32, shape ``(n_captions,)``: ord of the described image, -1 for a negative.
        ordinals: int32, shape ``(n_captions,)``: position within its image, language and translator.
        parts: ``(language, translator)`` -> int32 ords of its captions, ascending.
    """

    corpus: Corpus
    caption_images: NDArray[np.int32]
    ordinals: NDArray[np.int32]
    parts: Mapping[tuple[str, str], NDArray[np.int32]]

    @property
    def n_images(self) -> int:
        """Images of the corpus."""
        return int(self.corpus.images.num_rows)

    @cached_property
    def image_ids(self) -> NDArray[np.object_]:
        """Ids by ord, shape ``(n_images,)``."""
        return np.asarray(self.corpus.images["id"].to_pylist(), dtype=object)

    @cached_property
    def caption_ids(self) -> NDArray[np.object_]:
        """Ids by ord, shape ``(n_captions,)``."""
        return np.asarray(self.corpus.captions["id"].to_pylist(), dtype=object)

    @cached_property
    def photographs(self) -> NDArray[np.int32]:
        """Ord of the first image that shows the same photograph, shape ``(n_images,)``: the cluster of pairs."""
        return same_photographs(self.corpus.images)

    @cached_property
    def labels(self) -> pa.Table:
        """The rows of the corpus' relevance that give an image (the query) a class (the item); none without labels."""
        return self.corpus.relevance.filter(pc.field("ground_truth") == LABEL)

    @cached_property
    def captions(self) -> NDArray[np.int32]:
        """Ords of the captions of the main part (``Corpus.main_part``); empty without one."""
        main = self.corpus.main_part
        return self.parts[main] if main else np.empty(0, dtype=np.int32)

    @cached_property
    def captions_per_image(self) -> NDArray[np.int64]:
        """Number of captions of the main part per image, shape ``(n_images,)``."""
        return np.bincount(self.caption_images[self.captions], minlength=self.n_images)

    @cached_property
    def has_five(self) -> bool:
        """Whether every described image has captions 0 to 4."""
        described = int((self.captions_per_image > 0).sum())
        first_five = self.ordinals[self.captions[self.ordinals[self.captions] < FIVE]]
        return described > 0 and bool((np.bincount(first_five, minlength=FIVE) == described).all())


def once(make: Callable[[CorpusLayout], T]) -> Callable[[CorpusLayout], T]:
    """A function of a layout that is called once for each."""
    made: WeakKeyDictionary[CorpusLayout, T] = WeakKeyDictionary()

    @wraps(make)
    def of(layout: CorpusLayout) -> T:
        if layout not in made:
            made[layout] = make(layout)
        return made[layout]

    return of


def layout_of(corpus: Corpus) -> CorpusLayout:
    """The corpus as arrays, made once; ids of unknown images were refused when the corpus was built."""
    kept = vars(corpus)  # as a cached property of it would be
    if "layout" not in kept:
        kept["layout"] = _made(corpus)
    layout: CorpusLayout = kept["layout"]
    return layout


def _made(corpus: Corpus) -> CorpusLayout:
    captions = corpus.captions
    positions = pc.index_in(captions["image_id"], value_set=corpus.images["id"].combine_chunks())
    images = _int32(positions.fill_null(-1))
    described = images >= 0
    languages, language_of = _codes(captions["language"])
    translators, translator_of = _codes(captions["translator"])
    combined = language_of.astype(np.int64) * max(len(translators), 1) + translator_of
    parts = {}
    for code in np.unique(combined[described]):
        part = (languages[code // len(translators)], translators[code % len(translators)])
        parts[part] = np.flatnonzero(described & (combined == code)).astype(np.int32)
    return CorpusLayout(
        corpus=corpus, caption_images=images, ordinals=_int32(captions["ordinal"]), parts=dict(sorted(parts.items()))
    )


def ords_of(ids: pa.ChunkedArray, table: pa.Table) -> NDArray[np.int32]:
    """Positions of ids in a table of items.

    Raises:
        ValueError: An id is not in the table.
    """
    found = pc.index_in(ids, value_set=table["id"].combine_chunks())
    if found.null_count:
        missing = ids.filter(pc.is_null(found))
        raise ValueError(f"{len(missing)} ids are not in the corpus, first {missing[0].as_py()!r}")
    return _int32(found)


def _int32(values: pa.ChunkedArray | pa.Array) -> NDArray[np.int32]:
    return np.ascontiguousarray(values.to_numpy(), dtype=np.int32)


def _codes(column: pa.ChunkedArray) -> tuple[list[str], NDArray[np.int32]]:
    encoded = column.combine_chunks().dictionary_encode()
    return cast("list[str]", encoded.dictionary.to_pylist()), _int32(encoded.indices)


def drawn_clusters(corpus: Corpus, protocol: Protocol) -> SamplingFrame:
    """The clusters that are resampled: photographs, queries (judged documents) or quadruples, by what outcomes name."""
    if protocol.kind == "judged":
        return len(corpus.captions)
    if protocol.metrics:  # few images ask
        from capim.tasks.ranking.protocols import build_task

        return _photographs_among(corpus, np.unique(build_task(corpus, protocol).clusters))
    if protocol.direction == "quadruples":
        return len(corpus.quadruples)
    every = np.arange(len(corpus.images))
    return _photographs_among(corpus, every) if protocol.direction == "pairs" else drawn_images(corpus)


def drawn_images(corpus: Corpus) -> SamplingFrame:
    """The photographs of images that queries can belong to: those with a caption, and those that a ground truth asks.

    Other images are only searched: ten million of them beside COCO's 5,000 must not be drawn 10,000 times.
    """
    asked = corpus.relevance.filter(pc.field("direction") == "i2t")["query_id"]
    described = pc.unique(pa.chunked_array([*corpus.captions["image_id"].chunks, *asked.chunks], pa.string()))
    drawn = pc.index_in(described, value_set=corpus.images["id"].combine_chunks()).drop_null().to_numpy()
    return _photographs_among(corpus, np.sort(drawn) if len(drawn) else np.arange(len(corpus.images)))


def _photographs_among(corpus: Corpus, drawn: NDArray[np.integer]) -> SamplingFrame:
    """The number of the photograph that each image shows, among those of some images, whose ords ascend."""
    shown = corpus.images.select(["key", "sha"]).take(drawn)
    unit = np.unique(same_photographs(shown), return_inverse=True)[1] if _repeats(shown) else np.arange(len(drawn))
    if len(drawn) == len(corpus.images) == unit.max(initial=-1) + 1:
        return len(drawn)
    frame = np.full(int(drawn.max()) + 1, -1, dtype=np.int64)
    frame[drawn] = unit
    return frame


def _repeats(images: pa.Table) -> bool:
    """Whether some of the images may show one photograph; by Arrow, as this is asked for every figure."""
    columns = images["key"], images["sha"].drop_null()
    distinct = all(len(pc.unique(column)) == len(column) for column in columns)
    return not distinct or bool(pc.any(pc.match_substring(images["key"], "@")).as_py())  # perhaps boxes


def same_photographs(images: pa.Table) -> NDArray[np.int32]:
    """Position of the first image that shows the same photograph, shape ``(n_images,)``.

    Boxes of one photograph, and images of equal bytes or the same key, are one.
    """
    keys: list[Any] = images["key"].to_pylist()
    return first_linked([photograph_key(key) for key in keys], images["sha"].to_pylist())
