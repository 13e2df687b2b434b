"""Outcomes: the ranks and the best list of every query, before anything is averaged. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from capim.store.row_types import columns_of
from capim.store.schema import OfStates, Outcome, is_found, is_missed
from capim.store.vectors import offsets_of, positions_within
from capim.tasks.protocols import I2T_ANY, Protocol

SCORER_VERSION = 4  # raised whenever a stored outcome would change
_COLUMN_OF = {"query_ids": "query_id", "query_ords": "query_ord", "clusters": "cluster", "weights": "weight"}
"""Attribute -> column of the stored table, for names that differ."""
_OF_ALL = ("protocol", "evaluation")  # of all queries together
_RANKS = ("relevant_rank_best", "relevant_rank_worst")


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcomes:
    """Outcomes of one encoder under one protocol, one entry per query (``docs/protocols.md``, ranks and ties).

    With ``a`` items strictly above the best relevant one, ``b`` irrelevant and ``c`` relevant items tied with it:
    ``rank_best = a + 1`` (all ties won), ``rank_worst = a + b + 1`` (all ties lost), ``n_tied_relevant = c``.

    For quadruples and pairs the "rank" counts lost comparisons instead: ``rank_best`` is one more than the comparisons
    lost strictly, ``rank_worst`` adds the tied ones, so 1 means that every comparison was won.

    Attributes:
        query_ids: object (str), shape ``(n_queries,)``, unique.
        query_ords: int32: position of the query in the corpus (for a quadruple or pair: in its table).
        clusters: int32: ord of the query's image (pairs: of the first image that shows the same photograph; quadruples:
            position of the first one that shares a photograph).
        rank_best: int32, 1-based.
        rank_worst: int32, 1-based.
        n_relevant: int32, at least 1. Pairs: right captions of the set.
        n_tied_relevant: int32, at least 1.
        n_gallery: int32: items in the query's gallery.
        weights: float64: weight of the query in a mean; 1 unless groups of unequal size have equal weight.
        best_score: float32: score of the best relevant item.
        relevant_rank_best: int32, all queries one after the other, ``n_relevant`` values each, ascending: rank of the
            first, second, … relevant item, all ties with irrelevant items won; from ``UNLISTED`` for a judged query
            without a list.
        relevant_rank_worst: The same with these ties lost.
        relevant_grades: int32, same order, at least 1: grade of each relevant item, the highest of a tie first. None
            without grades.
        relevant_scores: float32, same order: score of each relevant item; equal scores are ties. None without grades.
        unjudged: float64, shape ``(n_queries,)``: fraction of the 10 best items without a judgement for this query,
            equal scores in random order (within the stored list). None without grades.
        bpref: float64, same shape: trec_eval's bpref, of an imported run in trec_eval's order
            (``t2i/judged@trec_eval``): no ties, and a relevant item that is in no list has a rank from
            :data:`~capim.store.schema.UNLISTED`. None elsewhere.
        top_ords: int32, shape ``(n_queries, width)``: corpus ords of the best items, best first, equal scores by
            ord; -1 beyond the gallery. None for quadruples and pairs.
        top_scores: float32, same shape; NaN beyond the gallery.
        scores: float32, shape ``(n_queries, scores per set)``: quadruples c0i0 c0i1 c1i0 c1i1, pairs the right
            captions, then the negatives (NaN beyond a set's last). None for retrieval.
        judgements: bool, for quadruples judged without scores: shape ``(n_queries, 4)``, True if the right caption was
            chosen for image 0 and for image 1, and the right image for caption 0 and for caption 1; or
            ``(n_queries, 2)``, True if both captions and both images were. A model that answers questions may
            contradict itself, so no scores need to agree with them.
        n_ranked: int32: relevant items of the query with a known rank, best first. The ranks of the others lie between
            ``relevant_rank_best`` and ``relevant_rank_worst``: they are not ties, but unknown (imported hit lists,
            ranks and runs). None if every rank is known.
        reference_ndcg: float64, shape ``(n_queries,)``: nDCG@20 of the list, with gains from the same query in the
            reference language (``tasks.ranking.languages``). None without such a query.
        reference_rbo: Rank-biased overlap of the two lists, same shape; None without such a query.
        evaluation: The id of stored outcomes that these were read from.
    """

    protocol: Protocol
    query_ids: NDArray[np.object_]
    query_ords: NDArray[np.int32]
    clusters: NDArray[np.int32]
    rank_best: NDArray[np.int32]
    rank_worst: NDArray[np.int32]
    n_relevant: NDArray[np.int32]
    n_tied_relevant: NDArray[np.int32]
    n_gallery: NDArray[np.int32]
    weights: NDArray[np.float64]
    best_score: NDArray[np.float32]
    relevant_rank_best: NDArray[np.int32]
    relevant_rank_worst: NDArray[np.int32]
    top_ords: NDArray[np.int32] | None = None
    top_scores: NDArray[np.float32] | None = None
    scores: NDArray[np.float32] | None = None
    judgements: NDArray[np.bool_] | None = None
    n_ranked: NDArray[np.int32] | None = None
    reference_ndcg: NDArray[np.float64] | None = None
    reference_rbo: NDArray[np.float64] | None = None
    relevant_grades: NDArray[np.int32] | None = None
    relevant_scores: NDArray[np.float32] | None = None
    unjudged: NDArray[np.float64] | None = None
    bpref: NDArray[np.float64] | None = None
    evaluation: str = ""

    def __len__(self) -> int:
        return len(self.query_ords)

    @property
    def offsets(self) -> NDArray[np.int64]:
        """int64, shape ``(n_queries + 1,)``: where each query's relevant ranks start."""
        return offsets_of(self.n_relevant)

    @property
    def query_of_relevant(self) -> NDArray[np.int64]:
        """Index of the query of each relevant item, in the order of ``relevant_rank_best``."""
        return np.repeat(np.arange(len(self)), self.n_relevant)

    @property
    def missed(self) -> NDArray[np.bool_]:
        """True if something scores above the best relevant item (or a comparison is lost)."""
        return np.asarray(is_missed(self.rank_best))

    @property
    def found(self) -> NDArray[np.bool_]:
        """True if only the best relevant item is first (or every comparison is won); a tie is not found."""
        return np.asarray(is_found(self.rank_worst))

    @property
    def tied(self) -> NDArray[np.bool_]:
        """True if the best relevant item is tied with an irrelevant one (or a comparison is a tie).

        An unknown rank is not a tie: an item that an imported list leaves out is below the list.
        """
        known = self.bounds()[0]
        return known.rank_worst > known.rank_best

    @property
    def any_tied(self) -> NDArray[np.bool_]:
        """True if any relevant item is tied with an irrelevant one, shape ``(n_queries,)``; ranks as in `tied`."""
        known = self.bounds()[0]
        tied = known.relevant_rank_worst > known.relevant_rank_best
        return np.bincount(self.query_of_relevant, weights=tied, minlength=len(self)) > 0

    def bounds(self) -> tuple[Outcomes, Outcomes]:
        """Return the outcomes with every unknown rank at its best, and at its worst; ties stay ties."""
        if self.n_ranked is None:
            return self, self
        known = positions_within(self.n_relevant) < np.repeat(self.n_ranked, self.n_relevant)
        best, worst = self.relevant_rank_best, self.relevant_rank_worst
        first = self.n_ranked > 0
        return (
            replace(
                self,
                rank_worst=np.where(first, self.rank_worst, self.rank_best),
                relevant_rank_worst=np.where(known, worst, best),
            ),
            replace(
                self,
                rank_best=np.where(first, self.rank_best, self.rank_worst),
                relevant_rank_best=np.where(known, best, worst),
            ),
        )

    def to_arrow(self, evaluation: str, of: OfStates) -> pa.Table:
        """Return rows of table ``outcomes``, in query order, of an encoder on a corpus."""
        identity = {**vars(of), "evaluation": evaluation, "protocol": self.protocol.id}
        columns: dict[str, pa.Array] = {
            name: pa.repeat(pa.scalar(value), len(self)) for name, value in identity.items()
        }
        schema = columns_of(Outcome)
        columns |= {column: self._column(name, schema.field(column).type) for name, column in stored_attributes()}
        return pa.table([columns[name] for name in schema.names], schema=schema)

    @classmethod
    def from_arrow(cls, rows: pa.Table, protocol: Protocol) -> Outcomes:
        """Return the outcomes of one protocol from stored rows, in the order of the rows."""
        values: dict[str, Any] = {
            name: _values(rows[column], name) for name, column in stored_attributes() if name not in _RANKS
        }
        single = pc.is_null(rows["relevant_rank_best"]).to_numpy(zero_copy_only=False)
        starts = offsets_of(values["n_relevant"])
        for name in _RANKS:
            flat = np.empty(starts[-1], dtype=np.int32)
            flat[starts[:-1][single]] = values[name.removeprefix("relevant_")][single]
            flat[np.repeat(~single, values["n_relevant"])] = pc.list_flatten(rows[name]).to_numpy()
            values[name] = flat
        return cls(protocol=protocol, **values)

    def _column(self, name: str, kind: pa.DataType) -> pa.Array:
        """Return one attribute as a column of the stored table: a value or a list for every query."""
        values = getattr(self, name)
        if values is None:
            return pa.nulls(len(self)).cast(kind)
        if not pa.types.is_list(kind):
            return pa.array(values, kind)
        counts, null = self.n_relevant, None
        if name in _RANKS:  # null for queries with one relevant item: the row has its rank already
            null = counts == 1
            values, counts = values[np.repeat(~null, counts)], np.where(null, 0, counts)
        elif values.ndim == 2:
            listed = np.ones(values.shape, dtype=np.bool_)
            if name.startswith("top_") and self.top_ords is not None:
                listed = self.top_ords >= 0
            values, counts = values[listed], listed.sum(axis=1)
        offsets = pa.array(offsets_of(counts), pa.int32())
        mask = None if null is None else pa.array(null)
        return pa.ListArray.from_arrays(offsets, pa.array(values, kind.value_type), mask=mask)


def stored_attributes() -> list[tuple[str, str]]:
    """Return the stored attributes of outcomes, and the column of each."""
    return [(each.name, _COLUMN_OF.get(each.name, each.name)) for each in fields(Outcomes) if each.name not in _OF_ALL]


def _values(column: pa.ChunkedArray, name: str) -> NDArray[Any] | None:
    """Return a stored column as an attribute; None if no query has it."""
    if name == "query_ids":
        return np.asarray(column.to_pylist(), dtype=object)
    if column.null_count and column.null_count == len(column):
        return None
    if not pa.types.is_list(column.type):
        return np.ascontiguousarray(column.to_numpy())
    flat = pc.list_flatten(column).to_numpy()
    if name.startswith("relevant_"):
        return np.ascontiguousarray(flat)
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()  # of rows of a matrix, padded
    fill = {"i": -1, "f": np.nan, "b": False}[flat.dtype.kind]
    matrix = np.full((len(lengths), int(lengths.max())), fill, dtype=flat.dtype)
    matrix[np.arange(matrix.shape[1]) < lengths[:, None]] = flat
    return matrix


def outcomes_of(ranks: Sequence[Sequence[int]], *, n_gallery: int = 1000, protocol: str = I2T_ANY) -> Outcomes:
    """Return outcomes without ties from the ranks of each query's relevant items, ascending; every query its own image.

    Examples:
        >>> outcomes_of([[1, 3], [7]]).rank_best.tolist()
        [1, 7]
    """
    n = len(ranks)
    flat = np.concatenate([np.asarray(row, dtype=np.int32) for row in ranks])
    own = np.arange(n, dtype=np.int32)
    best = np.array([row[0] for row in ranks], dtype=np.int32)
    return Outcomes(
        protocol=Protocol.of(protocol),
        query_ids=np.array([f"q{i}" for i in range(n)], dtype=object),
        query_ords=own,
        clusters=own,
        rank_best=best,
        rank_worst=best,
        n_relevant=np.array([len(row) for row in ranks], dtype=np.int32),
        n_tied_relevant=np.ones(n, dtype=np.int32),
        n_gallery=np.full(n, n_gallery, dtype=np.int32),
        weights=np.ones(n),
        best_score=np.zeros(n, dtype=np.float32),
        relevant_rank_best=flat,
        relevant_rank_worst=flat,
    )
