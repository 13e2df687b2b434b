"""Train a tiny CLIP on the shapes world and write it as a Hugging Face folder.

    python -m tests.tiny_models.train_clip OUT [--plain] [--steps N] [--seed N]

The model is transformers' own ``CLIPModel`` (two layers of width 64 in each tower) with its own contrastive loss;
``OUT`` loads with ``AutoModel`` and ``AutoProcessor``. README.md has the figures.
"""

from __future__ import annotations

import argparse
import logging
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel, CLIPProcessor, CLIPTokenizer

from capim.tasks.corpora.readers.shapes import SIDE
from tests.tiny_models.curriculum import Recipe, captioned_scenes, vocabulary
from tests.tiny_models.word_tokenizers import clip_tokenizer, words_of

MAX_LENGTH = 32
WIDTH = 64

_log = logging.getLogger(__name__)
_MEAN = torch.tensor([0.48145466, 0.4578275, 0.40821073]).view(1, 3, 1, 1)
_STD = torch.tensor([0.26862954, 0.26130258, 0.27577711]).view(1, 3, 1, 1)


def untrained(tokenizer: CLIPTokenizer) -> CLIPModel:
    """The architecture with fresh weights from torch's global generator."""
    tower = {"hidden_size": WIDTH, "intermediate_size": 4 * WIDTH, "num_hidden_layers": 2, "num_attention_heads": 2}
    ids = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    text = tower | ids | {"vocab_size": len(tokenizer), "max_position_embeddings": MAX_LENGTH}
    vision = tower | {"image_size": SIDE, "patch_size": 16}
    return CLIPModel(CLIPConfig(projection_dim=WIDTH, text_config=text, vision_config=vision))


def train(recipe: Recipe) -> tuple[CLIPModel, CLIPTokenizer]:
    """A trained model in evaluation mode and its tokenizer; the loss is logged every 50 steps."""
    torch.manual_seed(recipe.seed)
    torch.set_num_threads(recipe.threads)
    rng = random.Random(recipe.seed)
    tokenizer = clip_tokenizer(words_of(vocabulary()), max_length=MAX_LENGTH)
    model = untrained(tokenizer).train()
    optimiser = torch.optim.AdamW(_decayed_and_not(model), lr=recipe.peak, betas=(0.9, 0.98), eps=1e-8)
    batches = captioned_scenes(recipe, rng)
    for step in range(recipe.steps):
        for group in optimiser.param_groups:
            group["lr"] = recipe.learning_rate(step)
        captions, images, _ = next(batches)
        text = tokenizer(captions, return_tensors="pt", padding=True)
        loss = model(pixel_values=pixels(images), **text, return_loss=True).loss
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        with torch.no_grad():
            model.logit_scale.clamp_(0, np.log(100))
        if (step + 1) % 50 == 0:
            _log.info("step %d of %d: loss %.3f", step + 1, recipe.steps, loss.item())
    return model.eval(), tokenizer


def pixels(images: Sequence[Image.Image]) -> torch.Tensor:
    """What the saved image processor gives for images that already are 64 pixels square: (n, 3, 64, 64) float32."""
    stacked = torch.from_numpy(np.stack([np.asarray(image) for image in images]))
    return (stacked.permute(0, 3, 1, 2).float() / 255 - _MEAN) / _STD


def save(model: CLIPModel, tokenizer: CLIPTokenizer, folder: Path) -> None:
    """Write model (float16) and processor as ``from_pretrained`` expects them."""
    model.half().save_pretrained(folder)
    model.float()
    size = {"size": {"shortest_edge": SIDE}, "crop_size": {"height": SIDE, "width": SIDE}}
    CLIPProcessor(CLIPImageProcessor(**size), tokenizer).save_pretrained(folder)


def _decayed_and_not(model: torch.nn.Module) -> list[dict[str, object]]:
    """Weight decay for matrices, none for embeddings, biases and norms."""
    decayed = [p for name, p in model.named_parameters() if p.ndim > 1 and "embedding" not in name]
    rest = [p for name, p in model.named_parameters() if p.ndim < 2 or "embedding" in name]
    return [{"params": decayed, "weight_decay": 0.05}, {"params": rest, "weight_decay": 0.0}]


def main() -> None:
    """Train and save by command-line arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder to write")
    parser.add_argument("--plain", action="store_true", help="no swap negatives in the batches")
    parser.add_argument("--steps", type=int, default=Recipe.steps)
    parser.add_argument("--seed", type=int, default=Recipe.seed)
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    model, tokenizer = train(Recipe(steps=given.steps, seed=given.seed, swap_negatives=not given.plain))
    save(model, tokenizer, given.out)


if __name__ == "__main__":
    main()
