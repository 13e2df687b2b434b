"""Writes figures, and keeps, renews or drops those that are stored: of every metric, RSUM, means over languages.

What is stored and holds with the settings of a run is not computed again. Comparisons are written as families.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pyarrow as pa

from capim.store.embedding_store import EmbeddingStore
from capim.store.removal import drop_derived, drop_stale
from capim.store.schema import METRICS as METRIC_ROWS
from capim.store.schema import RESULTS, texts
from capim.store.types import MetricFacts, digest16
from capim.tasks.metrics import METRICS, facts_of, metrics_of, version_of
from capim.tasks.protocols import MAIN, Kind, Protocol
from capim.tasks.ranking.layout import drawn_clusters, drawn_images
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import protocols_of, select_protocols
from capim.tasks.results.combined import LanguagePart, language_rows, part_of, rsum_row
from capim.tasks.results.comparison import SIDES
from capim.tasks.results.summary import Evaluated, replicate_rows, result_rows
from capim.tasks.runtime.scoring import ScoredSets
from capim.tasks.statistics import VERSION
from capim.tasks.statistics.draws import Resampling


class Renewed(NamedTuple):
    """The results of one protocol that were computed with the settings of this run: metrics, and their most queries.

    ``outdated`` are metrics with results by another version of theirs.
    """

    metrics: frozenset[str]
    n_queries: int
    outdated: frozenset[str] = frozenset()

    def lacks(self, protocol: Protocol) -> bool:
        """Whether a metric of the table has no result, of those that the protocol's outcomes determine.

        Which kinds of metrics apply is known without the outcomes: a protocol has results of every kind or of none.
        """
        known = (self.metrics | self.outdated) & METRICS.keys()
        several = any(METRICS[name].several for name in known)
        needs = {METRICS[name].needs for name in known}
        judged = protocol.kind == "judged"
        return any(
            name not in self.metrics
            and protocol.direction in metric.directions
            and metric.judged in (None, judged)
            and (several or judged) >= metric.several
            and (metric.needs in needs or not metric.needs)
            for name, metric in METRICS.items()
        )


@dataclass(frozen=True, kw_only=True)
class ResultWriter:
    """Writes result rows of ``scored``, their intervals drawn by ``resampling``, for the run of that id."""

    scored: ScoredSets
    resampling: Resampling
    run: str

    def renew(self, evaluations: Sequence[str], *, keep_replicates: bool) -> dict[str, Renewed]:
        """Write results of these evaluations that were computed with the same settings again as this run's.

        With ``keep_replicates`` only those that have replicates, apart from figures over several protocols, which have
        none, and those of users' metrics. What was made of results by another version of a metric is dropped; the
        results stay until :meth:`drop_outdated`.

        Returns:
            Protocol id -> its results in the store, of those that have any.
        """
        store = self.scored.store
        rows = store.rows("results", evaluation=evaluations).to_pylist()
        outdated = outdated_results(rows)
        drop_derived(store, outdated)
        anew = {row["result"] for row in outdated}
        if any(map(_over_several, outdated)):  # these are made together
            anew |= {row["result"] for row in rows if _over_several(row)}
        settings = (self.resampling.replicates, self.resampling.seed, self.resampling.level, VERSION)
        same = [
            row
            for row in rows
            if (row["replicates"], row["seed"], row["level"], row["statistics_version"]) == settings
            and row["result"] not in anew
        ]
        unlike = {row["result"] for row in same if self._is_of_another_method(row)}
        # where there is no interval, the row does not say which method it was not computed by
        others = {row["protocol"] for row in same if row["result"] in unlike and row["metric"] in METRICS}
        renewed = [row for row in same if row["result"] not in unlike and row["protocol"] not in others]
        if keep_replicates:
            kept = store.counts("replicates", "result", evaluation=evaluations).keys()
            renewed = [r for r in renewed if r["result"] in kept or r["metric"] not in METRICS or _over_several(r)]
        now = datetime.now(UTC)
        self._write(pa.Table.from_pylist([{**row, "run": self.run, "created": now} for row in renewed], schema=RESULTS))
        by_protocol: dict[str, list[dict[str, Any]]] = {}
        for row in renewed:
            by_protocol.setdefault(row["protocol"], []).append(row)
        return {
            protocol: Renewed(
                frozenset(row["metric"] for row in rows),
                max(row["n_queries"] for row in rows),
                frozenset(row["metric"] for row in outdated if row["protocol"] == protocol),
            )
            for protocol, rows in by_protocol.items()
        }

    def drop_outdated(self, evaluations: Sequence[str]) -> None:
        """Drop results by another version of their metric, which applies to no query of these evaluations any more."""
        rows = outdated_results(self.scored.store.rows("results", evaluation=evaluations).to_pylist())
        drop_stale(self.scored.store, "results", "result", kept=(), result=[row["result"] for row in rows])

    def _is_of_another_method(self, row: Mapping[str, Any]) -> bool:
        """Whether the interval of a result is not the one that the metric gets by the method requested now."""
        if row["reason"] is not None:  # no interval, or the one of a share where all queries hit or miss
            return False
        share = row["metric"] in METRICS and METRICS[row["metric"]].share and not _over_several(row)
        requested = self.resampling.method
        expected = "percentile" if requested == "wilson" and not share else requested
        return bool(row["interval_method"] != expected)

    def write_metrics(
        self, protocols: Sequence[Outcomes], *, keep_replicates: bool, present: Mapping[str, Renewed]
    ) -> int:
        """The metrics of several protocols with their intervals, except those of a protocol that are ``present``.

        With ``keep_replicates`` also every bootstrap draw. Returns the number of figures.
        """
        having = {protocol: found.metrics for protocol, found in present.items()}
        evaluated = [
            Evaluated.of(
                outcomes,
                self.scored.corpus,
                self._source(self.scored.evaluations[outcomes.protocol.id]),
                [m for m in metrics_of(outcomes) if m.name not in having.get(outcomes.protocol.id, ())],
            )
            for outcomes in protocols
        ]
        rows = result_rows(evaluated, self.resampling)
        self._write(rows)
        if keep_replicates:
            for of_protocol in evaluated:
                self.scored.store.write_rows(
                    "replicates", replicate_rows(of_protocol, self.resampling), replace="result"
                )
        return len(rows)

    def write_rsum(self, protocols: Sequence[Protocol]) -> None:
        """The sum of six recalls, from the stored outcomes of a text-to-image and an image-to-text protocol."""
        t2i, i2t = (self.scored.read(protocol) for protocol in protocols)
        source, drawn = self._source(self.scored.joint_evaluation(protocols)), drawn_images(self.scored.corpus)
        self._write(rsum_row(t2i, i2t, source, drawn=drawn, resampling=self.resampling))

    def language(self, outcomes: Outcomes) -> LanguagePart:
        """What means over languages need of the outcomes of one language."""
        return part_of(outcomes, drawn=drawn_clusters(self.scored.corpus, outcomes.protocol))

    def write_languages(self, protocols: Sequence[Protocol], languages: Mapping[str, LanguagePart]) -> None:
        """Means over languages; those missing from ``languages`` are made from stored outcomes."""
        parts = [languages.get(protocol.id) or self.language(self.scored.read(protocol)) for protocol in protocols]
        source, reference = (
            self._source(self.scored.joint_evaluation(protocols)),
            self.scored.corpus.languages_reference,
        )
        self._write(language_rows(parts, source, reference=reference, resampling=self.resampling))

    def _source(self, evaluation: str) -> dict[str, str]:
        return {**asdict(self.scored.sets), **self.scored.tags, "evaluation": evaluation, "run": self.run}

    def _write(self, rows: pa.Table) -> None:
        write_results(self.scored.store, rows, run=self.run)


def write_results(store: EmbeddingStore, rows: pa.Table, *, run: str, replace: str = "result") -> None:
    """Store rows of ``schema.RESULTS``, and what readers have to know of their metrics."""
    store.write_rows("results", rows, replace=replace)
    record_metrics(store, map(facts_of, sorted(set(texts(rows["metric"])))), run=run)


def record_metrics(store: EmbeddingStore, metrics: Iterable[MetricFacts | None], *, run: str) -> None:
    """Store what readers have to know of these metrics, where the store does not say it yet."""
    given = {each.name: each.columns() for each in metrics if each is not None}
    if not given:
        return
    kept = {row["metric"]: MetricFacts.of_row(row) for row in store.rows("metrics", metric=list(given)).to_pylist()}
    new = {name: columns for name, columns in given.items() if name not in kept or kept[name].columns() != columns}
    if new:
        written = {"run": run, "created": datetime.now(UTC)}
        rows = [{"metric": name, **columns, **written} for name, columns in new.items()]
        store.write_rows("metrics", pa.Table.from_pylist(rows, schema=METRIC_ROWS), replace="metric")


def joint_protocols(scored: ScoredSets) -> dict[Kind, tuple[Protocol, ...]]:
    """The protocols whose figures are added up (``sum``), and those that are averaged over all languages (``mean``).

    Only where all of them were evaluated; in the order of the corpus, on which the id of their evaluation depends.
    """
    main = select_protocols(scored.corpus, MAIN) if scored.evaluations.keys() >= set(MAIN) else ()
    every = tuple(protocol for protocol in protocols_of(scored.corpus) if protocol.is_of_language)
    languages = every if scored.evaluations.keys() >= {protocol.id for protocol in every} else ()
    groups: dict[Kind, tuple[Protocol, ...]] = {"sum": tuple(main), "mean": languages}
    return {kind: protocols for kind, protocols in groups.items() if protocols}


def outdated_results(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The results by another version of their metric than that of today's table."""
    rows = list(rows)
    today = {metric: version_of(metric) for metric in {row["metric"] for row in rows}}
    return [row for row in rows if today[row["metric"]] not in (None, row["metric_version"])]


def of_family(rows: pa.Table, encoders: Iterable[str]) -> pa.Table:
    """Comparisons with the keys that they have among those of encoders with these fingerprints."""
    keys = [digest16([key, *sorted(encoders)]) for key in texts(rows["comparison"])]
    place = rows.schema.get_field_index("comparison")
    return rows.set_column(place, rows.schema.field(place), pa.array(keys, pa.string()))


def write_family(store: EmbeddingStore, rows: pa.Table) -> None:
    """Write the comparisons of one request on one corpus, which :func:`of_family` gives.

    They replace comparisons of the same encoders, and of some of them. Those of a request with more encoders stay, and
    so do comparisons that an earlier run found as well; not so those by another version of the metric or the tests.
    """
    if not rows.num_rows:
        return
    encoders = sorted({fingerprint for side in SIDES for fingerprint in texts(rows[side])})
    keys = texts(rows["comparison"])
    store.write_rows("comparisons", rows, replace="comparison")
    figures = {name: sorted({*texts(rows[name])}) for name in ("corpus_fingerprint", "protocol", "metric")}
    stored = store.rows("comparisons", **figures)
    versions = ("metric_version", "statistics_version")
    written = {(row["protocol"], row["metric"]): [row[name] for name in versions] for row in rows.to_pylist()}
    found = {row["comparison"]: row for row in stored.to_pylist()}
    if outdated := [
        key
        for key, row in found.items()
        if written.get((row["protocol"], row["metric"])) not in (None, [row[name] for name in versions])
    ]:
        drop_stale(store, "comparisons", "comparison", kept=(), comparison=outdated)
    if {fingerprint for side in SIDES for fingerprint in texts(stored[side])} <= {*encoders}:
        drop_stale(store, "comparisons", "comparison", kept=keys, **figures)


def _over_several(row: Mapping[str, Any]) -> bool:
    """Whether a result is a figure over several protocols."""
    return Protocol.of(row["protocol"]).is_combined
