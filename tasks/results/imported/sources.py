"""Outcomes that were made elsewhere: the files that they are read from, and what is stored of them.

Files are tables of judgements, ranks or hits, folders of hit lists, matrices of scores, lists in TREC's format, and
what ``capim export outcomes`` wrote, which is read back whole: every rank, tie, list and score.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from capim.store.errors import RequestError
from capim.store.files import READ_SUFFIXES, read_row_file
from capim.store.schema import OUTCOMES
from capim.store.sets.importing import UNVERSIONED, declared_encoder, note_faults
from capim.store.types import Corpus, EncoderSpec, digest16
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import build_tasks, select_protocols
from capim.tasks.ranking.tasks import RetrievalTask
from capim.tasks.results.imported.rows import Row, named_rows
from capim.tasks.results.imported.scores import outcomes_of_matrix, outcomes_of_run, read_matrix, read_run
from capim.tasks.results.imported.tables import FoundRows, outcomes_of_hits, outcomes_of_rows, read_hit_lists

ADAPTER = "outcomes"
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


def outcomes_of_source(source: Source, corpus: Corpus) -> dict[str, FoundRows]:
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
        return {source.encoder: FoundRows(outcomes_of_run(read_run(path), corpus, protocols=source.protocols), [])}
    return {source.encoder: _of_tables(path, corpus, source.protocols)}


def _of_tables(path: Path, corpus: Corpus, protocols: Collection[str]) -> FoundRows:
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in READ_SUFFIXES)
        if not files:
            raise RequestError(
                f"{path}: no hit lists (MODEL_ir1_rank_index.npy) and no {', '.join(READ_SUFFIXES)} in it"
            )
    try:
        rows: list[Row] = []
        for file in files:
            contents = _contents(file)
            if isinstance(contents, pa.Table) and len(files) > 1:
                raise RequestError("exported outcomes are imported one file at a time")
            if isinstance(contents, pa.Table):
                return FoundRows(outcomes_of_export(contents, corpus, protocols=protocols), [])
            rows += named_rows(contents, file.name if len(files) > 1 else "")
        return outcomes_of_rows(rows, corpus, protocols=protocols)
    except RequestError as fault:
        raise RequestError([line if str(path) in line else f"{path}: {line}" for line in fault.faults]) from fault


def _contents(file: Path) -> pa.Table | list[dict[str, Any]]:
    """The rows of a file; as ``schema.OUTCOMES`` if ``capim export outcomes`` wrote it.

    Raises:
        RequestError: It cannot be read, or a value of exported outcomes has the wrong type.
    """
    required = {field.name for field in OUTCOMES if not field.nullable}
    rows: pa.Table | list[dict[str, Any]]
    if file.suffix == ".parquet" and file.is_file():
        import pyarrow.parquet as pq

        try:
            names = set(pq.read_schema(file).names)
        except (pa.ArrowException, OSError) as fault:
            raise RequestError(f"{file}: not a Parquet file ({fault})") from fault
        rows = pq.read_table(file) if required <= names else read_row_file(file)
    else:
        rows = read_row_file(file)
        names = set(rows[0]) if rows else set()
    if not required <= names:
        return rows
    try:
        if isinstance(rows, pa.Table):
            for field in OUTCOMES:
                if field.name not in names:
                    rows = rows.append_column(field, pa.nulls(len(rows), field.type))
            return rows.select(OUTCOMES.names).cast(OUTCOMES)
        typed = [{field.name: _typed(row.get(field.name), field) for field in OUTCOMES} for row in rows]
        return pa.Table.from_pylist(typed, schema=OUTCOMES)
    except (ValueError, TypeError, pa.ArrowException) as fault:
        raise RequestError(f"{file} is not a file of `capim export outcomes`: {fault}") from fault


def _typed(cell: object, field: pa.Field) -> object:
    """A cell of a text file as a value of the column's type; null in place of a number is not-a-number."""
    kind = field.type
    if pa.types.is_list(kind):
        values: list[Any] | None = json.loads(cell) if isinstance(cell, str) else cell  # type: ignore[assignment]
        return values and [math.nan if value is None else value for value in values]
    if cell is None and pa.types.is_floating(kind) and not field.nullable:
        return math.nan
    if not isinstance(cell, str) or pa.types.is_string(kind):
        return cell
    return float(cell) if pa.types.is_floating(kind) else int(cell)


def outcomes_of_export(table: pa.Table, corpus: Corpus, *, protocols: Collection[str] = ()) -> list[Outcomes]:
    """The outcomes of one encoder on a corpus, protocol by protocol.

    Args:
        corpus: Rows of other corpora are left out.
        protocols: Only these; all in the table if empty.

    Raises:
        RequestError: Rows of several encoders, of another state of the corpus, or not of all queries.
    """
    of_corpus = table.filter(pc.equal(table["corpus"], pa.scalar(corpus.name)))
    of_state = of_corpus.filter(pc.equal(of_corpus["corpus_fingerprint"], pa.scalar(corpus.fingerprint)))
    if not of_corpus.num_rows:
        others = ", ".join(sorted(map(str, pc.unique(table["corpus"]).to_pylist())))
        raise RequestError(f"no exported outcome is of corpus {corpus.name!r}, but of {others}")
    if not of_state.num_rows:
        raise RequestError(
            f"the exported outcomes are of another state of corpus {corpus.name!r} "
            f"({of_corpus['corpus_fingerprint'][0].as_py()}); the one given is {corpus.fingerprint}"
        )
    encoders = sorted(map(str, pc.unique(of_state["encoder"]).to_pylist()))
    if len(encoders) > 1:
        raise RequestError(
            f"the exported outcomes are of {len(encoders)} encoders ({', '.join(encoders)}); export one of them: "
            "`capim export outcomes --encoder NAME`"
        )
    stored = [str(name) for name in pc.unique(of_state["protocol"]).to_pylist()]
    names = [name for name in stored if not protocols or name in protocols]
    if not names:
        raise RequestError(f"the exported outcomes are of {', '.join(stored)}, none of {', '.join(protocols)}")
    wanted = select_protocols(corpus, names)
    found, faults = [], []
    for task in build_tasks(corpus, wanted):
        rows = in_query_order(of_state.filter(pc.equal(of_state["protocol"], pa.scalar(task.protocol.id))))
        order = np.lexsort((task.query_ids.astype(str), task.queries))
        n_relevant = task.n_relevant[order] if isinstance(task, RetrievalTask) else None
        same = rows["query_id"].to_pylist() == task.query_ids[order].tolist() and (
            n_relevant is None or np.array_equal(rows["n_relevant"].to_numpy(), n_relevant)
        )
        if same:
            found.append(Outcomes.from_arrow(rows, task.protocol))
        else:
            faults.append(
                f"{task.protocol.id}: the {rows.num_rows} exported queries are not the {len(order)} of the corpus"
            )
    if faults:
        raise RequestError(faults)
    return found


def _of_hit_lists(source: Source, corpus: Corpus) -> dict[str, FoundRows]:
    if source.protocols:
        raise RequestError("--protocol is for tables, scores and runs: hit lists name their direction (ir, tr)")
    models: Mapping[str, Mapping[str, Any]] = read_hit_lists(source.path)
    if source.encoder and len(models) > 1:
        raise RequestError(
            f"--encoder names one model, but {source.path} has lists of {', '.join(models)}; leave it out, the files "
            "name their models"
        )
    found: dict[str, FoundRows] = {}
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
        found[source.encoder or model] = FoundRows(outcomes, [], told)
    if faults:
        raise RequestError(faults)
    return found


def encoder_of_outcomes(
    name: str, *, revision: str | None = None, note: str | None = None, namesakes: Sequence[EncoderSpec] = ()
) -> EncoderSpec:
    """The model that outcomes are of: what the user says it is. No adapter ever loads it; ``dim`` has no meaning.

    Args:
        revision: Any text that tells its versions apart; that of the stored model unless given.
        note: A remark for readers of reports; likewise.
        namesakes: What the name has meant in the store, oldest first.

    Raises:
        RequestError: The name is that of a model of another kind, or is not a name; the revision can move; or the
            stored model has another note.
    """
    for spec in namesakes:
        if spec.adapter != ADAPTER:
            raise RequestError(
                f"encoder {name!r} is in the store as another kind ({spec.adapter}, {spec.checkpoint}); import "
                "outcomes under another name"
            )
    revision = revision or (namesakes[-1].revision if namesakes else UNVERSIONED)
    known = next((spec for spec in reversed(namesakes) if spec.revision == revision), None)
    if known is not None:
        if faults := note_faults(known, note):
            raise RequestError(faults)
        return known
    return declared_encoder(name, ADAPTER, revision, note, dim=1)


def evaluation_of(outcomes: Outcomes, encoder: EncoderSpec, corpus: Corpus) -> str:
    """The id of imported outcomes: a digest of their contents, the encoder, the corpus and the protocol."""
    contents = hashlib.sha256("\n".join(map(str, outcomes.query_ids)).encode())
    for field in fields(outcomes):
        values = getattr(outcomes, field.name)
        if isinstance(values, np.ndarray) and values.dtype != object:
            contents.update(f"{field.name} {values.dtype} {values.shape}".encode())
            contents.update(np.ascontiguousarray(values).tobytes())
    return digest16([encoder.fingerprint, corpus.fingerprint, outcomes.protocol.id, contents.hexdigest()])


def in_query_order(rows: pa.Table) -> pa.Table:
    """Rows of one evaluation in the order in which the store reads them: sums then have the same last digit."""
    return rows.sort_by([("query_ord", "ascending"), ("query_id", "ascending")])


@dataclass(frozen=True, kw_only=True)
class Imported:
    """The outcomes of one model on one corpus, by evaluation id.

    Attributes:
        outcomes: Evaluation id -> outcomes of one protocol.
    """

    encoder: EncoderSpec
    corpus: Corpus
    outcomes: Mapping[str, Outcomes]

    @classmethod
    def of(cls, outcomes: Sequence[Outcomes], encoder: EncoderSpec, corpus: Corpus) -> Imported:
        """The outcomes under their ids, in query order."""
        imported = cls(encoder=encoder, corpus=corpus, outcomes={})
        columns = imported._identity("")
        ordered = [Outcomes.from_arrow(in_query_order(each.to_arrow(**columns)), each.protocol) for each in outcomes]
        return replace(imported, outcomes={evaluation_of(each, encoder, corpus): each for each in ordered})

    def rows(self, evaluation: str) -> pa.Table:
        """Rows of ``schema.OUTCOMES``."""
        return self.outcomes[evaluation].to_arrow(**self._identity(evaluation))

    def _identity(self, evaluation: str) -> dict[str, str]:
        return {
            "evaluation": evaluation,
            "encoder": self.encoder.name,
            "encoder_fingerprint": self.encoder.fingerprint,
            "corpus": self.corpus.name,
            "corpus_fingerprint": self.corpus.fingerprint,
        }
