"""Parts of images as images of their own: ARO and CREPE ask about one box of a Visual Genome photograph."""

from __future__ import annotations

import re
from dataclasses import dataclass

from store.types import ImageSource
from tasks.corpora.images.decode import MAX_PIXELS, UndecodableImage, decode_image

_KEY = re.compile(r"^(-?\d+),(-?\d+),(\d+),(\d+)@(.+)$")


def crop_key(key: str, x: int, y: int, width: int, height: int) -> str:
    """The key of a box of an image: left, top, width, height in pixels of the upright image."""
    return f"{x},{y},{width},{height}@{key}"


@dataclass(frozen=True)
class Crops:
    """Boxes of the images of another source, as uncompressed PPM, whose bytes depend on the pixels alone."""

    images: ImageSource

    def read(self, key: str) -> bytes:
        """The bytes of one box; raises ``OSError`` where the image cannot be read or decoded."""
        match = _KEY.match(key)
        if match is None:
            raise FileNotFoundError(f"{key!r} is no box of an image")
        x, y, width, height = (int(match[i]) for i in range(1, 5))
        name = match[5]
        try:
            image = decode_image(self.images.read(name))
        except UndecodableImage as error:
            raise OSError(f"{name}: {error}") from error
        if width * height > MAX_PIXELS or not width or not height:
            raise OSError(f"{name}: a box of {width} x {height} pixels; expected 1 to {MAX_PIXELS:,} pixels")
        part = image.crop((x, y, x + width, y + height))
        return f"P6 {part.width} {part.height} 255\n".encode() + part.tobytes()
