"""Outcomes from scores in a file: a matrix, or lists of the best items.

A matrix has captions in rows and images in columns: ``.npy`` with the ids beside it (``matrix.rows.txt`` and
``matrix.columns.txt``, one a line), or ``.npz`` with the arrays ``scores``, ``queries`` and ``items``. Without ids,
rows and columns are in the order of the corpus.

Lists are in TREC's format, ``query Q0 item rank score tag``, one line for each item of a list. Items are ordered by
score, whatever the rank column says; equal scores are ties. A relevant item that its list does not hold has a rank
from the length of the list + 1 to the end of the gallery. An item that ties with the last of a list might tie with
items that were cut off: the list is taken as it stands. An id is written as it is or as :func:`trec_id`.
"""

from __future__ import annotations

import math
import re
import zipfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from capim.store.errors import RequestError
from capim.store.files import NOT_ITS_FORMAT, existing_file
from capim.store.schema import TOP, texts
from capim.store.sets.embedding_files import read_npz
from capim.store.types import Corpus
from capim.tasks.ranking.maxsim_products import score_table
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import build_tasks, select_protocols
from capim.tasks.ranking.ranker import RelevantScores, ranks_of, relevant_in_lists, score_given, unjudged_share
from capim.tasks.ranking.tasks import RetrievalTask, query_columns
from capim.tasks.results.imported.tables import FoundRows, headline_of

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
        faults.append(f"{len(given) - len(at)} ids of {side} come more than once, first {twice!r}")
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
    ids = texts((corpus.images if task.protocol.direction == "t2i" else corpus.captions)["id"])
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
