"""The table of adapters: which file loads which family of models, and which extra of capim it needs.

To add a family, write one file with ``load(spec, *, device, trust_remote_code) -> Encoder`` beside this one and add
one row here and one in ``tests/encoders/families/table.py``. The conformance suite then covers it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass

from store.errors import RequestError, unknown
from store.types import ACCESS_OPTIONS, EncoderSpec


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """How one family of models is loaded.

    Attributes:
        module: Dotted name of the file, imported only when a model is loaded.
        title: The models that it loads.
        version: Raised whenever the adapter's vectors change; part of every fingerprint.
        options: Names of the options of a spec that it accepts; one that ends with ``:`` is the beginning of any name.
        requires: Import names of the libraries that it needs and that only an extra of capim installs.
        extra: The extra that installs them; empty if the core installation is enough.
        endpoint: The model runs at an address, not here: see :mod:`tasks.encoders.endpoints`.
        unverified: Why ``load`` cannot know that every weight was in the checkpoint; empty: it raises
            ``MissingWeightsError`` for one that was not.
    """

    module: str
    title: str
    version: int = 1
    options: tuple[str, ...] = ("caption_template", "max_length")
    requires: tuple[str, ...] = ()
    extra: str = ""
    endpoint: bool = False
    unverified: str = ""

    @property
    def install(self) -> str:
        """The command that installs what the adapter needs."""
        return f"pip install 'capim[{self.extra}]'" if self.extra else "pip install capim"


ADAPTERS: dict[str, Adapter] = {
    "hf_dual": Adapter(
        module="tasks.encoders.adapters.hf_dual",
        title="transformers dual encoders: CLIP, MetaCLIP 1 and 2, SigLIP 1 and 2, AltCLIP, Chinese-CLIP",
    ),
    "colvision": Adapter(
        module="tasks.encoders.adapters.colvision",
        title="colpali_engine, one vector per token and patch: ColPali, ColQwen2, ColQwen2.5, ColSmol",
        requires=("colpali_engine",),
        extra="colpali",
    ),
    "openclip": Adapter(
        module="tasks.encoders.adapters.openclip",
        title="open_clip: DFN, LAION, xlm-roberta, nllb-clip, MobileCLIP2, PE-Core, SigLIP",
        options=("caption_template", "max_length", "language"),
        requires=("open_clip",),
        extra="openclip",
    ),
    "jina": Adapter(
        module="tasks.encoders.adapters.jina",
        title="jina-clip v1 and v2 (runs the checkpoint's own code, by consent)",
        options=("caption_template", "max_length", "truncate_dim"),
        requires=("einops", "timm"),
        extra="jina",
    ),
    "uform": Adapter(
        module="tasks.encoders.adapters.unum_uform",
        title="unum-cloud/uform, versions 2 and 3",
        options=("caption_template",),
        requires=("uform", "torchvision"),
        extra="uform",
    ),
    "module": Adapter(
        module="tasks.encoders.adapters.module",
        title="a model in a user's Python file, in the form of COCO-SM",
        options=("caption_template",),
        unverified="a module loads its own weights",
    ),
    "sentence_transformers": Adapter(
        module="tasks.encoders.adapters.sentence_encoder",
        title="sentence-transformers models for images and text",
        options=("caption_template",),
        requires=("sentence_transformers",),
        extra="sentence-transformers",
        unverified="sentence-transformers does not report weights that the checkpoint lacks",
    ),
    "http": Adapter(
        module="tasks.encoders.adapters.endpoint",
        title="a model behind an address: POST /v1/embeddings of OpenAI, vLLM, Jina and others",
        options=(
            "caption_template",
            "url",
            "image_form",
            "caption_form",
            "image_prompt",
            "body:",
            *sorted(ACCESS_OPTIONS),
        ),
        endpoint=True,
        unverified="the weights are with the service",
    ),
}


def adapter_of(spec: EncoderSpec) -> Adapter:
    """The adapter of a spec, which can be used here as the spec is.

    Raises:
        RequestError: The adapter is unknown, of another version, lacks a library, or does not accept an option.
    """
    faults = adapter_faults(spec.adapter, spec.options)
    if faults:
        raise RequestError([f"encoder {spec.name!r}: {fault}" for fault in faults])
    adapter = ADAPTERS[spec.adapter]
    if spec.adapter_version != adapter.version:
        raise RequestError(
            f"encoder {spec.name!r} was made with version {spec.adapter_version} of adapter {spec.adapter!r}, but this "
            f"is version {adapter.version}, which gives other vectors; take the spec from the catalog again"
        )
    require_libraries(spec)
    return adapter


def require_libraries(spec: EncoderSpec) -> None:
    """Raise ``RequestError`` with the extra to install if a library that the adapter of a spec needs is missing."""
    adapter = ADAPTERS[spec.adapter]
    missing = [name.replace("_", "-") for name in adapter.requires if importlib.util.find_spec(name) is None]
    if missing:
        raise RequestError(
            f"encoder {spec.name!r} needs {', '.join(missing)}; install it with: {adapter.install}",
        )


def adapter_faults(adapter: str, options: Mapping[str, object]) -> list[str]:
    """What is wrong with the name of an adapter or with the names of its options.

    Options ``revision:…`` are written by :func:`tasks.encoders.checkpoints.resolving.resolve`.
    """
    if adapter not in ADAPTERS:
        return [unknown("adapter", adapter, ADAPTERS)]
    accepted = ADAPTERS[adapter].options
    begins = ("revision:", *(option for option in accepted if option.endswith(":")))
    return [
        unknown(f"adapter {adapter!r}: option", name, accepted)
        for name in options
        if name not in accepted and not name.startswith(begins)
    ]
