"""Small pictures for a page: each once, whole, and all together small enough for an e-mail."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from math import sqrt

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from capim.store.vectors import Explanation

LONGEST = 320  # pixels of the longer side, where there are few
SHORTEST = 48
MOST_BYTES = 1_900_000  # of all pictures of a page, as embedded
QUALITY = 72


def data_uris(pictures: Mapping[str, bytes]) -> dict[str, str]:
    """Return stored thumbnails (JPEG or PNG) as data URIs, uncropped; the more there are, the smaller.

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
    """Return a picture as JPEG, its longer side at most ``side`` pixels; a JPEG that is no larger stays as it is."""
    with Image.open(io.BytesIO(encoded)) as image:
        if image.format != "JPEG" or max(image.size) > side:
            small = image.convert("RGB")
            small.thumbnail((side, side), Image.Resampling.LANCZOS)
            target = io.BytesIO()
            small.save(target, "JPEG", quality=QUALITY, optimize=True)
            encoded = target.getvalue()
    return f"data:image/jpeg;base64,{base64.b64encode(encoded).decode()}"


SIDE = 256  # pixels of the longer side of a map; smaller pictures are enlarged
_VEIL = 215  # of 255: how much of a patch is covered that is least similar


def patch_map(explanation: Explanation) -> NDArray[np.float32]:
    """Return for each patch the sum of similarities over the tokens that match it best among the patches.

    Shape ``(n_vectors,)``; 0 for vectors of special tokens, which no token is counted for.
    """
    n_vectors = explanation.similarities.shape[1]
    patches = np.concatenate([np.arange(n_vectors)[grid.vectors] for grid in explanation.grids] or [np.arange(0)])
    if not len(patches):
        return np.zeros(n_vectors, dtype=np.float32)
    of_patches = explanation.similarities[:, patches]
    best = patches[of_patches.argmax(axis=1)]
    return np.bincount(best, weights=of_patches.max(axis=1), minlength=n_vectors).astype(np.float32)


def draw_map(image: Image.Image, explanation: Explanation, values: NDArray[np.float32]) -> Image.Image:
    """Return the image under a white veil that is open at the patch with the highest value and closed at the lowest."""
    scale = SIDE / max(image.size)
    width, height = (max(1, round(side * scale)) for side in image.size)
    drawn = image.convert("RGB").resize((width, height), Image.Resampling.BICUBIC)
    patches = [
        (float(value), box)
        for grid in explanation.grids
        for value, box in zip(values[grid.vectors], grid.boxes(), strict=True)
    ]
    if not patches:
        return drawn
    lowest, highest = min(value for value, _ in patches), max(value for value, _ in patches)
    veil = Image.new("L", drawn.size, _VEIL)
    pen = ImageDraw.Draw(veil)
    size = np.tile(drawn.size, 2)
    for value, box in patches:
        shade = 0 if highest <= lowest else round(_VEIL * (highest - value) / (highest - lowest))
        left, top, right, bottom = np.round(box * size).astype(int).tolist()
        pen.rectangle((left, top, max(left, right - 1), max(top, bottom - 1)), fill=shade)  # of thin images, a line
    drawn.paste("white", mask=veil)
    return drawn


def opened(picture: bytes | None) -> Image.Image:
    """Return an encoded picture; white where there is none."""
    if picture is None:
        return Image.new("RGB", (SIDE, SIDE), "white")
    return Image.open(io.BytesIO(picture)).convert("RGB")


def encoded(image: Image.Image) -> bytes:
    """Return an image as PNG."""
    target = io.BytesIO()
    image.save(target, "PNG")
    return target.getvalue()
