"""Train the tiny models and write them as Hugging Face folders.

    python -m tests.tiny_models.train NAME OUT [--steps N] [--seed N]

``clip`` and ``clip-plain`` are transformers' own ``CLIPModel`` (two layers of width 64 in each tower) with its own
contrastive loss, trained on the shapes world; they load with ``AutoModel`` and ``AutoProcessor``. ``colpali`` and
``colpali-pages`` are colpali_engine's own ``ColPali`` over a PaliGemma of width 64 with two vision and two text layers
(pages: one of each) and its own late-interaction loss; of pages it learns besides in which line a word is meant. They
load with ``ColPali`` and ``ColPaliProcessor``. README.md has the figures.
"""

from __future__ import annotations

import argparse
import logging
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from colpali_engine.loss import ColbertLoss
from colpali_engine.models import ColPali, ColPaliProcessor
from PIL import Image
from transformers import (
    AutoTokenizer,
    CLIPConfig,
    CLIPImageProcessor,
    CLIPModel,
    CLIPProcessor,
    PaliGemmaConfig,
    SiglipImageProcessor,
)

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
from tests.tiny_models.word_tokenizers import clip_tokenizer, words_of, write_gemma_tokenizer

WIDTH = 64
PATCH = 16
MAX_LENGTH = 32  # tokens of CLIP
PAGE_SIDE = 128  # pixels; pages cannot be read at the 64 of the scenes
TEMPERATURE = 0.05
FIRST_PAGES = 0.25  # weight of the loss of each half of the questions over the first pages
_MEAN = torch.tensor([0.48145466, 0.4578275, 0.40821073]).view(1, 3, 1, 1)
_STD = torch.tensor([0.26862954, 0.26130258, 0.27577711]).view(1, 3, 1, 1)
_log = logging.getLogger(__name__)


def fit(
    model: torch.nn.Module, parameters: Iterable[Any], recipe: Recipe, losses: Iterator[torch.Tensor], **settings: Any
) -> None:
    """Train by a stream of losses; their mean is logged every 50 steps, at least twice."""
    torch.set_num_threads(recipe.threads)
    optimiser = torch.optim.AdamW(parameters, lr=recipe.peak, betas=(0.9, 0.98), **settings)
    every, seen = min(50, recipe.steps // 2), list[float]()
    for step in range(recipe.steps):
        for group in optimiser.param_groups:
            group["lr"] = recipe.learning_rate(step)
        loss = next(losses)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        seen.append(loss.item())
        if (step + 1) % every == 0:
            _log.info("step %d of %d: mean loss %.3f", step + 1, recipe.steps, sum(seen[-every:]) / every)
    model.eval()


def stacked(images: Sequence[Image.Image]) -> torch.Tensor:
    """Images of one size as (n, 3, height, width) float32, 0 to 255."""
    return torch.from_numpy(np.stack([np.asarray(image) for image in images])).permute(0, 3, 1, 2).float()


def train_clip(recipe: Recipe) -> tuple[CLIPModel, CLIPProcessor]:
    """A trained CLIP in evaluation mode and its processor."""
    torch.manual_seed(recipe.seed)
    tokenizer = clip_tokenizer(words_of(vocabulary()), max_length=MAX_LENGTH)
    tower = {"hidden_size": WIDTH, "intermediate_size": 4 * WIDTH, "num_hidden_layers": 2, "num_attention_heads": 2}
    ids = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    text = tower | ids | {"vocab_size": len(tokenizer), "max_position_embeddings": MAX_LENGTH}
    vision = tower | {"image_size": SIDE, "patch_size": PATCH}
    model = CLIPModel(CLIPConfig(projection_dim=WIDTH, text_config=text, vision_config=vision)).train()

    def losses() -> Iterator[torch.Tensor]:
        for captions, images, _ in captioned_scenes(recipe, random.Random(recipe.seed)):
            # what the saved image processor gives for images that already are 64 pixels square
            pixels = (stacked(images) / 255 - _MEAN) / _STD
            read = tokenizer(captions, return_tensors="pt", padding=True)
            yield model(pixel_values=pixels, **read, return_loss=True).loss
            with torch.no_grad():
                model.logit_scale.clamp_(0, np.log(100))

    # weight decay for matrices, none for embeddings, biases and norms
    decayed = [p for name, p in model.named_parameters() if p.ndim > 1 and "embedding" not in name]
    rest = [p for name, p in model.named_parameters() if p.ndim < 2 or "embedding" in name]
    fit(model, [{"params": decayed, "weight_decay": 0.05}, {"params": rest, "weight_decay": 0.0}], recipe, losses())
    size = {"size": {"shortest_edge": SIDE}, "crop_size": {"height": SIDE, "width": SIDE}}
    return model, CLIPProcessor(CLIPImageProcessor(**size), tokenizer)


def colpali_config(
    folder: Path, words: Sequence[str], side: int, layers: int, *, width: int = WIDTH, patch: int = PATCH
) -> tuple[PaliGemmaConfig, ColPaliProcessor]:
    """A ColPali for images of ``side`` pixels, before it has weights, and its processor; writes its tokenizer.

    ``layers`` are those of each tower.
    """
    write_gemma_tokenizer(words, folder)
    n_patches = (side // patch) ** 2
    image_processor = SiglipImageProcessor(size={"height": side, "width": side})
    image_processor.image_seq_length = n_patches
    processor = ColPaliProcessor(image_processor=image_processor, tokenizer=AutoTokenizer.from_pretrained(folder))
    ids = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2}
    tower = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": 2, "num_image_tokens": n_patches}
    text = ids | tower | {"model_type": "gemma", "vocab_size": len(processor.tokenizer), "num_key_value_heads": 1}
    text |= {"intermediate_size": 2 * width, "head_dim": width // 2, "max_position_embeddings": 256}
    vision = tower | {"model_type": "siglip_vision_model", "image_size": side, "patch_size": patch}
    vision |= {"intermediate_size": 4 * width, "projection_dim": width, "vision_use_head": False}
    towers = {"text_config": text, "vision_config": vision, "projection_dim": width, "hidden_size": width}
    return PaliGemmaConfig(image_token_index=processor.image_token_id, **towers, **ids), processor


def train_colpali(recipe: Recipe, folder: Path, *, pages: bool = False) -> tuple[ColPali, ColPaliProcessor]:
    """A model of scenes or of pages in evaluation mode and its processor."""
    torch.manual_seed(recipe.seed)
    rng = random.Random(recipe.seed)
    if pages:  # one layer is enough to read a word, and mixes less of what stands elsewhere
        config, processor = colpali_config(folder, words_of(page_vocabulary()), PAGE_SIDE, layers=1)
    else:
        config, processor = colpali_config(folder, words_of(vocabulary()), SIDE, layers=2)
    model = ColPali(config)
    batches = asked_pages(rng) if pages else captioned_scenes(recipe, rng)
    fit(model.train(), model.parameters(), recipe, _losses(model, processor, batches), weight_decay=0.02)
    return model, processor


def rank_first_pages(recipe: Recipe, folder: Path) -> tuple[ColPali, ColPaliProcessor]:
    """A model of pages, read from ``folder``, trained further to rank a report's first page before all other reports.

    Compared with each other alone, first pages stay behind the pages with text, tables and charts of other reports.
    """
    model, processor = ColPali.from_pretrained(folder, dtype=torch.float32), ColPaliProcessor.from_pretrained(folder)
    model.model.tie_weights()
    losses = _losses(model, processor, asked_pages(random.Random(recipe.seed + 1)), before_answers=True)
    fit(model.train(), model.parameters(), recipe, losses, weight_decay=0.02)
    return model, processor


def _losses(
    model: ColPali, processor: ColPaliProcessor, batches: Iterator[Batch], *, before_answers: bool = False
) -> Iterator[torch.Tensor]:
    side = model.config.vision_config.image_size
    prompt = processor.process_images([Image.new("RGB", (side, side))])["input_ids"]
    loss_of = ColbertLoss(temperature=TEMPERATURE, normalize_scores=True)
    for texts, images, named in batches:
        text = processor.process_texts(texts)
        image_ids = prompt.expand(len(images), -1)
        # what the saved image processor gives
        resized = [image.resize((side, side), Image.Resampling.BICUBIC) for image in images]
        seen = _embed(model, image_ids, torch.ones_like(image_ids), pixel_values=stacked(resized) / 127.5 - 1)
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
        yield loss


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


def _embed(model: ColPali, ids: torch.Tensor, mask: torch.Tensor, **images: torch.Tensor) -> torch.Tensor:
    """Unit vectors per token, shape (batch, tokens, 128), zero where masked.

    Token types of zero make attention bidirectional whether there is padding or not, as PaliGemma's prefix is.
    """
    types = torch.zeros_like(ids)
    embeddings: torch.Tensor = model(
        input_ids=ids, attention_mask=mask, token_type_ids=types, logits_to_keep=1, use_cache=False, **images
    )
    return embeddings


def save(model: Any, processor: Any, folder: Path) -> None:
    """Write model (float16) and processor as ``from_pretrained`` expects them."""
    model.half().save_pretrained(folder)
    model.float()
    processor.save_pretrained(folder)


MODELS: dict[str, tuple[Callable[[Recipe, Path], tuple[Any, Any]], dict[str, Any]]] = {
    "clip": (lambda recipe, _: train_clip(recipe), {}),
    "clip-plain": (lambda recipe, _: train_clip(recipe), {"steps": 600, "swap_negatives": False}),
    "colpali": (train_colpali, {"steps": 1000, "batch": 96}),
    "colpali-pages": (lambda recipe, folder: train_colpali(recipe, folder, pages=True), {"steps": 800, "batch": 96}),
}
"""By name: what trains it, and in what its recipe differs from the usual one."""


def main() -> None:
    """Train and save by command-line arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=MODELS)
    parser.add_argument("out", type=Path, help="folder to write, empty or new")
    parser.add_argument("--steps", type=int, help="default: see README.md")
    parser.add_argument("--seed", type=int, default=Recipe.seed)
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", force=True)
    train, usual = MODELS[given.name]
    recipe = Recipe(**{**usual, "seed": given.seed, **({"steps": given.steps} if given.steps else {})})
    save(*train(recipe, given.out), given.out)
    if given.name == "colpali-pages":
        save(*rank_first_pages(Recipe(steps=120, peak=1e-3, seed=given.seed), given.out), given.out)


if __name__ == "__main__":
    main()
