"""Whether the numbers in a checkpoint's files are those in a loaded model, without comparing names.

Loaders rename weights, but must not lose them. A weight matrix is identified by its shape and a sample of its values
in the precision of the forward pass.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from capim.store.types import Precision
from capim.tasks.encoders.checkpoints.weight_files import WEIGHT_FILES, chosen_weights
from capim.tasks.encoders.checkpoints.weights import read_tensors
from capim.tasks.encoders.tensors import DTYPES

_SAMPLE = 512  # values that enter the digest of a matrix


def digests_of_model(modules: Iterable[nn.Module]) -> frozenset[str]:
    """Digests of all parameters and buffers of a model."""
    return frozenset(digest_of_tensor(tensor) for module in modules for tensor in module.state_dict().values())


def digests_of_files(folder: Path, adapter: str, precision: Precision, *, every: bool = False) -> Mapping[str, str]:
    """Digest of each weight matrix in a folder's weight files, by name, as it is after loading.

    Unless ``every`` tensor is wanted, vectors and counters are left out: architectures drop some of them (position
    ids), and a lost layer shows in its matrices. So are language heads, which no encoder uses.
    """
    digests: dict[str, str] = {}
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*")]
    for file in chosen_weights(names, WEIGHT_FILES.get(adapter, ())):
        for name, contents in read_tensors(folder / file).items():
            tensors = {f"{name}.{inner}": t for inner, t in contents.items()} if isinstance(contents, Mapping) else {}
            for key, tensor in (tensors or {name: contents}).items():
                if isinstance(tensor, Tensor) and (every or (tensor.ndim > 1 and tensor.is_floating_point())):
                    digests[key] = digest_of_tensor(tensor.to(DTYPES[precision]))
    return {name: digest for name, digest in digests.items() if every or "lm_head" not in name}


def digest_of_tensor(tensor: Tensor) -> str:
    """A digest of the shape of a tensor and a sample of its values."""
    # some loaders empty the row of the padding, which is masked anyway: long matrices count from their third row
    values = (tensor[2:] if tensor.ndim > 1 and len(tensor) > 64 else tensor).detach().cpu().flatten()
    sample = values[:: max(1, len(values) // _SAMPLE)].to(torch.float32).contiguous()
    return hashlib.sha256(str(tuple(tensor.shape)).encode() + sample.numpy().tobytes()).hexdigest()
