"""Lists of the best items in TREC's format: ``query Q0 item rank score tag``, one line for each item of a list.

Items are ordered by score, whatever the rank column says; equal scores are ties. A relevant item that its list does not
hold has a rank from the length of the list + 1 to the end of the gallery. An item that ties with the last of a list
might tie with items that were cut off: the list is taken as it stands. An id is written as it is or as :func:`trec_id`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from pathlib import Path
from urllib.parse import quote

import numpy as np

from capim.store.errors import RequestError
from capim.store.files import existing_file
from capim.store.schema import TOP, texts
from capim.store.types import Corpus
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import build_tasks, select_protocols
from capim.tasks.ranking.ranker import RelevantScores, ranks_of, relevant_in_lists, unjudged_share
from capim.tasks.ranking.tasks import RetrievalTask, query_columns
from capim.tasks.results.imported.tables import headline_of

Run = dict[str, dict[str, float]]
"""Query id -> item id -> score."""

_COLUMNS = 6


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
            score = _number(words[4]) if len(words) == _COLUMNS else None
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
