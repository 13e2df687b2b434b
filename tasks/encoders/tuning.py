"""Find a good batch size by timing forward passes."""

from __future__ import annotations

import time

from capim.store.errors import WorkError
from capim.store.types import Modality
from capim.tasks.encoders.batching import NOMINAL_TOKENS
from capim.tasks.encoders.conformance.inputs import noise_image
from capim.tasks.encoders.encoder import Encoder, Prepared
from capim.tasks.encoders.memory import is_out_of_memory, release
from capim.tasks.encoders.tensors import join

LARGEST = 1024
LARGEST_ON_CPU: dict[Modality, int] = {"image": 64, "caption": 256}  # out of memory kills the process there
_TIMED_SECONDS = 0.5  # short passes are repeated for so long and the fastest counts: the machine may be shared


def find_batch_size(
    encoder: Encoder, modality: Modality, *, start: int = 4, largest: int | None = None, gain: float = 1.05
) -> int:
    """The batch size found by doubling until a batch is no faster, does not fit, or reaches the limit.

    Only the forward pass is timed, on images of 320 x 240 and captions of about 32 tokens, after one warm-up pass.
    Vectors do not depend on the batch size beyond rounding.

    Args:
        encoder: A loaded model.
        modality: Images or captions.
        start: Smallest batch size.
        largest: Largest batch size; None: 1024, on a CPU 64 images or 256 captions.
        gain: A doubled batch must raise the items per second by this factor, or the smaller one is taken.

    Raises:
        WorkError: Not even the smallest batch fits into memory.
    """
    largest = largest or (LARGEST_ON_CPU[modality] if encoder.device == "cpu" else LARGEST)
    best, best_rate, size = 0, 0.0, start
    while size <= largest:
        try:
            rate = _rate(encoder, _batch(encoder, modality, size))
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            break
        if rate < gain * best_rate:
            break
        best, best_rate, size = size, rate, 2 * size
    release(encoder.device)
    if not best:
        raise WorkError(
            f"encoder {encoder.spec.name!r}: not even {start} {modality}s fit into the memory of {encoder.device}"
        )
    return best


def _batch(encoder: Encoder, modality: Modality, size: int) -> Prepared:
    if modality == "caption":
        return encoder.prepare_captions([" ".join(["word"] * (NOMINAL_TOKENS - 2))] * size)
    image = noise_image(320, 240, seed=0)
    if not encoder.joins_images:
        return encoder.prepare_images([image] * size)
    return join([encoder.prepare_images([image])] * size, pinned=encoder.device.startswith("cuda"))


def _rate(encoder: Encoder, batch: Prepared) -> float:
    encoder.embed(batch)
    seconds: list[float] = []
    while not seconds or sum(seconds) < _TIMED_SECONDS:
        begun = time.perf_counter()
        encoder.embed(batch)
        seconds.append(time.perf_counter() - begun)
    return len(batch) / min(seconds)
