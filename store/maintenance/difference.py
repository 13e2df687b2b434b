"""The comparison of two embedding sets item by item, for `capim store diff`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from capim.store.embedding_store import EmbeddingStore
from capim.store.errors import RequestError
from capim.store.keys import table_of
from capim.store.schema import texts
from capim.store.sets.reading import open_set, read_blocks
from capim.store.tables.schemas import vector_type
from capim.store.types import SetKey

_WINDOW = {"single": 4096, "multi": 64}
_WORST = 10


@dataclass(frozen=True, kw_only=True)
class SetDifference:
    """How two sets differ in the items that both have (matched by id).

    Attributes:
        only_a: Items that only the first has.
        only_b: Items that only the second has.
        equal: Items with the same stored bits.
        different: Items whose vectors differ.
        lowest_cosine: The lowest cosine between the two vectors of an item; None if no vectors can be compared.
        mean_cosine: Mean over the different items with the same number of vectors; None if there are none.
        largest_change: Largest absolute difference of a component; None as for ``mean_cosine``.
        worst: Ids of at most ten different items: first those with another number of vectors, then by cosine.
    """

    only_a: int
    only_b: int
    equal: int
    different: int
    lowest_cosine: float | None
    mean_cosine: float | None
    largest_change: float | None
    worst: tuple[str, ...]


def diff(store: EmbeddingStore, a: SetKey, b: SetKey, *, other: EmbeddingStore | None = None) -> SetDifference:
    """Compares two sets in bounded memory; the second may be in another store.

    Raises:
        RequestError: One set has single vectors and one multi-vectors, or the dimensions differ.
    """
    sides = [(one, key, one.sealed(key)) for one, key in ((store, a), (other or store, b))]
    tables = [open_set(one.connection, key, state) for one, key, state in sides]
    dims = [vector_type(table.schema).list_size for table in tables]
    if a.vectors != b.vectors or dims[0] != dims[1]:
        raise RequestError(
            f"{table_of(a)} ({a.vectors}, dim {dims[0]}) and {table_of(b)} ({b.vectors}, dim {dims[1]}) cannot be "
            "compared vector by vector"
        )
    items = [one.item_index(key) for one, key, _ in sides]
    ords = [np.unique(table.to_table(columns=["ord"]).column("ord").to_numpy()) for table in tables]
    ids = [texts(index.ids.take(positions)) for index, positions in zip(items, ords, strict=True)]
    in_b = set(ids[1])
    shared = [identifier for identifier in ids[0] if identifier in in_b]
    wanted = [np.array([index.ord_of[identifier] for identifier in shared], dtype=np.int32) for index in items]
    blocks = [
        read_blocks(one.connection, key, index, positions, sealed=state, window=_WINDOW[a.vectors])
        for (one, key, state), index, positions in zip(sides, items, wanted, strict=True)
    ]
    pairs = (pair for rows in zip(*blocks, strict=True) for pair in zip(*(part.vectors for part in rows), strict=True))
    equal, cosines, changes, different = 0, [], [], []
    for identifier, (left, right) in zip(shared, pairs, strict=True):
        if left.shape != right.shape:
            different.append((-2.0, identifier))
        elif left.tobytes() == right.tobytes():
            equal += 1
        else:
            wide_left, wide_right = left.astype(np.float64), right.astype(np.float64)
            norms = np.linalg.norm(wide_left, axis=1) * np.linalg.norm(wide_right, axis=1)
            cosine = np.einsum("ij,ij->i", wide_left, wide_right) / norms
            cosines.append(cosine)
            changes.append(float(np.abs(wide_left - wide_right).max()))
            different.append((float(cosine.min()), identifier))
    every = np.concatenate(cosines) if cosines else np.ones(min(1, equal))
    return SetDifference(
        only_a=len(ids[0]) - len(shared),
        only_b=len(ids[1]) - len(shared),
        equal=equal,
        different=len(different),
        lowest_cosine=float(every.min()) if len(every) else None,
        mean_cosine=float(every.mean()) if cosines else None,
        largest_change=max(changes, default=None),
        worst=tuple(identifier for _, identifier in sorted(different)[:_WORST]),
    )
