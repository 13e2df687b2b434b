"""Outcomes: the ranks and the best list of every query, before anything is averaged. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from store.ragged import offsets_of, positions_within
from store.schema import OUTCOMES
from store.types import EvalProtocol

Number = TypeVar("Number", np.bool_, np.int32, np.float32, np.float64)

# column of the table -> attribute and type, where every query has one value
_COLUMNS: dict[str, tuple[str, type[Any]]] = {
    "query_ord": ("query_ords", np.int32),
    "cluster": ("clusters", np.int32),
    "rank_best": ("rank_best", np.int32),
    "rank_worst": ("rank_worst", np.int32),
    "n_relevant": ("n_relevant", np.int32),
    "n_tied_relevant": ("n_tied_relevant", np.int32),
    "n_gallery": ("n_gallery", np.int32),
    "weight": ("weights", np.float64),
    "best_score": ("best_score", np.float32),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcomes:
    """Outcomes of one encoder under one protocol, one entry per query (``docs/protocols.md`` §4).

    With ``a`` items strictly above the best relevant one, ``b`` irrelevant and ``c`` relevant items tied with it:
    ``rank_best = a + 1`` (all ties won), ``rank_worst = a + b + 1`` (all ties lost), ``n_tied_relevant = c``.

    For quadruples and pairs the "rank" counts lost comparisons instead: ``rank_best`` is one more than the comparisons
    lost strictly, ``rank_worst`` adds the tied ones, so 1 means that every comparison was won.

    Attributes:
        protocol: The protocol of the queries.
        query_ids: object (str), shape ``(n_queries,)``, unique.
        query_ords: int32: position of the query in the corpus (of a quadruple or pair: in its table).
        clusters: int32: ord of the image that the query belongs to (pairs: of the first image that shows the same
            photograph; quadruples: position of the first one that shares a photograph).
        rank_best: int32, 1-based.
        rank_worst: int32, 1-based.
        n_relevant: int32, at least 1. Pairs: right captions of the set.
        n_tied_relevant: int32, at least 1.
        n_gallery: int32: items in the query's gallery.
        weights: float64: weight of the query in a mean; 1 unless groups of unequal size have equal weight.
        best_score: float32: score of the best relevant item.
        relevant_rank_best: int32, all queries one after the other, ``n_relevant`` values each, ascending: rank of the
            first, second, … relevant item, all ties with irrelevant items won.
        relevant_rank_worst: The same with these ties lost.
        relevant_grades: int32, same order, at least 1: grade of each relevant item, the highest of a tie first. None
            where nobody judged grades.
        relevant_scores: float32, same order: score of each relevant item; equal scores are ties. None without grades.
        unjudged: float64, shape ``(n_queries,)``: share of the 10 best items that nobody judged for this query, equal
            scores in random order (within the stored list). None without grades.
        top_ords: int32, shape ``(n_queries, width)``: corpus ords of the best items, best first, equal scores by
            ord; -1 beyond the gallery. None for quadruples and pairs.
        top_scores: float32, same shape; NaN beyond the gallery.
        scores: float32, shape ``(n_queries, scores per set)``: quadruples c0i0 c0i1 c1i0 c1i1, pairs the right
            captions, then the negatives (NaN beyond a set's last). None for retrieval.
        judgements: bool, for quadruples judged without scores: shape ``(n_queries, 4)``, whether the right caption was
            chosen for image 0 and for image 1, and the right image for caption 0 and for caption 1; or
            ``(n_queries, 2)``, whether both captions and both images were. A model that answers questions may
            contradict itself, so no scores need to agree with them.
        n_ranked: int32: relevant items of the query whose rank is known, best first. The ranks of the others are
            somewhere between ``relevant_rank_best`` and ``relevant_rank_worst``: not ties, but not known (imported hit
            lists, ranks and runs). None where every rank is known.
        reference_ndcg: float64, shape ``(n_queries,)``: nDCG@20 of the list, with gains from the same query in the
            reference language (``tasks.scoring.consistency``). None where there is no such query.
        reference_rbo: Rank-biased overlap of the two lists, same shape; None likewise.
    """

    protocol: EvalProtocol
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

    def __len__(self) -> int:
        return len(self.query_ords)

    @property
    def offsets(self) -> NDArray[np.int64]:
        """int64, shape ``(n_queries + 1,)``: where each query's relevant ranks start."""
        return offsets_of(self.n_relevant)

    @property
    def tied(self) -> NDArray[np.bool_]:
        """Whether the best relevant item is tied with an irrelevant one (or a comparison is a tie)."""
        return self.rank_worst > self.rank_best

    def bounds(self) -> tuple[Outcomes, Outcomes]:
        """The outcomes with every rank that is not known at its best, and at its worst; ties stay ties."""
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

    def to_arrow(
        self, *, evaluation: str, encoder: str, encoder_fingerprint: str, corpus: str, corpus_fingerprint: str
    ) -> pa.Table:
        """Rows of ``schema.OUTCOMES``, in query order."""
        n = len(self)
        identity = {
            "evaluation": evaluation,
            "encoder": encoder,
            "encoder_fingerprint": encoder_fingerprint,
            "corpus": corpus,
            "corpus_fingerprint": corpus_fingerprint,
            "protocol": self.protocol.id,
        }
        columns: dict[str, pa.Array] = {name: pa.repeat(pa.scalar(value), n) for name, value in identity.items()}
        columns |= {column: pa.array(getattr(self, name)) for column, (name, _) in _COLUMNS.items()}
        columns |= {
            "query_id": pa.array(self.query_ids, pa.string()),
            "relevant_rank_best": self._relevant(self.relevant_rank_best),
            "relevant_rank_worst": self._relevant(self.relevant_rank_worst),
            "relevant_grades": self._of_all_relevant(self.relevant_grades, pa.int32()),
            "relevant_scores": self._of_all_relevant(self.relevant_scores, pa.float32()),
            "unjudged": _optional(self.unjudged, n, pa.float64()),
            "top_ords": self._top(self.top_ords, pa.int32()),
            "top_scores": self._top(self.top_scores, pa.float32()),
            "scores": _fixed(self.scores, n, pa.float32()),
            "judgements": _fixed(self.judgements, n, pa.bool_()),
            "n_ranked": _optional(self.n_ranked, n, pa.int32()),
            "reference_ndcg": _optional(self.reference_ndcg, n, pa.float64()),
            "reference_rbo": _optional(self.reference_rbo, n, pa.float64()),
        }
        return pa.table([columns[name] for name in OUTCOMES.names], schema=OUTCOMES)

    @classmethod
    def from_arrow(cls, rows: pa.Table, protocol: EvalProtocol) -> Outcomes:
        """The outcomes of one protocol back from stored rows, in the order of the rows."""
        single = pc.is_null(rows["relevant_rank_best"]).to_numpy(zero_copy_only=False)
        values = {name: _numpy(rows[column], dtype) for column, (name, dtype) in _COLUMNS.items()}
        starts = offsets_of(values["n_relevant"])
        for name in ("rank_best", "rank_worst"):
            flat = np.empty(starts[-1], dtype=np.int32)
            flat[starts[:-1][single]] = values[name][single]
            flat[np.repeat(~single, values["n_relevant"])] = _numpy(pc.list_flatten(rows[f"relevant_{name}"]), np.int32)
            values[f"relevant_{name}"] = flat
        return cls(
            protocol=protocol,
            query_ids=np.asarray(rows["query_id"].to_pylist(), dtype=object),
            **values,
            top_ords=_padded(rows["top_ords"], np.int32(-1)),
            top_scores=_padded(rows["top_scores"], np.float32(np.nan)),
            scores=_padded(rows["scores"], np.float32(np.nan)),
            judgements=_padded(rows["judgements"], np.bool_(False)),
            n_ranked=_unless_null(rows["n_ranked"], np.int32),
            reference_ndcg=_unless_null(rows["reference_ndcg"], np.float64),
            reference_rbo=_unless_null(rows["reference_rbo"], np.float64),
            relevant_grades=_flat(rows["relevant_grades"], np.int32),
            relevant_scores=_flat(rows["relevant_scores"], np.float32),
            unjudged=_unless_null(rows["unjudged"], np.float64),
        )

    def _relevant(self, flat: NDArray[np.int32]) -> pa.Array:
        """A list per query; null where the query has one relevant item, whose rank is in the row already."""
        single = self.n_relevant == 1
        offsets = pa.array(offsets_of(np.where(single, 0, self.n_relevant)), pa.int32())
        values = pa.array(flat[np.repeat(~single, self.n_relevant)])
        return pa.ListArray.from_arrays(offsets, values, mask=pa.array(single))

    def _of_all_relevant(self, flat: NDArray[Any] | None, kind: pa.DataType) -> pa.Array:
        if flat is None:
            return pa.nulls(len(self), pa.list_(kind))
        return pa.ListArray.from_arrays(pa.array(self.offsets, pa.int32()), pa.array(flat, kind))

    def _top(self, values: NDArray[np.int32] | NDArray[np.float32] | None, kind: pa.DataType) -> pa.Array:
        if values is None or self.top_ords is None:
            return pa.nulls(len(self), pa.list_(kind))
        real = self.top_ords >= 0
        return pa.ListArray.from_arrays(
            pa.array(offsets_of(real.sum(axis=1)), pa.int32()), pa.array(values[real], kind)
        )


def _fixed(values: NDArray[Any] | None, n: int, kind: pa.DataType) -> pa.Array:
    if values is None:
        return pa.nulls(n, pa.list_(kind))
    offsets = pa.array(np.arange(n + 1) * values.shape[1], pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.array(values.ravel(), kind))


def _optional(values: NDArray[Any] | None, n: int, kind: pa.DataType) -> pa.Array:
    return pa.nulls(n).cast(kind) if values is None else pa.array(values, kind)


def _unless_null(column: pa.ChunkedArray, dtype: type[Number]) -> NDArray[Number] | None:
    return None if column.null_count == len(column) else _numpy(column, dtype)


def _flat(column: pa.ChunkedArray, dtype: type[Number]) -> NDArray[Number] | None:
    return None if column.null_count == len(column) else _numpy(pc.list_flatten(column), dtype)


def _numpy(column: pa.Array | pa.ChunkedArray, dtype: type[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(column.to_numpy(), dtype=dtype)


def _padded(column: pa.ChunkedArray, fill: Number) -> NDArray[Number] | None:
    """Lists as a matrix, short ones padded with ``fill``; None where every list is null."""
    if column.null_count == len(column):
        return None
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    matrix: NDArray[Number] = np.full((len(lengths), int(lengths.max())), fill)
    matrix[np.arange(matrix.shape[1]) < lengths[:, None]] = pc.list_flatten(column).to_numpy()
    return matrix
