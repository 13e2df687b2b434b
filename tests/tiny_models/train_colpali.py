"""Train a tiny ColPali on the shapes world, or on rendered pages, and write it as a Hugging Face folder.

    python -m tests.tiny_models.train_colpali OUT [--pages] [--steps N] [--seed N]

The model is colpali_engine's own ``ColPali`` over a PaliGemma of width 64 with two vision and two text layers (pages:
one of each) and its own late-interaction loss; of pages it learns besides in which line a word is meant. ``OUT`` loads
with ``ColPali`` and ``ColPaliProcessor``. README.md has the figures.
"""

from __future__ import annotations

import argparse
import logging
import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from colpali_engine.loss import ColbertLoss
from colpali_engine.models import ColPali, ColPaliProcessor
from PIL import Image
from transformers import AutoTokenizer, PaliGemmaConfig, SiglipImageProcessor

from capim.tasks.corpora.readers.shapes import SIDE
from tests.tiny_models.curriculum import (
    Batch,
    Named,
    Recipe,
    asked_pages,
    captioned_scenes,
    page_vocabulary,
    vocabulary,
)
from tests.tiny_models.word_tokenizers import words_of, write_gemma_tokenizer

WIDTH = 64
PAGE_SIDE = 128  # pixels; pages cannot be read at the 64 of the scenes
PATCH = 16
TEMPERATURE = 0.05
FIRST_PAGES = 0.25  # weight of the loss of each half of the questions over the first pages
_log = logging.getLogger(__name__)


def untrained(folder: Path, words: Sequence[str], side: int, layers: int) -> tuple[ColPali, ColPaliProcessor]:
    """The architecture with fresh weights for images of ``side`` pixels, and its processor; writes its tokenizer.

    ``layers`` are those of each tower.
    """
    write_gemma_tokenizer(words, folder)
    n_patches = (side // PATCH) ** 2
    image_processor = SiglipImageProcessor(size={"height": side, "width": side})
    image_processor.image_seq_length = n_patches
    processor = ColPaliProcessor(image_processor=image_processor, tokenizer=AutoTokenizer.from_pretrained(folder))
    ids = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2}
    tower = {"hidden_size": WIDTH, "num_hidden_layers": layers, "num_attention_heads": 2, "num_image_tokens": n_patches}
    text = (
        ids
        | tower
        | {
            "model_type": "gemma",
            "vocab_size": len(processor.tokenizer),
            "intermediate_size": 2 * WIDTH,
            "num_key_value_heads": 1,
            "head_dim": WIDTH // 2,
            "max_position_embeddings": 256,
        }
    )
    vision = tower | {
        "model_type": "siglip_vision_model",
        "intermediate_size": 4 * WIDTH,
        "image_size": side,
        "patch_size": PATCH,
        "projection_dim": WIDTH,
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


def train(recipe: Recipe, folder: Path, *, pages: bool = False) -> tuple[ColPali, ColPaliProcessor]:
    """A model of scenes or of pages in evaluation mode and its processor; the mean loss is logged.

    Every 50 steps, or every half of the steps where they are fewer than 100.
    """
    torch.manual_seed(recipe.seed)
    torch.set_num_threads(recipe.threads)
    rng = random.Random(recipe.seed)
    if pages:  # one layer is enough to read a word, and mixes less of what stands elsewhere
        model, processor = untrained(folder, words_of(page_vocabulary()), PAGE_SIDE, layers=1)
        _fit(model, processor, recipe, asked_pages(rng))
    else:
        model, processor = untrained(folder, words_of(vocabulary()), SIDE, layers=2)
        _fit(model, processor, recipe, captioned_scenes(recipe, rng))
    return model.eval(), processor


def rank_first_pages(recipe: Recipe, folder: Path) -> tuple[ColPali, ColPaliProcessor]:
    """A model of pages, read from ``folder``, trained further to rank a report's first page before all other reports.

    Compared with each other alone, first pages stay behind the pages with text, tables and charts of other reports.
    """
    torch.set_num_threads(recipe.threads)
    model, processor = ColPali.from_pretrained(folder, dtype=torch.float32), ColPaliProcessor.from_pretrained(folder)
    model.model.tie_weights()
    _fit(model, processor, recipe, asked_pages(random.Random(recipe.seed + 1)), before_answers=True)
    return model.eval(), processor


def _fit(
    model: ColPali,
    processor: ColPaliProcessor,
    recipe: Recipe,
    batches: Iterator[Batch],
    *,
    before_answers: bool = False,
) -> None:
    model.train()
    side = model.config.vision_config.image_size
    prompt = processor.process_images([Image.new("RGB", (side, side))])["input_ids"]
    optimiser = torch.optim.AdamW(model.parameters(), lr=recipe.peak, betas=(0.9, 0.98), weight_decay=0.02)
    loss_of = ColbertLoss(temperature=TEMPERATURE, normalize_scores=True)
    losses: list[float] = []
    every = min(50, recipe.steps // 2)
    for step in range(recipe.steps):
        for group in optimiser.param_groups:
            group["lr"] = recipe.learning_rate(step)
        texts, images, named = next(batches)
        text = processor.process_texts(texts)
        image_ids = prompt.expand(len(images), -1)
        seen = _embed(model, image_ids, torch.ones_like(image_ids), pixel_values=pixels(images, side))
        read = _embed(model, text["input_ids"], text["attention_mask"])
        loss = loss_of(read, seen)
        if n_reports := len(seen) - len(read):  # the first page of a report comes second, before all other reports'
            first_pages = seen[len(read) :]
            for half, others in ((0, n_reports), (n_reports, 0)):  # the other question's answers are other pages
                rest = seen[others : others + n_reports] if before_answers else seen[:0]
                loss += FIRST_PAGES * loss_of(read[half : half + n_reports], torch.cat([first_pages, rest]))
        if named:
            tokens = [processor.tokenizer.convert_ids_to_tokens(ids.tolist()) for ids in text["input_ids"]]
            loss += _beside_their_lines(read, seen, tokens, named)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        losses.append(loss.item())
        if (step + 1) % every == 0:
            _log.info("step %d of %d: mean loss %.3f", step + 1, recipe.steps, sum(losses[-every:]) / every)


def _beside_their_lines(
    read: torch.Tensor, seen: torch.Tensor, tokens: Sequence[Sequence[str]], named: Sequence[Named]
) -> torch.Tensor:
    """The mean cross-entropy of named words: how much they match the patches of the lines in which they are meant."""
    place = [[token.strip("▁") for token in tokens[each.text]].index(each.word) for each in named]
    texts, images, first, below = torch.tensor([(each.text, each.image, each.first, each.below) for each in named]).T
    matches = torch.einsum("nd,nvd->nv", read[texts, place], seen[images]) / TEMPERATURE
    line = torch.arange(seen.shape[1]) // (PAGE_SIDE // PATCH)  # the prompt comes after all patches
    elsewhere = (line < first[:, None]) | (line >= below[:, None])
    return (matches.logsumexp(dim=1) - matches.masked_fill(elsewhere, -torch.inf).logsumexp(dim=1)).mean()


def pixels(images: Sequence[Image.Image], side: int) -> torch.Tensor:
    """What the saved image processor gives for the images: (n, 3, side, side) float32."""
    resized = [image.resize((side, side), Image.Resampling.BICUBIC) for image in images]
    stacked = torch.from_numpy(np.stack([np.asarray(image) for image in resized]))
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
    types = torch.zeros_like(ids)
    embeddings: torch.Tensor = model(
        input_ids=ids, attention_mask=mask, token_type_ids=types, logits_to_keep=1, use_cache=False, **images
    )
    return embeddings


def main() -> None:
    """Train and save by command-line arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder to write; what is in it is removed")
    parser.add_argument("--pages", action="store_true", help="questions to rendered pages instead of scenes")
    parser.add_argument("--steps", type=int, help="default: 1000, with --pages 800")
    parser.add_argument("--seed", type=int, default=Recipe.seed)
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", force=True)
    shutil.rmtree(given.out, ignore_errors=True)
    recipe = Recipe(steps=given.steps or (800 if given.pages else 1000), batch=96, seed=given.seed)
    save(*train(recipe, given.out, pages=given.pages), given.out)
    if given.pages:
        save(*rank_first_pages(Recipe(steps=120, peak=1e-3, seed=given.seed), given.out), given.out)


if __name__ == "__main__":
    main()
