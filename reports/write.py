"""Writes a report: the page, the markdown with its results, and every number as JSON."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, TypeAlias

from capim.reports import format as show
from capim.reports.destination import write_files
from capim.reports.elements.page import Board, Report, Section
from capim.reports.elements.pictures import data_uris
from capim.reports.exports.board import exports
from capim.reports.exports.tabular import csv_bytes, parquet_bytes
from capim.reports.render import board_markdown, figure_files, render_first_screen, render_html, render_markdown
from capim.reports.rows.reading import read_report_data
from capim.reports.rows.report_data import OF_THE_MACHINE, ReportData, columns, redact
from capim.reports.rows.snapshot import SCHEMA
from capim.reports.sections import board, failures, languages, leaderboard, provenance, slices, speed, tests
from capim.store import EmbeddingStore
from capim.store.plugins import Plugin, PluginTable
from capim.store.row_types import table_of
from capim.store.schema import ENCODERS, FIGURE, Comparison, Slice

log = logging.getLogger(__name__)

COLOPHON = (
    "Made by capim from stored rows; the same rows give the same bytes. All numbers are also in results.json, "
    "comparisons.parquet and slices.parquet next to this file."
)
Build: TypeAlias = Callable[[ReportData], Section]
_OWN: dict[str, Build] = {  # in reading order
    "sure": tests.sure_section,
    "languages": languages.section,
    "failures": failures.section,
    "tests": tests.section,
    "cost": speed.section,
    "slices": slices.section,
    "ablations": slices.ablations_section,
    "leaderboard": leaderboard.section,
    "gate": provenance.published_section,
    "provenance": provenance.section,
    "skips": provenance.skipped_section,
    "definitions": provenance.definitions_section,
}


def _of_package(plugin: Plugin, found: object) -> Build:
    """Return the section of a package; if it fails, the report is made without it, and the log gives the reason."""
    if not callable(found):
        raise TypeError(f"expected a function section(data), got {type(found).__name__}")

    def section(data: ReportData) -> Section:
        try:
            if not isinstance(made := found(data), Section):
                raise TypeError(f"expected a capim.reports.elements.page.Section, got {type(made).__name__}")
        except Exception as error:  # noqa: BLE001 - code of another package
            log.error("%s: the report is made without this section (%s: %s)", plugin, type(error).__name__, error)
            return Section(id="", title="", blocks=())
        return made

    return section


SECTIONS = PluginTable("capim.sections", _OWN, _of_package)


def report_of(data: ReportData, *, sections: Sequence[str] = ()) -> Report:
    """Return the report of the rows; the same rows give the same report.

    ``sections`` are names of ``SECTIONS``, by default all.
    """
    encoders, corpora = data.encoder_names(), data.corpus_names()
    newest = max(r.created for r in data.results)
    first = board.board(data)
    made = [section for name in sections or SECTIONS if (section := SECTIONS[name](data)).blocks]
    return Report(
        title=first.headline,
        subtitle=f"{_named(encoders, 'encoders')} on {_named(corpora, 'corpora')}",
        facts=(("results", show.number(len(data.results), 0)), ("newest", show.moment(newest))),
        sections=tuple(made),
        thumbnails=data_uris({data.picture(sha): encoded for sha, encoded in data.thumbnails.items()}),
        sources=data.digest,
        colophon=COLOPHON,
        board=first,
        exports=exports(data, first) | {"markdown": board_markdown(first)} if first.rows else {},
    )


def _named(names: list[str], what: str) -> str:
    """Return the names if they fit on a line, else their number."""
    return show.listing(names) if len(names) <= 4 else f"{len(names):,} {what}"


STORED = ("results", "rankings", "runs")  # tables of ``ReportData`` in ``results.json``
LONG: dict[str, type[Any]] = {"comparisons": Comparison, "slices": Slice}  # tables in files of their own
IN_CSV = frozenset({
    *ENCODERS, *FIGURE, "lower_is_better", "family", "analysis", "feature", "level_name",
    "value", "difference", "ci_low", "ci_high", "interval_method", "level", "n_queries",
    "n_clusters", "chance", "p_adjusted", "margin",
})  # fmt: skip
"""Columns of these CSVs, in the order of the row types."""


def write_report(
    store: EmbeddingStore, target: str | Path, *, markdown: Literal["short", "whole"] = "short", **shown: Any
) -> str:
    """Write ``report.html``, ``first.html``, ``report.md``, ``figures/``, ``results.json`` and tables into a folder.

    All files are made before the first is written, and each replaces its predecessor in one step, so that a failure
    while making them leaves an earlier report intact.

    Args:
        store: The store with the results.
        target: A folder, made if need be, or ``s3://…``; results of an earlier report that the new one does not have
            are removed.
        markdown: ``report.md`` of a hundred lines at most, or with every table.
        shown: Its contents, as :func:`reports.rows.reading.read_report_data` takes it; by default all.

    Returns:
        The path or address of ``report.html``.

    Raises:
        RequestError: The store has no results.
        WorkError: The target cannot be written.
    """
    data = read_report_data(store, **shown)
    report = report_of(data)
    files: dict[str, str | bytes] = {f"figures/{name}": text for name, text in figure_files(report).items()}
    for table, row_type in LONG.items():
        stored = table_of(row_type, getattr(data, table))
        own = [name for name in stored.column_names if name not in OF_THE_MACHINE]
        files[f"{table}.parquet"] = parquet_bytes(stored.select(own))
    for table in ("results", *LONG):
        if rows := getattr(data, table):
            names = [each.name for each in fields(rows[0]) if each.name in IN_CSV]
            files[f"{table}.csv"] = csv_bytes([vars(row) for row in rows], names)
    numbers = json.dumps(results_json(data, report.board), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    files["results.json"] = f"{numbers}\n"
    files["report.md"] = render_markdown(report, page="report.html" if markdown == "short" else "")
    files["first.html"] = render_first_screen(report)
    files["report.html"] = render_html(report)
    write_files(target, files, replace_folder="figures")
    return f"{str(target).rstrip('/')}/report.html"


def results_json(data: ReportData, first: Board | None) -> dict[str, object]:
    """Return every stored row of a report but those of ``LONG``; described by ``docs/results.schema.json``."""
    return {
        "schema": SCHEMA,
        "digest": data.digest,
        "store": data.uri,
        "answer": list(first.lines if first else ()),
        "evidence": list(tests.evidence(data)),
        **{table: [columns(row) for row in getattr(data, table)] for table in STORED},
        "encoders": {
            name: {
                "fingerprint": spec.fingerprint,
                **redact(spec.identity()),
                "licence": spec.licence,
                "facts": redact(dict(spec.facts)),
            }
            for name, spec in data.specs.items()
        },
        "corpora": {
            name: {"fingerprint": c.fingerprint, "images": c.images.num_rows, "captions": c.captions.num_rows}
            for name, c in data.corpora.items()
        },
        "devices": sorted({row.device for row in data.batches}),
        "metrics": {name: data.metric(name).columns() for name in sorted({row.metric for row in data.results})},
    }
