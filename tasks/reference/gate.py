"""Stored results compared with published figures, as rows for the report and for `capim results --against`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pyarrow as pa

from capim.store.schema import SLICES
from capim.store.types import EncoderSpec, canonical_json, digest16
from capim.tasks.reference.published import N_IMAGES, SAMPLE, Published, ReferenceCheck, judge_figure, published_name

ANALYSIS = "reference"
_HEADLINES = ("R@1", "winoground_text", "winoground_image", "winoground_group")


class CheckedResult(NamedTuple):
    """One row of ``schema.RESULTS`` and its comparison with published figures."""

    result: Mapping[str, Any]
    check: ReferenceCheck


def judge_results(
    results: pa.Table,
    *,
    specs: Mapping[str, EncoderSpec],
    n_images: Mapping[str, int],
    references: Sequence[Published],
) -> list[CheckedResult]:
    """Every result that has a reference, and the headline metrics of those that have none.

    Args:
        specs: Encoder fingerprint -> spec. Results of other encoders are left out.
        n_images: Corpus fingerprint -> images; a part of a data set in ``N_IMAGES`` is not compared.
        references: From ``tasks.reference.published.published``.
    """
    checked = []
    for row in results.to_pylist():
        spec = specs.get(row["encoder_fingerprint"])
        if spec is None or row["value"] is None:
            continue
        check = _part_of(row["corpus"], n_images[row["corpus_fingerprint"]])
        if check is None:
            check = judge_figure(
                row["value"],
                checkpoint=published_name(spec.checkpoint, references),
                corpus=row["corpus"],
                protocol=row["protocol"],
                metric=row["metric"],
                references=references,
            )
        if check.verdict != "no reference" or row["metric"] in _HEADLINES:
            checked.append(CheckedResult(row, check))
    return checked


def _part_of(corpus: str, n_images: int) -> ReferenceCheck | None:
    """Why a part of a data set with published figures is not compared with them; None for any other corpus."""
    sample = SAMPLE.fullmatch(corpus)
    n_all = N_IMAGES.get(sample["of"] if sample else corpus, n_images)
    if n_images == n_all:
        return None
    what = "sample" if sample else "part"
    return ReferenceCheck("not compared", None, f"{what} of {n_images:,} of {n_all:,} images, not compared")


def gate_rows(checked: Sequence[CheckedResult], *, run: str) -> pa.Table:
    """Rows of ``schema.SLICES`` with analysis ``reference``; the verdict is the level's name.

    The detail holds ``published``, ``published_protocol``, ``source`` and ``note`` of the published figure, if any.
    """
    created = datetime.now(UTC)
    rows = []
    for row, (verdict, reference, remark) in checked:
        identity = {
            name: row[name]
            for name in ("encoder", "encoder_fingerprint", "corpus", "corpus_fingerprint", "protocol", "metric")
        }
        detail = reference and {
            "published": reference.value,
            "published_protocol": reference.protocol,
            "source": reference.source,
            "note": reference.note,
        }
        rows.append(
            {
                **identity,
                **{name: row[name] for name in ("value", "ci_low", "ci_high", "n_queries", "n_clusters")},
                "slice": digest16([ANALYSIS, *identity.values()]),
                "analysis": ANALYSIS,
                "feature": "published figure",
                "level_name": verdict,
                "reason": remark or None,
                "detail": detail and canonical_json(detail),
                "run": run,
                "created": created,
            }
        )
    return pa.Table.from_pylist(rows, schema=SLICES)
