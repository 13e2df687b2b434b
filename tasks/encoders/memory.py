"""Cores and memory of the machine and its device."""

from __future__ import annotations

import gc
import os
import resource
import sys

import torch

_SIGNS = ("can't allocate memory", "out of memory", "not enough memory", "_alloc_failed")  # of torch, cuBLAS and cuDNN


def usable_cores() -> int:
    """Cores that this process may use; fewer than the machine has in a container with pinned cores."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of torch or Python says that memory ran out, on any device.

    Examples:
        >>> is_out_of_memory(MemoryError()), is_out_of_memory(RuntimeError("shapes do not match"))
        (True, False)
        >>> is_out_of_memory(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)"))
        True
    """
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error).lower() for sign in _SIGNS)


def release(device: str) -> None:
    """Free cached memory of the device after a forward pass that ran out of it."""
    gc.collect()
    if device.startswith("cuda"):
        torch.cuda.empty_cache()


def peak_bytes(device: str) -> int:
    """Peak memory so far: of the tensors on a CUDA device, else of the process."""
    if device.startswith("cuda"):
        return int(torch.cuda.max_memory_allocated(device))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
