"""Results of the store held against published figures, as rows for the report and for `capim results --against`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import pyarrow as pa

from store.schema import SLICES
from store.types import EncoderSpec, canonical_json, digest16
from tasks.reference.published import Finding, Published, is_whole, judge_figure, published_name

ANALYSIS = "reference"
_HEADLINES = ("R@1", "winoground_text", "winoground_image", "winoground_group")
_A_PART = "a part of the data set: figures are published for all of it"


class Judged(NamedTuple):
    """One row of ``schema.RESULTS`` and what the gate says of it."""

    result: Mapping[str, object]
    finding: Finding


def judge_results(
    results: pa.Table,
    *,
    specs: Mapping[str, EncoderSpec],
    n_images: Mapping[str, int],
    references: Sequence[Published],
) -> list[Judged]:
    """Every result that has a reference, and the headline metrics of those that have none.

    Args:
        results: ``schema.RESULTS``.
        specs: Encoder fingerprint -> spec. Results of encoders that are not in it are left out.
        n_images: Corpus fingerprint -> images; a part of a known data set has no reference.
        references: From ``tasks.reference.published.published``.
    """
    judged = []
    for row in results.to_pylist():
        spec = specs.get(row["encoder_fingerprint"])
        if spec is None or row["value"] is None:
            continue
        if is_whole(row["corpus"], n_images[row["corpus_fingerprint"]]):
            finding = judge_figure(
                row["value"],
                checkpoint=published_name(spec.checkpoint, references),
                corpus=row["corpus"],
                protocol=row["protocol"],
                metric=row["metric"],
                references=references,
            )
        else:
            finding = Finding("no reference", None, _A_PART)
        if finding.verdict != "no reference" or row["metric"] in _HEADLINES:
            judged.append(Judged(row, finding))
    return judged


def gate_rows(judged: Sequence[Judged], *, run: str) -> pa.Table:
    """Rows of ``schema.SLICES`` with analysis ``reference``; the verdict is the level's name.

    The detail holds ``published``, ``published_protocol``, ``source`` and ``note`` of the figure held against, where
    there is one.
    """
    created = datetime.now(UTC)
    rows = []
    for row, finding in judged:
        whose = {
            name: row[name]
            for name in ("encoder", "encoder_fingerprint", "corpus", "corpus_fingerprint", "protocol", "metric")
        }
        detail = None if finding.reference is None else _detail(finding.reference)
        rows.append(
            whose
            | {
                "slice": digest16([ANALYSIS, *whose.values()]),
                "analysis": ANALYSIS,
                "feature": "published figure",
                "level_name": finding.verdict,
                "value": row["value"],
                "ci_low": row["ci_low"],
                "ci_high": row["ci_high"],
                "p_adjusted": None,
                "n_queries": row["n_queries"],
                "n_clusters": row["n_clusters"],
                "reason": finding.remark or None,
                "detail": detail,
                "run": run,
                "created": created,
            }
        )
    return pa.Table.from_pylist(rows, schema=SLICES)


def _detail(reference: Published) -> str:
    return canonical_json(
        {
            "published": reference.value,
            "published_protocol": reference.protocol,
            "source": reference.source,
            "note": reference.note,
        }
    )
