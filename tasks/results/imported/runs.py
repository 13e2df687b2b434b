"""Runs: a system's lists of the best items for queries; and qrels, the relevance judgements.

Their files are read by :mod:`capim.store.sets.lists`. Items are ordered by score, whatever the rank column says; equal
scores are ties. A relevant item that its list does not hold has a rank from the length of the list + 1 to the end of
the gallery. An item that ties with the last of a list might tie with items that were cut off: the list is used as
given. With judged documents, a query without a list counts as not found at every k, and a list of a query that nobody
judged is left out and counted, as in trec_eval. An id is written as it is or as :func:`trec_id`.

On judged documents a run also has outcomes as trec_eval has them (``t2i/judged@trec_eval``): scores as float32, equal
ones by id, descending; an item that is not listed, and a query without a list, is not found.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from typing import TypeAlias
from urllib.parse import quote

import numpy as np
import pyarrow.compute as pc

from capim.store.errors import RequestError
from capim.store.files import existing_file
from capim.store.forms import NO_COLUMNS, Columns
from capim.store.schema import JUDGED, TOP, UNLISTED, texts
from capim.store.sets.lists import QRELS, RUN, first_line, read_lists
from capim.store.sets.matching import Items, key_of, left_out_of
from capim.store.tables import NAMED, read_json, skips_bad_rows, suffix_of, uncompressed
from capim.store.types import Corpus
from capim.tasks.corpora.build import CaptionRow, ImageRow, RelevanceRow, SkippedRow, build_corpus
from capim.tasks.protocols import JUDGED_QUERIES, MAIN_OF_JUDGED, TREC_EVAL, Protocol
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import build_tasks, select_protocols
from capim.tasks.ranking.ranker import PartOutcomes
from capim.tasks.ranking.tasks import RetrievalTask, query_columns
from capim.tasks.results.imported.tables import FoundRows, headline_of, queries_of

Run: TypeAlias = dict[str, dict[str, float]]
"""Query id -> item id -> score."""
Qrels: TypeAlias = dict[str, dict[str, int]]
"""Query id -> item id -> grade."""

UNJUDGED = "no document is judged relevant to this query"
_LEAVE_OUT = "; --skip-bad-rows leaves them out"


def read_run(path: Path, columns: Columns = NO_COLUMNS) -> Run:
    """Return the lists of a run; as :func:`capim.store.sets.lists.read_lists`."""
    return read_lists(path, RUN, columns)


def tag_of(path: Path) -> str:
    """Return the name of the system that made a run: TREC's last column, mteb's model; else the name of the file."""
    tag = uncompressed(path).stem
    if suffix_of(path) == ".json" and isinstance(content := read_json(path), dict):
        made_by = content.get("mteb_model_meta")  # of mteb's predictions
        tag = str(made_by.get("model_name") or tag) if isinstance(made_by, dict) else tag
    if suffix_of(path) not in NAMED:
        words = first_line(existing_file(path)).split()
        tag = words[5] if len(words) == 6 else tag
    return re.sub(r"[^A-Za-z0-9._-]+", "-", tag)


def read_qrels(path: Path, columns: Columns = NO_COLUMNS) -> Qrels:
    """Return judgements.

    Raises:
        RequestError: A grade is no whole number, and as :func:`capim.store.sets.lists.read_lists`.
    """
    grades = read_lists(path, QRELS, columns)
    wrong = [(q, d, g) for q, items in grades.items() for d, g in items.items() if not float(g).is_integer()]
    if wrong:
        query, item, grade = wrong[0]
        raise RequestError(f"{path}: {len(wrong)} grades are no whole numbers, first {grade} of {query!r}, {item!r}")
    return {query: {item: int(grade) for item, grade in items.items()} for query, items in grades.items()}


def trec_id(item: str) -> str:
    """Return an id as a word of a line: whitespace, unprintable signs and ``%`` as in a URL, the rest as it is.

    Examples:
        >>> trec_id("dogs/brown dog.jpg"), trec_id("100%"), trec_id("дом")
        ('dogs/brown%20dog.jpg', '100%25', 'дом')
    """
    return re.sub(r"[\s%\x00-\x1f\x7f]", lambda sign: quote(sign[0]), item)


def corpus_of_qrels(qrels: Qrels, runs: Iterable[Run], name: str, *, origin: str) -> Corpus:
    """Return a corpus of ids only: the queries of qrels, and the documents of qrels and runs.

    Queries without a relevant document are left out; grades above 0 are relevant.

    Raises:
        RequestError: No query has a relevant document.
    """
    listed = (item for run in runs for items in run.values() for item in items)
    documents = dict.fromkeys(chain(chain.from_iterable(qrels.values()), sorted({*listed})))
    asked = dict.fromkeys(query for query, grades in qrels.items() if max(grades.values()) > 0)
    if not asked:
        raise RequestError(f"{origin}: none of its {len(qrels)} queries has a relevant document")
    return build_corpus(
        name,
        map(ImageRow, documents),
        (CaptionRow(query, None, None) for query in asked),
        source=None,
        relevance=[RelevanceRow(JUDGED, "t2i", query, *each) for query in asked for each in qrels[query].items()],
        skipped=[SkippedRow(query, UNJUDGED, "caption") for query in qrels if query not in asked],
        origin=origin,
        main_metric=MAIN_OF_JUDGED,
    )


def outcomes_of_run(run: Run, corpus: Corpus, *, protocols: Collection[str] = ()) -> FoundRows:
    """Return the outcomes of the protocols that the lists answer: those named, or the headline with these queries.

    Queries and items are named by ids, or all by file names or texts. Of judged documents, also those in trec_eval's
    order.

    Raises:
        RequestError: Queries or items are not those of the protocol; all faults together.
    """
    ids = [item for items in (corpus.images, corpus.captions) for item in texts(items["id"])]
    id_of = {trec_id(item): item for item in ids if trec_id(item) != item}
    run = {
        id_of.get(query, query): {id_of.get(item, item): score for item, score in scores.items()} if id_of else scores
        for query, scores in run.items()
    }
    headline = protocols or [headline_of({"query": list(run)}, corpus)]
    left_out, faults, found, how = dict[str, str](), list[str](), list[Outcomes](), list[str]()
    wanted = [protocol for protocol in headline if protocol != TREC_EVAL]
    for task in build_tasks(corpus, select_protocols(corpus, wanted)) if wanted else ():
        if not isinstance(task, RetrievalTask):
            faults.append(f"{task.protocol.id}: a run has lists of retrieval protocols only")
            continue
        query_ids, of_queries = _ids_of(run, queries_of(task, corpus))
        listed = dict.fromkeys(chain.from_iterable(run.values()))
        item_ids, of_items = _ids_of(listed, Items.of_corpus(corpus, task.protocol.sides[1]))
        named = {query_ids[query]: {item_ids[item]: scores[item] for item in scores} for query, scores in run.items()}
        own, notes = _own_lists(named, task, corpus)
        if at_fault := _faults(own, task, corpus):
            faults += [f"{task.protocol.id}: {fault}" for fault in at_fault]
            continue
        found.append(_of_task(own, task, _item_ords(task, corpus)))
        left_out |= dict.fromkeys(notes, "")
        items_too = f", their items by {of_items}" if of_items != "ids" else ""
        how.append(f"{task.protocol.id}: {len(run):,} queries matched by their {of_queries}{items_too}")
        if task.protocol.id == JUDGED_QUERIES:
            found.append(trec_eval_outcomes(own, task, corpus))
    if faults:
        raise RequestError(faults)
    return FoundRows(found, list(left_out), how, {each.protocol.id: "query" for each in found})


def _ids_of(names: Collection[str], items: Items) -> tuple[Mapping[str, str], str]:
    """Return name -> id, and the kind of names: ids, or another key if no name is an id and each means another item."""
    key = None if {*items.ids} & {*names} else key_of({"query": list(names)}, items)
    meant = [places[0] for places in key.places if len(places) == 1] if key is not None else []
    if key is None or key.of == items.of or len({*meant}) < len(names):
        return dict(zip(names, names, strict=True)), "ids"
    return dict(zip(names, (items.ids[place] for place in meant), strict=True)), key.of


def _own_lists(run: Run, task: RetrievalTask, corpus: Corpus) -> tuple[Run, list[str]]:
    """Return the lists of the task's queries, empty for judged queries without one, and notes on lists left out.

    A list of a query that the corpus left out is; of judged documents, any other too if a list is of one of them.
    """
    known, asked = left_out_of(corpus, "caption") | left_out_of(corpus, "image"), {*task.query_ids.tolist()}
    out = dict.fromkeys(query for query in run if query in known and query not in asked)
    own = {query: items for query, items in run.items() if query not in out}
    notes = [f"{len(out)} lists are of queries that the corpus left out, first {next(iter(out))!r}"] if out else []
    if skips_bad_rows():
        items = _item_ords(task, corpus)
        kept = {q: {item: s for item, s in scores.items() if item in items} for q, scores in own.items() if q in asked}
        if n := sum(map(len, own.values())) - sum(map(len, kept.values())):
            notes.append(f"{n:,} lines are of queries or items that the corpus does not have, left out")
        own = kept
    if task.grades is not None and own.keys() & asked:
        unjudged = [query for query in own if query not in asked]
        own = {query: items for query, items in own.items() if query in asked}
        if unjudged:
            notes.append(f"{len(unjudged)} lists are of queries that nobody judged, left out, first {unjudged[0]!r}")
        judged, listed = {*texts(corpus.relevance["item_id"])}, dict.fromkeys(chain.from_iterable(own.values()))
        if listed and not judged & listed.keys():
            like = f"first {next(iter(listed))!r}; judged are such as {min(judged)!r}"
            notes.append(f"warning: none of its {len(listed):,} items is judged, {like}: compare the ids")
        missing = [query for query in task.query_ids.tolist() if query not in own]
        own |= {query: {} for query in missing}
        if missing:
            notes.append(
                f"{len(missing)} of {len(asked)} queries have no list and count as not found, first {missing[0]!r}"
            )
    return own, notes


def _item_ords(task: RetrievalTask, corpus: Corpus) -> dict[str, int]:
    """Return id -> ord of the items in the task's galleries."""
    ids = texts(corpus.items(task.protocol.sides[1])["id"])
    return {ids[ord_]: int(ord_) for ord_ in task.item_space.ords_of(task.searched)}


def _faults(run: Run, task: RetrievalTask, corpus: Corpus) -> list[str]:
    queries, items = set(task.query_ids.tolist()), _item_ords(task, corpus)
    faults = []
    absent = [query for query in task.query_ids.tolist() if query not in run]
    if absent:
        faults.append(f"{len(absent)} of {len(queries)} queries have no list, first {absent[0]!r}: give each one")
    unknown = [query for query in run if query not in queries]
    if unknown:
        faults.append(
            f"{len(unknown)} lists are of none of the {len(queries)} queries, first {unknown[0]!r}{_LEAVE_OUT}"
        )
    stray = {item: query for query, scores in run.items() for item in scores if item not in items}
    if stray:
        item = next(iter(stray))
        known = next(iter(items), "")
        faults.append(
            f"{len(stray)} items are not in the gallery, first {item!r} in the list of {stray[item]!r}; ids look like "
            f"{known!r}{_LEAVE_OUT}"
        )
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
    counts, listed = PartOutcomes.of_lists(task, lists, scores, unlisted=-np.inf)
    cut_off = np.where(depth > 0, task.n_gallery - depth, task.n_relevant)  # no item but the relevant ones
    depth = np.where(depth > 0, depth, UNLISTED - 1)
    query_of, top_ords = task.query_of_relevant, lists[:, :TOP]
    found = counts._replace(
        n_above=np.where(listed, counts.n_above, depth[query_of]),
        n_tied=np.where(listed, counts.n_tied, cut_off[query_of]),
        top_ords=top_ords,
        top_scores=np.where(top_ords >= 0, scores[:, :TOP], np.nan).astype(np.float32),
    ).outcomes(task)
    n_ranked = np.bincount(query_of, weights=listed, minlength=len(depth)).astype(np.int32)
    return replace(
        found,
        n_ranked=None if (n_ranked == task.n_relevant).all() else n_ranked,
        best_score=np.where(n_ranked > 0, found.best_score, np.nan).astype(np.float32),
        n_tied_relevant=np.where(n_ranked > 0, found.n_tied_relevant, 1).astype(np.int32),
    )


def trec_eval_outcomes(run: Run, task: RetrievalTask, corpus: Corpus) -> Outcomes:
    """Return the outcomes of judged documents as trec_eval has them.

    Its bpref (Buckley and Voorhees 2004) takes documents of grade 0 as judged not relevant, and none below.
    """
    ids = texts(corpus.images["id"])
    rows = corpus.relevance.filter((pc.field("ground_truth") == JUDGED) & (pc.field("grade") == 0))
    dismissed: dict[str, set[str]] = {}
    for query, item in zip(texts(rows["query_id"]), texts(rows["item_id"]), strict=True):
        dismissed.setdefault(query, set()).add(item)
    ranks = np.empty(len(task.relevant), dtype=np.int32)
    grades = np.empty_like(ranks)
    bpref = np.zeros(len(task.queries))
    for at, query in enumerate(task.query_ids.tolist()):
        own, scores, others = slice(*task.offsets[at : at + 2]), run[query], dismissed.get(query, set())
        relevant = dict.fromkeys(ids[item] for item in task.relevant_ords[own])
        order = sorted(scores, key=lambda item: (np.float32(scores[item]), item.encode()), reverse=True)
        place = {item: rank for rank, item in enumerate(order, start=1)}
        unlisted = count(UNLISTED)
        rank_of = np.array([place.get(item) or next(unlisted) for item in relevant])
        by_rank = np.argsort(rank_of)
        ranks[own] = rank_of[by_rank]
        grades[own] = task.grades[own][by_rank] if task.grades is not None else 1
        judged = [item in relevant for item in order if item in relevant or item in others]
        bpref[at] = _bpref(judged, len(relevant), len(others))
    first = ranks[task.offsets[:-1]]
    return Outcomes(
        **query_columns(replace(task, protocol=Protocol.of(TREC_EVAL, task.protocol.main_metric))),
        rank_best=first,
        rank_worst=first,
        n_tied_relevant=np.ones(len(first), dtype=np.int32),
        best_score=np.full(len(first), np.nan, dtype=np.float32),
        relevant_rank_best=ranks,
        relevant_rank_worst=ranks,
        relevant_grades=grades,
        bpref=bpref,
    )


def _bpref(judged: Sequence[bool], n_relevant: int, n_dismissed: int) -> float:
    """Return bpref of one query; ``judged``: of the judged documents of its list, best first, if each is relevant.

    Examples:
        >>> _bpref([False, True, True], n_relevant=2, n_dismissed=2), _bpref([True], 4, 0)
        (0.5, 0.25)
    """
    value, above = 0.0, 0
    for relevant in judged:
        if relevant:
            value += 1 - min(above, n_relevant) / min(n_dismissed, n_relevant) if above else 1
        above += not relevant
    return value / n_relevant
