"""Train a tiny ColPali on the shapes world and write it as a Hugging Face folder.

    python -m tests.tiny_models.train_colpali OUT [--steps N] [--seed N]

The model is colpali_engine's own ``ColPali`` over a PaliGemma of two vision and two text layers of width 64, with
its own late-interaction loss; ``OUT`` loads with ``ColPali`` and ``ColPaliProcessor``. README.md has the figures.
"""

from __future__ import annotations

import argparse
import logging
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from colpali_engine.loss import ColbertLoss
from colpali_engine.models import ColPali, ColPaliProcessor
from PIL import Image
from transformers import AutoTokenizer, PaliGemmaConfig, SiglipImageProcessor

from tasks.corpora.shapes.world import SIDE, render
from tests.tiny_models.curriculum import Recipe, draw_caption, scene_batches, vocabulary
from tests.tiny_models.word_tokenizers import words_of, write_gemma_tokenizer

WIDTH = 64
PATCH = 16
N_PATCHES = (SIDE // PATCH) ** 2
TEMPERATURE = 0.05
_PAD, _EOS, _BOS = 0, 1, 2

_log = logging.getLogger(__name__)


def untrained(folder: Path) -> tuple[ColPali, ColPaliProcessor]:
    """The architecture with fresh weights, and its processor, whose tokenizer files are written to ``folder``."""
    write_gemma_tokenizer(words_of(vocabulary()), folder)
    image_processor = SiglipImageProcessor(size={"height": SIDE, "width": SIDE})
    image_processor.image_seq_length = N_PATCHES
    processor = ColPaliProcessor(image_processor=image_processor, tokenizer=AutoTokenizer.from_pretrained(folder))
    ids = {"pad_token_id": _PAD, "bos_token_id": _BOS, "eos_token_id": _EOS}
    text = ids | {
        "model_type": "gemma",
        "vocab_size": len(processor.tokenizer),
        "hidden_size": WIDTH,
        "intermediate_size": 2 * WIDTH,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": WIDTH // 2,
        "num_image_tokens": N_PATCHES,
        "max_position_embeddings": 256,
    }
    vision = {
        "model_type": "siglip_vision_model",
        "hidden_size": WIDTH,
        "intermediate_size": 4 * WIDTH,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": SIDE,
        "patch_size": PATCH,
        "projection_dim": WIDTH,
        "num_image_tokens": N_PATCHES,
        "vision_use_head": False,
    }
    config = PaliGemmaConfig(
        image_token_index=processor.image_token_id,
        projection_dim=WIDTH,
        hidden_size=WIDTH,
        text_config=text,
        vision_config=vision,
        **ids,
    )
    return ColPali(config), processor


def train(recipe: Recipe, folder: Path) -> tuple[ColPali, ColPaliProcessor]:
    """A trained model in evaluation mode and its processor; the loss is logged every 50 steps."""
    torch.manual_seed(recipe.seed)
    torch.set_num_threads(recipe.threads)
    rng = random.Random(recipe.seed)
    model, processor = untrained(folder)
    model.train()
    prompt = processor.process_images([Image.new("RGB", (SIDE, SIDE))])["input_ids"]
    optimiser = torch.optim.AdamW(model.parameters(), lr=recipe.peak, betas=(0.9, 0.98), weight_decay=0.02)
    loss_of = ColbertLoss(temperature=TEMPERATURE, normalize_scores=True)
    batches = scene_batches(recipe, rng)
    for step in range(recipe.steps):
        for group in optimiser.param_groups:
            group["lr"] = recipe.learning_rate(step)
        scenes = next(batches)
        text = processor.process_texts([draw_caption(scene, rng) for scene in scenes])
        image_ids = prompt.expand(len(scenes), -1)
        images = _embed(
            model,
            image_ids,
            torch.ones_like(image_ids),
            pixel_values=pixels([render(scene, rng) for scene in scenes]),
        )
        loss = loss_of(_embed(model, text["input_ids"], text["attention_mask"]), images)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if (step + 1) % 50 == 0:
            _log.info("step %d of %d: loss %.3f", step + 1, recipe.steps, loss.item())
    return model.eval(), processor


def pixels(images: Sequence[Image.Image]) -> torch.Tensor:
    """What the saved image processor gives for images that already are 64 pixels square: (n, 3, 64, 64) float32."""
    stacked = torch.from_numpy(np.stack([np.asarray(image) for image in images]))
    return stacked.permute(0, 3, 1, 2).float() / 127.5 - 1


def save(model: ColPali, processor: ColPaliProcessor, folder: Path) -> None:
    """Write model (float16) and processor as ``from_pretrained`` expects them."""
    model.half().save_pretrained(folder)
    model.float()
    processor.save_pretrained(folder)


def _embed(model: ColPali, ids: torch.Tensor, mask: torch.Tensor, **images: torch.Tensor) -> torch.Tensor:
    """Unit vectors per token, shape (batch, tokens, 128), zero where masked.

    Token types of zero make attention bidirectional whether there is padding or not, as PaliGemma's prefix is.
    """
    embeddings: torch.Tensor = model(
        input_ids=ids,
        attention_mask=mask,
        token_type_ids=torch.zeros_like(ids),
        logits_to_keep=1,
        use_cache=False,
        **images,
    )
    return embeddings


def main() -> None:
    """Train and save by command-line arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder to write; what is in it is removed")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=Recipe.seed)
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", force=True)
    shutil.rmtree(given.out, ignore_errors=True)
    model, processor = train(Recipe(steps=given.steps, batch=96, seed=given.seed), given.out)
    save(model, processor, given.out)


if __name__ == "__main__":
    main()
