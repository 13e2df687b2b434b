"""Exports results for other programs. To add a format: a file with one function here, and a row of ``FORMATS``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from capim.reports.destination import write_files
from capim.reports.exports.latex import latex_files
from capim.reports.exports.other_tools import model_index_files, mteb_files
from capim.reports.exports.paper import paper_files
from capim.reports.exports.tabular import coco_sm_files, csv_files, json_files, parquet_files, v28_files
from capim.reports.rows.report_data import ReportData
from capim.store.errors import RequestError, unknown


class ExportFormat(NamedTuple):
    """One way to write results.

    Attributes:
        title: One line of description.
        suffix: Suffix of its file; empty for a format that writes a folder of files.
        files: Makes file names and contents from the data and the name of the target.
    """

    title: str
    suffix: str
    files: Callable[[ReportData, str], dict[str, bytes]]


FORMATS = {
    "csv": ExportFormat("every result row, all columns", ".csv", csv_files),
    "json": ExportFormat("every result row, with its JSON Schema next to it", ".json", json_files),
    "parquet": ExportFormat("every result row, typed", ".parquet", parquet_files),
    "latex": ExportFormat("a table for a column and all results, with booktabs", ".tex", latex_files),
    "v28": ExportFormat("the combined CSV of capim's predecessor, V28", ".csv", v28_files),
    "coco-sm": ExportFormat("COCO-SM's two CSV files for every encoder", "", coco_sm_files),
    "mteb": ExportFormat("MTEB results, one JSON per task", "", mteb_files),
    "model-index": ExportFormat("headlines for the model card", ".yaml", model_index_files),
    "paper": ExportFormat("a table, charts, methods, an appendix and citations for LaTeX", "", paper_files),
}


def export_results(data: ReportData, target: str | Path, *, kind: str | None = None) -> list[Path]:
    """Write results for another program.

    Args:
        data: The results, with those of their encoders and corpora.
        target: A file, or a folder for the formats that write several (``mteb``, ``coco-sm``).
        kind: A key of :data:`FORMATS`; by default chosen by the suffix of the target.

    Returns:
        The files written.

    Raises:
        RequestError: The format is unknown, the target does not fit it, or there are no results for it.
    """
    path = Path(target)
    name = kind or next((n for n, f in FORMATS.items() if f.suffix and f.suffix == path.suffix), None)
    if name not in FORMATS:
        raise RequestError(unknown("format" if kind else f"{path.name}: suffix", kind or path.suffix, FORMATS))
    chosen = FORMATS[name]
    if chosen.suffix and path.suffix != chosen.suffix:
        raise RequestError(f"{name} writes a {chosen.suffix} file, got {str(path)!r}; end it with {chosen.suffix}")
    if not chosen.suffix and path.is_file():
        raise RequestError(f"{name} writes a folder of files, but {str(path)!r} is a file; give the path of a folder")
    files = chosen.files(data, path.name)
    if not files:
        raise RequestError(f"store {data.uri} has no results for the format {name} ({chosen.title})")
    folder = path.parent if chosen.suffix else path
    write_files(folder, files)
    return [folder / relative for relative in files]
