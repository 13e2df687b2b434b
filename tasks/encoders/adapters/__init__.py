"""The table of adapters: the file that loads each family of models, and the extra of capim that it needs.

To add a family, write one file with ``load(spec, *, device, trust_remote_code) -> Encoder`` next to this one and add
one row here; or name an :class:`Adapter` in an entry point ``capim.adapters`` of a package of your own
(``docs/own_model.md``). A suite can also name the function: ``adapter = "my_package:load"``. This module does not
import torch: a row names its file, which is imported when a model is loaded.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from capim.store.errors import RequestError, unknown
from capim.store.plugins import OWN, Plugin, PluginTable, loaded_module
from capim.store.types import EncoderSpec
from capim.tasks.encoders.adapters import recognition
from capim.tasks.encoders.adapters.recognition import Fit, Other, ReadJson

PIN = "revision:"
"""Prefix of an option that names the commit, version or digest of a requirement of a checkpoint."""
UNUSED_WEIGHTS = "unused_weights"
"""The option that names a checkpoint's tensors that no vector needs: comma-separated patterns."""
_HF_WEIGHTS = ("adapter_model.safetensors", "model*.safetensors", "adapter_model.bin", "pytorch_model*.bin")
_LANGUAGE_HEADS = ("*lm_head.*", "projection_head.*")  # the second of ModernVBERT
_OWN_WEIGHTS = "a module loads its own weights, from files that capim cannot know"
OWN_FILE = "module"
"""The adapter of a suite's row that names a Python file."""
MTEB, OPEN_CLIP = "mteb", "openclip"
OWN_CODE_FORM = "my_model.py, my_adapter.py:load or my_package:load"
_OWN_CODE = re.compile(r"(?P<where>.+\.py|[\w.]+):(?P<function>\w+)", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """One family of models: its loader, requirements and properties.

    Attributes:
        title: The models that it loads.
        module: The file with ``load``, imported only when a model is loaded. Built-in adapters: its name here, by
            default the name of the adapter; adapters of packages: its dotted name, by default the module of the entry
            point.
        version: Raised whenever the adapter's vectors change; part of every fingerprint.
        options: Names of the options of a spec that it accepts; one that ends with ``:`` is a prefix of any name. None:
            any, the adapter checks them.
        roles: True if queries and documents are encoded differently: captions as queries, images as documents, with
            prompts.
        weights: Patterns of the files with weights, in order of preference: safetensors first, pickles only if there
            are no others.
        unused: Patterns of the tensors of such files that no vector needs: heads that predict words or classes.
        requires: Import names of required libraries that only an extra of capim installs.
        extra: The extra that installs them; empty if the core installation is enough.
        is_remote: True if the model runs behind a URL, not here: see :mod:`tasks.encoders.adapters.endpoint`.
        is_file: True if the checkpoint is a Python file of the user.
        library: The library that has the checkpoint in a table of its own and loads it in its own way; its version is
            part of the model's identity.
        open_clip: True if the checkpoint may be a name or file of open_clip, ``ARCHITECTURE/TAG`` or
            ``ARCHITECTURE@FILE``.
        lora: True if the checkpoint may be a LoRA adapter over the weights of another repository.
        related: Function that names the other repositories that a checkpoint needs, from its JSON files.
        fits: Tells from the files of a repository, and of others, if the adapter loads it; None: it cannot tell.
        prompts: Source of the roles and prompts of captions and images: the files that sentence-transformers saves, or
            the table of late-interaction families; empty: none.
        resize: How images are resized if the checkpoint's files do not say.
        unverified: Why it is unknown that every weight is from the checkpoint; empty: every weight is, or
            ``load_encoder`` raises ``MissingWeightsError``.
        encoders: For a package's adapter: its rows of the catalog by name, in the form of ``catalog.toml``, without the
            adapter.
        package: The package that the adapter comes from, or the name and state of the user's own code.
        release: Its version; empty for capim's own adapters, which have a ``version`` each.
    """

    title: str
    module: str = ""
    version: int = 1
    options: tuple[str, ...] | None = ("caption_template", "max_length")
    roles: bool = False
    weights: tuple[str, ...] = (*_HF_WEIGHTS, "*.safetensors", "*.bin", "*.pt")
    unused: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    extra: str = ""
    is_remote: bool = False
    is_file: bool = False
    library: str = ""
    open_clip: bool = False
    lora: bool = False
    related: Callable[[ReadJson], Iterable[str | None]] = lambda read: ()
    fits: Callable[[ReadJson, Other], Fit | None] | None = None
    prompts: Literal["", "saved", "family"] = ""
    resize: Literal["crop", "squash"] | None = None
    unverified: str = ""
    encoders: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    package: str = OWN
    release: str = ""

    @property
    def install(self) -> str:
        """The command that installs the adapter's requirements."""
        return f"pip install '{self.package}[{self.extra}]'" if self.extra else f"pip install {self.package}"

    @property
    def missing(self) -> list[str]:
        """The required libraries that are not installed."""
        return [name.replace("_", "-") for name in self.requires if importlib.util.find_spec(name) is None]


def _of_package(plugin: Plugin, found: object) -> Adapter:
    if not isinstance(found, Adapter):
        raise TypeError(f"expected a capim.tasks.encoders.Adapter, got {type(found).__name__}")
    return replace(
        found,
        module=found.module or plugin.point.module,
        package=plugin.package,
        release=plugin.version,
        unverified=found.unverified or f"package {plugin.package} loads its own weights",
    )


def _related_to_open_clip(read: ReadJson) -> Iterable[str | None]:
    text = read("open_clip_config.json").get("model_cfg", {}).get("text_cfg", {})
    yield text.get("hf_model_name")
    # a checkpoint with its own tokenizer still names another repository, but does not need it
    if not read("tokenizer_config.json"):
        yield text.get("hf_tokenizer_name")


def _related_to_jina(read: ReadJson) -> Iterable[str | None]:
    config = read("config.json")
    yield from (name.split("--")[0] for name in config.get("auto_map", {}).values() if "--" in name)
    yield config.get("text_config", {}).get("hf_model_name_or_path")


_OWN: dict[str, Adapter] = {
    "hf_dual": Adapter(
        title="transformers dual encoders: CLIP, MetaCLIP 1 and 2, SigLIP 1 and 2, AltCLIP, Chinese-CLIP, TIPSv2",
        weights=_HF_WEIGHTS,
        fits=recognition.of_transformers,
        unused=("text_model.*pooler.*",),  # CLIP's projection reads the first token itself
    ),
    "colvision": Adapter(
        title="colpali_engine: ColPali, ColQwen2 to 3.5, ColSmol, ColModernVBert, ColGemma3, and their Bi forms",
        options=("caption_template", "max_length", "image_prompt"),
        weights=_HF_WEIGHTS,
        unused=_LANGUAGE_HEADS,
        roles=True,
        lora=True,
        fits=recognition.of_colpali_engine,
        prompts="family",
        requires=("colpali_engine",),
        extra="colpali",
    ),
    OPEN_CLIP: Adapter(
        title="open_clip: DFN, LAION, xlm-roberta, nllb-clip, MobileCLIP2, PE-Core, SigLIP",
        options=("caption_template", "max_length", "language"),
        weights=("open_clip_model.safetensors", "open_clip_pytorch_model.safetensors", "open_clip_pytorch_model.bin"),
        open_clip=True,
        related=_related_to_open_clip,
        fits=recognition.of_open_clip,
        requires=("open_clip",),
        extra="openclip",
    ),
    "jina": Adapter(
        title="jina-clip v1 and v2 (runs the checkpoint's own code, by consent)",
        options=("caption_template", "max_length", "truncate_dim"),
        weights=("model.safetensors", "pytorch_model.bin"),
        related=_related_to_jina,
        fits=recognition.of_jina,
        requires=("einops", "timm"),
        extra="jina",
    ),
    "uform": Adapter(
        module="unum_uform",
        title="unum-cloud/uform, versions 2 and 3",
        options=("caption_template",),
        weights=("*_encoder.safetensors", "*_encoder.pt", "torch_weight.pt"),
        fits=recognition.of_uform,
        resize="crop",
        requires=("uform", "torchvision"),
        extra="uform",
    ),
    OWN_FILE: Adapter(
        title="a model in a user's Python file, in the form of COCO-SM",
        is_file=True,
        options=("caption_template",),
        unverified=_OWN_WEIGHTS,
    ),
    "sentence_transformers": Adapter(
        module="sentence_encoder",
        title="sentence-transformers for images and text, MultiVectorEncoder too, each item in its role",
        options=("caption_template", "caption_role", "caption_prompt", "image_role", "image_prompt"),
        roles=True,
        fits=recognition.saved_by_sentence_transformers,
        prompts="saved",
        weights=("model*.safetensors", "*/model*.safetensors", "pytorch_model*.bin", "*/pytorch_model*.bin"),
        unused=(*_LANGUAGE_HEADS, "cls.*", "*pooler.*", "vocab_*", "*predictions.*", "classifier.*", "decoder.bias"),
        requires=("sentence_transformers",),
        extra="sentence-transformers",
    ),
    MTEB: Adapter(
        title="any model of mteb's table that sees images, by mteb's own loader, prompts and roles",
        options=("task", "caption_role", "image_role"),
        roles=True,
        lora=True,
        library="mteb",
        requires=("mteb",),
        extra="mteb",
    ),
    "http": Adapter(
        module="endpoint",
        title="a model behind an address: OpenAI's form, vLLM, Jina, Infinity, TEI, Cohere, Voyage, Gemini",
        options=(
            *("caption_template", "url", "image_form", "caption_form", "image_prompt", "image_system"),
            *("caption_system", "last_turn", "api_key_env", "concurrency", "inputs_per_request"),
            *("requests_per_minute", "tokens_per_minute", "timeout_seconds", "body:", "caption_body:", "image_body:"),
        ),
        is_remote=True,
        unverified="the weights are with the service",
    ),
}
ADAPTERS = PluginTable("capim.adapters", _OWN, _of_package)


def is_own_code(adapter: str) -> bool:
    """True if the adapter of a spec is a function that the user names, ``FILE.py:FUNCTION`` or ``MODULE:FUNCTION``.

    Examples:
        >>> [is_own_code(name) for name in ("my_package.models:load", "models/mine.py:load", "hf_dual", "mine.py")]
        [True, True, False, False]
    """
    return _OWN_CODE.fullmatch(adapter) is not None


def adapter_named(name: str) -> Adapter:
    """Return the adapter with a name in the table, or an adapter for the function that a suite names.

    Raises:
        RequestError: If the name is unknown, or if its package is broken.
    """
    if is_own_code(name):
        return Adapter(title=f"the function {name}", options=None, unverified=_OWN_WEIGHTS)
    if name not in ADAPTERS:
        raise RequestError(unknown("adapter", name, ADAPTERS) + f"; or name your own code: {OWN_CODE_FORM}")
    return ADAPTERS[name]


def load_function(name: str) -> Callable[..., Any]:
    """Return the function ``load`` of an adapter, or the function that a suite names.

    Raises:
        RequestError: If the user's file or module does not exist or fails, or has no such function.
    """
    if is_own_code(name):
        where, _, function = name.rpartition(":")
        module = loaded_module(Path(where) if where.endswith(".py") else where, f"adapter {name!r}")
        if not callable(getattr(module, function, None)):
            raise RequestError(f"adapter {name!r}: {where} has no function {function!r}")
    else:
        adapter, function = adapter_named(name), "load"
        of_package = bool(adapter.release)
        module = importlib.import_module(adapter.module if of_package else f"{__name__}.{adapter.module or name}")
    load: Callable[..., Any] = getattr(module, function)
    return load


def adapter_of(spec: EncoderSpec) -> Adapter:
    """Return the adapter of a spec, after a check that it can be used here with this spec.

    Raises:
        RequestError: If the adapter is unknown or of another version, lacks a library, or does not accept an option.
    """
    if faults := adapter_faults(spec.adapter, spec.options):
        raise RequestError([f"encoder {spec.name!r}: {fault}" for fault in faults])
    adapter = adapter_named(spec.adapter)
    if spec.adapter_version != adapter.version:
        raise RequestError(
            f"encoder {spec.name!r} was made with version {spec.adapter_version} of adapter {spec.adapter!r}, but this "
            f"is version {adapter.version}, which gives other vectors; take the spec from the catalog again"
        )
    require_libraries(spec)
    return adapter


def pins_of(spec: EncoderSpec) -> dict[str, str]:
    """Return the commit, version or digest of each requirement of a resolved spec except its checkpoint, by name."""
    return {key.removeprefix(PIN): str(value) for key, value in spec.options.items() if key.startswith(PIN)}


def require_libraries(spec: EncoderSpec) -> None:
    """Raise ``RequestError`` with the extra to install if a library that a spec's adapter needs is missing."""
    adapter = adapter_named(spec.adapter)
    if missing := adapter.missing:
        raise RequestError(f"encoder {spec.name!r} needs {', '.join(missing)}; install it with: {adapter.install}")


def adapter_faults(adapter: str, options: Mapping[str, object]) -> list[str]:
    """Return the errors in the name of an adapter and in the names of its options.

    Options ``revision:…`` are written by :func:`tasks.encoders.identity.resolve`.
    """
    try:
        accepted = adapter_named(adapter).options
    except RequestError as error:
        return list(error.faults)
    if accepted is None:
        return []
    if not adapter_named(adapter).unverified:
        accepted = (*accepted, UNUSED_WEIGHTS)
    begins = (PIN, *(option for option in accepted if option.endswith(":")))
    return [
        unknown(f"adapter {adapter!r}: option", name, accepted)
        for name in options
        if name not in accepted and not name.startswith(begins)
    ]
