"""Outcomes from tables of ranks, hits or judgements (``docs/outcomes.md``), and from lists of queries that hit.

For each query, hits give only whether a relevant item is among the first 1, 5 or 10. Its rank is known as a range (1,
2-5, 6-10, beyond 10), which is stored: ``rank_best`` and ``rank_worst`` are the ends of the range. R@1, R@5 and R@10
are exact, because no range crosses a listed cutoff. Other metrics (MRR, median rank, nDCG) are undetermined and left
out (``tasks.metrics.metrics_of``); ``best_score`` is NaN, and there are no result lists.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from capim.store.errors import RequestError
from capim.store.schema import JUDGED, texts
from capim.store.types import Corpus
from capim.store.vectors import positions_within
from capim.tasks.metrics.compositional import text_and_image
from capim.tasks.protocols import ALL_NEGATIVES, MAIN
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import build_task, protocols_of, select_protocols
from capim.tasks.ranking.ranker import choice_outcomes
from capim.tasks.ranking.tasks import ChoiceTask, RetrievalTask, query_columns
from capim.tasks.results.imported.rows import (
    KEYS,
    NUMBER,
    OUTCOME_KINDS,
    Items,
    Matched,
    Row,
    compositional_items,
    flags,
    key_columns,
    kind_of,
    known_ids,
    match,
    missing,
    queries_of,
    ranks,
)

_DIRECTION_OF_KIND: dict[str, Literal["pairs", "quadruples"]] = {
    "pairs": "pairs",
    "halves": "quadruples",
    "scores": "quadruples",
}


class FoundRows(NamedTuple):
    """Outcomes per protocol, sentences about what was left out, and about how rows were matched with queries."""

    outcomes: list[Outcomes]
    left_out: list[str]
    how: Sequence[str] = ()


class _TablePart(NamedTuple):
    """Rows of one kind about one protocol; ``named`` is "" where the kind decides: pairs and quadruples."""

    kind: str
    named: str
    rows: list[Row]


def outcomes_of_rows(rows: Sequence[Row], corpus: Corpus, *, protocols: Collection[str] = ()) -> FoundRows:
    """The outcomes that rows determine, in the order of the corpus.

    Args:
        rows: From :func:`tasks.results.imported.rows.named_rows`.
        protocols: For rows without a protocol: theirs. For rows with one: only those of these protocols.

    Raises:
        RequestError: Rows that have no kind, contradict each other, or do not cover the queries; all faults together.
    """
    faults: list[str] = []
    told = Matched([], [])
    found: dict[str, Outcomes] = {}
    for part in _parts(rows, protocols, corpus, faults):
        read = _of_choices if part.kind in _DIRECTION_OF_KIND else _of_retrieval
        at_fault: list[str] = []
        matched = Matched([], told.left_out)
        for outcomes in read(part, corpus, at_fault, matched):
            if outcomes.protocol.id in found:
                at_fault.append(f"rows of several kinds are about {outcomes.protocol.id!r}; keep one kind")
            found[outcomes.protocol.id] = outcomes
        faults += [f"{part.named}: {fault}" if part.named else fault for fault in at_fault]
        told.how.extend(f"{part.named}: {sentence}" if part.named else sentence for sentence in matched.how)
    if faults:
        raise RequestError(faults)
    return FoundRows(list(found.values()), told.left_out, told.how)


def _parts(rows: Sequence[Row], protocols: Collection[str], corpus: Corpus, faults: list[str]) -> list[_TablePart]:
    kinds = [kind_of(row) for row in rows]
    without = [row for row, kind in zip(rows, kinds, strict=True) if kind is None]
    if without:
        wanted = "; ".join(", ".join(names) for names in dict.fromkeys(OUTCOME_KINDS.values()))
        columns = ", ".join(name for name in without[0] if name != NUMBER) or "none of the known columns"
        faults.append(
            f"{len(without)} of {len(rows)} rows say no outcome, first row {without[0][NUMBER]} (it has {columns}); "
            f"expected one of: {wanted}. See docs/outcomes.md"
        )
        return []
    parts: dict[tuple[str, str], list[Row]] = {}
    for row, kind in zip(rows, kinds, strict=True):
        for protocol in [str(row["protocol"])] if "protocol" in row else list(protocols) or [""]:
            if "protocol" not in row or not protocols or protocol in protocols:
                parts.setdefault((kind or "", protocol), []).append(row)
    if not parts:
        faults.append(f"no row is about {', '.join(protocols)}")
    named = []
    for (kind, protocol), chosen in parts.items():
        ids = {name: [row[name] for row in chosen if name in row] for name in key_columns(chosen, "")}
        known = protocol or kind in _DIRECTION_OF_KIND
        named.append(_TablePart(kind, protocol if known else headline_of(ids, corpus), chosen))
    return named


def _of_retrieval(part: _TablePart, corpus: Corpus, faults: list[str], matched: Matched) -> list[Outcomes]:
    task = build_task(corpus, *select_protocols(corpus, [part.named]))
    if not isinstance(task, RetrievalTask):
        says = ", ".join(OUTCOME_KINDS[part.kind])
        faults.append(f"{says}: only of retrieval protocols, {part.named} is of {task.protocol.direction}")
        return []
    items = queries_of(task, corpus)
    if part.kind == "hits":
        return _of_hits(part.rows, task, items, faults, matched)
    positions = _all_once(part.rows, items, faults, matched)
    columns = [ranks(part.rows, column, faults) for column in OUTCOME_KINDS[part.kind]]
    if faults:
        return []
    low, high = np.ones((2, len(items.ids)), dtype=np.int32)
    low[positions], high[positions] = columns[0], columns[-1]
    wrong = np.flatnonzero((low > high) | (high > last_ranks(task)))
    if wrong.size:
        at = int(wrong[0])
        given = f"{low[at]}" if len(columns) == 1 else f"{low[at]} to {high[at]}"
        faults.append(
            f"{wrong.size} queries have impossible ranks, first {items.ids[at]!r}: expected a rank from 1 to "
            f"{last_ranks(task)[at]}, got {given}"
        )
        return []
    return [outcomes_of_ranges(task, low, high)]


def headline_of(ids: Mapping[str, Sequence[object]], corpus: Corpus) -> str:
    """The headline protocol of which these are queries: captions that search images, or images that search captions.

    Args:
        ids: Column of ids -> its cells; ids in ``caption_id`` are not those of images, nor the other way round.

    Raises:
        RequestError: They are both, neither or missing.
    """
    judged = pc.any(pc.equal(corpus.relevance["ground_truth"], pa.scalar(JUDGED))).as_py()
    headlines = {"captions": f"t2i/{JUDGED}" if judged else MAIN[0], "images": MAIN[1]}
    of_kind = {kind: {each: [0] for each in texts(getattr(corpus, kind)["id"])} for kind in headlines}
    foreign = {name: kind for kind, other in (("captions", "images"), ("images", "captions")) for name in KEYS[other]}
    found: dict[str, tuple[bool, int]] = dict.fromkeys(headlines, (False, 0))
    for name, cells in ids.items():
        once = len(set(map(str, cells))) == len(cells)  # of two columns of ids, queries are in the one without repeats
        for kind in headlines:
            n_known = 0 if foreign.get(name) == kind else sum(map(bool, known_ids(cells, of_kind[kind])))
            found[kind] = max(found[kind], (once and n_known == len(cells) > 0, n_known))
    (once, n_other), (only_once, n_known) = sorted(found.values())
    if n_known > 2 * n_other or only_once > once:  # numbers of captions may be those of other images by chance
        return headlines[max(found, key=lambda kind: found[kind])]
    both = "of captions and of images" if any(found["captions"]) else "of neither captions nor images"
    names = ", ".join(f"`{name}`" for name in ids)
    what = "the queries" if names in ("`query`", "`query_id`") else f"the cells of {names}"
    first = next((cells[0] for cells in ids.values() if cells), None)
    reason = "the rows have no column `query`" if first is None else f"{what} are ids {both}, first {first!r}"
    raise RequestError(f"corpus {corpus.name!r}: {reason}; name the protocol with --protocol or a column `protocol`")


def _of_hits(rows: list[Row], task: RetrievalTask, items: Items, faults: list[str], matched: Matched) -> list[Outcomes]:
    """Hits among the first k; every k is about all queries."""
    cutoffs = ranks(rows, "k", faults)
    correct = flags(rows, "correct", faults)
    hits: dict[int, NDArray[np.int64]] = {}
    for cutoff in np.unique(cutoffs).tolist():
        chosen = np.flatnonzero(cutoffs == cutoff)
        positions = _all_once([rows[at] for at in chosen], items, faults, matched)
        hits[cutoff] = positions[correct[chosen]]
    return [] if faults else [outcomes_of_hits(hits, task)]


def _all_once(rows: Sequence[Row], items: Items, faults: list[str], matched: Matched) -> NDArray[np.int64]:
    """The query of every row; a fault unless every query has one row."""
    before = len(faults)
    positions = match(rows, items, faults, matched)
    if len(faults) == before and (fault := missing(positions, np.arange(len(items.ids)), items)):
        faults.append(fault)
    return positions


def _of_choices(part: _TablePart, corpus: Corpus, faults: list[str], matched: Matched) -> list[Outcomes]:
    direction = _DIRECTION_OF_KIND[part.kind]
    items = compositional_items(corpus, direction)
    if not items.ids:
        columns = ", ".join(OUTCOME_KINDS[part.kind])
        faults.append(f"the rows judge {direction} (columns {columns}), corpus {corpus.name!r} has none")
        return []
    of_rows = match(part.rows, items, faults, matched)
    judgements = _judgements(part, faults)
    if faults:
        return []
    inside = of_rows >= 0
    positions = of_rows[inside]
    by_item = np.zeros((len(items.ids), judgements.shape[1]), dtype=bool)
    by_item[positions] = judgements[inside]
    # all of the direction but a caption against all its negatives, which is another choice
    every = [p for p in protocols_of(corpus) if p.direction == direction and p.name != ALL_NEGATIVES]
    tasks = []
    for protocol in select_protocols(corpus, [part.named]) if part.named else every:
        task = build_task(corpus, protocol)
        if not isinstance(task, ChoiceTask) or protocol.direction != direction:
            faults.append(f"{', '.join(OUTCOME_KINDS[part.kind])}: only of protocols of {direction}")
            return []
        tasks.append(task)
    gaps = {task.protocol.id: missing(positions, task.queries.astype(np.int64), items) for task in tasks}
    complete = [task for task in tasks if gaps[task.protocol.id] is None]
    # rows about protocols of which other queries have no row; under a named protocol, other rows do not matter
    stray = positions if part.named and not complete else np.empty(0, dtype=np.int64)
    if not part.named:
        stray = np.setdiff1d(positions, [query for task in complete for query in task.queries])
    if stray.size:
        partly = [task for task in tasks if part.named or np.isin(task.queries, stray).any()]
        smallest = min(partly, key=lambda task: len(task.queries))
        faults.append(f"{smallest.protocol.id}: {gaps[smallest.protocol.id]}")
        return []
    return [_judged(task, by_item[task.queries]) for task in complete]


def _judgements(part: _TablePart, faults: list[str]) -> NDArray[np.bool_]:
    """Shape ``(n_rows, 1)`` for pairs; ``(n_rows, 4)`` for halves, ``(n_rows, 2)`` for text and image."""
    judged = np.stack([flags(part.rows, column, faults) for column in OUTCOME_KINDS[part.kind]], axis=1)
    if part.kind == "pairs":
        return judged
    text, image = text_and_image(judged)
    for column, follows in (("text", text), ("image", image), ("group", text & image)):
        told = [at for at, row in enumerate(part.rows) if column in row]
        if told and (part.kind == "halves" or column == "group"):
            given = flags([part.rows[at] for at in told], column, faults)
            wrong = np.flatnonzero(given != follows[told])
            if wrong.size:
                row = part.rows[told[int(wrong[0])]]
                parts = ", ".join(f"{name} {row[name]}" for name in OUTCOME_KINDS[part.kind])
                faults.append(
                    f"{wrong.size} rows contradict themselves, first row {row[NUMBER]}: {column} is {row[column]}, but "
                    f"{parts}"
                )
    return judged


def _judged(task: ChoiceTask, judged: NDArray[np.bool_]) -> Outcomes:
    """Outcomes of sets without scores, by how many comparisons each may have lost.

    Every half of a quadruple that is wrong is a lost comparison; of a wrong pair of halves, one or both are.
    """
    fewest = (~judged).sum(axis=1, dtype=np.int32)
    most = 2 * fewest if judged.shape[1] == 2 else fewest
    n_scores = task.captions.shape[1] * task.images.shape[1]
    unscored = choice_outcomes(task, np.zeros((len(task.queries), n_scores), dtype=np.float32))
    return replace(
        unscored,
        rank_best=1 + fewest,
        rank_worst=1 + most,
        best_score=np.full(len(fewest), np.nan, dtype=np.float32),
        relevant_rank_best=np.repeat(1 + fewest, unscored.n_relevant),
        relevant_rank_worst=np.repeat(1 + most, unscored.n_relevant),
        scores=None,
        judgements=judged if task.protocol.direction == "quadruples" else None,
    )


HitLists: TypeAlias = Mapping[int, ArrayLike]
"""Cutoff k -> positions of the queries, in the order of the protocol, with a relevant item among the first k."""

PROTOCOL_OF = dict(zip(("ir", "tr"), MAIN, strict=True))
"""Image retrieval (ir) and text retrieval (tr): the names of the two directions in the files of ALBEF and TCL."""

_FILE = re.compile(r"(?P<model>.+)_(?P<task>ir|tr)(?P<cutoff>[1-9][0-9]*)_rank_index\.npy")


def read_hit_lists(folder: str | Path) -> dict[str, dict[str, dict[int, NDArray[np.int64]]]]:
    """All hit lists of a folder: model -> protocol id -> cutoff -> positions.

    Files are named ``MODEL_ir1_rank_index.npy`` (text to image) or ``MODEL_tr1_rank_index.npy`` (image to text),
    with any cutoff; each holds a one-dimensional array of integers.

    Raises:
        RequestError: The folder does not exist, has no such file, or one that cannot be read; all faults together.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise RequestError(f"{folder} is not a folder; name the folder of the *_rank_index.npy files")
    models: dict[str, dict[str, dict[int, NDArray[np.int64]]]] = {}
    faults = []
    for path in sorted(folder.iterdir()):
        name = _FILE.fullmatch(path.name)
        if name is None:
            continue
        try:
            positions = np.load(path, allow_pickle=False)
        except (OSError, ValueError) as error:
            faults.append(f"{path} cannot be read as a NumPy array: {error}")
            continue
        lists = models.setdefault(name["model"], {}).setdefault(PROTOCOL_OF[name["task"]], {})
        lists[int(name["cutoff"])] = positions
    if not models and not faults:
        faults.append(f"{folder} has no file like MODEL_ir1_rank_index.npy or MODEL_tr1_rank_index.npy")
    if faults:
        raise RequestError(faults)
    return models


def outcomes_of_hits(hits: HitLists, task: RetrievalTask) -> Outcomes:
    """The outcomes that hit lists determine, with ranks as ranges.

    Args:
        hits: Cutoff -> positions of the queries that hit, in the order of the task's queries; not sorted, without
            repetition. A hit at 1 is a hit at 5.

    Raises:
        RequestError: Lists that contradict each other or the task; all faults together.
    """
    worst = last_ranks(task)
    hit_at_cutoff = _hits_at_cutoffs(hits, len(task.queries), worst)
    low = np.ones(len(task.queries), dtype=np.int32)
    high = worst.copy()
    for cutoff, hit in hit_at_cutoff.items():  # ascending: a miss raises the lower end
        low[~hit] = cutoff + 1
    for cutoff, hit in reversed(hit_at_cutoff.items()):
        high[hit] = np.minimum(cutoff, worst)[hit]
    return outcomes_of_ranges(task, low, high)


def _hits_at_cutoffs(hits: HitLists, n_queries: int, worst: NDArray[np.int32]) -> dict[int, NDArray[np.bool_]]:
    """Cutoff -> whether each query hits, cutoffs ascending."""
    faults = [] if hits else ["no hit list: expected at least the list of the queries that hit at 1"]
    hit_at: dict[int, NDArray[np.bool_]] = {}
    for cutoff in sorted(hits):
        positions = np.asarray(hits[cutoff])
        if cutoff < 1 or positions.ndim != 1 or not (np.issubdtype(positions.dtype, np.integer) or not positions.size):
            faults.append(
                f"hits at {cutoff}: expected a one-dimensional array of integers, "
                f"got {positions.dtype} of shape {positions.shape}"
            )
            continue
        positions = positions.astype(np.int64)
        hit = np.zeros(n_queries, dtype=bool)
        inside = (positions >= 0) & (positions < n_queries)
        if not inside.all():
            faults.append(
                f"hits at {cutoff}: position {int(positions[~inside][0])} is outside 0..{n_queries - 1}, the positions "
                f"of the {n_queries} queries; the lists may be of another direction or corpus"
            )
        hit[positions[inside]] = True
        if hit.sum() != inside.sum():
            faults.append(f"hits at {cutoff}: {int(inside.sum() - hit.sum())} positions are listed more than once")
        impossible = int((~hit & (worst <= cutoff)).sum())
        if impossible:
            faults.append(
                f"hits at {cutoff}: {impossible} queries are missing, but every order of so small a gallery hits"
            )
        for smaller, before in hit_at.items():
            lost = np.flatnonzero(before & ~hit)
            if len(lost):
                faults.append(f"{len(lost)} queries hit at {smaller} but not at {cutoff}, first query {int(lost[0])}")
        hit_at[cutoff] = hit
    if faults:
        raise RequestError(faults)
    return hit_at


def last_ranks(task: RetrievalTask) -> NDArray[np.int32]:
    """The last rank that the first relevant item can have, behind every irrelevant one; shape ``(n_queries,)``."""
    return task.n_gallery - task.n_relevant.astype(np.int32) + 1


def outcomes_of_ranges(task: RetrievalTask, low: NDArray[np.int32], high: NDArray[np.int32]) -> Outcomes:
    """The outcomes of queries whose first relevant item has a rank from ``low`` to ``high``, shape ``(n_queries,)``.

    Where the two are equal the rank is known. Nothing is known of further relevant items but that they follow.
    """
    n_queries, n_relevant = len(task.queries), task.n_relevant.astype(np.int32)
    order = positions_within(n_relevant).astype(np.int32)
    relevant_rank_worst = np.repeat(last_ranks(task), n_relevant) + order
    relevant_rank_worst[task.offsets[:-1]] = high
    n_ranked = (low == high).astype(np.int32)
    return Outcomes(
        **query_columns(task),
        rank_best=low,
        rank_worst=high,
        n_tied_relevant=np.ones(n_queries, dtype=np.int32),
        best_score=np.full(n_queries, np.nan, dtype=np.float32),
        relevant_rank_best=np.repeat(low, n_relevant) + order,
        relevant_rank_worst=relevant_rank_worst,
        n_ranked=None if (n_ranked == n_relevant).all() else n_ranked,
    )
