"""Models of mteb's table in miniature, under the names and at the commits that mteb pins: one of each loader."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import transformers

from capim.store.types import EncoderSpec
from capim.tasks.encoders import entry_from
from tests.encoders.families import clip, colvision, sentence
from tests.encoders.families.clip import SQUARE, TOWER, VISION, lively
from tests.encoders.families.hub import add_to_cache, place_of
from tests.encoders.families.vocabulary import bert_tokenizer

BASE = "vidore/colpaligemma-3b-pt-448-base"


def build_blip(folder: Path) -> None:
    """Salesforce/blip-itm-base-coco: ViT and BERT, with a projection of each."""
    tokenizer = bert_tokenizer(folder)
    text = TOWER | {"vocab_size": len(tokenizer), "max_position_embeddings": 128, "encoder_hidden_size": 32}
    ids = {"pad_token_id": 0, "bos_token_id": 2, "sep_token_id": 3, "eos_token_id": 3}
    config = transformers.BlipConfig(
        text_config=text | ids, vision_config=VISION, projection_dim=32, image_text_hidden_size=32
    )
    lively(transformers.BlipForImageTextRetrieval(config)).save_pretrained(folder)
    pixels = transformers.BlipImageProcessor(size=SQUARE)
    transformers.BlipProcessor(image_processor=pixels, tokenizer=tokenizer).save_pretrained(folder)


class Case(NamedTuple):
    """How a model of mteb's table is made, and what differs from its table because it is small.

    Attributes:
        build: Fills a folder with the repository's files; with ``based`` also one for the base model.
        dim: Of the miniature.
        based: The repository of its base model, which mteb loads at its newest commit.
    """

    build: Callable[..., None]
    dim: int = 32
    based: str = ""


def _lora(folder: Path, base: Path) -> None:
    colvision.build_colpali_lora(folder, base, base_name=BASE)


_qwen = partial(partial, colvision.build_qwen)
CASES: dict[str, Case] = {
    "openai/clip-vit-base-patch32": Case(clip.build_clip),
    "google/siglip-base-patch16-224": Case(clip.build_siglip),
    "google/siglip2-base-patch16-224": Case(clip.build_siglip2),
    "facebook/metaclip-2-mt5-worldwide-b32": Case(clip.build_metaclip2),
    "Salesforce/blip-itm-base-coco": Case(build_blip),
    "ModernVBERT/bimodernvbert": Case(partial(colvision.build_modernvbert, kind="Bi")),
    "vidore/colpali-v1.3": Case(_lora, 128, BASE),
    "vidore/colqwen2-v1.0": Case(_qwen(version="2"), 128),
    "vidore/colqwen2.5-v0.2": Case(_qwen(version="2_5"), 128),
    "Verm1ion/ColTurk-VDR-Qwen3VL-4B-v1.0": Case(_qwen(version="3"), 320),
    "athrael-soju/colqwen3.5-4.5B-v3": Case(_qwen(version="3_5"), 128),
    "vidore/colSmol-256M": Case(colvision.build_idefics, 128),
    "ModernVBERT/colmodernvbert": Case(colvision.build_modernvbert, 128),
    "perplexity-ai/pplx-embed-v2-late-0.6b": Case(sentence.build_multi, 16),
}


def spec_in_cache(name: str, cache: Path) -> EncoderSpec:
    """The spec of a model of mteb's table, whose repositories are put into the cache if they are not there yet.

    mteb asks for the pinned commit, and of a base model and of some processors for the newest.
    """
    import mteb
    import torch

    case = CASES[name]
    with TemporaryDirectory() as work:
        folder, base = Path(work) / "repository", Path(work) / "base"
        folder.mkdir()
        if not place_of(cache, name).exists():
            torch.manual_seed(0)
            case.build(folder, *([base] if case.based else []))
            add_to_cache(cache, name, folder, str(mteb.get_model_meta(name).revision))
            if case.based:
                add_to_cache(cache, case.based, base, "ba5e" * 10)
    return entry_from("x", {"adapter": "mteb", "checkpoint": name, "dim": case.dim}).spec
