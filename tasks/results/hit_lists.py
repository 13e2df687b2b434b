"""Outcomes of models whose embeddings nobody has, from lists of the queries that hit at 1, 5 and 10.

Such a list says less than a score: of each query only whether a relevant item was within the first 1, 5, 10. The
rank is then known as a bracket (1, 2-5, 6-10, beyond 10), and that is what is stored: ``rank_best`` and
``rank_worst`` are the ends of the bracket, as if the items between them were tied. R@1, R@5 and R@10 come out
exactly, since no bracket crosses a listed cutoff. Anything else (MRR, median rank, nDCG) would be a guess, and
:func:`known_metrics` leaves it out; ``best_score`` is NaN, as no score was ever seen, and there are no result lists.
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
from store.types import Corpus, EncoderSpec, digest16
from tasks.metrics import Metric, metrics_of
from tasks.results.summary import Evaluated, Provenance, result_rows
from tasks.scoring.outcomes import Outcomes
from tasks.scoring.protocols.selection import build_tasks, select_protocols
from tasks.scoring.protocols.tasks import RetrievalTask
from tasks.statistics.resampling import Resampling

HitLists: TypeAlias = Mapping[int, ArrayLike]
"""Cutoff -> positions, within the protocol's queries, of those with a relevant item among the first so many."""

PROTOCOL_OF = {"ir": "t2i/all", "tr": "i2t/any"}
"""Image retrieval and text retrieval, as the files of ALBEF, TCL and others name the two directions."""

_FILE = re.compile(r"(?P<model>.+)_(?P<task>ir|tr)(?P<cutoff>[1-9][0-9]*)_rank_index\.npy")


def read_hit_lists(folder: str | Path) -> dict[str, dict[str, dict[int, NDArray[np.int64]]]]:
    """All hit lists of a folder: model -> protocol id -> cutoff -> positions.

    Files are named ``MODEL_ir1_rank_index.npy`` (text to image) or ``MODEL_tr1_rank_index.npy`` (image to text),
    with any cutoffs; each holds whole numbers, one axis.

    Raises:
        RequestError: The folder is not there, holds no such file, or one that cannot be read; all faults together.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise RequestError(f"{folder} is not a folder; give the one with the *_rank_index.npy files")
    found: dict[str, dict[str, dict[int, NDArray[np.int64]]]] = {}
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
        lists = found.setdefault(name["model"], {}).setdefault(PROTOCOL_OF[name["task"]], {})
        lists[int(name["cutoff"])] = positions
    if not found and not faults:
        faults.append(f"{folder} has no file like MODEL_ir1_rank_index.npy or MODEL_tr1_rank_index.npy")
    if faults:
        raise RequestError(faults)
    return found


def outcomes_of_hits(hits: HitLists, judgement: RetrievalTask) -> Outcomes:
    """The outcomes that some hit lists tell of, as rank brackets.

    Args:
        hits: Cutoff -> positions of the queries that hit, in the order of the judgement's queries; not sorted,
            without repetition. A hit at 1 is a hit at 5.
        judgement: What the lists are about: queries, clusters, size of the gallery.

    Raises:
        RequestError: Lists that contradict each other or the judgement; all faults together.

    Examples:
        Of three queries against ten items, the first hits at 1, the second at 5.

        >>> from store.types import EvalProtocol
        >>> three = np.arange(3, dtype=np.int32)
        >>> judgement = RetrievalTask(
        ...     protocol=EvalProtocol(id="t2i/all", direction="t2i", title="Every caption searches all images"),
        ...     query_ids=np.array(["a", "b", "c"], dtype=object), queries=three, clusters=three, relevant=three,
        ...     galleries=(np.arange(10, dtype=np.int32),), gallery_of=three * 0, offsets=np.arange(4),
        ...     weights=np.ones(3),
        ... )
        >>> outcomes = outcomes_of_hits({1: [0], 5: [0, 1]}, judgement)
        >>> list(zip(outcomes.rank_best.tolist(), outcomes.rank_worst.tolist(), strict=True))
        [(1, 1), (2, 5), (6, 10)]
    """
    n_queries = len(judgement.queries)
    n_relevant = judgement.n_relevant.astype(np.int32)
    n_gallery = np.array([len(gallery) for gallery in judgement.galleries], dtype=np.int32)[judgement.gallery_of]
    worst = n_gallery - n_relevant + 1  # the first relevant item behind every irrelevant one
    hit_at_cutoff = _checked(hits, n_queries, worst)
    low = np.ones(n_queries, dtype=np.int32)
    high = worst.copy()
    for cutoff, hit in hit_at_cutoff.items():  # ascending: a miss raises the lower end
        low[~hit] = cutoff + 1
    for cutoff, hit in reversed(hit_at_cutoff.items()):
        high[hit] = np.minimum(cutoff, worst)[hit]
    offsets = judgement.offsets
    place = (np.arange(offsets[-1]) - np.repeat(offsets[:-1], n_relevant)).astype(np.int32)
    relevant_rank_worst = np.repeat(worst, n_relevant) + place
    relevant_rank_worst[offsets[:-1]] = high
    return Outcomes(
        protocol=judgement.protocol,
        query_ids=judgement.query_ids,
        query_ords=judgement.queries,
        clusters=judgement.clusters,
        rank_best=low,
        rank_worst=high,
        n_relevant=n_relevant,
        n_tied_relevant=np.ones(n_queries, dtype=np.int32),
        n_gallery=n_gallery,
        weights=judgement.weights,
        best_score=np.full(n_queries, np.nan, dtype=np.float32),
        relevant_rank_best=np.repeat(low, n_relevant) + place,
        relevant_rank_worst=relevant_rank_worst,
    )


def _checked(hits: HitLists, n_queries: int, worst: NDArray[np.int32]) -> dict[int, NDArray[np.bool_]]:
    """Cutoff -> whether each query hits, cutoffs ascending."""
    faults = [] if hits else ["no hit list was given; give at least the queries that hit at 1"]
    marked: dict[int, NDArray[np.bool_]] = {}
    for cutoff in sorted(hits):
        positions = np.asarray(hits[cutoff])
        if cutoff < 1 or positions.ndim != 1 or not (np.issubdtype(positions.dtype, np.integer) or not positions.size):
            faults.append(
                f"hits at {cutoff}: expected whole numbers on one axis, got {positions.dtype} {positions.shape}"
            )
            continue
        positions = positions.astype(np.int64)
        hit = np.zeros(n_queries, dtype=bool)
        inside = (positions >= 0) & (positions < n_queries)
        if not inside.all():
            faults.append(
                f"hits at {cutoff}: position {int(positions[~inside][0])} is none of the {n_queries} queries; "
                "are the lists of another direction or corpus?"
            )
        hit[positions[inside]] = True
        if hit.sum() != inside.sum():
            faults.append(f"hits at {cutoff}: {int(inside.sum() - hit.sum())} positions are listed more than once")
        sure = int((~hit & (worst <= cutoff)).sum())
        if sure:
            faults.append(f"hits at {cutoff}: {sure} queries miss, but cannot with so few items to search")
        for smaller, before in marked.items():
            lost = np.flatnonzero(before & ~hit)
            if len(lost):
                faults.append(f"{len(lost)} queries hit at {smaller} but not at {cutoff}, first query {int(lost[0])}")
        marked[cutoff] = hit
    if faults:
        raise RequestError(faults)
    return marked


def known_metrics(outcomes: Outcomes) -> list[Metric]:
    """The metrics of ``METRICS`` that outcomes determine.

    All that apply, where scores were seen. Of hit lists, those that no bracket leaves open: the same with every
    bracket at its best and at its worst end.
    """
    metrics = metrics_of(outcomes)
    if np.isfinite(outcomes.best_score).all():
        return metrics
    return [m for m in metrics if np.array_equal(m.per_query_low(outcomes), m.per_query_high(outcomes))]


class ImportedRows(NamedTuple):
    """What an import writes: rows of ``schema.OUTCOMES`` and of ``schema.RESULTS``."""

    outcomes: pa.Table
    results: pa.Table


def rows_of_hits(
    protocols: Mapping[str, HitLists],
    *,
    corpus: Corpus,
    encoder: EncoderSpec,
    run: str,
    resampling: Resampling,
) -> list[ImportedRows]:
    """Outcomes and results of one model on one corpus, protocol by protocol, ready for the store.

    Args:
        protocols: Protocol id -> hit lists, as :func:`read_hit_lists` gives them for one model.
        corpus: What the lists are about; their positions count its queries in corpus order.
        encoder: What stands for the model (:func:`encoder_of_hits`).
        run: The run that makes the rows.
        resampling: How the intervals are drawn.

    Raises:
        RequestError: A protocol that the corpus cannot be asked, or lists that cannot be true.
    """
    imported = []
    for judgement in build_tasks(corpus, select_protocols(corpus, list(protocols))):
        if not isinstance(judgement, RetrievalTask):
            raise RequestError(f"protocol {judgement.protocol.id!r} searches nothing; hit lists are for retrieval")
        hits = protocols[judgement.protocol.id]
        outcomes = outcomes_of_hits(hits, judgement)
        provenance = Provenance(
            evaluation=digest_of_hits(hits, corpus_fingerprint=corpus.fingerprint, protocol=judgement.protocol.id),
            encoder=encoder.name,
            encoder_fingerprint=encoder.fingerprint,
            corpus=corpus.name,
            corpus_fingerprint=corpus.fingerprint,
            image_tag="",
            caption_tag="",
            run=run,
        )
        evaluated = Evaluated(
            outcomes=outcomes,
            metrics=known_metrics(outcomes),
            provenance=provenance,
            n_clusters=len(corpus.images),
        )
        results = result_rows([evaluated], resampling)
        stored = outcomes.to_arrow(
            evaluation=provenance.evaluation,
            encoder=encoder.name,
            encoder_fingerprint=encoder.fingerprint,
            corpus=corpus.name,
            corpus_fingerprint=corpus.fingerprint,
        )
        imported.append(ImportedRows(outcomes=stored, results=results))
    return imported


def encoder_of_hits(model: str, protocols: Mapping[str, HitLists]) -> EncoderSpec:
    """What stands for a model that only its hit lists are known of; its revision is the digest of the lists.

    ``dim`` is 1 for want of an embedding; no adapter ever loads it.
    """
    lists = {protocol: _plain(hits) for protocol, hits in protocols.items()}
    return EncoderSpec(name=model, adapter="hit-lists", checkpoint=model, revision=f"lists-{digest16(lists)}", dim=1)


def digest_of_hits(hits: HitLists, *, corpus_fingerprint: str, protocol: str) -> str:
    """What identifies the evaluation of some hit lists: 16 hexadecimal digits over lists, corpus and protocol."""
    return digest16(["hit-lists", corpus_fingerprint, protocol, _plain(hits)])


def _plain(hits: HitLists) -> dict[str, list[int]]:
    return {str(cutoff): np.sort(np.asarray(positions)).tolist() for cutoff, positions in hits.items()}
