"""The weights of a model: read from files, and whether all that a vector needs came from them.

Libraries fill in what they miss with random numbers and only log it. Every adapter loads by ``Module.load_state_dict``
of torch or ``from_pretrained`` of transformers, itself or through its library. Both know which names of the model they
did not find, after all renaming, tying and conversion of theirs; here they are listened to, so that no adapter has to
ask. What neither of them saw is compared with the files, value by value, without comparing names: a weight matrix is
identified by its shape and a sample of its values in the precision of the forward pass. A weight that is in no file is
made NaN, never left random, and is an error where a vector needs it: libraries build language heads and poolers that no
vector sees, and checkpoints leave them out.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from capim.store.errors import WorkError
from capim.store.types import EncoderSpec
from capim.tasks.encoders.adapters import PIN, adapter_named
from capim.tasks.encoders.checkpoint import chosen_weights, folder_of, local_path, open_clip_tag, repository_of
from capim.tasks.encoders.encoder import Encoder, encode_captions, encode_images
from capim.tasks.encoders.tensors import DTYPES

_SAMPLE = 512  # values that enter the digest of a matrix
_Place = tuple[nn.Module, str]  # a network and the name of a tensor of its own, which wrapping does not change


class MissingWeightsError(WorkError):
    """The checkpoint lacks weights that the architecture needs, or holds them in another shape."""


def weights_file(folder: Path, names: Iterable[str], spec: EncoderSpec) -> Path:
    """The first of these files that a folder has.

    Raises:
        MissingWeightsError: It has none of them.
    """
    if found := [folder / name for name in names if (folder / name).is_file()]:
        return found[0]
    raise MissingWeightsError(
        f"encoder {spec.name!r}: {folder} holds none of {', '.join(names)}; download the checkpoint again"
    )


def read_tensors(file: Path) -> dict[str, Any]:
    """The tensors of a weights file by name; a pickle may also hold mappings of tensors, but no code is run."""
    if file.suffix == ".safetensors":
        from safetensors.torch import load_file

        return dict(load_file(file))
    return dict(torch.load(file, map_location="cpu", weights_only=True))


class LoadReports:
    """What torch and transformers said about the weights of a model while it was loaded."""

    def __init__(self) -> None:
        self._all: list[tuple[Mapping[str, _Place], Any]] = []

    def add(self, model: nn.Module, report: Any, names: Collection[str] | None = None) -> None:
        """Keep what one load says in ``missing_keys``; ``names``: those that it was about, by default all."""
        places = _places(model)
        about = places if names is None else {name: places[name] for name in names if name in places}
        self._all.append((about, report))

    @property
    def missing(self) -> list[str]:
        """The names that a loader did not find, in its own words."""
        return sorted({name for _, report in self._all for name in report.missing_keys})

    def not_loaded(self, encoder: Encoder) -> dict[str, Tensor]:
        """The weights and stored buffers of an encoder that did not come from its files, by name."""
        seen = {place for places, _ in self._all for place in places.values()}
        loaded = {place for names, said in self._all for name, place in names.items() if name not in said.missing_keys}
        held = weights_of(encoder)
        storages = {tensor.data_ptr() for place, tensor in held.values() if place in loaded}  # tied weights share one
        lost = {name: each for name, each in held.items() if each[1].data_ptr() not in storages}
        spec, dtype, in_files = encoder.spec, DTYPES[encoder.spec.precision], set[str]()
        if any(place not in seen for place, _ in lost.values()):
            in_files.update(digests_of_files(folder_of(spec), spec, every=True).values())
        return {
            name: tensor
            for name, (place, tensor) in lost.items()
            if place in seen or digest_of_tensor(tensor.to(dtype)) not in in_files
        }


@contextlib.contextmanager
def loads_reported() -> Iterator[LoadReports]:
    """Listen to torch and transformers for the block, in which no other thread may load a model.

    What transformers would show of it, progress bars and a report, is suppressed: what matters in it is checked.
    """
    from transformers import PreTrainedModel
    from transformers.utils import logging

    reports, level, bars = LoadReports(), logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    of_torch, of_transformers = nn.Module.load_state_dict, PreTrainedModel._load_pretrained_model  # noqa: SLF001

    def load_state_dict(self: nn.Module, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        try:
            report = of_torch(self, state_dict, *args, **kwargs)
        except RuntimeError:
            reports.add(self, SimpleNamespace(missing_keys=[name for name in _places(self) if name not in state_dict]))
            raise
        reports.add(self, report)
        return report

    def load_pretrained_model(model: Any, *args: Any, **kwargs: Any) -> Any:
        found = of_transformers(model, *args, **kwargs)
        # the names of a LoRA adapter are expected alone; tying takes names out of the report later
        reports.add(model, found[0], kwargs.get("expected_keys"))
        return found

    nn.Module.load_state_dict = load_state_dict  # type: ignore[method-assign]
    PreTrainedModel._load_pretrained_model = staticmethod(load_pretrained_model)  # noqa: SLF001
    try:
        yield reports
    finally:
        nn.Module.load_state_dict = of_torch  # type: ignore[method-assign]
        PreTrainedModel._load_pretrained_model = staticmethod(of_transformers)  # noqa: SLF001
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def check_weights_loaded(encoder: Encoder, reports: LoadReports) -> None:
    """Make the weights that are not from the files NaN, and check that no vector needs one.

    Raises:
        MissingWeightsError: Names the first few of them, how many there are, and what to do.
    """
    lost = reports.not_loaded(encoder)
    if not lost:
        return
    before = _encodes(encoder)
    with torch.no_grad():
        for tensor in lost.values():
            tensor.fill_(torch.nan if tensor.is_floating_point() else 0)
    if _encodes(encoder) != before or not all(tensor.is_floating_point() for tensor in lost.values()):
        names = [name.replace(".base_layer.", ".") for name in lost]  # of a model under a LoRA adapter
        raise missing_weights(encoder.spec, names, len(weights_of(encoder)))


def missing_weights(spec: EncoderSpec, names: list[str], of: int | None = None) -> MissingWeightsError:
    """The error for weights of the model that its files lack."""
    files = " and ".join([spec.checkpoint, *(key.removeprefix(PIN) for key in spec.options if key.startswith(PIN))])
    again = "copy or save the folder again, with all its weights"
    if local_path(spec.checkpoint) is None:
        tag = open_clip_tag(spec)
        repository = tag.repository if tag else repository_of(spec.checkpoint)
        again = f"hf download {repository} --revision {spec.revision} --force-download"
    return MissingWeightsError(
        f"encoder {spec.name!r}: {len(names)}{f' of {of}' if of else ''} weights of the model are not in the files of "
        f"{files} ({', '.join(names[:3])}{' …' if len(names) > 3 else ''}) and would be random numbers; {again}, or "
        f"check that adapter {spec.adapter!r} fits the checkpoint"
    )


def weights_of(encoder: Encoder) -> dict[str, tuple[_Place, Tensor]]:
    """The weights and stored buffers of an encoder by name."""
    many = len(encoder.modules) > 1
    return {
        f"{number}.{name}" if many else name: (place, tensor)
        for number, module in enumerate(encoder.modules)
        for name, place in _places(module).items()
        if (tensor := place[0]._parameters.get(place[1], place[0]._buffers.get(place[1]))) is not None  # noqa: SLF001
    }


def _places(model: nn.Module) -> dict[str, _Place]:
    return {
        f"{prefix}.{name}" if prefix else name: (module, name)
        for prefix, module in model.named_modules(remove_duplicate=False)
        for name in (*module._parameters, *(module._buffers.keys() - module._non_persistent_buffers_set))  # noqa: SLF001
        if module._parameters.get(name, module._buffers.get(name)) is not None  # noqa: SLF001
    }


def _encodes(encoder: Encoder) -> list[str]:
    """The modalities that the model gives a vector without NaN."""
    done = []
    with contextlib.suppress(Exception):
        encode_images(encoder, [Image.effect_noise((64, 64), 80).convert("RGB")])
        done.append("image")
    with contextlib.suppress(Exception):
        encode_captions(encoder, ["a red circle left of a blue square"])
        done.append("caption")
    return done


def digests_of_model(modules: Iterable[nn.Module]) -> frozenset[str]:
    """Digests of all parameters and buffers of a model."""
    return frozenset(digest_of_tensor(tensor) for module in modules for tensor in module.state_dict().values())


def digests_of_files(folder: Path, spec: EncoderSpec, *, every: bool = False) -> Mapping[str, str]:
    """Digest of each weight matrix in a folder's weight files, by name, as it is after loading.

    Unless ``every`` tensor is wanted, vectors and counters are left out: architectures drop some of them (position
    ids), and a lost layer shows in its matrices. So are language heads, which no encoder uses.
    """
    adapter = adapter_named(spec.adapter)
    patterns = () if adapter.unverified else adapter.weights  # other adapters may read any file
    digests: dict[str, str] = {}
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*")]
    for file in chosen_weights(names, patterns):
        for name, contents in read_tensors(folder / file).items():
            tensors = {f"{name}.{inner}": t for inner, t in contents.items()} if isinstance(contents, Mapping) else {}
            for key, tensor in (tensors or {name: contents}).items():
                if isinstance(tensor, Tensor) and (every or (tensor.ndim > 1 and tensor.is_floating_point())):
                    digests[key] = digest_of_tensor(tensor.to(DTYPES[spec.precision]))
    return {name: digest for name, digest in digests.items() if every or "lm_head" not in name}


def digest_of_tensor(tensor: Tensor) -> str:
    """A digest of the shape of a tensor and a sample of its values."""
    # some loaders empty the row of the padding, which is masked anyway: long matrices count from their third row
    values = (tensor[2:] if tensor.ndim > 1 and len(tensor) > 64 else tensor).detach().cpu().flatten()
    sample = values[:: max(1, len(values) // _SAMPLE)].to(torch.float32).contiguous()
    return hashlib.sha256(str(tuple(tensor.shape)).encode() + sample.numpy().tobytes()).hexdigest()
