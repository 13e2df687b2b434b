"""COCO-SM's two CSV files of every encoder, ``report`` and ``reduced``, and a summary that they lack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from capim.reports import format as show
from capim.reports.exports.plain import csv_bytes
from capim.reports.rows.languages import (
    MEASURES,
    NDCG,
    RBO,
    cross_lingual,
    languages,
    mean,
    mean_text,
    noise,
    over_languages,
    translators,
)
from capim.reports.rows.report_data import ReportData

_NAMES = {**{f"R@{k}": f"recall@{k}" for k in (1, 5, 10)}, NDCG: "ndcg@20", RBO: "rbo"}
SUMMARY_COLUMNS = tuple((f"{direction}.{_NAMES[metric]}", direction, metric) for direction, metric in MEASURES)
COLUMNS = SUMMARY_COLUMNS[:-2]  # of the seed, which has no rank-biased overlap
TRANSLATORS = ("google", "bing", "nllb")  # the order that the seed evaluated in
LANGUAGES = (
    *("en", "ar", "de", "fr", "he", "hi", "hy", "id", "it", "ja", "ko"),
    *("fa", "pl", "pt", "ru", "es", "th", "tr", "uk", "vi", "zh"),
)

Line: TypeAlias = Mapping[str, str | float | None]  # ``language``, ``meta`` (the translator), a fraction per column


def coco_sm_files(data: ReportData, name: str) -> dict[str, bytes]:
    """``<corpus>/<encoder>.csv`` and ``_reduced.csv`` in the form of the seed, and ``_summary.csv``.

    The summary has what the seed's tables lack: the means without the reference language, languages weighted by their
    speakers, rank-biased overlap, and eta squared of languages and of translators, with what noise would give.
    """
    files = {}
    for corpus in data.corpus_names(lambda p: cross_lingual(p) is not None):
        for encoder in data.encoder_names(corpus):
            lines = report(data, corpus, encoder)
            full = [{key: v if isinstance(v, str) else _fraction(v) for key, v in line.items()} for line in lines]
            files[f"{corpus}/{encoder}.csv"] = csv_bytes(full)
            files[f"{corpus}/{encoder}_reduced.csv"] = csv_bytes(reduced(lines))
            if rows := summary(data, corpus, encoder):
                files[f"{corpus}/{encoder}_summary.csv"] = csv_bytes(rows)
    return files


def report(data: ReportData, corpus: str, encoder: str) -> list[Line]:
    """One line per language and translator, in the seed's order."""
    parts = [(code, way) for code in languages(data, corpus) for way in translators(data, corpus, code)]
    return [
        {
            "language": code,
            **{column: data.value(corpus, f"{d}/{code}/{way}", metric, encoder) for column, d, metric in COLUMNS},
            "meta": way,
        }
        for code, way in in_seed_order(parts)
    ]


def in_seed_order(parts: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Languages and translators in the order of the seed's files.

    It evaluated translator by translator and sorted by language with pandas' quicksort, which is not stable: only the
    same sort of the same list gives the order of the translators within a language.

    Examples:
        >>> in_seed_order([("de", "bing"), ("ar", "bing"), ("de", "google")])
        [('ar', 'bing'), ('de', 'google'), ('de', 'bing')]
    """

    def position(order: Sequence[str], name: str) -> tuple[int, str]:
        return (order.index(name) if name in order else len(order)), name

    evaluated = sorted(parts, key=lambda part: (position(TRANSLATORS, part[1]), position(LANGUAGES, part[0])))
    codes = np.array([code for code, _ in evaluated], dtype=object)
    return [evaluated[at] for at in np.argsort(codes, kind="quicksort")]


def reduced(lines: Sequence[Line]) -> list[dict[str, str]]:
    """COCO-SM's reduced table: means over translators, then over languages for all and for each translator.

    Args:
        lines: The lines of :func:`report`.

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
        cells = (line[column] for line in lines if line[key] == value)
        return [x if isinstance(x, float) else None for x in cells]

    per_language = {c: {column: mean(numbers(column, "language", c)) for column in columns} for c in codes}
    rows = [{"language": c, **{column: _fraction(v) for column, v in per_language[c].items()}} for c in codes]
    groups = {"all": {column: [per_language[c][column] for c in codes] for column in columns}}
    for way in [*(w for w in TRANSLATORS if w in ways), *sorted(ways - set(TRANSLATORS))]:
        groups[way] = {column: numbers(column, "meta", way) for column in columns}
    return rows + [{"language": label, **{c: mean_text(of[c]) for c in columns}} for label, of in groups.items()]


def summary(data: ReportData, corpus: str, encoder: str) -> list[dict[str, str]]:
    """The stored results over all languages, one line each: value and, where there is one, its interval."""

    def cell(protocol: str, metric: str) -> str:
        row = data.row(corpus, protocol, metric, encoder)
        if row is None or row["value"] is None:
            return ""
        value, interval = show.number(row["value"], 3), show.span(row["ci_low"], row["ci_high"], 3)
        by_noise = noise(row)
        note = interval if by_noise is None else f"noise {show.number(by_noise, 3)}"
        return f"{value} ({note})" if note else value

    rows = [
        {"over": label, **{c: cell(f"{d}/{suffix}", f"{m}{metric_suffix}") for c, d, m in SUMMARY_COLUMNS}}
        for label, suffix, metric_suffix in over_languages(data, corpus)
    ]
    return [row for row in rows if any(text for column, text in row.items() if column != "over")]


def _fraction(value: float | None) -> str:
    return "" if value is None else show.number(value, 3)
