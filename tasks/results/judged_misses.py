"""Misses that a person judges: a random sample of them as a table, and R@1 corrected by the judgements.

A miss is a query with its best relevant item strictly below the first rank; the item in first place may be right all
the same. Of some encoders the union of their misses is sampled, query by query, with the item that each put first. The
share of a sample that is judged right means all misses: a two-stage sample of images and of their misses (Cochran 1977,
Sampling Techniques, chapter 12). Per-query values with this mean and with the error of both stages can be used like any
other mean: clustered by image, next to other results, in differences of two encoders that share judgements
(Angelopoulos et al. 2023, Prediction-powered inference, has the same estimator).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from capim.store import EmbeddingStore
from capim.store.errors import RequestError
from capim.store.files import write_row_file
from capim.store.schema import is_missed, texts
from capim.store.tables import read_row_file
from capim.store.types import Corpus, Modality, digest16
from capim.tasks.metrics import Metric
from capim.tasks.metrics.custom import QueryOutcomes, own_metric
from capim.tasks.metrics.retrieval import RECALLS, expected_hit
from capim.tasks.protocols import MAIN, Protocol
from capim.tasks.results.stored import current_evaluations, read_outcomes

ANSWERS = {"yes": True, "y": True, "1": True, "true": True, "no": False, "n": False, "0": False, "false": False}
LEAST_JUDGED = 20  # misses of an encoder: fewer say too little of the others
Misses: TypeAlias = dict[str, dict[str, list[str]]]
"""Query -> the item in first place -> the encoders that put it there, sorted; queries that one of them missed."""


class Miss(NamedTuple):
    """A row of the table: a query, the item in first place, the encoders that put it there, and a person's answer."""

    corpus: str
    protocol: str
    query_id: str
    query: str | None
    item_id: str
    item: str | None
    encoders: str
    right: str | None = ""


class JudgedMisses(NamedTuple):
    """A table of judged misses: ``misses`` are those that were judged, ``right`` says which items are right."""

    file: Path
    corpus: str
    protocol: str
    encoders: tuple[str, ...]
    misses: Misses
    right: Mapping[tuple[str, str], bool]


def misses_of(store: EmbeddingStore, encoders: Sequence[str], corpus: str, protocol: str) -> Misses:
    """Return the misses of some encoders under one protocol; without those of an empty list.

    Raises:
        RequestError: An encoder was not evaluated under it, or has no result lists.
    """
    evaluations = current_evaluations(store, encoder=encoders, corpus=corpus, protocol=protocol)
    rows = {row.encoder: row for row in evaluations}
    if lacking := sorted({*encoders} - rows.keys()):
        raise RequestError(
            f"{', '.join(lacking)}: not evaluated under {protocol} on {corpus}; run `capim evaluate --corpora {corpus}`"
        )
    found: Misses = {}
    for name, row in sorted(rows.items()):
        outcomes = read_outcomes(store, row.evaluation, Protocol.of(protocol))
        if outcomes.top_ords is None:
            raise RequestError(
                f"{name} has no result lists under {protocol} on {corpus}: its first results are unknown"
            )
        missed, first = _first(QueryOutcomes(outcomes, store.corpus(corpus)))
        for query, item in zip(outcomes.query_ids[missed], first[missed], strict=True):
            found.setdefault(query, {}).setdefault(item, []).append(name)
    return found


def _first(outcomes: QueryOutcomes) -> tuple[NDArray[np.bool_], NDArray[np.object_]]:
    """Return which queries are misses, and the item in first place of each query."""
    ords = outcomes.top_ords[:, 0]
    return np.asarray(is_missed(outcomes.rank_best) & (ords >= 0)), np.asarray(outcomes.items)[ords]


def export_misses(
    store: EmbeddingStore, path: Path, *, encoders: Sequence[str], corpus: str, protocol: str, sample: int
) -> int:
    """Write a random sample of the misses of some encoders to a table; return its number of queries.

    Without a ``protocol`` it is text to image. The queries are in random order, so that those up to any place are a
    random sample, too. The same misses give the same sample.

    Raises:
        RequestError: As :func:`misses_of`, or nothing was missed.
    """
    protocol = protocol or MAIN[0]
    misses, of = misses_of(store, encoders, corpus, protocol), store.corpus(corpus)
    if not misses:
        raise RequestError(f"{', '.join(encoders)}: no miss under {protocol} on {corpus}")
    rng = np.random.default_rng(int(digest16([of.fingerprint, protocol, *sorted(encoders)]), 16))
    chosen = rng.permutation(sorted(misses))[:sample].tolist()
    queries, items = (_texts(of, side) for side in Protocol.of(protocol).sides)
    rows = [
        Miss(corpus, protocol, query, queries[query], item, items[item], ", ".join(names))
        for query in chosen
        for item, names in sorted(misses[query].items())
    ]
    columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
    write_row_file(path, pa.table(columns, [*Miss._fields]))
    return len(chosen)


def _texts(corpus: Corpus, modality: Modality) -> dict[str, str | None]:
    items = corpus.items(modality)
    return dict(zip(texts(items["id"]), items["text" if modality == "caption" else "key"].to_pylist(), strict=True))


def read_judged_misses(file: str | Path) -> JudgedMisses | None:
    """Return the judged misses of a table; None if it has no column ``right``: a table of additional right items.

    Judged are the queries up to the first empty cell: a random sample, as their order is random.

    Raises:
        RequestError: The file cannot be read, lacks a column, holds several corpora or protocols, a cell is neither yes
            nor no, or a line is judged behind one that is not.
    """
    path = Path(file)
    table = read_row_file(path)
    if "right" not in table[0]:
        return None
    if lacking := [name for name in Miss._fields if name not in table[0]]:
        raise RequestError(
            f"{path}: no column {', '.join(lacking)}; expected the table that `capim export misses` wrote"
        )
    rows = [Miss(*(row[name] for name in Miss._fields)) for row in table]
    if len({(row.corpus, row.protocol) for row in rows}) > 1:
        raise RequestError(f"{path}: expected one corpus and one protocol; export and judge each by itself")
    answers = [str(row.right or "").strip().lower() for row in rows]
    end = next((at for at, answer in enumerate(answers) if not answer), len(rows))
    for at, answer in enumerate(answers):
        if answer and answer not in ANSWERS:
            raise RequestError(f"{path}, line {at + 2}: right is {rows[at].right!r}, expected yes or no")
        if answer and at > end:
            raise RequestError(
                f"{path}, line {at + 2}: judged, but line {end + 2} is not; judge the lines from the top"
            )
    open_ = {row.query_id for row in rows[end:]}  # of the last query another item may be judged
    misses: Misses = {}
    for row in rows[:end]:
        if row.query_id not in open_:
            misses.setdefault(row.query_id, {})[row.item_id] = row.encoders.split(", ")
    right: dict[tuple[str, str], bool] = {}
    for at, row in enumerate(rows[:end]):
        pair = row.query_id, row.item_id
        if right.setdefault(pair, ANSWERS[answers[at]]) != ANSWERS[answers[at]]:
            first = next(n for n, each in enumerate(rows) if (each.query_id, each.item_id) == pair)
            raise RequestError(
                f"{path}: query {pair[0]!r}, item {pair[1]!r}: right is {rows[first].right!r} in line {first + 2} and "
                f"{row.right!r} in line {at + 2}; leave one of them"
            )
    names = sorted({name for row in rows for name in row.encoders.split(", ")})
    return JudgedMisses(path, rows[0].corpus, rows[0].protocol, tuple(names), misses, right)


def corrected_metric(store: EmbeddingStore, judged: JudgedMisses) -> Metric:
    """Return R@1 corrected by judged misses as a metric, called ``FILE:R@1 corrected``.

    Raises:
        RequestError: The encoders have other misses now, or too few of an encoder were judged.
    """
    file, misses = judged.file, misses_of(store, judged.encoders, judged.corpus, judged.protocol)
    for query, items in judged.misses.items():
        if misses.get(query) != items:
            raise RequestError(f"{file}: query {query!r} has other results now; run `capim export misses` again")
    for name in judged.encoders:
        n, of = (
            sum(any(name in names for names in items.values()) for items in found.values())
            for found in (judged.misses, misses)
        )
        if n < min(of, LEAST_JUDGED):
            raise RequestError(f"{file}: {n} of {of} misses of {name} are judged, at least {LEAST_JUDGED} have to be")

    def corrected(outcomes: QueryOutcomes) -> NDArray[np.float64]:
        missed, first = _first(outcomes)
        asked = zip(outcomes.query_id.tolist(), first.tolist(), strict=True)
        right = [judged.right.get(pair, np.nan) if pair[0] in judged.misses else np.nan for pair in asked]
        hits = expected_hit(*(outcomes[name] for name in ("rank_best", "rank_worst", "n_tied_relevant")), k=1)
        return corrected_values(hits, missed, np.array(right, dtype=np.float64))

    r1 = RECALLS[0].name
    title, name = f"{r1} corrected by {len(judged.misses):,} judged misses", f"{file.stem}:{r1} corrected"
    metric = own_metric(name=name, function=corrected, title=title, file=str(file), bounds=(0.0, 1.0))
    return replace(metric, of_sample=True)


def corrected_values(
    hits: NDArray[np.float64], missed: NDArray[np.bool_], right: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return values per query with the corrected share as their mean, shape ``(n_queries,)``.

    A miss counts as the fraction of judged misses that are correct. A judged miss also adds its distance from that
    fraction, times the number of misses per judged miss.

    Args:
        hits: Hit of each query, 0..1; 0 for a miss.
        missed: True for queries that are misses; a random sample of them was judged.
        right: For a judged miss, 1 if the first item is correct, else 0; NaN for the other queries.

    Examples:
        Two of four misses were judged and one is correct, so two of the four count as hits.

        >>> hits, right = np.array([1.0, 0, 0, 0, 0]), np.array([np.nan, 1, 0, np.nan, np.nan])
        >>> corrected_values(hits, hits == 0, right).tolist()
        [1.0, 1.5, -0.5, 0.5, 0.5]
    """
    judged = missed & ~np.isnan(right)
    if not judged.any():
        return hits if not missed.any() else np.full(len(hits), np.nan)
    share = float(right[judged].mean())
    values = np.where(missed, hits + share, hits)
    values[judged] += (right[judged] - share) * missed.sum() / judged.sum()
    return values
