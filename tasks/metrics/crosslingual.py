"""Consistency across languages as metrics, and what is concluded from figures of many languages and translators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tasks.metrics.metric import RETRIEVAL, Metric
from tasks.scoring.outcomes import Outcomes

Figures: TypeAlias = Mapping[tuple[str, str], float]  # (language, translator) -> one metric's value

# Speakers in millions, as the table of the COCO-SM seed has them
SPEAKERS: dict[str, int] = {
    "ar": 274, "hy": 4, "zh": 1118, "en": 1452, "fr": 274, "de": 134, "he": 9, "hi": 602, "id": 199, "it": 67,
    "ja": 125, "ko": 81, "fa": 77, "pl": 41, "pt": 257, "ru": 258, "es": 548, "th": 61, "tr": 88, "uk": 41, "vi": 85,
}  # fmt: skip


def _reference(name: str, title: str, of: Callable[[Outcomes], NDArray[np.float64] | None]) -> Metric:
    def per_query(outcomes: Outcomes) -> NDArray[np.float64]:
        values = of(outcomes)
        if values is None:
            raise ValueError(
                f"protocol {outcomes.protocol.id!r}: {name} needs the reference language in the corpus and in the run"
            )
        return values

    return Metric(
        name=name,
        title=title,
        directions=RETRIEVAL,
        per_query=per_query,
        per_query_low=per_query,
        per_query_high=per_query,
        reference=True,
    )


CONSISTENCY_NDCG = _reference(
    "consistency_nDCG@20", "nDCG@20 against the reference language's list (COCO-SM)", lambda o: o.reference_ndcg
)
CONSISTENCY_RBO = _reference(
    "consistency_RBO", "Rank-biased overlap with the reference language's list, p = 0.9", lambda o: o.reference_rbo
)


class Spread(NamedTuple):
    """A mean and its standard deviation (n - 1; NaN for one value)."""

    mean: float
    deviation: float
    n: int

    def __str__(self) -> str:
        return f"{self.mean:.3f} ± {self.deviation:.3f}"


def spread(values: NDArray[np.float64]) -> Spread:
    """Mean and standard deviation with n - 1.

    Examples:
        >>> str(spread(np.array([0.1, 0.2, 0.3])))
        '0.200 ± 0.100'
    """
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")
    return Spread(float(np.mean(values)), deviation, len(values))


def over_languages(figures: Figures, *, without: frozenset[str] = frozenset()) -> Spread:
    """Over languages, each being the mean of its translators.

    Args:
        figures: One metric's values.
        without: Languages to leave out. The published "Mean" of COCO-SM includes English; show it also without.

    Examples:
        >>> figures = {("en", "google"): 0.4, ("de", "google"): 0.3, ("de", "bing"): 0.1}
        >>> str(over_languages(figures)), over_languages(figures, without=frozenset({"en"})).mean
        ('0.300 ± 0.141', 0.2)
    """
    means = [value for language, value in by_language(figures).items() if language not in without]
    return spread(np.array(means))


def by_language(figures: Figures) -> dict[str, float]:
    """Mean over translators of every language, languages sorted."""
    languages = sorted({language for language, _ in figures})
    return {name: float(np.mean([v for (language, _), v in figures.items() if language == name])) for name in languages}


def over_speakers(figures: Figures, *, without: frozenset[str] = frozenset()) -> float:
    """Mean over languages weighted by their speakers.

    Raises:
        ValueError: A language whose speakers are not known.

    Examples:
        German has 134, French 274 million.

        >>> round(over_speakers({("de", "google"): 0.0, ("fr", "google"): 1.0}), 4)
        0.6716
    """
    means = {language: value for language, value in by_language(figures).items() if language not in without}
    unknown = sorted(set(means) - set(SPEAKERS))
    if unknown:
        raise ValueError(f"number of speakers unknown for {', '.join(unknown)}; known: {', '.join(sorted(SPEAKERS))}")
    weights = [SPEAKERS[language] for language in means]
    return float(np.average(list(means.values()), weights=weights))


class VarianceSplit(NamedTuple):
    """Shares of the variance of one metric over languages and translators; they add up to 1.

    From the two-way analysis of variance without replication: sums of squares of the language means, of the translator
    means, and what both leave over.
    """

    language: float
    translator: float
    residual: float


def variance_split(figures: Figures) -> VarianceSplit:
    """How much of the variance lies between languages, between translators, and in their combination.

    Args:
        figures: Every language by every translator. English, which no system translated, belongs left out.

    Raises:
        ValueError: A combination is missing, there are fewer than two languages or translators, or nothing varies.

    Examples:
        Languages differ by 0.2, translators by 0.1, and nothing else.

        >>> split = variance_split({("a", "x"): 0.1, ("a", "y"): 0.2, ("b", "x"): 0.3, ("b", "y"): 0.4})
        >>> [round(share, 3) for share in split]
        [0.8, 0.2, 0.0]
    """
    languages = sorted({language for language, _ in figures})
    translators = sorted({translator for _, translator in figures})
    missing = [f"{l}/{t}" for l in languages for t in translators if (l, t) not in figures]  # noqa: E741
    if missing or len(languages) < 2 or len(translators) < 2:
        raise ValueError(
            f"a variance split needs at least 2 languages by 2 translators without gaps, got {len(languages)} by "
            f"{len(translators)}" + (f"; missing {', '.join(missing)}" if missing else "")
        )
    table = np.array([[figures[language, translator] for translator in translators] for language in languages])
    centred = table - table.mean()
    of_language, of_translator = centred.mean(axis=1), centred.mean(axis=0)
    total = float((centred**2).sum())
    if total == 0:
        raise ValueError("a variance split needs values that vary; all are equal")
    language = float(len(translators) * (of_language**2).sum()) / total
    translator = float(len(languages) * (of_translator**2).sum()) / total
    residual = float(((centred - of_language[:, None] - of_translator) ** 2).sum()) / total
    return VarianceSplit(language, translator, residual)
