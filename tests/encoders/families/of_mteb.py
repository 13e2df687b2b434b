"""Models of mteb's table in miniature, under the names and at the commits that mteb pins: one of each loader."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from capim.store.types import EncoderSpec
from capim.tasks.encoders import entry_from
from tests.encoders.families import clip, colvision, sentence
from tests.encoders.families import later as transformers
from tests.encoders.families.clip import SQUARE, TOWER, VISION, lively
from tests.encoders.families.recipe import Recipe, alone, lora
from tests.encoders.families.vocabulary import bert_tokenizer

BASE_COMMIT = "ba5e" * 10


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


_qwen = partial(alone, colvision.build_qwen)
CASES: dict[str, tuple[Recipe, int]] = {
    "openai/clip-vit-base-patch32": (alone(clip.build_clip), 32),
    "google/siglip-base-patch16-224": (alone(clip.build_siglip), 32),
    "google/siglip2-base-patch16-224": (alone(clip.build_siglip2), 32),
    "facebook/metaclip-2-mt5-worldwide-b32": (alone(clip.build_metaclip2), 32),
    "Salesforce/blip-itm-base-coco": (alone(build_blip), 32),
    "ModernVBERT/bimodernvbert": (alone(colvision.build_modernvbert, kind="Bi"), 32),
    "vidore/colpali-v1.3": (lora(), 128),
    "vidore/colqwen2-v1.0": (_qwen(version="2"), 128),
    "vidore/colqwen2.5-v0.2": (_qwen(version="2_5"), 128),
    "Verm1ion/ColTurk-VDR-Qwen3VL-4B-v1.0": (_qwen(version="3"), 320),
    "athrael-soju/colqwen3.5-4.5B-v3": (_qwen(version="3_5"), 128),
    "vidore/colSmol-256M": (alone(colvision.build_idefics), 128),
    "ModernVBERT/colmodernvbert": (alone(colvision.build_modernvbert), 128),
    "perplexity-ai/pplx-embed-v2-late-0.6b": (alone(sentence.build_multi), 16),
}
"""By mteb's name: how it is made, and the dimension of the miniature."""


def spec_in_cache(name: str, cache: Path) -> EncoderSpec:
    """The spec of a model of mteb's table, whose repositories are put into the cache if they are not there yet.

    mteb asks for the pinned commit, and of a base model and of some processors for the newest.
    """
    import mteb

    recipe, dim = CASES[name]
    recipe.cache(cache, name, at=str(mteb.get_model_meta(name).revision), others_at=BASE_COMMIT)
    return entry_from("x", {"adapter": "mteb", "checkpoint": name, "dim": dim}).spec
