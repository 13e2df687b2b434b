"""Score a tiny model on scenes and pages that it was not trained on: ``python -m tests.tiny_models.exam FOLDER …``.

The values of README.md were first made without capim's encoders, scores and metrics, so that a test compares the two.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from statistics import fmean
from typing import Any

from PIL.Image import Image

from capim.store.schema import texts
from capim.store.types import Corpus, Embeddings
from capim.store.vectors import Ragged
from capim.tasks.corpora.images.decode import decode_image
from capim.tasks.corpora.readers.pages import read_pages
from capim.tasks.corpora.readers.shapes import read_shapes, read_shapes_multilingual, read_shapes_winoground
from capim.tasks.encoders import encode_captions, encode_images, entry_of, load_encoder
from capim.tasks.encoders.encoder import Encoder, concatenate
from capim.tasks.metrics import metrics_of
from capim.tasks.ranking.evaluate import evaluate
from capim.tasks.ranking.protocols import select_protocols
from tests.benchmarks.made import windows

PARTS: dict[str, tuple[Callable[[int], Corpus], tuple[str, ...]]] = {
    "scenes": (lambda n: read_shapes(n_scenes=n), ("t2i/all", "t2i/first", "i2t/any")),
    "languages": (lambda n: read_shapes_multilingual(n_scenes=n), ("t2i/*/*",)),
    "quadruples": (lambda n: read_shapes_winoground(n_quadruples=n), ("winoground/*",)),
    "pages": (lambda n: read_pages(n_reports=n // 10), ("t2i/judged/*",)),
}
"""A corpus of a size, and its protocols."""
_BLOCK = 128


def examine(folder: Path, parts: Iterable[str] = PARTS, *, n: int = 300) -> dict[str, float]:
    """Return values by ``PROTOCOL METRIC``, of a language the mean over its translators; a tie counts as wrong."""
    spec = entry_of(str(folder)).spec
    plain = {"caption_template": "{caption}"} if spec.vectors == "multi" else {}
    encoder = load_encoder(replace(spec, options=plain))
    values: dict[str, list[float]] = defaultdict(list)
    for part in parts:
        corpus, images, captions = _read(part, n)
        sides = {"images": _vectors(encoder, encode_images, images)}
        sides["captions"] = _vectors(encoder, encode_captions, captions)
        protocols = select_protocols(corpus, PARTS[part][1], vectors=spec.vectors)
        for id_, outcomes in evaluate(corpus, protocols, **sides).items():
            name = id_.rpartition("/")[0] if outcomes.protocol.is_of_language else id_
            for metric in metrics_of(outcomes):
                values[f"{name} {metric.name}"].append(metric.value(outcomes, "lost"))
    return {name: fmean(each) for name, each in values.items()}


@cache
def _read(part: str, n: int) -> tuple[Corpus, list[Image], list[str]]:
    """Return a corpus with its images and captions, kept for the next model."""
    corpus: Any = PARTS[part][0](n)
    pictures = [decode_image(corpus.source.read(key)) for key in texts(corpus.images["key"])]
    return corpus, pictures, texts(corpus.captions["text"])


def _vectors(encoder: Encoder, encode: Callable[[Encoder, Sequence[Any]], Embeddings], items: Sequence[Any]) -> Any:
    """Return a matrix, or what yields blocks of multi-vectors."""
    starts = range(0, len(items), _BLOCK)
    found = concatenate([encode(encoder, items[start : start + _BLOCK]) for start in starts])
    if found.offsets is None:
        return found.values
    return partial(windows, [*Ragged.from_counts(found.values, found.counts)])


def main() -> None:
    """Write each folder's values, in percent, as one JSON line."""
    for folder in map(Path, sys.argv[1:]):
        values = {name: round(100 * value, 1) for name, value in examine(folder).items()}
        sys.stdout.write(json.dumps({"folder": folder.name} | values, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
