"""The results of one encoder on one corpus, derived from its outcomes: every metric, RSUM, means over languages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from capim.store.schema import Replicates, Result, Subject
from capim.tasks.derive import Derivation, Made, Work, derive, one_by_one
from capim.tasks.metrics import METRICS, Metric, metrics_of, version_of
from capim.tasks.metrics.retrieval import RECALLS
from capim.tasks.metrics.table import RSUM, stored_facts
from capim.tasks.protocols import MAIN, Kind, Protocol
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import drawn_clusters, drawn_images, protocols_of, select_protocols
from capim.tasks.results.combined import SUMMARISED, LanguagePart, language_rows, part_of, rsum_row
from capim.tasks.results.scoring import ScoredSets
from capim.tasks.results.summary import Evaluated, Source, replicate_rows, result_key, result_rows
from capim.tasks.statistics.draws import Resampling


@dataclass(frozen=True, kw_only=True)
class Figures:
    """The results of an encoder on a corpus: by every metric of the table, RSUM, means over languages.

    Attributes:
        scored: Protocols, and the evaluations with their outcomes.
        resampling: How intervals are drawn.
        run: Id of the run that makes them.
        keep_replicates: Also store every bootstrap draw.
        table: Metrics that a user gave, instead of the table's.
        outcomes: Gives the outcomes of protocols, those that are computed together in one list; None: they are read
            from the store, one protocol after the other.
        added: Protocol id -> number of results that were made, counted on the way.
        languages: Protocol id -> what means over languages need of it, of the outcomes that passed.
    """

    scored: ScoredSets
    resampling: Resampling
    run: str = ""
    keep_replicates: bool = False
    table: Sequence[Metric] | None = None
    outcomes: Callable[[Sequence[Protocol]], Iterable[Sequence[Outcomes]]] | None = None
    added: Counter[str] = field(default_factory=Counter)
    languages: dict[str, LanguagePart] = field(default_factory=dict)

    def derive(self) -> tuple[str, ...]:
        """Make the results that the store lacks; return the keys of all."""
        return derive(self.scored.store, *self.works(), run=self.run).uses

    def works(self) -> tuple[Work, Work, Work]:
        """Return the results of one protocol each, those of several, and the draws that are kept of the former."""
        settings = self.resampling.used(by_draws=True)
        draws = [replace(each, kind="replicates", settings=settings) for each in self._of_one.values()]
        several = [
            self._several(protocols, *RSUM) if kind == "sum" else self._several(protocols, "*", *SUMMARISED)
            for kind, protocols in self._joint.items()
        ]
        return (
            Work(table="results", wanted=[*self._of_one.values()], compute=self.metrics),
            Work(table="results", wanted=several, compute=one_by_one(self.over_several)),
            Work(table="replicates", wanted=draws if self.keep_replicates else [], compute=one_by_one(self.replicates)),
        )

    @cached_property
    def _joint(self) -> Mapping[Kind, Sequence[Protocol]]:
        """Return the protocols with results to add up (``sum``) or to average over all languages (``mean``).

        Only where all of them were evaluated; in the order of the corpus, on which the id of their evaluation depends.
        """
        corpus, evaluated = self.scored.corpus, self.scored.evaluations.keys()
        main = select_protocols(corpus, MAIN) if evaluated >= set(MAIN) else ()
        every = tuple(protocol for protocol in protocols_of(corpus) if protocol.is_of_language)
        languages = every if evaluated >= {protocol.id for protocol in every} else ()
        groups: dict[Kind, tuple[Protocol, ...]] = {"sum": main, "mean": languages}
        return {kind: protocols for kind, protocols in groups.items() if protocols and not self.table}

    @cached_property
    def _of_one(self) -> dict[tuple[str, str], Derivation]:
        """Return protocol id and metric -> the derivation of its result."""
        found = [
            Derivation(
                kind="result",
                subject=Subject(protocol=protocol.id, metric=metric.name, facts=stored_facts(metric)),
                inputs=[self.scored.evaluations[protocol.id], *metric.inputs([self.scored.evaluations[protocol.id]])],
                settings=self.resampling.used(by_draws=callable(metric.reduce)),
                version=str(metric.version),
            )
            for protocol in self.scored.protocols
            for metric in self.table or METRICS.values()
            if metric.suits(protocol)
        ]
        return {each.subject.figure: each for each in found}

    def _several(self, protocols: Sequence[Protocol], protocol: str, *names: str) -> Derivation:
        return Derivation(
            kind="result",
            subject=Subject(protocol=protocol, metric=", ".join(names)),
            inputs=[self.scored.evaluations[one.id] for one in protocols],
            settings=self.resampling.used(),
            version="; ".join(str(version_of(name)) for name in names),
        )

    def metrics(self, todo: Sequence[Derivation]) -> Iterator[Made]:
        """Yield results of single protocols; those with outcomes read together share one pass over the draws."""
        places = {each.subject.figure: at for at, each in enumerate(todo)}
        lacking = {protocol for protocol, _ in places}
        protocols = [each for each in self.scored.protocols if each.id in lacking]
        read = ([self.scored.read(protocol)] for protocol in protocols)
        for together in self.outcomes(protocols) if self.outcomes else read:
            for each in together:
                if each.protocol in self._joint.get("mean", ()):
                    self.languages[each.protocol.id] = self._language(each)
            having = {each.protocol.id for each in together}
            made: dict[int, list[Result]] = {at: [] for (protocol, _), at in places.items() if protocol in having}
            for row in result_rows([self._evaluated(each, places) for each in together], self.resampling):
                made[places[row.protocol, row.metric]].append(row)
                self.added[row.protocol] += 1
            yield made

    def over_several(self, each: Derivation) -> list[Result]:
        """Return RSUM, or the means over languages; no rows where imported ranks leave a recall open."""
        kind: Kind = "sum" if each.subject.protocol == RSUM.protocol else "mean"
        scored, protocols = self.scored, self._joint[kind]
        source = self._source(scored.joint_evaluation(protocols))
        if kind == "mean":
            parts = [self.languages.get(one.id) or self._language(scored.read(one)) for one in protocols]
            reference = scored.corpus.languages_reference
            rows = language_rows(parts, source, reference=reference, resampling=self.resampling)
        else:
            t2i, i2t = (scored.read(one) for one in protocols)
            recalls = {metric.name for metric in RECALLS}
            if not all(recalls <= {metric.name for metric in metrics_of(one)} for one in (t2i, i2t)):
                return []
            rows = [rsum_row(t2i, i2t, source, drawn=drawn_images(scored.corpus), resampling=self.resampling)]
        return rows

    def replicates(self, each: Derivation) -> list[Replicates]:
        """Return every draw of a result; they name the row of the result."""
        figure = each.subject.figure
        [protocol] = [one for one in self.scored.protocols if one.id == figure[0]]
        evaluated = self._evaluated(self.scored.read(protocol), {figure})
        result = self._of_one[figure].row_key(result_key(evaluated.source, *figure))
        return [replace(row, result=result) for row in replicate_rows(evaluated, self.resampling)]

    def _evaluated(self, outcomes: Outcomes, wanted: Container[tuple[str, str]]) -> Evaluated:
        """Return the outcomes of a protocol with the metrics that are wanted: pairs of protocol and metric."""
        protocol = outcomes.protocol.id
        metrics = [metric for metric in metrics_of(outcomes, self.table) if (protocol, metric.name) in wanted]
        source = self._source(self.scored.evaluations[protocol])
        return Evaluated.of(outcomes, self.scored.corpus, source, metrics)

    def _source(self, evaluation: str) -> Source:
        return Source(**vars(self.scored.sets), **self.scored.tags, evaluation=evaluation, run=self.run)

    def _language(self, outcomes: Outcomes) -> LanguagePart:
        """Return what means over languages need of the outcomes of one language."""
        return part_of(outcomes, drawn=drawn_clusters(self.scored.corpus, outcomes.protocol))


def outdated_results(rows: Iterable[Result]) -> list[Result]:
    """Return the results by another version of their metric than that of today's table."""
    rows = list(rows)
    today = {metric: version_of(metric) for metric in {row.metric for row in rows}}
    return [row for row in rows if today[row.metric] not in (None, row.metric_version)]
