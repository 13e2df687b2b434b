"""Every family that an adapter claims to load, by the name of a real repository, in miniature."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from capim.store.types import EncoderSpec, VectorKind
from tests.encoders.families import clip, colvision, openclip, others, sentence
from tests.encoders.families.recipe import Recipe, alone, jina, lora, over_xlm_roberta


@dataclass(frozen=True)
class Case:
    """One family.

    Attributes:
        adapter: Key of ``ADAPTERS``.
        checkpoint: As a user would write it.
        recipe: How its repository is made.
        dim: Of the miniature.
        vectors: One or many per item.
        remote_code: Needs consent.
    """

    adapter: str
    checkpoint: str
    recipe: Recipe
    dim: int = 32
    vectors: VectorKind = "single"
    remote_code: bool = False


_single = partial(Case, "colvision")
_multi = partial(Case, "colvision", dim=128, vectors="multi")
_sentence = partial(Case, "sentence_transformers")
CASES: dict[str, Case] = {
    "clip": Case("hf_dual", "openai/clip-vit-large-patch14-336", alone(clip.build_clip)),
    "metaclip2": Case("hf_dual", "facebook/metaclip-2-worldwide-huge-quickgelu", alone(clip.build_metaclip2)),
    "siglip": Case("hf_dual", "google/siglip-so400m-patch14-384", alone(clip.build_siglip)),
    "siglip2": Case("hf_dual", "google/siglip2-so400m-patch14-384", alone(clip.build_siglip2)),
    "siglip2-naflex": Case("hf_dual", "google/siglip2-so400m-patch16-naflex", alone(clip.build_siglip2_naflex)),
    "tipsv2": Case("hf_dual", "google/tipsv2-b14", alone(clip.build_tipsv2)),
    "altclip": Case("hf_dual", "BAAI/AltCLIP", alone(clip.build_altclip)),
    "chinese-clip": Case("hf_dual", "OFA-Sys/chinese-clip-vit-base-patch16", alone(clip.build_chinese_clip)),
    "dfn": Case("openclip", "hf-hub:apple/DFN5B-CLIP-ViT-H-14-378", alone(openclip.build_dfn)),
    "laion": Case("openclip", "laion/CLIP-ViT-H-14-laion2B-s32B-b79K", alone(openclip.build_laion)),
    "openclip-own-tokenizer": Case("openclip", "someone/converted", alone(openclip.build_own_tokenizer)),
    "openclip-siglip": Case("openclip", "timm/ViT-B-16-SigLIP", alone(openclip.build_siglip_in_open_clip)),
    "openclip-xlm-roberta": Case(
        "openclip", "laion/CLIP-ViT-B-32-xlm-roberta-base-laion5B-s13B-b90k", over_xlm_roberta(), dim=24
    ),
    "colpali": _multi("vidore/colpali-v1.3-merged", alone(colvision.build_colpali)),
    "colpali-lora": _multi("vidore/colpali-v1.3", lora()),
    "bipali": _single("vidore/bipali-merged", alone(colvision.build_colpali, name="BiPali")),
    "colqwen2": _multi("vidore/colqwen2-merged", alone(colvision.build_qwen, version="2")),
    "colqwen2.5": _multi("vidore/colqwen2_5-merged", alone(colvision.build_qwen, version="2_5")),
    "colqwen3": _multi("vidore/colqwen3-merged", alone(colvision.build_qwen, version="3"), dim=320),
    "colqwen3.5": _multi("vidore/colqwen3_5-merged", alone(colvision.build_qwen, version="3_5")),
    "biqwen2.5": _single("vidore/biqwen2_5-merged", alone(colvision.build_qwen, version="2_5", kind="Bi")),
    "colsmol": _multi("vidore/colSmol-256M-merged", alone(colvision.build_idefics)),
    "colmodernvbert": _multi("ModernVBERT/colmodernvbert-merged", alone(colvision.build_modernvbert)),
    "bimodernvbert": _single("ModernVBERT/bimodernvbert-merged", alone(colvision.build_modernvbert, kind="Bi")),
    "colgemma3": _multi("someone/colgemma3-merged", alone(colvision.build_gemma3)),
    "jina": Case("jina", "jinaai/jina-clip-v1", jina(), remote_code=True),
    "uform2": Case("uform", "unum-cloud/uform-vl-multilingual-v2", alone(others.build_uform, version=2), dim=16),
    "uform3": Case(
        "uform", "unum-cloud/uform3-image-text-multilingual-base", alone(others.build_uform, version=3), dim=16
    ),
    "sentence-transformers": _sentence("sentence-transformers/clip-ViT-B-32", alone(sentence.build_clip_module)),
    "qwen3-vl-embedding": _sentence("Qwen/Qwen3-VL-Embedding-2B", alone(sentence.build_single)),
    "multi-vector": _sentence("someone/multi-vector", alone(sentence.build_multi), dim=16, vectors="multi"),
    "colqwen2-hf": _sentence("vidore/colqwen2-v1.0-hf", alone(sentence.build_for_retrieval), dim=128, vectors="multi"),
}


def spec_in_cache(name: str, cache: Path) -> EncoderSpec:
    """The spec of a family, whose repositories are put into the cache if they are not there yet."""
    case = CASES[name]
    case.recipe.cache(cache, case.checkpoint.removeprefix("hf-hub:"))
    return EncoderSpec(name=name, adapter=case.adapter, checkpoint=case.checkpoint, dim=case.dim, vectors=case.vectors)
