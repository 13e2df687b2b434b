"""Choose and identify the device of the forward pass."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager


def choose_device(device: str) -> str:
    """The device for ``auto``: the first CUDA device, Apple's GPU, else the CPU; any other name unchanged."""
    if device != "auto":
        return device
    import torch

    if torch.cuda.is_available():
        return "cuda:0"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def device_name(device: str) -> str:
    """The model of the hardware, e.g. ``NVIDIA A40`` or the processor's name."""
    if device.startswith("cuda"):
        import torch

        return str(torch.cuda.get_device_name(device))
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123 - read line by line
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def device_identity(device: str) -> str:
    """An identifier of the hardware: the UUID of a CUDA device, else the name of the device.

    ``cuda:0`` may be another card under another ``CUDA_VISIBLE_DEVICES``; the UUID is not.
    """
    if device.startswith("cuda"):
        import torch

        return f"cuda-{torch.cuda.get_device_properties(device).uuid}"
    return device


@contextmanager
def full_float32() -> Iterator[None]:
    """Inference with products and convolutions of float32 tensors in true float32, whatever the process has set before.

    On a CUDA device torch convolves in TF32 by default, which keeps 10 bits of a number's fraction out of 23: the
    patches of a vision transformer are cut by a convolution.
    """
    import torch

    products, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    try:
        with torch.inference_mode():
            yield
    finally:
        torch.set_float32_matmul_precision(products)
        torch.backends.cudnn.allow_tf32 = convolutions
