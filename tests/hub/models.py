"""Every row of the catalog that is on the hub, in miniature: the true format, the true name, the true dimension."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from capim.tasks.encoders import entry_of
from capim.tasks.encoders.checkpoint import open_clip_tag, repository_of
from tests.encoders.families import clip, colvision, openclip, others, sentence

Others = dict[str, Path]  # the repositories that a checkpoint names -> their folders
Build = Callable[[Path, Others], None]


class Row(NamedTuple):
    """How a repository is made, and which others it needs."""

    build: Build
    others: tuple[str, ...] = ()


def _alone(build: Callable[..., None], **which: object) -> Row:
    return Row(lambda folder, _: build(folder, **which))


def _lora(make: Callable[..., tuple[object, object]], base: str, *, parts: bool = False, **which: object) -> Row:
    def build(folder: Path, related: Others) -> None:
        colvision.build_lora(folder, related[base], partial(make, **which), base_name=base, parts=parts)

    return Row(build, (base,))


def _over_xlm_roberta(name: str, dim: int) -> Row:
    def build(folder: Path, related: Others) -> None:
        openclip.build_xlm_roberta(related[name])
        openclip.build_over_xlm_roberta(folder, related[name], name=name, dim=dim)

    return Row(build, (name,))


def _jina(dim: int, tower: str) -> Row:
    def build(folder: Path, related: Others) -> None:
        for place in related.values():
            place.rmdir()
        others.build_jina(folder, related[others.CODE], related[tower], dim=dim, tower_name=tower)

    return Row(build, (others.CODE, tower))


ROWS: dict[str, Row] = {
    "dfn5b-h": _alone(openclip.build_dfn, dim=1024),
    "laion-clip-h": _alone(openclip.build_laion, dim=1024),
    "metaclip-h": _alone(clip.build_clip, dim=1024),
    "colpali-v1.3": _lora(colvision.colpali, "vidore/colpaligemma-3b-pt-448-base", parts=True),
    "jina-clip-v1": _jina(768, others.TOWER),
    "siglip-so400m": _alone(clip.build_siglip, dim=1152),
    "openai-clip-l-336": _alone(clip.build_clip, dim=768),
    "uform-multilingual-v2": _alone(others.build_uform, version=2, dim=256),
    "xlm-roberta-base-vit-b-32": _over_xlm_roberta("xlm-roberta-base", 512),
    "siglip2-so400m": _alone(clip.build_siglip2, dim=1152),
    "metaclip2-h": _alone(clip.build_metaclip2, dim=1024),
    "jina-clip-v2": _jina(1024, "jinaai/jina-embeddings-v3"),
    "colqwen2.5": _lora(colvision.qwen, "vidore/colqwen2.5-base", version="2_5"),
    "xlm-roberta-large-vit-h-14": _over_xlm_roberta("xlm-roberta-large", 1024),
    "siglip2-base": _alone(clip.build_siglip2, dim=768),
    "siglip2-giant": _alone(clip.build_siglip2, dim=1536),
    "mobileclip2-s0": _alone(openclip.build_laion, dim=512),
    "mobileclip2-s4": _alone(openclip.build_laion, dim=768),
    "pe-core-l": _alone(openclip.build_laion, dim=1024),
    "pe-core-g": _alone(openclip.build_laion, dim=1280),
    "eva02-l": _alone(openclip.build_laion, dim=768),
    "eva02-e-plus": _alone(openclip.build_laion, dim=1024),
    "dfn2b-l": _alone(openclip.build_dfn, dim=768),
    "colqwen2-v1.0": _lora(colvision.qwen, "vidore/colqwen2-base", version="2"),
    "colqwen3.5": _alone(colvision.build_qwen, version="3_5"),
    "colsmol-256m": _lora(colvision.idefics, "vidore/ColSmolVLM-Instruct-256M-base"),
    "colmodernvbert": _alone(colvision.build_modernvbert),
    "bimodernvbert": _alone(colvision.build_modernvbert, kind="Bi", dim=768),
    "colnomic-3b": _lora(colvision.qwen, "nomic-ai/colqwen2.5-3B-base", version="2_5"),
    "nomic-multimodal-3b": _lora(colvision.qwen, "Qwen/Qwen2.5-VL-3B-Instruct", version="2_5", kind="Bi", dim=2048),
    "qwen3-vl-embedding-2b": _alone(sentence.build_single, dim=2048),
    "qwen3-vl-embedding-8b": _alone(sentence.build_single, dim=4096),
    "colqwen2-hf": _alone(sentence.build_for_retrieval),
}
"""By name of the catalog. open_clip's own architectures are replaced by small ones of their names (:func:`main`)."""


def repositories(name: str, place: Path) -> Iterator[tuple[str, Path, str]]:
    """The repositories of a row, made below a folder: name, files, and the commit where the row names one."""
    import torch

    row, entry = ROWS[name], entry_of(name)
    tag = open_clip_tag(entry.spec)
    repository = tag.repository if tag else repository_of(entry.checkpoint)
    folder = place / name
    related = {other: place / f"{name} needs {number}" for number, other in enumerate(row.others)}
    for each in (folder, *related.values()):
        each.mkdir(parents=True)
    torch.manual_seed(0)
    row.build(folder, related)
    if tag:
        model = json.loads((folder / "open_clip_config.json").read_text())["model_cfg"]
        small = place / "architectures" / f"{tag.architecture}.json"
        small.parent.mkdir(parents=True, exist_ok=True)
        small.write_text(json.dumps(model))
    yield repository, folder, entry.revision if len(entry.revision) == 40 else ""
    yield from ((other, path, "") for other, path in related.items())


def main() -> int:
    """``capim`` with open_clip's architectures in small, which are in the folder that is the first word."""
    import open_clip

    open_clip.add_model_config(sys.argv.pop(1))
    from capim.flows.cli import main as capim

    return capim(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
