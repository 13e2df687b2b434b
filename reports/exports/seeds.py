"""The files that the project's seeds wrote: V28's combined CSV, COCO-SM's ``report`` and ``reduced``."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence

from reports import format as show
from reports.evidence import Evidence
from reports.languages import NDCG, cross_lingual, deviation, figure, languages, mean, translators
from reports.speed import qps_v28

V28_PROTOCOLS = (("T2I", ("t2i/first", "t2i/all")), ("I2T", ("i2t/any5", "i2t/any")))
COCO_SM_COLUMNS = (
    *((f"{d}.recall@{k}", d, f"R@{k}") for d in ("t2i", "i2t") for k in (1, 5, 10)),
    ("t2i.ndcg@20", "t2i", NDCG),
    ("i2t.ndcg@20", "i2t", NDCG),
)
TRANSLATORS = ("google", "bing", "nllb")  # the order of the seed's files


def v28_files(evidence: Evidence, name: str) -> dict[str, bytes]:
    """One row per encoder and retrieval corpus, in percent, best T2I R@1 first.

    The seed's T2I used the first caption and its I2T captions 0 to 4; where a corpus has no such protocol the
    headline stands in, and the protocol columns say which it is. Its printed Winoground text and image were
    exchanged; here they are right.
    """
    winoground = next(iter(evidence.corpus_names(lambda p: p == "winoground")), None)
    rows: list[dict[str, str]] = []
    for corpus in evidence.corpus_names(lambda p: p in ("t2i/first", "t2i/all")):
        chosen = {
            side: next((p for p in wanted if p in evidence.protocols(corpus)), "") for side, wanted in V28_PROTOCOLS
        }
        speeds = qps_v28(evidence, corpus)
        order = [r["encoder"] for r in evidence.ranked(corpus, chosen["T2I"], "R@1")]
        for encoder in order:
            spec = evidence.specs[encoder]
            row = {"Model": encoder, "Dataset": corpus}
            for side, protocol in chosen.items():
                row[f"{side} Protocol"] = protocol
                for k in (1, 5, 10):
                    row[f"{side} R@{k}"] = _percent(evidence, corpus, protocol, f"R@{k}", encoder)
            for score in ("Text", "Image", "Group"):
                metric = f"winoground_{score.lower()}"
                row[f"Winoground {score}"] = (
                    _percent(evidence, winoground, "winoground", metric, encoder) if winoground else ""
                )
            row["QPS"] = f"{speeds[encoder]:.1f}" if encoder in speeds else ""
            row["Architecture"] = "Late-Interaction" if spec.vectors == "multi" else "Dense"
            row["Checkpoint"] = spec.checkpoint
            rows.append(row)
    return {name: _csv(rows)} if rows else {}


def _percent(evidence: Evidence, corpus: str, protocol: str, metric: str, encoder: str) -> str:
    row = evidence.figures.get((corpus, protocol, metric, encoder))
    return f"{100 * row['value']:.1f}" if row is not None and row["value"] is not None else ""


def coco_sm_files(evidence: Evidence, name: str) -> dict[str, bytes]:
    """``<corpus>/<encoder>.csv`` and ``<corpus>/<encoder>_reduced.csv``: the seed's columns, order and decimals."""
    files = {}
    for corpus in evidence.corpus_names(lambda p: cross_lingual(p) is not None):
        for encoder in evidence.encoder_names(corpus):
            report = [
                {"language": code, **_values(evidence, corpus, encoder, code, way), "meta": way}
                for code in languages(evidence, corpus)
                for way in _in_order(translators(evidence, corpus, code))
            ]
            files[f"{corpus}/{encoder}.csv"] = _csv(
                [{key: _fraction(value) for key, value in row.items()} for row in report]
            )
            files[f"{corpus}/{encoder}_reduced.csv"] = _csv(reduced(report))
    return files


def reduced(report: Sequence[Mapping[str, str | float | None]]) -> list[dict[str, str]]:
    """COCO-SM's reduced table: means over translators, then over languages for all and for each translator.

    Args:
        report: One row per language and translator: ``language``, ``meta`` and a fraction per column.

    Returns:
        Per language the mean over translators; ``all`` over those means; each translator over its own rows; the last
        as ``mean ± sd`` with n - 1. English is in them, as in the published table.

    Examples:
        >>> rows = [{"language": "de", "x": 0.2, "meta": "google"}, {"language": "en", "x": 0.4, "meta": "google"}]
        >>> [row["x"] for row in reduced(rows)]
        ['0.200', '0.400', '0.300 ± 0.141', '0.300 ± 0.141']
    """
    columns = [key for key in report[0] if key not in ("language", "meta")]
    codes = list(dict.fromkeys(str(row["language"]) for row in report))
    ways = _in_order(sorted({str(row["meta"]) for row in report}))

    def numbers(column: str, key: str, value: str) -> list[float | None]:
        found = (row[column] for row in report if row[key] == value)
        return [x if isinstance(x, float) else None for x in found]

    per_language = {c: {column: mean(numbers(column, "language", c)) for column in columns} for c in codes}
    rows = [{"language": c, **{column: _fraction(v) for column, v in per_language[c].items()}} for c in codes]
    groups = {"all": {column: [per_language[c][column] for c in codes] for column in columns}}
    groups |= {way: {column: numbers(column, "meta", way) for column in columns} for way in ways}
    for label, found in groups.items():
        rows.append({"language": label, **{c: _spread(found[c]) for c in columns}})
    return rows


def _spread(values: Sequence[float | None]) -> str:
    centre, sd = mean(values), deviation(values)
    return f"{centre:.3f} ± {sd:.3f}" if centre is not None and sd is not None else _fraction(centre)


def _values(evidence: Evidence, corpus: str, encoder: str, code: str, way: str) -> dict[str, float | None]:
    found = {
        column: figure(evidence, corpus, encoder, direction, code, way, metric)
        for column, direction, metric in COCO_SM_COLUMNS
    }
    return {column: row["value"] if row is not None else None for column, row in found.items()}


def _in_order(ways: Sequence[str]) -> list[str]:
    return [way for way in TRANSLATORS if way in ways] + [way for way in ways if way not in TRANSLATORS]


def _fraction(value: str | float | None) -> str:
    return value if isinstance(value, str) else "" if value is None else show.number(value, 3)


def _csv(rows: Sequence[Mapping[str, str]]) -> bytes:
    target = io.StringIO()
    writer = csv.DictWriter(target, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return target.getvalue().encode()
