"""Captions that are longer than a model reads: its figures where it read the whole caption, and where it did not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from capim.tasks.diagnosis.analysis_input import AnalysisInput
from capim.tasks.diagnosis.slice_means import QueryValues, contrast_slices, mean_slices
from capim.tasks.diagnosis.slices import Slice
from capim.tasks.scoring.protocols.layout import layout_of


def truncated_captions(data: AnalysisInput) -> Iterator[Slice]:
    """The share of queries with a truncated caption, ``R@1`` of these, of the others, and the difference.

    Every encoder truncates other captions, so every encoder is compared with itself only. A query image is among them
    if one of its captions is truncated. Encoders that truncate no caption have no slices.
    """
    image_of = layout_of(data.corpus).caption_images
    for encoder, outcomes in data.outcomes.items():
        cut = data.truncated.get(encoder, np.zeros(len(image_of), dtype=bool))
        if data.protocol.direction == "i2t":
            cut = np.isin(np.arange(len(data.corpus.images)), image_of[cut])
        of_query = cut[data.queries.query_ords]
        if not of_query.any():
            continue
        alone = replace(data, outcomes={encoder: outcomes})
        share = QueryValues(encoder, "truncated", of_query, level_name="share")
        yield from mean_slices(alone, "truncated-captions", [share], metric="share of queries")
        every = np.ones(len(of_query), dtype=bool)
        yield from contrast_slices(alone, "truncated-captions", {"truncated": of_query}, among=every)
