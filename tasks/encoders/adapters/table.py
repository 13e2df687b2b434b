"""The adapters: which file loads which family, and what must be installed for it.

To add a family: write one file with ``load(source, *, device, trust_remote_code) -> Encoder`` beside this one and add
one row. The conformance suite (``tasks.encoders.conformance.suite``) takes it from there.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Literal

from store.errors import RequestError
from store.types import EncoderSpec


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """How one family of models is loaded.

    Attributes:
        module: Dotted name of the file; imported only when a model is loaded.
        title: What it covers, for people.
        version: Raised whenever the adapter's vectors change; part of every fingerprint.
        checkpoints: How a checkpoint is written: ``hub`` (hub id, ``package:`` path or folder), ``open_clip``
            (also ``name/pretrained tag``), ``file`` (a Python file).
        options: Settings of a spec that it knows.
        requires: Import names of the packages that it needs beyond torch.
        install: What to type when one of them is missing.
    """

    module: str
    title: str
    version: int = 1
    checkpoints: Literal["hub", "open_clip", "file"] = "hub"
    options: tuple[str, ...] = ("caption_template", "max_length")
    requires: tuple[str, ...] = ()
    install: str = "pip install capim"


ADAPTERS: dict[str, Adapter] = {
    "hf_dual": Adapter(
        module="tasks.encoders.adapters.hf_dual",
        title="transformers dual encoders: CLIP, MetaCLIP 1 and 2, SigLIP 1 and 2, AltCLIP, Chinese-CLIP",
        requires=("transformers",),
        install="pip install 'transformers>=5.0' sentencepiece protobuf",
    ),
    "colvision": Adapter(
        module="tasks.encoders.adapters.colvision",
        title="colpali_engine, one vector per token and patch: ColPali, ColQwen2, ColQwen2.5, ColSmol",
        requires=("transformers", "colpali_engine", "peft"),
        install="pip install 'colpali-engine>=0.3.14'",
    ),
    "openclip": Adapter(
        module="tasks.encoders.adapters.openclip",
        title="open_clip: DFN, LAION, xlm-roberta, nllb-clip, MobileCLIP2, PE-Core, SigLIP",
        options=("caption_template", "max_length", "language"),
        checkpoints="open_clip",
        requires=("open_clip", "timm"),
        install="pip install 'open_clip_torch>=3.0'",
    ),
    "jina": Adapter(
        module="tasks.encoders.adapters.jina",
        title="jina-clip v1 and v2 (runs the checkpoint's own code, by consent)",
        options=("caption_template", "max_length", "truncate_dim"),
        requires=("transformers", "einops", "timm"),
        install="pip install 'transformers>=5.0' einops timm",
    ),
    "uform": Adapter(
        module="tasks.encoders.adapters.unum_uform",
        title="unum-cloud/uform, versions 2 and 3",
        options=("caption_template",),
        requires=("uform",),
        install="pip install 'uform>=3.1'",
    ),
    "module": Adapter(
        module="tasks.encoders.adapters.module",
        title="a Python file of your own, in COCO-SM's form",
        options=("caption_template",),
        checkpoints="file",
    ),
    "sentence_transformers": Adapter(
        module="tasks.encoders.adapters.sentence_encoder",
        title="sentence-transformers models for images and text",
        options=("caption_template",),
        requires=("sentence_transformers",),
        install="pip install 'sentence-transformers>=5.0'",
    ),
}


def adapter_of(name: str) -> Adapter:
    """The adapter by that name.

    Raises:
        RequestError: It is unknown, or a package that it needs is not installed.
    """
    if name not in ADAPTERS:
        raise RequestError(f"adapter {name!r} is unknown; known: {', '.join(ADAPTERS)}")
    adapter = ADAPTERS[name]
    missing = [package for package in adapter.requires if importlib.util.find_spec(package) is None]
    if missing:
        raise RequestError(f"adapter {name!r} needs {', '.join(missing)}; install with: {adapter.install}")
    return adapter


def unknown_options(spec: EncoderSpec) -> list[str]:
    """One fault for each option that the adapter of a spec does not know; ``revision:…`` is ``resolve``'s."""
    known = ADAPTERS[spec.adapter].options
    return [
        f"encoder {spec.name!r}: option {name!r} is unknown to adapter {spec.adapter!r}; known: {', '.join(known)}"
        for name in spec.options
        if name not in known and not name.startswith("revision:")
    ]
