"""The files that outcomes are imported from: which reader each needs, and the models that it holds."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from capim.store.errors import RequestError
from capim.store.exchange.row_files import READ_SUFFIXES, read_row_file
from capim.store.types import Corpus
from capim.tasks.ranking.protocols import build_tasks, select_protocols
from capim.tasks.ranking.tasks import RetrievalTask
from capim.tasks.results.imported.columns import named_rows
from capim.tasks.results.imported.exported import is_export, outcomes_of_export, read_export
from capim.tasks.results.imported.hit_lists import outcomes_of_hits, read_hit_lists
from capim.tasks.results.imported.matrices import outcomes_of_matrix, read_matrix
from capim.tasks.results.imported.runs import outcomes_of_run, read_run
from capim.tasks.results.imported.tables import Found, outcomes_of_rows

Kind: TypeAlias = Literal["outcomes", "scores", "run"]

CORPUS_COLUMNS = {"bivlc": ("caption", "negative_caption", "type", "subtype")}
"""Corpus -> columns of published results from which its reader takes ids and texts, without images."""


class Source(NamedTuple):
    """One file or folder to import, for one model.

    Attributes:
        kind: ``outcomes`` (a table, exported outcomes, or a folder of hit lists or tables), ``scores`` or ``run``.
        encoder: Name of the model; "" where hit lists name it.
        protocols: Only these; "" and none: all that the file determines.
    """

    kind: Kind
    path: str
    encoder: str
    protocols: tuple[str, ...] = ()


def described_corpus(
    source: Source, corpus: str | dict[str, Any], *, stored: Collection[str] = ()
) -> str | dict[str, Any]:
    """A corpus as the user named it; the description of it if it is not stored and the file of outcomes holds it."""
    wanted = CORPUS_COLUMNS.get(corpus) if isinstance(corpus, str) and corpus not in stored else None
    path = Path(source.path)
    if wanted is None or source.kind != "outcomes" or path.suffix != ".csv" or not path.is_file():
        return corpus
    [first, *_] = read_row_file(path)
    return {"reader": corpus, "root": str(path)} if set(wanted) <= set(first) else corpus


def outcomes_of_source(source: Source, corpus: Corpus) -> dict[str, Found]:
    """Model -> its outcomes on the corpus.

    Raises:
        RequestError: The file is not what its kind says, or does not fit the corpus; all faults together.
    """
    path = Path(source.path)
    if source.kind == "outcomes" and path.is_dir() and any(path.glob("*_rank_index.npy")):
        return _of_hit_lists(source, corpus)
    if not source.encoder:
        raise RequestError("give the name of the model whose outcomes these are: --encoder NAME")
    if source.kind == "scores":
        return {source.encoder: outcomes_of_matrix(read_matrix(path), corpus, protocols=source.protocols)}
    if source.kind == "run":
        return {source.encoder: Found(outcomes_of_run(read_run(path), corpus, protocols=source.protocols), [])}
    return {source.encoder: _of_tables(path, corpus, source.protocols)}


def _of_tables(path: Path, corpus: Corpus, protocols: Collection[str]) -> Found:
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in READ_SUFFIXES)
        if not files:
            raise RequestError(
                f"{path}: no hit lists (MODEL_ir1_rank_index.npy) and no {', '.join(READ_SUFFIXES)} in it"
            )
    try:
        tables: dict[Path, list[dict[str, Any]]] = {file: _rows(file) for file in files}
        exports = {file: rows for file, rows in tables.items() if rows and is_export(rows[0])}
        if exports and len(files) > 1:
            raise RequestError("exported outcomes are imported one file at a time")
        if exports:
            [(file, rows)] = exports.items()
            return Found(outcomes_of_export(read_export(file, rows), corpus, protocols=protocols), [])
        rows_of_files = [
            row for file, rows in tables.items() for row in named_rows(rows, file.name if len(files) > 1 else "")
        ]
        return outcomes_of_rows(rows_of_files, corpus, protocols=protocols)
    except RequestError as fault:
        raise RequestError([line if str(path) in line else f"{path}: {line}" for line in fault.faults]) from fault


def _rows(file: Path) -> list[dict[str, Any]]:
    """The rows of a file; of exported Parquet, which is read as Arrow, only the first."""
    if file.suffix == ".parquet" and file.is_file():
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            names = pq.read_schema(file).names
        except (pa.ArrowException, OSError) as fault:
            raise RequestError(f"{file}: not a Parquet file ({fault})") from fault
        if is_export(names):
            return [dict.fromkeys(names)]
    return read_row_file(file)


def _of_hit_lists(source: Source, corpus: Corpus) -> dict[str, Found]:
    if source.protocols:
        raise RequestError("--protocol is for tables, scores and runs: hit lists name their direction (ir, tr)")
    models: Mapping[str, Mapping[str, Any]] = read_hit_lists(source.path)
    if source.encoder and len(models) > 1:
        raise RequestError(
            f"--encoder names one model, but {source.path} has lists of {', '.join(models)}; leave it out, the files "
            "name their models"
        )
    found: dict[str, Found] = {}
    faults: list[str] = []
    for model, protocols in models.items():
        outcomes = []
        for task in build_tasks(corpus, select_protocols(corpus, list(protocols))):
            if not isinstance(task, RetrievalTask):
                faults.append(
                    f"protocol {task.protocol.id!r} is not retrieval; hit lists are for t2i and i2t protocols"
                )
                continue
            try:
                outcomes.append(outcomes_of_hits(protocols[task.protocol.id], task))
            except RequestError as fault:
                faults += [f"{source.path}: {model}, {task.protocol.id}: {line}" for line in fault.faults]
        told = [f"{each.protocol.id}: positions of {len(each):,} queries in the corpus' order" for each in outcomes]
        found[source.encoder or model] = Found(outcomes, [], told)
    if faults:
        raise RequestError(faults)
    return found
