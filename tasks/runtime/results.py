"""The figures of one encoder on one corpus, derived from its outcomes: every metric, RSUM, means over languages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from capim.store.schema import RESULTS, texts
from capim.tasks.derive import Derivation, Made, derive, one_by_one, with_column
from capim.tasks.metrics import METRICS, Metric, metrics_of, version_of
from capim.tasks.metrics.retrieval import RECALLS
from capim.tasks.metrics.table import RSUM, stored_facts
from capim.tasks.protocols import MAIN, Kind, Protocol
from capim.tasks.ranking.layout import drawn_clusters, drawn_images
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import protocols_of, select_protocols
from capim.tasks.results.combined import SUMMARISED, LanguagePart, language_rows, part_of, rsum_row
from capim.tasks.results.summary import Evaluated, Source, replicate_rows, result_key, result_rows
from capim.tasks.runtime.scoring import ScoredSets
from capim.tasks.statistics.draws import Resampling

SETTINGS = ("replicates", "seed", "level", "method")  # fields of Resampling that change a result


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What :func:`derive_figures` made or found.

    Attributes:
        added: Protocol id -> number of figures that were made now.
    """

    uses: tuple[str, ...]
    added: Mapping[str, int]


def derive_figures(
    scored: ScoredSets,
    *,
    resampling: Resampling,
    run: str,
    keep_replicates: bool = False,
    metrics: Sequence[Metric] | None = None,
    outcomes: Callable[[Sequence[Protocol]], Iterable[Sequence[Outcomes]]] | None = None,
) -> Figures:
    """Make the results of ``scored`` that the store lacks: by every metric of the table, RSUM, means over languages.

    Args:
        scored: Protocols, and the evaluations with their outcomes.
        resampling: How intervals are drawn.
        run: Id of the run that makes them.
        keep_replicates: Also store every bootstrap draw.
        metrics: Metrics that a user gave, instead of the table's.
        outcomes: Gives the outcomes of protocols, those that are computed together in one list; by default they are
            read from the store, one protocol after the other.
    """
    making = _Making(scored=scored, resampling=resampling, run=run, joint=joint_protocols(scored), table=metrics)
    of_one, of_several, replicates = wanted_figures(scored, resampling, metrics, keep_replicates=keep_replicates)
    work: list[tuple[str, Sequence[Derivation], Callable[[Sequence[Derivation]], Iterable[Made]]]] = [
        ("results", of_one, partial(making.metrics, outcomes or making.read)),
        ("results", of_several, one_by_one(making.over_several)),
        ("replicates", replicates, one_by_one(making.replicates)),
    ]
    keys = [key for each in work if each[1] for key in derive(scored.store, *each, run=run)]
    return Figures(uses=tuple(keys), added=making.added)


def wanted_figures(
    scored: ScoredSets, resampling: Resampling, metrics: Sequence[Metric] | None = None, *, keep_replicates: bool
) -> tuple[list[Derivation], list[Derivation], list[Derivation]]:
    """The figures of one protocol each, those of several, and the bootstrap draws that are kept of the former."""
    settings = {name: getattr(resampling, name) for name in SETTINGS}

    def several(protocols: Sequence[Protocol], protocol: str, *names: str) -> Derivation:
        return Derivation(
            kind="result",
            subject={"protocol": protocol, "metric": ", ".join(names)},
            inputs=[scored.evaluations[one.id] for one in protocols],
            settings=settings,
            version="; ".join(str(version_of(name)) for name in names),
        )

    of_one = [
        Derivation(
            kind="result",
            subject={"protocol": protocol.id, "metric": metric.name, **stored_facts(metric)},
            inputs=[scored.evaluations[protocol.id], *metric.inputs([scored.evaluations[protocol.id]])],
            settings=settings,
            version=str(metric.version),
        )
        for protocol in scored.protocols
        for metric in metrics or METRICS.values()
        if metric.suits(protocol)
    ]
    joint = {} if metrics else joint_protocols(scored)
    of_several = [
        several(protocols, *RSUM) if kind == "sum" else several(protocols, "*", *SUMMARISED)
        for kind, protocols in joint.items()
    ]
    return of_one, of_several, [replace(each, kind="replicates") for each in of_one] if keep_replicates else []


@dataclass(frozen=True, kw_only=True)
class _Making:
    """Makes figures.

    Attributes:
        added: Protocol id -> number of figures, counted on the way.
        table: Metrics that a user gave, instead of the table's.
        languages: Protocol id -> what means over languages need of it, of the outcomes that passed.
    """

    scored: ScoredSets
    resampling: Resampling
    run: str
    joint: Mapping[Kind, Sequence[Protocol]]
    table: Sequence[Metric] | None = None
    added: Counter[str] = field(default_factory=Counter)
    languages: dict[str, LanguagePart] = field(default_factory=dict)

    def read(self, protocols: Sequence[Protocol]) -> Iterator[list[Outcomes]]:
        """The stored outcomes, one protocol after the other."""
        return ([self.scored.read(protocol)] for protocol in protocols)

    def metrics(
        self, outcomes: Callable[[Sequence[Protocol]], Iterable[Sequence[Outcomes]]], todo: Sequence[Derivation]
    ) -> Iterator[Made]:
        """Figures of one protocol each, those whose outcomes come together in one pass over the draws."""
        places = {(each.subject["protocol"], each.subject["metric"]): at for at, each in enumerate(todo)}
        lacking = {protocol for protocol, _ in places}
        for together in outcomes([each for each in self.scored.protocols if each.id in lacking]):
            for each in together:
                if each.protocol in self.joint.get("mean", ()):
                    self.languages[each.protocol.id] = self._language(each)
            having = {each.protocol.id for each in together}
            made = {at: RESULTS.empty_table() for (protocol, _), at in places.items() if protocol in having}
            rows = result_rows([self._evaluated(each, places) for each in together], self.resampling)
            for at, figure in enumerate(zip(texts(rows["protocol"]), texts(rows["metric"]), strict=True)):
                made[places[figure]] = rows.slice(at, 1)
                self.added[figure[0]] += 1
            yield made

    def over_several(self, each: Derivation) -> pa.Table:
        """RSUM, or the means over languages; no rows where imported ranks leave a recall open."""
        kind: Kind = "sum" if each.subject["protocol"] == RSUM.protocol else "mean"
        scored, protocols = self.scored, self.joint[kind]
        source = self._source(scored.joint_evaluation(protocols))
        if kind == "mean":
            parts = [self.languages.get(one.id) or self._language(scored.read(one)) for one in protocols]
            reference = scored.corpus.languages_reference
            rows = language_rows(parts, source, reference=reference, resampling=self.resampling)
        else:
            t2i, i2t = (scored.read(one) for one in protocols)
            recalls = {metric.name for metric in RECALLS}
            if not all(recalls <= {metric.name for metric in metrics_of(one)} for one in (t2i, i2t)):
                return RESULTS.empty_table()
            rows = rsum_row(t2i, i2t, source, drawn=drawn_images(scored.corpus), resampling=self.resampling)
        return rows

    def replicates(self, each: Derivation) -> pa.Table:
        """Every draw of a figure; they name the row of the figure."""
        figure = each.subject["protocol"], each.subject["metric"]
        [protocol] = [one for one in self.scored.protocols if one.id == figure[0]]
        evaluated = self._evaluated(self.scored.read(protocol), {figure})
        rows = replicate_rows(evaluated, self.resampling)
        result = replace(each, kind="result").row_key(result_key(evaluated.source, *figure))
        return with_column(rows, "result", [result] * len(rows))

    def _evaluated(self, outcomes: Outcomes, wanted: Container[tuple[str, str]]) -> Evaluated:
        """The outcomes of a protocol with those of their metrics that are wanted: pairs of protocol and metric."""
        protocol = outcomes.protocol.id
        metrics = [metric for metric in metrics_of(outcomes, self.table) if (protocol, metric.name) in wanted]
        source = self._source(self.scored.evaluations[protocol])
        return Evaluated.of(outcomes, self.scored.corpus, source, metrics)

    def _source(self, evaluation: str) -> Source:
        return {**asdict(self.scored.sets), **self.scored.tags, "evaluation": evaluation, "run": self.run}

    def _language(self, outcomes: Outcomes) -> LanguagePart:
        """What means over languages need of the outcomes of one language."""
        return part_of(outcomes, drawn=drawn_clusters(self.scored.corpus, outcomes.protocol))


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
