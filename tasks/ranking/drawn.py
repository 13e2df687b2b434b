"""The clusters that are resampled: the drawn images, queries or quadruples of a corpus, and how they are grouped."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from capim.store.types import Corpus
from capim.tasks.protocols import Protocol
from capim.tasks.ranking.layout import same_photographs
from capim.tasks.ranking.protocols import build_task
from capim.tasks.statistics.clusters import SamplingFrame


def drawn_clusters(corpus: Corpus, protocol: Protocol) -> SamplingFrame:
    """Return the clusters to resample: photographs, queries (judged documents) or quadruples, as named in outcomes."""
    if protocol.kind == "judged":
        return len(corpus.captions)
    if protocol.metrics:  # few images are queries
        return _photographs_among(corpus, np.unique(build_task(corpus, protocol).clusters))
    if protocol.direction == "quadruples":
        return len(corpus.quadruples)
    every = np.arange(len(corpus.images))
    return _photographs_among(corpus, every) if protocol.direction == "pairs" else drawn_images(corpus)


def drawn_images(corpus: Corpus) -> SamplingFrame:
    """Return the photographs of images that may have queries: images with a caption, and queries of a ground truth.

    Other images are only searched: ten million of them next to COCO's 5,000 must not be drawn 10,000 times.
    """
    asked = corpus.relevance.filter(pc.field("direction") == "i2t")["query_id"]
    described = pc.unique(pa.chunked_array([*corpus.captions["image_id"].chunks, *asked.chunks], pa.string()))
    drawn = pc.index_in(described, value_set=corpus.images["id"].combine_chunks()).drop_null().to_numpy()
    return _photographs_among(corpus, np.sort(drawn) if len(drawn) else np.arange(len(corpus.images)))


def _photographs_among(corpus: Corpus, drawn: NDArray[np.integer]) -> SamplingFrame:
    """Return the index of each image's photograph among those of some images, given by ascending ords."""
    shown = corpus.images.select(["key", "sha"]).take(drawn)
    unit = np.unique(same_photographs(shown), return_inverse=True)[1] if _repeats(shown) else np.arange(len(drawn))
    if len(drawn) == len(corpus.images) == unit.max(initial=-1) + 1:
        return len(drawn)
    frame = np.full(int(drawn.max()) + 1, -1, dtype=np.int64)
    frame[drawn] = unit
    return frame


def _repeats(images: pa.Table) -> bool:
    """True if some of the images may show one photograph; uses Arrow, because it is called for every result."""
    columns = images["key"], images["sha"].drop_null()
    distinct = all(len(pc.unique(column)) == len(column) for column in columns)
    return not distinct or bool(pc.any(pc.match_substring(images["key"], "@")).as_py())  # perhaps boxes
