"""Images that are drawn when they are read: corpora without files."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from dataclasses import dataclass

from PIL import Image


@dataclass(frozen=True)
class RenderedImages:
    """Draws the image of a key; its random variation depends on seed and key, so that its bytes are always the same.

    Attributes:
        draw: Draws the image of a key; ValueError for a key that names none.
        seed: Of the random variation.
    """

    draw: Callable[[str, random.Random], Image.Image]
    seed: int

    def read(self, key: str) -> bytes:
        """The PNG of one image.

        Raises:
            FileNotFoundError: The key names no image.
        """
        try:
            image = self.draw(key.removesuffix(".png"), random.Random(f"{self.seed}/{key}"))
        except ValueError as error:
            raise FileNotFoundError(str(error)) from error
        buffer = io.BytesIO()
        image.save(buffer, format="PNG")
        return buffer.getvalue()
