"""Every family that an adapter claims to load, by the name of a real repository, in miniature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from capim.store.types import EncoderSpec, VectorKind
from tests.encoders.families import clip, colvision, openclip, others, sentence
from tests.encoders.families.hub import add_to_cache

Build = Callable[[Path], None]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One family.

    Attributes:
        adapter: Key of ``ADAPTERS``.
        checkpoint: As a user would write it.
        dim: Of the miniature.
        build: Fills a folder with the repository's files, given also where to put other repositories.
        repository: Under which name the folder goes into the hub cache; None: the checkpoint's.
        vectors: One or many per item.
        remote_code: Needs consent.
    """

    adapter: str
    checkpoint: str
    dim: int
    build: Callable[[Path, Path], None]
    repository: str | None = None
    vectors: VectorKind = "single"
    remote_code: bool = False


def alone(build: Build) -> Callable[[Path, Path], None]:
    """A family whose checkpoint is one repository."""
    return lambda folder, _cache: build(folder)


def _lora(folder: Path, cache: Path) -> None:
    base = "vidore/colpaligemma-3b-pt-448-base"
    with TemporaryDirectory() as work:
        colvision.build_colpali_lora(folder, Path(work) / "base", base_name=base)
        add_to_cache(cache, base, Path(work) / "base")


def _over_xlm_roberta(folder: Path, cache: Path) -> None:
    with TemporaryDirectory() as work:
        openclip.build_xlm_roberta(Path(work) / "xlmr")
        openclip.build_over_xlm_roberta(folder, Path(work) / "xlmr")
        add_to_cache(cache, "xlm-roberta-base", Path(work) / "xlmr")


def _jina(folder: Path, cache: Path) -> None:
    with TemporaryDirectory() as work:
        code, tower = Path(work) / "code", Path(work) / "tower"
        others.build_jina(folder, code, tower)
        add_to_cache(cache, others.CODE, code)
        add_to_cache(cache, others.TOWER, tower)


def _qwen(version: str, *, kind: str = "Col", dim: int = 128) -> Case:
    return Case(
        adapter="colvision", checkpoint=f"vidore/{kind}Qwen{version}-merged".lower(), dim=dim,
        vectors="multi" if kind == "Col" else "single",
        build=alone(lambda folder: colvision.build_qwen(folder, version=version, kind=kind)),
    )  # fmt: skip


CASES: dict[str, Case] = {
    "clip": Case(
        adapter="hf_dual", checkpoint="openai/clip-vit-large-patch14-336", dim=32, build=alone(clip.build_clip)
    ),
    "metaclip2": Case(
        adapter="hf_dual", checkpoint="facebook/metaclip-2-worldwide-huge-quickgelu", dim=32,
        build=alone(clip.build_metaclip2),
    ),
    "siglip": Case(
        adapter="hf_dual", checkpoint="google/siglip-so400m-patch14-384", dim=32, build=alone(clip.build_siglip)
    ),
    "siglip2": Case(
        adapter="hf_dual", checkpoint="google/siglip2-so400m-patch14-384", dim=32, build=alone(clip.build_siglip2)
    ),
    "siglip2-naflex": Case(
        adapter="hf_dual", checkpoint="google/siglip2-so400m-patch16-naflex", dim=32,
        build=alone(clip.build_siglip2_naflex),
    ),
    "altclip": Case(adapter="hf_dual", checkpoint="BAAI/AltCLIP", dim=32, build=alone(clip.build_altclip)),
    "chinese-clip": Case(
        adapter="hf_dual", checkpoint="OFA-Sys/chinese-clip-vit-base-patch16", dim=32,
        build=alone(clip.build_chinese_clip),
    ),
    "dfn": Case(
        adapter="openclip", checkpoint="hf-hub:apple/DFN5B-CLIP-ViT-H-14-378",
        repository="apple/DFN5B-CLIP-ViT-H-14-378", dim=32, build=alone(openclip.build_dfn),
    ),
    "laion": Case(
        adapter="openclip", checkpoint="laion/CLIP-ViT-H-14-laion2B-s32B-b79K", dim=32,
        build=alone(openclip.build_laion),
    ),
    "openclip-own-tokenizer": Case(
        adapter="openclip", checkpoint="someone/converted", dim=32, build=alone(openclip.build_own_tokenizer)
    ),
    "openclip-siglip": Case(
        adapter="openclip", checkpoint="timm/ViT-B-16-SigLIP", dim=32,
        build=alone(openclip.build_siglip_in_open_clip),
    ),
    "openclip-xlm-roberta": Case(
        adapter="openclip", checkpoint="laion/CLIP-ViT-B-32-xlm-roberta-base-laion5B-s13B-b90k", dim=24,
        build=_over_xlm_roberta,
    ),
    "colpali": Case(
        adapter="colvision", checkpoint="vidore/colpali-v1.3-merged", dim=128, vectors="multi",
        build=alone(colvision.build_colpali),
    ),
    "colpali-lora": Case(
        adapter="colvision", checkpoint="vidore/colpali-v1.3", dim=128, vectors="multi", build=_lora
    ),
    "bipali": Case(
        adapter="colvision", checkpoint="vidore/bipali-merged", dim=32,
        build=alone(lambda folder: colvision.build_colpali(folder, name="BiPali")),
    ),
    "colqwen2": _qwen("2"),
    "colqwen2.5": _qwen("2_5"),
    "colqwen3": _qwen("3", dim=320),
    "colqwen3.5": _qwen("3_5"),
    "biqwen2.5": _qwen("2_5", kind="Bi", dim=32),
    "colsmol": Case(
        adapter="colvision", checkpoint="vidore/colSmol-256M-merged", dim=128, vectors="multi",
        build=alone(colvision.build_idefics),
    ),
    "colmodernvbert": Case(
        adapter="colvision", checkpoint="ModernVBERT/colmodernvbert-merged", dim=128, vectors="multi",
        build=alone(colvision.build_modernvbert),
    ),
    "bimodernvbert": Case(
        adapter="colvision", checkpoint="ModernVBERT/bimodernvbert-merged", dim=32,
        build=alone(lambda folder: colvision.build_modernvbert(folder, kind="Bi")),
    ),
    "colgemma3": Case(
        adapter="colvision", checkpoint="someone/colgemma3-merged", dim=128, vectors="multi",
        build=alone(colvision.build_gemma3),
    ),
    "jina": Case(adapter="jina", checkpoint="jinaai/jina-clip-v1", dim=32, build=_jina, remote_code=True),
    "uform2": Case(
        adapter="uform", checkpoint="unum-cloud/uform-vl-multilingual-v2", dim=16,
        build=alone(lambda folder: others.build_uform(folder, version=2)),
    ),
    "uform3": Case(
        adapter="uform", checkpoint="unum-cloud/uform3-image-text-multilingual-base", dim=16,
        build=alone(lambda folder: others.build_uform(folder, version=3)),
    ),
    "sentence-transformers": Case(
        adapter="sentence_transformers", checkpoint="sentence-transformers/clip-ViT-B-32", dim=32,
        build=alone(sentence.build_clip_module),
    ),
    "qwen3-vl-embedding": Case(
        adapter="sentence_transformers", checkpoint="Qwen/Qwen3-VL-Embedding-2B", dim=32,
        build=alone(sentence.build_single),
    ),
    "multi-vector": Case(
        adapter="sentence_transformers", checkpoint="someone/multi-vector", dim=16, vectors="multi",
        build=alone(sentence.build_multi),
    ),
    "colqwen2-hf": Case(
        adapter="sentence_transformers", checkpoint="vidore/colqwen2-v1.0-hf", dim=128, vectors="multi",
        build=alone(sentence.build_for_retrieval),
    ),
}  # fmt: skip


def spec_in_cache(name: str, cache: Path) -> EncoderSpec:
    """The spec of a family, whose repositories are put into the cache if they are not there yet."""
    case = CASES[name]
    repository = case.repository or case.checkpoint
    if not (cache / f"models--{repository.replace('/', '--')}").exists():
        with TemporaryDirectory() as work:
            folder = Path(work) / "repository"
            folder.mkdir()
            case.build(folder, cache)
            add_to_cache(cache, repository, folder)
    return EncoderSpec(
        name=name,
        adapter=case.adapter,
        checkpoint=case.checkpoint,
        dim=case.dim,
        vectors=case.vectors,
    )
