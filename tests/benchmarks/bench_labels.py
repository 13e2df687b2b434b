"""Labelled images at the size of ImageNet's validation set: classification.

50,000 images, 1,000 classes of 80 prompts, 512 dimensions; vectors are synthetic, near their class.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from capim.tasks.corpora.build import CaptionRow, ImageRow, RelevanceRow, build_corpus
from capim.tasks.metrics import METRICS
from capim.tasks.ranking.evaluate import evaluate
from capim.tasks.ranking.protocols import select_protocols
from tests.benchmarks.made import unit
from tests.benchmarks.rows import Row, fastest

DIM = 512
Matrix = NDArray[np.float32]


def run(quick: bool = False) -> list[Row]:
    """Rows of RESULTS.md; ``quick`` has a twentieth of the images and a tenth of the classes and prompts."""
    n_images, n_classes, n_prompts = (2_500, 100, 8) if quick else (50_000, 1_000, 80)
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((n_classes, DIM), dtype=np.float32)
    label = np.arange(n_images) % n_classes
    images = unit(centres[label] + 4 * rng.standard_normal((n_images, DIM), dtype=np.float32))
    noise = rng.standard_normal((n_classes * n_prompts, DIM), dtype=np.float32)
    prompts = unit(np.repeat(centres, n_prompts, axis=0) + 3 * noise)
    size = f"{n_images:,} x {n_classes:,} x {n_prompts} x {DIM}"
    return [*_classification(images, prompts, label, n_prompts, size)]


def _classification(images: Matrix, prompts: Matrix, label: NDArray[np.int64], n: int, size: str) -> Iterator[Row]:
    """Zero-shot classification of a corpus, ensembles included, beside the mean and the product alone."""
    corpus = build_corpus(
        "labels",
        [ImageRow(str(at)) for at in range(len(images))],
        (
            CaptionRow(f"{at // n}#{at % n}", None, "x", ordinal=at % n, query_group=str(at // n))
            for at in range(len(prompts))
        ),
        source=None,
        relevance=(RelevanceRow("label", "i2t", str(at), f"{of}#0") for at, of in enumerate(label)),
    )
    protocols = select_protocols(corpus, ["i2t/class"])
    seconds = fastest(lambda: evaluate(corpus, protocols, images=images, captions=prompts), 2)

    def bare() -> torch.Tensor:
        means = torch.from_numpy(prompts).reshape(len(prompts) // n, n, -1).mean(dim=1)
        return torch.from_numpy(images) @ torch.nn.functional.normalize(means).T

    product = fastest(bare, 2)
    outcomes = evaluate(corpus, protocols, images=images, captions=prompts)["i2t/class"]
    note = f"{size}; acc@1 {METRICS['R@1'].value(outcomes):.3f}; {seconds:.2f} s, bare {product:.2f} s"
    yield Row("labels: zero-shot classification relative to the bare mean and product", seconds / product, "times",
              "<= 2", "torch float32 product", note)  # fmt: skip
