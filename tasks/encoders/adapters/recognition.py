"""The adapter that loads a repository, by its files: one function for each form, without torch.

Also how the dual encoders of transformers take their captions, by the type in their files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from capim.store.types import VectorKind

ReadJson = Callable[[str], Mapping[str, Any]]  # file name -> contents, empty if there is no such file
Other: TypeAlias = Callable[[str], ReadJson]  # another repository, such as a base model -> what reads its files
_FOR_RETRIEVAL = "ForRetrieval"  # end of the architectures of transformers with many vectors


@dataclass(frozen=True, kw_only=True)
class Fit:
    """A checkpoint that an adapter can load.

    Attributes:
        by: The file, class or type that says so.
        dim: Components of a vector; None: the files do not say.
        vectors: One per item, or many.
    """

    by: str
    dim: int | None
    vectors: VectorKind = "single"


def sentence_transformers_kind(read: ReadJson) -> tuple[str, VectorKind]:
    """Return the class of sentence-transformers that a repository declares, or the usual one, and its vectors."""
    [architecture, *_] = read("config.json").get("architectures") or [""]
    usual = "MultiVectorEncoder" if architecture.endswith((_FOR_RETRIEVAL, "HF_ColBERT")) else "SentenceTransformer"
    declared = str(read("config_sentence_transformers.json").get("model_type", usual))
    return declared, "multi" if declared in ("MultiVectorEncoder", "ColBERT") else "single"


def colpali_engine_classes(read: ReadJson) -> list[str]:
    """Return the classes that a checkpoint of colpali_engine names, complete or LoRA."""
    trained = read("adapter_config.json").get("auto_mapping") or {}
    return [*(read("config.json").get("architectures") or []), *filter(None, [trained.get("base_model_class")])]


def saved_by_sentence_transformers(read: ReadJson, other: Other) -> Fit | None:
    """Recognise a folder of sentence-transformers, or a late-interaction model of transformers."""
    modules: Any = read("modules.json")
    [architecture, *_] = read("config.json").get("architectures") or [""]
    if not modules and not architecture.endswith(_FOR_RETRIEVAL):
        return None
    _, vectors = sentence_transformers_kind(read)
    if not modules:
        dim = read("config.json").get("embedding_dim")
        return Fit(by=f"architecture {architecture}", dim=dim, vectors=vectors)
    dim = None
    for module in modules:
        path = f"{module['path']}/" if module["path"] else ""
        config = read(f"{path}config.json")
        pooled = config.get("embedding_dimension") or config.get("word_embedding_dimension")
        dim = config.get("out_features") or config.get("projection_dim") or pooled or dim
    return Fit(by="modules.json", dim=dim, vectors=vectors)


def of_open_clip(read: ReadJson, other: Other) -> Fit | None:
    """Recognise a repository of open_clip."""
    model = read("open_clip_config.json").get("model_cfg")
    return model and Fit(by="open_clip_config.json", dim=model.get("embed_dim"))


def of_colpali_engine(read: ReadJson, other: Other) -> Fit | None:
    """Recognise a model of colpali_engine, complete or LoRA, by its class."""
    from capim.tasks.encoders.adapters.late_interaction import FAMILIES, KINDS  # numpy

    base = read("adapter_config.json").get("base_model_name_or_path")
    found = [
        (name, kind)
        for name in colpali_engine_classes(read)
        for kind, prefix in KINDS.items()
        if name.startswith(prefix)
    ]
    if not found:
        return None
    described = (other(base) if base else read)("config.json")
    family = FAMILIES.get(str(described.get("model_type")))
    if family is None:
        return None
    [(name, kind), *_] = found
    text = _with_defaults(described).get_text_config()
    dim = described.get("dim") or family.dim if kind == "multi" else text.hidden_size
    by = f"class {name} in {'adapter_config.json' if base else 'config.json'}"
    return Fit(by=by, dim=dim, vectors=kind)


def of_transformers(read: ReadJson, other: Other) -> Fit | None:
    """Recognise a dual encoder of transformers by its model type."""
    config = read("config.json")
    if config.get("model_type") not in DUAL_FAMILIES:
        return None
    full = _with_defaults(config)
    dim = getattr(full, "projection_dim", None) or full.vision_config.hidden_size
    return Fit(by=f"model type {config['model_type']!r} in config.json", dim=dim)


def of_jina(read: ReadJson, other: Other) -> Fit | None:
    """Recognise jina-clip by its model type."""
    config = read("config.json")
    if config.get("model_type") != "jina_clip":
        return None
    return Fit(by="model type 'jina_clip' in config.json", dim=config.get("projection_dim"))


def of_uform(read: ReadJson, other: Other) -> Fit | None:
    """Recognise UForm by the towers of its configuration."""
    config = read("torch_config.json") or read("config.json")
    if not {"image_encoder", "text_encoder"} <= config.keys():
        return None
    by = "image_encoder and text_encoder in its configuration"
    return Fit(by=by, dim=config["image_encoder"].get("embedding_dim"))


def _with_defaults(config: Mapping[str, Any]) -> Any:
    """Return the configuration of transformers, with the values that a file may leave out."""
    from transformers import AutoConfig

    return AutoConfig.for_model(**config)


@dataclass(frozen=True, kw_only=True)
class DualEncoderFamily:
    """How one architecture takes its captions.

    Attributes:
        padding: ``longest``: to the longest caption of the batch, because the model ignores padding. ``fixed``: always
            to the model's length, because it was trained to see the padding.
        mask: True if the attention mask is passed. SigLIP was trained without one, and passing it changes its vectors.
        lower_case: True if captions are lower-cased as in training; not every tokenizer does it.
        max_length: Tokens, where the text tower has more positions than the model was trained with.
    """

    padding: Literal["longest", "fixed"]
    mask: bool
    lower_case: bool = False
    max_length: int | None = None


DUAL_FAMILIES: dict[str, DualEncoderFamily] = {
    # also MetaCLIP 1; attention is causal, so that padding after the end of a caption cannot reach it, masked or not
    "clip": DualEncoderFamily(padding="longest", mask=False),
    "metaclip_2": DualEncoderFamily(padding="longest", mask=False),
    # https://huggingface.co/docs/transformers/model_doc/siglip: trained with padding="max_length", no mask
    "siglip": DualEncoderFamily(padding="fixed", mask=False, lower_case=True),  # also SigLIP 2 at fixed resolution
    "siglip2": DualEncoderFamily(padding="fixed", mask=False, lower_case=True),  # SigLIP 2 NaFlex
    "tipsv2": DualEncoderFamily(padding="fixed", mask=True),  # Tipsv2Processor; its tokenizer lower-cases
    "altclip": DualEncoderFamily(padding="longest", mask=True, max_length=77),
    # context_length of cn_clip.tokenize
    "chinese_clip": DualEncoderFamily(padding="longest", mask=True, max_length=52),
}
