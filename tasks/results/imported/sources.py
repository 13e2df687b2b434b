"""Outcomes that were made elsewhere: the files that they are read from, and the rows that are stored.

Files are tables of judgements, ranks or hits, folders of hit lists (``tasks.results.imported.tables``), matrices of
scores, runs (``tasks.results.imported.runs``), and what ``capim export outcomes`` wrote, which is read back whole:
every rank, tie, list and score.

A matrix has captions in rows and images in columns: ``.npy`` with the ids next to it (``matrix.rows.txt`` and
``matrix.columns.txt``, one a line), or ``.npz`` with the arrays ``scores``, ``queries`` and ``items``. Without ids,
rows and columns are in the order of the corpus.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow.parquet import read_schema

from capim.store.errors import RequestError, is_number, noted, some, unknown
from capim.store.files import existing_file, reading
from capim.store.forms import FORMS, NO_COLUMNS, Columns, option, refuse_lower_better, renamed
from capim.store.row_types import columns_of, rows_in
from capim.store.rows import in_order
from capim.store.schema import OfProtocol, Outcome
from capim.store.sets.columns_read import telling
from capim.store.sets.matching import POSITION, Items, key_of, match
from capim.store.sets.vector_files import ARRAYS, mapped, read_contents
from capim.store.tables import DELIMITED, NAMED, PARQUET, open_table, read_row_file, records, suffix_of
from capim.store.types import Corpus, EncoderSpec, digest16
from capim.tasks.ranking.maxsim_products import score_table
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import build_tasks, protocols_of, select_protocols
from capim.tasks.ranking.ranker import score_given
from capim.tasks.ranking.tasks import RetrievalTask
from capim.tasks.references import SetsRef
from capim.tasks.results.imported.runs import outcomes_of_run, read_run
from capim.tasks.results.imported.tables import (
    FoundRows,
    Row,
    named_rows,
    outcomes_of_hits,
    outcomes_of_rows,
    read_hit_lists,
)

Kind: TypeAlias = Literal["outcomes", "scores", "run", "qrels", "published"]

CORPUS_COLUMNS = {"bivlc": ("caption", "negative_caption", "type", "subtype")}
"""Corpus -> columns of published results from which its reader takes ids and texts, without images."""


class Source(NamedTuple):
    """One file or folder to import, for one model.

    Attributes:
        kind: ``outcomes`` (a table, exported outcomes, or a folder of hit lists or tables), ``scores``, ``run``; or
            ``qrels`` with runs, or ``published`` results.
        encoder: Name of the model; "" where hit lists, or the tags of runs, name it.
        protocols: Only these; "" and none: all that the file determines.
        by_position: The user says that rows follow the corpus.
        runs: Of ``qrels``: the runs on the documents that they judge.
        columns: Role -> column, as the user names them.
        skip_bad_rows: Leave out rows that cannot be read, or of items that the corpus does not have.
        revision: Of the model, as the user names it.
        same_as: The stored model that the outcomes are of.
    """

    kind: Kind
    path: str
    encoder: str
    protocols: tuple[str, ...] = ()
    by_position: bool = False
    runs: tuple[str, ...] = ()
    columns: Columns = NO_COLUMNS
    skip_bad_rows: bool = False
    revision: str | None = None
    same_as: str | None = None


def described_corpus(
    source: Source, corpus: str | dict[str, Any], *, stored: Collection[str] = ()
) -> str | dict[str, Any]:
    """Return a corpus as the user named it; its description if it is not stored and the file of outcomes holds it."""
    wanted = CORPUS_COLUMNS.get(corpus) if isinstance(corpus, str) and corpus not in stored else None
    path = Path(source.path)
    if wanted is None or source.kind != "outcomes" or suffix_of(path) != ".csv" or not path.is_file():
        return corpus
    [first, *_] = read_row_file(path)
    return {"reader": corpus, "root": str(path)} if set(wanted) <= set(first) else corpus


def outcomes_of_source(source: Source, corpus: Corpus) -> dict[str, FoundRows]:
    """Return model -> its outcomes on the corpus.

    Raises:
        RequestError: The file is not what its kind says, or does not fit the corpus; all faults together.
    """
    path = Path(source.path)
    if source.kind == "outcomes" and path.is_dir() and any(path.glob("*_rank_index.npy")):
        return _of_hit_lists(source, corpus)
    if not source.encoder:
        raise RequestError("give the name of the model that made these outcomes: --encoder NAME")
    if source.kind == "scores":
        found = outcomes_of_matrix(
            read_matrix(path, source.columns), corpus, protocols=source.protocols, by_position=source.by_position
        )
        return {source.encoder: found}
    if source.kind == "run":
        return {source.encoder: outcomes_of_run(read_run(path, source.columns), corpus, protocols=source.protocols)}
    return {source.encoder: _of_tables(path, corpus, source)}


def _of_tables(path: Path, corpus: Corpus, source: Source) -> FoundRows:
    files = sorted(file for file in path.iterdir() if suffix_of(file) in NAMED) if path.is_dir() else [path]
    if not files:
        raise RequestError(f"{path}: no hit lists (MODEL_ir1_rank_index.npy) and no {', '.join(NAMED)} in it")
    try:
        rows: list[Row] = []
        for file in files:
            contents = _contents(file)
            if not isinstance(contents, pa.Table):
                rows += named_rows(contents, file.name if len(files) > 1 else "", source.columns)
            elif len(files) > 1:
                raise RequestError("exported outcomes are imported one file at a time")
            else:
                return outcomes_of_export(contents, corpus, protocols=source.protocols)
        return outcomes_of_rows(rows, corpus, protocols=source.protocols, by_position=source.by_position)
    except RequestError as fault:
        raise RequestError([line if str(path) in line else f"{path}: {line}" for line in fault.faults]) from fault


def _contents(file: Path) -> pa.Table | list[dict[str, Any]]:
    """Return the rows of a file; as rows of table ``outcomes`` if ``capim export outcomes`` wrote it.

    Raises:
        RequestError: It cannot be read, or a value of exported outcomes has the wrong type.
    """
    schema = columns_of(Outcome)
    required = {field.name for field in schema if not field.nullable}
    rows: pa.Table | list[dict[str, Any]]
    if file.suffix == ".parquet":
        import pyarrow.parquet as pq

        with reading(file):
            rows = pq.read_table(existing_file(file))
        if not required <= {*rows.column_names}:
            return read_row_file(file)
    elif not required <= {*(rows := read_row_file(file))[0]}:
        return rows
    try:
        if isinstance(rows, pa.Table):
            known = {*rows.column_names}
            arrays = [rows[each.name] if each.name in known else pa.nulls(len(rows), each.type) for each in schema]
            return pa.table(arrays, names=schema.names).cast(schema)
        typed = [{field.name: _typed(row.get(field.name), field) for field in schema} for row in rows]
        return pa.Table.from_pylist(typed, schema=schema)
    except (ValueError, TypeError, pa.ArrowException) as fault:
        raise RequestError(f"{file} is not a file of `capim export outcomes`: {fault}") from fault


def _typed(cell: object, field: pa.Field) -> object:
    """Return a cell of a text file as a value of the column's type; null in place of a number is not-a-number."""
    kind = field.type
    if pa.types.is_list(kind):
        values: list[Any] | None = json.loads(cell) if isinstance(cell, str) else cell  # type: ignore[assignment]
        return values and [math.nan if value is None else value for value in values]
    if cell is None and pa.types.is_floating(kind) and not field.nullable:
        return math.nan
    if not isinstance(cell, str) or pa.types.is_string(kind):
        return cell
    return float(cell) if pa.types.is_floating(kind) else int(cell)


def outcomes_of_export(table: pa.Table, corpus: Corpus, *, protocols: Collection[str] = ()) -> FoundRows:
    """Return the outcomes of one encoder on a corpus, protocol by protocol.

    Args:
        corpus: Rows of other corpora, and of other states of this one, are left out.
        protocols: Only these; all in the table if empty.

    Raises:
        RequestError: Rows of several encoders, of another state of the corpus, or not of all queries.
    """
    columns = [each.name for each in fields(OfProtocol)]
    exported = rows_in(OfProtocol, table.select(columns).group_by(columns, use_threads=False).aggregate([]))
    of_state = [row for row in exported if (row.corpus, row.corpus_fingerprint) == (corpus.name, corpus.fingerprint)]
    if len({row.encoder for row in of_state}) != 1:
        has = {f"{row.encoder} on {row.corpus} ({row.corpus_fingerprint})": None for row in exported}
        raise RequestError(
            f"expected the outcomes of one encoder on {corpus.name} ({corpus.fingerprint}), got {some([*has])}; export "
            f"them: `capim export outcomes --encoder NAME --corpus {corpus.name}`"
        )
    stored = list(dict.fromkeys(row.protocol for row in of_state))
    names = [name for name in stored if not protocols or name in protocols]
    if not names:
        raise RequestError(f"the exported outcomes are of {', '.join(stored)}, none of {', '.join(protocols)}")
    found, faults = [], []
    for task in build_tasks(corpus, select_protocols(corpus, names)):
        of_task = (pc.field("corpus_fingerprint") == corpus.fingerprint) & (pc.field("protocol") == task.protocol.id)
        rows = in_order("outcomes", table.filter(of_task))
        order = np.lexsort((task.query_ids.astype(str), task.query_ords))
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
    how = [f"{each.protocol.id}: {len(each):,} exported queries, the same as those of the corpus" for each in found]
    return FoundRows(found, [], how, {each.protocol.id: "query_id" for each in found})


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
            wrong: list[str] = []
            with noted(wrong):
                outcomes.append(outcomes_of_hits(protocols[task.protocol.id], cast("RetrievalTask", task)))
            faults += [f"{source.path}: {model}, {task.protocol.id}: {line}" for line in wrong]
        notes = [f"{each.protocol.id}: positions of {len(each):,} queries in the corpus' order" for each in outcomes]
        by = {each.protocol.id: POSITION for each in outcomes}
        found[source.encoder or model] = FoundRows(outcomes, [], notes, by)
    if faults:
        raise RequestError(faults)
    return found


def evaluation_of(outcomes: Outcomes, encoder: EncoderSpec, corpus: Corpus) -> str:
    """Return the id of imported outcomes: a digest of their contents, the encoder, the corpus and the protocol."""
    contents = hashlib.sha256("\n".join(map(str, outcomes.query_ids)).encode())
    for field in fields(outcomes):
        values = getattr(outcomes, field.name)
        if isinstance(values, np.ndarray) and values.dtype != object:
            contents.update(f"{field.name} {values.dtype} {values.shape}".encode())
            contents.update(np.ascontiguousarray(values).tobytes())
    return digest16([encoder.fingerprint, corpus.fingerprint, outcomes.protocol.id, contents.hexdigest()])


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
        """Return the outcomes under their ids, in query order."""
        imported = cls(encoder=encoder, corpus=corpus, outcomes={})
        tables = [in_order("outcomes", each.to_arrow("", imported.sets)) for each in outcomes]
        ordered = [Outcomes.from_arrow(rows, each.protocol) for rows, each in zip(tables, outcomes, strict=True)]
        return replace(imported, outcomes={evaluation_of(each, encoder, corpus): each for each in ordered})

    @property
    def sets(self) -> SetsRef:
        """Return names and fingerprints of the encoder and the corpus."""
        return SetsRef.between(self.encoder, self.corpus)

    def rows(self, evaluation: str) -> pa.Table:
        """Return rows of table ``outcomes``."""
        return self.outcomes[evaluation].to_arrow(evaluation, self.sets)


# --- Matrices of scores.

SUFFIXES = (*ARRAYS, *NAMED)
_BLOCK_BYTES = 1 << 26


class ScoreMatrix(NamedTuple):
    """Scores of shape ``(n_captions, n_images)``, with the ids of rows and columns, or None for the corpus' order."""

    scores: NDArray[Any]
    rows: list[str] | None
    columns: list[str] | None


def read_matrix(path: Path, columns: Columns = NO_COLUMNS) -> ScoreMatrix:
    """Return the scores of a file; an ``.npy`` file is memory-mapped.

    A table has ids in its first row and column, as pandas writes them, or nothing but scores.

    Raises:
        RequestError: There is no such file, or it holds no matrix of numbers.
    """
    if suffix_of(path) not in SUFFIXES:
        raise RequestError(unknown(f"{path}: suffix", path.suffix, SUFFIXES))
    refuse_lower_better(path, path.stem)
    with reading(existing_file(path)):
        if suffix_of(path) in NAMED:
            matrix = _of_table(path, columns)
        elif path.suffix == ".npy":
            ids = [path.with_suffix(f".{side}.txt") for side in ("rows", "columns")]
            lines = [beside.read_text(encoding="utf-8").splitlines() if beside.is_file() else None for beside in ids]
            matrix = ScoreMatrix(mapped(path), *lines)
        else:
            matrix = _of_arrays(path, columns)
    if matrix.scores.ndim != 2 or matrix.scores.dtype.kind not in "fiu":
        raise RequestError(
            f"{path}: expected numbers of shape (captions, images), got {matrix.scores.dtype} of shape "
            f"{matrix.scores.shape}"
        )
    return matrix


def _of_arrays(path: Path, columns: Columns) -> ScoreMatrix:
    arrays, lists, _ = read_contents(path)
    form, every = FORMS["scores"], {**arrays, **lists}
    role_of = renamed(every, columns, form, path)
    named = {role: every[name] for name, role in role_of.items()}
    own = {role: form.find(role, named) for role in form.roles}
    scores = own.pop("scores") or next(iter(arrays), "") if len(arrays) == 1 or own["scores"] else None
    if scores is None:
        way = option("scores")
        raise RequestError(f"{path}: expected an array named 'scores', got {', '.join(arrays) or 'none'}; {way}")
    refuse_lower_better(path, next(name for name, role in role_of.items() if role == scores))
    if strange := [name for name in lists if role_of.get(name) not in own.values()]:
        raise RequestError(
            f"{path}: array {', '.join(strange)} is unknown; expected scores, and ids of captions in 'queries', of "
            "images in 'items' (--columns queries=…,items=…)"
        )
    ids = (None if name is None else list(map(str, named[name])) for name in own.values())
    return ScoreMatrix(np.asarray(named[scores]), *ids)


def _n_known(sides: Sequence[Items], ids: Sequence[list[str] | None]) -> int:
    """Return how many of the ids of rows and columns are those of captions and images, or name them."""
    keys = (key_of({"ids": given or []}, side) for side, given in zip(sides, ids, strict=True))
    return sum(key.n_known for key in keys if key is not None)


def _of_table(path: Path, columns: Columns) -> ScoreMatrix:
    index: list[str] = [str(name) for name in ([columns["queries"]] if "queries" in columns else [])]
    if suffix_of(path) in DELIMITED:
        lines: Iterator[Sequence[Any]] = records(path)
        header = next(lines, [])
        if all(map(is_number, header)) and not all(map(str.isdecimal, header)):  # scores, no ids
            return ScoreMatrix(_numbers(path, [header, *lines]), None, None)
    else:
        header, rows = open_table(path)
        lines = ([row.get(name) for name in header] for row in rows)
        if suffix_of(path) in PARQUET:
            index += filter(header.__contains__, (read_schema(path).pandas_metadata or {}).get("index_columns", ()))
    at = header.index(index[0]) if index and index[0] in header else 0
    ids, images = list[str](), [*header[:at], *header[at + 1 :]]

    def scores() -> Iterator[Sequence[Any]]:
        for line in lines:
            ids.append(str(line[at]))
            yield [*line[:at], *line[at + 1 :]]

    matrix = _numbers(path, scores(), len(images)) if len(images) > 1 else None
    if matrix is None or not len(matrix):
        raise RequestError(f"{path}: expected {_MATRIX}; got the columns {', '.join(header)}")
    deque(telling(path, [some([header[at] or "ids", *images])], (), ()), 0)
    return ScoreMatrix(matrix, ids, images)


_MATRIX = "ids of images in the first row, of captions in the first column, and scores in all other cells"


def _numbers(path: Path, lines: Iterable[Sequence[Any]], width: int | None = None) -> NDArray[np.float64]:
    rows = []
    for number, line in enumerate(lines, start=1):
        width = len(line) if width is None else width
        try:
            row = np.array(line, dtype=np.float64)
        except (ValueError, TypeError):
            row = np.empty(0)
        if len(row) != width:
            shown = some([*map(str, line)])
            raise RequestError(f"{path}: row {number}: expected {width} numbers, with {_MATRIX}; got {shown}")
        rows.append(row)
    return np.array(rows)


def outcomes_of_matrix(
    matrix: ScoreMatrix, corpus: Corpus, *, protocols: Collection[str] = (), by_position: bool = False
) -> FoundRows:
    """Return outcomes of all protocols that fit the corpus, or of those named, ranked by the scores as float32.

    A matrix of images in rows and captions in columns is read transposed where its ids or its shape say so.

    Returns:
        The outcomes, and a sentence if scores were rounded, because rounded scores may tie.

    Raises:
        RequestError: The matrix is not of this corpus, or a score is not a finite number; all faults together.
    """
    sides = [Items.of_corpus(corpus, "caption"), Items.of_corpus(corpus, "image")]
    scores, ids = matrix.scores, [matrix.rows, matrix.columns]
    if ids == [None, None]:
        turned = scores.shape[0] != scores.shape[1] and scores.shape == tuple(len(side.ids) for side in sides[::-1])
    else:
        turned = _n_known(sides, ids[::-1]) > _n_known(sides, ids)
    if turned:
        scores, ids = scores.T, ids[::-1]
    faults: list[str] = []
    found = []
    for side, given, n in zip(sides, ids, scores.shape, strict=True):
        with noted(faults):
            one = match({} if given is None else {"ids": given}, len(given or range(n)), side, by_position=by_position)
            absent = np.setdiff1d(np.arange(len(side.ids)), one.positions)
            if len(one.positions) != n:
                faults.append(f"{side.kind}: {n} in the matrix, but {len(one.positions)} ids")
            if absent.size:
                first = side.ids[int(absent[0])]
                faults.append(f"{absent.size} of {len(side.ids)} {side.kind} are not in the matrix, first {first!r}")
            found.append(one)
    if faults:
        raise RequestError(faults)
    captions, images = (side.ids for side in sides)
    rows, columns = (np.argsort(one.positions)[(one.positions < 0).sum() :] for one in found)
    table = score_table((len(captions), len(images)))
    step = max(1, _BLOCK_BYTES // (8 * len(images)))
    n_rounded = 0
    for start in range(0, len(captions), step):
        block = np.asarray(scores[rows[start : start + step]])[:, columns]
        with np.errstate(over="ignore"):
            table[start : start + step] = block
        wrong = np.argwhere(~np.isfinite(table[start : start + step]))
        if len(wrong):
            row, column = wrong[0].tolist()
            raise RequestError(
                f"the score of caption {captions[start + row]!r} with image {images[column]!r} is "
                f"{block[row, column]}; every pair needs a score that is finite as float32. Lists of the best items "
                "only are a run: --run"
            )
        n_rounded += int((table[start : start + step] != block).sum())
    chosen = select_protocols(corpus, protocols or [each.id for each in protocols_of(corpus)], vectors="multi")
    outcomes = list(score_given(table, build_tasks(corpus, chosen)).values())
    note = f"{n_rounded:,} of {table.size:,} scores were rounded from {scores.dtype} to float32"
    how = [f"{side.kind}: {one.how}" for side, one in zip(sides, found, strict=True)]
    how += ["taken as images by captions, transposed"] if turned else []
    by = ", ".join(dict.fromkeys(one.by for one in found))
    return FoundRows(outcomes, [note] if n_rounded else [], how, {each.protocol.id: by for each in outcomes})
