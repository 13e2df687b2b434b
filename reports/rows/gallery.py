"""The single queries of the gallery: selected from the stored outcomes, where the same rows give the same selection.

Every corpus has its turn in each direction (:class:`GalleryTask`). The rule is fixed: the hardest queries that every
encoder misses, those that exactly one encoder misses or finds, those that one misses and another finds, those decided
by a tie, and near misses; one per image and protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, permutations, zip_longest
from operator import attrgetter, itemgetter
from typing import TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from capim.reports.elements.pictures import draw_map, encoded, opened, patch_map
from capim.reports.rows.report_data import detail_of
from capim.store import EmbeddingStore
from capim.store.current import grouped
from capim.store.row_types import rows_in
from capim.store.schema import ERRORS, LABEL, Outcome, Result, Slice, is_found, is_missed
from capim.store.types import Corpus, EncoderSpec
from capim.store.vectors import Explanation
from capim.tasks.protocols import (
    ALL_NEGATIVES,
    CLASS,
    MACRO,
    MAIN,
    MICRO,
    Direction,
    Protocol,
    by_language,
    with_outcomes,
)

Explain: TypeAlias = Callable[..., list[Explanation]]
"""Explains ``pairs`` of positions of captions and images; ``encoder`` and ``corpus`` by fingerprint."""
MOST_CASES = 200  # queries of a report
MOST_ITEMS = 6_000  # items of all ranked lists together
MOST_PICTURES = 600  # different images
LONGEST_LIST = 5  # items of each ranked list
SHRINKING = [(n, length) for n in (200, 150, 100) for length in (LONGEST_LIST, 4, 3)] + [(100, 2)]
SHRINKING += [(n, 1) for n in range(100, 0, -1)]
"""Queries and length of lists, in the order in which they are tried where there is too much to show."""
MOST_MAPPED = 60  # queries that have maps: each map is a picture of the page
COLUMNS = (
    "protocol", "query_id", "query_ord", "cluster", "rank_best", "rank_worst", "relevant_rank_best",
    "relevant_rank_worst", "top_ords", "top_scores", "scores", "n_ranked",
)  # fmt: skip
EXAMPLES = frozenset({"false negative", "hub"})  # kinds of errors with examples in the gallery


@dataclass(frozen=True, kw_only=True)
class GalleryTask:
    """A part of the gallery: one corpus, searched in one direction.

    Attributes:
        corpus: Corpus name.
        direction: ``t2i``, ``i2t``, ``quadruples`` or ``pairs``.
        outcomes: Encoder to ``COLUMNS`` of its outcomes, of one protocol or of several that differ in the language of
            the captions, in any order.
        examples: Kind of error to the ids of its example queries in the failure analysis.
        relevant: Row of a query to the rows of its images: of judged documents the relevant ones, highest grade first;
            of quadruples both.
    """

    corpus: str
    direction: Direction
    outcomes: Mapping[str, pa.Table]
    examples: Mapping[str, Sequence[str]]
    relevant: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RankedList:
    """One encoder's ranks of the relevant item, and the first items of its list (position, score).

    ``scores`` are those of a quadruple or pair, which have no list. ``relevant`` has the places of the relevant items
    in the list, from 1; None where ties or an imported list leave them open. ``is_known``: the rank of the best one is
    known but for ties; an imported list that leaves it out tells only that it is below.
    """

    encoder: str
    rank_best: int
    rank_worst: int
    top: tuple[tuple[int, float], ...]
    scores: tuple[float, ...] = ()
    relevant: frozenset[int] | None = None
    is_known: bool = True

    @staticmethod
    def of(encoder: str, row: Outcome, length: int = LONGEST_LIST) -> RankedList:
        """Return the list of one row of outcomes, so many items long."""
        best, worst = row.relevant_rank_best or [row.rank_best], row.relevant_rank_worst or [row.rank_worst]
        return RankedList(
            encoder=encoder,
            rank_best=row.rank_best,
            rank_worst=row.rank_worst,
            top=tuple(zip((row.top_ords or [])[:length], (row.top_scores or [])[:length], strict=True)),
            scores=tuple(row.scores or ()),
            relevant=frozenset(best) if best == worst else None,
            is_known=row.n_ranked != 0,
        )

    @property
    def missed(self) -> bool:
        """True if something scores above the best relevant item."""
        return bool(is_missed(self.rank_best))

    @property
    def found(self) -> bool:
        """True if the best relevant item is first, without a tie."""
        return bool(is_found(self.rank_worst))


@dataclass(frozen=True, kw_only=True)
class SelectedQuery:
    """One query of the gallery, with the reason for its selection.

    Attributes:
        corpus: Corpus name.
        direction: Of the protocol.
        protocol: Protocol of its outcomes.
        kind: The rule that selected it, such as ``"missed by all"``.
        query_id: Id of the caption, image, quadruple or pair.
        query: Its row in the corpus.
        image: Row of its image, the first of the relevant ones.
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
        """Return rows of the images that it shows, with lists of this length."""
        answers = Protocol.of(self.protocol).sides[1]
        first = {ord_ for ranked in self.lists for ord_, _ in ranked.top[:length]} if answers == "image" else ()
        return {self.image, *self.relevant[:LONGEST_LIST], *first}


@dataclass(frozen=True, kw_only=True)
class Totals:
    """Numbers of stored queries of a task: all, those an encoder misses or finds, and those that A misses and B finds.

    Attributes:
        corpus: Name of the corpus.
        direction: Of the task.
        queries: All.
        missed: By encoder.
        found: By encoder.
        both: By the encoder that misses, then by the one that finds.
    """

    corpus: str
    direction: Direction
    queries: int
    missed: Mapping[str, int]
    found: Mapping[str, int]
    both: Mapping[str, Mapping[str, int]]


def gallery_tasks(
    source: EmbeddingStore, results: Sequence[Result], slices: Iterable[Slice], corpora: Mapping[str, Corpus]
) -> Iterator[GalleryTask]:
    """Yield the tasks of the gallery, by corpus and direction; of a corpus without outcomes there is none."""
    by_corpus = grouped(results, lambda row: row.corpus)
    errors = [row for row in slices if row.analysis == ERRORS and row.feature in EXAMPLES and row.detail]
    for corpus, contents in corpora.items():
        by_protocol = grouped(by_corpus.get(corpus, ()), lambda row: row.protocol)
        for direction, protocols in shown_protocols(by_protocol, contents).items():
            by_encoder = grouped((row for name in protocols for row in by_protocol[name]), lambda row: row.encoder)
            examples: dict[str, list[str]] = {}
            for row in errors:
                if row.corpus == corpus and row.protocol in protocols:
                    examples.setdefault(row.feature, []).extend(detail_of(row).get("examples", []))
            evaluations = {
                encoder: [*{row.protocol: row.evaluation for row in rows}.values()]
                for encoder, rows in by_encoder.items()
            }
            relevant: dict[int, tuple[int, ...]] = {}
            if (protocol := Protocol.of(protocols[0])).kind == "judged":
                relevant = relevant_documents(contents, protocol.name)
            elif direction == "quadruples":
                both = (_places(contents.quadruples[name], contents.images) for name in ("image_0", "image_1"))
                relevant = dict(enumerate(zip(*both, strict=True)))
            yield GalleryTask(
                corpus=corpus,
                direction=direction,
                outcomes=_outcomes(source, evaluations),
                examples=examples,
                relevant=relevant,
            )


def shown_protocols(evaluated: Mapping[str, Sequence[Result]], corpus: Corpus) -> dict[Direction, list[str]]:
    """Return direction -> protocols that the gallery shows of a corpus, among those with results.

    Quadruples and pairs are shown as such, because their images are near copies of each other. Otherwise the two of the
    literature and those of every other language, of these the ones that most encoders have; of judged documents that of
    all queries.
    """
    of_kind = grouped(sorted(with_outcomes(evaluated), key=attrgetter("id")), attrgetter("kind"))
    if whole := [protocol.id for protocol in of_kind.get("quadruples", ()) if not protocol.name]:
        return {"quadruples": whole}
    if pairs := of_kind.get("pairs"):
        whole = [protocol.id for protocol in pairs if protocol.name == MICRO]
        return {"pairs": whole or [protocol.id for protocol in pairs if protocol.name not in (MACRO, ALL_NEGATIVES)]}
    if whole := [protocol.id for protocol in of_kind.get("judged", ()) if not protocol.language]:
        return {"t2i": whole}
    shown: dict[Direction, list[str]] = {}
    for headline in map(Protocol.of, MAIN):
        same = (p for p in of_kind.get("retrieval", ()) if p.direction == headline.direction)
        having = {p.id: len({row.encoder for row in evaluated[p.id]}) for p in by_language(same, corpus)}
        if found := [id_ for id_, n in having.items() if n == max(having.values())]:
            shown[headline.direction] = found
    return shown


def relevant_documents(corpus: Corpus, ground_truth: str) -> dict[int, tuple[int, ...]]:
    """Return judged query -> its relevant documents, highest grade first, by row; of a class its images."""
    truth, direction, asks, answers = (
        (LABEL, "i2t", "item_id", "query_id") if ground_truth == CLASS else (ground_truth, "t2i", "query_id", "item_id")
    )
    of_queries = (pc.field("ground_truth") == truth) & (pc.field("direction") == direction)
    rows = corpus.relevance.filter(of_queries & (pc.field("grade") > 0))
    found: dict[int, list[tuple[int, int]]] = {}
    queries, documents = _places(rows[asks], corpus.captions), _places(rows[answers], corpus.images)
    for query, document, grade in zip(queries, documents, rows["grade"].to_numpy().tolist(), strict=True):
        found.setdefault(query, []).append((-grade, document))
    return {query: tuple(document for _, document in sorted(documents)) for query, documents in found.items()}


def _places(ids: pa.ChunkedArray, items: pa.Table) -> list[int]:
    """Return the rows of items with these ids."""
    return cast("list[int]", pc.index_in(ids, items["id"].combine_chunks()).to_pylist())


def _outcomes(source: EmbeddingStore, evaluations: Mapping[str, Sequence[str]]) -> dict[str, pa.Table]:
    """``COLUMNS`` of the evaluations of each encoder, with lists no longer than the gallery shows."""
    found = source.outcomes([*chain(*evaluations.values())])
    shown = {}
    for encoder, ids in evaluations.items():
        rows = pa.concat_tables([found[evaluation].select(COLUMNS) for evaluation in ids])
        for name in ("top_ords", "top_scores"):
            rows = rows.set_column(COLUMNS.index(name), name, pc.list_slice(rows[name], 0, LONGEST_LIST))
        shown[encoder] = rows
    return shown


def select_queries(tasks: Sequence[GalleryTask]) -> tuple[list[SelectedQuery], list[Totals]]:
    """Return the queries of the gallery, by task, kind and position in the corpus, and the totals of every task.

    At most ``MOST_CASES``, to which the tasks contribute in turn, with at most ``MOST_ITEMS`` items in their lists and
    ``MOST_PICTURES`` images (``SHRINKING``). An encoder that was evaluated on other queries than the first of its task
    is left out.
    """
    sheets = [_Sheet(task) for task in tasks if any(table.num_rows for table in task.outcomes.values())]
    turns = zip_longest(*(_without_repeats(sheet) for sheet in sheets))
    order = [(at, *pick) for turn in turns for at, pick in enumerate(turn) if pick is not None][:MOST_CASES]
    queries = [sheets[at].selected(kind, row) for at, kind, row in order]
    n, length = next((each for each in SHRINKING if _fits(queries[: each[0]], each[1])), (0, 1))
    places = [(at, sheets[at].kinds.index(kind), row) for at, kind, row in order[:n]]
    chosen = [
        replace(query, lists=tuple(replace(ranked, top=ranked.top[:length]) for ranked in query.lists))
        for _, query in sorted(zip(places, queries[:n], strict=True), key=itemgetter(0))
    ]
    return chosen, [sheet.totals() for sheet in sheets]


class _Sheet:
    """The outcomes of a task side by side: rows are encoders, columns the same queries in the same order."""

    def __init__(self, task: GalleryTask) -> None:
        self.task = task
        tables = {
            name: table.sort_by([(column, "ascending") for column in ("protocol", "query_ord", "query_id")])
            for name, table in sorted(task.outcomes.items())
            if table.num_rows
        }
        self.first = first = next(iter(tables.values()))
        same = first.select(["query_id", "protocol"])
        self.tables = {name: table for name, table in tables.items() if table.select(same.column_names).equals(same)}
        self.low = np.stack([t["rank_best"].to_numpy() for t in self.tables.values()])
        self.high = np.stack([t["rank_worst"].to_numpy() for t in self.tables.values()])
        self.images = first["cluster"].to_numpy()
        self.protocols = np.asarray(first["protocol"].to_pylist(), dtype=object)
        self.candidates = _candidates(self.low, self.high)
        for kind, ids in sorted(task.examples.items()):
            self.candidates.append((kind, np.flatnonzero(np.isin(first["query_id"].to_numpy(), list(ids)))))

    @property
    def kinds(self) -> list[str]:
        return list(dict.fromkeys(kind for kind, _ in self.candidates))

    def selected(self, kind: str, row: int) -> SelectedQuery:
        query = self.first["query_ord"][row].as_py()
        relevant = self.task.relevant.get(query) or (int(self.images[row]),)
        return SelectedQuery(
            corpus=self.task.corpus,
            direction=self.task.direction,
            protocol=str(self.protocols[row]),
            kind=kind,
            query_id=self.first["query_id"][row].as_py(),
            query=query,
            image=relevant[0],
            relevant=relevant,
            lists=tuple(
                RankedList.of(name, outcome)
                for name, table in self.tables.items()
                for outcome in rows_in(Outcome, table.slice(row, 1))
            ),
        )

    def totals(self) -> Totals:
        """Return the numbers of all queries of the task."""
        names, missed, found = list(self.tables), is_missed(self.low), is_found(self.high)
        return Totals(
            corpus=self.task.corpus,
            direction=self.task.direction,
            queries=missed.shape[1],
            missed=dict(zip(names, missed.sum(axis=1).tolist(), strict=True)),
            found=dict(zip(names, found.sum(axis=1).tolist(), strict=True)),
            both={
                a: {b: int((missed[i] & found[j]).sum()) for j, b in enumerate(names) if i != j}
                for i, a in enumerate(names)
            },
        )


def _candidates(low: NDArray[np.int32], high: NDArray[np.int32]) -> list[tuple[str, NDArray[np.intp]]]:
    """Per kind (and encoder, for the kinds about one or two) the rows of its queries, hardest first."""
    missed, first = is_missed(low), is_found(high)
    candidates = [("missed by all", _by(low.min(axis=0), np.all(missed, axis=0)))]
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
    tied, near = ~missed & ~first, missed & (low <= 10)
    candidates.append(("decided by a tie", _by((high - low).max(axis=0), np.any(tied, axis=0))))
    return [*candidates, ("near miss", _by(-low.sum(axis=0), np.any(near, axis=0)))]


def _by(weight: NDArray[np.int32], mask: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return the rows of a mask, largest weight first, equal weights in order."""
    rows = np.flatnonzero(mask)
    return rows[np.argsort(-weight[rows].astype(np.int64), kind="stable")]


def _without_repeats(sheet: _Sheet) -> Iterator[tuple[str, int]]:
    """Yield kind and row: one of every kind in turn, protocols in turn within it, one per image and protocol."""
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
    """Yield the first ``MOST_CASES`` rows of every protocol, in turn, beginning with another protocol per ``start``.

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


def map_key(corpus: str, encoder: str, query: int, image: int) -> str:
    """Return the key of a map among the pictures of a report."""
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
    cases = [query for query in queries if query.direction == "t2i"][:MOST_MAPPED]
    wanted: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for encoder, spec in specs.items():
        for query, ranked in ((case, each) for case in cases for each in case.lists):
            if spec.vectors == "multi" and ranked.encoder == encoder and (encoder, query.corpus) in stored:
                images = dict.fromkeys([query.image, *(image for image, _ in ranked.top[:1])])
                wanted.setdefault((encoder, query.corpus), []).extend((query.query, image) for image in images)
    maps: dict[str, bytes] = {}
    for (encoder, corpus), pairs in wanted.items():
        explained = explain(encoder=specs[encoder].fingerprint, corpus=corpora[corpus].fingerprint, pairs=pairs)
        for (position, image), found in zip(pairs, explained, strict=True):
            if found.grids and (picture := thumbnails.get(found.sha)) is not None:
                drawn = draw_map(opened(picture), found, patch_map(found))
                maps[map_key(corpus, encoder, position, image)] = encoded(drawn)
    return maps
