"""``store diff``: two embedding sets, item by item."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from store.errors import RequestError
from store.keys import table_of
from store.sets.decoding import StoredRows
from store.sets.reading import open_set, read_blocks
from store.sets.seal import sealed
from store.tables.connection import Connection
from store.tables.corpora import item_index
from store.types import SetKey

_WINDOW = {"single": 4096, "multi": 64}
_WORST = 10


@dataclass(frozen=True, kw_only=True)
class SetDifference:
    """How two sets differ over the items that both have (matched by id).

    Attributes:
        only_a: Items that only the first has.
        only_b: Items that only the second has.
        equal: Items whose stored vectors are equal to the last bit.
        different: Items whose vectors differ.
        lowest_cosine: Of the vectors of one item in both, the lowest; None if nothing can be compared.
        mean_cosine: Mean over the different items' vectors of equal number; None if there are none.
        largest_change: Largest absolute difference of a component; None as above.
        worst: Ids of at most ten different items, lowest cosine first; items with another number of vectors first.
    """

    only_a: int
    only_b: int
    equal: int
    different: int
    lowest_cosine: float | None
    mean_cosine: float | None
    largest_change: float | None
    worst: tuple[str, ...]


def diff(here: Connection, a: SetKey, there: Connection, b: SetKey) -> SetDifference:
    """Compares two sets of one or two stores in bounded memory.

    Raises:
        RequestError: Their vectors are of another kind or dimension.
    """
    state_a, state_b = sealed(here, a), sealed(there, b)
    table_a, table_b = open_set(here, a, state_a), open_set(there, b, state_b)
    if a.vectors != b.vectors or _dim(table_a.schema) != _dim(table_b.schema):
        raise RequestError(
            f"{table_of(a)} ({a.vectors}, dim {_dim(table_a.schema)}) and {table_of(b)} ({b.vectors}, dim "
            f"{_dim(table_b.schema)}) cannot be compared vector by vector"
        )
    items_a = item_index(here, a.corpus, a.corpus_fingerprint, a.modality)
    items_b = item_index(there, b.corpus, b.corpus_fingerprint, b.modality)
    ids_a = items_a.ids.take(pa.array(_positions(table_a)))
    ids_b = items_b.ids.take(pa.array(_positions(table_b)))
    in_b = set(ids_b.to_pylist())
    shared = [identifier for identifier in ids_a.to_pylist() if identifier in in_b]
    ords_a = np.array([items_a.ord_of[identifier] for identifier in shared], dtype=np.int32)
    ords_b = np.array([items_b.ord_of[identifier] for identifier in shared], dtype=np.int32)
    window = _WINDOW[a.vectors]
    equal, cosines, changes, per_item = 0, [], [], []
    for rows_a, rows_b in zip(
        read_blocks(table_a, a, items_a, ords_a, sealed=state_a, window=window),
        read_blocks(table_b, b, items_b, ords_b, sealed=state_b, window=window),
        strict=True,
    ):
        for position, (left, right) in enumerate(zip(_items(rows_a), _items(rows_b), strict=True)):
            if left.shape == right.shape and left.tobytes() == right.tobytes():
                equal += 1
                continue
            identifier = items_a.ids[int(rows_a.ords[position])].as_py()
            if left.shape != right.shape:
                per_item.append((-2.0, identifier))
                continue
            wide_left, wide_right = left.astype(np.float64), right.astype(np.float64)
            norms = np.linalg.norm(wide_left, axis=1) * np.linalg.norm(wide_right, axis=1)
            cosine = np.einsum("ij,ij->i", wide_left, wide_right) / norms
            cosines.append(cosine)
            changes.append(float(np.abs(wide_left - wide_right).max()))
            per_item.append((float(cosine.min()), identifier))
    every = np.concatenate(cosines) if cosines else np.ones(min(1, equal))
    return SetDifference(
        only_a=len(ids_a) - len(shared),
        only_b=len(ids_b) - len(shared),
        equal=equal,
        different=len(per_item),
        lowest_cosine=float(every.min()) if len(every) else None,
        mean_cosine=float(every.mean()) if cosines else None,
        largest_change=max(changes, default=None),
        worst=tuple(identifier for _, identifier in sorted(per_item)[:_WORST]),
    )


def _dim(schema: pa.Schema) -> int:
    kind = schema.field("vector").type if "vector" in schema.names else schema.field("vectors").type.value_type
    return int(kind.list_size)


def _positions(table: object) -> NDArray[np.int32]:
    ords = table.to_table(columns=["ord"]).column("ord").to_numpy()  # type: ignore[attr-defined]
    return np.unique(ords)


def _items(rows: StoredRows) -> list[NDArray[np.floating]]:
    """The vectors of each row, shape ``(count, dim)``."""
    bounds = rows.offsets.tolist()
    return [rows.values[start:stop] for start, stop in pairwise(bounds)]
