"""Caption templates, length limits and tokenisation that the adapters share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from capim.store.errors import RequestError
from capim.store.types import EncoderSpec

_PLACEHOLDER = "{caption}"


class Tokens(NamedTuple):
    """Tokenised captions.

    Attributes:
        ids: int64, shape ``(n, width)``, padded on the right.
        mask: int64, same shape: 1 for a token, 0 for padding.
        truncated: bool, shape ``(n,)``: the caption was longer than the model takes.
    """

    ids: NDArray[np.int64]
    mask: NDArray[np.int64]
    truncated: NDArray[np.bool_]


def caption_template(spec: EncoderSpec) -> tuple[str, str]:
    """The texts before and after every caption: option ``caption_template``, which has ``{caption}`` in its place.

    Raises:
        RequestError: It does not contain ``{caption}`` exactly once.

    Examples:
        >>> caption_template(EncoderSpec(name="x", adapter="hf_dual", checkpoint="a/b", dim=8,
        ...     options={"caption_template": "a photo of {caption}."}))
        ('a photo of ', '.')
    """
    template = str(spec.options.get("caption_template", _PLACEHOLDER))
    if template.count(_PLACEHOLDER) != 1:
        raise RequestError(
            f"encoder {spec.name!r}: caption_template must contain {_PLACEHOLDER} exactly once, got {template!r}"
        )
    before, after = template.split(_PLACEHOLDER)
    return before, after


def max_length_of(spec: EncoderSpec, *, default: int, limit: int) -> int:
    """Tokens after which a caption is truncated: option ``max_length`` of a spec, or the model's default.

    Raises:
        RequestError: More than the model has positions for, or less than 3.
    """
    length = spec.options.get("max_length", default)
    if not isinstance(length, int) or not 3 <= length <= limit:
        raise RequestError(f"encoder {spec.name!r}: max_length must be from 3 to {limit}, got {length!r}")
    return length


def tokenize(tokenizer: Any, texts: Sequence[str], *, max_length: int, width: int | None) -> Tokens:
    """Token ids of a transformers tokenizer; captions of more than ``max_length`` tokens are truncated.

    ``width`` is the number of columns; None: as many as the longest caption has tokens.
    """
    rows = tokenizer(list(texts), verbose=False)["input_ids"]
    truncated = np.asarray([len(row) > max_length for row in rows], dtype=np.bool_)
    long = np.flatnonzero(truncated).tolist()
    if long:
        cut = tokenizer([texts[row] for row in long], truncation=True, max_length=max_length)["input_ids"]
        for row, ids in zip(long, cut, strict=True):
            rows[row] = ids
    lengths = np.asarray([len(row) for row in rows])
    mask = np.arange(lengths.max() if width is None else width) < lengths[:, None]
    ids = np.full(mask.shape, tokenizer.pad_token_id, dtype=np.int64)
    ids[mask] = np.concatenate(rows)
    return Tokens(ids, mask.astype(np.int64), truncated)
