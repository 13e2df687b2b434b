"""Boxes of images as images, for ARO and CREPE, whose items are boxes of Visual Genome photographs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from capim.store.types import ImageSource
from capim.tasks.corpora.images.decode import MAX_PIXELS, UndecodableImage, decode_image

_KEY = re.compile(r"^(-?\d+),(-?\d+),(\d+),(\d+)@(.+)$")


def crop_key(key: str, x: int, y: int, width: int, height: int) -> str:
    """The key of a box of an image: left, top, width, height in pixels of the upright image."""
    return f"{x},{y},{width},{height}@{key}"


def photograph_key(key: str) -> str:
    """The key of the image that a key is a box of; the key itself for a complete image.

    Examples:
        >>> photograph_key(crop_key("1.jpg", 0, 0, 5, 5)), photograph_key("1.jpg")
        ('1.jpg', '1.jpg')
    """
    match = _KEY.match(key)
    return key if match is None else match[5]


@dataclass(frozen=True)
class Crops:
    """Boxes of the images of another source, as uncompressed PPM: the bytes depend on the pixels only."""

    images: ImageSource

    def read(self, key: str) -> bytes:
        """The bytes of one box; raises ``OSError`` if the image cannot be read or decoded."""
        match = _KEY.match(key)
        if match is None:
            raise FileNotFoundError(f"{key!r} is not the key of a box; expected x,y,width,height@image")
        x, y, width, height = (int(match[i]) for i in range(1, 5))
        name = match[5]
        try:
            image = decode_image(self.images.read(name))
        except UndecodableImage as error:
            raise OSError(f"{name}: {error}") from error
        if not 1 <= width * height <= MAX_PIXELS:
            raise OSError(f"{name}: a box of {width} x {height} pixels; expected 1 to {MAX_PIXELS:,} pixels")
        part = image.crop((x, y, x + width, y + height))
        return f"P6 {part.width} {part.height} 255\n".encode() + part.tobytes()
