"""Inputs of the conformance suite: six images with captions, unusual images, unusual captions."""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw

_COLOURS = {
    "red": (220, 40, 40),
    "green": (40, 170, 60),
    "blue": (50, 80, 220),
    "yellow": (235, 205, 40),
    "purple": (150, 60, 190),
    "orange": (245, 140, 30),
}
_SCENES = (
    ("red", "circle", "blue", "square"),
    ("green", "triangle", "yellow", "circle"),
    ("purple", "square", "orange", "triangle"),
    ("blue", "circle", "red", "triangle"),
    ("yellow", "square", "green", "circle"),
    ("orange", "circle", "purple", "triangle"),
)

SHORT = "a red bus"
CAPTIONS = (
    SHORT,
    "A yellow tram passes an old church.",
    "Two dogs, one brown and one white, play with a yellow ball on the grass behind a wooden fence.",
    "the",
)
UNUSUAL_CAPTIONS = (
    "",
    " ",
    "一只红色的公共汽车停在路边",
    "حافلة حمراء متوقفة على جانب الطريق",
    "รถบัสสีแดงจอดอยู่ข้างถนน",
    "красный автобус у дороги",
    "🚌🔴 naïve café — ½ price!!!",
    "line one\nline two\ttabbed\x00",
    "</s> <pad> [SEP] <image> <|endoftext|> <eos>",  # special tokens written out
)
LONG = "a small red bus and a large green tree stand beside each other " * 800


def six_scenes() -> tuple[list[Image.Image], list[str]]:
    """Images of two shapes each, and a matching caption for each."""
    images, captions = [], []
    for left, first, right, second in _SCENES:
        image = Image.new("RGB", (256, 256), (240, 240, 240))
        draw = ImageDraw.Draw(image)
        for colour, shape, x in ((left, first, 68), (right, second, 188)):
            _draw(draw, shape, x, 128, 50, _COLOURS[colour])
        images.append(image)
        captions.append(f"a large {left} {first} left of a large {right} {second}")
    return images, captions


def noise_image(width: int, height: int, seed: int) -> Image.Image:
    """An image of coarse coloured noise, which survives resizing."""
    small = np.random.default_rng(seed).integers(0, 256, (max(1, height // 8), max(1, width // 8), 3), dtype=np.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)


def unusual_images() -> dict[str, Image.Image]:
    """Images in every Pillow mode that a corpus may hold, and of extreme sizes, by name."""
    image = noise_image(96, 80, seed=5)
    modes = {mode: image.convert(mode) for mode in ("L", "LA", "RGBA", "P", "CMYK", "1", "YCbCr")}
    modes["I;16"] = Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 257)
    sizes = {f"{w}x{h}": noise_image(w, h, seed=6) for w, h in ((1, 1), (3, 2), (700, 5), (5, 700), (1500, 1100))}
    return modes | sizes


def wide_pair() -> tuple[Image.Image, Image.Image]:
    """Two wide images with equal centres and different sides: a centre crop makes them equal."""
    first, second = noise_image(720, 240, seed=7), noise_image(720, 240, seed=8)
    second.paste(first.crop((200, 0, 520, 240)), (200, 0))
    return first, second


def _draw(draw: ImageDraw.ImageDraw, shape: str, x: int, y: int, r: int, colour: tuple[int, int, int]) -> None:
    if shape == "circle":
        draw.ellipse((x - r, y - r, x + r, y + r), fill=colour)
    elif shape == "square":
        draw.rectangle((x - r, y - r, x + r, y + r), fill=colour)
    else:
        draw.polygon([(x, y - r), (x - r, y + r), (x + r, y + r)], fill=colour)
