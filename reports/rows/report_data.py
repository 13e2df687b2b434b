"""The data of one report: stored rows in memory, with the look-ups that the sections need."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from capim.store import EmbeddingStore, SealedSet, schema
from capim.store.current import figure_of, grouped
from capim.store.errors import without_credentials
from capim.store.files import json_value
from capim.store.schema import Batch, Comparison, Import, LedgerEntry, Published, Ranking, Result, Run, Slice
from capim.store.types import Corpus, EncoderSpec, MetricFacts, canonical_json
from capim.tasks.metrics.retrieval import RECALLS
from capim.tasks.metrics.table import facts_of
from capim.tasks.protocols import Protocol
from capim.tasks.reference.published import ANALYSIS as REFERENCE

if TYPE_CHECKING:
    from capim.reports.rows.gallery import SelectedQuery, Totals

Figure: TypeAlias = tuple[str, str, str]
"""Corpus, protocol and metric."""
Detail: TypeAlias = Mapping[str, Any]
"""Details that an analysis adds to a slice, from JSON."""
M = TypeVar("M", Batch, Run)

R1 = RECALLS[0].name
WITHOUT = f"{R1} {schema.WITHOUT_AMBIGUOUS}"
_LIKELIHOOD = "negative log likelihood"
ANALYSIS_METRICS = {  # only of slices; all others are fractions
    _LIKELIHOOD: MetricFacts(name=_LIKELIHOOD, title=_LIKELIHOOD, heading="negative log-likelihood", place="none")
}


@dataclass(frozen=True, kw_only=True)
class ShownResult(Result):
    """A result, and its verdict against chance with one error budget for all results that are seen at once."""

    against_chance: str | None = None


@dataclass(frozen=True, kw_only=True)
class Before:
    """The results that were current when a run ended, and all stored comparisons, among which are tests of changes."""

    ended: datetime
    results: Mapping[tuple[str, str, str, str], Result]
    comparisons: Sequence[Comparison]


@dataclass(frozen=True, kw_only=True)
class ReportData:
    """The rows of one report.

    Attributes:
        uri: The location of the store.
        results: One row per encoder, corpus, protocol and metric.
        comparisons: Pairs of the encoders in ``results`` on the same corpora; by each result of one request, over the
            pairs over which p-values are adjusted.
        states: Sentences about encoders that have results on other states of a corpus only, and requested states.
        larger_families: Sentences about requests with more encoders than are shown.
        slices: Failure analysis and ablations of the same encoders and corpora.
        batches: Encoding times of the same encoders.
        runs: The runs named by any of the rows above, oldest first.
        sets: The sealed embedding sets of the encoders and corpora in ``results``.
        specs: Encoder name to its spec.
        corpora: Corpus name to its contents.
        queries: Single queries for the gallery.
        totals: Of every corpus and direction of the gallery, how many queries each encoder misses and finds.
        features: Corpus name and caption id to the features of the caption.
        thumbnails: Image hash to its stored thumbnail, for the images of ``queries``; and ``match_maps``.
        left_out: Sentences about stored results that this report does not show, and why.
        metrics: Stored facts about each metric in ``results``; see :meth:`metric`.
        rankings: The rows of one ranking of these encoders over some of these corpora; empty without one.
        imports: Origin of imported sets and outcomes, and how they were matched.
        published: Results of others under the corpora, protocols and metrics of ``results``.
        live: Whether the pages of `capim serve` show it, without a gallery.
        serve: Where `capim serve` shows this store while it runs; empty if that is not known.
        before: The state that the last completed run left before the one that wrote the newest result.
    """

    uri: str
    results: tuple[ShownResult, ...]
    comparisons: tuple[Comparison, ...]
    slices: tuple[Slice, ...]
    batches: tuple[Batch, ...]
    runs: tuple[Run, ...]
    sets: tuple[SealedSet, ...]
    specs: Mapping[str, EncoderSpec]
    corpora: Mapping[str, Corpus]
    queries: tuple[SelectedQuery, ...] = ()
    totals: tuple[Totals, ...] = ()
    features: Mapping[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    thumbnails: Mapping[str, bytes] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    larger_families: tuple[str, ...] = ()
    metrics: Mapping[str, MetricFacts] = field(default_factory=dict)
    rankings: tuple[Ranking, ...] = ()
    imports: tuple[Import, ...] = ()
    published: tuple[Published, ...] = ()
    live: bool = False
    serve: str = ""
    before: Before | None = None

    @cached_property
    def ambiguous(self) -> Mapping[tuple[str, str, str, str], Mapping[str, str]]:
        """Return ambiguous miss (corpus, protocol, encoder, query id) -> its causes and their sources.

        A source is empty for ``AGREEMENT``; see ``docs/metrics.md``.
        """
        marks: dict[tuple[str, str, str, str], dict[str, str]] = {}
        for row in self.slices:
            if row.analysis != schema.AMBIGUOUS or row.metric != schema.SHARE_OF_MISSES:
                continue
            if row.feature in schema.CAUSES and row.detail:
                detail = json.loads(row.detail)
                for at, query in enumerate(detail["queries"]):
                    key = row.corpus, row.protocol, row.encoder, query
                    marks.setdefault(key, {})[row.feature] = detail["sources"][at] if "sources" in detail else ""
        return marks

    def picture(self, sha: str | None) -> str:
        """Return the key of an image's picture in the page; empty where it has none.

        A live page has the pictures of all images, at their own hashes; keys with a slash are those of maps.
        """
        if self.live:
            return "" if not sha or "/" in sha else sha
        return self._picture_keys.get(sha or "", "")

    @cached_property
    def _picture_keys(self) -> Mapping[str, str]:
        return {sha: f"p{number}" for number, sha in enumerate(self.thumbnails)}

    @cached_property
    def first_captions(self) -> Mapping[tuple[str, str], str]:
        """Return (corpus, image) -> text of its first caption, of images with one: it replaces a missing picture."""
        of = {name: corpus.captions.select(["image_id", "text"]).to_pylist() for name, corpus in self.corpora.items()}
        return {(name, row["image_id"]): row["text"] for name in of for row in reversed(of[name]) if row["text"]}

    @cached_property
    def _rows(self) -> Mapping[tuple[str, str, str, str], ShownResult]:
        return {(*figure_of(row), row.encoder): row for row in self.results}

    def row(self, corpus: str, protocol: str, metric: str, encoder: str) -> ShownResult | None:
        """Return the result of one encoder, or None where there is none."""
        return self._rows.get((corpus, protocol, metric, encoder))

    @cached_property
    def against_published(self) -> Mapping[tuple[str, str, str, str], Slice]:
        """Comparisons of results with published ones, by the arguments of :meth:`row`."""
        return {(*figure_of(row), row.encoder): row for row in self.slices if row.analysis == REFERENCE}

    def value(self, corpus: str, protocol: str, metric: str, encoder: str) -> float | None:
        """Return the value of :meth:`row`; None also where the row has no value."""
        row = self.row(corpus, protocol, metric, encoder)
        return None if row is None else row.value

    @cached_property
    def _comparisons(self) -> Mapping[tuple[str, str, str, str, str], Comparison]:
        either = [*map(reversed_comparison, self.comparisons), *self.comparisons]
        return {(*figure_of(row), row.encoder_a, row.encoder_b): row for row in either}

    def comparison(self, corpus: str, protocol: str, metric: str, a: str, b: str) -> Comparison | None:
        """Return the difference of ``a`` minus ``b`` with its test, however it is stored; None if not compared."""
        return self._comparisons.get((corpus, protocol, metric, a, b))

    @cached_property
    def _ranked(self) -> Mapping[Figure, tuple[ShownResult, ...]]:
        best_first = sorted(self.results, key=lambda row: (row.value is None, -goodness(row), row.encoder))
        return {key: tuple(rows) for key, rows in grouped(best_first, figure_of).items()}

    @cached_property
    def _protocols(self) -> Mapping[str, Mapping[str, tuple[ShownResult, ...]]]:
        """Results by corpus and protocol, both by name."""
        by_corpus = sorted(grouped(self.results, lambda row: row.corpus).items())
        by_protocol = {corpus: grouped(rows, lambda row: row.protocol) for corpus, rows in by_corpus}
        return {corpus: {p: tuple(of[p]) for p in sorted(of)} for corpus, of in by_protocol.items()}

    def corpus_names(self, having: Callable[[str], bool] = lambda _: True) -> list[str]:
        """Return corpora with a protocol that ``having`` accepts: those with most queries first, then by name."""
        queries = {
            corpus: max((r.n_queries for p, rows in of.items() if having(p) for r in rows), default=-1)
            for corpus, of in self._protocols.items()
        }
        return sorted((name for name, n in queries.items() if n >= 0), key=lambda name: (-queries[name], name))

    def encoder_names(self, corpus: str | None = None) -> list[str]:
        """Return encoders with a result there, by name."""
        chosen = self._protocols if corpus is None else {corpus: self._protocols.get(corpus, {})}
        return sorted({r.encoder for of in chosen.values() for rows in of.values() for r in rows})

    def protocol(self, corpus: str, id_: str) -> Protocol:
        """Return the protocol as the corpus has it; its titles say which captions it takes."""
        return Protocol.of(id_).on(self.corpora[corpus])

    def titled(self, corpus: str, id_: str) -> str:
        """Return the title of a protocol on a corpus, with the id."""
        return self.protocol(corpus, id_).titled

    def protocols(self, corpus: str) -> list[str]:
        """Return protocol ids with a result on that corpus, by name."""
        return list(self._protocols.get(corpus, ()))

    def of(self, corpus: str, protocol: str) -> tuple[ShownResult, ...]:
        """Return the results of one protocol on one corpus."""
        return self._protocols.get(corpus, {}).get(protocol, ())

    def ranked(self, corpus: str, protocol: str, metric: str) -> tuple[ShownResult, ...]:
        """Return the rows of one metric, best first; without a value last; equal values by name."""
        return self._ranked.get((corpus, protocol, metric), ())

    def metric(self, name: str) -> MetricFacts:
        """Return the stored facts about a metric; for one that only an analysis has, its name."""
        return (
            self.metrics.get(name)
            or ANALYSIS_METRICS.get(name)
            or MetricFacts(name=name, title=name, unit="percent", place="none")
        )

    @cached_property
    def digest(self) -> str:
        """SHA-256 over everything but ``uri``, ``live`` and ``serve``; equal digests mean equal reports."""
        rows = (
            *self.results, *self.comparisons, *self.rankings, *self.slices, *self.batches, *self.runs, *self.imports,
            *self.published,
        )  # fmt: skip
        contents = self.corpora.items()
        parts: tuple[Iterable[object], ...] = (
            map(columns, rows),
            (asdict(self.metrics[name]) for name in sorted(self.metrics)),
            ([sealed.tag, sealed.digest] for sealed in self.sets),
            ([name, of.fingerprint, of.licence, of.origin, of.main_metric] for name, of in sorted(contents)),
            ([n, s.fingerprint, s.licence, json_value(dict(s.facts))] for n, s in sorted(self.specs.items())),
            map(repr, (*self.queries, *self.totals, *sorted(self.features.items()))),
            ([key, hashlib.sha256(picture).hexdigest()] for key, picture in sorted(self.thumbnails.items())),
            [self.left_out, self.states, self.larger_families],
        )
        if (before := self.before) is not None:
            then = ([key, columns(result)] for key, result in sorted(before.results.items()))
            parts += ([str(before.ended)], then, ([row.comparison, row.p_sign_flip] for row in before.comparisons))
        total = hashlib.sha256()
        for part in parts:
            total.update("\n".join([*sorted(map(canonical_json, part)), "\n"]).encode())
        return total.hexdigest()


def facts_of_metrics(source: EmbeddingStore, results: Iterable[Result]) -> dict[str, MetricFacts]:
    """Return the facts about the metrics of these results by name: from the table, or as the ledger has them.

    The ledger has those of metrics that are not capim's: of a user, or of a package that may not be installed here.
    A metric that neither knows is one of an earlier release, which is no more: it is left out.
    """
    made_by = {row.metric: row.derived for row in results}
    found = {name: facts_of(name) for name in made_by}
    others = [key for name, facts in found.items() if facts is None and (key := made_by[name])]
    for entry in source.all(LedgerEntry, key=others) if others else ():
        subject = entry.subject
        name = subject.metric or ""
        if subject.facts or ":" in name:  # a user's metric in a store of 0.3.0 has no facts
            found[name] = MetricFacts(name=name, **json.loads(subject.facts or '{"title": ""}'))
    return {name: facts for name, facts in found.items() if facts is not None}


def goodness(row: Result) -> float:
    """Return the value of a result in the direction of its metric: higher is better; 0 without a value."""
    value = row.value or 0.0
    return -value if row.lower_is_better else value


def ends(value: float, low: float | None, high: float | None) -> tuple[float, float]:
    """Return the ends of an interval; where one is missing, the value.

    Examples:
        >>> ends(0.5, None, None), ends(0.5, 0.4, 0.6)
        ((0.5, 0.5), (0.4, 0.6))
    """
    first, last = (value if end is None or math.isnan(end) else end for end in (low, high))
    return first, last


def reversed_comparison(row: Comparison) -> Comparison:
    """Return a comparison of a minus b as b minus a: names, wins and losses exchanged, signs of differences turned."""

    def turned(number: float | None) -> float | None:
        return None if number is None else -number

    return replace(
        row,
        encoder_a=row.encoder_b,
        fingerprint_a=row.fingerprint_b,
        wins=row.losses,
        encoder_b=row.encoder_a,
        fingerprint_b=row.fingerprint_a,
        losses=row.wins,
        difference=turned(row.difference),
        ci_low=turned(row.ci_high),
        ci_high=turned(row.ci_low),
        simultaneous_low=turned(row.simultaneous_high),
        simultaneous_high=turned(row.simultaneous_low),
        cohen_dz=turned(row.cohen_dz),
    )


def detail_of(row: Slice) -> Detail:
    """Return the details that an analysis stored with a slice, with its seconds per query."""
    detail: Detail = json.loads(row.detail) if row.detail else {}
    return detail if row.seconds_per_query is None else {**detail, "seconds_per_query": row.seconds_per_query}


def of_package(rows: Sequence[Slice]) -> str:
    """Return the package of an analysis with the version that made these slices; empty for an analysis of capim."""
    package = (rows[0].analysis_version or "").partition(" of ")[2]
    return f" ({package})" if package else ""


_PATH = re.compile(r"(?<![\w:/.~*…])/(?:[^\s\"'/,;=]+/)+([^\s\"'/,;=]*)")

OF_THE_MACHINE = ("host", "pid", "uses", "same_as")
"""Columns of stored rows that reports leave out."""


def without_paths(text: str) -> str:
    """Return a text with every absolute path cut to its last part; addresses stay, without user and password.

    Examples:
        >>> without_paths("capim run --workspace /home/ada/work/ws --corpora ./photos")
        'capim run --workspace …/ws --corpora ./photos'
        >>> without_paths("s3://KEY:SECRET@bucket/store")
        's3://***@bucket/store'
        >>> without_paths("s3://bucket/store"), without_paths("t2i/all and i2t/any"), without_paths("/tmp/ws/")
        ('s3://bucket/store', 't2i/all and i2t/any', '…/ws/')
    """
    return _PATH.sub(_last_part, without_credentials(text))


def _last_part(found: re.Match[str]) -> str:
    return "…/" + (found[1] or f"{found[0].rstrip('/').rpartition('/')[2]}/")


def columns(row: object) -> dict[str, object]:
    """Return the columns of a stored row as JSON has them, without those about the machine."""
    return {name: json_value(value) for name, value in vars(row).items() if name not in OF_THE_MACHINE}


def redact(settings: Mapping[str, object]) -> dict[str, Any]:
    """Return settings or columns without absolute paths."""
    return {name: without_paths(value) if isinstance(value, str) else value for name, value in settings.items()}


def redacted(row: M) -> M:
    """Return a stored row of a run or a batch without the name of its machine and without absolute paths."""
    return replace(row, **redact(vars(row)) | {"host": ""})
