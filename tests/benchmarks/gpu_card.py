"""The card that a benchmark runs on, and its fastest products."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from capim.tasks.encoders.device import full_float32
from tests.benchmarks.rows import fastest

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
