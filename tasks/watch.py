"""Tasks of the regression watch: compare vectors, results and library versions with the pinned run.

Pinned is, of every result, the first watch of it that was not strict, or the run that a user named. A result keeps its
baseline from watch to watch, so that small drops add up. ``--baseline RUN`` pins another run for all results that this
run has; later watches keep it.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from capim.store import EmbeddingStore
from capim.store.errors import did_you_mean
from capim.store.schema import Result, Run, Watched, texts
from capim.store.types import Corpus, EncoderSpec, Modality
from capim.tasks.analyses.vectors import chosen, stored_items
from capim.tasks.corpora.images.decode import decode_image
from capim.tasks.corpora.opened import OpenCorpora, store_at
from capim.tasks.embed import device_for, hardware_of, held, probe_cosines
from capim.tasks.encoders import Encoder, encode_captions, encode_images, load_encoder
from capim.tasks.encoders.device import device_identity
from capim.tasks.metrics import METRICS
from capim.tasks.metrics.table import headline_of
from capim.tasks.prefects.task import task
from capim.tasks.protocols import Protocol
from capim.tasks.ranking.protocols import drawn_clusters, select_protocols
from capim.tasks.reference.changes import (
    Falls,
    FigureChange,
    FigureKey,
    WatchedFigures,
    WatchFinding,
    WatchRule,
    cosines,
    judge_change,
    judge_figures,
    judge_settings,
    judge_vectors,
    setting_changes,
    tested_changes,
    units_needed,
)
from capim.tasks.references import EmbedRef, EvaluationRef, RunSettings, library_versions
from capim.tasks.results.stored import read_outcomes
from capim.tasks.statistics.clusters import Clusters, known_queries

NAMED = 5  # runs that an error names
HISTORY = '`capim query "SELECT * FROM all_watched"`'
FigureId: TypeAlias = tuple[str, str, str]
"""Encoder, corpus and protocol by name, for which a baseline is kept."""


@task("check-baseline")
def check_baseline(run: str | None, *, store_uri: str, encoders: Sequence[str]) -> list[str]:
    """Return the fault of a run that cannot be pinned, with runs that can; nothing if it can, or none is named."""
    if run is None:
        return []
    if (store := store_at(store_uri)) is None:
        return [f"run {run!r} cannot be pinned, there is no store at {store_uri} yet; leave --baseline out"]
    named = {row.fingerprint: row.name for row in store.encoders()}
    encoders = [named.get(each, each) for each in encoders]  # of a fingerprint its name
    encoders = encoders or sorted(store.counts("results", "encoder"))
    found = {encoder for encoder, *_ in evaluations_of_run(store, run)}
    if not found.isdisjoint(encoders):
        return []
    keys = store.counts("results", "derived", encoder=list(encoders)).keys()
    having = {*store.counts("watched", "run", encoder=list(encoders))}
    newest = sorted(having | {row.run for row in store.runs() if not keys.isdisjoint(row.keys)}, reverse=True)
    shown = ", ".join(newest[:NAMED]) + (" …" if len(newest) > NAMED else "")
    advice = f"runs with such results: {shown}" if newest else "leave --baseline out: this watch becomes the baseline"
    only = f", only of {', '.join(sorted(found))}" if found else ""
    return [f"run {run!r} has no results of {', '.join(encoders)}{only}; {did_you_mean(run, newest)}{advice}"]


@task("watch-vectors", encodes=True, run_name="watch-vectors-{spec.name}", timeout_hours=6)
def watch_vectors(
    spec: EncoderSpec,
    embedded: Sequence[EmbedRef],
    opened: OpenCorpora,
    settings: RunSettings,
    *,
    trust_remote_code: bool,
    rule: WatchRule,
) -> list[WatchFinding]:
    """Encode a sample of every set again with the same model and compare it with the stored vectors.

    Sets that this run encoded as a whole are skipped. Of an endpoint, the probes are compared first.
    """
    stored = [reference for reference in embedded if reference.n_encoded < reference.n_items]
    if not stored:
        return []
    store = EmbeddingStore.open(settings.store_uri)
    device = device_for(spec, settings.device)
    findings: list[WatchFinding] = []
    with held(device_identity(device)):
        encoder = load_encoder(spec, device=device, trust_remote_code=trust_remote_code)
        findings += changed_probes(store, encoder, rule, run=settings.run)
        for reference in stored:
            corpus = reference.corpus.read(opened, store)
            subject = f"{spec.name} on {corpus.name}"
            for modality in reference.corpus.encodable:
                ords = chosen(len(corpus.items(modality)), rule.sample, settings.resampling.seed)
                before = stored_items(store, spec.fingerprint, corpus.fingerprint, modality, ords)
                similarities = cosines([*before], fresh_vectors(encoder, corpus, modality, ords))
                findings += judge_vectors(f"{subject}, {modality}s", similarities, rule)
            of_set = {"encoder_fingerprint": spec.fingerprint, "corpus": corpus.name}
            devices, now = sorted(store.counts("batches", "device", **of_set)), hardware_of(encoder)
            if devices and now not in devices:
                before_now = {"device": ", ".join(devices)}, {"device": now}
                findings += judge_settings(setting_changes(f"device of {subject}", *before_now))
    return findings


def changed_probes(store: EmbeddingStore, encoder: Encoder, rule: WatchRule, *, run: str) -> list[WatchFinding]:
    """Return a finding if the probe vectors of an endpoint have changed; none for a model that runs here."""
    found = probe_cosines(store, encoder, run=run)
    return judge_vectors(f"{encoder.spec.name}, probes", np.asarray([*found.values()]), rule) if found else []


def fresh_vectors(
    encoder: Encoder, corpus: Corpus, modality: Modality, ords: NDArray[np.int32]
) -> list[NDArray[np.float32]]:
    """Return these items, encoded now in one batch, each ``(n_vectors, dim)``; nothing for images without bytes."""
    if modality == "caption":
        embeddings = encode_captions(encoder, texts(corpus.captions["text"].take(ords)))
    elif corpus.source is None:
        return []
    else:
        keys = texts(corpus.images["key"].take(ords))
        embeddings = encode_images(encoder, [decode_image(corpus.source.read(key)) for key in keys])
    return np.split(embeddings.values, np.cumsum(embeddings.counts)[:-1])


@task("watch-libraries")
def watch_libraries(baselines: Sequence[str], *, store_uri: str) -> list[WatchFinding]:
    """Compare library versions with those of the pinned runs."""
    rows = EmbeddingStore.open(store_uri).all(Run, run=list(baselines)) if baselines else []
    found = [setting_changes("library", json.loads(row.versions), library_versions()) for row in rows]
    return list(dict.fromkeys(finding for changes in found for finding in judge_settings(changes)))


# The family of the tests is the main metric of every protocol of every encoder and corpus of the watch: R@1, the group
# score of quadruples, the accuracy of pairs, nDCG@10 of judged documents. The other metrics are exploratory: their
# large drops are named, and cannot fail a watch.


class Watch(NamedTuple):
    """One watch: its run, level and time."""

    run: str
    alarm_level: float
    created: datetime


class Pinned(NamedTuple):
    """The pinned run of a result, and the evaluation that it had there."""

    run: str
    evaluation: str


@dataclass(frozen=True, kw_only=True, eq=False)
class WatchedFigure:
    """A result of the watch.

    Attributes:
        row: As it is stored; until it is tested, the verdict is ``baseline`` at its first watch, ``unchanged`` for the
            same vectors, ``not comparable`` or ``changed``.
        old: Its result in the pinned evaluation, if the store has it.
        new: Its result of now, if the store has it.
        since: The pinned run's date.
    """

    row: Watched
    corpus: Corpus
    protocol: Protocol
    old: Result | None
    new: Result | None
    since: str

    @property
    def subject(self) -> str:
        """Return the encoder and the corpus in words."""
        return f"{self.row.encoder} on {self.row.corpus}"

    @property
    def key(self) -> FigureKey:
        """Return corpus, protocol, metric and encoder."""
        return self.row.corpus, self.row.protocol, self.row.metric, self.row.encoder


@task("watch-metrics")
def watch_metrics(
    evaluated: Sequence[EvaluationRef], settings: RunSettings, *, baseline: str | None, rule: WatchRule
) -> WatchedFigures:
    """Compare the results of a run with the pinned run as one family, and store the findings (table ``watched``)."""
    store, run, now = EmbeddingStore.open(settings.store_uri), settings.run, datetime.now(UTC)
    ids = {(ref.sets.encoder, ref.sets.corpus, protocol) for ref in evaluated for protocol in ref.evaluations}
    pinned, last = pinned_baselines(store, ids, run=run, baseline=baseline)
    evaluations = {each.evaluation for each in pinned.values()}
    evaluations |= {evaluation for ref in evaluated for evaluation in ref.evaluations.values()}
    stored = store.figures(evaluation=sorted(evaluations))
    level = rule.alarm_level((now - last) / timedelta(days=1) if last else 0.0)
    figures = _figures(store, evaluated, pinned, stored, Watch(run, level, now))

    changed = [figure for figure in figures if figure.row.verdict == "changed"]
    tested = tested_changes(_falls(store, changed), level=level, resampling=settings.resampling)
    changes = {each.key: each for each in tested}
    rows = []
    for figure in figures:
        row = figure.row
        if change := changes.get(figure.key):
            verdict = judge_change(change, rule, level) or "none"
            row = replace(row, baseline_value=change.old, p_adjusted=change.p_adjusted, verdict=verdict)
        rows.append(row)
    store.write([row for row in rows if row.verdict != "baseline" or not rule.strict])

    findings = [
        *judge_figures(changes.values(), rule, level),
        *_of_subjects(figures, stored, rule, run),
        *_weights(store, changed),
    ]
    summary = _summary_lines(figures, Counter(row.verdict for row in rows), run=run, level=level, rule=rule)
    runs = sorted({figure.row.baseline for figure in figures if figure.row.verdict != "baseline"})
    return WatchedFigures(run=run, findings=tuple(findings), summary=summary, baselines=tuple(runs))


def pinned_baselines(
    store: EmbeddingStore, ids: Collection[FigureId], *, run: str, baseline: str | None
) -> tuple[dict[FigureId, Pinned], datetime | None]:
    """Return the baselines of these results: in ``baseline`` where that run has the result, else as in the last watch.

    Returns:
        The results that have one, with it; and when any of the results was last watched.
    """
    encoders, corpora = sorted({encoder for encoder, *_ in ids}), sorted({corpus for _, corpus, _ in ids})
    every = sorted(store.all(Watched, encoder=encoders, corpus=corpora), key=lambda row: row.created)
    watched = [row for row in every if row.run != run]
    kept = {_id(row): row for row in watched if _id(row) in ids}  # the newest row of each result
    pinned = {each: Pinned(row.baseline, row.baseline_evaluation) for each, row in kept.items()}
    if baseline is not None:
        of_run = evaluations_of_run(store, baseline)
        pinned |= {each: Pinned(baseline, evaluation) for each, evaluation in of_run.items() if each in ids}
    return pinned, max((row.created for row in kept.values()), default=None)


def evaluations_of_run(store: EmbeddingStore, run: str) -> dict[FigureId, str]:
    """Return the evaluations that a run watched; of another run, those with results that it made or found."""
    rows: list[Watched] | list[Result] = store.all(Watched, run=run) or store.rows_of_run(Result, run)
    return {_id(row): row.evaluation for row in rows if not Protocol.of(row.protocol).is_combined}


def _id(row: Watched | Result) -> FigureId:
    return row.encoder, row.corpus, row.protocol


def _figures(
    store: EmbeddingStore,
    evaluated: Sequence[EvaluationRef],
    pinned: Mapping[FigureId, Pinned],
    stored: Iterable[Result],
    watch: Watch,
) -> list[WatchedFigure]:
    """Return the main metric of every protocol of these evaluations."""
    results = {(row.evaluation, row.protocol, row.metric): row for row in stored}
    runs = sorted({each.run for each in pinned.values()})
    since = {row.run: f"{row.started:%Y-%m-%d}" for row in (store.all(Run, run=runs) if runs else [])}
    figures = []
    for ref in evaluated:
        corpus = store.corpus(ref.sets.corpus, ref.sets.corpus_fingerprint)
        for protocol in select_protocols(corpus, list(ref.evaluations)):
            now = ref.evaluations[protocol.id]
            then = pinned.get((ref.sets.encoder, ref.sets.corpus, protocol.id), Pinned(watch.run, now))
            for _, metric in headline_of([protocol]):
                old, new = (results.get((each, protocol.id, metric)) for each in (then.evaluation, now))
                if then.run == watch.run:
                    state = "baseline"
                elif then.evaluation == now:
                    state = "unchanged"
                else:
                    same_corpus = old is not None and old.corpus_fingerprint == corpus.fingerprint
                    state = "changed" if same_corpus else "not comparable"
                row = Watched(
                    **asdict(ref.sets),
                    **watch._asdict(),
                    protocol=protocol.id,
                    metric=metric,
                    evaluation=now,
                    baseline=then.run,
                    baseline_evaluation=then.evaluation,
                    value=None if new is None else new.value,
                    baseline_value=None if old is None else old.value,
                    verdict=state,
                )
                date = since.get(then.run, "an unknown date")
                figures.append(WatchedFigure(row=row, corpus=corpus, protocol=protocol, old=old, new=new, since=date))
    return figures


def _falls(store: EmbeddingStore, changed: Sequence[WatchedFigure]) -> list[Falls]:
    """Return the changes of these results, together where they have the same clusters."""
    groups: dict[tuple[str, bool], list[tuple[FigureChange, NDArray[np.float64]]]] = defaultdict(list)
    for figure in changed:
        before_now = figure.row.baseline_evaluation, figure.row.evaluation
        outcomes = [read_outcomes(store, evaluation, figure.protocol) for evaluation in before_now]
        metric = METRICS[figure.row.metric]
        values = np.stack([metric.per_query(each) for each in outcomes])
        known = known_queries(values.T)
        drawn = drawn_clusters(figure.corpus, figure.protocol)
        clusters = Clusters.of(outcomes[0].clusters, drawn, outcomes[0].weights)
        earlier, later = clusters.only(known).sums(values[:, known]).T
        old, new = (metric.value(each) for each in outcomes)  # not as stored: the metric may have had another version
        pairs: dict[str, Any] = {"n_units": int(clusters.only(known).n_effective), "n_queries": int(known.sum())}
        of: dict[str, Any] = {"key": figure.key, "since": figure.since, "lower_is_better": not metric.higher_is_better}
        change = FigureChange(**of, **pairs, old=old, new=new, difference=new - old, p=None, basis="paired test")
        groups[figure.row.corpus_fingerprint, figure.protocol.kind == "quadruples"].append(
            (change, earlier - later if metric.higher_is_better else later - earlier)
        )
    return [
        ([change for change, _ in group], np.column_stack([fall for _, fall in group])) for group in groups.values()
    ]


def _of_subjects(
    figures: Sequence[WatchedFigure], stored: Sequence[Result], rule: WatchRule, run: str
) -> Iterator[WatchFinding]:
    """Yield findings about each encoder and corpus: nothing to compare with, or large drops of its other metrics."""
    values: dict[str, dict[tuple[str, str], float]] = defaultdict(dict)
    for row in stored:
        known = METRICS.get(row.metric)
        if known is not None and known.reduce == "mean" and not row.lower_is_better and row.value is not None:
            values[row.evaluation][row.metric, row.metric_version] = row.value
    for subject in dict.fromkeys(figure.subject for figure in figures):
        own = [figure for figure in figures if figure.subject == subject]
        if all(figure.row.verdict == "baseline" for figure in own):
            state = f"run {run} is its baseline from now on"
            if rule.strict:
                state = f"--strict pins nothing: `capim watch --encoders {own[0].row.encoder}` pins what is stored now"
            message = f"watched for the first time, so nothing was compared; {state}"
            yield WatchFinding("unpinned" if rule.strict else "pinned", subject, message)
        if lost := next((figure for figure in own if figure.row.verdict == "not comparable"), None):
            gone = "the store no longer has the outcomes of the run of"
            why = f"{gone if lost.old is None else 'the corpus has changed since'} {lost.since}"
            message = f"results are not comparable: {why}; nothing was tested"
            yield WatchFinding("fail" if rule.strict else "warn", subject, message)
        drops = []
        for figure in own:
            if figure.row.verdict == "changed":
                old, now = values[figure.row.baseline_evaluation], values[figure.row.evaluation]
                drops += [
                    (old[other] - now[other], f"{figure.protocol.id} {other[0]}", figure.since)
                    for other in old.keys() & now
                    if other[0] != figure.row.metric and old[other] - now[other] >= rule.fail_drop
                ]
        if drops:
            fall, name, since = max(drops)
            message = (
                f"other metrics, not tested: {len(drops)} fell by {rule.least_drop} or more, most of all "
                f"{name} by {100 * fall:.1f} points since {since}"
            )
            yield WatchFinding("note", subject, message)


def _weights(store: EmbeddingStore, changed: Sequence[WatchedFigure]) -> list[WatchFinding]:
    """Return notes on differences between the encoders of changed results and those of the baseline."""
    pairs = {
        (figure.row.encoder, figure.old.encoder_fingerprint, figure.row.encoder_fingerprint)
        for figure in changed
        if figure.old
    }
    found = [
        setting_changes(f"weights of {name}", *(store.encoder(fingerprint).identity() for fingerprint in before_now))
        for name, *before_now in sorted(pairs)
    ]
    return list(dict.fromkeys(finding for changes in found for finding in judge_settings(changes)))


def _summary_lines(
    figures: Sequence[WatchedFigure], states: Mapping[str, int], *, run: str, level: float, rule: WatchRule
) -> tuple[str, ...]:
    """Return lines on the comparison, its level, corpora with too few images for it, and the next step."""
    n_first = states["baseline"]
    first, watched = (f"{k} result{'s' if k != 1 else ''}" for k in (n_first, len(figures) - n_first))
    lines = []
    if n_first and not rule.strict:
        lines.append(f"run {run} is the baseline of {first} watched for the first time")
    if n_first < len(figures):
        runs = sorted({(figure.row.baseline, figure.since) for figure in figures if figure.row.verdict != "baseline"})
        pinned = ", ".join(f"run {baseline} of {date}" for baseline, date in runs)
        lines.append(
            f"{watched} (the main metric of each protocol), tested as one family, compared with "
            f"pinned {pinned}: {states['unchanged']} unchanged, {states['fail']} failed, {states['warn']} warned, "
            f"{states['not comparable']} not comparable"
        )
        lines.append(
            f"alarm level of this watch {level:.2g}: at most a {100 * rule.alpha:g} % chance of a false alarm "
            "per year, with up to one watch a day"
        )
    units: dict[str, int] = {}  # corpus -> the fewest images of any of its results
    for figure in figures:
        if figure.new:
            n_units = int(figure.new.n_effective or 0)
            units[figure.row.corpus] = min(n_units, units.get(figure.row.corpus, n_units))
    needed = units_needed(level)
    lines += [
        f"no drop on {corpus} can be significant at the level {level:.2g}: that takes {needed} images of equal weight, "
        f"and it has {n_units}; one of {rule.least_drop} or more {'fails' if rule.strict else 'warns'}"
        for corpus, n_units in units.items()
        if n_units < needed
    ]
    if states["fail"] or states["warn"] or states["not comparable"]:
        lines.append(
            f"all results of all watches: {HISTORY}; if the changes are intended, repeat the watch with "
            f"`--baseline {run}`, which pins this run"
        )
    return tuple(lines)
