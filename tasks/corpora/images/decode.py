"""Decoding of image bytes, and thumbnails.

Every image becomes the upright first frame in 8-bit RGB: greyscale is repeated in the three channels, 16 bits are
scaled to 8, transparency is put on white, CMYK and palettes are converted, and EXIF rotation is applied.
"""

from __future__ import annotations

import hashlib
import io
import struct
import zlib
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from capim.store.errors import WorkError

# Pillow warns above this size and refuses twice as much; photographs are far smaller, decompression bombs are not.
MAX_PIXELS = Image.MAX_IMAGE_PIXELS or 89_478_485
LARGEST_EDGE = 512  # of the short sides to which models resize, before they crop
THUMBNAIL_SIDE = 160
_THUMBNAIL_LONGEST = 640

# Pillow reads forty more, PostScript among them, which it hands to another program.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF")


# The exceptions that Pillow's decoders raise on damaged bytes.
_BOMB = (Image.DecompressionBombError, Image.DecompressionBombWarning)
_DAMAGED = (OSError, SyntaxError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, EOFError)
_BROKEN = (*_DAMAGED, struct.error, zlib.error, *_BOMB)


class UndecodableImage(ValueError):  # noqa: N818 - reads as what it is
    """The bytes cannot be decoded as an image; the message says why."""


class ImageFacts(NamedTuple):
    """blake2b-128 of the bytes, and the upright size; the size is None if the header cannot be read."""

    sha: str
    width: int | None
    height: int | None


def image_sha(data: bytes) -> str:
    """Return blake2b-128 of encoded image bytes, hexadecimal.

    Examples:
        >>> image_sha(b"")
        'cae66941d9efbd404e4d88758ea67670'
    """
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def unchanged(data: bytes, sha: str, key: str) -> bytes:
    """Return the bytes of an image, which still have the hash that they had when the corpus was opened.

    Raises:
        WorkError: If they have another hash.
    """
    if image_sha(data) != sha:
        raise WorkError(f"image {key!r} was changed after the corpus was opened; run again to use its new contents")
    return data


def image_facts(data: bytes) -> ImageFacts:
    """Return the hash and upright size of encoded image bytes, without decoding them."""
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            width, height = image.size
            if _orientation(image) in {5, 6, 7, 8}:
                width, height = height, width
    except _BROKEN:
        return ImageFacts(image_sha(data), None, None)
    return ImageFacts(image_sha(data), width, height)


def decode_image(data: bytes) -> Image.Image:
    """Return the upright first frame of the image in these bytes, in 8-bit RGB.

    Args:
        data: An encoded image in one of ``FORMATS``.

    Raises:
        UndecodableImage: The bytes are empty, truncated, not an image, or hold more than ``MAX_PIXELS`` pixels; or
            they would, with the short side resized to ``LARGEST_EDGE`` pixels.
    """
    if not data:
        raise UndecodableImage("the file is empty")
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            if image.width * image.height > MAX_PIXELS:
                raise UndecodableImage(f"{image.width} x {image.height} pixels, more than the {MAX_PIXELS:,} allowed")
            short, long = sorted(image.size)
            if short and LARGEST_EDGE**2 * long / short > MAX_PIXELS:
                size = f"{image.width} x {image.height} pixels"
                raise UndecodableImage(
                    f"{size}: one side is more than {MAX_PIXELS // LARGEST_EDGE**2} times the other, and models resize "
                    "the short side"
                )
            image.load()
            with suppress(*_BROKEN):  # the EXIF block is damaged
                # not copied: a copy holds Python's lock, which kept 16 threads to the speed of four
                ImageOps.exif_transpose(image, in_place=True)
            return _to_rgb(image)
    except UndecodableImage:
        raise
    except _BOMB as error:
        raise UndecodableImage(f"more than the {MAX_PIXELS:,} pixels allowed ({error})") from error
    except UnidentifiedImageError as error:
        raise UndecodableImage(f"unknown image format (starts with {data[:8]!r})") from error
    except _BROKEN as error:
        raise UndecodableImage(f"{type(error).__name__}: {error}") from error


def _orientation(image: Image.Image) -> int:
    """Return the EXIF orientation, 1 to 8; 1 (upright) if there is none or the EXIF block is damaged."""
    try:
        return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    except _BROKEN:
        return 1


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.mode.startswith("I;16") or image.mode in ("I", "F"):
        return _deep_grey(image)
    if image.has_transparency_data:
        with_alpha = image.convert("RGBA")
        flat = Image.new("RGB", with_alpha.size, "white")
        flat.paste(with_alpha, mask=with_alpha.getchannel("A"))
        return flat
    return image.convert("RGB")


def _deep_grey(image: Image.Image) -> Image.Image:
    """Return 16-bit, 32-bit or float greyscale scaled to 8 bits; Pillow's own conversion clips at 255, all white."""
    values = np.asarray(image, dtype=np.float64)
    if not np.isfinite(values).all():
        raise UndecodableImage("holds values that are not finite")
    highest = float(values.max())
    steps = (1.0, 255.0) if image.mode == "F" else (65535.0, 4294967295.0)
    full = steps[0] if highest <= steps[0] else steps[1]
    grey = np.clip(np.rint(values * (255.0 / full)), 0, 255).astype(np.uint8)
    return Image.fromarray(grey).convert("RGB")


def thumbnail(image: Image.Image) -> bytes:
    """Return a JPEG of the image with a short side of 160 pixels, never enlarged, the long side at most 640."""
    short, long = sorted(image.size)
    scale = min(1.0, THUMBNAIL_SIDE / short, _THUMBNAIL_LONGEST / long)
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    small = image if size == image.size else image.resize(size, Image.Resampling.LANCZOS, reducing_gap=3.0)
    buffer = io.BytesIO()
    small.convert("RGB").save(buffer, format="JPEG", quality=85)
    return buffer.getvalue()
