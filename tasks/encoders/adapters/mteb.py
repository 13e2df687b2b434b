"""Models of mteb's table, by mteb's own loaders: each item in its role, as in mteb's ``encode``.

Captions are encoded as queries and images as documents of one task; mteb chooses its prompts (option ``task``; the
options ``caption_role`` and ``image_role`` override the roles). mteb pads the vectors of late-interaction models with
zeros, which are left out here.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from capim.store.errors import RequestError
from capim.store.types import EncoderSpec, Modality
from capim.tasks.encoders.adapters import adapter_named, pins_of
from capim.tasks.encoders.adapters.loaded_encoder import LoadedEncoder
from capim.tasks.encoders.checkpoint import folder_of, related_folder
from capim.tasks.encoders.of_mteb import model_meta
from capim.tasks.encoders.tensors import DTYPES, as_tensor
from capim.tasks.hub import commit_of

_INPUTS: dict[Modality, str] = {"caption": "text", "image": "image"}


class _Items(Sequence[dict[str, Any]]):
    """Items of one kind in the form of mteb's loaders: a data set with one column."""

    def __init__(self, column: str, items: Sequence[Any]) -> None:
        self.features = self.column_names = [column]
        self._rows = [{column: item} for item in items]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, row: Any) -> Any:
        return self._rows[row]


def load(spec: EncoderSpec, *, device: str, trust_remote_code: bool) -> LoadedEncoder:
    """Load a model by the loader that mteb's table names, at the pinned revision.

    Raises:
        RequestError: If it cannot run here, if it runs code of its repository without consent, if its base model is no
            longer the pinned one, or if its loader takes another precision.
    """
    import mteb

    meta = model_meta(spec.checkpoint)
    where = f"encoder {spec.name!r}: mteb's {spec.checkpoint}"
    if not trust_remote_code and runs_remote_code(meta):
        raise RequestError(
            f"{where} runs Python code of its repository (at {spec.revision}); read it, then allow it with "
            "--trust-remote-code"
        )
    folder_of(spec)  # downloaded with its progress, before mteb requests it
    for name, commit in pins_of(spec).items():
        if name == spec.adapter:  # the version of mteb
            continue
        if commit_of(name, "main") != commit:
            raise RequestError(f"{where} loads the newest {name}, which is no longer {commit}; encode again")
        related_folder(spec, name, adapter_named(spec.adapter).weights)
    model = meta.model_copy(update={"revision": spec.revision}).load_model(device=device)
    modules = [_without_gaps(network) for network in _networks(model)]
    own = next((weights.dtype for module in modules for weights in module.parameters()), DTYPES[spec.precision])
    if own != DTYPES[spec.precision]:
        kind = str(own).removeprefix("torch.")
        raise RequestError(f'{where} is loaded in {kind} by mteb, not in {spec.precision}; set precision = "{kind}"')
    task = mteb.get_task(str(spec.options["task"])).metadata
    return LoadedEncoder(
        spec,
        device,
        modules=modules,
        forwards={m: partial(_encoded, model, task, spec, m) for m in _INPUTS},
        pixels=lambda images: {"items": images},
    )


def runs_remote_code(meta: Any) -> bool:
    """True if the loader of a model lets transformers run Python code of its repository."""
    return bool(meta.loader_kwargs.get("trust_remote_code")) or "trust_remote_code=True" in inspect.getsource(
        meta.loader
    )


def _encoded(model: Any, task: Any, spec: EncoderSpec, modality: Modality, items: list[Any]) -> Any:
    """Return one forward pass: float32, shape ``(n, dim)``, or ``(n, longest, dim)`` and a mask without padding."""
    from mteb.types import PromptType
    from torch.utils.data import DataLoader

    role = str(spec.options[f"{modality}_role"])
    rows: Any = _Items(_INPUTS[modality], items)
    data: Any = DataLoader(rows, batch_size=len(items), collate_fn=_columns)
    # mteb's wrapper of MultiVectorEncoder searches, and encodes under another name
    encode = getattr(model, "encode", None) or model._encode  # noqa: SLF001
    found = encode(
        data,
        task_metadata=task,
        hf_split="test",
        hf_subset="default",
        prompt_type=None if role == "none" else PromptType(role),
        batch_size=len(items),
        show_progress_bar=False,
    )
    if isinstance(found, list):
        found = nn.utils.rnn.pad_sequence([as_tensor(each).cpu() for each in found], batch_first=True)
    vectors = as_tensor(found).detach().float().cpu()
    return vectors if spec.vectors == "single" else (vectors, (vectors != 0).any(dim=2))


def _columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {column: [row[column] for row in rows] for column in rows[0]}


def _without_gaps(network: nn.Module) -> nn.Module:
    """Return the network with NaN for weights without storage: an unused language head that a loader left."""
    for part in network.modules():
        for name, weights in list(part.named_parameters(recurse=False)):
            if weights.is_meta:
                setattr(part, name, nn.Parameter(torch.full(weights.shape, torch.nan, dtype=weights.dtype)))
    return network


def _networks(model: Any, depth: int = 3) -> Iterator[nn.Module]:
    """Yield the networks in a wrapper of mteb, and those in wrappers inside it."""
    if isinstance(model, nn.Module):
        yield model
    elif depth and hasattr(model, "__dict__"):
        for value in vars(model).values():
            if isinstance(value, nn.Module) or type(value).__module__.startswith("mteb.models."):
                yield from _networks(value, depth - 1)
