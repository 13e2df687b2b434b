"""Labelled images at the size of ImageNet's validation set: zero-shot classification, ensembles included.

50,000 images, 1,000 classes of 80 prompts, 512 dimensions; vectors are synthetic, near their class.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import torch

from capim.tasks.corpora.build import CaptionRow, ImageRow, RelevanceRow, build_corpus
from capim.tasks.metrics import METRICS
from capim.tasks.ranking.evaluate import evaluate
from capim.tasks.ranking.protocols import select_protocols
from tests.benchmarks.made import unit
from tests.benchmarks.rows import Row, fastest

DIM = 512


def run(quick: bool = False) -> list[Row]:
    """Rows of RESULTS.md; ``quick`` has a twentieth of the images and a tenth of the classes and prompts."""
    n_images, n_classes, n_prompts = (2_500, 100, 8) if quick else (50_000, 1_000, 80)
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((n_classes, DIM), dtype=np.float32)
    label = np.arange(n_images) % n_classes
    images = unit(centres[label] + 4 * rng.standard_normal((n_images, DIM), dtype=np.float32))
    noise = rng.standard_normal((n_classes * n_prompts, DIM), dtype=np.float32)
    prompts = unit(np.repeat(centres, n_prompts, axis=0) + 3 * noise)
    corpus = build_corpus(
        "labels",
        [ImageRow(str(at)) for at in range(n_images)],
        (
            CaptionRow(f"{of}#{k}", None, "x", ordinal=k, query_group=str(of))
            for of, k in product(range(n_classes), range(n_prompts))
        ),
        source=None,
        relevance=(RelevanceRow("label", "i2t", str(at), f"{of}#0") for at, of in enumerate(label)),
    )
    protocols = select_protocols(corpus, ["i2t/class"])
    seconds = fastest(lambda: evaluate(corpus, protocols, images=images, captions=prompts), 2)

    def bare() -> torch.Tensor:
        means = torch.from_numpy(prompts).reshape(n_classes, n_prompts, -1).mean(dim=1)
        return torch.from_numpy(images) @ torch.nn.functional.normalize(means).T

    of_product = fastest(bare, 2)
    outcomes = evaluate(corpus, protocols, images=images, captions=prompts)["i2t/class"]
    size = f"{n_images:,} x {n_classes:,} x {n_prompts} x {DIM}"
    note = f"{size}; acc@1 {METRICS['R@1'].value(outcomes):.3f}; {seconds:.2f} s, bare {of_product:.2f} s"
    name = "labels: zero-shot classification relative to the bare mean and product"
    return [Row(name, seconds / of_product, "times", "<= 2", "torch float32 product", note)]
