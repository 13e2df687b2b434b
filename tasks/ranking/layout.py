"""A corpus as arrays: the image, ordinal and language of each caption."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from capim.store.schema import LABEL
from capim.store.types import Corpus, Modality
from capim.tasks.corpora.images.source import photograph_key
from capim.tasks.corpora.subset import first_linked

T = TypeVar("T")
FIVE = 5  # COCO's captions per image; ten of its test images have a sixth


@dataclass(frozen=True, eq=False)
class IndexSpace:
    """Meaning of the row numbers of queries or gallery items: the rows of a matrix of vectors.

    Attributes:
        modality: The kind of the items.
        ords: int32: each row's ord in the corpus; for a class, that of its first prompt. None: the rows are all items
            of this kind, in corpus order.
        prompts: For each row int32 ords of captions: its vector is their normalised mean. None: rows are single items.
        references: int32: for each row the ord of an image that is added to the caption. None: nothing is added.
        text_weight: Weight of the caption in ``text_weight * caption + (1 - text_weight) * reference``, 0..1.
    """

    modality: Modality
    ords: NDArray[np.int32] | None = None
    prompts: Sequence[NDArray[np.int32]] | None = None
    references: NDArray[np.int32] | None = None
    text_weight: float = 0.5

    @property
    def is_made(self) -> bool:
        """True if the vectors are computed from several stored ones."""
        return self.prompts is not None or self.references is not None

    def ords_of(self, rows: NDArray[Any]) -> NDArray[np.int32]:
        """Return the ords in the corpus of some rows."""
        return rows if self.ords is None else self.ords[rows]

    def rows_of(self, ords: NDArray[Any]) -> NDArray[np.int32]:
        """Return the rows of some items, by their ords in the corpus; the ords of the space ascend."""
        return ords if self.ords is None else np.searchsorted(self.ords, ords).astype(np.int32)


ALL_IMAGES, ALL_CAPTIONS = IndexSpace("image"), IndexSpace("caption")


@dataclass(frozen=True, kw_only=True, eq=False)
class CorpusLayout:
    """Positions ("ords") instead of ids. Captions that describe no image (negatives) are in no part.

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
        """Number of images in the corpus."""
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
        """Rows of the relevance that assign a class (the item) to an image (the query); empty without labels."""
        return self.corpus.relevance.filter(pc.field("ground_truth") == LABEL)

    @cached_property
    def part_spaces(self) -> Mapping[tuple[str, str], IndexSpace]:
        """The captions of each part as an index space, if there are several parts; else empty."""
        parts = self.parts.items() if len(self.parts) > 1 else ()
        return {part: IndexSpace("caption", ords) for part, ords in parts}

    def space_of(self, modality: Modality, ords: NDArray[np.int32]) -> IndexSpace:
        """Return the index space of some items: for captions that of their part, else all items of the modality."""
        if modality == "image":
            return ALL_IMAGES
        parts = (part for part in self.part_spaces if len(ords) and ords[0] in self.parts[part])
        return next((self.part_spaces[part] for part in parts), ALL_CAPTIONS)

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
        """True if every described image has captions 0 to 4."""
        described = int((self.captions_per_image > 0).sum())
        first_five = self.ordinals[self.captions[self.ordinals[self.captions] < FIVE]]
        return described > 0 and bool((np.bincount(first_five, minlength=FIVE) == described).all())


def once(make: Callable[[CorpusLayout], T]) -> Callable[[CorpusLayout], T]:
    """Return a function of a layout that is called once for each layout."""
    made: WeakKeyDictionary[CorpusLayout, T] = WeakKeyDictionary()

    @wraps(make)
    def of(layout: CorpusLayout) -> T:
        if layout not in made:
            made[layout] = make(layout)
        return made[layout]

    return of


def layout_of(corpus: Corpus) -> CorpusLayout:
    """Return the corpus as arrays, made once; ids of unknown images were refused when the corpus was built."""
    kept = vars(corpus)  # like a cached property
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
    """Return the positions of ids in a table of items.

    Raises:
        ValueError: If an id is not in the table.
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


def same_photographs(images: pa.Table) -> NDArray[np.int32]:
    """Return the position of the first image of the same photograph, shape ``(n_images,)``.

    Boxes of one photograph, and images with equal bytes or the same key, are one.
    """
    keys: list[Any] = images["key"].to_pylist()
    return first_linked([photograph_key(key) for key in keys], images["sha"].to_pylist())
