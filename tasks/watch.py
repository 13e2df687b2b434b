"""Tasks of the regression watch: compare vectors, figures and library versions with the pinned run.

Pinned is, of every figure, the first watch of it, or the run that a user named. A figure keeps its baseline from watch
to watch, so that small drops add up. ``--baseline RUN`` pins another run for all figures that this run has; later
watches keep it.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from capim.store import EmbeddingStore
from capim.store.errors import RequestError, did_you_mean
from capim.store.schema import Result, Run, Watched, texts
from capim.store.types import MODALITIES, Corpus, EncoderSpec, Modality
from capim.tasks.analyses.vectors import chosen
from capim.tasks.corpora.images.decode import decode_image
from capim.tasks.corpora.opened import OpenCorpora
from capim.tasks.encoders import Encoder, encode_captions, encode_images, load_encoder
from capim.tasks.encoders.device import device_identity
from capim.tasks.encoding import device_for, hardware_of, held, probe_cosines
from capim.tasks.metrics import METRICS
from capim.tasks.metrics.table import headline_of
from capim.tasks.prefects.task import task
from capim.tasks.protocols import Protocol
from capim.tasks.ranking.drawn import drawn_clusters
from capim.tasks.ranking.protocols import select_protocols
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
from capim.tasks.references import EmbedRef, EvaluationRef, SetsRef, library_versions
from capim.tasks.results.stored import read_outcomes
from capim.tasks.statistics.clusters import Clusters, known_queries
from capim.tasks.statistics.draws import Resampling

NAMED = 5  # runs that an error names
SECONDS_PER_DAY = 86_400
HISTORY = '`capim query "SELECT * FROM all_watched"`'
FigureId: TypeAlias = tuple[str, str, str]
"""What a baseline is kept for: encoder, corpus and protocol by name."""
Results: TypeAlias = Mapping[tuple[str, str, str], Result]
"""Evaluation, protocol and metric -> a result."""


@task("check-baseline")
def check_baseline(run: str | None, *, store_uri: str, encoders: Sequence[str]) -> list[str]:
    """What is wrong with the run that a watch pins, with runs that can be; empty if nothing is or none is named."""
    if run is None:
        return []
    try:
        store = EmbeddingStore.open(store_uri)
    except RequestError:
        return [f"run {run!r} cannot be pinned, there is no store at {store_uri} yet; leave --baseline out"]
    found = {encoder for encoder, *_ in evaluations_of_run(store, run)}
    if not found.isdisjoint(encoders):
        return []
    having = {run for table in ("watched", "results") for run in store.counts(table, "run", encoder=list(encoders))}
    keys = {*store.counts("results", "derived", encoder=list(encoders))}
    having |= {row.run for row in store.runs() if not keys.isdisjoint(row.keys)}
    newest = sorted(having, reverse=True)
    shown = ", ".join(newest[:NAMED]) + (" …" if len(newest) > NAMED else "")
    advice = f"runs with such figures: {shown}" if newest else "leave --baseline out: this watch becomes the baseline"
    if found:
        what = f"run {run!r} has no figures of {', '.join(encoders)}, only of {', '.join(sorted(found))}"
    elif store.counts("runs", "run", run=run):
        what = f"run {run!r} has no figures, so it cannot be the baseline"
    else:
        what = f"run {run!r} is not in {store.uri}"
    return [f"{what}; {did_you_mean(run, newest)}{advice}"]


@task("watch-vectors", encodes=True, run_name="watch-vectors-{spec.name}", timeout_hours=6)
def watch_vectors(
    spec: EncoderSpec,
    embedded: Sequence[EmbedRef],
    opened: OpenCorpora,
    *,
    store_uri: str,
    device: str,
    trust_remote_code: bool,
    rule: WatchRule,
    seed: int,
    run: str,
) -> list[WatchFinding]:
    """Encode a sample of every set again with the same model and compare it with the stored vectors.

    Sets that this run encoded as a whole are skipped. Of an endpoint, the probes are compared first.
    """
    stored = [reference for reference in embedded if reference.n_encoded < reference.n_items]
    if not stored:
        return []
    store = EmbeddingStore.open(store_uri)
    device = device_for(spec, device)
    findings: list[WatchFinding] = []
    with held(device_identity(device)):
        encoder = load_encoder(spec, device=device, trust_remote_code=trust_remote_code)
        findings += changed_probes(store, encoder, rule, run=run)
        for reference in stored:
            corpus = reference.corpus.read(opened, store)
            subject = f"{spec.name} on {corpus.name}"
            for modality, n_items in zip(MODALITIES, (len(corpus.images), len(corpus.captions)), strict=True):
                ords = chosen(n_items, rule.sample, seed)
                vectors = store.windows(reference.sets, modality)
                if callable(vectors):
                    before = [item.astype(np.float32) for block in vectors(ords) for item in block]
                else:
                    before = [row[None] for row in vectors[ords]]
                similarities = cosines(before, fresh_vectors(encoder, corpus, modality, ords))
                findings += judge_vectors(f"{subject}, {modality}s", similarities, rule)
            batches = store.rows("batches", encoder_fingerprint=spec.fingerprint, corpus=corpus.name)
            devices = sorted(set(texts(batches["device"])))[:3]
            if devices:
                before_now = {"device": ", ".join(devices)}, {"device": hardware_of(encoder)}
                findings += judge_settings(setting_changes(f"device of {subject}", *before_now))
    return findings


def changed_probes(store: EmbeddingStore, encoder: Encoder, rule: WatchRule, *, run: str) -> list[WatchFinding]:
    """A finding if the probe vectors of an endpoint have changed; none for a model that runs here."""
    found = probe_cosines(store, encoder, run=run)
    return judge_vectors(f"{encoder.spec.name}, probes", np.asarray([*found.values()]), rule) if found else []


def fresh_vectors(
    encoder: Encoder, corpus: Corpus, modality: Modality, ords: NDArray[np.int32]
) -> list[NDArray[np.float32]]:
    """These items encoded now in one batch, each of shape ``(n_vectors, dim)``; none of images without image bytes."""
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


class Pinned(NamedTuple):
    """The pinned run of a figure, and the evaluation that it had there."""

    run: str
    evaluation: str


@dataclass(frozen=True, kw_only=True, eq=False)
class WatchedFigure:
    """A figure of the watch; ``pinned`` is None where it is watched for the first time."""

    sets: SetsRef
    corpus: Corpus
    protocol: Protocol
    metric: str
    evaluation: str
    pinned: Pinned | None

    @property
    def before(self) -> Pinned:
        """The pinned run, or an empty one."""
        return self.pinned or Pinned("", "")

    @property
    def subject(self) -> str:
        """Encoder and corpus in words."""
        return f"{self.sets.encoder} on {self.sets.corpus}"

    @property
    def key(self) -> FigureKey:
        """Corpus, protocol, metric and encoder."""
        return self.sets.corpus, self.protocol.id, self.metric, self.sets.encoder

    def row(self, results: Results, evaluation: str) -> Result | None:
        """The row of its metric in an evaluation, if the store has it."""
        return results.get((evaluation, self.protocol.id, self.metric))


@task("watch-metrics")
def watch_metrics(
    evaluated: Sequence[EvaluationRef],
    *,
    store_uri: str,
    run: str,
    baseline: str | None,
    rule: WatchRule,
    resampling: Resampling,
) -> WatchedFigures:
    """Compare the figures of a run with the pinned run as one family, and store what was found (table ``watched``)."""
    store, now = EmbeddingStore.open(store_uri), datetime.now(UTC)
    figures, last = _figures(store, evaluated, run, baseline)
    runs = sorted({figure.pinned.run for figure in figures if figure.pinned})
    rows = store.all(Run, run=runs) if runs else []
    since = dict.fromkeys(runs, "an unknown date") | {r.run: f"{r.started:%Y-%m-%d}" for r in rows}
    evaluations = {figure.evaluation for figure in figures} | {figure.before.evaluation for figure in figures}
    stored = store.figures(evaluation=sorted(evaluations))
    results = {(row.evaluation, row.protocol, row.metric): row for row in stored}
    level = rule.alarm_level(((now - last).total_seconds() / SECONDS_PER_DAY) if last else 0.0)

    states = {figure.key: _state(figure, results) for figure in figures}
    changed = [figure for figure in figures if states[figure.key] == "changed"]
    falls = _falls(store, changed, since)
    changes = {change.key: change for change in tested_changes(falls, level=level, resampling=resampling)}
    states |= {key: judge_change(change, rule, level) or "none" for key, change in changes.items()}
    written = []
    for figure in figures:
        pinned, change = figure.pinned or Pinned(run, figure.evaluation), changes.get(figure.key)
        before_now = [figure.row(results, id_) for id_ in (pinned.evaluation, figure.evaluation)]
        old, value = (None if row is None else row.value for row in before_now)
        row = Watched(
            **asdict(figure.sets),
            protocol=figure.protocol.id,
            metric=figure.metric,
            evaluation=figure.evaluation,
            baseline=pinned.run,
            baseline_evaluation=pinned.evaluation,
            value=value,
            baseline_value=old if change is None else change.old,
            p_adjusted=None if change is None else change.p_adjusted,
            verdict=states[figure.key],
            alarm_level=level,
            run=run,
            created=now,
        )
        written.append(row)
    store.write(written)

    lost = [figure for figure in figures if states[figure.key] == "not comparable"]
    findings = [
        *judge_figures(changes.values(), rule, level),
        *_not_comparable(lost, results, since, rule),
        *_pinned(figures, states, run),
        *_exploratory(changed, stored, rule, since),
        *_weights(store, changed, results),
    ]
    units: dict[str, int] = {}  # corpus -> the fewest of any of its figures
    for figure in figures:
        if stored_row := figure.row(results, figure.evaluation):
            n_units = int(stored_row.n_effective or 0)
            units[figure.sets.corpus] = min(n_units, units.get(figure.sets.corpus, n_units))
    summary = _summary_lines(len(figures), Counter(states.values()), since, units, run=run, level=level, rule=rule)
    return WatchedFigures(run=run, findings=tuple(findings), summary=summary, baselines=tuple(runs))


def pinned_baselines(
    store: EmbeddingStore, ids: Collection[FigureId], *, run: str, baseline: str | None
) -> tuple[dict[FigureId, Pinned], datetime | None]:
    """The baselines of these figures, in ``baseline`` where that run has the figure, else as in their last watch.

    Returns:
        The figures that have one, with it; and when any of the figures was last watched.
    """
    names = {"encoder": sorted({encoder for encoder, *_ in ids}), "corpus": sorted({corpus for _, corpus, _ in ids})}
    every = sorted(store.all(Watched, **names), key=lambda row: row.created)
    watched = [row for row in every if row.run != run]
    kept = {_id(row): row for row in watched if _id(row) in ids}  # the newest row of each figure
    pinned = {each: Pinned(row.baseline, row.baseline_evaluation) for each, row in kept.items()}
    if baseline is not None:
        of_run = evaluations_of_run(store, baseline)
        pinned |= {each: Pinned(baseline, evaluation) for each, evaluation in of_run.items() if each in ids}
    return pinned, max((row.created for row in kept.values()), default=None)


def evaluations_of_run(store: EmbeddingStore, run: str) -> dict[FigureId, str]:
    """The evaluations that a run watched, or for other runs those whose figures it made or found."""
    rows: list[Watched] | list[Result] = store.all(Watched, run=run) or store.rows_of_run(Result, run)
    return {_id(row): row.evaluation for row in rows if not Protocol.of(row.protocol).is_combined}


def _id(row: Watched | Result) -> FigureId:
    return row.encoder, row.corpus, row.protocol


def _figures(
    store: EmbeddingStore, evaluated: Sequence[EvaluationRef], run: str, baseline: str | None
) -> tuple[list[WatchedFigure], datetime | None]:
    """The main metric of every protocol of these evaluations, and when any of them was last watched."""
    ids = {(ref.sets.encoder, ref.sets.corpus, protocol) for ref in evaluated for protocol in ref.evaluations}
    pinned, last = pinned_baselines(store, ids, run=run, baseline=baseline)
    figures = []
    for ref in evaluated:
        corpus = store.corpus(ref.sets.corpus, ref.sets.corpus_fingerprint)
        figures += [
            WatchedFigure(
                sets=ref.sets,
                corpus=corpus,
                protocol=protocol,
                metric=metric,
                evaluation=ref.evaluations[protocol.id],
                pinned=pinned.get((ref.sets.encoder, ref.sets.corpus, protocol.id)),
            )
            for protocol in select_protocols(corpus, list(ref.evaluations))
            for _, metric in headline_of([protocol])
        ]
    return figures, last


def _state(figure: WatchedFigure, results: Results) -> str:
    """``baseline`` at the first watch, ``unchanged`` for the same vectors, ``not comparable`` or ``changed``."""
    if figure.pinned is None:
        return "baseline"
    if figure.pinned.evaluation == figure.evaluation:
        return "unchanged"
    old = figure.row(results, figure.pinned.evaluation)
    same_corpus = old is not None and old.corpus_fingerprint == figure.sets.corpus_fingerprint
    return "changed" if same_corpus else "not comparable"


def _falls(store: EmbeddingStore, changed: Sequence[WatchedFigure], since: Mapping[str, str]) -> list[Falls]:
    """The changes of these figures, together where they have the same clusters."""
    groups: dict[tuple[str, bool], list[tuple[FigureChange, NDArray[np.float64]]]] = defaultdict(list)
    for figure in changed:
        before_now = figure.before.evaluation, figure.evaluation
        outcomes = [read_outcomes(store, evaluation, figure.protocol) for evaluation in before_now]
        metric = METRICS[figure.metric]
        values = np.stack([metric.per_query(each) for each in outcomes])
        known = known_queries(values.T)
        drawn = drawn_clusters(figure.corpus, figure.protocol)
        clusters = Clusters.of(outcomes[0].clusters, drawn, outcomes[0].weights)
        earlier, later = clusters.only(known).sums(values[:, known]).T
        old, new = (metric.value(each) for each in outcomes)  # not as stored: the metric may have had another version
        change = FigureChange(
            key=figure.key,
            old=old,
            new=new,
            since=since[figure.before.run],
            difference=new - old,
            p=None,
            basis="paired test",
            lower_is_better=not metric.higher_is_better,
            n_units=int(clusters.only(known).n_effective),
        )
        groups[figure.sets.corpus_fingerprint, figure.protocol.kind == "quadruples"].append(
            (change, earlier - later if metric.higher_is_better else later - earlier)
        )
    return [
        ([change for change, _ in group], np.column_stack([fall for _, fall in group])) for group in groups.values()
    ]


def _not_comparable(
    lost: Sequence[WatchedFigure], results: Results, since: Mapping[str, str], rule: WatchRule
) -> Iterable[WatchFinding]:
    """Return a warning for every encoder and corpus whose state has changed; under a strict rule it fails."""
    findings: dict[str, WatchFinding] = {}
    for figure in lost:
        known = figure.row(results, figure.before.evaluation) is not None
        why = "the corpus has changed since" if known else "the store no longer has the outcomes of the run of"
        message = f"figures are not comparable: {why} {since[figure.before.run]}; nothing was tested"
        findings.setdefault(figure.subject, WatchFinding("fail" if rule.strict else "warn", figure.subject, message))
    return findings.values()


def _pinned(figures: Sequence[WatchedFigure], states: Mapping[FigureKey, str], run: str) -> list[WatchFinding]:
    """Return a finding for every encoder and corpus of which all figures are watched for the first time."""
    compared = {figure.subject for figure in figures if states[figure.key] != "baseline"}
    new = dict.fromkeys(figure.subject for figure in figures if figure.subject not in compared)
    message = f"watched for the first time, so nothing was compared; run {run} is its baseline from now on"
    return [WatchFinding("pinned", subject, message) for subject in new]


def _exploratory(
    changed: Sequence[WatchedFigure], stored: Sequence[Result], rule: WatchRule, since: Mapping[str, str]
) -> Iterator[WatchFinding]:
    """A note for every encoder and corpus whose other metrics have large drops, with the largest."""
    of_evaluation: dict[str, dict[tuple[str, str], float]] = defaultdict(dict)
    for row in stored:
        known = METRICS.get(row.metric)
        if known is not None and known.reduce == "mean" and not row.lower_is_better and row.value is not None:
            of_evaluation[row.evaluation][row.metric, row.metric_version] = row.value
    drops: dict[str, list[tuple[float, str, str]]] = defaultdict(list)
    for figure in changed:
        now = of_evaluation[figure.evaluation]
        for (metric, version), old in of_evaluation[figure.before.evaluation].items():
            fall = old - now.get((metric, version), old)
            if metric != figure.metric and fall >= rule.fail_drop:
                drops[figure.subject].append((fall, f"{figure.protocol.id} {metric}", since[figure.before.run]))
    for subject, found in drops.items():
        fall, name, baseline = max(found)
        yield WatchFinding(
            "note",
            subject,
            f"other metrics, not tested: {len(found)} fell by {rule.least_drop} or more, most of all "
            f"{name} by {100 * fall:.1f} points since {baseline}",
        )


def _weights(store: EmbeddingStore, changed: Sequence[WatchedFigure], results: Results) -> list[WatchFinding]:
    """Notes of what differs between the encoders of changed figures and those of the baseline."""
    pairs = {
        (figure.sets.encoder, old.encoder_fingerprint, figure.sets.encoder_fingerprint)
        for figure in changed
        if (old := figure.row(results, figure.before.evaluation))
    }
    found = [
        setting_changes(f"weights of {name}", *(store.encoder(fingerprint).identity() for fingerprint in before_now))
        for name, *before_now in sorted(pairs)
    ]
    return list(dict.fromkeys(finding for changes in found for finding in judge_settings(changes)))


def _summary_lines(
    n: int,
    states: Mapping[str, int],
    since: Mapping[str, str],
    units: Mapping[str, int],
    *,
    run: str,
    level: float,
    rule: WatchRule,
) -> tuple[str, ...]:
    """What was compared of ``n`` figures, at which level, corpora with too few images for it, and the next step."""
    first, watched = (f"{k} figure{'s' if k != 1 else ''}" for k in (states["baseline"], n - states["baseline"]))
    lines = []
    if states["baseline"]:
        lines.append(f"run {run} is the baseline of {first}, which were watched for the first time")
    if since:
        pinned = ", ".join(f"run {baseline} of {date}" for baseline, date in since.items())
        lines.append(
            f"{watched} (the main metric of each protocol), tested as one family, compared with "
            f"pinned {pinned}: {states['unchanged']} unchanged, {states['fail']} failed, {states['warn']} warned, "
            f"{states['not comparable']} not comparable"
        )
        lines.append(
            f"alarm level of this watch {level:.2g}: at most a {100 * rule.alpha:g} % chance of a false alarm "
            "per year, with up to one watch a day"
        )
    needed = units_needed(level)
    lines += [
        f"no drop on {corpus} can be significant at the level {level:.2g}: that takes {needed} images of equal weight, "
        f"and it has {n_units}; one of {rule.least_drop} or more {'fails' if rule.strict else 'warns'}"
        for corpus, n_units in units.items()
        if n_units < needed
    ]
    if states["fail"] or states["warn"] or states["not comparable"]:
        lines.append(
            f"all figures of all watches: {HISTORY}; if the changes are intended, repeat the watch with "
            f"`--baseline {run}`, which pins this run"
        )
    return tuple(lines)
