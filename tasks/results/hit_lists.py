"""Outcomes of models without embeddings, from lists of the queries that have a hit among the first 1, 5 and 10 items.

For each query such lists give only whether a relevant item is among the first 1, 5 or 10. Its rank is known as a range
(1, 2-5, 6-10, beyond 10), which is stored: ``rank_best`` and ``rank_worst`` are the ends of the range, as if the items
between them were tied. R@1, R@5 and R@10 are exact, because no range crosses a listed cutoff. Other metrics (MRR,
median rank, nDCG) are undetermined, and :func:`known_metrics` leaves them out; ``best_score`` is NaN, and there are no
result lists.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from store.errors import RequestError
from store.ragged import positions_within
from store.types import Corpus, EncoderSpec, digest16
from tasks.metrics import Metric, metrics_of
from tasks.results.summary import Evaluated, Provenance, result_rows
from tasks.scoring.outcomes import Outcomes
from tasks.scoring.protocols.selection import build_tasks, select_protocols
from tasks.scoring.protocols.tasks import RetrievalTask
from tasks.statistics.resampling import Resampling

HitLists: TypeAlias = Mapping[int, ArrayLike]
"""Cutoff k -> positions of the queries, in the order of the protocol, with a relevant item among the first k."""

PROTOCOL_OF = {"ir": "t2i/all", "tr": "i2t/any"}
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
        task: The queries, clusters and gallery of the lists.

    Raises:
        RequestError: Lists that contradict each other or the task; all faults together.

    Examples:
        Of three queries against ten items, the first hits at 1, the second at 5.

        >>> from store.types import EvalProtocol
        >>> three = np.arange(3, dtype=np.int32)
        >>> task = RetrievalTask(
        ...     protocol=EvalProtocol(id="t2i/all", direction="t2i", title="Every caption searches all images"),
        ...     query_ids=np.array(["a", "b", "c"], dtype=object), queries=three, clusters=three, relevant=three,
        ...     galleries=(np.arange(10, dtype=np.int32),), gallery_of=three * 0, offsets=np.arange(4),
        ...     weights=np.ones(3),
        ... )
        >>> outcomes = outcomes_of_hits({1: [0], 5: [0, 1]}, task)
        >>> list(zip(outcomes.rank_best.tolist(), outcomes.rank_worst.tolist(), strict=True))
        [(1, 1), (2, 5), (6, 10)]
    """
    n_queries = len(task.queries)
    n_relevant = task.n_relevant.astype(np.int32)
    n_gallery = np.array([len(gallery) for gallery in task.galleries], dtype=np.int32)[task.gallery_of]
    worst = n_gallery - n_relevant + 1  # the first relevant item behind every irrelevant one
    hit_at_cutoff = _hits_at_cutoffs(hits, n_queries, worst)
    low = np.ones(n_queries, dtype=np.int32)
    high = worst.copy()
    for cutoff, hit in hit_at_cutoff.items():  # ascending: a miss raises the lower end
        low[~hit] = cutoff + 1
    for cutoff, hit in reversed(hit_at_cutoff.items()):
        high[hit] = np.minimum(cutoff, worst)[hit]
    order = positions_within(n_relevant).astype(np.int32)
    relevant_rank_worst = np.repeat(worst, n_relevant) + order
    relevant_rank_worst[task.offsets[:-1]] = high
    return Outcomes(
        protocol=task.protocol,
        query_ids=task.query_ids,
        query_ords=task.queries,
        clusters=task.clusters,
        rank_best=low,
        rank_worst=high,
        n_relevant=n_relevant,
        n_tied_relevant=np.ones(n_queries, dtype=np.int32),
        n_gallery=n_gallery,
        weights=task.weights,
        best_score=np.full(n_queries, np.nan, dtype=np.float32),
        relevant_rank_best=np.repeat(low, n_relevant) + order,
        relevant_rank_worst=relevant_rank_worst,
    )


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


def known_metrics(outcomes: Outcomes) -> list[Metric]:
    """The metrics that the outcomes determine.

    All that apply, for outcomes of scores. For hit lists, those with equal values when every rank is at the best and
    at the worst end of its range.
    """
    return [metric for metric in metrics_of(outcomes) if is_known(metric, outcomes)]


def is_known(metric: Metric, outcomes: Outcomes) -> bool:
    """Whether the outcomes determine a metric; see :func:`known_metrics`."""
    if np.isfinite(outcomes.best_score).all():
        return True
    return np.array_equal(metric.per_query(outcomes, "lost"), metric.per_query(outcomes, "won"), equal_nan=True)


class ImportedRows(NamedTuple):
    """Rows of ``schema.OUTCOMES`` and of ``schema.RESULTS`` of one protocol."""

    outcomes: pa.Table
    results: pa.Table


def rows_of_hits(
    protocols: Mapping[str, HitLists], *, corpus: Corpus, encoder: EncoderSpec, run: str, resampling: Resampling
) -> list[ImportedRows]:
    """Outcomes and results of one model on one corpus, protocol by protocol, ready for the store.

    Args:
        protocols: Protocol id -> hit lists, as :func:`read_hit_lists` gives them for one model.
        corpus: The corpus of the lists; positions are in its order.
        encoder: The stand-in for the model (:func:`encoder_of_hits`).
        run: The run that makes the rows.
        resampling: How the intervals are drawn.

    Raises:
        RequestError: A protocol that does not fit the corpus, or inconsistent lists.
    """
    imported = []
    for task in build_tasks(corpus, select_protocols(corpus, list(protocols))):
        protocol = task.protocol.id
        if not isinstance(task, RetrievalTask):
            raise RequestError(f"protocol {protocol!r} is not retrieval; hit lists are for t2i and i2t protocols")
        outcomes = outcomes_of_hits(protocols[protocol], task)
        identity = {
            "evaluation": digest_of_hits(protocols[protocol], corpus_fingerprint=corpus.fingerprint, protocol=protocol),
            "encoder": encoder.name,
            "encoder_fingerprint": encoder.fingerprint,
            "corpus": corpus.name,
            "corpus_fingerprint": corpus.fingerprint,
        }
        evaluated = Evaluated(
            outcomes=outcomes,
            metrics=known_metrics(outcomes),
            provenance=Provenance(**identity, image_tag="", caption_tag="", run=run),
            n_clusters=len(corpus.images),
        )
        imported.append(ImportedRows(outcomes.to_arrow(**identity), result_rows([evaluated], resampling)))
    return imported


def encoder_of_hits(model: str, protocols: Mapping[str, HitLists]) -> EncoderSpec:
    """The stand-in for a model known only by its hit lists; its revision is the digest of the lists.

    ``dim`` is 1 because there is no embedding; no adapter ever loads it.
    """
    lists = {protocol: _sorted_lists(hits) for protocol, hits in protocols.items()}
    return EncoderSpec(name=model, adapter="hit-lists", checkpoint=model, revision=f"lists-{digest16(lists)}", dim=1)


def digest_of_hits(hits: HitLists, *, corpus_fingerprint: str, protocol: str) -> str:
    """The evaluation id of hit lists: a digest of lists, corpus and protocol."""
    return digest16(["hit-lists", corpus_fingerprint, protocol, _sorted_lists(hits)])


def _sorted_lists(hits: HitLists) -> dict[str, list[int]]:
    return {str(cutoff): np.sort(np.asarray(positions)).tolist() for cutoff, positions in hits.items()}
