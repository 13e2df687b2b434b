"""Hits corrected by a random sample of judged misses: a two-stage sample, of images and of their misses.

The corrected share is that of the hits and, of the misses, the share that was judged right (Cochran 1977, Sampling
Techniques, chapter 12). Values per query with this mean and with the error of both stages make it a mean like any
other: over clusters of images, next to other results, in differences of two encoders that share judgements
(Angelopoulos et al. 2023, Prediction-powered inference, has the same estimator).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def corrected_values(
    hits: NDArray[np.float64], missed: NDArray[np.bool_], right: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return values per query with the corrected share as their mean, shape ``(n_queries,)``.

    A miss counts as the share of judged misses that are right; a judged one also as its distance from that share, times
    the number of misses for each that is judged.

    Args:
        hits: Of every query, 0..1; 0 of a miss.
        missed: Which queries are misses, of which a random sample was judged.
        right: Of a judged miss whether the first item is right, 0 or 1; NaN of the other queries.

    Examples:
        Of four misses two were judged, one of them right; so two of the four count as hits.

        >>> hits, right = np.array([1.0, 0, 0, 0, 0]), np.array([np.nan, 1, 0, np.nan, np.nan])
        >>> corrected_values(hits, hits == 0, right).tolist()
        [1.0, 1.5, -0.5, 0.5, 0.5]
    """
    judged = missed & ~np.isnan(right)
    if not judged.any():
        return hits if not missed.any() else np.full(len(hits), np.nan)
    share = float(right[judged].mean())
    values = np.where(missed, hits + share, hits)
    values[judged] += (right[judged] - share) * missed.sum() / judged.sum()
    return values
