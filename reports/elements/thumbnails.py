"""Small pictures for a page: once each, small enough for an e-mail."""

from __future__ import annotations

import base64
import io

from PIL import Image

SIDE = 120  # pixels of the square, twice what is shown
QUALITY = 72


def data_uri(encoded: bytes) -> str:
    """A square JPEG of the middle of a stored thumbnail, as a data URI.

    Args:
        encoded: JPEG or PNG as ``store.thumbnails`` gives it, encoded by capim.
    """
    with Image.open(io.BytesIO(encoded)) as image:
        rgb = image.convert("RGB")
    side = min(rgb.size)
    left, top = (rgb.width - side) // 2, (rgb.height - side) // 2
    square = rgb.crop((left, top, left + side, top + side))
    if side > SIDE:
        square = square.resize((SIDE, SIDE), Image.Resampling.LANCZOS)
    target = io.BytesIO()
    square.save(target, "JPEG", quality=QUALITY, optimize=True)
    return f"data:image/jpeg;base64,{base64.b64encode(target.getvalue()).decode()}"
