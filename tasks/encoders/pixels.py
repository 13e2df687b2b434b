"""Images to tensors, several times faster than the libraries' own loops, with equal results.

Pillow resizes in both cases, because the models were trained with it; the saving is in the many passes over the pixels
afterwards. A :class:`PixelPipeline` takes size, filter and crop from the checkpoint's preprocessing, and is used only
if its tensors equal those of that preprocessing to 1e-5 on images of unusual sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

TOLERANCE = 1e-5


@dataclass(frozen=True, kw_only=True)
class PixelPipeline:
    """The preprocessing of a model's images.

    Attributes:
        fit: Function that resizes and crops one RGB image to the model's size.
        mean: Subtracted from each channel, in units of 0 to 1.
        std: Divisor of each channel, after the mean.
    """

    fit: Callable[[Image.Image], Image.Image]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def tensor(self, images: Sequence[Image.Image]) -> Tensor:
        """Return the pixels of images, float32, shape ``(n, 3, height, width)``."""
        fitted = [self.fit(image) for image in images]
        width, height = fitted[0].size
        values = np.empty((len(fitted), 3, height, width), dtype=np.float32)
        std = np.array(self.std, dtype=np.float32)[:, None, None]
        scale = np.reciprocal(std * np.float32(255))
        shift = np.array([m / s for m, s in zip(self.mean, self.std, strict=True)], dtype=np.float32)[:, None, None]
        # by numpy, which uses one thread: many workers do this at once, each on its own images
        for row, image in zip(values, fitted, strict=True):
            np.copyto(row, np.asarray(image).transpose(2, 0, 1))
            np.multiply(row, scale, out=row)
            np.subtract(row, shift, out=row)
        return torch.from_numpy(values)

    def if_equal(self, reference: Callable[[Image.Image], Tensor]) -> PixelPipeline | None:
        """Return this pipeline if it makes a reference's tensors on images of unusual sizes, else None."""
        for width, height in ((97, 41), (40, 133), (601, 478)):
            noise = np.random.default_rng(width).integers(0, 256, (height, width, 3), dtype=np.uint8)
            image = Image.fromarray(noise)
            expected, got = reference(image), self.tensor([image])[0]
            if got.shape != expected.shape or float((got - expected).abs().max()) > TOLERANCE:
                return None
        return self


def pipeline_of_processor(processor: Any) -> PixelPipeline | None:
    """Return the pipeline of a transformers image processor; None if it does more than resize, crop and scale."""
    size, crop = getattr(processor, "size", None) or {}, getattr(processor, "crop_size", None) or {}
    if not (processor.do_resize and processor.do_rescale and processor.do_normalize):
        return None
    if abs(processor.rescale_factor * 255 - 1) > TOLERANCE or getattr(processor, "do_pad", None):
        return None
    cropped = (int(crop["height"]), int(crop["width"])) if getattr(processor, "do_center_crop", False) else None
    resample = Image.Resampling(processor.resample)
    fit: Callable[[Image.Image], Image.Image]
    if size.get("shortest_edge") and not size.get("longest_edge"):
        edge = int(size["shortest_edge"])
        if cropped is None or max(cropped) > edge:
            return None
        fit = partial(_resize_and_crop, edge=edge, crop=cropped, resample=resample)
    elif size.get("height") and size.get("width"):
        if cropped not in (None, (size["height"], size["width"])):
            return None
        fit = partial(Image.Image.resize, size=(int(size["width"]), int(size["height"])), resample=resample)
    else:
        return None
    pipeline = PixelPipeline(fit=fit, mean=tuple(processor.image_mean), std=tuple(processor.image_std))
    return pipeline.if_equal(lambda image: processor(images=image, return_tensors="pt")["pixel_values"][0])


def pipeline_of_transform(transform: Any) -> PixelPipeline | None:
    """Return the pipeline of a torchvision transform that ends with ``ToTensor`` and ``Normalize``; None for any other.

    Its own resize and crop are used; one pass over the pixels replaces the five after them.
    """
    steps = list(getattr(transform, "transforms", []))
    names = [type(step).__name__ for step in steps]
    if names[-1:] != ["Normalize"] or names[-2] not in ("ToTensor", "MaybeToTensor"):
        return None

    def fit(image: Image.Image) -> Image.Image:
        for step in steps[:-2]:
            image = step(image)
        return image

    mean, std = (tuple(map(float, values)) for values in (steps[-1].mean, steps[-1].std))
    return PixelPipeline(fit=fit, mean=mean, std=std).if_equal(transform)


def _resize_and_crop(
    image: Image.Image, *, edge: int, crop: tuple[int, int], resample: Image.Resampling
) -> Image.Image:
    """Resize the shorter edge, then crop ``(height, width)`` from the centre, with the rounding of transformers."""
    width, height = image.size
    size = (edge, int(edge * height / width)) if width <= height else (int(edge * width / height), edge)
    top, left = (size[1] - crop[0]) // 2, (size[0] - crop[1]) // 2
    return image.resize(size, resample).crop((left, top, left + crop[1], top + crop[0]))
