"""Files that other tools read: a map for Embedding Atlas, MTEB's nDCG, and runs and qrels of TREC."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from capim.store import EmbeddingStore
from capim.store.errors import RequestError
from capim.store.files import replacing
from capim.store.schema import UNLISTED, Result, texts
from capim.store.types import Corpus, Modality
from capim.store.vectors import positions_within
from capim.tasks.metrics import is_known
from capim.tasks.metrics.retrieval import NDCG_10, RECALLS
from capim.tasks.protocols import MAIN, Protocol
from capim.tasks.ranking.cosine import nearest_neighbours
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import build_tasks, select_protocols
from capim.tasks.ranking.tasks import RetrievalTask
from capim.tasks.results.imported.runs import trec_id
from capim.tasks.results.stored import current_evaluations, read_outcomes

R = TypeVar("R", bound=Result)
NEIGHBOURS = 15  # as many as Embedding Atlas itself looks for
PICTURE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
_PICTURES = 1000  # with thumbnails in memory at once
_ROWS = 4096  # projected at a time
_LISTS = 2048  # queries with lists in memory as text at once


def export_atlas(
    store: EmbeddingStore,
    path: Path,
    *,
    encoders: Sequence[str],
    corpus: str,
    modality: Modality,
    protocols: Sequence[str] = (),
) -> int:
    """Write a Parquet file for Embedding Atlas (github.com/apple/embedding-atlas), the items of one encoder as points.

    | column | contents |
    |---|---|
    | ``id``, ``text``, ``language`` | of the item; the text of an image is all its captions, one a line |
    | ``image`` | images only: its thumbnail, ``{bytes, path}`` |
    | ``x``, ``y`` | :func:`project` |
    | ``neighbors`` | ``{ids, distances}``: rows of the file and 1 - cosine, nearest first, exact |
    | ``PROTOCOL ENCODER rank`` | of the item as a query: the rank of its first relevant item, ties won; else null |
    | ``PROTOCOL ENCODER hit`` | whether that is 1 even if ties are lost |

    Args:
        path: A file that ends with ``.parquet``.
        encoders: The first gives points and neighbours; what each found is in columns.
        corpus: Name or fingerprint.
        modality: The items: ``image`` or ``caption``.
        protocols: Whose outcomes to show; by default ``i2t/any`` of images, ``t2i/all`` of captions.

    Returns:
        The number of its rows.

    Raises:
        RequestError: The suffix is another one, there are no vectors, or the encoder has several for each item.
    """
    if path.suffix != ".parquet":
        raise RequestError(f"embedding-atlas writes a .parquet file, got {str(path)!r}; end it with .parquet")
    vectors = store.vectors(encoder=encoders[0], corpus=corpus, modality=modality)
    items = store.items(corpus, modality)
    columns: dict[str, Any] = {"id": items["id"]}
    if modality == "caption":
        columns |= {"text": items["text"], "language": items["language"]}
    else:
        columns["text"] = _captions_of(store.items(corpus, "caption"), texts(items["id"]))
    points = project(vectors.matrix)
    columns |= {"x": points[:, 0], "y": points[:, 1]}
    nearest = nearest_neighbours(vectors.matrix, NEIGHBOURS)
    columns["neighbors"] = pa.StructArray.from_arrays(
        [pa.array([*nearest.positions]), pa.array([*(1 - nearest.scores)])], names=["ids", "distances"]
    )
    specs = {spec.fingerprint: spec for spec in map(store.encoder, encoders)}
    named = Counter(spec.name for spec in specs.values())
    evaluations = current_evaluations(
        store,
        encoder_fingerprint=[*specs],
        corpus_fingerprint=store.key(encoder=encoders[0], corpus=corpus, modality=modality).corpus_fingerprint,
        protocol=protocols or MAIN,
    )
    for row in evaluations:
        if _asks(row.protocol, modality):
            outcomes, spec = store.rows("outcomes", evaluation=row.evaluation), specs[row.encoder_fingerprint]
            name = spec.name if named[spec.name] == 1 else f"{spec.name}@{spec.revision}"
            columns |= _found(outcomes, f"{row.protocol} {name}", len(items))
    table = pa.table(columns)
    with replacing(path) as temporary:
        _write(temporary, table, items["sha"].to_pylist() if modality == "image" else [], store)
    return len(table)


def project(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return points, shape ``(n, 2)``, of vectors ``(n, dim)``: the two directions of most variance, about the mean.

    It needs memory for ``dim`` squared numbers. Each direction points to where its largest component is positive, so
    that equal vectors give equal points.

    Examples:
        >>> points = project(np.float32([[0, 0, 3], [0, 1, 3], [0, 2, 3], [0, 3, 3]]))
        >>> points[:, 0].round(1).tolist()
        [-1.5, -0.5, 0.5, 1.5]
    """
    mean = vectors.mean(axis=0, dtype=np.float64)
    covariance = np.zeros((vectors.shape[1],) * 2)
    for start in range(0, len(vectors), _ROWS):
        centred = vectors[start : start + _ROWS] - mean
        covariance += centred.T @ centred
    axes = np.linalg.eigh(covariance).eigenvectors[:, ::-1][:, :2]
    axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
    points = np.zeros((len(vectors), 2), np.float32)
    for start in range(0, len(vectors), _ROWS):
        points[start : start + _ROWS, : axes.shape[1]] = (vectors[start : start + _ROWS] - mean) @ axes
    return points


def _asks(protocol: str, modality: Modality) -> bool:
    """True if items of this kind are the queries of a protocol of retrieval."""
    found = Protocol.of(protocol)
    return found.is_retrieval and found.sides[0] == modality


def _captions_of(captions: pa.Table, images: Sequence[str]) -> list[str]:
    rows = captions.select(["image_id", "text"]).to_pandas().dropna()
    together = rows[rows["text"] != ""].groupby("image_id")["text"].agg("\n".join)
    found: list[str] = together.reindex(list(images), fill_value="").tolist()
    return found


def _found(outcomes: pa.Table, label: str, n_items: int) -> dict[str, pa.Array]:
    """Return rank and hit of each item; null where it was no query."""
    ords, best, worst = (outcomes[name].to_numpy() for name in ("query_ord", "rank_best", "rank_worst"))
    rank, hit, absent = np.zeros(n_items, np.int32), np.zeros(n_items, np.bool_), np.ones(n_items, np.bool_)
    rank[ords], hit[ords], absent[ords] = best, worst == 1, False
    unranked = absent | (rank >= UNLISTED)
    return {f"{label} rank": pa.array(rank, mask=unranked), f"{label} hit": pa.array(hit, mask=absent)}


def _write(path: Path, table: pa.Table, shas: Sequence[str | None], store: EmbeddingStore) -> None:
    """Write the table, with the thumbnails of its images if there are any, some rows at a time."""
    schema = table.schema.append(pa.field("image", PICTURE)) if shas else table.schema
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for start in range(0, len(table), _PICTURES):
            part = table.slice(start, _PICTURES)
            if shas:
                shown = shas[start : start + _PICTURES]
                pictures = store.thumbnails([sha for sha in shown if sha])
                cells = [{"bytes": pictures[sha], "path": None} if sha in pictures else None for sha in shown]
                part = part.append_column("image", pa.array(cells, PICTURE))
            writer.write_table(part)


def ndcg_rows(store: EmbeddingStore, results: Iterable[R]) -> Iterator[R]:
    """Yield nDCG@10 where a query has one relevant item: MTEB's main score, which is not among stored results.

    Rows like those of R@1, without an interval, for all that have no row of nDCG@10.

    Raises:
        WorkError: Results have no outcomes.
    """
    rows = list(results)
    having = {(row.corpus, row.protocol, row.encoder) for row in rows if row.metric == NDCG_10.name}
    for row in rows:
        protocol = Protocol.of(row.protocol)
        if row.metric != RECALLS[0].name or not protocol.is_retrieval:
            continue
        if (row.corpus, row.protocol, row.encoder) not in having:
            outcomes = read_outcomes(store, row.evaluation, protocol)
            if is_known(NDCG_10, outcomes):
                value = NDCG_10.value(outcomes)
                yield replace(row, metric=NDCG_10.name, value=value, ci_low=None, ci_high=None)


def export_trec(
    store: EmbeddingStore, folder: Path, wanted: Mapping[str, Sequence[str]], *, note: Callable[[str], object]
) -> list[Path]:
    """Write TREC runs and qrels, as ``trec_eval``, ``pytrec_eval``, ``ranx`` and ``ir_measures`` read them.

    ``CORPUS/PROTOCOL/qrels.txt`` has a line ``query 0 item grade`` for each item that is relevant or, with grade 0,
    was judged not to be; ``ENCODER.run`` in the same folder has the stored lists: ``query Q0 item rank score tag``, at
    most ``store.schema.TOP`` lines for a query.

    Differences from our results: measures that look beyond the end of a list (reciprocal rank, average precision) take
    an item that is not in it as not found. And equal scores: they are written equal, in the order of the corpus, but
    ``trec_eval`` orders them by id, descending, whatever the rank column says. Our results are the mean over their
    orders; those of ``trec_eval`` are between ``value_ties_lost`` and ``value_ties_won``. Scores have as many digits as
    tell apart the float32 that were ranked.

    Args:
        folder: Where the files go; made if need be.
        wanted: Columns of outcomes with their values, as ``EmbeddingStore.rows`` takes them. Of several evaluations of
            one encoder, corpus and protocol the newest is written.
        note: Gets a sentence about protocols without lists, and one about ties that matter.

    Returns:
        The files written.

    Raises:
        RequestError: No evaluation has lists, the folder is a file, or two evaluations would be written to one file.
    """
    if folder.is_file():
        raise RequestError(f"trec writes a folder of files, but {str(folder)!r} is a file; give the path of a folder")
    rows = current_evaluations(store, **wanted)
    runs, states = [(row.corpus, row.protocol, row.encoder) for row in rows], {row.corpus_fingerprint for row in rows}
    if len({*runs}) < len(runs) or len({row.corpus for row in rows}) < len(states):
        raise RequestError(
            "trec names its files by corpus and encoder: export one state of a corpus, and one revision of an encoder, "
            "at a time"
        )
    written: dict[Path, None] = {}
    left_out: set[str] = set()
    ties: list[tuple[int, str]] = []
    tasks: dict[tuple[str, str], tuple[RetrievalTask | None, NDArray[np.object_]]] = {}
    for row in rows:
        fingerprint, protocol, encoder = row.corpus_fingerprint, row.protocol, row.encoder
        corpus = store.corpus(row.corpus, fingerprint)
        if (fingerprint, protocol) not in tasks:
            items = corpus.items(Protocol.of(protocol).sides[1])
            ids = np.array([trec_id(item) for item in texts(items["id"])], dtype=object)
            tasks[fingerprint, protocol] = task_of(corpus, protocol), ids
        task, ids = tasks[fingerprint, protocol]
        outcomes = store.rows("outcomes", evaluation=row.evaluation, protocol=protocol)
        if task is None or not outcomes.num_rows or outcomes["top_scores"].null_count == outcomes.num_rows:
            left_out.add(f"{protocol} on {corpus.name}")
            continue
        place = folder / corpus.name / re.sub(r"[^\w.@-]+", "-", protocol)
        place.mkdir(parents=True, exist_ok=True)
        qrels, run = place / "qrels.txt", place / f"{encoder}.run"
        if qrels not in written:
            _write_lines(qrels, _qrel_lines(task, ids))
        _write_lines(run, _run_lines(outcomes, ids, encoder))
        written |= {qrels: None, run: None}
        if n_tied := int(Outcomes.from_arrow(outcomes, Protocol.of(protocol)).tied.sum()):
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
    """Return the queries and relevant items of a protocol; None for pairs and quadruples."""
    [task] = build_tasks(corpus, select_protocols(corpus, [protocol]))
    return task if isinstance(task, RetrievalTask) else None


def _qrel_lines(task: RetrievalTask, ids: NDArray[np.object_]) -> Iterator[str]:
    queries = [trec_id(query) for query in task.query_ids.tolist()]
    grades = [1] * len(task.relevant) if task.grades is None else task.grades.tolist()
    for at, item, grade in zip(task.query_of_relevant.tolist(), ids[task.relevant_ords].tolist(), grades, strict=True):
        yield f"{queries[at]} 0 {item} {grade}\n"
    for at, item in () if task.dismissed is None else task.dismissed:
        yield f"{queries[at]} 0 {ids[task.item_space.ords_of(item)]} 0\n"


def _run_lines(outcomes: pa.Table, ids: NDArray[np.object_], encoder: str) -> Iterator[str]:
    for batch in outcomes.select(["query_id", "top_ords", "top_scores"]).to_batches(max_chunksize=_LISTS):
        lengths = pc.fill_null(pc.list_value_length(batch["top_ords"]), 0).to_numpy()
        queries = np.repeat(np.array([trec_id(query) for query in texts(batch["query_id"])], dtype=object), lengths)
        ords = np.asarray(pc.list_flatten(batch["top_ords"]), dtype=np.int32)
        items = ids[ords].tolist()
        scores = texts(pc.cast(pc.list_flatten(batch["top_scores"]), pa.string()))  # the shortest text of each float32
        ranks = (positions_within(lengths) + 1).tolist()
        for query, item, rank, score in zip(queries.tolist(), items, ranks, scores, strict=True):
            yield f"{query} Q0 {item} {rank} {score} {encoder}\n"


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.writelines(lines)
