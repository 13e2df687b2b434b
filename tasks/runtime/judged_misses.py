"""Misses that a person judges: a random sample of them as a table, and R@1 corrected by the judgements.

A miss is a query whose best relevant item is strictly below the first place; the item in first place may be right all
the same. Of some encoders the union of their misses is sampled, query by query, with the item that each put first. The
share of a sample that is judged right stands for all misses (``tasks.statistics.sampled``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from capim.store import EmbeddingStore
from capim.store.errors import RequestError
from capim.store.files import read_row_file, write_row_file
from capim.store.schema import texts
from capim.store.types import Corpus, digest16
from capim.tasks.metrics.custom import CustomMetric, QueryOutcomes
from capim.tasks.metrics.retrieval import expected_hit
from capim.tasks.protocols import MAIN, Protocol
from capim.tasks.runtime.stored import newest_evaluations, read_outcomes
from capim.tasks.statistics.sampled import corrected_values

COLUMNS = ("corpus", "protocol", "query_id", "query", "item_id", "item", "encoders", "right")
ANSWERS = {"yes": True, "y": True, "1": True, "true": True, "no": False, "n": False, "0": False, "false": False}
_RANKS = ("rank_best", "rank_worst", "n_tied_relevant")  # that R@1 is computed from
LEAST_JUDGED = 20  # misses of an encoder: fewer say too little of the others
Misses: TypeAlias = dict[str, dict[str, list[str]]]
"""Query -> the item in first place -> the encoders that put it there, sorted; queries that one of them missed."""


@dataclass(frozen=True, kw_only=True)
class JudgedMisses:
    """A table of judged misses.

    Attributes:
        misses: Those that were judged.
        right: Query and item -> whether the item is right for the query.
    """

    file: Path
    corpus: str
    protocol: str
    encoders: tuple[str, ...]
    misses: Misses
    right: Mapping[tuple[str, str], bool]


def misses_of(store: EmbeddingStore, encoders: Sequence[str], corpus: str, protocol: str) -> Misses:
    """Return the misses of some encoders under one protocol.

    Raises:
        RequestError: An encoder was not evaluated under it, or has no result lists.
    """
    wanted = {"encoder": list(encoders), "corpus": [corpus], "protocol": [protocol]}
    rows = {row["encoder"]: row for row in newest_evaluations(store, wanted)}
    if lacking := sorted({*encoders} - rows.keys()):
        raise RequestError(
            f"{', '.join(lacking)}: not evaluated under {protocol} on {corpus}; run `capim evaluate --corpora {corpus}`"
        )
    found: Misses = {}
    for name, row in sorted(rows.items()):
        outcomes = read_outcomes(store, row["evaluation"], Protocol.of(protocol))
        if outcomes.top_ords is None:
            raise RequestError(f"{name} has no result lists under {protocol} on {corpus}: what it put first is unknown")
        view = QueryOutcomes(outcomes, store.corpus(corpus))
        for query, item in first_misses(view):
            found.setdefault(query, {}).setdefault(item, []).append(name)
    return found


def first_misses(outcomes: QueryOutcomes) -> list[tuple[str, str]]:
    """Return each missed query with the item in first place; without those that have an empty list."""
    at = np.flatnonzero(_missed(outcomes))
    items = outcomes.items[outcomes.top_ords[at, 0]]
    return list(zip(np.asarray(outcomes.query_id)[at].tolist(), items.tolist(), strict=True))


def _missed(outcomes: QueryOutcomes) -> NDArray[np.bool_]:
    return np.asarray((outcomes.rank_best > 1) & (outcomes.top_ords[:, 0] >= 0))


def export_misses(
    store: EmbeddingStore, path: Path, *, encoders: Sequence[str], corpus: str, protocol: str, sample: int
) -> int:
    """Write a random sample of the misses of some encoders to a table; return its number of queries.

    Without a ``protocol`` it is text to image.

    The queries are in random order, so that those up to any place are a random sample, too. The same misses give the
    same sample.

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
        (corpus, protocol, query, queries[query], item, items[item], ", ".join(names), "")
        for query in chosen
        for item, names in sorted(misses[query].items())
    ]
    columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
    write_row_file(path, pa.table(columns, [*COLUMNS]))
    return len(chosen)


def _texts(corpus: Corpus, modality: str) -> dict[str, str | None]:
    items = corpus.items(modality)  # type: ignore[arg-type]
    return dict(zip(texts(items["id"]), items["text" if modality == "caption" else "key"].to_pylist(), strict=True))


def read_judged_misses(file: str | Path) -> JudgedMisses | None:
    """Return the judged misses of a table; None if it has no column ``right``: a table of additional right items.

    Judged are the queries up to the first empty cell: a random sample, as their order is random.

    Raises:
        RequestError: The file cannot be read, lacks a column, holds several corpora or protocols, a cell is neither yes
            nor no, or a line is judged behind one that is not.
    """
    path = Path(file)
    rows = read_row_file(path)
    if "right" not in rows[0]:
        return None
    if lacking := [name for name in COLUMNS if name not in rows[0]]:
        raise RequestError(
            f"{path}: no column {', '.join(lacking)}; expected the table that `capim export misses` wrote"
        )
    if len({(row["corpus"], row["protocol"]) for row in rows}) > 1:
        raise RequestError(f"{path}: expected one corpus and one protocol; export and judge each by itself")
    right: dict[tuple[str, str], bool] = {}
    misses: Misses = {}
    end = ""
    for line, row in enumerate(rows, start=2):
        answer = str(row["right"] or "").strip().lower()
        if answer and answer not in ANSWERS:
            raise RequestError(f"{path}, line {line}: right is {row['right']!r}, expected yes or no")
        if answer and end:
            raise RequestError(f"{path}, line {line}: judged, but line {end} is not; judge the lines from the top")
        end = end or ("" if answer else str(line))
        if answer:
            right[row["query_id"], row["item_id"]] = ANSWERS[answer]
            misses.setdefault(row["query_id"], {})[row["item_id"]] = row["encoders"].split(", ")
    if end and rows[int(end) - 2]["query_id"] in misses:  # one of its items is not judged
        del misses[rows[int(end) - 2]["query_id"]]
    names = {name for row in rows for name in row["encoders"].split(", ")}
    first = rows[0]
    return JudgedMisses(
        file=path,
        corpus=first["corpus"],
        protocol=first["protocol"],
        encoders=tuple(sorted(names)),
        misses=misses,
        right=right,
    )


def corrected_metric(store: EmbeddingStore, judged: JudgedMisses) -> CustomMetric:
    """Return R@1 corrected by judged misses as a metric, called ``FILE:R@1 corrected``.

    Raises:
        RequestError: The encoders have other misses now, or too few of an encoder were judged.
    """
    misses = misses_of(store, judged.encoders, judged.corpus, judged.protocol)
    for query, items in judged.misses.items():
        if misses.get(query) != items:
            raise RequestError(f"{judged.file}: query {query!r} has other results now; run `capim export misses` again")
    for name in judged.encoders:
        n, of = (
            sum(any(name in names for names in m.values()) for m in all_.values()) for all_ in (judged.misses, misses)
        )
        if n < min(of, LEAST_JUDGED):
            raise RequestError(
                f"{judged.file}: {n} of {of} misses of {name} are judged, at least {LEAST_JUDGED} have to be"
            )

    def corrected(outcomes: QueryOutcomes) -> NDArray[np.float64]:
        missed = _missed(outcomes)
        known = np.full(len(outcomes), np.nan)
        first = dict(first_misses(outcomes))
        for at in np.flatnonzero(missed).tolist():
            query = outcomes.query_id[at]
            if query in judged.misses:
                known[at] = judged.right.get((query, first[query]), np.nan)
        return corrected_values(expected_hit(*(outcomes[name] for name in _RANKS), k=1), missed, known)

    title = f"R@1 corrected by {len(judged.misses):,} judged misses"
    return CustomMetric(
        name=f"{judged.file.stem}:R@1 corrected",
        function=corrected,
        title=title,
        file=str(judged.file),
        bounds=(0.0, 1.0),
    )
