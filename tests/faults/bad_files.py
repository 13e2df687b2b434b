"""Image files that are not what they claim to be, made here, and sound ones of unusual kinds."""

from __future__ import annotations

import io
import random
import struct
import zlib
from collections.abc import Callable

import numpy as np
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from PIL import Image

from tests.faults.process import Failed


def encoded(image: Image.Image, form: str, **options: object) -> bytes:
    """An image in a format."""
    buffer = io.BytesIO()
    image.save(buffer, format=form, **options)
    return buffer.getvalue()


def photograph(side: int = 64) -> Image.Image:
    """Noise, the same every time."""
    values = np.random.default_rng(0).integers(0, 256, (side, side, 3), dtype=np.uint8)
    return Image.fromarray(values)


def png_of(width: int, height: int, body: bytes = b"") -> bytes:
    """A PNG whose header says so many pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(body)) + chunk(b"IEND", b"")


def _half(form: str) -> bytes:
    data = encoded(photograph(), form)
    return data[: len(data) // 2]


BAD_IMAGES: dict[str, Callable[[], bytes]] = {
    "empty.jpg": lambda: b"",
    "one-byte.jpg": lambda: b"\xff",
    "page.jpg": lambda: b"<!doctype html><title>404</title>",
    "drawing.svg": lambda: b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>',
    "half.png": lambda: _half("PNG"),
    "half.jpg": lambda: _half("JPEG"),
    "half.webp": lambda: _half("WEBP"),
    "half.tiff": lambda: _half("TIFF"),
    "claims-3.6-gigapixels.png": lambda: png_of(60_000, 60_000),
    "is-100-megapixels.png": lambda: encoded(Image.new("1", (10_000, 10_000)), "PNG"),
    "no-pixels.png": lambda: png_of(0, 0),
    "becomes-huge.png": lambda: encoded(Image.new("L", (3000, 1), 99), "PNG"),  # when its short side is resized
    "zeros.png": lambda: b"\x89PNG\r\n\x1a\n" + bytes(400),
    "header-only.gif": lambda: b"GIF89a",
    "noise.bin": lambda: random.Random(0).randbytes(5000),
    "archive.jpg": lambda: b"PK\x03\x04" + bytes(200),
    "text.png": lambda: "not a picture".encode("utf-16"),
}


def _turned(data: bytes) -> bytes:
    """Stored lying on its side, with the EXIF tag that says so."""
    exif = Image.Exif()
    exif[0x0112] = 6
    return encoded(Image.open(io.BytesIO(data)).convert("RGB").transpose(Image.Transpose.ROTATE_90), "PNG", exif=exif)


def _again(form: str, mode: str = "RGB", **options: object) -> Callable[[bytes], bytes]:
    return lambda data: encoded(Image.open(io.BytesIO(data)).convert(mode), form, **options)


def _animated(data: bytes) -> bytes:
    image = Image.open(io.BytesIO(data)).convert("RGB")
    return encoded(image, "PNG", save_all=True, append_images=[Image.new("RGB", image.size, "red")])


# File name -> the same pixels, otherwise stored.
SAME_IMAGES: dict[str, Callable[[bytes], bytes]] = {
    "turned \u202e.png": _turned,
    "'; DROP TABLE images; --.bmp": _again("BMP"),
    '<b onmouseover=alert(1)> & ".tiff': _again("TIFF"),
    "\U0001f6b2 ünïcödé 自転車.webp": _again("WEBP", lossless=True, exact=True),
    "-rf * $HOME `id` %s {0}\n.png": _animated,
    "." + "n" * 240 + ".png": _again("PNG", "RGBA"),
}


ODD_IMAGES: dict[str, Callable[[], bytes]] = {
    "cmyk.jpg": lambda: encoded(photograph().convert("CMYK"), "JPEG"),
    "grey-16.png": lambda: encoded(Image.fromarray(np.arange(4096, dtype=np.uint16).reshape(64, 64) * 16), "PNG"),
    "float.tiff": lambda: encoded(Image.fromarray(np.linspace(0, 1, 4096, dtype=np.float32).reshape(64, 64)), "TIFF"),
    "animated.gif": lambda: encoded(
        photograph().convert("P"), "GIF", save_all=True, append_images=[Image.new("P", (64, 64))] * 3
    ),
    "pixel.png": lambda: encoded(Image.new("RGB", (1, 1), "red"), "PNG"),
    "line.png": lambda: encoded(Image.new("L", (300, 1), 99), "PNG"),
    "transparent.png": lambda: encoded(Image.new("RGBA", (32, 32), (9, 9, 9, 0)), "PNG"),
    "bilevel.tiff": lambda: encoded(photograph().convert("1"), "TIFF", compression="group4"),
    "lab.tiff": lambda: encoded(photograph().convert("LAB"), "TIFF"),
    "damaged-exif.jpg": lambda: encoded(photograph(), "JPEG", exif=b"Exif\0\0no TIFF header"),
    "bytes-behind.jpg": lambda: encoded(photograph(), "JPEG") + b"<?php evil(); ?>" * 50,
}


def fuzz_images(number: int, examples: int) -> int:
    """Files with bytes changed, cut, doubled: an upright RGB image or :class:`UndecodableImage`, nothing else."""
    from capim.tasks.corpora.images.decode import UndecodableImage, decode_image, image_facts

    forms = ("PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP", "PPM", "ICO", "TGA")
    whole = [encoded(photograph(32), form) for form in forms]
    tried = 0

    @seed(number)
    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(
        data=st.sampled_from(whole),
        changes=st.lists(st.tuples(st.integers(0, 4000), st.binary(max_size=12)), max_size=6),
        cut=st.integers(0, 5000),
        tail=st.binary(max_size=20),
    )
    def decode(data: bytes, changes: list[tuple[int, bytes]], cut: int, tail: bytes) -> None:
        nonlocal tried
        tried += 1
        broken = bytearray(data)
        for place, new in changes:
            broken[place : place + len(new)] = new
        spoilt = bytes(broken[: cut or None]) + tail
        image_facts(spoilt)
        try:
            image = decode_image(spoilt)
        except UndecodableImage as refusal:
            if not str(refusal):
                raise Failed("an image was refused without a reason") from refusal
            return
        if image.mode != "RGB" or 0 in image.size:
            raise Failed(f"an image came out as {image.mode} of size {image.size}")

    decode()
    return tried
