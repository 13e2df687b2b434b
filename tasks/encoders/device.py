"""The device of the forward pass: its choice, name, precision and memory."""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import re
import resource
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from capim.store.errors import RequestError

# of torch, cuBLAS and cuDNN
_OUT_OF_MEMORY = ("can't allocate memory", "out of memory", "not enough memory", "_alloc_failed")


def choose_device(device: str) -> str:
    """Return the device for ``auto``: the first CUDA device, Apple's GPU, else the CPU; any other name unchanged."""
    if device != "auto":
        return device
    import torch

    if torch.cuda.is_available():
        return "cuda:0"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def check_device(device: str) -> None:
    """Check that a device exists.

    Raises:
        RequestError: If the name is unknown, or if this machine has no such device.
    """
    found = re.fullmatch(r"(cpu|cuda|mps)(?::(\d+))?", device)
    if found is None:
        raise RequestError(f"device {device!r} is unknown; use cpu, cuda, cuda:0, … or mps")
    kind, number = found.groups()
    if kind == "cuda" and int(number or 0) >= (count := _cuda_devices()):
        raise RequestError(f"device {device!r} does not exist: {count} CUDA devices are visible; use --device cpu")
    if kind == "mps" and not _has_mps():
        raise RequestError("device 'mps' does not exist on this machine; use --device cpu")


def _cuda_devices() -> int:
    """Return how many CUDA devices torch sees; 0 without a driver, which is detected without importing torch."""
    if platform.system() == "Linux" and not Path("/dev/kfd").exists():  # AMD's driver, which torch also calls cuda
        try:
            ctypes.CDLL("libcuda.so.1")
        except OSError:
            return 0
    import torch

    return torch.cuda.device_count()


def _has_mps() -> bool:
    if platform.system() != "Darwin":
        return False
    import torch

    return torch.backends.mps.is_available()


def _cuda(device: str) -> Any:
    """Return torch's module for a CUDA device; None for any other."""
    import torch

    return torch.cuda if device.startswith("cuda") else None


def device_name(device: str) -> str:
    """Return the model of the hardware, e.g. ``NVIDIA A40`` or the processor's name."""
    if cuda := _cuda(device):
        return str(cuda.get_device_name(device))
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def device_identity(device: str) -> str:
    """Return an identifier of the hardware: the UUID of a CUDA device, else the name of the device.

    ``cuda:0`` may be another card under another ``CUDA_VISIBLE_DEVICES``; the UUID is not.
    """
    cuda = _cuda(device)
    return f"cuda-{cuda.get_device_properties(device).uuid}" if cuda else device


_SWITCHING = threading.Lock()
_BEFORE: list[tuple[str, bool]] = []  # for each thread in full_float32, the settings that the first one found


@contextmanager
def full_float32() -> Iterator[None]:
    """Run inference with products and convolutions of float32 tensors in true float32, whatever the process has set.

    On a CUDA device torch convolves in TF32 by default, which keeps 10 of 23 bits of a number's fraction: the patches
    of a vision transformer are cut by a convolution. The settings are those of the process; the last of several threads
    restores them.
    """
    import torch

    with _SWITCHING:
        before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
        _BEFORE.append(_BEFORE[0] if _BEFORE else before)
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False
    try:
        with torch.inference_mode():
            yield
    finally:
        with _SWITCHING:
            products, convolutions = _BEFORE.pop()
            if not _BEFORE:
                torch.set_float32_matmul_precision(products)
                torch.backends.cudnn.allow_tf32 = convolutions


def usable_cores() -> int:
    """Return the cores that this process may use; fewer than the machine has in a container with pinned cores."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def is_out_of_memory(error: BaseException) -> bool:
    """True if an error of torch or Python means that memory ran out, on any device.

    Examples:
        >>> is_out_of_memory(MemoryError()), is_out_of_memory(RuntimeError("shapes do not match"))
        (True, False)
        >>> is_out_of_memory(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)"))
        True
    """
    import torch

    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error).lower() for sign in _OUT_OF_MEMORY)


def release(device: str) -> None:
    """Free cached memory of the device after a forward pass that ran out of it."""
    gc.collect()
    if cuda := _cuda(device):
        cuda.empty_cache()


def peak_bytes(device: str) -> int:
    """Return the peak memory so far: of the tensors on a CUDA device, else of the process."""
    if cuda := _cuda(device):
        return int(cuda.max_memory_allocated(device))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
