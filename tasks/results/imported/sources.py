"""Outcomes that were made elsewhere: the files that they are read from, and what is stored of them.

Files are tables of judgements, ranks or hits, folders of hit lists (``tasks.results.imported.tables``), matrices of
scores, lists in TREC's format, and what ``capim export outcomes`` wrote, which is read back whole: every rank, tie,
list and score.

A matrix has captions in rows and images in columns: ``.npy`` with the ids beside it (``matrix.rows.txt`` and
``matrix.columns.txt``, one a line), or ``.npz`` with the arrays ``scores``, ``queries`` and ``items``. Without ids,
rows and columns are in the order of the corpus.

Lists are in TREC's format, ``query Q0 item rank score tag``, one line for each item of a list. Items are ordered by
score, whatever the rank column says; equal scores are ties. A relevant item that its list does not hold has a rank
from the length of the list + 1 to the end of the gallery. An item that ties with the last of a list might tie with
items that were cut off: the list is taken as it stands. An id is written as it is or as :func:`trec_id`.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import zipfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, cast
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from capim.store.errors import RequestError
from capim.store.files import NOT_ITS_FORMAT, READ_SUFFIXES, existing_file, read_row_file
from capim.store.rows import in_order
from capim.store.schema import OUTCOMES, TOP, texts
from capim.store.sets.embedding_files import read_npz
from capim.store.sets.importing import UNVERSIONED, declared_encoder, note_faults
from capim.store.types import Corpus, EncoderSpec, digest16
from capim.tasks.ranking.maxsim_products import score_table
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import build_tasks, select_protocols
from capim.tasks.ranking.ranker import RelevantScores, ranks_of, relevant_in_lists, score_given, unjudged_share
from capim.tasks.ranking.tasks import RetrievalTask, query_columns
from capim.tasks.results.imported.tables import (
    FoundRows,
    Row,
    headline_of,
    named_rows,
    outcomes_of_hits,
    outcomes_of_rows,
    read_hit_lists,
)

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
        rows = in_order("outcomes", of_state.filter(pc.equal(of_state["protocol"], pa.scalar(task.protocol.id))))
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
            try:
                outcomes.append(outcomes_of_hits(protocols[task.protocol.id], cast("RetrievalTask", task)))
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
        tables = [in_order("outcomes", each.to_arrow(**columns)) for each in outcomes]
        ordered = [Outcomes.from_arrow(rows, each.protocol) for rows, each in zip(tables, outcomes, strict=True)]
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


# --- Matrices of scores, and lists of the best items.

SUFFIXES = (".npy", ".npz")
IDS = (
    ("queries", "query_ids", "captions", "caption_ids", "rows"),
    ("items", "item_ids", "images", "image_ids", "columns"),
)
"""Names of the arrays with the ids of rows, and of columns."""
_BLOCK_BYTES = 1 << 26
Run = dict[str, dict[str, float]]
"""Query id -> item id -> score."""


class ScoreMatrix(NamedTuple):
    """Scores of shape ``(n_captions, n_images)``, with the ids of rows and columns, or None for the corpus' order."""

    scores: NDArray[Any]
    rows: list[str] | None
    columns: list[str] | None

    @property
    def how(self) -> list[str]:
        """How rows and columns are matched with captions and images."""
        sides = zip(("rows", "columns"), (self.rows, self.columns), self.scores.shape, strict=True)
        words = {True: "taken in the corpus' order; no ids", False: "matched by their ids"}
        return [f"{n:,} {side} {words[ids is None]}" for side, ids, n in sides]


def read_matrix(path: Path) -> ScoreMatrix:
    """The scores of a file; an ``.npy`` file is memory-mapped.

    Raises:
        RequestError: There is no such file, or it holds no matrix of numbers.
    """
    if path.suffix not in SUFFIXES:
        raise RequestError(f"{path}: suffix {path.suffix!r} is unknown; a matrix of scores is {' or '.join(SUFFIXES)}")
    existing_file(path)
    try:
        if path.suffix == ".npy":
            ids = [path.with_suffix(f".{side}.txt") for side in ("rows", "columns")]
            lines = [beside.read_text(encoding="utf-8").splitlines() if beside.is_file() else None for beside in ids]
            matrix = ScoreMatrix(np.load(path, mmap_mode="r", allow_pickle=False), *lines)
        else:
            arrays = read_npz(path)
            if "scores" not in arrays:
                raise RequestError(f"{path}: expected an array named 'scores', got {', '.join(arrays) or 'none'}")
            lists = [
                next((arrays.pop(name).astype(str).tolist() for name in names if name in arrays), None) for names in IDS
            ]
            matrix = ScoreMatrix(arrays.pop("scores"), *lists)
            if arrays:
                raise RequestError(
                    f"{path}: array {', '.join(arrays)} is unknown; expected scores, and ids of captions in 'queries', "
                    "of images in 'items'"
                )
    except (*NOT_ITS_FORMAT, zipfile.BadZipFile) as fault:
        if isinstance(fault, RequestError):
            raise
        raise RequestError(f"{path} cannot be read as {path.suffix}: {fault}") from fault
    if matrix.scores.ndim != 2 or matrix.scores.dtype.kind not in "fiu":
        raise RequestError(
            f"{path}: expected numbers of shape (captions, images), got {matrix.scores.dtype} of shape "
            f"{matrix.scores.shape}"
        )
    return matrix


def outcomes_of_matrix(matrix: ScoreMatrix, corpus: Corpus, *, protocols: Collection[str] = ()) -> FoundRows:
    """Outcomes of every protocol that fits the corpus, or of those named, ranked by the scores as float32.

    Returns:
        The outcomes, and a sentence if scores were rounded, because rounded scores may tie.

    Raises:
        RequestError: The matrix is not of this corpus, or a score is not a finite number; all faults together.
    """
    faults: list[str] = []
    captions, images = (texts(table["id"]) for table in (corpus.captions, corpus.images))
    rows = _order(matrix.rows, captions, matrix.scores.shape[0], "rows", "captions", faults)
    columns = _order(matrix.columns, images, matrix.scores.shape[1], "columns", "images", faults)
    if faults:
        raise RequestError(faults)
    table = score_table((len(captions), len(images)))
    step = max(1, _BLOCK_BYTES // (8 * len(images)))
    n_rounded = 0
    for start in range(0, len(captions), step):
        block = np.asarray(matrix.scores[rows[start : start + step]])[:, columns]
        if not np.isfinite(block).all():
            row, column = np.argwhere(~np.isfinite(block))[0].tolist()
            raise RequestError(
                f"the score of caption {captions[start + row]!r} with image {images[column]!r} is "
                f"{block[row, column]}; every pair needs a finite score. Lists of the best items only are a run: --run"
            )
        table[start : start + step] = block
        n_rounded += int((table[start : start + step] != block).sum())
    outcomes = score_given(table, build_tasks(corpus, select_protocols(corpus, protocols, vectors="single")))
    note = f"{n_rounded:,} of {table.size:,} scores were rounded from {matrix.scores.dtype} to float32"
    return FoundRows(list(outcomes.values()), [note] if n_rounded else [], matrix.how)


def _order(
    given: Sequence[str] | None, ids: Sequence[str], n: int, side: str, items: str, faults: list[str]
) -> NDArray[np.int64]:
    """For each item of the corpus its row or column."""
    if given is None:
        if n != len(ids):
            faults.append(f"expected {len(ids)} {side}, one for each of the {items} of the corpus, got {n} without ids")
        return np.arange(n)
    if len(given) != n:
        faults.append(f"{n} {side}, but {len(given)} ids of {side}")
        return np.arange(n)
    at = {identifier: position for position, identifier in enumerate(given)}
    if len(at) != len(given):
        twice = next(identifier for position, identifier in enumerate(given) if at[identifier] != position)
        faults.append(f"{len(given) - len(at)} ids of {side} occur more than once, first {twice!r}")
    absent = [identifier for identifier in ids if identifier not in at]
    if absent:
        faults.append(f"{len(absent)} of {len(ids)} {items} have none of the {side}, first {absent[0]!r}")
    unknown = set(at) - set(ids)
    if unknown:
        faults.append(f"{len(unknown)} ids of {side} are not {items} of the corpus, first {min(unknown)!r}")
    return np.array([at.get(identifier, 0) for identifier in ids], dtype=np.int64)


def read_run(path: Path) -> Run:
    """The lists of a run.

    Raises:
        RequestError: There is no such file, or a line has another form; the first lines at fault are named.
    """
    existing_file(path)
    lists: Run = {}
    faults = []
    with path.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            words = line.split()
            if not words:
                continue
            score = _number(words[4]) if len(words) == 6 else None
            if score is None:
                faults.append(f"{path}: line {number}: expected `query Q0 item rank score tag`, got {line.strip()!r}")
            elif words[2] in (items := lists.setdefault(words[0], {})):
                faults.append(f"{path}: line {number}: item {words[2]!r} comes twice in the list of {words[0]!r}")
            else:
                items[words[2]] = score
            if len(faults) > 4:
                break
    if not lists and not faults:
        faults.append(f"{path}: no list in it")
    if faults:
        raise RequestError(faults)
    return lists


def trec_id(item: str) -> str:
    """An id as a word of a line: whitespace, signs that cannot be printed and ``%`` as in a URL, the rest as it is.

    Examples:
        >>> trec_id("dogs/brown dog.jpg"), trec_id("100%"), trec_id("дом")
        ('dogs/brown%20dog.jpg', '100%25', 'дом')
    """
    return re.sub(r"[\s%\x00-\x1f\x7f]", lambda sign: quote(sign[0]), item)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def outcomes_of_run(run: Run, corpus: Corpus, *, protocols: Collection[str] = ()) -> list[Outcomes]:
    """The outcomes of the protocols that the lists answer: those named, or the headline of which the queries are.

    Raises:
        RequestError: Queries or items are not those of the protocol; all faults together.
    """
    ids = [item for items in (corpus.images, corpus.captions) for item in texts(items["id"])]
    id_of = {trec_id(item): item for item in ids if trec_id(item) != item}
    run = {
        id_of.get(query, query): {id_of.get(item, item): score for item, score in scores.items()} if id_of else scores
        for query, scores in run.items()
    }
    wanted = protocols or [headline_of({"query": list(run)}, corpus)]
    faults: list[str] = []
    found = []
    for task in build_tasks(corpus, select_protocols(corpus, wanted)):
        if not isinstance(task, RetrievalTask):
            faults.append(f"{task.protocol.id}: a run has lists of retrieval protocols only")
        elif at_fault := _faults(run, task, corpus):
            faults += [f"{task.protocol.id}: {fault}" for fault in at_fault]
        else:
            found.append(_of_task(run, task, _item_ords(task, corpus)))
    if faults:
        raise RequestError(faults)
    return found


def _item_ords(task: RetrievalTask, corpus: Corpus) -> dict[str, int]:
    """Id -> ord of the items of the task's galleries."""
    ids = texts(corpus.items(task.protocol.sides[1])["id"])
    return {ids[ord_]: int(ord_) for gallery in task.galleries for ord_ in gallery}


def _faults(run: Run, task: RetrievalTask, corpus: Corpus) -> list[str]:
    queries, items = set(task.query_ids.tolist()), _item_ords(task, corpus)
    faults = []
    absent = [query for query in task.query_ids.tolist() if query not in run]
    if absent:
        faults.append(f"{len(absent)} of {len(queries)} queries have no list, first {absent[0]!r}")
    unknown = [query for query in run if query not in queries]
    if unknown:
        faults.append(f"{len(unknown)} lists are of none of the {len(queries)} queries, first {unknown[0]!r}")
    stray = {item: query for query, scores in run.items() for item in scores if item not in items}
    if stray:
        item = next(iter(stray))
        faults.append(f"{len(stray)} items are not in the gallery, first {item!r} in the list of {stray[item]!r}")
    if len(task.galleries) > 1:
        faults.append("its queries search several galleries, one list each; name a protocol with one gallery")
    return faults


def _of_task(run: Run, task: RetrievalTask, ords: dict[str, int]) -> Outcomes:
    depth = np.array([len(run[query]) for query in task.query_ids.tolist()], dtype=np.int64)
    lists = np.full((len(depth), depth.max()), -1, dtype=np.int32)
    scores = np.full(lists.shape, -np.inf)
    for row, query in enumerate(task.query_ids.tolist()):
        items = sorted((-score, ords[item]) for item, score in run[query].items())
        lists[row, : len(items)] = [ord_ for _, ord_ in items]
        scores[row, : len(items)] = [-negative for negative, _ in items]
    relevant, listed = relevant_in_lists(lists, scores, task, unlisted=-np.inf)
    query_of = task.query_of_relevant
    cut_off = (task.n_gallery - depth)[query_of]
    ranks = ranks_of(
        RelevantScores(
            relevant.scores,
            np.where(listed, relevant.n_above, depth[query_of]),
            np.where(listed, relevant.n_tied, cut_off),
        ),
        task.offsets,
        task.grades,
    )
    n_ranked = np.bincount(query_of, weights=listed, minlength=len(depth)).astype(np.int32)
    top_ords = lists[:, :TOP]
    return Outcomes(
        top_ords=top_ords,
        top_scores=np.where(top_ords >= 0, scores[:, :TOP], np.nan).astype(np.float32),
        unjudged=unjudged_share(task, top_ords, scores[:, :TOP].astype(np.float32)),
        n_ranked=None if (n_ranked == task.n_relevant).all() else n_ranked,
        **{
            **query_columns(task),
            **ranks,
            "best_score": np.where(n_ranked > 0, ranks["best_score"], np.nan).astype(np.float32),
            "n_tied_relevant": np.where(n_ranked > 0, ranks["n_tied_relevant"], 1).astype(np.int32),
        },
    )
