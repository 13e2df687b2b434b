"""Results as tables: every column as CSV, JSON or Parquet, and the files of two seeds."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from capim.reports import format as show
from capim.reports.rows.report_data import R1, ReportData
from capim.reports.rows.speed import qps_v28
from capim.reports.sections import languages
from capim.store.files import json_value, write_csv
from capim.store.row_types import columns_of, table_of
from capim.store.schema import Result
from capim.tasks.metrics.crosslingual import CONSISTENCY_NDCG
from capim.tasks.protocols import ALL_QUADRUPLES, I2T_ANY, I2T_ANY5, T2I_ALL, T2I_FIRST, Protocol, language_id

SCHEMA_ID = "capim-results/1"


def results_table(data: ReportData) -> pa.Table:
    """Return the results with the columns of their stored table."""
    return table_of(Result, data.results)


def csv_files(data: ReportData, name: str) -> dict[str, bytes]:
    """Return one CSV; nulls are empty."""
    return {name: csv_bytes(results_table(data).to_pylist())}


def csv_bytes(rows: Sequence[Mapping[str, object]], names: Sequence[str] = ()) -> bytes:
    """Return rows with the same keys as CSV with a header; ``names``: the columns, where there may be no row."""
    target = io.StringIO()
    write_csv(rows, names or list(rows[0]), target)
    return target.getvalue().encode()


def parquet_files(data: ReportData, name: str) -> dict[str, bytes]:
    """Return one Parquet file with the store's own types."""
    return {name: parquet_bytes(results_table(data))}


def parquet_bytes(table: pa.Table) -> bytes:
    """Return a table as a Parquet file."""
    target = io.BytesIO()
    pyarrow.parquet.write_table(table, target)
    return target.getvalue()


def json_files(data: ReportData, name: str) -> dict[str, bytes]:
    """Return the rows, and next to them their JSON Schema (draft 2020-12)."""
    beside = f"{name.removesuffix('.json')}.schema.json"
    rows = results_table(data).to_pylist()
    document = {"$schema": f"./{beside}", "format": SCHEMA_ID, "digest": data.digest, "results": rows}
    return {name: json_bytes(document), beside: json_bytes(json_schema())}


def json_bytes(value: object) -> bytes:
    """Return a document as indented JSON."""
    return (json.dumps(json_value(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def json_schema() -> dict[str, object]:
    """Return the JSON Schema of a document of result rows."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": SCHEMA_ID,
        "type": "object",
        "properties": {
            "$schema": {"type": "string"},
            "format": {"const": SCHEMA_ID},
            "digest": {"type": "string"},
            "results": {"type": "array", "items": row_schema(columns_of(Result))},
        },
        "required": ["format", "digest", "results"],
    }


def row_schema(columns: pa.Schema, *, without: Sequence[str] = ()) -> dict[str, object]:
    """Return the JSON Schema of a row.

    Examples:
        >>> row_schema(columns_of(Result))["properties"]["value"]
        {'type': ['number', 'null']}
    """
    fields = [field for field in columns if field.name not in without]
    return {
        "type": "object",
        "properties": {field.name: _type(field) for field in fields},
        "required": [field.name for field in fields],
        "additionalProperties": False,
    }


def _type(field: pa.Field) -> dict[str, object]:
    kinds = (
        (pa.types.is_timestamp, {"type": "string", "format": "date-time"}),
        (pa.types.is_integer, {"type": "integer"}),
        (pa.types.is_floating, {"type": "number"}),
        (pa.types.is_boolean, {"type": "boolean"}),
        (pa.types.is_string, {"type": "string"}),
        (pa.types.is_list, {"type": "array", "items": {"type": "number"}}),
    )
    kind: dict[str, object] = next(dict(kind) for fits, kind in kinds if fits(field.type))
    return {**kind, "type": [kind["type"], "null"]} if field.nullable else kind


V28_PROTOCOLS = {"T2I": (T2I_FIRST, T2I_ALL), "I2T": (I2T_ANY5, I2T_ANY)}


def v28_files(data: ReportData, name: str) -> dict[str, bytes]:
    """Return the combined CSV of the V28 seed: a row per encoder and retrieval corpus, in percent, best T2I R@1 first.

    The seed's T2I used the first caption and its I2T captions 0 to 4. For a corpus without such a protocol the
    headline protocol is used; the protocol columns name the one used. In the seed's printed table, Winoground text and
    image were exchanged; here they are correct.
    """

    def percent(corpus: str, protocol: str, metric: str, encoder: str) -> str:
        value = data.value(corpus, protocol, metric, encoder)
        return f"{100 * value:.1f}" if value is not None else ""

    winoground = next(iter(data.corpus_names(lambda p: p == ALL_QUADRUPLES)), "")
    rows: list[dict[str, str]] = []
    for corpus in data.corpus_names(lambda p: p in V28_PROTOCOLS["T2I"]):
        stored = data.protocols(corpus)
        protocols = {side: next((p for p in names if p in stored), "") for side, names in V28_PROTOCOLS.items()}
        speeds = qps_v28(data, corpus)
        for encoder in (r.encoder for r in data.ranked(corpus, protocols["T2I"], R1)):
            spec = data.specs[encoder]
            row = {"Model": encoder, "Dataset": corpus}
            for side, protocol in protocols.items():
                row[f"{side} Protocol"] = protocol
                row |= {f"{side} R@{k}": percent(corpus, protocol, f"R@{k}", encoder) for k in (1, 5, 10)}
            for score in ("Text", "Image", "Group"):
                row[f"Winoground {score}"] = percent(winoground, ALL_QUADRUPLES, f"winoground_{score.lower()}", encoder)
            row["QPS"] = f"{speeds[encoder]:.1f}" if encoder in speeds else ""
            row["Architecture"] = "Late-Interaction" if spec.vectors == "multi" else "Dense"
            row["Checkpoint"] = spec.checkpoint
            rows.append(row)
    return {name: csv_bytes(rows)} if rows else {}


COLUMNS = (  # of COCO-SM's files, in order: heading, direction, metric
    *((f"{d}.recall@{k}", d, f"R@{k}") for d in ("t2i", "i2t") for k in (1, 5, 10)),
    *((f"{d}.ndcg@20", d, CONSISTENCY_NDCG.name) for d in ("t2i", "i2t")),
)
TRANSLATORS = ("google", "bing", "nllb")  # the order that the seed evaluated in
LANGUAGES = (
    *("en", "ar", "de", "fr", "he", "hi", "hy", "id", "it", "ja", "ko"),
    *("fa", "pl", "pt", "ru", "es", "th", "tr", "uk", "vi", "zh"),
)

Line: TypeAlias = Mapping[str, str | float | None]  # ``language``, ``meta`` (the translator), a fraction per column


def coco_sm_files(data: ReportData, name: str) -> dict[str, bytes]:
    """``<corpus>/<encoder>.csv`` and ``_reduced.csv`` in the form of the COCO-SM seed."""
    files = {}
    for corpus in data.corpus_names(lambda p: Protocol.of(p).is_of_language):
        for encoder in data.encoder_names(corpus):
            lines = list[Line]()
            for code, way in in_seed_order(languages.language_parts(data, corpus)):
                values = {
                    name: data.value(corpus, language_id(d, code, way), metric, encoder) for name, d, metric in COLUMNS
                }
                lines.append({"language": code, **values, "meta": way})
            full = [{key: v if isinstance(v, str) else _fraction(v) for key, v in line.items()} for line in lines]
            files[f"{corpus}/{encoder}.csv"] = csv_bytes(full)
            files[f"{corpus}/{encoder}_reduced.csv"] = csv_bytes(reduced(lines))
    return files


def in_seed_order(parts: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return languages and translators in the order of the seed's files.

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
    """Return COCO-SM's reduced table: means over translators, then over languages for all and for each translator.

    Args:
        lines: One per language and translator, in the seed's order.

    Returns:
        Per language the mean over translators; ``all`` over those means; each translator over its own rows; the last
        as ``mean ± sd`` with n - 1. English is in them, as in the published table.

    Examples:
        >>> rows = [{"language": "de", "x": 0.2, "meta": "google"}, {"language": "en", "x": 0.4, "meta": "google"}]
        >>> [row["x"] for row in reduced(rows)]
        ['0.200', '0.400', '0.300 ± 0.141', '0.300 ± 0.141']
    """
    import pandas as pd

    frame = pd.DataFrame(lines)
    columns = [key for key in lines[0] if key not in ("language", "meta")]
    values = frame[columns].astype(float)
    means = values.groupby(frame["language"]).mean()
    ways = [way for way in (*TRANSLATORS, *sorted({*frame["meta"]} - {*TRANSLATORS})) if (frame["meta"] == way).any()]
    groups = {"all": means, **{way: values[frame["meta"] == way] for way in ways}}

    def mean_text(found: pd.Series[float]) -> str:
        """Return the mean ± standard deviation with n - 1, as COCO-SM prints them."""
        text = f"{found.mean():.3f}" if found.count() else ""
        return f"{text} ± {found.std():.3f}" if found.count() > 1 else text

    return [
        *({"language": str(code), **{c: _fraction(of[c]) for c in columns}} for code, of in means.iterrows()),
        *({"language": label, **{c: mean_text(of[c]) for c in columns}} for label, of in groups.items()),
    ]


def _fraction(value: float | None) -> str:
    return "" if value is None or value != value else show.number(value, 3)  # noqa: PLR0124 - NaN
