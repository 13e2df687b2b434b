"""Outcomes from tables of ranks, hits or judgements (``docs/outcomes.md``), and from lists of queries that hit.

A row is about a query by its id, by its texts, or by the order of the corpus; faults name the row and the
expected content. ``docs/outcomes.schema.json`` says what each column holds.

For each query, hits give only whether a relevant item is among the first 1, 5 or 10. Its rank is known as a range (1,
2-5, 6-10, beyond 10), which is stored: ``rank_best`` and ``rank_worst`` are the ends of the range. R@1, R@5 and R@10
are exact, because no range crosses a listed cutoff. Other metrics (MRR, median rank, nDCG) are undetermined and left
out (``tasks.metrics.metrics_of``); ``best_score`` is NaN, and there are no result lists.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from capim.store.errors import RequestError, is_number, noted
from capim.store.files import reading
from capim.store.forms import FORMS, NO_COLUMNS, OUTCOMES, Columns, fold, renamed
from capim.store.schema import JUDGED, texts
from capim.store.sets.columns_read import NO_OPTION, SPLITS, columns_of_match, telling
from capim.store.sets.matching import (
    KEYS,
    QUERY,
    USUAL,
    Items,
    by_id,
    key_columns,
    key_of,
    left_out_of,
    match,
    names_of,
    plain_name,
    plain_text,
)
from capim.store.types import Corpus, Modality
from capim.store.vectors import positions_within
from capim.tasks.metrics.compositional import text_and_image
from capim.tasks.protocols import ALL_NEGATIVES, JUDGED_QUERIES, MAIN
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import build_task, build_tasks, protocols_of, select_protocols
from capim.tasks.ranking.ranker import choice_outcomes
from capim.tasks.ranking.tasks import ChoiceTask, RetrievalTask, query_columns

_FORM = FORMS["outcomes"]
_ROLES = _FORM._replace(may=dict.fromkeys(dict.fromkeys((*_FORM.roles, *chain.from_iterable(OUTCOMES.values()))), ""))
_INDEX = ("", "unnamed0", "indexlevel0")  # pandas' index, in CSV and in Parquet
_OURS = {fold(name): role for role in (*_FORM.called, *_FORM.roles) for name in _FORM.names(role)} | {
    fold(name): name for names in OUTCOMES.values() for name in names
}
CELLS = ("c0_i0", "c0_i1", "c1_i0", "c1_i1")
"""Columns with the scores of a quadruple, as in Winoground's notebook; its files have a row for each of them."""
_CELL = re.compile(rf"(.+)_({'|'.join(CELLS)})")

Row: TypeAlias = Mapping[str, Any]
"""A row of a file under our names of columns; ``_row`` is its place: ``3``, or ``answers.json:3`` of several files."""

NUMBER = "_row"
_FLAGS = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}
_SHOWN = 5


def named_rows(rows: Iterable[Mapping[str, Any]], file: str = "", columns: Columns = NO_COLUMNS) -> list[Row]:
    """Return rows with our names of columns, without empty cells, numbered from 1.

    Args:
        rows: Those of a file.
        file: Its name, where there are several.
        columns: Role -> column, as the user names them.
    """
    named: list[Row] = []
    every = [*_quadruples(rows)]
    names = [*dict.fromkeys(chain.from_iterable(every))]
    ours_of = {name: our_name(role) for name, role in renamed(names, columns, _ROLES, file or "the file").items()}
    for number, row in enumerate(every, start=1):
        place, ours = f"{file}:{number}" if file else f"{number}", dict[str, Any]()
        for name, cell in row.items():
            if cell is None or name not in ours_of:
                continue
            if ours.setdefault(ours_of[name], cell) != cell and ours_of[name] != "index":
                same = ", ".join(each for each in row if ours_of.get(each) == ours_of[name])
                raise RequestError(f"row {place}: columns {same} mean {ours_of[name]} and differ; keep one of them")
        if all(is_number(str(ours.get(cell))) for cell in CELLS):
            c0i0, c0i1, c1i0, c1i1 = (float(ours.pop(cell)) for cell in CELLS)
            ours |= dict(zip(OUTCOMES["halves"], (c0i0 > c1i0, c1i1 > c0i1, c0i0 > c0i1, c1i1 > c1i0), strict=True))
        if {"type", "subtype"} <= ours.keys():  # BiVLC's results on SugarCrepe
            ours.setdefault("category", f"{ours['type']}_{ours['subtype']}")
        named.append({NUMBER: place, **ours})
    return named


def _quadruples(rows: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield rows; those with one of Winoground's scores each (``label`` 7_c0_i1) become one row of a quadruple."""
    scores: dict[str, dict[str, Any]] = {}
    for row in rows:
        cell = is_cell(row.get("label")) if "score" in row else None
        if cell is None:
            yield row
        else:
            of_example = scores.setdefault(cell[1], {"id": cell[1]})
            if of_example.setdefault(cell[2], row["score"]) != row["score"]:
                raise RequestError(
                    f"{row['label']!r} has two scores, {of_example[cell[2]]} and {row['score']}; keep one"
                )
    yield from scores.values()


def is_cell(label: object) -> re.Match[str] | None:
    """Return the example and the cell of a label of Winoground's files of scores; None for any other."""
    return _CELL.fullmatch(label) if isinstance(label, str) else None


@cache
def our_name(name: str) -> str:
    """Return our name of a column; a column of ids may be written in any way: ``Image-ID``."""
    plain = fold(name)
    return "index" if plain in _INDEX else _OURS.get(plain) or plain_name(name)


def kind_of(row: Row) -> str | None:
    """Return the first kind of :data:`OUTCOMES` with all of its columns in the row; None if there is none."""
    return next((kind for kind, names in OUTCOMES.items() if all(name in row for name in names)), None)


def ranks(rows: Sequence[Row], column: str, faults: list[str]) -> NDArray[np.int32]:
    """Return whole numbers from 1, shape ``(n_rows,)``; 1 in rows at fault, which are added to ``faults``."""
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
    """Return truth values, shape ``(n_rows,)``; False in rows at fault, which are added to ``faults``."""
    values = [_FLAGS.get(str(row[column]).strip().lower()) for row in rows]
    wrong = [row for row, value in zip(rows, values, strict=True) if value is None]
    _complain(wrong, column, "true, false, 1 or 0", faults)
    return np.array([bool(value) for value in values], dtype=bool)


def _complain(wrong: Sequence[Row], column: str, expected: str, faults: list[str]) -> None:
    shown = ", ".join(f"{row[column]!r} in row {row[NUMBER]}" for row in wrong[:_SHOWN])
    more = f" and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
    if wrong:
        faults.append(f"{column}: expected {expected}, got {shown}{more}")


@dataclass(frozen=True, kw_only=True)
class Sets(Items):
    """Pairs or quadruples, which rows may also be about by their two texts.

    Attributes:
        texts: Caption and negative caption (quadruples: captions 0 and 1) of each.
        categories: Of pairs.
    """

    texts: Sequence[tuple[str, str]]
    categories: Sequence[str] | None = None


class TablePart(NamedTuple):
    """Rows of one kind about one protocol, and remarks on them.

    Attributes:
        named: The protocol; "" where the kind decides: pairs and quadruples.
        how: Sentence on how rows were matched -> the columns by which they were.
        left_out: Sentences on rows that were left out.
    """

    kind: str
    named: str
    rows: list[Row]
    by_position: bool
    how: dict[str, str]
    left_out: list[str]
    faults: list[str]

    @property
    def columns(self) -> dict[str, list[Any]]:
        """Return the cells of the columns that may hold ids: those that do not say the outcome."""
        kinds = ("halves", "scores") if _DIRECTION_OF_KIND.get(self.kind) == "quadruples" else (self.kind,)
        says = {"protocol", "category", "group", *(name for kind in kinds for name in OUTCOMES[kind])}
        names = dict.fromkeys(name for row in self.rows for name in row if name != NUMBER and name not in says)
        return {name: [row.get(name) for row in self.rows] for name in names}


def queries_of(task: RetrievalTask, corpus: Corpus) -> Items:
    """Return the queries of a task: captions, which may also be named by their text, image or annotation; or images."""
    modality: Modality = "caption" if task.protocol.direction == "t2i" else "image"

    def linked() -> dict[str, Mapping[str, Sequence[int]]]:
        captions = corpus.captions
        if modality == "caption":
            of_queries = captions.take(task.query_ords)
            own = {
                "images": by_id(of_queries["image_id"].to_pylist()),
                "annotations": by_id(of_queries["annotation_id"].to_pylist()),
            }
        else:
            of_image = by_id(texts(corpus.images["id"].take(task.query_ords)))
            described = zip(texts(captions["id"]), captions["image_id"].to_pylist(), strict=True)
            own = {"captions": {caption: of_image[image] for caption, image in described if image in of_image}}
        return {**own, **names_of(corpus, modality, task.query_ords)}

    ids, left_out = task.query_ids.tolist(), left_out_of(corpus, modality)
    return Items(
        kind="queries", of="captions" if modality == "caption" else "images", ids=ids, linked=linked, left_out=left_out
    )


def compositional_items(corpus: Corpus, direction: Literal["pairs", "quadruples"], asked: NDArray[np.int64]) -> Sets:
    """Return the pairs or quadruples of a corpus in these rows, with their two texts.

    SugarCrepe++'s items have two right captions, and a query is
    the first of both, so that items count as its users count them.
    """
    pairs = direction == "pairs"
    table = (corpus.pairs if pairs else corpus.quadruples).take(asked)
    columns = ("caption_id", "negative_id") if pairs else ("caption_0", "caption_1")
    text_of = dict(zip(corpus.captions["id"].to_pylist(), corpus.captions["text"].to_pylist(), strict=True))
    first, second = ([plain_text(text_of[name] or "") for name in table[column].to_pylist()] for column in columns)
    return Sets(
        kind=direction,
        of=direction,
        ids=texts(table["id"]),
        texts=list(zip(first, second, strict=True)),
        categories=texts(table["category"]) if pairs else None,
        linked=lambda: {
            "images": by_id(texts(table["image_id" if pairs else "image_0"])),
            "captions": by_id(texts(table[columns[0]])),
            "texts": by_id(first),
        },
    )


def matched_rows(part: TablePart, items: Items) -> NDArray[np.int64]:
    """Return the position of the item of every row, -1 for none, by the first of these that the rows have.

    Ids that are all known (texts next to them have to agree); the two texts; any column of ids; the order of the corpus
    (:mod:`capim.store.sets.matching`). If several items have the same texts, the row is about the one with its number
    (``swap_obj/62`` for 62) or its category, else the first that no row is about yet. A row with texts that are not in
    the corpus is left out, with a sentence: publications come from earlier versions of a data set.
    """
    rows, columns = part.rows, part.columns
    if isinstance(items, Sets) and all("caption" in row and "negative_caption" in row for row in rows):
        key = key_of(columns, items)
        if key is None or key.of != items.of or key.n_known < len(rows):
            return _by_texts(part, items)
        if fault := _other_texts(rows, [places[0] for places in key.places], items):
            if key.column not in QUERY:  # a number of the row, perhaps
                return _by_texts(part, items)
            part.faults.append(fault)
    positions, numbers = np.full(len(rows), -1), [row[NUMBER] for row in rows]
    with noted(part.faults):
        found = match(columns, len(rows), items, by_position=part.by_position, rows=numbers)
        part.how[found.how] = found.by
        positions[:] = found.positions
    return positions


def missing(positions: NDArray[np.int64], wanted: NDArray[np.int64], items: Items) -> str | None:
    """Return the fault that not every wanted item has a row; None if all have."""
    absent = np.setdiff1d(wanted, positions)
    if not absent.size:
        return None
    return f"{absent.size} of {len(wanted)} {items.kind} have no row, first {items.ids[int(absent[0])]!r}"


def _other_texts(rows: Sequence[Row], positions: Sequence[int], items: Sets) -> str | None:
    """Return the fault that a row does not have the texts of its item; None if all have."""
    for row, position in zip(rows, positions, strict=True):
        if _texts(row) != items.texts[position]:
            return (
                f"row {row[NUMBER]}: {items.ids[position]!r} has the texts {items.texts[position]} in the corpus, got "
                f"{_texts(row)}; the file may be about another version of the corpus"
            )
    return None


def _texts(row: Row) -> tuple[str, str]:
    return plain_text(row["caption"]), plain_text(row["negative_caption"])


def _by_texts(part: TablePart, items: Sets) -> NDArray[np.int64]:
    rows = part.rows
    places: dict[tuple[str, str], list[int]] = {}
    for position, both in enumerate(items.texts):
        places.setdefault(both, []).append(position)
    positions = np.array([_next(places.get(_texts(row), []), row, items) for row in rows], dtype=np.int64)
    unknown = np.flatnonzero(positions < 0)
    if unknown.size == len(rows):
        part.faults.append(f"none of the {len(rows)} rows has the texts of one of the {len(items.ids)} {items.kind}")
    part.how[f"{len(rows) - unknown.size:,} of {len(rows):,} rows matched by their texts"] = "texts"
    if unknown.size:
        row = rows[int(unknown[0])]
        part.left_out.append(
            f"{unknown.size} of {len(rows)} rows left out because their texts are not in the corpus, first row "
            f"{row[NUMBER]}: {plain_text(row['caption'])!r}"
        )
    return positions


def _next(left: list[int], row: Row, items: Sets) -> int:
    """Return the place that fits the row best of those that no row has taken, which is taken; -1 if there is none."""
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
    """Outcomes found by an import.

    Attributes:
        outcomes: One of each protocol.
        left_out: Sentences about rows that were left out.
        how: Sentences about how rows were matched with queries.
        matched: Protocol id -> key of the match (``store.sets.matching.Match.by``); "" where none is needed.
    """

    outcomes: list[Outcomes]
    left_out: list[str]
    how: Sequence[str] = ()
    matched: Mapping[str, str] = MappingProxyType({})


def outcomes_of_rows(
    rows: Sequence[Row], corpus: Corpus, *, protocols: Collection[str] = (), by_position: bool = False
) -> FoundRows:
    """Return the outcomes that rows determine, in the order of the corpus.

    Args:
        rows: From :func:`tasks.results.imported.tables.named_rows`.
        protocols: For rows without a protocol: theirs. For rows with one: only those of these protocols.
        by_position: The user says that rows follow the corpus, whatever their columns hold.

    Raises:
        RequestError: Rows that have no kind, contradict each other, or do not cover the queries; all faults together.
    """
    faults: list[str] = []
    how, left_out, by, found = list[str](), list[str](), dict[str, str](), dict[str, Outcomes]()
    own, names = {"protocol"}, dict.fromkeys(name for row in rows for name in row if name != NUMBER)
    for part in _parts(rows, protocols, corpus, faults, by_position=by_position):
        read = _of_choices if part.kind in _DIRECTION_OF_KIND else _of_retrieval
        for outcomes in read(part, corpus):
            by[outcomes.protocol.id] = ", ".join(dict.fromkeys(part.how.values()))
            if outcomes.protocol.id in found:
                part.faults.append(f"rows of several kinds are about {outcomes.protocol.id!r}; keep one kind")
            found[outcomes.protocol.id] = outcomes
        own |= {*OUTCOMES[part.kind], *chain.from_iterable(map(columns_of_match, part.how.values()))}
        start = f"{part.named}: " if part.named else ""
        faults += [start + fault for fault in part.faults]
        how += [start + sentence for sentence in part.how]
        left_out += part.left_out
    if faults:
        raise RequestError(faults)
    known = [name for name in names if name in own]
    deque(telling(f"outcomes of {corpus.name}", known, names, rows, {SPLITS: NO_OPTION}), 0)
    return FoundRows(list(found.values()), left_out, how, by)


def _parts(
    rows: Sequence[Row], protocols: Collection[str], corpus: Corpus, faults: list[str], *, by_position: bool
) -> list[TablePart]:
    kinds = [kind_of(row) for row in rows]
    without = [row for row, kind in zip(rows, kinds, strict=True) if kind is None]
    if without:
        wanted = "; ".join(", ".join(names) for names in dict.fromkeys(OUTCOMES.values()))
        columns = ", ".join(name for name in without[0] if name != NUMBER) or "none of the known columns"
        faults.append(
            f"{len(without)} of {len(rows)} rows say no outcome, first row {without[0][NUMBER]} (it has {columns}); "
            f"expected one of: {wanted}. See docs/outcomes.md; a run of scores: --run FILE"
        )
        return []
    chosen: dict[tuple[str, str], list[Row]] = {}
    for row, kind in zip(rows, kinds, strict=True):
        own = [each for each in [str(row.get("protocol"))] if not protocols or each in protocols]
        for protocol in own if "protocol" in row else list(protocols) or [""]:
            chosen.setdefault((kind or "", protocol), []).append(row)
    if not chosen:
        faults.append(f"no row is about {', '.join(protocols)}")
    parts = [TablePart(*about, of_part, by_position, {}, [], []) for about, of_part in chosen.items()]
    return [
        part
        if part.named or part.kind in _DIRECTION_OF_KIND
        else part._replace(named=headline_of(part.columns, corpus))
        for part in parts
    ]


def _of_retrieval(part: TablePart, corpus: Corpus) -> list[Outcomes]:
    faults, one = part.faults, select_protocols(corpus, [part.named])
    if len(one) > 1:
        faults.append(f"it means {len(one)} protocols, {', '.join(each.id for each in one)}; name one")
        return []
    task = build_task(corpus, one[0])
    if not isinstance(task, RetrievalTask):
        says = ", ".join(OUTCOMES[part.kind])
        faults.append(f"{says}: only of retrieval protocols, {part.named} is of {task.protocol.direction}")
        return []
    items = queries_of(task, corpus)
    if part.kind == "hits":
        return _of_hits(part, task, items)
    positions = _all_once(part, items)
    columns = [ranks(part.rows, column, faults) for column in OUTCOMES[part.kind]]
    if faults:
        return []
    low, high = np.ones((2, len(items.ids)), dtype=np.int32)
    inside = positions >= 0
    low[positions[inside]], high[positions[inside]] = columns[0][inside], columns[-1][inside]
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
    """Return the headline protocol with these queries: captions that search images, or images that search captions.

    Args:
        ids: Column of ids -> its cells; ids in ``caption_id`` are not those of images, nor the other way round.

    Raises:
        RequestError: They are both, neither or missing.
    """
    judged = pc.any(pc.equal(corpus.relevance["ground_truth"], pa.scalar(JUDGED))).as_py()
    headlines: dict[Modality, str] = {"caption": JUDGED_QUERIES if judged else MAIN[0], "image": MAIN[1]}
    found: dict[Modality, tuple[bool, int]] = {}
    columns = {name: cells for name, cells in ids.items() if name in USUAL} or ids
    for side in headlines:
        foreign = KEYS["images" if side == "caption" else "captions"]
        own = {name: cells for name, cells in columns.items() if name not in foreign}
        key = key_of(own, Items.of_corpus(corpus, side))
        cells = [str(cell) for cell in own[key.column] if cell is not None] if key is not None else []
        n_known = 0 if key is None else key.n_known
        found[side] = n_known == len(cells) == len({*cells}) > 0, n_known  # queries are in a column without repeats
    (once, n_other), (only_once, n_known) = sorted(found.values())
    if n_known > 2 * n_other or only_once > once:  # numbers of captions may be those of other images by chance
        return headlines[max(found, key=found.__getitem__)]
    both = "of captions and of images" if any(found["caption"]) else "of neither captions nor images"
    names = ", ".join(f"`{name}`" for name in key_columns(columns, "") or columns)
    what = "the queries" if names in ("`query`", "`query_id`") else f"the cells of {names}"
    first = next((cell for cells in columns.values() for cell in cells if cell is not None), None)
    reason = "the rows have no column `query`" if first is None else f"{what} are ids {both}, first {first!r}"
    raise RequestError(f"corpus {corpus.name!r}: {reason}; name the protocol with --protocol or a column `protocol`")


def _of_hits(part: TablePart, task: RetrievalTask, items: Items) -> list[Outcomes]:
    """Return the outcomes of hits among the first k; every k is about all queries."""
    faults = part.faults
    cutoffs, correct = ranks(part.rows, "k", faults), flags(part.rows, "correct", faults)
    hits: dict[int, NDArray[np.int64]] = {}
    for cutoff in np.unique(cutoffs).tolist():
        chosen = np.flatnonzero(cutoffs == cutoff)
        positions = _all_once(part._replace(rows=[part.rows[at] for at in chosen]), items)
        hits[cutoff] = positions[correct[chosen] & (positions >= 0)]
    return [] if faults else [outcomes_of_hits(hits, task)]


def _all_once(part: TablePart, items: Items) -> NDArray[np.int64]:
    """Return the query of every row; a fault unless every query has one row."""
    faults = part.faults
    before = len(faults)
    positions = matched_rows(part, items)
    if len(faults) == before and (fault := missing(positions, np.arange(len(items.ids)), items)):
        faults.append(fault)
    return positions


def _of_choices(part: TablePart, corpus: Corpus) -> list[Outcomes]:
    direction, says, faults = _DIRECTION_OF_KIND[part.kind], ", ".join(OUTCOMES[part.kind]), part.faults
    # all of the direction but a caption against all its negatives, which is another choice
    every = [p for p in protocols_of(corpus) if p.direction == direction and p.name != ALL_NEGATIVES]
    wanted = select_protocols(corpus, [part.named]) if part.named else every
    if not every:
        faults.append(f"the rows judge {direction} (columns {says}), corpus {corpus.name!r} has none")
    elif any(protocol.direction != direction for protocol in wanted):
        faults.append(f"{says}: only of protocols of {direction}")
    if faults:
        return []
    tasks = {task.protocol: cast("ChoiceTask", task) for task in build_tasks(corpus, dict.fromkeys([*every, *wanted]))}
    asked = np.unique(np.concatenate([task.query_ords for task in tasks.values()])).astype(np.int64)
    items = compositional_items(corpus, direction, asked)
    of_rows = matched_rows(part, items)
    judgements = _judgements(part)
    if faults:
        return []
    inside = of_rows >= 0
    positions = of_rows[inside]
    by_item = np.zeros((len(items.ids), judgements.shape[1]), dtype=bool)
    by_item[positions] = judgements[inside]
    queries = {protocol: np.searchsorted(asked, tasks[protocol].query_ords) for protocol in wanted}
    gaps = {protocol: missing(positions, places, items) for protocol, places in queries.items()}
    complete = [protocol for protocol in wanted if gaps[protocol] is None]
    # rows about protocols with queries that have no row; under a named protocol, other rows do not matter
    stray = np.setdiff1d(positions, [place for protocol in complete for place in queries[protocol]])
    if stray.size and not (part.named and complete):
        partly = [protocol for protocol in wanted if part.named or np.isin(queries[protocol], stray).any()]
        smallest = min(partly, key=lambda protocol: len(queries[protocol]))
        faults.append(f"{smallest.id}: {gaps[smallest]}")
        return []
    return [_judged(tasks[protocol], by_item[queries[protocol]]) for protocol in complete]


def _judgements(part: TablePart) -> NDArray[np.bool_]:
    """Return the answers, shape ``(n_rows, n)``: ``n`` is 1 for pairs, 4 for halves, 2 for text and image."""
    faults = part.faults
    judged = np.stack([flags(part.rows, column, faults) for column in OUTCOMES[part.kind]], axis=1)
    if part.kind == "pairs":
        return judged
    text, image = text_and_image(judged)
    for column, follows in (("text", text), ("image", image), ("group", text & image)):
        having = [at for at, row in enumerate(part.rows) if column in row]
        if having and (part.kind == "halves" or column == "group"):
            given = flags([part.rows[at] for at in having], column, faults)
            wrong = np.flatnonzero(given != follows[having])
            if wrong.size:
                row = part.rows[having[int(wrong[0])]]
                parts = ", ".join(f"{name} {row[name]}" for name in OUTCOMES[part.kind])
                faults.append(
                    f"{wrong.size} rows contradict themselves, first row {row[NUMBER]}: {column} is {row[column]}, but "
                    f"{parts}"
                )
    return judged


def _judged(task: ChoiceTask, judged: NDArray[np.bool_]) -> Outcomes:
    """Return outcomes of sets without scores, by how many comparisons each may have lost.

    Every half of a quadruple that is wrong is a lost comparison; of a wrong pair of halves, one or both are.
    """
    fewest = (~judged).sum(axis=1, dtype=np.int32)
    most = 2 * fewest if judged.shape[1] == 2 else fewest
    n_scores = task.captions.shape[1] * task.images.shape[1]
    unscored = choice_outcomes(task, np.zeros((len(task.query_ords), n_scores), dtype=np.float32))
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
    """Return all hit lists of a folder: model -> protocol id -> cutoff -> positions.

    Files are named ``MODEL_ir1_rank_index.npy`` (text to image) or ``MODEL_tr1_rank_index.npy`` (image to text),
    with any cutoff; each holds a one-dimensional array of integers.

    Raises:
        RequestError: The folder does not exist, has no such file, or one that cannot be read; all faults together.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise RequestError(f"{folder} is not a folder; name the folder of the *_rank_index.npy files")
    models: dict[str, dict[str, dict[int, NDArray[np.int64]]]] = {}
    faults: list[str] = []
    for path in sorted(folder.iterdir()):
        name = _FILE.fullmatch(path.name)
        if name is None:
            continue
        with noted(faults), reading(path):
            positions = np.load(path, allow_pickle=False)
            lists = models.setdefault(name["model"], {}).setdefault(PROTOCOL_OF[name["task"]], {})
            lists[int(name["cutoff"])] = positions
    if not models and not faults:
        faults.append(f"{folder} has no file like MODEL_ir1_rank_index.npy or MODEL_tr1_rank_index.npy")
    if faults:
        raise RequestError(faults)
    return models


def outcomes_of_hits(hits: HitLists, task: RetrievalTask) -> Outcomes:
    """Return the outcomes that hit lists determine, with ranks as ranges.

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
    """Return the last possible rank of the first relevant item, behind all irrelevant ones; shape ``(n_queries,)``."""
    return task.n_gallery - task.n_relevant.astype(np.int32) + 1


def outcomes_of_ranges(task: RetrievalTask, low: NDArray[np.int32], high: NDArray[np.int32]) -> Outcomes:
    """Return the outcomes of queries with a first relevant rank from ``low`` to ``high``, shape ``(n_queries,)``.

    The rank is known where the two are equal. Further relevant items are only known to follow.
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
