"""Exports results for other programs. To add a format: a file with one function here, and a row of ``FORMATS``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from capim.reports.destination import write_files
from capim.reports.exports.other_tools import clip_benchmark_files, model_index_files, mteb_files
from capim.reports.exports.tabular import coco_sm_files, csv_files, json_files, latex_files, parquet_files, v28_files
from capim.reports.rows.reading import read_report_data
from capim.reports.rows.report_data import ReportData, Row
from capim.store import EmbeddingStore
from capim.store.errors import RequestError, unknown


@dataclass(frozen=True, kw_only=True)
class ExportFormat:
    """One way to write results.

    Attributes:
        title: One line of description.
        suffix: Suffix of its file; empty for a format that writes a folder of files.
        files: Makes file names and contents from the data and the name of the target.
    """

    title: str
    suffix: str
    files: Callable[[ReportData, str], dict[str, bytes]]


FORMATS: dict[str, ExportFormat] = {
    "csv": ExportFormat(title="every result row, all columns", suffix=".csv", files=csv_files),
    "json": ExportFormat(title="every result row, with its JSON Schema beside it", suffix=".json", files=json_files),
    "parquet": ExportFormat(title="every result row, typed", suffix=".parquet", files=parquet_files),
    "latex": ExportFormat(title="leaderboards as booktabs tables", suffix=".tex", files=latex_files),
    "v28": ExportFormat(title="the combined CSV of the V28 seed", suffix=".csv", files=v28_files),
    "coco-sm": ExportFormat(
        title="COCO-SM's two CSV files and a summary for every encoder", suffix="", files=coco_sm_files
    ),
    "mteb": ExportFormat(title="MTEB results, one JSON per task", suffix="", files=mteb_files),
    "clip-benchmark": ExportFormat(title="the CSV of CLIP_benchmark", suffix=".csv", files=clip_benchmark_files),
    "model-index": ExportFormat(title="headlines for the model card", suffix=".yaml", files=model_index_files),
}


def export_results(
    store: EmbeddingStore,
    target: str | Path,
    *,
    kind: str | None = None,
    run: str | None = None,
    corpora: Sequence[str] = (),
    encoders: Sequence[str] = (),
    protocols: Sequence[str] = (),
    more: Callable[[ReportData], Iterable[Row]] | None = None,
) -> list[Path]:
    """Writes the stored results for another program.

    Args:
        store: The store with the results.
        target: A file, or a folder for the formats that write several (``mteb``, ``coco-sm``).
        kind: A key of :data:`FORMATS`; by default chosen by the suffix of the target.
        run: Only the results of this run; by default the newest of each.
        corpora: Only the results on these corpora; by default on all.
        encoders: Only the results of these encoders; by default of all.
        protocols: Only the results under these protocols, ids or shell patterns; by default under all.
        more: Gives rows of results that are not stored; reports compute none.

    Returns:
        The files written.

    Raises:
        RequestError: The format is unknown, the target does not fit it, or the store has no results for it.
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
    data = read_report_data(store, run=run, corpora=corpora, encoders=encoders, protocols=protocols)
    if more is not None:
        data = replace(data, results=(*data.results, *more(data)))
    files = chosen.files(data, path.name)
    if not files:
        raise RequestError(f"store {store.uri} has no results for the format {name} ({chosen.title})")
    folder = path.parent if chosen.suffix else path
    write_files(folder, files)
    return [folder / relative for relative in files]
