"""The rows in which readers say what a corpus holds, and the faults that are found in them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from store.errors import RequestError

_SHOWN = 5


class ImageRow(NamedTuple):
    """One image; ``key`` defaults to ``id``, hash and size are read from the source where they are not given."""

    id: str
    key: str = ""
    sha: str | None = None
    width: int | None = None
    height: int | None = None
    objects: Sequence[str] | None = None


class CaptionRow(NamedTuple):
    """One caption; without an ordinal it is numbered by its order within image, language and translator."""

    id: str
    image_id: str | None
    text: str | None
    ordinal: int | None = None
    language: str = "en"
    translator: str = "human"
    annotation_id: str | None = None


class PairRow(NamedTuple):
    """An image, its caption and a hard negative caption (SugarCrepe form)."""

    id: str
    image_id: str
    caption_id: str
    negative_id: str
    category: str


class QuadrupleRow(NamedTuple):
    """Two images and two captions, ``caption_0`` being that of ``image_0`` (Winoground form)."""

    id: str
    image_0: str
    image_1: str
    caption_0: str
    caption_1: str
    tags: Sequence[str] = ()


class RelevanceRow(NamedTuple):
    """One positive of an extra ground truth; ``direction`` is ``t2i`` (query: caption) or ``i2t`` (query: image)."""

    ground_truth: str
    direction: str
    query_id: str
    item_id: str


class SkippedRow(NamedTuple):
    """An image that the corpus has but that is left out, and why."""

    image_id: str
    reason: str


class Faults:
    """What is wrong, by kind: each kind is one line with its count and first examples."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._examples: defaultdict[str, list[str]] = defaultdict(list)
        self._counts: Counter[str] = Counter()

    def add(self, kind: str, example: str) -> None:
        """Count one more fault of this kind, e.g. ``("duplicate image ids", "'17'")``."""
        self._counts[kind] += 1
        if len(self._examples[kind]) < _SHOWN:
            self._examples[kind].append(example)

    def lines(self) -> list[str]:
        """One line for every kind, in the order in which the kinds were met."""
        found = []
        for kind, count in self._counts.items():
            more = count - len(self._examples[kind])
            shown = ", ".join(self._examples[kind]) + (f" and {more} more" if more else "")
            found.append(f"corpus {self._name!r}: {count} {kind}: {shown}")
        return found

    def raise_any(self) -> None:
        """Raise all that was found as one :class:`~store.errors.RequestError`; do nothing where there is none."""
        if self._counts:
            raise RequestError(self.lines())
