"""The files that COCO-SM's ``eval.py`` wrote, ``report`` and ``reduced``, and a third with what they leave out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from reports import format as show
from reports.exports.plain import csv_bytes
from reports.rows.languages import (
    NDCG,
    RBO,
    cross_lingual,
    deviation,
    figure,
    languages,
    mean,
    over_languages,
    translators,
)
from reports.rows.report_data import Evidence, Row

COLUMNS = (
    *((f"{d}.recall@{k}", d, f"R@{k}") for d in ("t2i", "i2t") for k in (1, 5, 10)),
    ("t2i.ndcg@20", "t2i", NDCG),
    ("i2t.ndcg@20", "i2t", NDCG),
)
SUMMARY_COLUMNS = (*COLUMNS, ("t2i.rbo", "t2i", RBO), ("i2t.rbo", "i2t", RBO))
TRANSLATORS = ("google", "bing", "nllb")  # the order that the seed evaluated in
LANGUAGES = (
    *("en", "ar", "de", "fr", "he", "hi", "hy", "id", "it", "ja", "ko"),
    *("fa", "pl", "pt", "ru", "es", "th", "tr", "uk", "vi", "zh"),
)

Line: TypeAlias = Mapping[str, str | float | None]  # ``language``, ``meta`` (the translator), a fraction per column


def coco_sm_files(evidence: Evidence, name: str) -> dict[str, bytes]:
    """``<corpus>/<encoder>.csv`` and ``_reduced.csv`` as the seed wrote them, and ``_summary.csv``.

    The summary has what the seed's tables lack: the means without the reference language, languages by their
    speakers, rank-biased overlap, and how much of the variance lies between languages and between translators.
    """
    files = {}
    for corpus in evidence.corpus_names(lambda p: cross_lingual(p) is not None):
        for encoder in evidence.encoder_names(corpus):
            lines = report(evidence, corpus, encoder)
            files[f"{corpus}/{encoder}.csv"] = csv_bytes(
                [{key: _fraction(value) for key, value in line.items()} for line in lines]
            )
            files[f"{corpus}/{encoder}_reduced.csv"] = csv_bytes(reduced(lines))
            if rows := summary(evidence, corpus, encoder):
                files[f"{corpus}/{encoder}_summary.csv"] = csv_bytes(rows)
    return files


def report(evidence: Evidence, corpus: str, encoder: str) -> list[Line]:
    """One line per language and translator, in the seed's order."""
    return [
        {"language": code, **_values(evidence, corpus, encoder, code, way), "meta": way}
        for code, way in in_seed_order(
            [(c, w) for c in languages(evidence, corpus) for w in translators(evidence, corpus, c)]
        )
    ]


def in_seed_order(parts: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Languages and translators as the seed's sort left them.

    It evaluated translator by translator and sorted by language with pandas' quicksort, which is not stable: the
    translators of one language come in an order that only the same sort of the same list gives.

    Examples:
        >>> in_seed_order([("de", "bing"), ("ar", "bing"), ("de", "google")])
        [('ar', 'bing'), ('de', 'google'), ('de', 'bing')]
    """

    def place(known: Sequence[str], name: str) -> tuple[int, str]:
        return (known.index(name) if name in known else len(known)), name

    evaluated = sorted(parts, key=lambda part: (place(TRANSLATORS, part[1]), place(LANGUAGES, part[0])))
    codes = np.array([code for code, _ in evaluated], dtype=object)
    return [evaluated[at] for at in np.argsort(codes, kind="quicksort")]


def reduced(lines: Sequence[Line]) -> list[dict[str, str]]:
    """COCO-SM's reduced table: means over translators, then over languages for all and for each translator.

    Args:
        lines: As of :func:`report`.

    Returns:
        Per language the mean over translators; ``all`` over those means; each translator over its own rows; the last
        as ``mean ± sd`` with n - 1. English is in them, as in the published table.

    Examples:
        >>> rows = [{"language": "de", "x": 0.2, "meta": "google"}, {"language": "en", "x": 0.4, "meta": "google"}]
        >>> [row["x"] for row in reduced(rows)]
        ['0.200', '0.400', '0.300 ± 0.141', '0.300 ± 0.141']
    """
    columns = [key for key in lines[0] if key not in ("language", "meta")]
    codes = sorted({str(line["language"]) for line in lines})
    ways = {str(line["meta"]) for line in lines}

    def numbers(column: str, key: str, value: str) -> list[float | None]:
        found = (line[column] for line in lines if line[key] == value)
        return [x if isinstance(x, float) else None for x in found]

    per_language = {c: {column: mean(numbers(column, "language", c)) for column in columns} for c in codes}
    rows = [{"language": c, **{column: _fraction(v) for column, v in per_language[c].items()}} for c in codes]
    groups = {"all": {column: [per_language[c][column] for c in codes] for column in columns}}
    for way in [*(w for w in TRANSLATORS if w in ways), *sorted(ways - set(TRANSLATORS))]:
        groups[way] = {column: numbers(column, "meta", way) for column in columns}
    for label, found in groups.items():
        rows.append({"language": label, **{c: _spread(found[c]) for c in columns}})
    return rows


def summary(evidence: Evidence, corpus: str, encoder: str) -> list[dict[str, str]]:
    """The stored figures over all languages, one line each: value and, where there is one, its interval."""
    rows = []
    for label, suffix, metric_suffix in over_languages(evidence, corpus):
        cells = {
            column: _with_interval(
                evidence.figures.get((corpus, f"{direction}/{suffix}", f"{metric}{metric_suffix}", encoder))
            )
            for column, direction, metric in SUMMARY_COLUMNS
        }
        if any(cells.values()):
            rows.append({"over": label, **cells})
    return rows


def _with_interval(row: Row | None) -> str:
    if row is None or row["value"] is None:
        return ""
    value = show.number(row["value"], 3)
    return (
        value
        if row["ci_low"] is None
        else f"{value} ({show.number(row['ci_low'], 3)}–{show.number(row['ci_high'], 3)})"
    )


def _values(evidence: Evidence, corpus: str, encoder: str, code: str, way: str) -> dict[str, float | None]:
    found = {
        column: figure(evidence, corpus, encoder, direction, code, way, metric) for column, direction, metric in COLUMNS
    }
    return {column: row["value"] if row is not None else None for column, row in found.items()}


def _spread(values: Sequence[float | None]) -> str:
    centre, sd = mean(values), deviation(values)
    return f"{centre:.3f} ± {sd:.3f}" if centre is not None and sd is not None else _fraction(centre)


def _fraction(value: str | float | None) -> str:
    return value if isinstance(value, str) else "" if value is None else show.number(value, 3)
