"""Selects the single queries of the gallery from the stored outcomes: the same rows give the same selection.

Every corpus has its turn in each direction (:class:`Task`). The rule is fixed: the hardest queries that every encoder
misses, those that exactly one encoder misses or finds, those that one misses and another finds, those decided by a tie,
and near misses; one per image and protocol.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations, zip_longest
from operator import itemgetter
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from capim.reports.elements.pictures import draw_map, encoded, opened, patch_map
from capim.reports.rows.languages import JUDGED, cross_lingual
from capim.reports.rows.report_data import Row, grouped
from capim.store import EmbeddingStore
from capim.store.layout import Explanation
from capim.store.types import Corpus, EncoderSpec

MOST_CASES = 200  # queries of a report
MOST_ITEMS = 6_000  # items of all ranked lists together
MOST_PICTURES = 1_600  # different images
LONGEST_LIST = 5  # items of each ranked list
SHRINKING = [(n, length) for n in (200, 150, 100) for length in (LONGEST_LIST, 4, 3)] + [(100, 2), (100, 1)]
"""Queries and length of lists, in the order in which they are tried where there is too much to show."""
COLUMNS = (
    "protocol", "query_id", "query_ord", "cluster", "rank_best", "rank_worst", "top_ords", "top_scores", "scores",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Task:
    """A part of the gallery: one corpus, searched in one direction.

    Attributes:
        corpus: Corpus name.
        direction: ``t2i``, ``i2t``, ``quadruples`` or ``pairs``.
        outcomes: Encoder to ``COLUMNS`` of its rows of ``schema.OUTCOMES``, of one protocol or of several that differ
            in the language of the captions, in any order.
        examples: Kind of error to the ids of its example queries in the failure analysis.
        relevant: Row of a query to the rows of its images: of judged documents the relevant ones, highest grade first;
            of quadruples both.
    """

    corpus: str
    direction: str
    outcomes: Mapping[str, pa.Table]
    examples: Mapping[str, Sequence[str]]
    relevant: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RankedList:
    """One encoder's ranks of the relevant item, and the first items of its list (ordinal, score).

    ``scores`` are those of a quadruple or pair, which have no list.
    """

    encoder: str
    rank_best: int
    rank_worst: int
    top: tuple[tuple[int, float], ...]
    scores: tuple[float, ...] = ()

    @property
    def missed(self) -> bool:
        """Whether something scores above the best relevant item."""
        return self.rank_best > 1

    @property
    def found(self) -> bool:
        """Whether the best relevant item alone is first."""
        return self.rank_worst == 1


@dataclass(frozen=True, kw_only=True)
class SelectedQuery:
    """One query of the gallery, with the reason for its selection.

    Attributes:
        corpus: Corpus name.
        direction: ``t2i``, ``i2t``, ``quadruples`` or ``pairs``.
        protocol: Protocol of its outcomes.
        kind: The rule that selected it, such as ``"missed by all"``.
        query_id: Id of the caption, image, quadruple or pair.
        query: Its row in the corpus.
        image: Row of the image that it belongs to, the first of the relevant ones.
        relevant: Rows of the relevant images; only judged documents and quadruples have several.
        lists: One per encoder.
    """

    corpus: str
    direction: str
    protocol: str
    kind: str
    query_id: str
    query: int
    image: int
    lists: tuple[RankedList, ...]
    relevant: tuple[int, ...] = ()

    def images(self, length: int = LONGEST_LIST) -> set[int]:
        """Rows of the images that it shows, with lists of this length."""
        first = {ord_ for ranked in self.lists for ord_, _ in ranked.top[:length]} if self.direction == "t2i" else ()
        return {self.image, *self.relevant[:LONGEST_LIST], *first}


def select_queries(tasks: Sequence[Task]) -> tuple[list[SelectedQuery], list[dict[str, Any]]]:
    """The queries of the gallery, by task, kind and position in the corpus, and the totals of every task.

    At most ``MOST_CASES``, to which the tasks contribute in turn, with at most ``MOST_ITEMS`` items in their lists and
    ``MOST_PICTURES`` images (``SHRINKING``). An encoder that was evaluated on other queries than the first of its task
    is left out.
    """
    sheets = [sheet for task in tasks if (sheet := _sheet(task)) is not None]
    turns = zip_longest(*(_without_repeats(sheet) for sheet in sheets))
    order = [(at, *pick) for turn in turns for at, pick in enumerate(turn) if pick is not None][:MOST_CASES]
    queries = [sheets[at].selected(kind, row) for at, kind, row in order]
    tries = [*SHRINKING, *((n, 1) for n in range(99, 0, -1))]
    n, length = next((each for each in tries if _fits(queries[: each[0]], each[1])), (0, 1))
    places = [(at, sheets[at].kinds.index(kind), row) for at, kind, row in order[:n]]
    chosen = [
        replace(query, lists=tuple(replace(ranked, top=ranked.top[:length]) for ranked in query.lists))
        for _, query in sorted(zip(places, queries[:n], strict=True), key=itemgetter(0))
    ]
    return chosen, [sheet.totals() for sheet in sheets]


@dataclass(frozen=True, kw_only=True)
class _Sheet:
    """The outcomes of a task side by side: rows are encoders, columns the same queries in the same order."""

    task: Task
    tables: Mapping[str, pa.Table]
    low: NDArray[np.int32]
    high: NDArray[np.int32]
    images: NDArray[np.int32]
    protocols: NDArray[np.object_]
    candidates: Sequence[tuple[str, NDArray[np.intp]]]

    @property
    def kinds(self) -> list[str]:
        return list(dict.fromkeys(kind for kind, _ in self.candidates))

    def selected(self, kind: str, row: int) -> SelectedQuery:
        first = next(iter(self.tables.values()))
        query = first["query_ord"][row].as_py()
        relevant = self.task.relevant.get(query) or (int(self.images[row]),)
        return SelectedQuery(
            corpus=self.task.corpus,
            direction=self.task.direction,
            protocol=str(self.protocols[row]),
            kind=kind,
            query_id=first["query_id"][row].as_py(),
            query=query,
            image=relevant[0],
            relevant=relevant,
            lists=tuple(_ranked_list(name, table, row) for name, table in self.tables.items()),
        )

    def totals(self) -> dict[str, Any]:
        """Numbers of stored queries: all, missed or found by an encoder, missed by A and found by B."""
        names, missed, found = list(self.tables), self.low > 1, self.high == 1
        return {
            "corpus": self.task.corpus,
            "direction": self.task.direction,
            "queries": missed.shape[1],
            "missed": dict(zip(names, missed.sum(axis=1).tolist(), strict=True)),
            "found": dict(zip(names, found.sum(axis=1).tolist(), strict=True)),
            "both": {
                a: {b: int((missed[i] & found[j]).sum()) for j, b in enumerate(names) if i != j}
                for i, a in enumerate(names)
            },
        }


def _sheet(task: Task) -> _Sheet | None:
    tables = {
        name: table.sort_by([("protocol", "ascending"), ("query_ord", "ascending")])
        for name, table in sorted(task.outcomes.items())
        if table.num_rows
    }
    if not tables:
        return None
    first = next(iter(tables.values()))
    tables = {
        name: t
        for name, t in tables.items()
        if t["query_ord"].equals(first["query_ord"]) and t["protocol"].equals(first["protocol"])
    }
    low = np.stack([t["rank_best"].to_numpy() for t in tables.values()])
    high = np.stack([t["rank_worst"].to_numpy() for t in tables.values()])
    candidates = _candidates(low, high)
    for kind, ids in sorted(task.examples.items()):
        candidates.append((kind, np.flatnonzero(np.isin(first["query_id"].to_numpy(), list(ids)))))
    return _Sheet(
        task=task,
        tables=tables,
        low=low,
        high=high,
        images=first["cluster"].to_numpy(),
        protocols=np.asarray(first["protocol"].to_pylist(), dtype=object),
        candidates=candidates,
    )


def _candidates(low: NDArray[np.int32], high: NDArray[np.int32]) -> list[tuple[str, NDArray[np.intp]]]:
    """Per kind (and encoder, for the kinds about one or two) the rows of its queries, hardest first."""
    missed, first = low > 1, high == 1
    by_all: NDArray[np.bool_] = np.logical_and.reduce(missed, axis=0)
    candidates = [("missed by all", _by(low.min(axis=0), by_all))]
    if len(low) > 1:
        for i in range(len(low)):
            others = np.arange(len(low)) != i
            candidates += [
                ("missed by only one", _by(low[i], missed[i] & np.all(first[others], axis=0))),
                ("found by only one", _by(low[others].min(axis=0), first[i] & missed[others].all(axis=0))),
            ]
    if len(low) > 2:
        candidates += [
            ("missed by one, found by another", _by(low[a], missed[a] & first[b]))
            for a, b in permutations(range(len(low)), 2)
        ]
    tied: NDArray[np.bool_] = np.logical_or.reduce((low == 1) & (high > 1), axis=0)
    near: NDArray[np.bool_] = np.logical_or.reduce((low > 1) & (low <= 10), axis=0)
    candidates.append(("decided by a tie", _by((high - low).max(axis=0), tied)))
    return [*candidates, ("near miss", _by(-low.sum(axis=0), near))]


def _by(weight: NDArray[np.int32], mask: NDArray[np.bool_]) -> NDArray[np.intp]:
    """The rows of a mask, largest weight first, equal weights in order."""
    rows = np.flatnonzero(mask)
    return rows[np.argsort(-weight[rows].astype(np.int64), kind="stable")]


def _without_repeats(sheet: _Sheet) -> Iterator[tuple[str, int]]:
    """Kind and row: one of every kind in turn, protocols in turn within it, at most one per image and protocol."""
    lists = [
        (kind, list(_in_turn(rows, sheet.protocols[rows], start)))
        for start, (kind, rows) in enumerate(sheet.candidates)
    ]
    taken = set()
    for depth in range(max((len(rows) for _, rows in lists), default=0)):
        for kind, rows in lists:
            if depth < len(rows):
                place = (int(sheet.images[rows[depth]]), sheet.protocols[rows[depth]])
                if place not in taken:
                    taken.add(place)
                    yield kind, rows[depth]


def _in_turn(rows: NDArray[np.intp], protocols: NDArray[np.object_], start: int) -> Iterator[int]:
    """The first ``MOST_CASES`` rows of every protocol, protocols in turn, beginning with another one per ``start``.

    Examples:
        >>> list(_in_turn(np.array([1, 2, 3]), np.array(["a", "a", "b"], dtype=object), 1))
        [3, 1, 2]
    """
    names = sorted(set(protocols))
    groups = [rows[protocols == name][:MOST_CASES].tolist() for name in names]
    turned = groups[start % len(groups) :] + groups[: start % len(groups)] if groups else []
    for turn in zip_longest(*turned):
        yield from (row for row in turn if row is not None)


def _fits(queries: Sequence[SelectedQuery], length: int) -> bool:
    items = sum(length * len(query.lists) for query in queries)
    pictures = {(query.corpus, image) for query in queries for image in query.images(length)}
    return items <= MOST_ITEMS and len(pictures) <= MOST_PICTURES


def _ranked_list(encoder: str, table: pa.Table, row: int) -> RankedList:
    def values(column: str) -> list[float]:
        return table[column][row].as_py() or []

    tops = zip(values("top_ords")[:LONGEST_LIST], values("top_scores")[:LONGEST_LIST], strict=True)
    return RankedList(
        encoder=encoder,
        rank_best=table["rank_best"][row].as_py(),
        rank_worst=table["rank_worst"][row].as_py(),
        top=tuple((int(ord_), score) for ord_, score in tops),
        scores=tuple(values("scores")),
    )


EXAMPLES = frozenset({"false negative", "hub"})  # kinds of errors whose examples join the gallery
_LISTS = ("top_ords", "top_scores")


def gallery_tasks(
    source: EmbeddingStore, results: Sequence[Row], slices: Iterable[Row], corpora: Mapping[str, Corpus]
) -> Iterator[Task]:
    """The tasks of the gallery, by corpus and direction; of a corpus without outcomes there is none."""
    by_corpus = grouped(results, itemgetter("corpus"))
    errors = [row for row in slices if row["analysis"] == "errors" and row["feature"] in EXAMPLES and row["detail"]]
    for corpus in corpora:
        by_protocol = grouped(by_corpus[corpus], itemgetter("protocol"))
        metrics = {protocol: {row["metric"] for row in rows} for protocol, rows in by_protocol.items()}
        for direction, protocols in shown_protocols(metrics).items():
            by_encoder = grouped((row for name in protocols for row in by_protocol[name]), itemgetter("encoder"))
            examples: dict[str, list[str]] = {}
            for row in errors:
                if row["corpus"] == corpus and row["protocol"] in protocols:
                    examples.setdefault(row["feature"], []).extend(json.loads(row["detail"]).get("examples", []))
            outcomes = {
                encoder: pa.concat_tables(
                    [_outcomes(source, key) for key in {row["protocol"]: row["evaluation"] for row in rows}.values()]
                )
                for encoder, rows in by_encoder.items()
            }
            contents, relevant = corpora[corpus], {}
            if JUDGED in protocols:
                relevant = relevant_documents(contents)
            elif direction == "quadruples":
                both = (_places(contents.quadruples[name], contents.images) for name in ("image_0", "image_1"))
                relevant = dict(enumerate(zip(*both, strict=True)))
            yield Task(corpus=corpus, direction=direction, outcomes=outcomes, examples=examples, relevant=relevant)


def shown_protocols(metrics: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """Direction to the protocols that the gallery shows of a corpus, of those with results (protocol to its metrics).

    Quadruples and pairs are shown as such, because their images are near copies of each other. Otherwise the headline
    of either direction, or the protocols of every language; of judged documents that of all queries.

    Examples:
        >>> shown_protocols({"t2i/all": ["R@1"], "t2i/first": ["R@1"], "i2t/de/human": ["R@1"], "i2t/en/human": []})
        {'t2i': ['t2i/all'], 'i2t': ['i2t/de/human', 'i2t/en/human']}
    """
    if "winoground" in metrics:
        return {"quadruples": ["winoground"]}
    pairs = sorted(protocol for protocol, names in metrics.items() if "pair_accuracy" in names)
    if pairs:
        whole = [protocol for protocol in pairs if protocol.endswith("/micro")]
        means = ("/macro", "/all-negatives")
        return {"pairs": whole[:1] or [protocol for protocol in pairs if not protocol.endswith(means)]}
    if JUDGED in metrics:
        return {"t2i": [JUDGED]}
    shown = {}
    for direction, headline in (("t2i", "t2i/all"), ("i2t", "i2t/any")):
        of_language = sorted(p for p in metrics if (parts := cross_lingual(p)) and parts.direction == direction)
        if protocols := [headline] if headline in metrics else of_language:
            shown[direction] = protocols
    return shown


def relevant_documents(corpus: Corpus) -> dict[int, tuple[int, ...]]:
    """Row of each judged query to the rows of its relevant documents, highest grade first."""
    rows = corpus.relevance.filter((pc.field("ground_truth") == "judged") & (pc.field("grade") > 0))
    found: dict[int, list[tuple[int, int]]] = {}
    queries, documents = _places(rows["query_id"], corpus.captions), _places(rows["item_id"], corpus.images)
    for query, document, grade in zip(queries, documents, rows["grade"].to_numpy().tolist(), strict=True):
        found.setdefault(query, []).append((-grade, document))
    return {query: tuple(document for _, document in sorted(documents)) for query, documents in found.items()}


def _places(ids: pa.ChunkedArray, items: pa.Table) -> list[int]:
    """The rows of items with these ids."""
    places: list[int] = pc.index_in(ids, items["id"].combine_chunks()).to_numpy().tolist()
    return places


def _outcomes(source: EmbeddingStore, evaluation: str) -> pa.Table:
    """``COLUMNS`` of one evaluation, with lists no longer than the gallery shows."""
    rows = source.rows("outcomes", evaluation=evaluation)
    columns: dict[str, Any] = {
        name: pc.list_slice(rows[name], 0, LONGEST_LIST) if name in _LISTS else rows[name] for name in COLUMNS
    }
    return pa.table(columns)


MOST_CASES = 60  # that have maps: each map is a picture of the page


class Explain(Protocol):
    """Explains pairs of a caption and an image."""

    def __call__(self, *, encoder: str, corpus: str, pairs: Sequence[tuple[int, int]]) -> list[Explanation]:
        """The explanations of pairs of positions in the corpus; encoder and corpus by fingerprint."""
        ...


def map_key(corpus: str, encoder: str, query: int, image: int) -> str:
    """The key of a map among the pictures of a report."""
    return f"{corpus}/{encoder}/{query}/{image}"


def match_maps(
    source: EmbeddingStore,
    queries: Sequence[SelectedQuery],
    specs: Mapping[str, EncoderSpec],
    corpora: Mapping[str, Corpus],
    thumbnails: Mapping[str, bytes],
    explain: Explain,
) -> dict[str, bytes]:
    """Maps of the first cases with a caption as query, by :func:`map_key`: over the expected image, and over the first.

    None for encoders with one vector per item, and for images without a thumbnail or vectors without a layout.
    """
    stored = {(s.key.encoder, s.key.corpus) for s in source.sealed_sets() if s.key.modality == "image"}
    maps: dict[str, bytes] = {}
    cases = [query for query in queries if query.direction == "t2i"][:MOST_CASES]
    for encoder, spec in specs.items():
        for corpus in dict.fromkeys(query.corpus for query in cases):
            if spec.vectors == "single" or (encoder, corpus) not in stored:
                continue
            pairs = [
                (query.query, image)
                for query in cases
                for ranked in query.lists
                if query.corpus == corpus and ranked.encoder == encoder
                for image in dict.fromkeys([query.image, *(image for image, _ in ranked.top[:1])])
            ]
            if not pairs:
                continue
            explained = explain(encoder=spec.fingerprint, corpus=corpora[corpus].fingerprint, pairs=pairs)
            for (query, image), found in zip(pairs, explained, strict=True):
                if found.grids and (picture := thumbnails.get(found.sha)) is not None:
                    drawn = draw_map(opened(picture), found, patch_map(found))
                    maps[map_key(corpus, encoder, query, image)] = encoded(drawn)
    return maps
