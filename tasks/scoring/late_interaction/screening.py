"""MaxSim scores from bfloat16 products, and how far each can be from the float32 score.

The bound needs no assumption about the data. With ``x`` a token, ``y`` a patch and ``x', y'`` their bfloat16 values,

    |x.y - x'.y'| <= |x - x'| |y| + |x'| |y - y'|                    (Cauchy-Schwarz, norms of the actual residuals)

holds for every patch, so also for the maximum over patches; what the processor adds is the rounding of the product
to bfloat16 (unit roundoff 2**-8, where the device has no float32 result) and of float32 sums. Summed over the tokens
of a caption, the bound is a value per caption times a value per image.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tasks.scoring.late_interaction.multivectors import Ragged, padded, pieces, summed

_BFLOAT16_ROUNDOFF = 2.0**-8
_FLOAT32_ROUNDOFF = 2.0**-24


class Screen(NamedTuple):
    """Captions as bfloat16, and what each adds to the bound."""

    tokens: Tensor  # bfloat16, padded
    starts: NDArray[np.int64]
    n_tokens: int
    residuals: NDArray[np.float32]  # per caption: sum of |x - x'|
    norms: NDArray[np.float32]  # per caption: sum of |x'|
    counts: NDArray[np.int64]
    dim: int


class Bound(NamedTuple):
    """``|screened - float32| <= of_caption * 1 + norms * of_image + constant``, per pair; see :meth:`at`."""

    of_caption: NDArray[np.float32]  # shape (n_captions,)
    norms: NDArray[np.float32]  # shape (n_captions,)
    of_image: NDArray[np.float32]  # shape (n_images,): largest |y - y'|

    def at(self, captions: slice, images: slice) -> NDArray[np.float32]:
        """The bound of a block of pairs, shape ``(n_captions, n_images)``."""
        return self.of_caption[captions, None] + self.norms[captions, None] * self.of_image[None, images]


def half_is_fast(device: str) -> bool:
    """Whether the device multiplies bfloat16 in hardware; elsewhere screening would cost more than it saves."""
    if device != "cpu":
        return torch.device(device).type == "cuda"
    can = torch.cpu.get_capabilities()
    return bool(can.get("amx_bf16") or can.get("avx512_bf16") or can.get("bf16"))


def screen_of(captions: Ragged, device: str) -> Screen:
    """Captions, ready to be screened."""
    exact = torch.from_numpy(captions.values)
    half = exact.bfloat16()
    starts = captions.offsets[:-1]
    return Screen(
        tokens=padded(half).to(device),
        starts=starts,
        n_tokens=len(exact),
        residuals=summed((exact - half.float()).norm(dim=1).numpy(), starts),
        norms=summed(half.float().norm(dim=1).numpy(), starts),
        counts=captions.counts,
        dim=exact.shape[1],
    )


class Screened(NamedTuple):
    """Some images against all captions."""

    scores: NDArray[np.float32]  # shape (k, n_captions)
    magnitudes: NDArray[np.float32]  # shape (k, n_captions): sum over tokens of |best patch|
    residuals: NDArray[np.float32]  # shape (k,): largest |y - y'| of its patches
    norm: float  # largest |y| of all


def screened(screen: Screen, patches: Tensor) -> Screened:
    """Scores of some images with all captions, from bfloat16 products.

    Args:
        screen: The captions.
        patches: float32 vectors of images that have equally many, on the captions' device: ``(k, n_patches, dim)``.
    """
    half = patches.bfloat16()
    rows = half.flatten(0, 1)
    best = torch.empty((len(half), len(screen.tokens)), device=half.device, dtype=torch.float32)
    n_bytes = 2 if half.device.type == "cpu" else 4
    for part in pieces(len(screen.tokens), row_bytes=n_bytes * len(rows), device=half.device):
        across = screen.tokens[part].T
        product = rows @ across if half.device.type == "cpu" else torch.mm(rows, across, out_dtype=torch.float32)
        best[:, part] = product.view(*half.shape[:2], -1).amax(dim=1)
    values = best[:, : screen.n_tokens].cpu().numpy()
    scores = summed(values, screen.starts)
    magnitudes = summed(np.abs(values), screen.starts) if values.min() < 0 else scores
    residuals = (patches - half.float()).norm(dim=2).amax(dim=1).cpu().numpy()
    return Screened(scores, magnitudes, residuals, float(patches.norm(dim=2).max()))


def bound_of(
    screen: Screen,
    *,
    largest_magnitudes: NDArray[np.float32],
    residuals: NDArray[np.float32],
    largest_norm: float,
) -> Bound:
    """The bound over all images.

    Args:
        screen: The captions.
        largest_magnitudes: Per caption, the largest of :attr:`Screened.magnitudes` over the images.
        residuals: Per image, :attr:`Screened.residuals`.
        largest_norm: Largest :attr:`Screened.norm` of all images.
    """
    of_product = _BFLOAT16_ROUNDOFF if screen.tokens.device.type == "cpu" else 0.0
    # two float32 dot products of dim terms and two sums over tokens, each term at most (norm + residual) long
    of_sums = (
        2 * (screen.dim + screen.counts.max()) * _FLOAT32_ROUNDOFF * (screen.norms + screen.residuals) * largest_norm
    )
    of_caption = screen.residuals * largest_norm + of_product / (1 - of_product) * largest_magnitudes + of_sums
    slack = np.float32(1 + 2.0**-10)  # this arithmetic is float32 itself
    return Bound(
        of_caption=(of_caption * slack).astype(np.float32),
        norms=screen.norms * slack,
        of_image=residuals,
    )
