"""Hits corrected by a random sample of judged misses: a two-stage sample of images and of their misses.

The corrected share adds to the hits the fraction of misses that were judged correct (Cochran 1977, Sampling
Techniques, chapter 12). Per-query values with this mean and with the error of both stages can be used like any other
mean: clustered by image, next to other results, in differences of two encoders that share judgements
(Angelopoulos et al. 2023, Prediction-powered inference, has the same estimator).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def corrected_values(
    hits: NDArray[np.float64], missed: NDArray[np.bool_], right: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return values per query with the corrected share as their mean, shape ``(n_queries,)``.

    A miss counts as the fraction of judged misses that are correct. A judged miss also adds its distance from that
    fraction, times the number of misses per judged miss.

    Args:
        hits: Hit of each query, 0..1; 0 for a miss.
        missed: True for queries that are misses; a random sample of them was judged.
        right: For a judged miss, 1 if the first item is correct, else 0; NaN for the other queries.

    Examples:
        Two of four misses were judged and one is correct, so two of the four count as hits.

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
