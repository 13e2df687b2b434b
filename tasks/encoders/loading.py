"""Load the model of a spec."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

from capim.store.errors import RequestError, WorkError, shortened
from capim.store.types import EncoderSpec
from capim.tasks.encoders.adapters import adapter_of, load_function
from capim.tasks.encoders.checkpoint import local_path
from capim.tasks.encoders.device import check_device, is_out_of_memory
from capim.tasks.encoders.encoder import Encoder
from capim.tasks.encoders.identity import resolve

# transformers imports its modules lazily; two threads that load models at once can see a half-imported module
_LOADING = threading.Lock()
_ANY_CAPTION = "a red bus, 2 dogs · ein roter Bus · 红色的公共汽车 · красный автобус 🚌"


def load_encoder(spec: EncoderSpec, *, device: str = "cpu", trust_remote_code: bool = False) -> Encoder:
    """Load the model of a spec onto a device, in evaluation mode, with all its weights.

    Args:
        spec: Resolved here if it is not yet; the encoder's own ``spec`` is always resolved.
        device: ``cpu``, ``cuda``, ``cuda:1``, ``mps``.
        trust_remote_code: Consent to run Python code from the checkpoint's repository.

    Raises:
        RequestError: If the adapter or device is unknown, or if a library, the checkpoint or consent is missing.
        MissingWeightsError: If the model and the files of the checkpoint do not hold the same weights.
        WorkError: If the hub cannot be reached, if access is restricted, or if the files cannot be loaded.
    """
    adapter = adapter_of(spec)
    if repr(trust_remote_code) not in ("True", "False"):  # untyped callers may pass the string "false"
        raise RequestError(f"trust_remote_code must be true or false, got {trust_remote_code!r}")
    check_device(device)
    from capim.tasks.encoders.weights import LoadReports, check_weights_loaded, loads_reported, wrong_weights

    resolved = resolve(spec)
    reports: LoadReports | None = None
    try:
        with _LOADING:
            load = load_function(spec.adapter)
            with contextlib.nullcontext() if adapter.unverified else loads_reported() as reports:
                loaded = load(resolved, device=device, trust_remote_code=trust_remote_code)
            encoder = _as_encoder(loaded, resolved, device)
            if reports:
                check_weights_loaded(encoder, reports)
                encoder.prepare_captions([_ANY_CAPTION])  # a tokenizer of another model is an error at once
    except (RequestError, WorkError):
        raise
    except ImportError as error:
        raise RequestError(
            f"encoder {spec.name!r}: a library cannot be imported ({_one_line(error)}); "
            f"install it with: {adapter.install}"
        ) from error
    except Exception as error:
        # a library that loads weights strictly
        if reports and ("state_dict" in str(error) or "mismatched" in str(error)) and (faults := reports.faults()):
            raise wrong_weights(resolved, faults) from error
        advice = "the files may be damaged or of another format: remove them from the cache and download them again"
        if not adapter.release and spec.checkpoint and local_path(spec.checkpoint):
            advice = "the files may be damaged or of another format: copy the folder again, or try another adapter"
        if adapter.unverified or adapter.release:
            advice = f"the error comes from the code of adapter {spec.adapter!r}"
        if is_out_of_memory(error):
            advice = f"it does not fit into the memory of {device}; try --precision bfloat16 or another device"
        raise WorkError(
            f"encoder {spec.name!r}: {spec.checkpoint} at {resolved.revision} cannot be loaded "
            f"({type(error).__name__}: {_one_line(error)}); {advice}"
        ) from error
    return encoder


def _as_encoder(loaded: Any, spec: EncoderSpec, device: str) -> Encoder:
    """Return the result of an adapter: an encoder, or an object with two functions, which becomes one."""
    if hasattr(loaded, "embed"):
        return loaded  # type: ignore[no-any-return]
    from capim.tasks.encoders.adapters.module import NAMES, encoder_of_functions, functions_of

    if missing := [name for name in NAMES.values() if not callable(getattr(loaded, name, None))]:
        raise RequestError(
            f"encoder {spec.name!r}: adapter {spec.adapter!r} returned {type(loaded).__name__}, which is not "
            f"an Encoder and has no {' and no '.join(missing)}"
        )
    return encoder_of_functions(spec, device, functions=functions_of(loaded), where=f"adapter {spec.adapter!r}")


def _one_line(error: Exception) -> str:
    return shortened(" ".join(str(error).split()), 300)
