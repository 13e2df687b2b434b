"""TREC runs and qrels of stored outcomes, as ``trec_eval``, ``pytrec_eval``, ``ranx`` and ``ir_measures`` read them.

``CORPUS/PROTOCOL/qrels.txt`` has a line ``query 0 item grade`` for each item that is relevant or, with grade 0,
was judged not to be; ``ENCODER.run`` beside it the stored lists: ``query Q0 item rank score tag``, at most
``store.schema.TOP`` lines for a query.

What differs from our figures: measures that look beyond the end of a list (reciprocal rank, average precision) take an
item that is not in it as not found. And equal scores: they are written equal, in the order of the corpus, but
``trec_eval`` orders them by id, descending, whatever the rank column says. Our figures are the mean over their orders;
those of ``trec_eval`` are between ``value_ties_lost`` and ``value_ties_won``. Scores have as many digits as tell apart
the float32 that were ranked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from capim.store import EmbeddingStore
from capim.store.errors import RequestError
from capim.store.files import replacing
from capim.store.ragged import positions_within
from capim.store.schema import texts
from capim.store.types import Corpus
from capim.tasks.results.imported.runs import trec_id
from capim.tasks.runtime.stored import newest_evaluations
from capim.tasks.scoring.protocols.selection import build_task, select_protocols
from capim.tasks.scoring.protocols.tasks import RetrievalTask

_ROWS = 2048  # queries whose lists are in memory as text at once


def export_trec(
    store: EmbeddingStore, folder: Path, wanted: Mapping[str, Sequence[str]], *, note: Callable[[str], object]
) -> list[Path]:
    """Writes the runs and qrels of every evaluation that has lists.

    Args:
        folder: Where the files go; made if need be.
        wanted: Columns of outcomes with their values, as ``EmbeddingStore.rows`` takes them. Of several evaluations of
            one encoder, corpus and protocol the newest is written.
        note: Gets a sentence about protocols without lists, and one about ties that matter.

    Returns:
        The files written.

    Raises:
        RequestError: No evaluation has lists, or the folder is a file.
    """
    if folder.is_file():
        raise RequestError(f"trec writes a folder of files, but {str(folder)!r} is a file; give the path of a folder")
    written: dict[Path, None] = {}
    left_out: set[str] = set()
    ties: list[tuple[int, str]] = []
    tasks: dict[tuple[str, str], tuple[RetrievalTask | None, NDArray[np.object_]]] = {}
    for row in newest_evaluations(store, wanted):
        fingerprint, protocol, encoder = row["corpus_fingerprint"], row["protocol"], row["encoder"]
        corpus = store.corpus(row["corpus"], fingerprint)
        if (fingerprint, protocol) not in tasks:
            items = corpus.images if protocol.startswith("t2i") else corpus.captions
            ids = np.array([trec_id(item) for item in texts(items["id"])], dtype=object)
            tasks[fingerprint, protocol] = task_of(corpus, protocol), ids
        task, ids = tasks[fingerprint, protocol]
        outcomes = store.rows("outcomes", evaluation=row["evaluation"], protocol=protocol)
        if task is None or not outcomes.num_rows or outcomes["top_scores"].null_count == outcomes.num_rows:
            left_out.add(f"{protocol} on {corpus.name}")
            continue
        place = folder / corpus.name / re.sub(r"[^\w.@-]+", "-", protocol)
        place.mkdir(parents=True, exist_ok=True)
        qrels, run = place / "qrels.txt", place / f"{encoder}.run"
        if qrels not in written:
            _write(qrels, _qrel_lines(task, ids))
        _write(run, _run_lines(outcomes, ids, encoder))
        written |= {qrels: None, run: None}
        if n_tied := int((outcomes["rank_worst"].to_numpy() > outcomes["rank_best"].to_numpy()).sum()):
            ties.append(
                (n_tied, f"{n_tied:,} of {outcomes.num_rows:,} queries of {encoder}, {protocol} on {corpus.name}")
            )
    if not written:
        raise RequestError(f"store {store.uri} has no lists of items for these names; `capim evaluate` writes them")
    if left_out:
        note(f"left out, without lists of items and their scores: {', '.join(sorted(left_out))}")
    if ties:
        note(
            f"{len(ties)} runs have relevant items that tie with others, most of them {max(ties)[1]}; trec_eval orders "
            "ties by id, capim takes the mean over their orders"
        )
    return list(written)


def task_of(corpus: Corpus, protocol: str) -> RetrievalTask | None:
    """The queries and relevant items of a protocol; None for pairs and quadruples."""
    # of an orientation of late interaction, the protocol itself is selected too
    [one] = [found for found in select_protocols(corpus, [protocol]) if found.id == protocol]
    task = build_task(corpus, one)
    return task if isinstance(task, RetrievalTask) else None


def _qrel_lines(task: RetrievalTask, ids: NDArray[np.object_]) -> Iterator[str]:
    queries = [trec_id(query) for query in task.query_ids.tolist()]
    grades = [1] * len(task.relevant) if task.grades is None else task.grades.tolist()
    for at, item, grade in zip(task.query_of_relevant.tolist(), ids[task.relevant].tolist(), grades, strict=True):
        yield f"{queries[at]} 0 {item} {grade}\n"
    for at, item in () if task.dismissed is None else task.dismissed.tolist():
        yield f"{queries[at]} 0 {ids[item]} 0\n"


def _run_lines(outcomes: pa.Table, ids: NDArray[np.object_], encoder: str) -> Iterator[str]:
    for batch in outcomes.select(["query_id", "top_ords", "top_scores"]).to_batches(max_chunksize=_ROWS):
        lengths = pc.fill_null(pc.list_value_length(batch["top_ords"]), 0).to_numpy()
        queries = np.repeat(np.array([trec_id(query) for query in texts(batch["query_id"])], dtype=object), lengths)
        ords = np.asarray(pc.list_flatten(batch["top_ords"]), dtype=np.int32)
        items = ids[ords].tolist()
        scores = texts(pc.cast(pc.list_flatten(batch["top_scores"]), pa.string()))  # the shortest text of each float32
        ranks = (positions_within(lengths) + 1).tolist()
        for query, item, rank, score in zip(queries.tolist(), items, ranks, scores, strict=True):
            yield f"{query} Q0 {item} {rank} {score} {encoder}\n"


def _write(path: Path, lines: Iterable[str]) -> None:
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.writelines(lines)
