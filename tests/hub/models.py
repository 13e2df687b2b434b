"""Every row of the catalog that is on the hub, in miniature: the true format, the true name, the true dimension."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from capim.tasks.encoders import entry_of
from capim.tasks.encoders.checkpoint import open_clip_tag, source_of
from tests.encoders.families import clip, colvision, openclip, others, sentence
from tests.encoders.families.recipe import Recipe, alone, jina, lora, over_xlm_roberta

ROWS: dict[str, Recipe] = {
    "dfn5b-h": alone(openclip.build_dfn, dim=1024),
    "laion-clip-h": alone(openclip.build_laion, dim=1024),
    "metaclip-h": alone(clip.build_clip, dim=1024),
    "colpali-v1.3": lora(),
    "jina-clip-v1": jina(768),
    "siglip-so400m": alone(clip.build_siglip, dim=1152),
    "openai-clip-l-336": alone(clip.build_clip, dim=768),
    "uform-multilingual-v2": alone(others.build_uform, version=2, dim=256),
    "xlm-roberta-base-vit-b-32": over_xlm_roberta("xlm-roberta-base", 512),
    "siglip2-so400m": alone(clip.build_siglip2, dim=1152),
    "metaclip2-h": alone(clip.build_metaclip2, dim=1024),
    "jina-clip-v2": jina(1024, "jinaai/jina-embeddings-v3"),
    "colqwen2.5": lora(colvision.qwen, "vidore/colqwen2.5-base", parts=False, version="2_5"),
    "xlm-roberta-large-vit-h-14": over_xlm_roberta("xlm-roberta-large", 1024),
    "siglip2-base": alone(clip.build_siglip2, dim=768),
    "siglip2-giant": alone(clip.build_siglip2, dim=1536),
    "mobileclip2-s0": alone(openclip.build_laion, dim=512),
    "mobileclip2-s4": alone(openclip.build_laion, dim=768),
    "pe-core-l": alone(openclip.build_laion, dim=1024),
    "pe-core-g": alone(openclip.build_laion, dim=1280),
    "eva02-l": alone(openclip.build_laion, dim=768),
    "eva02-e-plus": alone(openclip.build_laion, dim=1024),
    "dfn2b-l": alone(openclip.build_dfn, dim=768),
    "colqwen2-v1.0": lora(colvision.qwen, "vidore/colqwen2-base", parts=False, version="2"),
    "colqwen3.5": alone(colvision.build_qwen, version="3_5"),
    "colsmol-256m": lora(colvision.idefics, "vidore/ColSmolVLM-Instruct-256M-base", parts=False),
    "colmodernvbert": alone(colvision.build_modernvbert),
    "bimodernvbert": alone(colvision.build_modernvbert, kind="Bi", dim=768),
    "colnomic-3b": lora(colvision.qwen, "nomic-ai/colqwen2.5-3B-base", parts=False, version="2_5"),
    "nomic-multimodal-3b": lora(
        colvision.qwen, "Qwen/Qwen2.5-VL-3B-Instruct", parts=False, version="2_5", kind="Bi", dim=2048
    ),
    "qwen3-vl-embedding-2b": alone(sentence.build_single, dim=2048),
    "qwen3-vl-embedding-8b": alone(sentence.build_single, dim=4096),
    "colqwen2-hf": alone(sentence.build_for_retrieval),
    "tipsv2-l": alone(clip.build_tipsv2, dim=1024),
    "tipsv2-so400m": alone(clip.build_tipsv2, dim=1152),
    "pplx-embed-v2-late": alone(sentence.build_multi, dim=128),
}
"""By name of the catalog. open_clip's own architectures are replaced by small ones of their names (:func:`main`)."""


def repositories(name: str, place: Path) -> Iterator[tuple[str, Path, str]]:
    """The repositories of a row, made below a folder: name, files, and the commit where the row names one."""
    recipe, entry = ROWS[name], entry_of(name)
    tag, (repository, _) = open_clip_tag(entry.spec), source_of(entry.spec)
    related, folder = recipe.write(place / name), place / name / "repository"
    if tag:
        model = json.loads((folder / "open_clip_config.json").read_text())["model_cfg"]
        small = place / "architectures" / f"{tag.architecture}.json"
        small.parent.mkdir(parents=True, exist_ok=True)
        small.write_text(json.dumps(model))
    yield repository, folder, entry.revision if len(entry.revision) == 40 else ""
    yield from ((other, path, "") for other, path in related.items())


def main() -> int:
    """``capim`` with open_clip's architectures in small, which are in the folder that is the first word."""
    architectures = Path(sys.argv.pop(1))
    if any(architectures.iterdir()):  # open_clip takes seconds to import
        import open_clip

        open_clip.add_model_config(architectures)
    from capim.flows.cli import main as capim

    return capim(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
