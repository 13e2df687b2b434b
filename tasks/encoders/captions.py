"""What every adapter does to captions before and after its tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from store.errors import RequestError
from store.types import EncoderSpec

_PLACE = "{caption}"


@dataclass(frozen=True)
class Template:
    """The text put around every caption: option ``caption_template`` of a spec, with ``{caption}`` where it goes.

    Examples:
        >>> Template("a photo of {caption}.").fill("a {red} bus")
        'a photo of a {red} bus.'
    """

    text: str = _PLACE

    @classmethod
    def of(cls, spec: EncoderSpec, default: str = _PLACE) -> Template:
        """The template of a spec.

        Raises:
            RequestError: It does not hold ``{caption}`` exactly once.
        """
        text = str(spec.options.get("caption_template", default))
        if text.count(_PLACE) != 1:
            raise RequestError(f"encoder {spec.name!r}: caption_template must hold {_PLACE} once, got {text!r}")
        return cls(text)

    def fill(self, caption: str) -> str:
        """The caption in its place; braces in the caption mean nothing."""
        before, after = self.text.split(_PLACE)
        return f"{before}{caption}{after}"


def max_length_of(spec: EncoderSpec, *, default: int, limit: int) -> int:
    """Tokens after which a caption is cut: option ``max_length`` of a spec, or the model's own.

    Raises:
        RequestError: More than the model has positions for, or less than 3.
    """
    asked = spec.options.get("max_length", default)
    if not isinstance(asked, int) or not 3 <= asked <= limit:
        raise RequestError(f"encoder {spec.name!r}: max_length must be from 3 to {limit}, got {asked!r}")
    return asked


def pad_rows(
    rows: Sequence[Sequence[int]], *, pad: int, width: int | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Token rows as one rectangle, padded on the right, and its mask.

    Args:
        rows: Token ids, one row per caption.
        pad: Id of the padding.
        width: Columns; None: as many as the longest row has.

    Returns:
        Ids and mask (1: token, 0: padding), both int64 of shape ``(n, width)``.

    Examples:
        >>> ids, mask = pad_rows([[5], [6, 7]], pad=0, width=None)
        >>> ids.tolist(), mask.tolist()
        ([[5, 0], [6, 7]], [[1, 0], [1, 1]])
    """
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    columns = int(lengths.max(initial=0)) if width is None else width
    mask = np.arange(columns) < lengths[:, None]
    ids = np.full((len(rows), columns), pad, dtype=np.int64)
    ids[mask] = np.concatenate([np.asarray(row, dtype=np.int64) for row in rows]) if len(rows) else []
    return ids, mask.astype(np.int64)
