"""A model by its public name: a hub id, a name of open_clip, or a folder. Its own files say which adapter loads it.

Nothing is concluded from the words of a name. Where the files fit several adapters, or none, the error has the rows
that a suite could hold. Dimensions that the files do not give are those of the family; loading proves them.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from capim.store.errors import RequestError
from capim.store.types import EncoderSpec, VectorKind
from capim.tasks.encoders.adapters import ADAPTERS, MTEB, ReadJson
from capim.tasks.encoders.adapters.dual_families import FAMILIES as DUAL
from capim.tasks.encoders.adapters.late_interaction import FAMILIES as LATE
from capim.tasks.encoders.adapters.late_interaction import KINDS
from capim.tasks.encoders.checkpoint import json_file, local_path, open_clip_tag, repository_of
from capim.tasks.hub import commit_of, hub_json

_HUB = "hf-hub:"
_OF_OPEN_CLIP = re.compile(r"[A-Za-z0-9.-]+/[a-z0-9_.-]+")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_MULTI = ("MultiVectorEncoder", "ColBERT")  # what sentence-transformers calls models with many vectors
_FOR_RETRIEVAL = "ForRetrieval"  # end of the architectures of transformers with many vectors


@dataclass(frozen=True, kw_only=True)
class Fit:
    """An adapter that can load a checkpoint.

    Attributes:
        adapter: Its name.
        by: What says so, in words.
        dim: Components of a vector; None: the files do not say.
        vectors: One per item, or many.
    """

    adapter: str
    by: str
    dim: int | None
    vectors: VectorKind = "single"

    def row(self, checkpoint: str) -> dict[str, object]:
        """Return the row of a suite file for a checkpoint; the path of a folder is absolute."""
        if not _architecture(checkpoint):
            path = local_path(checkpoint)
            of_open_clip = self.adapter == "openclip" and not checkpoint.startswith(_HUB)
            checkpoint = str(path.absolute()) if path else _HUB * of_open_clip + checkpoint
        return {"adapter": self.adapter, "checkpoint": checkpoint, "dim": self.dim or "?", "vectors": self.vectors}


def short_name(public: str) -> str:
    """Return the name under which the store keeps a model of a public name.

    Examples:
        >>> short_name("openai/clip-vit-base-patch32"), short_name("ViT-B-32/laion2b_s34b_b79k"), short_name("./clip/")
        ('clip-vit-base-patch32', 'ViT-B-32-laion2b_s34b_b79k', 'clip')
    """
    path = repository_of(public).rstrip("/")
    name = path.replace("/", "-") if _architecture(public) else path.rpartition("/")[2]
    return _UNSAFE.sub("-", name).strip("-._") or "model"


@cache
def row_of(public: str) -> tuple[Mapping[str, object], str]:
    """Return the row of a suite for a public name, without its name, and a sentence that says what was recognised.

    Raises:
        RequestError: The name does not exist, or its files fit several adapters or none.
        WorkError: The hub cannot be reached.
    """
    if _architecture(public):
        tag = open_clip_tag(EncoderSpec(name="model", adapter="openclip", checkpoint=public, dim=1))
        if tag is not None:
            fit = Fit(
                adapter="openclip", by="open_clip's table of pretrained weights", dim=int(tag.config["embed_dim"])
            )
            return _row(public, fit)
    read = _reader(public)
    fits = [*filter(None, (recognise(read) for recognise in _RECOGNISERS))]
    if public.startswith(_HUB):  # open_clip's own form of a name
        fits = [fit for fit in fits if fit.adapter == "openclip"] or fits
    fits = fits or [*filter(None, [_of_mteb(public)])]
    if len(fits) == 1 and fits[0].dim:
        return _row(public, fits[0])
    raise RequestError(_undecided(public, fits))


def _row(public: str, fit: Fit) -> tuple[Mapping[str, object], str]:
    return fit.row(public), f"{public}: adapter {fit.adapter}, {fit.vectors} vectors of {fit.dim}, by {fit.by}"


def _undecided(public: str, fits: list[Fit]) -> str:
    """Return why a public name has no row, with the rows to choose from."""
    rows = "; ".join(
        f"[[encoder]] name = {json.dumps(short_name(public))}, "
        + ", ".join(f"{key} = {json.dumps(value)}" for key, value in fit.row(public).items())
        for fit in fits
    )
    if len(fits) > 1:
        names = " and ".join(f"{fit.adapter} (by {fit.by})" for fit in fits)
        return f"encoder {public!r} fits {names}; write one of these rows into a suite file: {rows}"
    if fits:
        return f"encoder {public!r}: {fits[0].by} gives no dimension; write a row with it into a suite file: {rows}"
    known = ", ".join(name for name, each in ADAPTERS.items() if not each.is_remote)
    return (
        f"encoder {public!r}: no adapter recognises its files (config.json, modules.json, open_clip_config.json, "
        f"adapter_config.json, torch_config.json); describe it in a suite file (docs/own_model.md), with one of the "
        f"adapters {known}; a folder of images is a corpus: --corpora FOLDER"
    )


def _architecture(public: str) -> bool:
    """True if the first part of a name is an architecture of open_clip, which is not imported for this."""
    source = importlib.util.find_spec("open_clip") if _OF_OPEN_CLIP.fullmatch(public) else None
    folders = list((source and source.submodule_search_locations) or ())
    return any((Path(folder) / "model_configs" / f"{public.partition('/')[0]}.json").is_file() for folder in folders)


def _reader(public: str) -> ReadJson:
    """Return what reads the JSON files of a folder, or of a hub repository at its newest commit."""
    path = local_path(public)
    if path is not None:
        return lambda name: json_file(path / name)
    repository = repository_of(public)
    commit = commit_of(repository, "main")
    return lambda name: hub_json(repository, commit, name)


# --- One function for each form of a repository: its files in, the adapter that loads it out.


def _saved_by_sentence_transformers(read: ReadJson) -> Fit | None:
    modules: Any = read("modules.json")
    [architecture, *_] = read("config.json").get("architectures") or [""]
    if not modules and not architecture.endswith(_FOR_RETRIEVAL):
        return None
    many = read("config_sentence_transformers.json").get("model_type") in _MULTI
    if not modules:
        dim = read("config.json").get("embedding_dim")
        return Fit(adapter="sentence_transformers", by=f"architecture {architecture}", dim=dim, vectors="multi")
    dim = None
    for module in modules:
        path = f"{module['path']}/" if module["path"] else ""
        config = read(f"{path}config.json")
        pooled = config.get("embedding_dimension") or config.get("word_embedding_dimension")
        dim = config.get("out_features") or config.get("projection_dim") or pooled or dim
    return Fit(adapter="sentence_transformers", by="modules.json", dim=dim, vectors="multi" if many else "single")


def _of_open_clip(read: ReadJson) -> Fit | None:
    model = read("open_clip_config.json").get("model_cfg")
    return model and Fit(adapter="openclip", by="open_clip_config.json", dim=model.get("embed_dim"))


def _of_colpali_engine(read: ReadJson) -> Fit | None:
    lora, config = read("adapter_config.json"), read("config.json")
    base = lora.get("base_model_name_or_path")
    declared = [*(config.get("architectures") or []), (lora.get("auto_mapping") or {}).get("base_model_class")]
    found = [
        (name, kind) for name in filter(None, declared) for kind, prefix in KINDS.items() if name.startswith(prefix)
    ]
    if not found:
        return None
    described = _reader(base)("config.json") if base else config
    family = LATE.get(str(described.get("model_type")))
    if family is None:
        return None
    [(name, kind), *_] = found
    text = _with_defaults(described).get_text_config()
    dim = described.get("dim") or family.dim if kind == "multi" else text.hidden_size
    by = f"class {name} in {'adapter_config.json' if base else 'config.json'}"
    return Fit(adapter="colvision", by=by, dim=dim, vectors=kind)


def _of_transformers(read: ReadJson) -> Fit | None:
    config = read("config.json")
    if config.get("model_type") not in DUAL:
        return None
    full = _with_defaults(config)
    dim = getattr(full, "projection_dim", None) or full.vision_config.hidden_size
    return Fit(adapter="hf_dual", by=f"model type {config['model_type']!r} in config.json", dim=dim)


def _of_jina(read: ReadJson) -> Fit | None:
    config = read("config.json")
    if config.get("model_type") != "jina_clip":
        return None
    return Fit(adapter="jina", by="model type 'jina_clip' in config.json", dim=config.get("projection_dim"))


def _of_uform(read: ReadJson) -> Fit | None:
    config = read("torch_config.json") or read("config.json")
    if not {"image_encoder", "text_encoder"} <= config.keys():
        return None
    by = "image_encoder and text_encoder in its configuration"
    return Fit(adapter="uform", by=by, dim=config["image_encoder"].get("embedding_dim"))


_RECOGNISERS: tuple[Callable[[ReadJson], Fit | None], ...] = (
    _saved_by_sentence_transformers, _of_open_clip, _of_colpali_engine, _of_transformers, _of_jina, _of_uform,
)  # fmt: skip


def _of_mteb(public: str) -> Fit | None:
    """Return mteb's own loader for a model of its table that no adapter recognises; None if mteb is not installed."""
    if ADAPTERS[MTEB].missing:
        return None
    from capim.tasks.encoders.of_mteb import row_of as row_of_mteb

    try:
        row: Mapping[str, Any] = row_of_mteb(public)
    except RequestError:
        return None
    return Fit(adapter=MTEB, by="mteb's table of models", dim=row.get("dim"), vectors=row["vectors"])


def _with_defaults(config: Mapping[str, Any]) -> Any:
    """Return the configuration of transformers, with the values that a file may leave out."""
    from transformers import AutoConfig

    return AutoConfig.for_model(**config)
