"""Writes the results of one encoder on one corpus: every metric, RSUM, and means over languages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

import pyarrow as pa

from store.schema import RESULTS
from store.types import EvalProtocol
from tasks.metrics import metrics_of
from tasks.results.languages import Part, language_rows, part_of
from tasks.results.replicates import replicate_rows
from tasks.results.rsum import rsum_row
from tasks.results.summary import Evaluated, Provenance, result_rows
from tasks.runtime.scoring import ScoredSets
from tasks.scoring.outcomes import Outcomes
from tasks.scoring.protocols.layout import cluster_count
from tasks.statistics.resampling import METHODS, Resampling


@dataclass(frozen=True, kw_only=True)
class ResultWriter:
    """Writes result rows of ``scored``, their intervals drawn by ``resampling``, for the run of that id."""

    scored: ScoredSets
    resampling: Resampling
    run: str

    def renew(self, evaluations: Sequence[str]) -> dict[str, int]:
        """Write results of these evaluations that were computed with the same settings again as this run's.

        Returns:
            Protocol id -> number of queries, of those results.
        """
        rows = self.scored.store.rows("results", evaluation=evaluations).to_pylist()
        settings = (self.resampling.replicates, self.resampling.seed, self.resampling.level)
        same = [row for row in rows if (row["replicates"], row["seed"], row["level"]) == settings]
        methods = {*METHODS} - {self.resampling.method}
        other_methods = {row["protocol"] for row in same if row["interval_method"] in methods}
        renewed = [row for row in same if row["protocol"] not in other_methods]
        now = datetime.now(UTC)
        self._write(
            "results",
            pa.Table.from_pylist([{**row, "run": self.run, "created": now} for row in renewed], schema=RESULTS),
        )
        return {row["protocol"]: row["n_queries"] for row in renewed}

    def write_metrics(self, protocols: Sequence[Outcomes], *, keep_replicates: bool) -> None:
        """Every metric of several protocols with its interval; with ``keep_replicates`` also every bootstrap draw."""
        evaluated = [
            Evaluated(
                outcomes=outcomes,
                metrics=metrics_of(outcomes),
                provenance=self._provenance(self.scored.evaluations[outcomes.protocol.id]),
                n_clusters=cluster_count(self.scored.corpus, outcomes.protocol),
            )
            for outcomes in protocols
        ]
        self._write("results", result_rows(evaluated, self.resampling))
        if keep_replicates:
            for of_protocol in evaluated:
                self._write("replicates", replicate_rows(of_protocol, self.resampling))

    def write_rsum(self, protocols: Sequence[EvalProtocol]) -> None:
        """The sum of six recalls, from the stored outcomes of a text-to-image and an image-to-text protocol."""
        t2i, i2t = (self.scored.read(protocol) for protocol in protocols)
        source, n_clusters = self._joint_provenance(protocols), len(self.scored.corpus.images)
        self._write("results", rsum_row(t2i, i2t, source, n_clusters=n_clusters, resampling=self.resampling))

    def language(self, outcomes: Outcomes) -> Part:
        """What means over languages need of the outcomes of one language."""
        return part_of(outcomes, n_clusters=cluster_count(self.scored.corpus, outcomes.protocol))

    def write_languages(self, protocols: Sequence[EvalProtocol], languages: Mapping[str, Part]) -> None:
        """Means over languages; those missing from ``languages`` are made from stored outcomes."""
        parts = [languages.get(protocol.id) or self.language(self.scored.read(protocol)) for protocol in protocols]
        source, reference = self._joint_provenance(protocols), self.scored.corpus.languages_reference
        self._write("results", language_rows(parts, source, reference=reference, resampling=self.resampling))

    def _joint_provenance(self, protocols: Sequence[EvalProtocol]) -> Provenance:
        return self._provenance(self.scored.joint_evaluation(protocols))

    def _provenance(self, evaluation: str) -> Provenance:
        return Provenance(
            **asdict(self.scored.sets),
            evaluation=evaluation,
            run=self.run,
            image_tag=self.scored.image_tag,
            caption_tag=self.scored.caption_tag,
        )

    def _write(self, table: str, rows: pa.Table) -> None:
        self.scored.store.write_rows(table, rows, replace="result")
