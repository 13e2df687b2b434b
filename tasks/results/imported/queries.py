"""Which query each row of a table is about: by its id, by its texts, or by the order of the corpus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from store.schema import texts
from store.types import Corpus
from tasks.results.imported.cells import NUMBER, Row, plain_text


@dataclass(frozen=True, kw_only=True)
class Items:
    """The pairs, quadruples or queries that rows can be about.

    Attributes:
        kind: What they are, in messages: ``pairs``.
        ids: In corpus order.
        texts: Caption and negative caption (quadruples: captions 0 and 1) of each; None where rows have no texts.
        categories: Of pairs.
    """

    kind: str
    ids: Sequence[str]
    texts: Sequence[tuple[str, str]] | None = None
    categories: Sequence[str] | None = None


def compositional_items(corpus: Corpus, direction: str) -> Items:
    """The pairs or quadruples of a corpus with their two texts."""
    pairs = direction == "pairs"
    table = corpus.pairs if pairs else corpus.quadruples
    columns = ("caption_id", "negative_id") if pairs else ("caption_0", "caption_1")
    text_of = dict(zip(corpus.captions["id"].to_pylist(), corpus.captions["text"].to_pylist(), strict=True))
    first, second = ([plain_text(text_of[name] or "") for name in table[column].to_pylist()] for column in columns)
    return Items(
        kind=direction,
        ids=texts(table["id"]),
        texts=list(zip(first, second, strict=True)),
        categories=texts(table["category"]) if pairs else None,
    )


def match(rows: Sequence[Row], items: Items, faults: list[str], left_out: list[str]) -> NDArray[np.int64]:
    """The position of the item of every row, -1 for none, by the first of these that the rows have.

    Ids that are all known (texts beside them have to agree); the two texts; ids; no id and no text, where there is one
    row for every item, in order. Of several items with the same texts, the row is about the one with its number
    (``swap_obj/62`` for 62) or its category, else the first that no row is about yet. A row whose texts are not in the
    corpus is left out, with a sentence in ``left_out``: publications come from earlier versions of a data set.
    """
    with_id = sum("query" in row for row in rows)
    with_texts = items.texts is not None and all("caption" in row and "negative_caption" in row for row in rows)
    at = {identifier: position for position, identifier in enumerate(items.ids)}
    if with_id == len(rows):
        positions = np.array([at.get(str(row["query"]), -1) for row in rows], dtype=np.int64)
        if (positions >= 0).all() or not with_texts:
            _check_ids(rows, positions, items, faults)
            if with_texts:
                _check_texts(rows, positions, items, faults)
            return positions
    if with_texts:
        return _by_texts(rows, items, faults, left_out)
    if with_id:
        faults.append(f"{len(rows) - with_id} of {len(rows)} rows have no `query`, first row {_first_without(rows)}")
    elif len(rows) != len(items.ids):
        faults.append(
            f"{len(rows)} rows without ids for {len(items.ids)} {items.kind}: give a column `query`, or one row for "
            "each in the order of the corpus"
        )
    return np.arange(len(rows)) if len(rows) == len(items.ids) else np.full(len(rows), -1)


def missing(positions: NDArray[np.int64], wanted: NDArray[np.int64], items: Items) -> str | None:
    """What is wrong if not every wanted item has a row; None if nothing is."""
    absent = np.setdiff1d(wanted, positions)
    if not absent.size:
        return None
    return f"{absent.size} of {len(wanted)} {items.kind} have no row, first {items.ids[int(absent[0])]!r}"


def _first_without(rows: Sequence[Row]) -> str:
    return next(str(row[NUMBER]) for row in rows if "query" not in row)


def _check_ids(rows: Sequence[Row], positions: NDArray[np.int64], items: Items, faults: list[str]) -> None:
    unknown = np.flatnonzero(positions < 0)
    if unknown.size:
        row = rows[int(unknown[0])]
        faults.append(
            f"{unknown.size} of {len(rows)} ids are none of the {len(items.ids)} {items.kind}, first {row['query']!r} "
            f"in row {row[NUMBER]}; ids look like {items.ids[0]!r}"
        )
    known = positions[positions >= 0]
    repeated = np.flatnonzero(np.bincount(known, minlength=1) > 1)
    if repeated.size:
        faults.append(f"{repeated.size} {items.kind} have more than one row, first {items.ids[int(repeated[0])]!r}")


def _check_texts(rows: Sequence[Row], positions: NDArray[np.int64], items: Items, faults: list[str]) -> None:
    of_items = items.texts or ()
    for row, position in zip(rows, positions, strict=True):
        if position >= 0 and _texts(row) != of_items[position]:
            faults.append(
                f"row {row[NUMBER]}: {items.ids[position]!r} has the texts {of_items[position]} in the corpus, got "
                f"{_texts(row)}; the file may be about another version of the corpus"
            )
            return


def _texts(row: Row) -> tuple[str, str]:
    return plain_text(row["caption"]), plain_text(row["negative_caption"])


def _by_texts(rows: Sequence[Row], items: Items, faults: list[str], left_out: list[str]) -> NDArray[np.int64]:
    places: dict[tuple[str, str], list[int]] = {}
    for position, both in enumerate(items.texts or ()):
        places.setdefault(both, []).append(position)
    positions = np.array([_next(places.get(_texts(row), []), row, items) for row in rows], dtype=np.int64)
    unknown = np.flatnonzero(positions < 0)
    if unknown.size == len(rows):
        faults.append(f"none of the {len(rows)} rows has the texts of one of the {len(items.ids)} {items.kind}")
    if unknown.size:
        row = rows[int(unknown[0])]
        left_out.append(
            f"{unknown.size} of {len(rows)} rows left out, whose texts are not in the corpus, first row {row[NUMBER]}: "
            f"{plain_text(row['caption'])!r}"
        )
    return positions


def _next(left: list[int], row: Row, items: Items) -> int:
    """The place that fits the row best of those that no row has taken, which is taken; -1 if there is none."""
    if not left:
        return -1

    def fit(position: int) -> tuple[bool, bool]:
        same_number = "query" in row and items.ids[position].rpartition("/")[2] == str(row["query"])
        return same_number, items.categories is not None and items.categories[position] == row.get("category")

    best = max(left, key=fit)  # the first of equal ones
    left.remove(best)
    return best
