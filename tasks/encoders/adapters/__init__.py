"""The table of adapters: which file loads which family of models, and which extra of capim it needs.

To add a family, write one file with ``load(spec, *, device, trust_remote_code) -> Encoder`` beside this one and add
one row here; or name an :class:`Adapter` in an entry point ``capim.adapters`` of a package of your own
(``docs/own_model.md``). A suite can also name the function: ``adapter = "my_package:load"``. Nothing here imports
torch: a row names its file, which is imported when a model is loaded.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from capim.store.errors import RequestError, unknown
from capim.store.plugins import OWN, Plugin, PluginTable, loaded_module
from capim.store.types import EncoderSpec

PIN = "revision:"
"""Beginning of an option that names the commit, version or digest of what a checkpoint needs beside itself."""
UNUSED_WEIGHTS = "unused_weights"
"""The option that names tensors of a checkpoint that no vector needs: patterns, with commas between them."""
_HF_WEIGHTS = ("adapter_model.safetensors", "model*.safetensors", "adapter_model.bin", "pytorch_model*.bin")
_LANGUAGE_HEADS = ("*lm_head.*", "projection_head.*")  # the second of ModernVBERT
_OWN_WEIGHTS = "a module loads its own weights, from files that capim cannot know"
OWN_CODE_FORM = "my_model.py, my_adapter.py:load or my_package:load"
_OWN_CODE = re.compile(r"(?P<where>.+\.py|[\w.]+):(?P<function>\w+)", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """How one family of models is loaded.

    Attributes:
        title: The models that it loads.
        module: The file with ``load``, imported only when a model is loaded: of capim's adapters its name here, by
            default that of the adapter; of a package's its dotted name, by default the module that its entry point
            names.
        version: Raised whenever the adapter's vectors change; part of every fingerprint.
        options: Names of the options of a spec that it accepts; one that ends with ``:`` is the beginning of any name.
            None: any, the adapter checks them.
        roles: Queries and documents are encoded differently: captions as queries, images as documents, with prompts.
        weights: Patterns of the files that hold the weights, in the order of preference: safetensors first, pickles
            only where there are none.
        unused: Patterns of the tensors of such files that no vector needs: heads that predict words or classes.
        requires: Import names of the libraries that it needs and that only an extra of capim installs.
        extra: The extra that installs them; empty if the core installation is enough.
        endpoint: The model runs at an address, not here: see :mod:`tasks.encoders.adapters.endpoint`.
        unverified: Why it cannot be known that every weight is from the checkpoint; empty: it is, or ``load_encoder``
            raises ``MissingWeightsError``.
        encoders: Of a package's adapter: its rows of the catalog by name, in the form of ``catalog.toml``, without the
            adapter.
        package: The package that the adapter comes from, or the name and state of the user's own code.
        release: Its version; empty for capim, whose adapters have a ``version`` each.
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
    endpoint: bool = False
    unverified: str = ""
    encoders: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    package: str = OWN
    release: str = ""

    @property
    def install(self) -> str:
        """The command that installs what the adapter needs."""
        return f"pip install '{self.package}[{self.extra}]'" if self.extra else f"pip install {self.package}"

    @property
    def missing(self) -> list[str]:
        """The libraries that it needs and that are not installed."""
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


_OWN: dict[str, Adapter] = {
    "hf_dual": Adapter(
        title="transformers dual encoders: CLIP, MetaCLIP 1 and 2, SigLIP 1 and 2, AltCLIP, Chinese-CLIP, TIPSv2",
        weights=_HF_WEIGHTS,
        unused=("text_model.*pooler.*",),  # CLIP's projection reads the first token itself
    ),
    "colvision": Adapter(
        title="colpali_engine: ColPali, ColQwen2 to 3.5, ColSmol, ColModernVBert, ColGemma3, and their Bi forms",
        options=("caption_template", "max_length", "image_prompt"),
        weights=_HF_WEIGHTS,
        unused=_LANGUAGE_HEADS,
        roles=True,
        requires=("colpali_engine",),
        extra="colpali",
    ),
    "openclip": Adapter(
        title="open_clip: DFN, LAION, xlm-roberta, nllb-clip, MobileCLIP2, PE-Core, SigLIP",
        options=("caption_template", "max_length", "language"),
        weights=("open_clip_model.safetensors", "open_clip_pytorch_model.safetensors", "open_clip_pytorch_model.bin"),
        requires=("open_clip",),
        extra="openclip",
    ),
    "jina": Adapter(
        title="jina-clip v1 and v2 (runs the checkpoint's own code, by consent)",
        options=("caption_template", "max_length", "truncate_dim"),
        weights=("model.safetensors", "pytorch_model.bin"),
        requires=("einops", "timm"),
        extra="jina",
    ),
    "uform": Adapter(
        module="unum_uform",
        title="unum-cloud/uform, versions 2 and 3",
        options=("caption_template",),
        weights=("*_encoder.safetensors", "*_encoder.pt", "torch_weight.pt"),
        requires=("uform", "torchvision"),
        extra="uform",
    ),
    "module": Adapter(
        title="a model in a user's Python file, in the form of COCO-SM",
        options=("caption_template",),
        unverified=_OWN_WEIGHTS,
    ),
    "sentence_transformers": Adapter(
        module="sentence_encoder",
        title="sentence-transformers for images and text, MultiVectorEncoder too, each item in its role",
        options=("caption_template", "caption_role", "caption_prompt", "image_role", "image_prompt"),
        roles=True,
        weights=("model*.safetensors", "*/model*.safetensors", "pytorch_model*.bin", "*/pytorch_model*.bin"),
        unused=(*_LANGUAGE_HEADS, "cls.*", "*pooler.*", "vocab_*", "*predictions.*", "classifier.*", "decoder.bias"),
        requires=("sentence_transformers",),
        extra="sentence-transformers",
    ),
    "mteb": Adapter(
        title="any model of mteb's table that sees images, by mteb's own loader, prompts and roles",
        options=("task", "caption_role", "image_role"),
        roles=True,
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
        endpoint=True,
        unverified="the weights are with the service",
    ),
}
ADAPTERS = PluginTable("capim.adapters", _OWN, _of_package)


def is_own_code(adapter: str) -> bool:
    """Whether the adapter of a spec is a function that the user names, ``FILE.py:FUNCTION`` or ``MODULE:FUNCTION``.

    Examples:
        >>> [is_own_code(name) for name in ("my_package.models:load", "models/mine.py:load", "hf_dual", "mine.py")]
        [True, True, False, False]
    """
    return _OWN_CODE.fullmatch(adapter) is not None


def adapter_named(name: str) -> Adapter:
    """The adapter of a name of the table, or of the function that a suite names.

    Raises:
        RequestError: The name is unknown, or the package that has it is broken.
    """
    if is_own_code(name):
        return Adapter(title=f"the function {name}", options=None, unverified=_OWN_WEIGHTS)
    if name not in ADAPTERS:
        raise RequestError(unknown("adapter", name, ADAPTERS) + f"; or name your own code: {OWN_CODE_FORM}")
    return ADAPTERS[name]


def load_function(name: str) -> Callable[..., Any]:
    """The function ``load`` of an adapter, or the function that a suite names.

    Raises:
        RequestError: The file or module of the user does not exist or fails, or has no such function.
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
    """The adapter of a spec, which can be used here as the spec is.

    Raises:
        RequestError: The adapter is unknown, of another version, lacks a library, or does not accept an option.
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
    """The commit, version or digest of everything that a resolved spec needs beside its checkpoint, by its name."""
    return {key.removeprefix(PIN): str(value) for key, value in spec.options.items() if key.startswith(PIN)}


def require_libraries(spec: EncoderSpec) -> None:
    """Raise ``RequestError`` with the extra to install if a library that the adapter of a spec needs is missing."""
    adapter = adapter_named(spec.adapter)
    if missing := adapter.missing:
        raise RequestError(f"encoder {spec.name!r} needs {', '.join(missing)}; install it with: {adapter.install}")


def adapter_faults(adapter: str, options: Mapping[str, object]) -> list[str]:
    """What is wrong with the name of an adapter or with the names of its options.

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
