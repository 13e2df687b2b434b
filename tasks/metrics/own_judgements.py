"""R@1 with the judgements of a user: items that are right although the corpus does not say so count as relevant."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from capim.store.errors import RequestError, did_you_mean
from capim.store.exchange.row_files import read_judgements
from capim.store.schema import texts
from capim.store.types import Corpus
from capim.tasks.metrics.custom import CustomMetric, QueryOutcomes


def with_judgements(file: str | Path) -> CustomMetric:
    """The share of queries whose first item is relevant, or is right by a line of the file; called ``FILE:R@1``.

    A judgement holds in both directions: a caption that is right for an image makes the image right for the caption.
    Corpora without a line in the file are left out.

    Raises:
        RequestError: The file cannot be read, or when computed: an id is not in the corpus.
    """
    path = Path(file)
    judgements = read_judgements(path)

    def found_first(outcomes: QueryOutcomes, corpus: Corpus) -> NDArray[np.float64]:
        pairs = {
            (each.query_id, each.item_id) if each.direction == "t2i" else (each.item_id, each.query_id)
            for each in judgements
            if each.corpus == corpus.name
        }
        if not pairs or outcomes.protocol.direction not in ("t2i", "i2t") or outcomes.top_ords is None:
            return np.full(len(outcomes), np.nan)
        captions, images = set(texts(corpus.captions["id"])), set(texts(corpus.images["id"]))
        for known, ids in ((captions, {caption for caption, _ in pairs}), (images, {image for _, image in pairs})):
            if strange := sorted(ids - known):
                hint = did_you_mean(strange[0], known)
                raise RequestError(f"{path}: {strange[0]!r} is not in corpus {corpus.name!r}. {hint}".rstrip())
        first = outcomes.items[outcomes.top_ords[:, 0]].to_pylist()
        queries = outcomes.query_id.to_pylist()
        sides = (queries, first) if outcomes.protocol.direction == "t2i" else (first, queries)
        judged = np.array([pair in pairs for pair in zip(*sides, strict=True)], dtype=bool)
        return np.asarray((outcomes.rank_worst == 1) | judged, dtype=np.float64)

    title = f"R@1 with the judgements of {path.name}"
    return CustomMetric(name=f"{path.stem}:R@1", function=found_first, title=title, file=str(path))
