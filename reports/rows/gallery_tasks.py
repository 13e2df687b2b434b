"""Reads the outcomes that the gallery selects its queries from: of every corpus, in every direction that it has."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from capim.reports.rows.languages import JUDGED, cross_lingual
from capim.reports.rows.report_data import Row, grouped
from capim.reports.rows.selected_queries import COLUMNS, LONGEST_LIST, Task
from capim.store import EmbeddingStore
from capim.store.types import Corpus

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
