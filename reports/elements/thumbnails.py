"""Small pictures for a page: each once, whole, and all together small enough for an e-mail."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from math import sqrt

from PIL import Image

LONGEST = 320  # pixels of the longer side, where there are few
SHORTEST = 48
MOST_BYTES = 5_000_000  # of all pictures of a page, as they stand in it
QUALITY = 72


def data_uris(pictures: Mapping[str, bytes]) -> dict[str, str]:
    """Stored thumbnails (JPEG or PNG) as data URIs, uncropped; the more there are, the smaller.

    Together at most ``MOST_BYTES``, unless they are so many that this would need less than ``SHORTEST`` pixels.
    """
    side = LONGEST
    while True:
        uris = {key: _data_uri(encoded, side) for key, encoded in pictures.items()}
        total = sum(map(len, uris.values()))
        if total <= MOST_BYTES or side == SHORTEST:
            return uris
        side = max(SHORTEST, int(side * min(0.9, sqrt(MOST_BYTES / total))))


def _data_uri(encoded: bytes, side: int) -> str:
    """A picture as JPEG, its longer side at most ``side`` pixels; a JPEG that is no larger stays as it is."""
    with Image.open(io.BytesIO(encoded)) as image:
        if image.format != "JPEG" or max(image.size) > side:
            small = image.convert("RGB")
            small.thumbnail((side, side), Image.Resampling.LANCZOS)
            target = io.BytesIO()
            small.save(target, "JPEG", quality=QUALITY, optimize=True)
            encoded = target.getvalue()
    return f"data:image/jpeg;base64,{base64.b64encode(encoded).decode()}"
