"""Slices, the result of every analysis, and their rows in the store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from capim.store.schema import SLICES
from capim.store.types import Corpus, canonical_json, digest16
from capim.tasks.statistics.intervals import Interval


@dataclass(frozen=True, kw_only=True)
class Slice:
    """One figure of an analysis.

    Attributes:
        analysis: ``complexity``, ``errors`` …: what reports group by.
        feature: The property or part: ``spatial``, ``person``, ``near miss`` …
        level_name: ``with``, ``without``, ``difference``, a bin or a variant; may be empty.
        n_clusters: Number of images that the queries belong to.
        p_adjusted: p-value of a difference, adjusted over the features of one encoder.
        detail: Further values of the analysis, of JSON types.
    """

    encoder: str
    analysis: str
    feature: str
    metric: str
    interval: Interval
    n_queries: int
    n_clusters: int
    level_name: str = ""
    p_adjusted: float | None = None
    detail: Mapping[str, object] | None = None


def slice_rows(
    slices: Iterable[Slice], *, corpus: Corpus, protocol: str, fingerprints: Mapping[str, str], run: str
) -> pa.Table:
    """Rows of ``schema.SLICES``, of one corpus and protocol; ``fingerprints`` is encoder name -> fingerprint.

    The column ``slice`` identifies a row, so that a later run replaces it.
    """
    created = datetime.now(UTC)
    rows = []
    for each in slices:
        row = asdict(each)
        interval, detail = row.pop("interval"), row.pop("detail")
        row |= {"encoder_fingerprint": fingerprints[each.encoder], "corpus_fingerprint": corpus.fingerprint}
        identity = ("encoder_fingerprint", "corpus_fingerprint", "metric", "analysis", "feature", "level_name")
        row |= {
            "slice": digest16([protocol, *(row[name] for name in identity)]),
            "corpus": corpus.name,
            "protocol": protocol,
            "value": interval["value"] if np.isfinite(interval["value"]) else None,
            "ci_low": interval["low"],
            "ci_high": interval["high"],
            "reason": interval["reason"],
            "detail": None if detail is None else canonical_json(detail),
            "run": run,
            "created": created,
        }
        rows.append(row)
    return pa.Table.from_pylist(rows, schema=SLICES)
