"""Writes a report: the page, the markdown with its figures, and every number as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reports.build import report_of
from reports.destination import write_files
from reports.elements.gallery import Gallery
from reports.elements.page import Chart, Report
from reports.render import figure_files, render_html, render_markdown
from reports.rows.reading import Describe, read_report_data
from reports.rows.report_data import ReportData, Source, plain
from reports.sections.sentence import answer

SCHEMA = "capim-report/1"


def write_report(
    store: Source,
    target: str | Path,
    *,
    run: str | None = None,
    corpora: Sequence[str] = (),
    encoders: Sequence[str] = (),
    protocols: Sequence[str] = (),
    describe: Describe | None = None,
) -> str:
    """Writes ``report.html``, ``report.md``, ``figures/`` and ``results.json`` into a folder or to an address.

    All files are made before the first is written, and each replaces its predecessor in one step, so that a failure
    while making them leaves an earlier report intact.

    Args:
        store: The store with the results.
        target: A folder, made if need be, or ``s3://…``; figures of an earlier report that the new one does not have
            are removed.
        run: Only the results of this run; by default the newest of each.
        corpora: Only the results on these corpora; by default on all.
        encoders: Only the results of these encoders; by default of all.
        protocols: Only the results under these protocols, ids or shell patterns; by default under all.
        describe: See :func:`reports.rows.reading.read_report_data`.

    Returns:
        The path or address of ``report.html``.

    Raises:
        RequestError: The store has no results.
        WorkError: The target cannot be written.
    """
    data = read_report_data(store, run=run, corpora=corpora, encoders=encoders, protocols=protocols, describe=describe)
    report = report_of(data)
    files = {f"figures/{name}": text for name, text in figure_files(report).items()}
    files["results.json"] = json.dumps(results_json(data, report), ensure_ascii=False, separators=(",", ":")) + "\n"
    files["report.md"] = render_markdown(report)
    files["report.html"] = render_html(report)
    write_files(target, files, replace_folder="figures")
    return f"{str(target).rstrip('/')}/report.html"


def results_json(data: ReportData, report: Report) -> dict[str, object]:
    """Every stored row and every text of a report, without pictures."""
    return {
        "schema": SCHEMA,
        "digest": data.digest,
        "store": data.uri,
        "answer": answer(data),
        **{
            table: [{k: plain(v) for k, v in row.items()} for row in getattr(data, table)]
            for table in ("results", "comparisons", "rankings", "slices", "runs")
        },
        "encoders": {name: {"fingerprint": spec.fingerprint, **spec.identity()} for name, spec in data.specs.items()},
        "corpora": {
            name: {
                "fingerprint": corpus.fingerprint,
                "images": corpus.images.num_rows,
                "captions": corpus.captions.num_rows,
            }
            for name, corpus in data.corpora.items()
        },
        "devices": sorted({row["device"] for row in data.batches}),
        "metrics": {name: row["title"] for name, row in sorted(data.metrics.items())},
        "smaller_is_better": sorted(data.smaller_is_better),
        "page": {
            "title": report.title,
            "subtitle": report.subtitle,
            "facts": report.facts,
            "sections": [{**vars(s), "blocks": [_block_json(block) for block in s.blocks]} for s in report.sections],
        },
    }


def _block_json(block: object) -> dict[str, object]:
    fields = dataclasses.asdict(block)  # type: ignore[call-overload]
    if isinstance(block, Chart):
        del fields["svg"]
        fields["spec"] = json.loads(block.spec)
    if isinstance(block, Gallery):  # the answers are those of the stored outcomes
        fields["cases"] = [{k: v for k, v in case.items() if k != "answers"} for case in fields["cases"]]
    return {"kind": getattr(block, "kind", ""), **_without_empty(fields)}


def _without_empty(value: Any) -> Any:
    """The fields of a block without the empty ones."""
    if isinstance(value, dict):
        return {key: _without_empty(item) for key, item in value.items() if item not in ("", None, False, (), [])}
    return [_without_empty(item) for item in value] if isinstance(value, list | tuple) else value
