"""The rows of a report as its ``results.json`` holds them, and what changed between two reports.

Neither report needs its store any more.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import pyarrow.parquet

from capim.reports.rows.report_data import facts_of_metrics, redact
from capim.store import EmbeddingStore
from capim.store.current import current_results, figure_of
from capim.store.errors import RequestError, unknown
from capim.store.files import file_system
from capim.store.row_types import rows_in
from capim.store.schema import Batch, Comparison, LedgerEntry, Result, Run
from capim.store.types import MetricFacts
from capim.tasks.reference.changes import FigureChange, FigureKey, SettingChange, figure_changes, setting_changes

SCHEMA = "capim-report/5"  # of results.json
STATISTICS = ("interval_method", "replicates", "seed")
R = TypeVar("R", Comparison, Batch)


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The rows of one report.

    Attributes:
        name: The path given by the reader.
        results: Result rows by corpus, protocol, metric and encoder.
        comparisons: Comparison rows.
        encoders: Encoder name to its identity and fingerprint.
        corpora: Corpus name to its facts and fingerprint.
        versions: Library to version, over all runs of the report.
        devices: Names of the devices that the embeddings were computed on.
        metrics: What readers have to know of each metric in ``results``.
        removed: The protocol of each result that the run evaluated and that is no longer stored.
    """

    name: str
    results: Mapping[FigureKey, Result]
    comparisons: Sequence[Comparison]
    encoders: Mapping[str, Mapping[str, object]]
    corpora: Mapping[str, Mapping[str, object]]
    versions: Mapping[str, str]
    devices: tuple[str, ...]
    metrics: Mapping[str, MetricFacts] = field(default_factory=dict)
    removed: tuple[str, ...] = ()


def load_snapshot(path: str | Path) -> Snapshot:
    """Return the snapshot of a report, given as its folder, its ``report.html`` or its ``results.json``.

    Raises:
        RequestError: There is no such report, or it was not written by capim.
    """
    folder = Path(path) if Path(path).is_dir() else Path(path).parent
    file = folder / "results.json"
    if not file.is_file():
        raise RequestError(f"{str(path)!r} is not a report: {file} not found; name a folder that `capim report` wrote")
    try:
        document = json.loads(file.read_text("utf-8"))
        if document["schema"] != SCHEMA:
            raise ValueError(f"schema {document['schema']!r}, expected {SCHEMA!r}")
        return Snapshot(
            name=str(path),
            results=_by_figure(_result(row) for row in document["results"]),
            comparisons=tuple(rows_in(Comparison, pyarrow.parquet.read_table(folder / "comparisons.parquet"))),
            encoders=document["encoders"],
            corpora=document["corpora"],
            versions=_versions(row["versions"] for row in document["runs"]),
            devices=tuple(document["devices"]),
            metrics={name: MetricFacts(name=name, **facts) for name, facts in document["metrics"].items()},
        )
    except (OSError, ValueError, KeyError, TypeError) as fault:
        raise RequestError(
            f"{file} is not a results file of `capim report` ({type(fault).__name__}: {fault}); write the report again"
        ) from fault


def _result(values: Mapping[str, Any]) -> Result:
    """Return a result of a document, which has more columns than those of its table."""
    return Result(**{each.name: values[each.name] for each in fields(Result) if each.name in values})


def _by_figure(rows: Iterable[Result]) -> dict[FigureKey, Result]:
    return {(*figure_of(row), row.encoder): row for row in rows}


def answer_of(page: str) -> list[str]:
    """Return the lines of the answer of the report of a page (path or URI); empty if it cannot be read."""
    try:
        found: list[str] = json.loads(_beside(page, "results.json")).get("answer", [])
    except (OSError, ValueError):
        return []
    return found


def first_screen(page: str, *, html: bool = False) -> str:
    """Return the first screen of a report (path or URI), as markdown or as a page of HTML; empty if unreadable."""
    try:
        text = _beside(page, "first.html" if html else "report.md").decode()
    except (OSError, ValueError):
        return ""
    return text if html else text.partition("\n## ")[0].strip()


def _beside(page: str, name: str) -> bytes:
    """Return the contents of a file of the report of a page (path or URI)."""
    system, path = file_system(page)
    with system.open_input_file(f"{path.rpartition('/')[0]}/{name}") as file:
        contents: bytes = file.read()
        return contents


def state_after(store: EmbeddingStore, run: str) -> Snapshot:
    """Return the rows of a store as a run left them: the results that were current when it ended, and are stored.

    A result that was computed again from the same embeddings has replaced the earlier one, which is in no state.
    Results that were removed since, such as those of embeddings that an import replaced, are counted.

    Raises:
        RequestError: There is no such run.
    """
    end = end_of(store, run)

    def until(row_type: type[R]) -> list[R]:
        return sorted((row for row in store.all(row_type) if row.created <= end), key=lambda row: row.created)

    current = results_until(store, store.all(Result), end)
    metrics = facts_of_metrics(store, current.values())
    current = {key: row for key, row in current.items() if row.metric in metrics}
    keys, stored = store.keys_of(run), store.counts("results", "derived")
    known = store.all(LedgerEntry, kind="result")
    gone = [row for row in known if row.key not in stored and (row.run == run or row.key in keys)]
    removed = [row.subject.protocol or "" for row in gone for _ in range(row.n_rows)]
    runs = sorted(store.all(Run), key=lambda row: row.started)
    encoders = {
        row.encoder: row.encoder_fingerprint for row in current.values()
    }  # each is read once, not for every row
    return Snapshot(
        name=run,
        results=current,
        comparisons=until(Comparison),
        encoders={name: redact(store.encoder(of).identity()) for name, of in encoders.items()},
        corpora={row.corpus: {"fingerprint": row.corpus_fingerprint} for row in current.values()},
        versions=_versions(row.versions for row in runs if row.started <= end),
        devices=tuple(sorted({row.device for row in until(Batch)})),
        metrics=metrics,
        removed=tuple(removed),
    )


def results_until(store: EmbeddingStore, written: Iterable[Result], end: datetime) -> dict[FigureKey, Result]:
    """Return the results that were current at a time, of all that were written."""
    rows = sorted((row for row in written if row.created <= end), key=lambda row: row.created)
    return _by_figure(current_results(rows, store.states_of(rows, until=end)))


def _versions(runs: Iterable[str]) -> dict[str, str]:
    """Library to version over runs, oldest first: the newest of each."""
    recorded = (json.loads(versions or "{}") for versions in runs)
    return {library: str(version) for of_run in recorded for library, version in of_run.items()}


def end_of(store: EmbeddingStore, run: str) -> datetime:
    """Return when a run ended, or last wrote a result.

    Raises:
        RequestError: There is no such run.
    """
    runs = {row.run: row for row in store.all(Run)}
    if run not in runs:
        raise RequestError(unknown("run", run, sorted(runs, reverse=True)))
    times = (*(row.created for row in store.all(Result, run=run)), runs[run].started, runs[run].finished)
    return max(time for time in times if time is not None)


def changed_figures(old: Snapshot, new: Snapshot) -> list[FigureChange]:
    """Return every result that both reports have, ordered by corpus, protocol, metric and encoder."""
    return figure_changes(old.results, new.results, [*old.comparisons, *new.comparisons])


def changed_settings(old: Snapshot, new: Snapshot) -> list[SettingChange]:
    """Return all differences between the two other than results."""
    changes: list[SettingChange] = []
    for name in sorted(old.encoders.keys() & new.encoders.keys()):
        changes += setting_changes(f"encoder {name}", old.encoders[name], new.encoders[name])
    for name in sorted(old.corpora.keys() & new.corpora.keys()):
        changes += setting_changes(f"corpus {name}", old.corpora[name], new.corpora[name])
    changes += setting_changes("library", old.versions, new.versions)
    changes += setting_changes("device", {"name": ", ".join(old.devices)}, {"name": ", ".join(new.devices)})
    return changes + setting_changes("statistics", _statistics(old), _statistics(new))


def _statistics(snapshot: Snapshot) -> dict[str, str]:
    found = {setting: {getattr(row, setting) for row in snapshot.results.values()} for setting in STATISTICS}
    return {setting: ", ".join(sorted(map(str, values - {None}))) for setting, values in found.items()}
