"""What the conformance suite shows a model: six pictures with their captions, awkward pictures, awkward captions."""

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
AWKWARD_CAPTIONS = (
    "",
    " ",
    "一只红色的公共汽车停在路边",
    "حافلة حمراء متوقفة على جانب الطريق",
    "รถบัสสีแดงจอดอยู่ข้างถนน",
    "красный автобус у дороги",
    "🚌🔴 naïve café — ½ price!!!",
    "line one\nline two\ttabbed\x00",
    "</s> <pad> [SEP] <image> <|endoftext|> <eos>",  # a caption that spells a tokenizer's special tokens
)
LONG = "a small red bus and a large green tree stand beside each other " * 800


def six_pictures() -> tuple[list[Image.Image], list[str]]:
    """Pictures of two shapes each and the captions that belong to them, for a known answer."""
    pictures, captions = [], []
    for left, first, right, second in _SCENES:
        picture = Image.new("RGB", (256, 256), (240, 240, 240))
        draw = ImageDraw.Draw(picture)
        for colour, shape, x in ((left, first, 68), (right, second, 188)):
            _draw(draw, shape, x, 128, 50, _COLOURS[colour])
        pictures.append(picture)
        captions.append(f"a large {left} {first} left of a large {right} {second}")
    return pictures, captions


def noise(width: int, height: int, seed: int) -> Image.Image:
    """A picture of coarse coloured noise, which survives resizing."""
    small = np.random.default_rng(seed).integers(0, 256, (max(1, height // 8), max(1, width // 8), 3), dtype=np.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)


def awkward_pictures() -> dict[str, Image.Image]:
    """Pictures in every mode of Pillow that a corpus may hold, and of extreme sizes."""
    picture = noise(96, 80, seed=5)
    modes = {mode: picture.convert(mode) for mode in ("L", "LA", "RGBA", "P", "CMYK", "1", "YCbCr")}
    modes["I;16"] = Image.fromarray(np.asarray(picture.convert("L")).astype(np.uint16) * 257)
    sizes = {f"{w}x{h}": noise(w, h, seed=6) for w, h in ((1, 1), (3, 2), (700, 5), (5, 700), (1500, 1100))}
    return modes | sizes


def wide_pair() -> tuple[Image.Image, Image.Image]:
    """Two wide pictures with the same middle third and different sides: a centre crop cannot tell them apart."""
    first, second = noise(720, 240, seed=7), noise(720, 240, seed=8)
    second.paste(first.crop((200, 0, 520, 240)), (200, 0))
    return first, second


def _draw(draw: ImageDraw.ImageDraw, shape: str, x: int, y: int, r: int, colour: tuple[int, int, int]) -> None:
    if shape == "circle":
        draw.ellipse((x - r, y - r, x + r, y + r), fill=colour)
    elif shape == "square":
        draw.rectangle((x - r, y - r, x + r, y + r), fill=colour)
    else:
        draw.polygon([(x, y - r), (x - r, y + r), (x + r, y + r)], fill=colour)
