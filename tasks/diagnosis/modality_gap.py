"""The modality gap: image and caption vectors occupy different regions (Liang et al., Mind the Gap, NeurIPS 2022)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from capim.tasks.diagnosis.analysis_input import AnalysisInput
from capim.tasks.diagnosis.slices import Slice
from capim.tasks.diagnosis.vectors import SingleVectors
from capim.tasks.statistics.bootstrap import Interval

NOT_SAMPLED = "no interval: computed from all stored vectors, nothing was sampled"


def modality_gap(data: AnalysisInput) -> Iterator[Slice]:
    """Distance between the mean image and the mean caption, and mean cosines; single-vector encoders only."""
    for encoder in data.encoders:
        vectors = data.vectors(encoder)
        if not isinstance(vectors, SingleVectors):
            continue
        images, captions = vectors.images, vectors.captions
        figures = {
            "distance of the centres": centre_distance(images, captions),
            "mean cosine of two images": mean_cosine(images),
            "mean cosine of two captions": mean_cosine(captions),
            "mean cosine of an image and a caption": float(_centre(images) @ _centre(captions)),
        }
        for name, value in figures.items():
            interval = Interval(value=value, reason=NOT_SAMPLED)
            yield data.slice(encoder, "gap", name, name, interval, counts=(len(captions), len(images)))


def centre_distance(images: NDArray[np.float32], captions: NDArray[np.float32]) -> float:
    """Euclidean distance between the mean image and the mean caption, 0..2 for unit vectors.

    Examples:
        >>> centre_distance(np.float32([[1, 0], [1, 0]]), np.float32([[0, 1]]))
        1.4142135623730951
    """
    return float(np.linalg.norm(_centre(images) - _centre(captions)))


def mean_cosine(vectors: NDArray[np.float32]) -> float:
    """Mean cosine of two different items; NaN for fewer than two.

    Examples:
        >>> mean_cosine(np.float32([[1, 0], [0, 1], [1, 0]]))
        0.3333333333333333
    """
    n = len(vectors)
    if n < 2:
        return float("nan")
    total = vectors.sum(axis=0, dtype=np.float64)
    own = float(np.einsum("nd,nd->", vectors, vectors, dtype=np.float64))
    return (float(total @ total) - own) / (n * (n - 1))


def _centre(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    centre: NDArray[np.float64] = vectors.mean(axis=0, dtype=np.float64)
    return centre
