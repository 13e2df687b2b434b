"""Score a tiny model on scenes and pages that it was not trained on, through the public loaders of its format.

    python -m tests.tiny_models.exam FOLDER …

The figures stand in README.md. They are made without capim's own encoders, scores and metrics, so that a test can
hold the one against the other.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from capim.store.schema import texts
from capim.store.types import Corpus
from capim.tasks.corpora.images.decode import decode_image
from capim.tasks.corpora.readers.pages import read_pages
from capim.tasks.corpora.readers.shapes import read_shapes, read_shapes_multilingual, read_shapes_winoground

Scores: TypeAlias = NDArray[np.float32]
Scorer: TypeAlias = Callable[[Sequence[Image.Image], Sequence[str]], Scores]  # -> (n_captions, n_images)

_BLOCK = 128


def examine(score: Scorer, *, n_scenes: int = 300) -> dict[str, float]:
    """Shares 0..1: retrieval both ways, R@1 per language, Winoground group score per kind of swap, nDCG@10 of pages.

    A tie counts as wrong throughout.
    """
    figures = examine_scenes(score, n_scenes=n_scenes)
    figures |= _languages(score, *_read(read_shapes_multilingual, n_scenes=n_scenes))
    figures |= _quadruples(score, *_read(read_shapes_winoground, n_quadruples=n_scenes))
    return figures | examine_pages(score, n_reports=max(1, n_scenes // 10))


def examine_scenes(score: Scorer, *, n_scenes: int) -> dict[str, float]:
    """Shares 0..1: retrieval both ways."""
    return _retrieval(score, *_read(read_shapes, n_scenes=n_scenes))


def examine_pages(score: Scorer, *, n_reports: int = 30) -> dict[str, float]:
    """Shares 0..1: nDCG@10 of pages, per language."""
    return _judged(score, *_read(read_pages, n_reports=n_reports))


def clip_scorer(folder: Path) -> Scorer:
    """Cosine by transformers' ``AutoModel`` and ``AutoProcessor``."""
    import torch
    from transformers import AutoModel, AutoProcessor

    model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    processor = AutoProcessor.from_pretrained(folder)

    @torch.inference_mode()
    def score(images: Sequence[Image.Image], captions: Sequence[str]) -> Scores:
        seen = model.get_image_features(**processor(images=list(images), return_tensors="pt")).pooler_output
        text = processor(text=list(captions), return_tensors="pt", padding=True, truncation=True)
        read = model.get_text_features(**text).pooler_output
        unit = torch.nn.functional.normalize
        scores: Scores = (unit(read, dim=-1) @ unit(seen, dim=-1).T).numpy()
        return scores

    return score


def colpali_scorer(folder: Path) -> Scorer:
    """MaxSim by colpali_engine's ``ColPali`` and ``ColPaliProcessor``."""
    import torch
    from colpali_engine.models import ColPali, ColPaliProcessor

    model = ColPali.from_pretrained(folder, dtype=torch.float32).eval()
    processor = ColPaliProcessor.from_pretrained(folder)

    @torch.inference_mode()
    def score(images: Sequence[Image.Image], captions: Sequence[str]) -> Scores:
        seen: list[torch.Tensor] = []
        for start in range(0, len(images), _BLOCK):
            batch = processor.process_images(list(images[start : start + _BLOCK]))
            batch.pop("labels", None)
            seen.extend(model(**batch, logits_to_keep=1))
        read: list[torch.Tensor] = []
        for start in range(0, len(captions), _BLOCK):
            batch = processor.process_texts(list(captions[start : start + _BLOCK]))
            vectors = model(**batch, token_type_ids=torch.zeros_like(batch["input_ids"]), logits_to_keep=1)
            read.extend(v[mask.bool()] for v, mask in zip(vectors, batch["attention_mask"], strict=True))
        scores: Scores = processor.score_multi_vector(read, seen, device="cpu").numpy()
        return scores

    return score


def scorer_of(folder: Path) -> Scorer:
    """The scorer that the folder's ``config.json`` calls for."""
    kind = json.loads((folder / "config.json").read_text())["model_type"]
    return clip_scorer(folder) if kind == "clip" else colpali_scorer(folder)


@cache
def _read(reader: Callable[..., Corpus], **size: int) -> tuple[Corpus, list[Image.Image], list[str]]:
    """A corpus with its images and captions, kept for the next model."""
    corpus = reader(**size)
    if corpus.source is None:
        raise ValueError(f"corpus {corpus.name!r} has no images to read")
    pictures = [decode_image(corpus.source.read(key)) for key in texts(corpus.images["key"])]
    return corpus, pictures, texts(corpus.captions["text"])


def _retrieval(score: Scorer, corpus: Corpus, images: list[Image.Image], captions: list[str]) -> dict[str, float]:
    scores = score(images, captions)
    image_of = np.arange(len(scores)) // 5
    own = scores[np.arange(len(scores)), image_of][:, None]
    rank = 1 + ((scores >= own).sum(axis=1) - 1)
    per_image = scores.T.reshape(scores.shape[1], -1, 5)  # (image, image of the caption, ordinal)
    best_own = per_image[np.arange(len(per_image)), np.arange(len(per_image))].max(axis=1)
    others = np.where(np.eye(len(per_image), dtype=bool)[:, :, None], -np.inf, per_image).max(axis=(1, 2))
    return {
        "t2i/all R@1": float(np.mean(rank == 1)),
        "t2i/all R@5": float(np.mean(rank <= 5)),
        "t2i/first R@1": float(np.mean(rank[::5] == 1)),
        "i2t/any R@1": float(np.mean(best_own > others)),
    }


def _languages(score: Scorer, corpus: Corpus, images: list[Image.Image], captions: list[str]) -> dict[str, float]:
    scores = score(images, captions)
    n = scores.shape[1]
    own = scores[np.arange(len(scores)), np.arange(len(scores)) % n][:, None]
    first = (scores >= own).sum(axis=1) == 1
    language = np.array(corpus.captions["language"].to_pylist())
    return {f"t2i/{code} R@1": float(first[language == code].mean()) for code in dict.fromkeys(language.tolist())}


def _quadruples(score: Scorer, corpus: Corpus, images: list[Image.Image], captions: list[str]) -> dict[str, float]:
    scores = score(images, captions)
    even = np.arange(0, len(scores), 2)
    c0i0, c0i1, c1i0, c1i1 = (scores[even + a, even + b] for a in (0, 1) for b in (0, 1))
    text = (c0i0 > c1i0) & (c1i1 > c0i1)
    image = (c0i0 > c0i1) & (c1i1 > c1i0)
    tags_of = cast("list[list[str]]", corpus.quadruples["tags"].to_pylist())
    tag = np.array([tags[0] for tags in tags_of])
    figures = {}
    for kind in ("object", "attribute"):
        for name, won in (("text", text), ("image", image), ("group", text & image)):
            figures[f"winoground {kind} {name}"] = float(won[tag == kind].mean())
    return figures


def _judged(score: Scorer, corpus: Corpus, images: list[Image.Image], captions: list[str]) -> dict[str, float]:
    scores = score(images, captions)
    pages, queries = ({row: n for n, row in enumerate(t["id"].to_pylist())} for t in (corpus.images, corpus.captions))
    grades = np.zeros(scores.shape)
    for row in corpus.relevance.to_pylist():
        grades[queries[row["query_id"]], pages[row["item_id"]]] = row["grade"]
    discount = 1 / np.log2(2 + np.arange(min(10, len(pages))))
    # by score, and of equal ones the worse page first
    ranked, ideal = (
        np.take_along_axis(grades, np.lexsort((grades, -by)), axis=1)[:, : len(discount)] @ discount
        for by in (scores, grades)
    )
    language = np.array(corpus.captions["language"].to_pylist())
    own = {f"t2i/judged/{code}": language == code for code in dict.fromkeys(language.tolist())}
    return {f"{name} nDCG@10": float((ranked / ideal)[which].mean()) for name, which in own.items()}


def main() -> None:
    """Write each folder's figures, in percent, as one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    for folder in parser.parse_args().folders:
        figures = {name: round(100 * value, 1) for name, value in examine(scorer_of(folder)).items()}
        sys.stdout.write(json.dumps({"folder": folder.name} | figures, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
