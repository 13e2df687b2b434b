"""The rows that readers yield, and the faults that are found in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from capim.store.errors import RequestError
from capim.store.types import Modality

_SHOWN = 5


class ImageRow(NamedTuple):
    """One image; ``key`` defaults to ``id``, and hash and size are read from the source if they are not given."""

    id: str
    key: str = ""
    sha: str | None = None
    width: int | None = None
    height: int | None = None
    objects: Sequence[str] | None = None
    text: str | None = None
    document: str | None = None
    page: int | None = None


class CaptionRow(NamedTuple):
    """One caption; without an ordinal it is numbered by its order within image, language and translator."""

    id: str
    image_id: str | None
    text: str | None
    ordinal: int | None = None
    language: str = "en"
    translator: str = "human"
    annotation_id: str | None = None
    query_group: str | None = None
    query_types: Sequence[str] | None = None


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
    """One positive of an extra ground truth; ``direction`` is ``t2i`` (query: caption) or ``i2t`` (query: image).

    In the ground truth ``judged`` a row with a grade of 0 or below is a document that was judged not relevant.
    """

    ground_truth: str
    direction: str
    query_id: str
    item_id: str
    grade: int = 1


class SkippedRow(NamedTuple):
    """An image of the corpus (or a caption: a query) that is left out, and the reason."""

    item_id: str
    reason: str
    modality: Modality = "image"


class Faults:
    """The faults of a corpus, or of the file that it is read from, by kind; each kind with its first examples."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._examples: dict[str, list[str]] = {}

    def add(self, kind: str, example: str = "") -> None:
        """Note a fault, e.g. ``("duplicate image ids", "'17'")``."""
        self._examples.setdefault(kind, []).append(example)

    def lines(self) -> list[str]:
        """One line for every kind of fault."""
        lines = []
        for kind, examples in self._examples.items():
            shown = ", ".join(example for example in examples[:_SHOWN] if example)
            more = f" and {len(examples) - _SHOWN} more" if len(examples) > _SHOWN else ""
            lines.append(f"{self._where}: {kind}" + (f": {shown}{more}" if shown else ""))
        return lines

    def raise_any(self) -> None:
        """Raise all faults as one :class:`~store.errors.RequestError`; do nothing if there are none."""
        if lines := self.lines():
            raise RequestError(lines)
