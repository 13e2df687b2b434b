"""A matrix of scores in a file: captions in rows, images in columns.

``.npy`` with the ids beside it (``matrix.rows.txt`` and ``matrix.columns.txt``, one a line), or ``.npz`` with the
arrays ``scores``, ``queries`` and ``items``. Without ids, rows and columns are in the order of the corpus.
"""

from __future__ import annotations

import zipfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from capim.store.errors import RequestError
from capim.store.exchange.embedding_files import read_npz
from capim.store.files import NOT_ITS_FORMAT, existing_file
from capim.store.schema import texts
from capim.store.types import Corpus
from capim.tasks.ranking.given import score_given
from capim.tasks.ranking.maxsim_products import score_table
from capim.tasks.ranking.protocols import build_tasks, select_protocols
from capim.tasks.results.imported.tables import Found

SUFFIXES = (".npy", ".npz")
IDS = (
    ("queries", "query_ids", "captions", "caption_ids", "rows"),
    ("items", "item_ids", "images", "image_ids", "columns"),
)
"""Names of the arrays with the ids of rows, and of columns."""
_BLOCK_BYTES = 1 << 26


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


def outcomes_of_matrix(matrix: ScoreMatrix, corpus: Corpus, *, protocols: Collection[str] = ()) -> Found:
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
    return Found(list(outcomes.values()), [note] if n_rounded else [], matrix.how)


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
