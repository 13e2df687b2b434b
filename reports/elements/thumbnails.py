"""Small pictures for a page: once each, small enough for an e-mail."""

from __future__ import annotations

import base64
import io

from PIL import Image, ImageOps

SIDE = 120  # pixels of the square, twice what is shown
QUALITY = 72


def data_uri(encoded: bytes) -> str:
    """A square JPEG of the middle of a stored thumbnail (JPEG or PNG), as a data URI."""
    with Image.open(io.BytesIO(encoded)) as image:
        side = min(SIDE, *image.size)
        square = ImageOps.fit(image.convert("RGB"), (side, side), Image.Resampling.LANCZOS)
    target = io.BytesIO()
    square.save(target, "JPEG", quality=QUALITY, optimize=True)
    return f"data:image/jpeg;base64,{base64.b64encode(target.getvalue()).decode()}"
