"""The weights of a model: reading them from files, and proof that model and files agree, in both directions.

Libraries fill missing weights with random numbers, interpolate those of another shape, cast those of another type and
leave out those without a place, and at most log it. Every adapter loads by ``Module.load_state_dict`` of torch or
``from_pretrained`` of transformers, directly or through its library. Both know which names of the model they did not
find and which of the files they did not use, after all their renaming, tying and conversion. This module intercepts
their reports, so that no adapter has to check. Tensors that neither of them saw are compared with the files, value by
value, without comparing names: a tensor is identified by its shape and a sample of its values in the precision of the
forward pass.

A weight that is in no file is made NaN, never left random, and is an error if a vector needs it: libraries build
language heads and poolers that no vector uses, and checkpoints leave them out. A tensor of the files that the model
does not hold is an error too, unless it is computed (``COMPUTED``), transformers or the adapter lists it for the
architecture (``Adapter.unused``), or the spec does (option ``unused_weights``).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from PIL import Image
from torch import Tensor, nn

from capim.store.errors import RequestError, WorkError
from capim.store.types import EncoderSpec
from capim.tasks.encoders.adapters import UNUSED_WEIGHTS, adapter_named, pins_of
from capim.tasks.encoders.checkpoint import local_path, open_clip_tag, source_of, weight_files
from capim.tasks.encoders.encoder import Encoder, encode_captions, encode_images
from capim.tasks.encoders.tensors import DTYPES

COMPUTED = ("*position_ids", "*token_type_ids", "*attn_mask", "*embed_scale", "*inv_freq")
"""Names of buffers with values that follow from the configuration, so that files may hold them or not."""
_SAMPLE = 512  # values that enter the digest of a matrix
_PLAIN = (torch.float64, torch.float32, torch.float16, torch.bfloat16)  # types that hold a weight unchanged
_Place = tuple[nn.Module, str]  # a network and the name of its own tensor, which wrapping does not change


class MissingWeightsError(WorkError):
    """The model and the files of its checkpoint do not hold the same weights.

    Attributes:
        faults: The error of each weight, by its name in the model or in the files.
    """

    def __init__(self, message: str, faults: Mapping[str, str]) -> None:
        super().__init__(message)
        self.faults = dict(faults)

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.problem, self.faults))


class StoredTensor(NamedTuple):
    """A tensor of a weights file; its values are read on access."""

    file: Path
    name: str
    tensor: Tensor


def weights_file(folder: Path, names: Iterable[str], spec: EncoderSpec) -> Path:
    """Return the first of these files that a folder has.

    Raises:
        MissingWeightsError: If it has none of them.
    """
    if found := [folder / name for name in names if (folder / name).is_file()]:
        return found[0]
    raise MissingWeightsError(
        f"encoder {spec.name!r}: {folder} holds none of {', '.join(names)}; download the checkpoint again", {}
    )


def read_tensors(file: Path, *, mapped: bool = False) -> dict[str, Any]:
    """Return the tensors of a weights file by name; a pickle may also hold mappings of tensors, but no code is run.

    ``mapped``: True to read values from the file on access, if its format allows that.
    """
    if file.suffix == ".safetensors":
        from safetensors.torch import load_file

        return dict(load_file(file))
    if mapped:
        with contextlib.suppress(RuntimeError):  # files of torch 1.5 and older
            return dict(torch.load(file, map_location="cpu", weights_only=True, mmap=True))
    return dict(torch.load(file, map_location="cpu", weights_only=True))


def weights_in(file: Path, key: str = "", *, mapped: bool = False) -> dict[str, Any]:
    """Return the weights in a file of open_clip, including training checkpoints, by their names in the model.

    A training run keeps them as ``state_dict`` next to its optimiser, perhaps with those of a moving average (EMA), and
    may have written ``module.`` (DDP) or ``_orig_mod.`` (``torch.compile``) before every name.

    Args:
        file: Safetensors, or a pickle, which is read without running code.
        key: Name of the weights, if the file holds several.
        mapped: As in :func:`read_tensors`.

    Raises:
        RequestError: If there are no weights, none under that key, or several and no key.
    """
    contents = read_tensors(file, mapped=mapped)
    whole = {name: each for name, each in contents.items() if isinstance(each, Tensor)}
    sets = {"": whole} if whole else {
        str(name): dict(each)
        for name, each in contents.items()
        if isinstance(each, Mapping) and each and all(isinstance(one, Tensor) for one in each.values())
    }  # fmt: skip
    if not sets or (key and key not in sets):
        raise RequestError(
            f"{file} holds no weights{f' {key!r}' if key else ''}; it holds {', '.join(map(str, contents))}"
        )
    if len(sets) > 1 and not key:
        raise RequestError(
            f"{file} holds several sets of weights; append the one to use: {' or '.join(f'#{name}' for name in sets)}"
        )
    tensors = sets[key or next(iter(sets))]
    for wrapper in ("module.", "_orig_mod.", "module."):
        if all(name.startswith(wrapper) for name in tensors):
            tensors = {name.removeprefix(wrapper): each for name, each in tensors.items()}
    return tensors


class LoadReports:
    """Reports of torch and transformers about the weights of a model while it was loaded."""

    def __init__(self) -> None:
        self._all: list[tuple[Mapping[str, _Place], frozenset[str], Any]] = []
        self._given: dict[str, set[tuple[int, ...]]] = {}  # shapes of tensors given to torch, perhaps for two towers
        self._read: set[Path] = set()  # the files that transformers read by itself

    def add(self, model: nn.Module, report: Any, names: Collection[str] | None = None) -> None:
        """Keep the report of one load; ``names``: the names that it covers, by default all.

        Missing names are recorded now: transformers will later remove tied weights, even those that nothing provides.
        """
        places = _places(model)
        about = places if names is None else {name: places[name] for name in names if name in places}
        self._all.append((about, frozenset(report.missing_keys), report))

    def gave(self, tensors: Mapping[str, Any], files: Iterable[str | Path] = ()) -> None:
        """Keep the shapes of tensors that were given to a model, and the files that were."""
        for name, tensor in tensors.items():
            if isinstance(tensor, Tensor):
                self._given.setdefault(name, set()).add(tuple(tensor.shape))
        self._read |= {Path(file).resolve() for file in files}

    def faults(self) -> dict[str, str]:
        """Return the error of each weight of the model or of the files, as reported by a loader that stopped."""
        missing = [name for *_, report in self._all for name in report.missing_keys]
        return dict.fromkeys(missing, "missing") | self._reshaped() | dict.fromkeys(self._unexpected(), "unused")

    def _reshaped(self) -> dict[str, str]:
        return {
            str(name): f"{tuple(found)} in the files, {tuple(expected)} in the model"
            for *_, report in self._all
            for name, found, expected in getattr(report, "mismatched_keys", ())
        }

    def _unexpected(self) -> set[str]:
        return {name for *_, report in self._all for name in report.unexpected_keys}

    def not_loaded(self, encoder: Encoder, stored: Iterable[StoredTensor]) -> dict[str, Tensor]:
        """Return the weights and stored buffers of an encoder that did not come from its files, by name."""
        seen = {place for places, *_ in self._all for place in places.values()}
        loaded = {place for places, lost, _ in self._all for name, place in places.items() if name not in lost}
        held = weights_of(encoder)
        storages = {tensor.data_ptr() for place, tensor in held.values() if place in loaded}  # tied weights share one
        lost = {n: each for n, each in held.items() if each[1].data_ptr() not in storages and not matches(n, COMPUTED)}
        dtype, in_files = DTYPES[encoder.spec.precision], set[str]()
        if any(place not in seen for place, _ in lost.values()):
            in_files.update(digest_of_tensor(each.tensor, dtype) for each in stored)
        by_storage = {
            tensor.data_ptr(): (name, tensor)
            for name, (place, tensor) in reversed(lost.items())  # of tied weights the first
            if place in seen or digest_of_tensor(tensor, dtype) not in in_files
        }
        return dict(reversed(by_storage.values()))

    def not_taken(self, encoder: Encoder, stored: Iterable[StoredTensor]) -> dict[str, str]:
        """Return the tensors of the files that the model does not hold unchanged, by name, with the difference."""
        spec, unexpected = encoder.spec, self._unexpected()
        given, ends = self._given.keys() - unexpected, {_end(name) for name in unexpected}
        allowed = _may_be_left(spec)
        dtypes: dict[str, set[torch.dtype]] = {}
        for name, tensor in _all_tensors(encoder.modules):
            dtypes.setdefault(name.rpartition(".")[2], set()).add(tensor.dtype)
        of_weights = {parameter.dtype for module in encoder.modules for parameter in module.parameters()}
        in_model = functools.cache(lambda: digests_of_model(encoder.modules))

        def fault_of(name: str, tensor: Tensor, read: bool) -> str:
            found, shapes = tuple(tensor.shape), self._given.get(name)
            # a tensor that a loader takes apart has a name of its own
            kinds = None if matches(name, COMPUTED) else dtypes.get(name.rpartition(".")[2], of_weights)
            if not read and shapes and found not in shapes and tensor.numel() > 1:
                return f"{found} in the files, {min(shapes)} in the model"
            if kinds and tensor.dtype not in kinds and not (tensor.dtype in _PLAIN and kinds & {*_PLAIN}):
                return f"{_plain(tensor.dtype)} in the files, {_plain(min(kinds, key=str))} in the model"
            if not (_end(name) in ends if read else name not in given) or matches(name, allowed):
                return ""
            return "" if digest_of_tensor(tensor, DTYPES[spec.precision]) in in_model() else "unused"

        faults = self._reshaped()
        for file, tensors in itertools.groupby(stored, key=lambda each: each.file):
            read = file.resolve() in self._read
            found = [(name, fault_of(name, tensor, read), tensor.ndim) for _, name, tensor in tensors]
            # no matrix of the file was taken: it is of another model
            if read or any(fault != "unused" for _, fault, n_axes in found if n_axes > 1):
                faults |= {name: fault for name, fault, _ in found if fault}
        return faults


@contextlib.contextmanager
def loads_reported() -> Iterator[LoadReports]:
    """Intercept torch and transformers during the block, in which no other thread may load a model.

    Their own output, progress bars and a report, is suppressed: its relevant contents are checked.
    """
    from transformers import PreTrainedModel
    from transformers.utils import logging

    reports, level, bars = LoadReports(), logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    of_torch, of_transformers = nn.Module.load_state_dict, PreTrainedModel._load_pretrained_model  # noqa: SLF001

    def load_state_dict(self: nn.Module, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        reports.gave(state_dict)
        try:
            report = of_torch(self, state_dict, *args, **kwargs)
        except RuntimeError:
            reports.add(self, _broken_off(self, state_dict))
            raise
        reports.add(self, report)
        return report

    def load_pretrained_model(
        model: Any, state_dict: Mapping[str, Any] | None, checkpoint_files: list[str] | None, *args: Any, **kwargs: Any
    ) -> Any:
        found = of_transformers(model, state_dict, checkpoint_files, *args, **kwargs)
        # only the names of a LoRA adapter are expected; tying takes names out of the report later
        reports.add(model, found[0], kwargs.get("expected_keys"))
        reports.gave(state_dict or {}, checkpoint_files or ())
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
    """Make weights that are not from the files NaN and check that no vector needs them; also check the reverse.

    Raises:
        MissingWeightsError: If they differ; names the first few, their number, and the remedy.
    """
    spec = encoder.spec
    stored = [*stored_tensors(spec)]
    faults = reports.not_taken(encoder, stored)
    if lost := reports.not_loaded(encoder, stored):
        before = _encodes(encoder)
        with torch.no_grad():
            for tensor in lost.values():
                tensor.fill_(torch.nan if tensor.is_floating_point() else 0)
        if _encodes(encoder) != before or not all(tensor.is_floating_point() for tensor in lost.values()):
            # of a model under a LoRA adapter
            faults |= {name.replace(".base_layer.", "."): "missing" for name in lost}
    if faults:
        raise wrong_weights(spec, faults, len(weights_of(encoder)))


def wrong_weights(spec: EncoderSpec, faults: Mapping[str, str], of: int | None = None) -> MissingWeightsError:
    """Return the error for weights in which a model and its files differ, with the first names per kind of error."""
    files = " and ".join([spec.checkpoint, *pins_of(spec)])
    again = "copy or save the folder again, with all its weights"
    if local_path(spec.checkpoint) is None:
        again = f"hf download {source_of(spec)[0]} --revision {spec.revision} --force-download"
    missing, unused = ([name for name, fault in faults.items() if fault == kind] for kind in ("missing", "unused"))
    other = [f"{name}: {fault}" for name, fault in faults.items() if fault not in ("missing", "unused")]
    said = []
    if missing:
        lacking = f"{len(missing)}{f' of {of}' if of else ''} weights of the model are not in the files of {files}"
        said.append(f"{lacking} ({_first_of(missing)}) and would be random numbers")
    if other:
        said.append(f"{len(other)} weights have another shape or type in the files of {files} ({_first_of(other)})")
    if unused:
        said.append(f"{len(unused)} weights in the files of {files} are not in the model ({_first_of(unused)})")
    fits = f"check that adapter {spec.adapter!r} fits the checkpoint"
    if unused and len(said) == 1:
        what = f'options = {{ {UNUSED_WEIGHTS} = "{unused[0]}" }}'
        again, fits = fits, f"if no vector needs them, say so in its table, with * for any text: {what}"
    return MissingWeightsError(f"encoder {spec.name!r}: {'; '.join(said)}; {again}, or {fits}", faults)


def _first_of(names: list[str]) -> str:
    return f"{', '.join(names[:3])}{' …' if len(names) > 3 else ''}"


def _plain(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _end(name: str) -> str:
    """Return the last two parts of a name, which a loader that renames modules keeps."""
    return ".".join(name.split(".")[-2:])


def matches(name: str, patterns: Iterable[str]) -> bool:
    """True if the name of a tensor matches one of these patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _may_be_left(spec: EncoderSpec) -> list[str]:
    """Return the patterns of the names of tensors that the model of a spec may leave out."""
    own = [pattern.strip() for pattern in str(spec.options.get(UNUSED_WEIGHTS, "")).split(",")]
    return [*COMPUTED, *adapter_named(spec.adapter).unused, *own]


def _broken_off(model: nn.Module, given: Mapping[str, Any]) -> SimpleNamespace:
    """Return the findings of a strict load of torch before it raised."""
    places = _places(model)
    own = {name: tuple(_tensor_at(place).shape) for name, place in places.items()}
    return SimpleNamespace(
        missing_keys=[name for name in own if name not in given],
        unexpected_keys=[name for name in given if name not in own],
        mismatched_keys=[
            (name, given[name].shape, shape)
            for name, shape in own.items()
            if name in given and tuple(given[name].shape) != shape
        ],
    )


def weights_of(encoder: Encoder) -> dict[str, tuple[_Place, Tensor]]:
    """Return the weights and stored buffers of an encoder by name."""
    many = len(encoder.modules) > 1
    return {
        f"{number}.{name}" if many else name: (place, _tensor_at(place))
        for number, module in enumerate(encoder.modules)
        for name, place in _places(module).items()
    }


def _places(model: nn.Module) -> dict[str, _Place]:
    return {
        f"{prefix}.{name}" if prefix else name: (module, name)
        for prefix, module in model.named_modules(remove_duplicate=False)
        for name in (*module._parameters, *(module._buffers.keys() - module._non_persistent_buffers_set))  # noqa: SLF001
        if _tensor_at((module, name)) is not None
    }


def _tensor_at(place: _Place) -> Any:
    module, name = place
    return module._parameters.get(name, module._buffers.get(name))  # noqa: SLF001


def _all_tensors(modules: Iterable[nn.Module]) -> Iterator[tuple[str, Tensor]]:
    """Yield all parameters and buffers by name, including those that a checkpoint does not hold."""
    for module in modules:
        yield from module.named_parameters()
        yield from module.named_buffers()


def checksum_of(encoder: Encoder) -> str:
    """Return 16 hexadecimal digits over the shapes and values of all weights, in the order of the model.

    Names do not count, so that a library may rename its modules; nor do computed buffers (``COMPUTED``), because their
    last bits depend on the processor. Any other buffer counts, because a library may have left it uninitialised. Empty
    if the adapter does not know the model's networks.
    """

    def one(tensor: Tensor) -> bytes:
        values = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        return f"{tuple(tensor.shape)} {zlib.crc32(values.data)} ".encode()

    named = _all_tensors(encoder.modules)
    counted = [tensor for name, tensor in named if not matches(name, COMPUTED)]
    with ThreadPoolExecutor(4) as pool:  # a large model has many gigabytes
        return hashlib.sha256(b"".join(pool.map(one, counted))).hexdigest()[:16] if counted else ""


def _encodes(encoder: Encoder) -> list[str]:
    """Return the modalities for which the model gives a vector without NaN."""
    done = []
    with contextlib.suppress(Exception):
        encode_images(encoder, [Image.effect_noise((64, 64), 80).convert("RGB")])
        done.append("image")
    with contextlib.suppress(Exception):
        encode_captions(encoder, ["a red circle left of a blue square"])
        done.append("caption")
    return done


def digests_of_model(modules: Iterable[nn.Module]) -> frozenset[str]:
    """Return digests of all parameters and buffers of a model."""
    return frozenset(digest_of_tensor(tensor) for module in modules for tensor in module.state_dict().values())


def stored_tensors(spec: EncoderSpec) -> Iterator[StoredTensor]:
    """Yield the tensors of all weight files of a resolved spec, a LoRA adapter's before those of its base model."""
    tag = open_clip_tag(spec)
    for file in weight_files(spec):
        if adapter_named(spec.adapter).open_clip:
            named = weights_in(file, tag.key if tag else "", mapped=True)
            yield from (StoredTensor(file, name, tensor) for name, tensor in named.items())
            continue
        for name, contents in read_tensors(file, mapped=True).items():
            inner = contents if isinstance(contents, Mapping) else {"": contents}
            for key, tensor in inner.items():
                if isinstance(tensor, Tensor):
                    yield StoredTensor(file, f"{name}.{key}" if key else name, tensor)


def lost_matrices(spec: EncoderSpec, modules: Iterable[nn.Module]) -> tuple[list[str], int]:
    """Return the names of the weight matrices in a spec's files that a model does not hold, and the number of all.

    A matrix also counts as held if the model holds it in two or three parts: queries, keys and values.

    Vectors and counters are left out: architectures drop some of them (position ids), and a lost layer shows in its
    matrices. So are weights without a place in the model, if it may leave them out.
    """
    allowed, held, dtype = _may_be_left(spec), digests_of_model(modules), DTYPES[spec.precision]
    matrices = [
        each
        for each in stored_tensors(spec)
        if each.tensor.ndim > 1 and each.tensor.is_floating_point() and not matches(each.name, allowed)
    ]

    def is_held(tensor: Tensor) -> bool:
        return any(all(digest_of_tensor(part, dtype) in held for part in tensor.chunk(n)) for n in (1, 2, 3))

    return sorted(each.name for each in matrices if not is_held(each.tensor)), len(matrices)


def digest_of_tensor(tensor: Tensor, dtype: torch.dtype = torch.float32) -> str:
    """Return a digest of the shape of a tensor and a sample of its values, in the precision of the forward pass."""
    # some loaders empty the row of the padding, which is masked anyway: long matrices count from their third row
    values = (tensor[2:] if tensor.ndim > 1 and len(tensor) > 64 else tensor).detach().cpu().flatten()
    sample = values[:: max(1, len(values) // _SAMPLE)].to(dtype).to(torch.float32).contiguous()
    return hashlib.sha256(str(tuple(tensor.shape)).encode() + sample.numpy().tobytes()).hexdigest()
