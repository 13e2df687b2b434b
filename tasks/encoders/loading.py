"""From a spec to a loaded model."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from typing import Any, Protocol, cast

from store.errors import RequestError, WorkError
from store.types import EncoderSpec, Modality
from tasks.encoders.adapters.table import Adapter, adapter_of, unknown_options
from tasks.encoders.checkpoints.resolving import resolve
from tasks.encoders.encoder import Encoder

# transformers imports its parts when they are asked for, which two threads must not do at once: one of them finds
# names missing
_LOADING = threading.Lock()


class _AdapterModule(Protocol):
    def load(self, spec: EncoderSpec, *, device: str, trust_remote_code: bool) -> Encoder: ...


def load_encoder(
    spec: EncoderSpec, *, device: str = "cpu", trust_remote_code: bool = False, compiled: bool = False
) -> Encoder:
    """The model of a spec, on a device, in evaluation mode, with all its weights.

    Args:
        spec: Resolved here if it is not yet; the encoder's own ``spec`` is resolved in any case.
        device: ``cpu``, ``cuda``, ``cuda:1``, ``mps``.
        trust_remote_code: Consent to run Python code that the checkpoint brings with it.
        compiled: Compile the forward passes with ``torch.compile``: minutes at first, faster afterwards. Vectors
            change in the last digits, as they do from one device to another.

    Raises:
        RequestError: Adapter or device unknown, a package or the checkpoint is missing, consent is missing.
        MissingWeightsError: The checkpoint lacks weights that the architecture needs.
        WorkError: The hub cannot be reached, access is restricted, or the files cannot be loaded.
    """
    adapter = adapter_of(spec.adapter)
    if spec.adapter_version != adapter.version:
        raise RequestError(
            f"encoder {spec.name!r} was made for version {spec.adapter_version} of adapter {spec.adapter!r}, this is "
            f"version {adapter.version}: its vectors would differ; take the spec anew from the catalog"
        )
    faults = unknown_options(spec)
    if faults:
        raise RequestError(faults)
    from tasks.encoders.tensors import check_device
    from tasks.encoders.torchvision_import import ensure_torchvision

    check_device(device)
    resolved = resolve(spec)
    ensure_torchvision()
    module = cast("_AdapterModule", importlib.import_module(adapter.module))
    encoder = _loaded(module, adapter, resolved, device, trust_remote_code)
    if compiled:
        for modality, forward in encoder.forwards.items():
            encoder.forwards[modality] = _compiled(forward, modality, spec)
    return encoder


def _compiled(forward: Callable[..., Any], modality: Modality, spec: EncoderSpec) -> Callable[..., Any]:
    """The forward pass through ``torch.compile``; where that cannot compile, one line with the next step."""
    import torch
    from torch._dynamo.exc import TorchDynamoException

    # captions come in many lengths; images in one, but for the last batch of a corpus
    fast = torch.compile(forward, dynamic=True if modality == "caption" else None)

    def run(*inputs: Any, **named: Any) -> Any:
        try:
            return fast(*inputs, **named)
        except TorchDynamoException as error:
            raise WorkError(
                f"encoder {spec.name!r}: torch cannot compile its {modality} pass ({type(error).__name__}: "
                f"{_one_line(error)}); run it without --compile"
            ) from error

    return run


def _loaded(
    module: _AdapterModule, adapter: Adapter, spec: EncoderSpec, device: str, trust_remote_code: bool
) -> Encoder:
    """What the adapter loads; whatever goes wrong in a library, said in one line with the next step."""
    from tasks.encoders.memory import is_out_of_memory

    try:
        with _LOADING:
            return module.load(spec, device=device, trust_remote_code=trust_remote_code)
    except (RequestError, WorkError):
        raise
    except ImportError as error:
        raise RequestError(
            f"encoder {spec.name!r}: a package is missing ({_one_line(error)}); install with: {adapter.install}"
        ) from error
    except Exception as error:
        if is_out_of_memory(error):
            advice = f"it does not fit into the memory of {device}; try --precision bfloat16 or another device"
        else:
            advice = "the files may be damaged or of another format: remove them from the cache and download them again"
        raise WorkError(
            f"encoder {spec.name!r}: {spec.checkpoint} at {spec.revision} cannot be loaded "
            f"({type(error).__name__}: {_one_line(error)}); {advice}"
        ) from error


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else f"{text[:300]} …"
