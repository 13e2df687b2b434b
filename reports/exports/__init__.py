"""Results for other programs: one row per format. To add one: a function of a file here, and a row of ``FORMATS``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from reports.exports.clip_benchmark_table import clip_benchmark_files
from reports.exports.coco_sm import coco_sm_files
from reports.exports.latex import latex_files
from reports.exports.mteb_results import mteb_files
from reports.exports.plain import csv_files, json_files, parquet_files
from reports.exports.v28 import v28_files
from reports.rows.reading import read_report_data
from reports.rows.report_data import ReportData, Source
from store.errors import RequestError


@dataclass(frozen=True, kw_only=True)
class Format:
    """One way to write results.

    Attributes:
        title: One line for people.
        suffix: Of its file; empty where it needs a folder.
        files: ReportData and the target's name to file name and contents; the first is the target itself.
    """

    title: str
    suffix: str
    files: Callable[[ReportData, str], dict[str, bytes]]


FORMATS: dict[str, Format] = {
    "csv": Format(title="every result row, all columns", suffix=".csv", files=csv_files),
    "json": Format(title="every result row, with its JSON Schema beside it", suffix=".json", files=json_files),
    "parquet": Format(title="every result row, typed", suffix=".parquet", files=parquet_files),
    "latex": Format(title="leaderboards as booktabs tables", suffix=".tex", files=latex_files),
    "v28": Format(title="the V28 seed's combined CSV", suffix=".csv", files=v28_files),
    "coco-sm": Format(
        title="COCO-SM's report and reduced CSV of every encoder, and a summary", suffix="", files=coco_sm_files
    ),
    "mteb": Format(title="MTEB results, one JSON per task", suffix="", files=mteb_files),
    "clip-benchmark": Format(title="CLIP_benchmark's CSV", suffix=".csv", files=clip_benchmark_files),
}


def export_results(store: Source, target: str | Path, *, kind: str | None = None, run: str | None = None) -> list[Path]:
    """Writes the stored results for another program.

    Args:
        store: Where the rows are.
        target: A file, or a folder for the formats that write several (``mteb``, ``coco-sm``).
        kind: A key of :data:`FORMATS`; by default what the target's suffix says.
        run: Only the figures of this run; by default the newest of each.

    Returns:
        The files written.

    Raises:
        RequestError: The format is unknown, the target does not fit it, or the store has nothing for it.
    """
    path = Path(target)
    name = kind or next((n for n, f in FORMATS.items() if f.suffix and f.suffix == path.suffix), None)
    if name not in FORMATS:
        asked = f"format {kind!r}" if kind else f"the suffix of {path.name!r}"
        raise RequestError(f"{asked} is unknown; formats: {', '.join(FORMATS)}")
    chosen = FORMATS[name]
    if chosen.suffix and path.suffix != chosen.suffix:
        raise RequestError(f"{name} writes a {chosen.suffix} file, got {str(path)!r}; end it with {chosen.suffix}")
    if not chosen.suffix and path.is_file():
        raise RequestError(f"{name} writes a folder of files, and {str(path)!r} is a file; name a folder")
    files = chosen.files(read_report_data(store, run=run), path.name)
    if not files:
        raise RequestError(f"store {store.uri} has no results that {name} can hold ({chosen.title})")
    folder = path.parent if chosen.suffix else path
    written = []
    for relative, contents in files.items():
        place = folder / relative
        place.parent.mkdir(parents=True, exist_ok=True)
        fresh = place.with_name(f"{place.name}.new")
        fresh.write_bytes(contents)
        fresh.replace(place)
        written.append(place)
    return written
