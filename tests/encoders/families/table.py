"""Every family that an adapter claims to load, by the name of a real repository, in miniature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from capim.store.types import EncoderSpec, VectorKind
from tests.encoders.families import clip, colvision, openclip, others, sentence
from tests.encoders.families.hub import add_to_cache, place_of


@dataclass(frozen=True)
class Case:
    """One family.

    Attributes:
        adapter: Key of ``ADAPTERS``.
        checkpoint: As a user would write it.
        build: Fills a folder with the repository's files.
        dim: Of the miniature.
        vectors: One or many per item.
        remote_code: Needs consent.
        others: ``build`` is also given the cache, for the other repositories that the checkpoint names.
    """

    adapter: str
    checkpoint: str
    build: Callable[..., None]
    dim: int = 32
    vectors: VectorKind = "single"
    remote_code: bool = False
    others: bool = False

    @property
    def repository(self) -> str:
        """Under which name the folder goes into the hub cache."""
        return self.checkpoint.removeprefix("hf-hub:")


def _lora(folder: Path, cache: Path) -> None:
    base = "vidore/colpaligemma-3b-pt-448-base"
    colvision.build_colpali_lora(folder, folder.with_name("base"), base_name=base)
    add_to_cache(cache, base, folder.with_name("base"))


def _over_xlm_roberta(folder: Path, cache: Path) -> None:
    tower = folder.with_name("xlmr")
    openclip.build_xlm_roberta(tower)
    openclip.build_over_xlm_roberta(folder, tower)
    add_to_cache(cache, "xlm-roberta-base", tower)


def _jina(folder: Path, cache: Path) -> None:
    code, tower = folder.with_name("code"), folder.with_name("tower")
    others.build_jina(folder, code, tower)
    add_to_cache(cache, others.CODE, code)
    add_to_cache(cache, others.TOWER, tower)


_single = partial(Case, "colvision")
_multi = partial(Case, "colvision", dim=128, vectors="multi")
_sentence = partial(Case, "sentence_transformers")
CASES: dict[str, Case] = {
    "clip": Case("hf_dual", "openai/clip-vit-large-patch14-336", clip.build_clip),
    "metaclip2": Case("hf_dual", "facebook/metaclip-2-worldwide-huge-quickgelu", clip.build_metaclip2),
    "siglip": Case("hf_dual", "google/siglip-so400m-patch14-384", clip.build_siglip),
    "siglip2": Case("hf_dual", "google/siglip2-so400m-patch14-384", clip.build_siglip2),
    "siglip2-naflex": Case("hf_dual", "google/siglip2-so400m-patch16-naflex", clip.build_siglip2_naflex),
    "tipsv2": Case("hf_dual", "google/tipsv2-b14", clip.build_tipsv2),
    "altclip": Case("hf_dual", "BAAI/AltCLIP", clip.build_altclip),
    "chinese-clip": Case("hf_dual", "OFA-Sys/chinese-clip-vit-base-patch16", clip.build_chinese_clip),
    "dfn": Case("openclip", "hf-hub:apple/DFN5B-CLIP-ViT-H-14-378", openclip.build_dfn),
    "laion": Case("openclip", "laion/CLIP-ViT-H-14-laion2B-s32B-b79K", openclip.build_laion),
    "openclip-own-tokenizer": Case("openclip", "someone/converted", openclip.build_own_tokenizer),
    "openclip-siglip": Case("openclip", "timm/ViT-B-16-SigLIP", openclip.build_siglip_in_open_clip),
    "openclip-xlm-roberta": Case(
        "openclip", "laion/CLIP-ViT-B-32-xlm-roberta-base-laion5B-s13B-b90k", _over_xlm_roberta, dim=24, others=True
    ),
    "colpali": _multi("vidore/colpali-v1.3-merged", colvision.build_colpali),
    "colpali-lora": _multi("vidore/colpali-v1.3", _lora, others=True),
    "bipali": _single("vidore/bipali-merged", partial(colvision.build_colpali, name="BiPali")),
    "colqwen2": _multi("vidore/colqwen2-merged", partial(colvision.build_qwen, version="2")),
    "colqwen2.5": _multi("vidore/colqwen2_5-merged", partial(colvision.build_qwen, version="2_5")),
    "colqwen3": _multi("vidore/colqwen3-merged", partial(colvision.build_qwen, version="3"), dim=320),
    "colqwen3.5": _multi("vidore/colqwen3_5-merged", partial(colvision.build_qwen, version="3_5")),
    "biqwen2.5": _single("vidore/biqwen2_5-merged", partial(colvision.build_qwen, version="2_5", kind="Bi")),
    "colsmol": _multi("vidore/colSmol-256M-merged", colvision.build_idefics),
    "colmodernvbert": _multi("ModernVBERT/colmodernvbert-merged", colvision.build_modernvbert),
    "bimodernvbert": _single("ModernVBERT/bimodernvbert-merged", partial(colvision.build_modernvbert, kind="Bi")),
    "colgemma3": _multi("someone/colgemma3-merged", colvision.build_gemma3),
    "jina": Case("jina", "jinaai/jina-clip-v1", _jina, remote_code=True, others=True),
    "uform2": Case("uform", "unum-cloud/uform-vl-multilingual-v2", partial(others.build_uform, version=2), dim=16),
    "uform3": Case(
        "uform", "unum-cloud/uform3-image-text-multilingual-base", partial(others.build_uform, version=3), dim=16
    ),
    "sentence-transformers": _sentence("sentence-transformers/clip-ViT-B-32", sentence.build_clip_module),
    "qwen3-vl-embedding": _sentence("Qwen/Qwen3-VL-Embedding-2B", sentence.build_single),
    "multi-vector": _sentence("someone/multi-vector", sentence.build_multi, dim=16, vectors="multi"),
    "colqwen2-hf": _sentence("vidore/colqwen2-v1.0-hf", sentence.build_for_retrieval, dim=128, vectors="multi"),
}


def spec_in_cache(name: str, cache: Path) -> EncoderSpec:
    """The spec of a family, whose repositories are put into the cache if they are not there yet."""
    import torch

    case = CASES[name]
    if not place_of(cache, case.repository).exists():
        with TemporaryDirectory() as work:
            folder = Path(work) / "repository"
            folder.mkdir()
            torch.manual_seed(0)  # what the constructor draws and `lively` leaves, whatever was built before
            case.build(folder, *([cache] if case.others else []))
            add_to_cache(cache, case.repository, folder)
    return EncoderSpec(name=name, adapter=case.adapter, checkpoint=case.checkpoint, dim=case.dim, vectors=case.vectors)
