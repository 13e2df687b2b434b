"""The card that a benchmark runs on, its fastest products, and corpora of the shapes that are scored on it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from capim.store.types import Corpus
from capim.tasks.corpora.build import CaptionRow, ImageRow, build_corpus
from capim.tasks.corpora.readers.karpathy import read_coco_karpathy
from capim.tasks.encoders.device import full_float32
from tests.benchmarks.rows import fastest
from tests.shared_data import SHARED_DATA

SPLIT = SHARED_DATA / "coco_karpathy" / "test_5k.json"
ROUNDING = 2e-6  # of a cosine in float32


@dataclass(frozen=True, kw_only=True)
class Card:
    """A device and its fastest products, in operations per second."""

    device: str
    float32_rate: float
    bfloat16_rate: float


def measured(device: str, *, quick: bool) -> Card:
    """The fastest products of the card: 8,192 x 8,192 x 8,192, random numbers."""
    n = 512 if quick else 8192
    rates = []
    for dtype in (torch.float32, torch.bfloat16):
        one, other = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))

        def product(one: torch.Tensor = one, other: torch.Tensor = other) -> None:
            for _ in range(5):
                torch.mm(one, other)
            wait(device)

        with full_float32():
            rates.append(5 * 2 * n**3 / fastest(product, runs=5))
    return Card(device=device, float32_rate=rates[0], bfloat16_rate=rates[1])


def wait(device: str) -> None:
    """Until the card has done everything that was launched."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def reset_peak(device: str) -> None:
    """Count the card's peak memory from here."""
    if device.startswith("cuda"):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def peak_gib(device: str) -> float:
    """Peak memory of tensors on the card; 0 elsewhere."""
    return torch.cuda.max_memory_allocated(device) / 2**30 if device.startswith("cuda") else 0.0


def coco(limit: int | None) -> Corpus:
    """The Karpathy test split where its file is there, else its shape; or a few images of that shape."""
    if limit is None and SPLIT.is_file():
        return read_coco_karpathy(SPLIT, ground_truths=[])
    return paired(limit or 5000, 5 * (limit or 5000))


def paired(n_images: int, n_captions: int) -> Corpus:
    """Caption ``k`` describes image ``k`` modulo their number."""
    images = [ImageRow(id=f"i{i:06d}") for i in range(n_images)]
    captions = [CaptionRow(id=f"c{k:06d}", image_id=f"i{k % n_images:06d}", text="x") for k in range(n_captions)]
    return build_corpus("gpu", images, captions, source=None)
