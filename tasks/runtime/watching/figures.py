"""The figures of a watch beside those of the pinned run: what fell, by how much, and whether by chance.

The family of the tests is the main metric of every protocol of every encoder and corpus of the watch: R@1, the group
score of quadruples, the accuracy of pairs, nDCG@10 of judged documents. The other metrics are exploratory: their large
drops are named, and cannot fail a watch.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from capim.store import EmbeddingStore
from capim.store.schema import WATCHED
from capim.tasks.metrics import METRICS
from capim.tasks.metrics.headline import headline_of
from capim.tasks.reference.changes import FigureChange
from capim.tasks.reference.regression import (
    FigureFalls,
    WatchFinding,
    WatchRule,
    judge_change,
    judge_figures,
    tested_changes,
)
from capim.tasks.runtime.references import EvaluationRef, SetsRef
from capim.tasks.runtime.stored import read_outcomes
from capim.tasks.runtime.watching.baseline import FigureId, Pinned, dates_of, pinned_baselines
from capim.tasks.runtime.watching.messages import Figure, Results, exploratory, not_comparable, summary_lines, weights
from capim.tasks.scoring.protocols.layout import drawn_clusters
from capim.tasks.scoring.protocols.selection import select_protocols
from capim.tasks.statistics.clusters import Clusters, known_queries
from capim.tasks.statistics.resampling import Resampling

SECONDS_PER_DAY = 86_400


@dataclass(frozen=True, kw_only=True)
class WatchedFigures:
    """What a watch found in its figures.

    Attributes:
        findings: Drops, and figures that cannot be compared.
        summary: What was compared with which run, the alarm level, and what to do next; one line each.
        baselines: The runs that figures were compared with.
    """

    findings: tuple[WatchFinding, ...]
    summary: tuple[str, ...]
    baselines: tuple[str, ...]


def watch_figures(
    store: EmbeddingStore,
    evaluated: Sequence[EvaluationRef],
    *,
    run: str,
    baseline: str | None,
    rule: WatchRule,
    resampling: Resampling,
    now: datetime,
) -> WatchedFigures:
    """Compare the figures of a run with their baselines as one family, and store what was found (table ``watched``)."""
    figures, last = _figures(store, evaluated, run, baseline)
    runs = sorted({figure.pinned.run for figure in figures if figure.pinned})
    since = dates_of(store, runs)
    evaluations = {figure.evaluation for figure in figures} | {figure.before.evaluation for figure in figures}
    stored = store.rows("results", evaluation=sorted(evaluations)).to_pylist()
    results = {(row["evaluation"], row["protocol"], row["metric"]): row for row in stored}
    level = rule.alarm_level(((now - last).total_seconds() / SECONDS_PER_DAY) if last else 0.0)

    states = {figure.id: _state(figure, results) for figure in figures}
    changed = [figure for figure in figures if states[figure.id] == "changed"]
    groups = _falls(store, changed, since)
    changes = {_id(change): change for change in tested_changes(groups, level=level, resampling=resampling)}
    states |= {each: judge_change(change, rule, level) or "none" for each, change in changes.items()}
    created = {"run": run, "alarm_level": level, "created": now}
    rows = [
        {**_row(figure, changes.get(figure.id), results, run), **created, "verdict": states[figure.id]}
        for figure in figures
    ]
    store.write_rows("watched", pa.Table.from_pylist(rows, schema=WATCHED))

    lost = [figure for figure in figures if states[figure.id] == "not comparable"]
    findings = [
        *judge_figures(changes.values(), rule, level),
        *not_comparable(lost, results, since),
        *exploratory(changed, stored, rule, since),
        *weights(store, changed, results),
    ]
    summary = summary_lines(figures, Counter(states.values()), since, run=run, level=level, rule=rule)
    return WatchedFigures(findings=tuple(findings), summary=summary, baselines=tuple(runs))


def _figures(
    store: EmbeddingStore, evaluated: Sequence[EvaluationRef], run: str, baseline: str | None
) -> tuple[list[Figure], datetime | None]:
    """The main metric of every protocol of these evaluations, and when any of them was last watched."""
    ids = [FigureId(ref.sets.encoder, ref.sets.corpus, protocol) for ref in evaluated for protocol in ref.evaluations]
    baselines = pinned_baselines(store, ids, run=run, baseline=baseline)
    figures = []
    for ref in evaluated:
        corpus = store.corpus(ref.sets.corpus, ref.sets.corpus_fingerprint)
        for protocol in select_protocols(corpus, list(ref.evaluations)):
            for _, metric in headline_of([protocol]):
                each = FigureId(ref.sets.encoder, ref.sets.corpus, protocol.id)
                figures.append(
                    Figure(
                        id=each,
                        metric=metric,
                        evaluation=ref.evaluations[protocol.id],
                        sets=ref.sets,
                        corpus=corpus,
                        protocol=protocol,
                        pinned=baselines.figures.get(each),
                    )
                )
    return figures, baselines.last


def _state(figure: Figure, results: Results) -> str:
    """``baseline`` at the first watch, ``unchanged`` for the same vectors, ``not comparable`` or ``changed``."""
    if figure.pinned is None:
        return "baseline"
    if figure.pinned.evaluation == figure.evaluation:
        return "unchanged"
    old = results.get((figure.pinned.evaluation, figure.id.protocol, figure.metric))
    same_corpus = old is not None and old["corpus_fingerprint"] == figure.sets.corpus_fingerprint
    return "changed" if same_corpus else "not comparable"


def _falls(store: EmbeddingStore, changed: Sequence[Figure], since: Mapping[str, str]) -> list[FigureFalls]:
    """The changes of these figures, together where they have the same clusters."""
    groups: dict[tuple[str, bool], list[tuple[FigureChange, NDArray[np.float64]]]] = defaultdict(list)
    for figure in changed:
        outcomes = [
            read_outcomes(store, evaluation, figure.protocol)
            for evaluation in (figure.before.evaluation, figure.evaluation)
        ]
        metric = METRICS[figure.metric]
        values = np.stack([metric.per_query(each) for each in outcomes])
        known = known_queries(values.T)
        clusters = Clusters.of(
            outcomes[0].clusters, drawn_clusters(figure.corpus, figure.protocol), outcomes[0].weights
        )
        earlier, later = clusters.only(known).sums(values[:, known]).T
        old, new = (metric.value(each) for each in outcomes)  # not as stored: the metric may have had another version
        change = FigureChange(
            key=(figure.id.corpus, figure.id.protocol, figure.metric, figure.id.encoder),
            old={"value": old, "since": since[figure.before.run]},
            new={"value": new},
            difference=new - old,
            p=None,
            basis="paired test",
            lower_is_better=not metric.higher_is_better,
        )
        groups[figure.sets.corpus_fingerprint, figure.protocol.direction == "quadruples"].append(
            (change, earlier - later if metric.higher_is_better else later - earlier)
        )
    return [
        FigureFalls(changes=tuple(change for change, _ in group), falls=np.column_stack([fall for _, fall in group]))
        for group in groups.values()
    ]


def _row(figure: Figure, change: FigureChange | None, results: Results, run: str) -> dict[str, Any]:
    """The columns of ``schema.WATCHED`` that depend on the figure."""
    pinned = figure.pinned or Pinned(run=run, evaluation=figure.evaluation)

    def value(evaluation: str) -> float | None:
        row = results.get((evaluation, figure.id.protocol, figure.metric))
        return None if row is None else row["value"]

    return {
        **{name: getattr(figure.sets, name) for name in SetsRef.__dataclass_fields__},
        "protocol": figure.id.protocol,
        "metric": figure.metric,
        "evaluation": figure.evaluation,
        "baseline": pinned.run,
        "baseline_evaluation": pinned.evaluation,
        "value": value(figure.evaluation),
        "baseline_value": value(pinned.evaluation) if change is None else change.old["value"],
        "p_adjusted": None if change is None else change.p_adjusted,
    }


def _id(change: FigureChange) -> FigureId:
    corpus, protocol, _, encoder = change.key
    return FigureId(encoder, corpus, protocol)
