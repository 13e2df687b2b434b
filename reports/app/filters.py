"""A filter of queries: its URL, and its SQL over the tables of the store.

One row per query: its text and language, and of every encoder the rank of the best relevant item, at best and at worst
among equal scores. A query is missed if something scores above the best relevant item, and found if that item is
first without a tie; a tie at the top is neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

from starlette.datastructures import QueryParams

from capim.reports.app.state import EvaluatedTask, Statement, StoreSnapshot, faults_of_number, names_in, placeholders
from capim.store.errors import RequestError, unknown
from capim.store.types import MODALITIES
from capim.tasks.protocols import LANGUAGE_IN_SQL

Condition: TypeAlias = tuple[str, tuple[object, ...]]
"""A condition of a SELECT, and the values of the ``?`` in it."""
SLICES = {"shows": "image shows", "type": "type of query", "tag": "tag", "ambiguous": "ambiguous miss"}
SORTS = {"": "corpus order", "gap": "rank gap (largest first)", "rank": "rank (worst first)"}
"""Sort orders of a list. The gap is the rank of the first chosen encoder minus that of the second."""
_LISTS = {"encoders", "wrong", "right"}
_NUMBERS = {"low", "high", "page"}

_QUERY = "i.corpus_fingerprint = ? AND i.ord = o.query_ord"
_CAPTION = "LEFT JOIN captions {0} ON {0}.corpus_fingerprint = i.corpus_fingerprint AND {0}.id = i."
_ITEMS: Mapping[str, tuple[str, str, str]] = {
    "caption": ("i.text", "i.language", f"captions i ON {_QUERY}"),
    "image": ("i.id", LANGUAGE_IN_SQL.format("o.protocol"), f"images i ON {_QUERY}"),
    "quadruples": (
        "c0.text || ' / ' || c1.text",
        "c0.language",
        f"quadruples i ON {_QUERY}\n  {_CAPTION.format('c0')}caption_0\n  {_CAPTION.format('c1')}caption_1",
    ),
    "pairs": ("c0.text", "c0.language", f"pairs i ON {_QUERY}\n  {_CAPTION.format('c0')}caption_id"),
}
"""Kind of query -> its text, its language, and the table of queries (alias ``i``)."""

_OF_ENCODER = {
    "best": "max(rank_best)",
    "worst": "max(rank_worst)",
    "missed": "bool_or(missed)",
    "found": "bool_or(found)",
}


@dataclass(frozen=True, kw_only=True)
class QueryFilter:
    """A choice of queries; its fields are the parameters of an address.

    Attributes:
        corpus: Name; empty in an address: the first of the grid.
        protocol: Id, or ``t2i/*/*`` for the protocols of all languages; empty in an address: the headline.
        encoders: Encoders with ranks shown; empty: all. The first two are compared.
        wrong: Encoders that miss the query.
        right: Encoders that find it.
        slice: ``shows:dog``, ``type:…``, ``tag:…``, ``ambiguous:annotation``; empty: all.
        language: Of the query.
        text: That the query contains, without case.
        of: The encoder that ``low``, ``high`` and the sorting by rank are about; empty: the first of
            ``wrong``, else the first shown.
        low: Least rank of the best relevant item.
        high: Greatest rank of it.
        sort: A key of ``SORTS``.
        page: From 1.
    """

    corpus: str = ""
    protocol: str = ""
    encoders: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    right: tuple[str, ...] = ()
    slice: str = ""
    language: str = ""
    text: str = ""
    of: str = ""
    low: int | None = None
    high: int | None = None
    sort: str = ""
    page: int = 1

    @property
    def parameters(self) -> dict[str, str]:
        """Return the URL parameters of this filter, without those that are not set.

        Examples:
            >>> QueryFilter(corpus="shapes", wrong=("a", "b"), low=2).parameters
            {'corpus': 'shapes', 'wrong': 'a,b', 'low': '2'}
        """
        every = {each.name: (getattr(self, each.name), each.default) for each in fields(self)}
        given = {name: value for name, (value, default) in every.items() if value != default}
        return {name: ",".join(value) if isinstance(value, tuple) else str(value) for name, value in given.items()}

    def but(self, **changed: Any) -> QueryFilter:
        """This filter with other values; from its first page."""
        return replace(self, **{"page": 1, **changed})


def read_filter(parameters: QueryParams, snapshot: StoreSnapshot) -> tuple[QueryFilter, EvaluatedTask]:
    """Return the filter of a URL, with corpus and protocol filled in, and the task evaluated there.

    Names of encoders may be given with commas or several times.

    Raises:
        RequestError: A name that the store does not have, with the nearest; a number that is none; all faults.
    """
    given: dict[str, Any] = {name: names_in(parameters, name) for name in _LISTS}
    faults: list[str] = []
    for name in (each.name for each in fields(QueryFilter) if each.name not in _LISTS):
        text = next(filter(None, reversed(parameters.getlist(name))), "")
        if name in _NUMBERS and (wrong := faults_of_number(name, text)):
            faults += wrong
        elif text:
            given[name] = int(text) if name in _NUMBERS else text
    wanted = QueryFilter(**given)
    evaluated = snapshot.chosen(wanted.corpus, wanted.protocol)
    faults += _unknown_encoders(wanted, list(evaluated.evaluations))
    if wanted.sort not in SORTS:
        faults.append(unknown("sort", wanted.sort, [*filter(None, SORTS)]))
    kind, colon, _ = wanted.slice.partition(":")
    if wanted.slice and (kind not in SLICES or not colon):
        faults.append(f"slice={wanted.slice}: expected {', '.join(f'{name}:…' for name in SLICES)}")
    if faults:
        raise RequestError(faults)
    return replace(wanted, corpus=evaluated.corpus, protocol=evaluated.protocol.id), evaluated


def _unknown_encoders(wanted: QueryFilter, known: Sequence[str]) -> list[str]:
    """Return the errors in a filter's names of encoders."""
    named = [(name, getattr(wanted, name)) for name in ("encoders", "wrong", "right")]
    named.append(("of", (wanted.of,) if wanted.of else ()))
    return [unknown(f"{what}: encoder", name, known) for what, names in named for name in names if name not in known]


def shown(wanted: QueryFilter, evaluated: EvaluatedTask) -> list[str]:
    """Return the encoders with ranks shown: the chosen ones, in the order of the filter, else all."""
    chosen = wanted.encoders or tuple(evaluated.evaluations)
    named = [*wanted.wrong, *wanted.right, wanted.of, *chosen]
    return [name for name in dict.fromkeys(named) if name]


def focus(wanted: QueryFilter, evaluated: EvaluatedTask) -> str:
    """Return the encoder that the range of ranks and the sorting are about."""
    return wanted.of or shown(wanted, evaluated)[0]


def select(wanted: QueryFilter, evaluated: EvaluatedTask) -> Statement:
    """Return the statement for all queries of a filter in order: protocol, id, position, text, language, ranks.

    Columns of ranks are called by the encoder: ``tiny-clip`` at best, ``tiny-clip (worst)`` with ties against it.
    """
    text, language, items = _ITEMS[evaluated.protocol.queries]
    names = shown(wanted, evaluated)
    values: list[object] = []
    ranks, columns = [], []
    number = {name: at for at, name in enumerate(names, 1)}
    for name, at in number.items():
        ranks += [f"{made} FILTER (encoder = ?) AS {column}_{at}" for column, made in _OF_ENCODER.items()]
        values += [name] * len(_OF_ENCODER)
        columns += [f'o.best_{at} AS "{name}"', f'o.worst_{at} AS "{name} (worst)"']
    every = [one for name in names for one in evaluated.evaluations[name]]
    where = list(_conditions(wanted, evaluated, number))
    condition = "\n  AND ".join(sql for sql, _ in where) or "TRUE"
    ranks_sql = ",\n         ".join(ranks)
    several = evaluated.protocol.is_combined
    sql = f"""WITH o AS (
  SELECT {"" if several else "? AS "}protocol, query_id, any_value(query_ord) AS query_ord,
         any_value(cluster) AS cluster,
         {ranks_sql}
  FROM outcome_states
  WHERE evaluation IN ({placeholders(every)})
  GROUP BY {"protocol, query_id" if several else "query_id"}
)
SELECT o.protocol, o.query_id, o.query_ord, o.cluster, {text} AS text, {language} AS language,
       {", ".join(columns)}
FROM o
  LEFT JOIN {items}
WHERE {condition}
ORDER BY {_order(wanted, evaluated, number)}o.query_ord, o.query_id, o.protocol"""  # noqa: S608 - only placeholders, our own names
    protocol = () if several else (evaluated.protocol.id,)
    parameters = (*protocol, *values, *every, evaluated.corpus_fingerprint, *(value for _, of in where for value in of))
    tables = ("captions", "images", "quadruples", "pairs")
    only = {"outcomes": evaluated.every_evaluation, **dict.fromkeys(tables, (evaluated.corpus_fingerprint,))}
    return Statement(sql=sql, parameters=parameters, only=only)


@dataclass(frozen=True, kw_only=True)
class ListedQuery:
    """A row of the answer to :func:`select`; the ranks are in further columns."""

    protocol: str
    query_id: str
    query_ord: int
    cluster: int
    text: str | None
    language: str | None


def some_of(wanted: QueryFilter, evaluated: EvaluatedTask, *, first: int, most: int) -> Statement:
    """Return the statement for so many queries of a filter from a place on (from 0), by the encoders that it names."""
    every = select(_narrow(wanted, evaluated), evaluated)
    return replace(every, sql=f"{every.sql}\nLIMIT ? OFFSET ?", parameters=(*every.parameters, most, first))


def count_of(wanted: QueryFilter, evaluated: EvaluatedTask) -> Statement:
    """Return the statement that counts the queries of a filter."""
    every = select(_narrow(wanted.but(sort=""), evaluated), evaluated)
    return replace(every, sql=f"SELECT count(*) AS n\nFROM (\n{every.sql}\n)")


def ranks_of(evaluated: EvaluatedTask, queries: Sequence[str]) -> Statement:
    """Return the statement for the ranks of every encoder for the queries with these ids."""
    evaluations = evaluated.every_evaluation
    sql = f"""SELECT protocol, query_id, encoder, rank_best, rank_worst
FROM outcomes
WHERE evaluation IN ({placeholders(evaluations)}) AND query_id IN ({placeholders(queries)})"""  # noqa: S608 - only placeholders
    return Statement(sql=sql, parameters=(*evaluations, *queries), only={"outcomes": evaluations})


def outcomes_of(evaluated: EvaluatedTask, protocol: str, query_id: str, *, top: int) -> Statement:
    """Return the statement for every encoder's outcome on one query, with the ``top`` first items of its list."""
    evaluations = evaluated.every_evaluation
    sql = f"""SELECT encoder, protocol, query_id, rank_best, rank_worst, best_score,
       top_ords[1:{top}] AS top_ords, top_scores[1:{top}] AS top_scores
FROM outcomes
WHERE evaluation IN ({placeholders(evaluations)}) AND protocol = ? AND query_id = ?
ORDER BY encoder"""  # noqa: S608 - only placeholders are put in
    return Statement(sql=sql, parameters=(*evaluations, protocol, query_id))


def _narrow(wanted: QueryFilter, evaluated: EvaluatedTask) -> QueryFilter:
    """Return the filter with only the encoders that it names: all others change nothing, and take most of the time."""
    named = [*wanted.wrong, *wanted.right, focus(wanted, evaluated)]
    if wanted.sort == "gap":
        named += shown(wanted, evaluated)[:2]
    return replace(wanted, encoders=tuple(dict.fromkeys(named)))


def _conditions(wanted: QueryFilter, evaluated: EvaluatedTask, number: Mapping[str, int]) -> Iterator[Condition]:
    text, language, _ = _ITEMS[evaluated.protocol.queries]
    yield from ((f"o.missed_{number[name]}", ()) for name in wanted.wrong)
    yield from ((f"o.found_{number[name]}", ()) for name in wanted.right)
    if wanted.language:
        yield f"{language} = ?", (wanted.language,)
    if wanted.text:
        yield f"contains(lower({text}), lower(?))", (wanted.text,)
    for limit, sign in ((wanted.low, ">="), (wanted.high, "<=")):
        if limit is not None:
            yield f"o.best_{number[focus(wanted, evaluated)]} {sign} ?", (limit,)
    if wanted.slice:
        kind, _, value = wanted.slice.partition(":")
        yield in_slice(kind, value, evaluated)


def in_slice(kind: str, value: str, evaluated: EvaluatedTask) -> Condition:
    """Return the condition for the queries of a slice, such as those with an object in their image.

    Raises:
        RequestError: The queries of this protocol have no such slices.
    """
    queries = evaluated.protocol.queries
    if kind == "shows" and evaluated.has_images:
        image = "o.query_ord" if queries == "image" else "o.cluster"
        shown = "SELECT ord FROM images WHERE corpus_fingerprint = ? AND list_contains(objects, ?)"
        return f"{image} IN ({shown})", (evaluated.corpus_fingerprint, value)
    if kind == "type" and queries == "caption":
        return "list_contains(i.query_types, ?)", (value,)
    if kind == "tag" and queries not in MODALITIES:
        return "list_contains(i.tags, ?)" if queries == "quadruples" else "i.category = ?", (value,)
    if kind == "ambiguous":
        missed = "SELECT query_id FROM ambiguous_misses WHERE corpus_fingerprint = ? AND protocol = o.protocol"
        return f"i.id IN ({missed} AND cause = ?)", (evaluated.corpus_fingerprint, value)
    raise RequestError(f"slice {kind}:{value}: queries of {evaluated.protocol.id} have no slices of this kind")


def _order(wanted: QueryFilter, evaluated: EvaluatedTask, number: Mapping[str, int]) -> str:
    """Return the sort keys of a list before the position in the corpus, with a comma at the end."""
    first = number[focus(wanted, evaluated)]
    if wanted.sort == "gap":
        others = [at for at in number.values() if at != first]
        return f"o.best_{first} - o.best_{others[0]} DESC, " if others else ""
    return f"o.best_{first} DESC, " if wanted.sort == "rank" else ""
