"""The two tables of COCO-SM, ``report`` and ``reduced``: the seed's columns, order and rounding."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from tasks.metrics.crosslingual import by_language, over_languages, spread

COLUMNS = (
    *("t2i.recall@1", "t2i.recall@5", "t2i.recall@10"),
    *("i2t.recall@1", "i2t.recall@5", "i2t.recall@10"),
    *("t2i.ndcg@20", "i2t.ndcg@20"),
)
# a column's name -> the direction and metric that it shows
SHOWS: dict[str, tuple[str, str]] = {
    column: (column[:3], column[4:].replace("recall@", "R@").replace("ndcg@", "consistency_nDCG@"))
    for column in COLUMNS
}
LANGUAGES = (
    *("en", "ar", "de", "fr", "he", "hi", "hy", "id", "it", "ja", "ko"),
    *("fa", "pl", "pt", "ru", "es", "th", "tr", "uk", "vi", "zh"),
)

Values: TypeAlias = Mapping[tuple[str, str], Mapping[str, float]]  # (language, translator) -> column -> value


def report(values: Values, translators: Sequence[str]) -> str:
    """One row per language and translator, as CSV with 3 decimals.

    Rows are sorted by language. Translators of one language come in the order that the seed's sort left them in:
    pandas' quicksort, which is not stable, over the languages in the order of evaluation.

    Args:
        values: Every language by every translator.
        translators: In the order of evaluation (``google``, ``bing``, ``nllb``).
    """
    evaluated = _evaluated(values, translators)
    names = np.array([language for language, _ in evaluated], dtype=object)
    rows = [evaluated[i] for i in np.argsort(names, kind="quicksort")]
    lines = [[row[0], *(f"{values[row][column]:.3f}" for column in COLUMNS), row[1]] for row in rows]
    return _csv([["language", *COLUMNS, "meta"], *lines])


def reduced(values: Values, translators: Sequence[str]) -> str:
    """Means over translators per language, then ``all`` and each translator as ``mean ± sd``, as CSV.

    The standard deviation is over languages, with n - 1, English included, as the seed has it.

    Args:
        values: Every language by every translator.
        translators: In the order of evaluation.
    """
    columns = {column: {row: values[row][column] for row in _evaluated(values, translators)} for column in COLUMNS}
    means = {column: by_language(figures) for column, figures in columns.items()}
    lines = [[language, *(f"{means[column][language]:.3f}" for column in COLUMNS)] for language in means[COLUMNS[0]]]
    lines.append(["all", *(str(over_languages(columns[column])) for column in COLUMNS)])
    for translator in translators:
        mine = {
            column: np.array([value for (_, by), value in figures.items() if by == translator])
            for column, figures in columns.items()
        }
        lines.append([translator, *(str(spread(mine[column])) for column in COLUMNS)])
    return _csv([["language", *COLUMNS], *lines])


def _evaluated(values: Values, translators: Sequence[str]) -> list[tuple[str, str]]:
    """The rows in the seed's order of evaluation: translator by translator, its languages first, others sorted."""
    present = {language for language, _ in values}
    languages = [*(name for name in LANGUAGES if name in present), *sorted(present - set(LANGUAGES))]
    rows = [(language, translator) for translator in translators for language in languages]
    missing = [f"{language}/{translator}" for language, translator in rows if (language, translator) not in values]
    if missing:
        raise ValueError(f"the tables need every language by every translator; missing {', '.join(missing)}")
    return rows


def _csv(rows: list[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
