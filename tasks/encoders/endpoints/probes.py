"""The vectors that stand for the weights of an endpoint: of four fixed captions and one generated image.

An endpoint's weights cannot be hashed, and the name of a model does not change with them. So the first run keeps the
vectors of these items, and every later one encodes them again before it encodes anything else.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from capim.tasks.encoders.encoder import Encoder, encode_captions, encode_images

LOWEST_COSINE = 0.999  # of the same item in two runs; providers answer the same input with cosines above 0.9999
CAPTIONS = (
    "a red bus",
    "A yellow tram passes an old church.",
    "Two dogs, one brown and one white, play with a yellow ball on the grass behind a wooden fence.",
    "Ein Mann liest am Fenster eine Zeitung, 1987.",
)
IMAGE = "image: gradient with a dark square"


def probe_vectors(encoder: Encoder, *, image: bool) -> dict[str, NDArray[np.float32]]:
    """Probe -> its vector, shape ``(dim,)``; that of the image where it is wanted."""
    vectors = dict(zip(CAPTIONS, encode_captions(encoder, CAPTIONS).values, strict=True))
    if image:
        vectors[IMAGE] = encode_images(encoder, [probe_image()]).values[0]
    return vectors


def probe_image() -> Image.Image:
    """An image of 96 x 64 pixels that is computed, so that it is the same everywhere and for ever."""
    rows, columns = np.mgrid[0:64, 0:96]
    pixels = np.stack([columns * 255 // 95, rows * 255 // 63, (rows + columns) % 256], axis=2)
    pixels[20:44, 30:60] = (20, 30, 60)
    return Image.fromarray(pixels.astype(np.uint8))
