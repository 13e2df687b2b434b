"""Pictures to tensors, several times faster than the libraries' own loops and equal to them.

Resizing is Pillow's in either case, because the models were trained with it; what is saved are the many passes over
the pixels afterwards. Which size, filter and crop is the checkpoint's to say: a :class:`Recipe` is read from its
processor and used only if it makes the processor's own tensors, to 1e-5, on pictures of awkward sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

TOLERANCE = 1e-5


def in_rgb(images: Sequence[Image.Image]) -> list[Image.Image]:
    """The pictures in RGB; those that are already are not copied, which costs as much as resizing them."""
    return [image if image.mode == "RGB" else image.convert("RGB") for image in images]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a model wants its pictures.

    Attributes:
        fit: Resizes and crops one RGB picture to the model's size.
        mean: Subtracted from each channel, in units of 0 to 1.
        std: Divided by, after the mean.
    """

    fit: Callable[[Image.Image], Image.Image]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def tensor(self, images: Sequence[Image.Image]) -> Tensor:
        """float32, shape ``(n, 3, height, width)``."""
        fitted = [self.fit(image) for image in images]
        width, height = fitted[0].size
        values = torch.empty((len(fitted), 3, height, width))
        for row, image in zip(values, fitted, strict=True):
            row.copy_(torch.from_numpy(np.array(image)).permute(2, 0, 1))
        scale = torch.tensor(self.std).mul_(255).reciprocal_().view(3, 1, 1)
        shift = torch.tensor([m / s for m, s in zip(self.mean, self.std, strict=True)]).view(3, 1, 1)
        return values.mul_(scale).sub_(shift)


def recipe_of(processor: Any) -> Recipe | None:
    """The recipe of a transformers image processor, or None if it does something else than resize, crop and scale."""
    size, crop = getattr(processor, "size", None) or {}, getattr(processor, "crop_size", None) or {}
    if not (processor.do_resize and processor.do_rescale and processor.do_normalize):
        return None
    if abs(processor.rescale_factor * 255 - 1) > TOLERANCE or getattr(processor, "do_pad", None):
        return None
    cropped = bool(getattr(processor, "do_center_crop", False))
    wanted = (int(crop["height"]), int(crop["width"])) if cropped else None
    fit: Callable[[Image.Image], Image.Image]
    if size.get("shortest_edge") and not size.get("longest_edge"):
        edge = int(size["shortest_edge"])
        if wanted is None or max(wanted) > edge:
            return None
        fit = _ShortestEdge(edge, wanted, Image.Resampling(processor.resample))
    elif size.get("height") and size.get("width"):
        if wanted not in (None, (size["height"], size["width"])):
            return None
        fit = _Squash((int(size["width"]), int(size["height"])), Image.Resampling(processor.resample))
    else:
        return None
    recipe = Recipe(fit=fit, mean=tuple(processor.image_mean), std=tuple(processor.image_std))
    return (
        recipe
        if agrees(recipe, lambda image: processor(images=image, return_tensors="pt")["pixel_values"][0])
        else None
    )


def agrees(recipe: Recipe, reference: Callable[[Image.Image], Tensor]) -> bool:
    """Whether a recipe makes the same tensors as a reference does, on pictures of awkward sizes."""
    for width, height in ((97, 41), (40, 133), (601, 478)):
        noise = np.random.default_rng(width).integers(0, 256, (height, width, 3), dtype=np.uint8)
        image = Image.fromarray(noise)
        expected, got = reference(image), recipe.tensor([image])[0]
        if got.shape != expected.shape or float((got - expected).abs().max()) > TOLERANCE:
            return False
    return True


@dataclass(frozen=True)
class _Squash:
    """Resize to one size, whatever the proportions."""

    size: tuple[int, int]
    resample: Image.Resampling

    def __call__(self, image: Image.Image) -> Image.Image:
        return image.resize(self.size, self.resample)


@dataclass(frozen=True)
class _ShortestEdge:
    """Resize the shorter edge, then cut the middle out, with transformers' rounding."""

    edge: int
    crop: tuple[int, int]
    resample: Image.Resampling

    def __call__(self, image: Image.Image) -> Image.Image:
        width, height = image.size
        if width <= height:
            size = (self.edge, int(self.edge * height / width))
        else:
            size = (int(self.edge * width / height), self.edge)
        top, left = (size[1] - self.crop[0]) // 2, (size[0] - self.crop[1]) // 2
        resized = image.resize(size, self.resample)
        return resized.crop((left, top, left + self.crop[1], top + self.crop[0]))
