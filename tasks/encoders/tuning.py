"""How large a batch should be, found by trying."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from store.errors import WorkError
from store.types import Modality
from tasks.encoders.batching import NOMINAL_TOKENS
from tasks.encoders.conformance import probes
from tasks.encoders.encoder import Encoder, Prepared
from tasks.encoders.memory import is_out_of_memory, release

MOST = 1024
MOST_ON_CPU: dict[Modality, int] = {"image": 64, "caption": 256}  # too much memory ends the process there: no error
_TIMED_SECONDS = 0.5  # short passes are repeated for so long, and the fastest counts: others use the machine too


@dataclass(frozen=True, kw_only=True)
class BatchSize:
    """What was found.

    Attributes:
        size: The smallest batch that is about as fast as any that fits.
        rates: Items per second by batch size, all that were tried; out of memory is not among them.
        stopped_by: Why no larger batch was tried.
    """

    size: int
    rates: dict[int, float]
    stopped_by: str


def find_batch_size(
    encoder: Encoder, modality: Modality, *, start: int = 4, most: int | None = None, gain: float = 1.05
) -> BatchSize:
    """Double the batch until it is no faster, does not fit, or is as large as allowed.

    Only the forward pass is timed, over one made-up picture size and captions of about 32 tokens, after one pass to
    warm up. Vectors do not depend on the batch beyond rounding, so what is found changes nothing but the speed.

    Args:
        encoder: A loaded model.
        modality: What to try.
        start: Smallest batch.
        most: Largest batch; None: 1024; on a CPU 64 images, 256 captions.
        gain: A doubling must be faster by this factor, or it is the last.

    Raises:
        WorkError: Not even the smallest batch fits into memory.
    """
    rates: dict[int, float] = {}
    most = most or (MOST_ON_CPU[modality] if encoder.device == "cpu" else MOST)
    size = start
    while size <= most:
        try:
            rates[size] = _rate(encoder, _batch(encoder, modality, size))
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            reason = f"out of memory at {size}"
            break
        if size > start and rates[size] < gain * rates[size // 2]:
            return BatchSize(size=size // 2, rates=rates, stopped_by=f"{size} is no faster than {size // 2}")
        size *= 2
    else:
        reason = f"{most} was the most allowed"
    release(encoder.device)
    if not rates:
        raise WorkError(
            f"encoder {encoder.spec.name!r}: not even {start} {modality}s fit into the memory of {encoder.device}"
        )
    return BatchSize(size=max(rates), rates=rates, stopped_by=reason)


def _batch(encoder: Encoder, modality: Modality, size: int) -> Prepared:
    if modality == "caption":
        return encoder.prepare_captions([" ".join(["word"] * (NOMINAL_TOKENS - 2))] * size)
    return encoder.prepare_images([probes.noise(320, 240, seed=0)] * size)


def _rate(encoder: Encoder, batch: Prepared, clock: Callable[[], float] = time.perf_counter) -> float:
    encoder.embed(batch)
    seconds: list[float] = []
    while not seconds or sum(seconds) < _TIMED_SECONDS:
        begun = clock()
        encoder.embed(batch)
        seconds.append(clock() - begun)
    return len(batch) / min(seconds)
