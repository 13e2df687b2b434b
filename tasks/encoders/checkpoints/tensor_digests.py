"""Whether the numbers in a checkpoint's files are the numbers in a model, without comparing names.

Loaders rename weights; what they must not do is lose them. A weight matrix is known by its shape and a sample of its
values in the type of the forward pass.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from store.types import Precision
from tasks.encoders.checkpoints.weight_files import WEIGHT_FILES, chosen_weights
from tasks.encoders.tensors import DTYPES

_SAMPLE = 512  # values looked at per matrix


def digests_of_model(modules: Iterable[nn.Module]) -> frozenset[str]:
    """Digests of all parameters and buffers of a model."""
    return frozenset(_digest(tensor) for module in modules for tensor in module.state_dict().values())


def digests_of_files(folder: Path, adapter: str, precision: Precision) -> Mapping[str, str]:
    """Digest of each weight matrix in a folder's weight files, by name, as it is after loading.

    Vectors and counters are left out: architectures drop some of them (position ids), and what is lost with a layer
    shows in its matrices. So are language heads, which no encoder uses.
    """
    found: dict[str, str] = {}
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*")]
    for file in (folder / name for name in chosen_weights(names, WEIGHT_FILES.get(adapter, ()))):
        for name, tensor in _tensors(file).items():
            if tensor.ndim > 1 and tensor.is_floating_point() and "lm_head" not in name:
                found[name] = _digest(tensor.to(DTYPES[precision]))
    return found


def _tensors(file: Path) -> dict[str, Tensor]:
    if file.suffix == ".safetensors":
        from safetensors.torch import load_file

        return dict(load_file(file))
    contents = torch.load(file, map_location="cpu", weights_only=True)
    flat: dict[str, Tensor] = {}
    for name, value in contents.items():
        if isinstance(value, Tensor):
            flat[name] = value
        elif isinstance(value, Mapping):
            flat |= {f"{name}.{inner}": tensor for inner, tensor in value.items() if isinstance(tensor, Tensor)}
    return flat


def _digest(tensor: Tensor) -> str:
    # some loaders empty the row of the padding, which is masked anyway: long matrices count from their third row
    values = (tensor[2:] if tensor.ndim > 1 and len(tensor) > 64 else tensor).detach().cpu().flatten()
    sample = values[:: max(1, len(values) // _SAMPLE)].to(torch.float32).contiguous()
    return hashlib.sha256(str(tuple(tensor.shape)).encode() + sample.numpy().tobytes()).hexdigest()
