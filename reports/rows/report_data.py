"""What one report is made from: the stored rows, read once, the newest where several say the same thing.

Everything after this module works on plain rows in memory, so a report can be built from a store, from the
``results.json`` of an older report, or from rows made by a test.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from reports.rows.cases import Case
from store.types import Corpus, EncoderSpec, SetKey, canonical_json

Row: TypeAlias = Mapping[str, Any]

TABLES = ("results", "comparisons", "slices", "batches", "runs")


class Sealed(Protocol):
    """What a report says about a sealed embedding set (``store.SealedSet``)."""

    key: SetKey
    tag: str
    version: int
    n_rows: int
    digest: str
    sealed_at: datetime
    n_bytes: int


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

    @cached_property
    def _cells(self) -> Mapping[tuple[str, str, str], tuple[Row, ...]]:
        """Results by corpus, protocol and metric, best first; without a value last; equal values by name."""
        cells: dict[tuple[str, str, str], list[Row]] = {}
        for row in self.results:
            cells.setdefault((row["corpus"], row["protocol"], row["metric"]), []).append(row)
        return {key: tuple(sorted(rows, key=_place)) for key, rows in cells.items()}

    @cached_property
    def _protocols(self) -> Mapping[str, Mapping[str, tuple[Row, ...]]]:
        """Results by corpus and protocol, both by name."""
        found: dict[str, dict[str, list[Row]]] = {}
        for row in self.results:
            found.setdefault(row["corpus"], {}).setdefault(row["protocol"], []).append(row)
        return {c: {p: tuple(rows) for p, rows in sorted(of.items())} for c, of in sorted(found.items())}

    def corpus_names(self, having: Callable[[str], bool] = lambda _: True) -> list[str]:
        """Corpora with a protocol that ``having`` accepts: those with most queries first, then by name."""
        queries = {
            corpus: max((r["n_queries"] for p, rows in of.items() if having(p) for r in rows), default=-1)
            for corpus, of in self._protocols.items()
        }
        return sorted((name for name, n in queries.items() if n >= 0), key=lambda name: (-queries[name], name))

    def encoder_names(self, corpus: str | None = None) -> list[str]:
        """Encoders with a result there, by name."""
        chosen = self._protocols if corpus is None else {corpus: self._protocols.get(corpus, {})}
        return sorted({r["encoder"] for of in chosen.values() for rows in of.values() for r in rows})

    def protocols(self, corpus: str) -> list[str]:
        """Protocol ids with a result on that corpus, by name."""
        return list(self._protocols.get(corpus, ()))

    def of(self, corpus: str, protocol: str) -> tuple[Row, ...]:
        """The results of one protocol on one corpus."""
        return self._protocols.get(corpus, {}).get(protocol, ())

    def ranked(self, corpus: str, protocol: str, metric: str) -> tuple[Row, ...]:
        """The rows of one metric, best first; without a value last; equal values by name."""
        return self._cells.get((corpus, protocol, metric), ())

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


def _place(row: Row) -> tuple[bool, float, str]:
    """Sort key of :meth:`Evidence.ranked`."""
    sign = 1.0 if row["metric"] in SMALLER_IS_BETTER else -1.0
    return row["value"] is None, sign * (row["value"] or 0.0), row["encoder"]


SMALLER_IS_BETTER = frozenset({"median_rank", "mean_rank"})


def plain(value: Any) -> Any:
    """A stored value as JSON can hold it: times as ISO text, not-a-number as null."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, float) and value != value:  # noqa: PLR0124 - the usual test for NaN
        return None
    return value
