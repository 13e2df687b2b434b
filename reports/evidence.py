"""What one report is made from: the stored rows, read once, the newest where several say the same thing.

Everything after this module works on plain rows in memory, so a report can be built from a store, from the
``results.json`` of an older report, or from rows made by a test.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from reports.cases import PROTOCOL, Case, choose
from store.errors import RequestError
from store.types import Corpus, EncoderSpec, SetKey, canonical_json

Row: TypeAlias = Mapping[str, Any]

TABLES = ("results", "comparisons", "slices", "batches", "runs")


class Sealed(Protocol):
    """What a report says about a sealed embedding set (``store.SealedSet``)."""

    key: SetKey
    tag: str
    version: int
    rows: int
    digest: str
    sealed_at: datetime
    bytes: int


class Source(Protocol):
    """The part of ``store.EmbeddingStore`` that reports read."""

    @property
    def uri(self) -> str:
        """Where it is."""

    def rows(self, table: str, **equals: str | Sequence[str]) -> pa.Table:
        """A table of analyses, filtered on columns."""

    def sealed_sets(self) -> list[Any]:
        """All sealed embedding sets, as :class:`Sealed`."""

    def encoder(self, name_or_fingerprint: str) -> EncoderSpec:
        """One encoder's spec."""

    def corpus(self, name: str, fingerprint: str | None = None) -> Corpus:
        """One corpus' contents."""

    def thumbnails(self, shas: Sequence[str]) -> dict[str, bytes]:
        """Small JPEGs by image hash."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The rows of one report.

    Attributes:
        uri: Of the store.
        results: One row per encoder, corpus, protocol and metric (``schema.RESULTS``).
        comparisons: Pairs of the encoders in ``results`` on the same corpora.
        slices: Failure analysis and ablations of the same.
        batches: Encoding times of the same.
        runs: The runs that any of the rows above name, oldest first.
        sets: The sealed embedding sets of the encoders and corpora in ``results``.
        specs: Encoder name to its spec.
        corpora: Corpus name to its contents.
        cases: Single queries for the gallery.
        features: Corpus name and caption id to what the failure analysis found in the caption.
        pictures: Image hash to its stored thumbnail, for the images of ``cases``.
        left_out: Sentences about stored figures that this report does not show, and why.
    """

    uri: str
    results: tuple[Row, ...]
    comparisons: tuple[Row, ...]
    slices: tuple[Row, ...]
    batches: tuple[Row, ...]
    runs: tuple[Row, ...]
    sets: tuple[Sealed, ...]
    specs: Mapping[str, EncoderSpec]
    corpora: Mapping[str, Corpus]
    cases: tuple[Case, ...] = ()
    features: Mapping[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    pictures: Mapping[str, bytes] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    @cached_property
    def figures(self) -> Mapping[tuple[str, str, str, str], Row]:
        """Results by corpus, protocol, metric and encoder."""
        return {(r["corpus"], r["protocol"], r["metric"], r["encoder"]): r for r in self.results}

    @cached_property
    def pairs(self) -> Mapping[tuple[str, str, str, str, str], Row]:
        """Comparisons by corpus, protocol, metric and the two encoders as stored."""
        return {(r["corpus"], r["protocol"], r["metric"], r["encoder_a"], r["encoder_b"]): r for r in self.comparisons}

    def corpus_names(self, having: Callable[[str], bool] = lambda _: True) -> list[str]:
        """Corpora with a protocol that ``having`` accepts: those with most queries first, then by name."""
        queries: dict[str, int] = {}
        for row in self.results:
            if having(row["protocol"]):
                queries[row["corpus"]] = max(queries.get(row["corpus"], 0), row["n_queries"])
        return sorted(queries, key=lambda name: (-queries[name], name))

    def encoder_names(self, corpus: str | None = None, protocol: str | None = None) -> list[str]:
        """Encoders with a result there, by name."""
        return sorted(
            {r["encoder"] for r in self.results if corpus in (None, r["corpus"]) and protocol in (None, r["protocol"])}
        )

    def protocols(self, corpus: str) -> list[str]:
        """Protocol ids with a result on that corpus, by name."""
        return sorted({r["protocol"] for r in self.results if r["corpus"] == corpus})

    def ranked(self, corpus: str, protocol: str, metric: str) -> list[Row]:
        """The rows of one metric, best first; without a value last; equal values by name."""
        rows = [r for r in self.results if (r["corpus"], r["protocol"], r["metric"]) == (corpus, protocol, metric)]
        sign = 1.0 if metric in SMALLER_IS_BETTER else -1.0
        return sorted(rows, key=lambda r: (r["value"] is None, sign * (r["value"] or 0.0), r["encoder"]))

    @cached_property
    def digest(self) -> str:
        """SHA-256 over every row; equal digests mean equal reports."""
        total = hashlib.sha256()
        for table in (self.results, self.comparisons, self.slices, self.batches, self.runs):
            for row in table:
                total.update(canonical_json({k: plain(v) for k, v in row.items()}).encode())
        for sealed in self.sets:
            total.update(f"{sealed.tag} {sealed.digest}".encode())
        for name, corpus in sorted(self.corpora.items()):
            total.update(f"{name} {corpus.fingerprint}".encode())
        for case in self.cases:
            total.update(repr(case).encode())
        return total.hexdigest()


SMALLER_IS_BETTER = frozenset({"median_rank", "mean_rank"})


def plain(value: Any) -> Any:
    """A stored value as JSON can hold it: times as ISO text, not-a-number as null."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, float) and value != value:  # noqa: PLR0124 - the usual test for NaN
        return None
    return value


def read_evidence(source: Source, *, run: str | None = None) -> Evidence:
    """All rows that a report of this store shows.

    Args:
        source: The store.
        run: Only the figures that this run wrote; by default the newest of each, whoever wrote them.

    Returns:
        Per encoder name and corpus name only the newest fingerprints: figures of two states of one corpus
        never stand in one table. What is left out is said in ``left_out``.

    Raises:
        RequestError: There are no results.
    """
    tables = {name: source.rows(name).to_pylist() for name in TABLES}
    results: list[Row] = [r for r in tables["results"] if run in (None, r["run"])]
    if not results:
        asked = f"run {run!r} wrote no results" if run else "there are no results yet"
        known = ", ".join(sorted({r["run"] for r in tables["results"]})[-5:])
        step = f"the newest runs with results: {known}" if known else "run `capim run` (or `capim demo`) first"
        raise RequestError(f"store {source.uri}: {asked}; {step}")

    corpora = _newest(results, "corpus", "corpus_fingerprint")
    current = [r for r in results if corpora[r["corpus"]] == r["corpus_fingerprint"]]
    encoders = _newest(current, "encoder", "encoder_fingerprint")
    current = [r for r in current if encoders[r["encoder"]] == r["encoder_fingerprint"]]
    newest = {(r["corpus"], r["protocol"], r["metric"], r["encoder"]): r for r in sorted(current, key=_age)}
    kept = tuple(newest[key] for key in sorted(newest))

    def ours(row: Row) -> bool:
        return bool(encoders.get(row["encoder"]) == row["encoder_fingerprint"]) and row["corpus"] in corpora

    def same_corpus(row: Row) -> bool:
        return bool(corpora.get(row["corpus"]) == row["corpus_fingerprint"])

    comparisons = {
        (r["corpus"], r["protocol"], r["metric"], r["encoder_a"], r["encoder_b"]): r
        for r in sorted(tables["comparisons"], key=_age)
        if same_corpus(r)
        and encoders.get(r["encoder_a"]) == r["fingerprint_a"]
        and encoders.get(r["encoder_b"]) == r["fingerprint_b"]
    }
    slices = {
        (r["corpus"], r["protocol"], r["analysis"], r["metric"], r["feature"], r["level_name"], r["encoder"]): r
        for r in sorted(tables["slices"], key=_age)
        if same_corpus(r) and ours(r)
    }
    batches = sorted((r for r in tables["batches"] if ours(r)), key=lambda r: (r["created"], r["batch_id"]))
    chosen = [*kept, *comparisons.values(), *slices.values(), *batches]
    named = {r["run"] for r in chosen}
    runs = sorted((r for r in tables["runs"] if r["run"] in named), key=lambda r: (r["started"], r["run"]))
    sets = [
        s
        for s in source.sealed_sets()
        if corpora.get(s.key.corpus) == s.key.corpus_fingerprint
        and encoders.get(s.key.encoder) == s.key.encoder_fingerprint
    ]
    contents = {name: source.corpus(name, fingerprint) for name, fingerprint in sorted(corpora.items())}
    cases = _cases(source, kept)
    return Evidence(
        uri=source.uri,
        results=kept,
        comparisons=tuple(comparisons[key] for key in sorted(comparisons)),
        slices=tuple(slices[key] for key in sorted(slices)),
        batches=tuple(batches),
        runs=tuple(runs),
        sets=tuple(sorted(sets, key=lambda s: (s.key.corpus, s.key.encoder, s.key.modality))),
        specs={name: source.encoder(fingerprint) for name, fingerprint in sorted(encoders.items())},
        corpora=contents,
        cases=cases,
        pictures=_pictures(source, cases, contents),
        left_out=tuple(_left_out(results, corpora, encoders)),
    )


def _cases(source: Source, results: Sequence[Row]) -> tuple[Case, ...]:
    """The gallery's queries, from the outcomes behind the kept results."""
    evaluations: dict[str, dict[str, str]] = {}
    for row in results:
        if row["protocol"] == PROTOCOL:
            evaluations.setdefault(row["corpus"], {})[row["encoder"]] = row["evaluation"]
    cases: list[Case] = []
    for corpus, of in sorted(evaluations.items()):
        cases += choose(corpus, {name: source.rows("outcomes", evaluation=digest) for name, digest in of.items()})
    return tuple(cases)


def _pictures(source: Source, cases: Iterable[Case], corpora: Mapping[str, Corpus]) -> dict[str, bytes]:
    """Thumbnails of every image that a case shows, by hash; images without one are left out."""
    wanted = set[str]()
    for case in cases:
        shas = corpora[case.corpus].images["sha"]
        ords = {case.image, *(ord_ for answer in case.answers for ord_, _ in answer.top)}
        wanted |= {sha for ord_ in ords if (sha := shas[ord_].as_py()) is not None}
    return dict(sorted(source.thumbnails(sorted(wanted)).items())) if wanted else {}


def _age(row: Row) -> tuple[datetime, str]:
    """Sort key by time; equal times by run, so that the choice never depends on the order of storage."""
    return row["created"], row["run"]


def _newest(rows: Iterable[Row], name: str, fingerprint: str) -> dict[str, str]:
    """Name to the fingerprint of its newest row."""
    return {r[name]: r[fingerprint] for r in sorted(rows, key=_age)}


def _left_out(results: Iterable[Row], corpora: Mapping[str, str], encoders: Mapping[str, str]) -> list[str]:
    """One sentence per older state of a corpus or an encoder that has figures in the store."""
    sentences = set()
    for row in results:
        if corpora[row["corpus"]] != row["corpus_fingerprint"]:
            sentences.add(
                f"figures on an older state of corpus {row['corpus']} (fingerprint {row['corpus_fingerprint']}): "
                "its contents have changed since"
            )
        elif encoders.get(row["encoder"]) != row["encoder_fingerprint"]:
            sentences.add(
                f"figures of an older {row['encoder']} (fingerprint {row['encoder_fingerprint']}): "
                "its revision or settings have changed since"
            )
    return sorted(sentences)
