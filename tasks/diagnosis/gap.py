"""The modality gap: images and captions lie in different places (Liang et al., Mind the Gap, NeurIPS 2022)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tasks.diagnosis.ablations.embedded import Single
from tasks.diagnosis.subject import Slice, Subject
from tasks.statistics.bootstrap import Interval

DETERMINED = "a property of the stored vectors: nothing was sampled"


def modality_gap(subject: Subject) -> Iterator[Slice]:
    """Distance of the two centres, and how tight each cloud is; single-vector encoders only."""
    if subject.protocol.direction != "t2i":
        return
    for encoder in subject.encoders:
        vectors = subject.embedded(encoder)
        if not isinstance(vectors, Single):
            continue
        images, captions = vectors.images.matrix, vectors.captions.matrix
        figures = {
            "distance of the centres": centre_distance(images, captions),
            "mean cosine of two images": mean_cosine(images),
            "mean cosine of two captions": mean_cosine(captions),
            "mean cosine of an image and a caption": float(_centre(images) @ _centre(captions)),
        }
        for name, value in figures.items():
            yield Slice(
                encoder=encoder,
                analysis="gap",
                feature=name,
                level_name="",
                metric=name,
                interval=Interval(value=value, reason=DETERMINED),
                n_queries=len(captions),
                n_clusters=len(images),
            )


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
