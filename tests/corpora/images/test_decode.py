from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, ImageOps

from capim.tasks.corpora.images.decode import MAX_PIXELS, UndecodableImage, decode_image, image_facts, thumbnail


def encoded(image: Image.Image, form: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format=form, **options)
    return buffer.getvalue()


def pixel(data: bytes) -> tuple[int, ...]:
    image = decode_image(data)
    assert image.mode == "RGB"
    value = image.getpixel((0, 0))
    assert isinstance(value, tuple)
    return value


def palette(transparent: bool) -> bytes:
    image = Image.new("P", (4, 4), 1)
    image.putpalette([0, 0, 0, 10, 20, 30])
    return encoded(image, "PNG", **({"transparency": 1} if transparent else {}))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (encoded(Image.new("RGB", (4, 4), (10, 20, 30)), "PNG"), (10, 20, 30)),
        (encoded(Image.new("L", (4, 4), 77), "PNG"), (77, 77, 77)),
        (encoded(Image.new("1", (4, 4), 1), "PNG"), (255, 255, 255)),
        (encoded(Image.new("RGBA", (4, 4), (10, 20, 30, 255)), "PNG"), (10, 20, 30)),
        (encoded(Image.new("RGBA", (4, 4), (0, 0, 0, 0)), "PNG"), (255, 255, 255)),
        (encoded(Image.new("LA", (4, 4), (0, 0)), "PNG"), (255, 255, 255)),
        (palette(transparent=False), (10, 20, 30)),
        (palette(transparent=True), (255, 255, 255)),
        (encoded(Image.new("CMYK", (4, 4), (0, 0, 0, 255)), "TIFF"), (0, 0, 0)),
        (encoded(Image.fromarray(np.full((4, 4), 65535, np.uint16)), "PNG"), (255, 255, 255)),
        (encoded(Image.fromarray(np.full((4, 4), 32896, np.uint16)), "PNG"), (128, 128, 128)),
        (encoded(Image.fromarray(np.full((4, 4), 0.5, np.float32)), "TIFF"), (128, 128, 128)),
    ],
    ids=[
        "rgb",
        "grey",
        "bilevel",
        "opaque",
        "transparent",
        "grey-alpha",
        "palette",
        "palette-alpha",
        "cmyk",
        "white-16",
        "grey-16",
        "float",
    ],
)
def test_any_mode_becomes_rgb_as_people_see_it(data: bytes, expected: tuple[int, ...]) -> None:
    assert pixel(data) == expected


def test_of_an_animation_the_first_frame_is_taken() -> None:
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert pixel(data) == (255, 0, 0)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_rotation_is_done_as_pillow_does_it(orientation: int) -> None:
    image = Image.fromarray(np.arange(6 * 4 * 3, dtype=np.uint8).reshape(4, 6, 3))
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(image, "PNG", exif=exif)
    expected = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    assert np.array_equal(np.asarray(decode_image(data)), np.asarray(expected))
    assert image_facts(data)[1:] == expected.size


def test_a_damaged_exif_block_does_not_lose_the_image() -> None:
    data = encoded(Image.new("RGB", (6, 4), "red"), "PNG", exif=b"Exif\0\0garbage that is no TIFF header")
    assert decode_image(data).size == (6, 4)
    assert image_facts(data)[1:] == (6, 4)


def bomb() -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


JPEG = encoded(Image.effect_noise((64, 64), 50).convert("RGB"), "JPEG")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "the file is empty"),
        (b"<html>not found</html>", "unknown image format (starts with b'<html>no')"),
        (JPEG[: len(JPEG) // 2], "truncated"),
        (bomb(), f"more than the {MAX_PIXELS:,} pixels allowed"),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 40, ""),
    ],
    ids=["empty", "html", "truncated", "bomb", "zeros"],
)
def test_what_cannot_be_decoded_says_why(data: bytes, reason: str) -> None:
    with pytest.raises(UndecodableImage) as caught:
        decode_image(data)
    assert reason in str(caught.value)


def test_a_large_image_just_over_the_limit_is_refused_without_decoding_it() -> None:
    side = int(MAX_PIXELS**0.5) + 2
    data = encoded(Image.new("1", (side, side)), "PNG")
    with pytest.raises(UndecodableImage, match="pixels"):
        decode_image(data)


@pytest.mark.parametrize(
    ("size", "expected"),
    [((640, 480), (213, 160)), ((480, 640), (160, 213)), ((100, 50), (100, 50)), ((8000, 200), (640, 16))],
)
def test_a_thumbnail_has_a_short_side_of_160_and_is_never_enlarged(
    size: tuple[int, int], expected: tuple[int, int]
) -> None:
    small = Image.open(io.BytesIO(thumbnail(Image.new("RGB", size, "red"))))
    assert small.format == "JPEG"
    assert small.size == expected


def test_a_photograph_is_decoded_without_copying_its_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy holds Python's lock: with 16 threads it took most of the time of the others."""
    out = io.BytesIO()
    Image.new("RGB", (40, 30), "red").save(out, "JPEG")

    def copied(image: Image.Image) -> Image.Image:
        raise AssertionError("pixels were copied")

    monkeypatch.setattr(Image.Image, "copy", copied)
    image = decode_image(out.getvalue())
    assert (image.mode, image.size) == ("RGB", (40, 30))
    assert np.asarray(image).shape == (30, 40, 3)


@pytest.mark.parametrize("form", ["EPS", "PCX", "SGI", "TGA", "ICO"])
def test_only_named_formats_are_opened(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow hands PostScript to Ghostscript, a program that runs it."""
    data = encoded(Image.new("RGB", (8, 8)), form)
    monkeypatch.setattr("PIL.EpsImagePlugin.Ghostscript", lambda *_, **__: pytest.fail("PostScript was run"))
    with pytest.raises(UndecodableImage, match="unknown image format"):
        decode_image(data)
    assert image_facts(data).width is None


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF"])
def test_every_named_format_is_read(form: str) -> None:
    assert decode_image(encoded(Image.new("RGB", (64, 64), "white"), form)).getpixel((3, 3)) == (255, 255, 255)


def test_an_image_that_is_small_but_becomes_huge_when_its_short_side_is_resized_is_refused() -> None:
    """20 KB; resized to a short side of 224 pixels, as models do, it took 18 GB."""
    with pytest.raises(UndecodableImage, match="2 x 1000 pixels: one side is more than 341 times the other"):
        decode_image(encoded(Image.new("RGB", (2, 1000)), "PNG"))
    assert decode_image(encoded(Image.new("RGB", (600, 2)), "PNG")).size == (600, 2)
