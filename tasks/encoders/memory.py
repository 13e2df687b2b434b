"""What the device and the machine have left, and what to do when it is not enough."""

from __future__ import annotations

import gc
import os
import resource
import sys
from collections.abc import Sequence

import torch

from tasks.encoders.encoder import Prepared
from tasks.encoders.tensors import join


def usable_cores() -> int:
    """Cores that this process may use; fewer than the machine has in a container with pinned cores."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of torch or Python says that memory ran out, on any device.

    Examples:
        >>> is_out_of_memory(MemoryError()), is_out_of_memory(RuntimeError("shapes do not match"))
        (True, False)
    """
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    said = str(error)
    return isinstance(error, RuntimeError) and ("can't allocate memory" in said or "out of memory" in said)


def release(device: str) -> None:
    """Give cached memory of the device back, after a pass that failed."""
    gc.collect()
    if device.startswith("cuda"):
        torch.cuda.empty_cache()


def peak_bytes(device: str) -> int:
    """Highest memory so far: of tensors on a CUDA device, else of the whole process."""
    if device.startswith("cuda"):
        return int(torch.cuda.max_memory_allocated(device))
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def assemble(parts: Sequence[Prepared], device: str) -> Prepared:
    """Parts as one batch, in pinned memory where the device is a GPU, so that the copy to it is asynchronous."""
    batch = join(parts)
    if not device.startswith("cuda"):
        return batch
    inputs = {name: v.pin_memory() if isinstance(v, torch.Tensor) else v for name, v in batch.inputs.items()}
    return Prepared(modality=batch.modality, inputs=inputs, n_tokens=batch.n_tokens, truncated=batch.truncated)
