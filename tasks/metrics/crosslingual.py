"""Consistency across languages, and the weights of means over languages and translators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from capim.tasks.metrics.metric import OF_SEARCHES, Metric, stored_values

# Speakers in millions, from the table of the COCO-SM seed
SPEAKERS: dict[str, int] = {
    "ar": 274, "hy": 4, "zh": 1118, "en": 1452, "fr": 274, "de": 134, "he": 9, "hi": 602, "id": 199, "it": 67,
    "ja": 125, "ko": 81, "fa": 77, "pl": 41, "pt": 257, "ru": 258, "es": 548, "th": 61, "tr": 88, "uk": 41, "vi": 85,
}  # fmt: skip


def _reference(name: str, title: str, column: str) -> Metric:
    return Metric(
        name=name,
        heading=name.removeprefix("consistency_"),
        title=title,
        values=lambda o, _: stored_values(o, column, f": {name} needs captions in the reference language"),
        needs="reference_ndcg",
        **OF_SEARCHES,
    )


CONSISTENCY_NDCG = _reference(
    "consistency_nDCG@20", "nDCG@20 against the reference language's list (COCO-SM; MaxSim per token)", "reference_ndcg"
)
CONSISTENCY_RBO = _reference(
    "consistency_RBO", "Rank-biased overlap with the reference language's list, p = 0.9", "reference_rbo"
)


def language_weights(
    parts: Sequence[tuple[str, str]],
    *,
    translator: str | None = None,
    without: str | None = None,
    speakers: bool = False,
) -> NDArray[np.float64]:
    """Return the weight of each part in a mean over languages (sum 1); translators share their language's weight.

    Args:
        without: A language to leave out. COCO-SM's published "Mean" includes English; compare with the mean without it.
        speakers: Weight languages by their speakers instead of equally.

    Raises:
        ValueError: If no part is left, or if the number of speakers of a language is unknown.

    Examples:
        German by two translators weighs as much as English by one; weighted by 134 and 1,452 million speakers, less.

        >>> parts = [("en", "google"), ("de", "google"), ("de", "bing")]
        >>> language_weights(parts).tolist(), language_weights(parts, without="en").tolist()
        ([0.5, 0.25, 0.25], [0.0, 0.5, 0.5])
        >>> language_weights(parts, speakers=True).round(4).tolist()
        [0.9155, 0.0422, 0.0422]
    """
    kept = [language != without and translator in (None, by) for language, by in parts]
    sizes = Counter(language for (language, _), keep in zip(parts, kept, strict=True) if keep)
    if not sizes:
        raise ValueError(f"no language is left of {', '.join('/'.join(part) for part in parts) or 'none'}")
    unknown = sorted(set(sizes) - set(SPEAKERS)) if speakers else []
    if unknown:
        raise ValueError(f"number of speakers unknown for {', '.join(unknown)}; known: {', '.join(sorted(SPEAKERS))}")
    total = sum(SPEAKERS[language] for language in sizes) if speakers else len(sizes)
    return np.array(
        [
            (SPEAKERS[language] if speakers else 1) / (total * sizes[language]) if keep else 0.0
            for (language, _), keep in zip(parts, kept, strict=True)
        ]
    )
