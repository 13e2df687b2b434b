"""Outcomes from tables of ranks, hits or judgements (``docs/outcomes.md``), and from lists of queries that hit.

A row is about a query by its id, by its texts, or by the order of the corpus; faults name the row and what was
expected. After a change of the columns, write their JSON Schema again:
``python -m capim.tasks.results.imported.tables > docs/outcomes.schema.json``.

For each query, hits give only whether a relevant item is among the first 1, 5 or 10. Its rank is known as a range (1,
2-5, 6-10, beyond 10), which is stored: ``rank_best`` and ``rank_worst`` are the ends of the range. R@1, R@5 and R@10
are exact, because no range crosses a listed cutoff. Other metrics (MRR, median rank, nDCG) are undetermined and left
out (``tasks.metrics.metrics_of``); ``best_score`` is NaN, and there are no result lists.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from capim.store.errors import RequestError
from capim.store.schema import JUDGED, texts
from capim.store.types import Corpus
from capim.store.vectors import positions_within
from capim.tasks.metrics.compositional import text_and_image
from capim.tasks.protocols import ALL_NEGATIVES, MAIN
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import build_task, protocols_of, select_protocols
from capim.tasks.ranking.ranker import choice_outcomes
from capim.tasks.ranking.tasks import ChoiceTask, RetrievalTask, query_columns


class ReadColumn(NamedTuple):
    """One column: the kind of its values, and what they mean."""

    kind: Literal["text", "rank", "flag"]
    meaning: str


COLUMNS: dict[str, ReadColumn] = {
    "protocol": ReadColumn(
        "text", "id of the protocol (`capim list protocols`); `--protocol` gives one to the whole file"
    ),
    "query": ReadColumn(
        "text",
        "id of the query: of a caption (t2i), an image (i2t), a pair or a quadruple; a column `id`, `query_id`, "
        "`caption_id`, `image_id`, `example_id` or the like is taken as well",
    ),
    "caption": ReadColumn(
        "text", "text of the caption of a pair, or of caption 0 of a quadruple; instead of its id, or to check it"
    ),
    "negative_caption": ReadColumn("text", "text of the hard negative of a pair, or of caption 1 of a quadruple"),
    "category": ReadColumn("text", "category of a pair, to tell pairs with the same texts apart"),
    "rank": ReadColumn("rank", "rank of the first relevant item, 1 for the first place"),
    "rank_best": ReadColumn(
        "rank", "lowest rank that the first relevant item can have, where the rank is not known exactly"
    ),
    "rank_worst": ReadColumn("rank", "highest rank that it can have"),
    "correct": ReadColumn(
        "flag", "pairs: whether the caption was chosen, not its negative; with k: whether a relevant item is found"
    ),
    "k": ReadColumn("rank", "`correct` is about the first k items"),
    "text_0": ReadColumn("flag", "whether the right caption was chosen for image 0"),
    "text_1": ReadColumn("flag", "whether the right caption was chosen for image 1"),
    "image_0": ReadColumn("flag", "whether the right image was chosen for caption 0"),
    "image_1": ReadColumn("flag", "whether the right image was chosen for caption 1"),
    "text": ReadColumn("flag", "whether the right caption was chosen for both images"),
    "image": ReadColumn("flag", "whether the right image was chosen for both captions"),
    "group": ReadColumn("flag", "`text` and `image`"),
}

HALVES = ("text_0", "text_1", "image_0", "image_1")
OUTCOME_KINDS: dict[str, tuple[str, ...]] = {
    "rank": ("rank",),
    "range": ("rank_best", "rank_worst"),
    "hits": ("correct", "k"),
    "pairs": ("correct",),
    "halves": HALVES,
    "scores": ("text", "image"),
}
"""What was measured -> the columns that say it. The first kind of which a row has all columns is the row's."""

PUBLISHED = {
    # github.com/IMirandaM/BiVLC, results: its files of May and of June 2024
    **dict(zip(("text_score_i0", "text_score_i1", "image_score_c0", "image_score_c1"), HALVES, strict=True)),
    **dict(zip(("Ipos_2T", "Ineg_2T", "Tpos_2I", "Tneg_2I"), HALVES, strict=True)),
    **dict.fromkeys(("text_score", "I2T"), "text"),
    **dict.fromkeys(("image_score", "T2I"), "image"),
    "group_score": "group",
    **dict.fromkeys(("", "unnamed:_0", "__index_level_0__"), "index"),  # pandas' index, in CSV and in Parquet
}
"""Column of a published file -> ours. SugarCrepe's own answers of GPT-4V have our names."""

QUERY = ("query", "query_id")
KEYS = {
    "captions": ("caption_id", "text_id"),
    "images": ("image_id", "img_id"),
    "": ("qid", "example_id", "pair_id", "question_id", "sample_id", "item_id", "id", "_id", "uid"),
    "rows": ("index", "idx"),
}
"""Kind of item, "" for any -> usual names of a column of its ids: such a column may say which query a row is about. The
columns ``QUERY`` always do."""

_JSON_TYPES: dict[str, dict[str, Any]] = {
    "text": {"type": ["string", "integer", "null"]},
    "rank": {"type": ["integer", "null"], "minimum": 1},
    "flag": {"enum": [True, False, 0, 1, None]},
}


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a table as an array of rows."""
    properties = {name: {**_JSON_TYPES[c.kind], "description": c.meaning} for name, c in COLUMNS.items()}
    present = [{"required": list(names)} for names in dict.fromkeys(OUTCOME_KINDS.values())]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Outcomes of a model without embeddings",
        "description": "One row per query. `capim import --outcomes` also reads the same columns from CSV and Parquet.",
        "type": "array",
        "minItems": 1,
        "items": {"type": "object", "properties": properties, "anyOf": present},
    }


Row: TypeAlias = Mapping[str, Any]
"""A row of a file under our names of columns; ``_row`` is its place: ``3``, or ``answers.json:3`` of several files."""

NUMBER = "_row"
_FLAGS = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}
_SHOWN = 5
_WHOLE = re.compile(r"0*([0-9]+)(?:\.0*)?")
_KEYS = {*QUERY, *(name for names in KEYS.values() for name in names)} - {*COLUMNS}


def named_rows(rows: Iterable[Mapping[str, Any]], file: str = "") -> list[Row]:
    """Rows with our names of columns, without other columns and without empty cells, numbered from 1."""
    named: list[Row] = []
    for number, row in enumerate(rows, start=1):
        ours = {_our_name(name): cell for name, cell in row.items() if cell is not None}
        if {"type", "subtype"} <= ours.keys():  # BiVLC's results on SugarCrepe
            ours.setdefault("category", f"{ours['type']}_{ours['subtype']}")
        place = f"{file}:{number}" if file else f"{number}"
        named.append({NUMBER: place, **{name: cell for name, cell in ours.items() if name in _KEYS or name in COLUMNS}})
    return named


@cache
def _our_name(name: str) -> str:
    """Our name of a column; a column of ids may be written in any way: ``Image-ID``."""
    plain = re.sub(r"[\s-]+", "_", name.strip().lower())
    return PUBLISHED.get(name, PUBLISHED.get(plain, plain if plain in _KEYS else name))


def kind_of(row: Row) -> str | None:
    """The first kind of :data:`OUTCOME_KINDS` of which the row has all columns; None if it has none."""
    return next((kind for kind, names in OUTCOME_KINDS.items() if all(name in row for name in names)), None)


def ranks(rows: Sequence[Row], column: str, faults: list[str]) -> NDArray[np.int32]:
    """Whole numbers from 1, shape ``(n_rows,)``; 1 in rows at fault, which are added to ``faults``."""
    values = np.ones(len(rows), dtype=np.int32)
    wrong = []
    for at, row in enumerate(rows):
        try:
            value = float(row[column])
        except (TypeError, ValueError):
            value = 0.0
        if 1 <= value < 2**31 and value.is_integer() and not isinstance(row[column], bool):
            values[at] = int(value)
        else:
            wrong.append(row)
    _complain(wrong, column, "a whole number from 1", faults)
    return values


def flags(rows: Sequence[Row], column: str, faults: list[str]) -> NDArray[np.bool_]:
    """Truth values, shape ``(n_rows,)``; False in rows at fault, which are added to ``faults``."""
    values = [_FLAGS.get(str(row[column]).strip().lower()) for row in rows]
    wrong = [row for row, value in zip(rows, values, strict=True) if value is None]
    _complain(wrong, column, "true, false, 1 or 0", faults)
    return np.array([bool(value) for value in values], dtype=bool)


def _complain(wrong: Sequence[Row], column: str, expected: str, faults: list[str]) -> None:
    shown = ", ".join(f"{row[column]!r} in row {row[NUMBER]}" for row in wrong[:_SHOWN])
    more = f" and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
    if wrong:
        faults.append(f"{column}: expected {expected}, got {shown}{more}")


def plain_text(text: object) -> str:
    """A text with single spaces and none at its ends: publications of one data set differ in them."""
    return " ".join(str(text).split())


@dataclass(frozen=True, kw_only=True)
class Items:
    """The pairs, quadruples or queries that rows can be about.

    Attributes:
        kind: What they are, in messages: ``pairs``.
        of: What their ids are ids of.
        ids: In corpus order.
        texts: Caption and negative caption (quadruples: captions 0 and 1) of each; None where rows have no texts.
        categories: Of pairs.
        linked: Kind of other ids -> id -> positions of the items that belong to it: the queries of an image.
    """

    kind: str
    of: Literal["captions", "images", "pairs", "quadruples"]
    ids: Sequence[str]
    texts: Sequence[tuple[str, str]] | None = None
    categories: Sequence[str] | None = None
    linked: Mapping[str, Mapping[str, Sequence[int]]] = field(default_factory=dict)


class Matched(NamedTuple):
    """What an import tells about its rows: how they were matched, and which were left out."""

    how: list[str]
    left_out: list[str]


class _Key(NamedTuple):
    """A column of ids: the kind of ids that it holds, and the positions of the items of every row, () for none."""

    column: str
    of: str
    places: list[Sequence[int]]

    @property
    def n_known(self) -> int:
        return sum(map(bool, self.places))


def queries_of(task: RetrievalTask, corpus: Corpus) -> Items:
    """The queries of a task: captions, which may also be named by their image or annotation; or images, by captions."""
    captions, ids = corpus.captions, task.query_ids.tolist()
    if task.protocol.direction == "t2i":
        of_queries = captions.take(task.queries)
        linked = {"images": _by_id(of_queries["image_id"].to_pylist())}
        linked["annotations"] = _by_id(of_queries["annotation_id"].to_pylist())
        return Items(kind="queries", of="captions", ids=ids, linked=linked)
    of_image = _by_id(texts(corpus.images["id"].take(task.queries)))
    described = zip(texts(captions["id"]), captions["image_id"].to_pylist(), strict=True)
    linked = {"captions": {caption: of_image[image] for caption, image in described if image in of_image}}
    return Items(kind="queries", of="images", ids=ids, linked=linked)


def compositional_items(corpus: Corpus, direction: Literal["pairs", "quadruples"]) -> Items:
    """The pairs or quadruples of a corpus with their two texts."""
    pairs = direction == "pairs"
    table = corpus.pairs if pairs else corpus.quadruples
    columns = ("caption_id", "negative_id") if pairs else ("caption_0", "caption_1")
    text_of = dict(zip(corpus.captions["id"].to_pylist(), corpus.captions["text"].to_pylist(), strict=True))
    first, second = ([plain_text(text_of[name] or "") for name in table[column].to_pylist()] for column in columns)
    return Items(
        kind=direction,
        of=direction,
        ids=texts(table["id"]),
        texts=list(zip(first, second, strict=True)),
        categories=texts(table["category"]) if pairs else None,
        linked={
            "images": _by_id(texts(table["image_id" if pairs else "image_0"])),
            "captions": _by_id(texts(table[columns[0]])),
        },
    )


def match(rows: Sequence[Row], items: Items, faults: list[str], matched: Matched) -> NDArray[np.int64]:
    """The position of the item of every row, -1 for none, by the first of these that the rows have.

    Ids that are all known (texts beside them have to agree); the two texts; ids; no id and no text, where there is one
    row for every item, in order. Of several items with the same texts, the row is about the one with its number
    (``swap_obj/62`` for 62) or its category, else the first that no row is about yet. A row whose texts are not in the
    corpus is left out, with a sentence in ``matched``: publications come from earlier versions of a data set.

    Ids are in the first column of usual name (:data:`tasks.results.imported.tables.KEYS`) that holds any, those of
    the kind of the query first; all of its cells are ids then, each once, or it is a fault. ``7``, ``7.0`` and ``007``
    are one id unless the corpus tells them apart.
    """
    with_texts = items.texts is not None and all("caption" in row and "negative_caption" in row for row in rows)
    key = _key_of(rows, items)
    if with_texts and (key is None or key.of != items.of or key.n_known < len(rows)):
        return _by_texts(rows, items, faults, matched)
    if key is None:
        return _by_order(rows, items, faults, matched)
    positions = np.array([places[0] if places else -1 for places in key.places], dtype=np.int64)
    if with_texts and (fault := _other_texts(rows, positions, items)):
        if key.column not in QUERY:  # a number of the row, perhaps
            return _by_texts(rows, items, faults, matched)
        faults.append(fault)
    several = [row for row, places in enumerate(key.places) if len(places) > 1]
    if not several or key.n_known < len(rows):
        before = len(faults)
        _check_ids(rows, positions, key, items, faults)
        told = f"{len(rows):,} of {len(rows):,} rows matched by `{key.column}`"
        if len(faults) == before:
            _tell(matched, told if key.of == items.of else f"{told}, {key.of} of the {items.kind}")
        return positions
    in_order = len(rows) == len(items.ids)
    if in_order and all(place in places for place, places in enumerate(key.places)):
        _tell(matched, f"{len(rows):,} rows taken in the corpus' order, with which `{key.column}` agrees")
        return np.arange(len(rows))
    row = rows[several[0]]
    faults.append(
        f"`{key.column}` holds ids of {key.of}, and {row[key.column]!r} in row {row[NUMBER]} belongs to "
        f"{len(key.places[several[0]])} of the {items.kind}: give the ids of {items.of} in a column `query`"
        + ("; or leave the column out, the rows are then taken in the corpus' order" if in_order else "")
    )
    return positions


def missing(positions: NDArray[np.int64], wanted: NDArray[np.int64], items: Items) -> str | None:
    """What is wrong if not every wanted item has a row; None if nothing is."""
    absent = np.setdiff1d(wanted, positions)
    if not absent.size:
        return None
    return f"{absent.size} of {len(wanted)} {items.kind} have no row, first {items.ids[int(absent[0])]!r}"


def known_ids(cells: Iterable[object], by_id: Mapping[str, Sequence[int]]) -> list[Sequence[int]]:
    """What ``by_id`` has for every cell, () for nothing; whole numbers are found however they are written.

    Examples:
        >>> known_ids([7, "7.0", "007", "p7", None], {"007": [0], "8": [1]})
        [[0], [0], [0], (), ()]
        >>> known_ids(["7", "7.0"], {"007": [0], "7": [1]})
        [[1], ()]
    """
    written = Counter(_number(identifier) for identifier in by_id)
    numbers = {_number(identifier): found for identifier, found in by_id.items() if written[_number(identifier)] == 1}
    named = (None if cell is None else str(cell) for cell in cells)
    return [() if name is None else by_id.get(name) or numbers.get(_number(name.strip()), ()) for name in named]


def key_columns(rows: Sequence[Row], of: str) -> list[str]:
    """The columns of ids that rows have: those of the query's kind first, of another kind and of rows last."""
    present = {name for row in rows for name in row}
    others = (kind for kind in ("captions", "images", "rows") if kind != of)
    ordered = [*QUERY, *KEYS.get(of, ()), *KEYS[""], *(name for kind in others for name in KEYS[kind])]
    return [name for name in ordered if name in present]


def _by_id(ids: Iterable[str | None]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for position, identifier in enumerate(ids):
        if identifier is not None:
            places.setdefault(identifier, []).append(position)
    return places


def _number(text: str) -> str:
    """A whole number without zeros that mean nothing; any other text as it is."""
    whole = _WHOLE.fullmatch(text)
    return whole[1] if whole else text


def _key_of(rows: Sequence[Row], items: Items) -> _Key | None:
    """The first column of which a cell is an id, and the ids of which it holds most; else ``query`` if there is one."""
    ways = {items.of: _by_id(items.ids), **items.linked}
    strict = None
    for column in key_columns(rows, items.of):
        cells = [row.get(column) for row in rows]
        foreign = next((kind for kind in ways if kind != items.of and column in KEYS.get(kind, ())), items.of)
        order = [foreign, *(kind for kind in ways if kind != foreign)]  # `image_id` of a caption: of its image first
        key = max((_Key(column, kind, known_ids(cells, ways[kind])) for kind in order), key=lambda key: key.n_known)
        if key.n_known:
            return key
        if strict is None and column in QUERY:
            strict = _Key(column, items.of, key.places)
    return strict


def _by_order(rows: Sequence[Row], items: Items, faults: list[str], matched: Matched) -> NDArray[np.int64]:
    """Rows without an id: one for each item, in the order of the corpus."""
    columns = key_columns(rows, items.of)
    first = next(((row[name], name) for name in columns for row in rows if name in row), None)
    if len(rows) != len(items.ids):
        faults.append(
            f"{len(rows)} rows without ids for {len(items.ids)} {items.kind}: give a column `query`, or one row for "
            "each in the order of the corpus"
        )
        return np.full(len(rows), -1)
    for name in columns:
        numbers = [int(text) for row in rows if (text := _number(str(row.get(name)).strip())).isdecimal()]
        if sorted(numbers) in (list(range(len(rows))), list(range(1, len(rows) + 1))) and numbers != sorted(numbers):
            faults.append(
                f"`{name}` counts the rows in another order, and holds no ids of the {items.kind}, which look like "
                f"{items.ids[0]!r}: sort the rows by it if it follows the corpus, or give their ids in a column `query`"
            )
    none = "no column of ids" if first is None else f"`{first[1]}` holds no ids of the {items.kind}, first {first[0]!r}"
    _tell(matched, f"{len(rows):,} rows taken in the corpus' order; {none}")
    return np.arange(len(rows))


def _tell(matched: Matched, sentence: str) -> None:
    if sentence not in matched.how:  # once for all cutoffs
        matched.how.append(sentence)


def _check_ids(rows: Sequence[Row], positions: NDArray[np.int64], key: _Key, items: Items, faults: list[str]) -> None:
    name = key.column
    lacking = [row for row in rows if name not in row]
    if lacking:
        faults.append(f"{len(lacking)} of {len(rows)} rows have no `{name}`, first row {lacking[0][NUMBER]}")
    unknown = [row for row, places in zip(rows, key.places, strict=True) if not places and name in row]
    if unknown:
        what = f"the {len(items.ids)} {items.kind}" if key.of == items.of else f"the {key.of} of the {items.kind}"
        known = items.ids[0] if key.of == items.of else next(iter(items.linked[key.of]))
        faults.append(
            f"`{name}`: {len(unknown)} of {len(rows)} ids are none of {what}, first {unknown[0][name]!r} in row "
            f"{unknown[0][NUMBER]}; ids look like {known!r}"
            + ("" if name in QUERY else ". Leave the column out if it does not hold ids")
        )
    repeated = np.flatnonzero(np.bincount(positions[positions >= 0], minlength=1) > 1)
    if repeated.size:
        again = np.flatnonzero(positions == repeated[0])[:2]
        where = " and ".join(rows[row][NUMBER] for row in again)
        one = items.ids[int(repeated[0])]
        faults.append(f"{repeated.size} {items.kind} have more than one row, first {one!r} in rows {where}")


def _other_texts(rows: Sequence[Row], positions: NDArray[np.int64], items: Items) -> str | None:
    """What is wrong if a row does not have the texts of its item."""
    of_items = items.texts or ()
    for row, position in zip(rows, positions, strict=True):
        if position >= 0 and _texts(row) != of_items[position]:
            return (
                f"row {row[NUMBER]}: {items.ids[position]!r} has the texts {of_items[position]} in the corpus, got "
                f"{_texts(row)}; the file may be about another version of the corpus"
            )
    return None


def _texts(row: Row) -> tuple[str, str]:
    return plain_text(row["caption"]), plain_text(row["negative_caption"])


def _by_texts(rows: Sequence[Row], items: Items, faults: list[str], matched: Matched) -> NDArray[np.int64]:
    places: dict[tuple[str, str], list[int]] = {}
    for position, both in enumerate(items.texts or ()):
        places.setdefault(both, []).append(position)
    positions = np.array([_next(places.get(_texts(row), []), row, items) for row in rows], dtype=np.int64)
    unknown = np.flatnonzero(positions < 0)
    if unknown.size == len(rows):
        faults.append(f"none of the {len(rows)} rows has the texts of one of the {len(items.ids)} {items.kind}")
    _tell(matched, f"{len(rows) - unknown.size:,} of {len(rows):,} rows matched by their texts")
    if unknown.size:
        row = rows[int(unknown[0])]
        matched.left_out.append(
            f"{unknown.size} of {len(rows)} rows left out, whose texts are not in the corpus, first row {row[NUMBER]}: "
            f"{plain_text(row['caption'])!r}"
        )
    return positions


def _next(left: list[int], row: Row, items: Items) -> int:
    """The place that fits the row best of those that no row has taken, which is taken; -1 if there is none."""
    if not left:
        return -1

    def fit(position: int) -> tuple[bool, bool]:
        same_number = items.ids[position].rpartition("/")[2] in {str(row[name]) for name in QUERY if name in row}
        return same_number, items.categories is not None and items.categories[position] == row.get("category")

    best = max(left, key=fit)  # the first of equal ones
    left.remove(best)
    return best


# --- The outcomes of rows that are matched with queries.


_DIRECTION_OF_KIND: dict[str, Literal["pairs", "quadruples"]] = {
    "pairs": "pairs",
    "halves": "quadruples",
    "scores": "quadruples",
}


class FoundRows(NamedTuple):
    """Outcomes per protocol, sentences about what was left out, and about how rows were matched with queries."""

    outcomes: list[Outcomes]
    left_out: list[str]
    how: Sequence[str] = ()


class _TablePart(NamedTuple):
    """Rows of one kind about one protocol; ``named`` is "" where the kind decides: pairs and quadruples."""

    kind: str
    named: str
    rows: list[Row]


def outcomes_of_rows(rows: Sequence[Row], corpus: Corpus, *, protocols: Collection[str] = ()) -> FoundRows:
    """The outcomes that rows determine, in the order of the corpus.

    Args:
        rows: From :func:`tasks.results.imported.tables.named_rows`.
        protocols: For rows without a protocol: theirs. For rows with one: only those of these protocols.

    Raises:
        RequestError: Rows that have no kind, contradict each other, or do not cover the queries; all faults together.
    """
    faults: list[str] = []
    told = Matched([], [])
    found: dict[str, Outcomes] = {}
    for part in _parts(rows, protocols, corpus, faults):
        read = _of_choices if part.kind in _DIRECTION_OF_KIND else _of_retrieval
        at_fault: list[str] = []
        matched = Matched([], told.left_out)
        for outcomes in read(part, corpus, at_fault, matched):
            if outcomes.protocol.id in found:
                at_fault.append(f"rows of several kinds are about {outcomes.protocol.id!r}; keep one kind")
            found[outcomes.protocol.id] = outcomes
        faults += [f"{part.named}: {fault}" if part.named else fault for fault in at_fault]
        told.how.extend(f"{part.named}: {sentence}" if part.named else sentence for sentence in matched.how)
    if faults:
        raise RequestError(faults)
    return FoundRows(list(found.values()), told.left_out, told.how)


def _parts(rows: Sequence[Row], protocols: Collection[str], corpus: Corpus, faults: list[str]) -> list[_TablePart]:
    kinds = [kind_of(row) for row in rows]
    without = [row for row, kind in zip(rows, kinds, strict=True) if kind is None]
    if without:
        wanted = "; ".join(", ".join(names) for names in dict.fromkeys(OUTCOME_KINDS.values()))
        columns = ", ".join(name for name in without[0] if name != NUMBER) or "none of the known columns"
        faults.append(
            f"{len(without)} of {len(rows)} rows say no outcome, first row {without[0][NUMBER]} (it has {columns}); "
            f"expected one of: {wanted}. See docs/outcomes.md"
        )
        return []
    parts: dict[tuple[str, str], list[Row]] = {}
    for row, kind in zip(rows, kinds, strict=True):
        for protocol in [str(row["protocol"])] if "protocol" in row else list(protocols) or [""]:
            if "protocol" not in row or not protocols or protocol in protocols:
                parts.setdefault((kind or "", protocol), []).append(row)
    if not parts:
        faults.append(f"no row is about {', '.join(protocols)}")
    named = []
    for (kind, protocol), chosen in parts.items():
        ids = {name: [row[name] for row in chosen if name in row] for name in key_columns(chosen, "")}
        known = protocol or kind in _DIRECTION_OF_KIND
        named.append(_TablePart(kind, protocol if known else headline_of(ids, corpus), chosen))
    return named


def _of_retrieval(part: _TablePart, corpus: Corpus, faults: list[str], matched: Matched) -> list[Outcomes]:
    task = build_task(corpus, *select_protocols(corpus, [part.named]))
    if not isinstance(task, RetrievalTask):
        says = ", ".join(OUTCOME_KINDS[part.kind])
        faults.append(f"{says}: only of retrieval protocols, {part.named} is of {task.protocol.direction}")
        return []
    items = queries_of(task, corpus)
    if part.kind == "hits":
        return _of_hits(part.rows, task, items, faults, matched)
    positions = _all_once(part.rows, items, faults, matched)
    columns = [ranks(part.rows, column, faults) for column in OUTCOME_KINDS[part.kind]]
    if faults:
        return []
    low, high = np.ones((2, len(items.ids)), dtype=np.int32)
    low[positions], high[positions] = columns[0], columns[-1]
    wrong = np.flatnonzero((low > high) | (high > last_ranks(task)))
    if wrong.size:
        at = int(wrong[0])
        given = f"{low[at]}" if len(columns) == 1 else f"{low[at]} to {high[at]}"
        faults.append(
            f"{wrong.size} queries have impossible ranks, first {items.ids[at]!r}: expected a rank from 1 to "
            f"{last_ranks(task)[at]}, got {given}"
        )
        return []
    return [outcomes_of_ranges(task, low, high)]


def headline_of(ids: Mapping[str, Sequence[object]], corpus: Corpus) -> str:
    """The headline protocol of which these are queries: captions that search images, or images that search captions.

    Args:
        ids: Column of ids -> its cells; ids in ``caption_id`` are not those of images, nor the other way round.

    Raises:
        RequestError: They are both, neither or missing.
    """
    judged = pc.any(pc.equal(corpus.relevance["ground_truth"], pa.scalar(JUDGED))).as_py()
    headlines = {"captions": f"t2i/{JUDGED}" if judged else MAIN[0], "images": MAIN[1]}
    of_kind = {kind: {each: [0] for each in texts(getattr(corpus, kind)["id"])} for kind in headlines}
    foreign = {name: kind for kind, other in (("captions", "images"), ("images", "captions")) for name in KEYS[other]}
    found: dict[str, tuple[bool, int]] = dict.fromkeys(headlines, (False, 0))
    for name, cells in ids.items():
        once = len(set(map(str, cells))) == len(cells)  # of two columns of ids, queries are in the one without repeats
        for kind in headlines:
            n_known = 0 if foreign.get(name) == kind else sum(map(bool, known_ids(cells, of_kind[kind])))
            found[kind] = max(found[kind], (once and n_known == len(cells) > 0, n_known))
    (once, n_other), (only_once, n_known) = sorted(found.values())
    if n_known > 2 * n_other or only_once > once:  # numbers of captions may be those of other images by chance
        return headlines[max(found, key=lambda kind: found[kind])]
    both = "of captions and of images" if any(found["captions"]) else "of neither captions nor images"
    names = ", ".join(f"`{name}`" for name in ids)
    what = "the queries" if names in ("`query`", "`query_id`") else f"the cells of {names}"
    first = next((cells[0] for cells in ids.values() if cells), None)
    reason = "the rows have no column `query`" if first is None else f"{what} are ids {both}, first {first!r}"
    raise RequestError(f"corpus {corpus.name!r}: {reason}; name the protocol with --protocol or a column `protocol`")


def _of_hits(rows: list[Row], task: RetrievalTask, items: Items, faults: list[str], matched: Matched) -> list[Outcomes]:
    """Hits among the first k; every k is about all queries."""
    cutoffs = ranks(rows, "k", faults)
    correct = flags(rows, "correct", faults)
    hits: dict[int, NDArray[np.int64]] = {}
    for cutoff in np.unique(cutoffs).tolist():
        chosen = np.flatnonzero(cutoffs == cutoff)
        positions = _all_once([rows[at] for at in chosen], items, faults, matched)
        hits[cutoff] = positions[correct[chosen]]
    return [] if faults else [outcomes_of_hits(hits, task)]


def _all_once(rows: Sequence[Row], items: Items, faults: list[str], matched: Matched) -> NDArray[np.int64]:
    """The query of every row; a fault unless every query has one row."""
    before = len(faults)
    positions = match(rows, items, faults, matched)
    if len(faults) == before and (fault := missing(positions, np.arange(len(items.ids)), items)):
        faults.append(fault)
    return positions


def _of_choices(part: _TablePart, corpus: Corpus, faults: list[str], matched: Matched) -> list[Outcomes]:
    direction = _DIRECTION_OF_KIND[part.kind]
    items = compositional_items(corpus, direction)
    if not items.ids:
        columns = ", ".join(OUTCOME_KINDS[part.kind])
        faults.append(f"the rows judge {direction} (columns {columns}), corpus {corpus.name!r} has none")
        return []
    of_rows = match(part.rows, items, faults, matched)
    judgements = _judgements(part, faults)
    if faults:
        return []
    inside = of_rows >= 0
    positions = of_rows[inside]
    by_item = np.zeros((len(items.ids), judgements.shape[1]), dtype=bool)
    by_item[positions] = judgements[inside]
    # all of the direction but a caption against all its negatives, which is another choice
    every = [p for p in protocols_of(corpus) if p.direction == direction and p.name != ALL_NEGATIVES]
    tasks = []
    for protocol in select_protocols(corpus, [part.named]) if part.named else every:
        task = build_task(corpus, protocol)
        if not isinstance(task, ChoiceTask) or protocol.direction != direction:
            faults.append(f"{', '.join(OUTCOME_KINDS[part.kind])}: only of protocols of {direction}")
            return []
        tasks.append(task)
    gaps = {task.protocol.id: missing(positions, task.queries.astype(np.int64), items) for task in tasks}
    complete = [task for task in tasks if gaps[task.protocol.id] is None]
    # rows about protocols of which other queries have no row; under a named protocol, other rows do not matter
    stray = positions if part.named and not complete else np.empty(0, dtype=np.int64)
    if not part.named:
        stray = np.setdiff1d(positions, [query for task in complete for query in task.queries])
    if stray.size:
        partly = [task for task in tasks if part.named or np.isin(task.queries, stray).any()]
        smallest = min(partly, key=lambda task: len(task.queries))
        faults.append(f"{smallest.protocol.id}: {gaps[smallest.protocol.id]}")
        return []
    return [_judged(task, by_item[task.queries]) for task in complete]


def _judgements(part: _TablePart, faults: list[str]) -> NDArray[np.bool_]:
    """Shape ``(n_rows, 1)`` for pairs; ``(n_rows, 4)`` for halves, ``(n_rows, 2)`` for text and image."""
    judged = np.stack([flags(part.rows, column, faults) for column in OUTCOME_KINDS[part.kind]], axis=1)
    if part.kind == "pairs":
        return judged
    text, image = text_and_image(judged)
    for column, follows in (("text", text), ("image", image), ("group", text & image)):
        told = [at for at, row in enumerate(part.rows) if column in row]
        if told and (part.kind == "halves" or column == "group"):
            given = flags([part.rows[at] for at in told], column, faults)
            wrong = np.flatnonzero(given != follows[told])
            if wrong.size:
                row = part.rows[told[int(wrong[0])]]
                parts = ", ".join(f"{name} {row[name]}" for name in OUTCOME_KINDS[part.kind])
                faults.append(
                    f"{wrong.size} rows contradict themselves, first row {row[NUMBER]}: {column} is {row[column]}, but "
                    f"{parts}"
                )
    return judged


def _judged(task: ChoiceTask, judged: NDArray[np.bool_]) -> Outcomes:
    """Outcomes of sets without scores, by how many comparisons each may have lost.

    Every half of a quadruple that is wrong is a lost comparison; of a wrong pair of halves, one or both are.
    """
    fewest = (~judged).sum(axis=1, dtype=np.int32)
    most = 2 * fewest if judged.shape[1] == 2 else fewest
    n_scores = task.captions.shape[1] * task.images.shape[1]
    unscored = choice_outcomes(task, np.zeros((len(task.queries), n_scores), dtype=np.float32))
    return replace(
        unscored,
        rank_best=1 + fewest,
        rank_worst=1 + most,
        best_score=np.full(len(fewest), np.nan, dtype=np.float32),
        relevant_rank_best=np.repeat(1 + fewest, unscored.n_relevant),
        relevant_rank_worst=np.repeat(1 + most, unscored.n_relevant),
        scores=None,
        judgements=judged if task.protocol.direction == "quadruples" else None,
    )


HitLists: TypeAlias = Mapping[int, ArrayLike]
"""Cutoff k -> positions of the queries, in the order of the protocol, with a relevant item among the first k."""

PROTOCOL_OF = dict(zip(("ir", "tr"), MAIN, strict=True))
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
        except (EOFError, OSError, ValueError) as error:
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

    Raises:
        RequestError: Lists that contradict each other or the task; all faults together.
    """
    n_queries, worst = len(task.queries), last_ranks(task)
    low, high = np.ones(n_queries, dtype=np.int32), worst.copy()
    faults = [] if hits else ["no hit list: expected at least the list of the queries that hit at 1"]
    smaller, before = 0, np.zeros(n_queries, dtype=bool)
    for cutoff in sorted(hits):
        positions = np.asarray(hits[cutoff])
        if cutoff < 1 or positions.ndim != 1 or not (np.issubdtype(positions.dtype, np.integer) or not positions.size):
            faults.append(
                f"hits at {cutoff}: expected a one-dimensional array of integers, "
                f"got {positions.dtype} of shape {positions.shape}"
            )
            continue
        positions = positions.astype(np.int64)
        hit, inside = np.zeros(n_queries, dtype=bool), (positions >= 0) & (positions < n_queries)
        hit[positions[inside]] = True
        if not inside.all():
            faults.append(
                f"hits at {cutoff}: position {int(positions[~inside][0])} is outside 0..{n_queries - 1}, the positions "
                f"of the {n_queries} queries; the lists may be of another direction or corpus"
            )
        if hit.sum() != inside.sum():
            faults.append(f"hits at {cutoff}: {int(inside.sum() - hit.sum())} positions are listed more than once")
        if impossible := int((~hit & (worst <= cutoff)).sum()):
            faults.append(
                f"hits at {cutoff}: {impossible} queries are missing, but every order of so small a gallery hits"
            )
        if len(lost := np.flatnonzero(before & ~hit)):
            faults.append(f"{len(lost)} queries hit at {smaller} but not at {cutoff}, first query {int(lost[0])}")
        low[~hit] = cutoff + 1  # a miss raises the lower end, the first hit is the upper one
        high[hit & ~before] = np.minimum(cutoff, worst)[hit & ~before]
        smaller, before = cutoff, hit
    if faults:
        raise RequestError(faults)
    return outcomes_of_ranges(task, low, high)


def last_ranks(task: RetrievalTask) -> NDArray[np.int32]:
    """The last rank that the first relevant item can have, behind every irrelevant one; shape ``(n_queries,)``."""
    return task.n_gallery - task.n_relevant.astype(np.int32) + 1


def outcomes_of_ranges(task: RetrievalTask, low: NDArray[np.int32], high: NDArray[np.int32]) -> Outcomes:
    """The outcomes of queries whose first relevant item has a rank from ``low`` to ``high``, shape ``(n_queries,)``.

    Where the two are equal the rank is known. Nothing is known of further relevant items but that they follow.
    """
    n_queries, n_relevant = len(task.queries), task.n_relevant.astype(np.int32)
    order = positions_within(n_relevant).astype(np.int32)
    relevant_rank_worst = np.repeat(last_ranks(task), n_relevant) + order
    relevant_rank_worst[task.offsets[:-1]] = high
    n_ranked = (low == high).astype(np.int32)
    return Outcomes(
        **query_columns(task),
        rank_best=low,
        rank_worst=high,
        n_tied_relevant=np.ones(n_queries, dtype=np.int32),
        best_score=np.full(n_queries, np.nan, dtype=np.float32),
        relevant_rank_best=np.repeat(low, n_relevant) + order,
        relevant_rank_worst=relevant_rank_worst,
        n_ranked=None if (n_ranked == n_relevant).all() else n_ranked,
    )


if __name__ == "__main__":
    json.dump(json_schema(), sys.stdout, indent=1)
    sys.stdout.write("\n")
