"""What a user's metric sees of the queries: their outcomes by column, their texts and languages, the searched items."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capim.store.errors import RequestError
from capim.store.ragged import positions_within
from capim.store.types import Corpus, EvalProtocol
from capim.tasks.metrics.crosslingual import language_part
from capim.tasks.scoring.outcomes import Outcomes, stored_attributes

_ATTRIBUTES = {column: name for name, column in stored_attributes()}
COLUMNS = tuple(_ATTRIBUTES)
# one value per relevant item instead of one per query
_OF_RELEVANT = ("relevant_rank_best", "relevant_rank_worst", "relevant_grades", "relevant_scores")


class Column(np.ndarray[Any, np.dtype[Any]]):
    """A NumPy array that also answers ``to_numpy()`` and ``to_pylist()``, as a column of an Arrow table does."""

    def to_numpy(self) -> NDArray[Any]:
        """The values as a plain array."""
        return np.asarray(self)

    def to_pylist(self) -> list[Any]:
        """The values as a list."""
        values: list[Any] = self.tolist()
        return values


class QueryOutcomes:
    """Outcomes of one encoder under one protocol: ``outcomes["rank_worst"]`` or ``outcomes.rank_worst``.

    Columns are named as in the stored table (``store.schema.OUTCOMES``) and have one value per query, with three
    exceptions: ``top_ords``, ``top_scores`` and ``scores`` are matrices with a row per query, padded with -1 and NaN;
    ``relevant_rank_best`` and ``relevant_rank_worst`` hold the ranks of all relevant items, query after query,
    ``n_relevant`` each, and where documents were judged ``relevant_grades`` and ``relevant_scores`` likewise; columns
    that the protocol does not have are None.

    Examples:
        >>> from capim.tasks.metrics.examples import outcomes_of
        >>> outcomes = QueryOutcomes(outcomes_of([[1], [3]]))
        >>> (outcomes.rank_worst <= 2).tolist(), outcomes["rank_worst"].to_numpy().tolist()
        ([True, False], [1, 3])
    """

    def __init__(self, outcomes: Outcomes, corpus: Corpus | None = None) -> None:
        self._outcomes = outcomes
        self._corpus = corpus
        self.protocol: EvalProtocol = outcomes.protocol

    def __len__(self) -> int:
        return len(self._outcomes)

    def __getitem__(self, name: str) -> Any:
        if name not in COLUMNS:
            raise KeyError(f"outcomes have no column {name!r}; they have {', '.join(COLUMNS)}")
        values = getattr(self._outcomes, _ATTRIBUTES[name])
        return None if values is None else values.view(Column)

    def __getattr__(self, name: str) -> Any:
        if name not in COLUMNS:
            more = "query_texts, languages, items, corpus, protocol"
            raise AttributeError(f"outcomes have no {name!r}; they have {', '.join(COLUMNS)}, and {more}")
        return self[name]

    @property
    def corpus(self) -> Corpus:
        """The corpus of the queries.

        Raises:
            RequestError: The metric is computed without one.
        """
        if self._corpus is None:
            raise RequestError("these outcomes come without their corpus: give it when the metric is made")
        return self._corpus

    @property
    def query_texts(self) -> Column:
        """The text of each query: a caption, of a pair the right one, of a quadruple the first; None for an image."""
        return self._of_captions("text")

    @property
    def languages(self) -> Column:
        """The language of each query's caption (BCP-47); for an image that of the protocol, or None."""
        if self.protocol.direction == "i2t":
            part = language_part(self.protocol)
            return np.full(len(self), part and part[0], dtype=object).view(Column)
        return self._of_captions("language")

    @cached_property
    def items(self) -> Column:
        """The ids of all items that the queries search, by position: ``items[top_ords[:, 0]]`` are those found first.

        Raises:
            RequestError: The protocol has no gallery.
        """
        if self.protocol.direction not in ("t2i", "i2t"):
            raise RequestError(f"protocol {self.protocol.id!r} searches no items")
        table = self.corpus.images if self.protocol.direction == "t2i" else self.corpus.captions
        return np.array(table["id"].to_pylist(), dtype=object).view(Column)

    def at(self, rows: NDArray[np.int64]) -> QueryOutcomes:
        """The outcomes of some queries, by their positions, in the order given."""
        outcomes = self._outcomes
        counts = outcomes.n_relevant[rows]
        ranks = positions_within(counts) + np.repeat(outcomes.offsets[:-1][rows], counts)
        chosen: dict[str, Any] = {
            field.name: values[ranks if field.name in _OF_RELEVANT else rows]
            for field in fields(outcomes)
            if isinstance(values := getattr(outcomes, field.name), np.ndarray)
        }
        return QueryOutcomes(replace(outcomes, **chosen), self._corpus)

    def _of_captions(self, column: str) -> Column:
        """A column of the captions that the queries are; None for images."""
        if self.protocol.direction == "i2t":
            return np.full(len(self), None, dtype=object).view(Column)
        captions, positions = self.corpus.captions, self._outcomes.query_ords
        if self.protocol.direction != "t2i":
            pairs = self.protocol.direction == "pairs"
            ids = self.corpus.pairs["caption_id"] if pairs else self.corpus.quadruples["caption_0"]
            position_of = {name: at for at, name in enumerate(captions["id"].to_pylist())}
            positions = np.array([position_of[name] for name in ids.take(positions).to_pylist()], dtype=np.int32)
        return np.array(captions[column].take(positions).to_pylist(), dtype=object).view(Column)
