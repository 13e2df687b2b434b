"""Which device the work runs on."""

from __future__ import annotations

import platform


def choose_device(asked: str) -> str:
    """The device for ``auto``: the first CUDA device, Apple's GPU, else the CPU; any other name as it is."""
    if asked != "auto":
        return asked
    import torch

    if torch.cuda.is_available():
        return "cuda:0"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def device_name(device: str) -> str:
    """The hardware's own name, e.g. ``NVIDIA A40`` or the processor's model."""
    if device.startswith("cuda"):
        import torch

        return str(torch.cuda.get_device_name(device))
    return _processor()


def device_identity(device: str) -> str:
    """The same for every name of one piece of hardware: a CUDA device's UUID, else the device's own name.

    ``cuda:0`` is another card where ``CUDA_VISIBLE_DEVICES`` says so; the UUID is not.
    """
    if device.startswith("cuda"):
        import torch

        return f"cuda-{torch.cuda.get_device_properties(device).uuid}"
    return device


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123 - not a file of ours
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
