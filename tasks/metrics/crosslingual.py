"""Consistency across languages, means over languages and translators, and eta squared of both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from capim.tasks.metrics.metric import FRACTION, RETRIEVAL, Metric, stored_values

Figures: TypeAlias = Mapping[tuple[str, str], float]  # (language, translator) -> one metric's value

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
        directions=RETRIEVAL,
        values=lambda o, _: stored_values(o, column, f": {name} needs captions in the reference language"),
        place="none",
        needs="reference_ndcg",
        **FRACTION,
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


class EtaSquared(NamedTuple):
    """Eta squared of languages and of translators, and the residual, for one metric; they add up to 1.

    They are the sums of squares of the language means, of the translator means and of the rest, divided by the total:
    the two-way analysis of variance without replication. They describe this table and do not estimate variance
    components: pure noise gives every source a share (:func:`noise_eta_squared`).
    """

    language: float
    translator: float
    residual: float


def noise_eta_squared(n_languages: int, n_translators: int) -> EtaSquared:
    """Return the eta squared expected from pure noise: the shares of the degrees of freedom.

    Examples:
        COCO-SM without English: 20 languages by 3 translators.

        >>> [round(share, 3) for share in noise_eta_squared(20, 3)]
        [0.322, 0.034, 0.644]
    """
    degrees = n_languages - 1, n_translators - 1, (n_languages - 1) * (n_translators - 1)
    return EtaSquared(*(each / (n_languages * n_translators - 1) for each in degrees))


def eta_squared(figures: Figures) -> EtaSquared:
    """Return eta squared of languages and of translators, and the residual.

    Args:
        figures: Results for every pair of language and translator. Omit English, which no system translated.

    Raises:
        ValueError: If a pair is missing, if there are fewer than two languages or translators, or if all values are
            equal.

    Examples:
        Languages differ by 0.2, translators by 0.1, and nothing else.

        >>> shares = eta_squared({("a", "x"): 0.1, ("a", "y"): 0.2, ("b", "x"): 0.3, ("b", "y"): 0.4})
        >>> [round(share, 3) for share in shares]
        [0.8, 0.2, 0.0]
    """
    languages = sorted({language for language, _ in figures})
    translators = sorted({translator for _, translator in figures})
    missing = [f"{l}/{t}" for l in languages for t in translators if (l, t) not in figures]  # noqa: E741
    if missing or len(languages) < 2 or len(translators) < 2:
        raise ValueError(
            f"eta squared needs at least 2 languages by 2 translators without gaps, got {len(languages)} by "
            f"{len(translators)}" + (f"; missing {', '.join(missing)}" if missing else "")
        )
    table = np.array([[figures[language, translator] for translator in translators] for language in languages])
    centred = table - table.mean()
    of_language, of_translator = centred.mean(axis=1), centred.mean(axis=0)
    total = float((centred**2).sum())
    if total == 0:
        raise ValueError("eta squared needs values that vary; all are equal")
    language = float(len(translators) * (of_language**2).sum()) / total
    translator = float(len(languages) * (of_translator**2).sum()) / total
    residual = float(((centred - of_language[:, None] - of_translator) ** 2).sum()) / total
    return EtaSquared(language, translator, residual)
