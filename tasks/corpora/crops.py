"""Parts of images as images of their own: ARO and CREPE ask about one box of a Visual Genome photograph."""

from __future__ import annotations

from dataclasses import dataclass

from store.types import ImageSource
from tasks.corpora.decode import UndecodableImage, decode_image


def crop_key(key: str, x: int, y: int, width: int, height: int) -> str:
    """The key of a box of an image: left, top, width, height in pixels of the upright image."""
    return f"{x},{y},{width},{height}@{key}"


@dataclass(frozen=True)
class Crops:
    """Boxes of the images of another source, as uncompressed PPM, whose bytes depend on the pixels alone."""

    images: ImageSource

    def read(self, key: str) -> bytes:
        """The bytes of one box; raises ``OSError`` where the image cannot be read or decoded."""
        box, _, name = key.partition("@")
        x, y, width, height = (int(part) for part in box.split(","))
        try:
            image = decode_image(self.images.read(name))
        except UndecodableImage as error:
            raise OSError(f"{name}: {error}") from error
        part = image.crop((x, y, x + width, y + height))
        return f"P6 {part.width} {part.height} 255\n".encode() + part.tobytes()
