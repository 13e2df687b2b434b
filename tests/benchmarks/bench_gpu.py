"""Encoding, dense scoring and late interaction on a graphics card; in ten minutes, on a machine that has one.

Elsewhere the group has one row without a figure, and rows of an earlier run on a card stay. By hand, to see that it
works without a card: ``QUICK=1 DEVICE=cpu make bench ONLY=gpu``.

The card is measured first: its fastest float32 and bfloat16 products are what shares of its peak refer to. All figures
are those of a warm card, from vectors or files in the host's memory to ranks or vectors in the host's memory.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial

from capim.tasks.encoders.device import choose_device, device_name
from tests.benchmarks.encode_models import SIZES
from tests.benchmarks.gpu_card import Card, measured
from tests.benchmarks.gpu_dense import dense_rows
from tests.benchmarks.gpu_encoding import TINY, model_rows
from tests.benchmarks.gpu_maxsim import maxsim_rows
from tests.benchmarks.rows import Row


def run(quick: bool = False) -> list[Row]:
    """Rows of RESULTS.md; ``quick`` takes sizes that only show that the benchmark works."""
    device = os.environ.get("DEVICE", "auto")
    chosen = choose_device(device)
    if device == "auto" and not chosen.startswith("cuda"):
        advice = "run `make bench ONLY=gpu` on a machine with a card, and take its results with --take"
        return [Row("no GPU: this machine has no CUDA device", None, "", note=advice)]
    card = measured(chosen, quick=quick)
    rows = [
        Row(f"{device_name(chosen)}: float32 products, TF32 off", card.float32_rate / 1e12, "TFLOP/s"),
        Row(f"{device_name(chosen)}: bfloat16 products", card.bfloat16_rate / 1e12, "TFLOP/s"),
    ]
    parts = {"MaxSim": maxsim_rows, "dense": dense_rows}
    parts |= {name: partial(model_rows, name) for name in (TINY if quick else SIZES)}
    for name, part in parts.items():
        rows += finished(name, part, card, quick=quick)
    return rows


def finished(name: str, part: Callable[..., list[Row]], card: Card, *, quick: bool) -> list[Row]:
    """The rows of one part; a part that fails has one row without a figure, so that the time on a card is not lost."""
    begun = time.perf_counter()
    try:
        rows = part(card, quick=quick)
    except Exception as error:  # noqa: BLE001 - whatever a peer raises
        traceback.print_exc()
        rows = [Row(f"{name}: failed", None, "", note=f"{type(error).__name__}: {error}"[:200])]
    sys.stderr.write(f"{name}: {time.perf_counter() - begun:.0f} s\n")
    return rows
