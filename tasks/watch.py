"""Tasks of the regression watch: compare vectors, figures and library versions with the pinned run.

Pinned is, of every figure, the first watch of it, or the run that a user named. A figure keeps its baseline from watch
to watch, so that small drops add up. ``--baseline RUN`` pins another run for all figures that this run has; later
watches keep it.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from capim.store import EmbeddingStore
from capim.store.errors import RequestError, did_you_mean
from capim.store.schema import WATCHED, texts
from capim.store.types import MODALITIES, Corpus, EncoderSpec, Modality
from capim.tasks.corpora.images.decode import decode_image
from capim.tasks.encoders import Encoder, encode_captions, encode_images, load_encoder
from capim.tasks.encoders.device import device_identity
from capim.tasks.metrics import METRICS
from capim.tasks.metrics.table import headline_of
from capim.tasks.protocols import Protocol
from capim.tasks.ranking.layout import drawn_clusters
from capim.tasks.ranking.protocols import select_protocols
from capim.tasks.reference.changes import (
    FigureChange,
    FigureFalls,
    WatchFinding,
    WatchRule,
    cosines,
    judge_change,
    judge_figures,
    judge_settings,
    judge_vectors,
    setting_changes,
    tested_changes,
)
from capim.tasks.runtime.encoding import device_for, hardware_of, held, probe_cosines
from capim.tasks.runtime.open_corpora import OpenCorpora
from capim.tasks.runtime.references import SEVERAL_PROTOCOLS, EmbedRef, EvaluationRef, SetsRef
from capim.tasks.runtime.stored import chosen, read_outcomes, vectors_of
from capim.tasks.runtime.task import shell
from capim.tasks.runtime.versions import library_versions
from capim.tasks.statistics.clusters import Clusters, known_queries
from capim.tasks.statistics.resampling import Resampling


@shell("check-baseline")
def check_baseline(run: str | None, *, store_uri: str, encoders: Sequence[str]) -> list[str]:
    """What is wrong with the run that a watch pins; empty if nothing is or none is named."""
    fault = None if run is None else run_fault(store_uri, run, encoders)
    return [] if fault is None else [fault]


@shell("watch-vectors", encodes=True, run_name="watch-vectors-{spec.name}", timeout_hours=6)
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
            corpus = opened.get(store, reference.corpus)
            subject = f"{spec.name} on {corpus.name}"
            for modality, n_items in zip(MODALITIES, (len(corpus.images), len(corpus.captions)), strict=True):
                ords = chosen(n_items, rule.sample, seed)
                before = stored_vectors(store, reference.sets, modality, ords)
                similarities = cosines(before, fresh_vectors(encoder, corpus, modality, ords))
                findings += judge_vectors(f"{subject}, {modality}s", similarities, rule)
            batches = store.rows("batches", encoder_fingerprint=spec.fingerprint, corpus=corpus.name)
            devices = sorted(set(cast("list[str]", batches["device"].to_pylist())))[:3]
            if devices:
                before_now = {"device": ", ".join(devices)}, {"device": hardware_of(encoder)}
                findings += judge_settings(setting_changes(f"device of {subject}", *before_now))
    return findings


@shell("watch-metrics")
def watch_metrics(
    evaluated: Sequence[EvaluationRef],
    *,
    store_uri: str,
    run: str,
    baseline: str | None,
    rule: WatchRule,
    resampling: Resampling,
) -> WatchedFigures:
    """Compare the figures of all encoders and corpora with the pinned run, as one family."""
    store, now = EmbeddingStore.open(store_uri), datetime.now(UTC)
    return watch_figures(store, evaluated, run=run, baseline=baseline, rule=rule, resampling=resampling, now=now)


@shell("watch-libraries")
def watch_libraries(baselines: Sequence[str], *, store_uri: str) -> list[WatchFinding]:
    """Compare library versions with those of the pinned runs."""
    rows = EmbeddingStore.open(store_uri).rows("runs", run=list(baselines)).to_pylist() if baselines else []
    found = [setting_changes("library", json.loads(row["versions"]), library_versions()) for row in rows]
    return list(dict.fromkeys(finding for changes in found for finding in judge_settings(changes)))


NAMED = 5  # runs that an error names


class FigureId(NamedTuple):
    """What a baseline is kept for: encoder, corpus and protocol by name."""

    encoder: str
    corpus: str
    protocol: str


@dataclass(frozen=True, kw_only=True)
class Pinned:
    """The pinned run of a figure, and the evaluation that it had there."""

    run: str
    evaluation: str


@dataclass(frozen=True, kw_only=True)
class Baselines:
    """Figure -> its pinned run, and when these figures were last watched; None for the first time."""

    figures: Mapping[FigureId, Pinned]
    last: datetime | None


def pinned_baselines(store: EmbeddingStore, ids: Sequence[FigureId], *, run: str, baseline: str | None) -> Baselines:
    """The baselines of these figures: in ``baseline`` where that run has the figure, else as in their last watch."""
    wanted = set(ids)
    names = {"encoder": sorted({each.encoder for each in ids}), "corpus": sorted({each.corpus for each in ids})}
    watched = [row for row in store.rows("watched", **names).sort_by("created").to_pylist() if row["run"] != run]
    kept = {_id(row): row for row in watched if _id(row) in wanted}  # the newest row of each figure
    figures = {each: Pinned(run=row["baseline"], evaluation=row["baseline_evaluation"]) for each, row in kept.items()}
    if baseline is not None:
        of_run = evaluations_of_run(store, baseline)
        figures |= {
            each: Pinned(run=baseline, evaluation=evaluation) for each, evaluation in of_run.items() if each in wanted
        }
    return Baselines(figures=figures, last=max((row["created"] for row in kept.values()), default=None))


def evaluations_of_run(store: EmbeddingStore, run: str) -> dict[FigureId, str]:
    """The evaluations that a run watched, or for other runs those that it wrote."""
    rows = store.rows("watched", run=run).to_pylist() or store.rows("results", run=run).to_pylist()
    return {_id(row): row["evaluation"] for row in rows if SEVERAL_PROTOCOLS.isdisjoint(row["protocol"])}


def run_fault(store_uri: str, run: str, encoders: Sequence[str]) -> str | None:
    """Why a run cannot be the baseline of these encoders, with runs that can; None if it has figures of one of them."""
    try:
        store = EmbeddingStore.open(store_uri)
    except RequestError:
        return f"run {run!r} cannot be pinned, there is no store at {store_uri} yet; leave --baseline out"
    found = {each.encoder for each in evaluations_of_run(store, run)}
    if not found.isdisjoint(encoders):
        return None
    having = {
        *store.counts("watched", "run", encoder=list(encoders)),
        *store.counts("results", "run", encoder=list(encoders)),
    }
    newest = sorted(having, reverse=True)
    shown = ", ".join(newest[:NAMED]) + (" …" if len(newest) > NAMED else "")
    advice = f"runs with such figures: {shown}" if newest else "leave --baseline out: this watch becomes the baseline"
    if found:
        what = f"run {run!r} has no figures of {', '.join(encoders)}, only of {', '.join(sorted(found))}"
    elif store.counts("runs", "run", run=run):
        what = f"run {run!r} wrote no figures, so it cannot be the baseline"
    else:
        what = f"run {run!r} is not in {store.uri}"
    return f"{what}; {did_you_mean(run, newest)}{advice}"


def dates_of(store: EmbeddingStore, runs: Sequence[str]) -> dict[str, str]:
    """Run -> the day that it started, as ``2026-11-15``."""
    rows = store.rows("runs", run=list(runs)).to_pylist() if runs else []
    started = {row["run"]: f"{row['started']:%Y-%m-%d}" for row in rows}
    return {run: started.get(run, "an unknown date") for run in runs}


def _id(row: Mapping[str, str]) -> FigureId:
    return FigureId(row["encoder"], row["corpus"], row["protocol"])


# --- Some items of a set as they are stored, and encoded again; and the probes of an endpoint.


Vectors = list[NDArray[np.float32]]


def stored_vectors(store: EmbeddingStore, sets: SetsRef, modality: Modality, ords: NDArray[np.int32]) -> Vectors:
    """Stored vectors of these items (``ords`` ascending), each of shape ``(n_vectors, dim)``."""
    vectors = vectors_of(store, sets, modality)
    if callable(vectors):
        return [item.astype(np.float32) for block in vectors(ords) for item in block]
    return [row[None] for row in vectors[ords]]


def fresh_vectors(encoder: Encoder, corpus: Corpus, modality: Modality, ords: NDArray[np.int32]) -> Vectors:
    """The same items encoded now in one batch; empty for images of a corpus without image bytes."""
    if modality == "caption":
        embeddings = encode_captions(encoder, texts(corpus.captions["text"].take(ords)))
    elif corpus.source is None:
        return []
    else:
        keys = texts(corpus.images["key"].take(ords))
        embeddings = encode_images(encoder, [decode_image(corpus.source.read(key)) for key in keys])
    return np.split(embeddings.values, np.cumsum(embeddings.counts)[:-1])


def changed_probes(store: EmbeddingStore, encoder: Encoder, rule: WatchRule, *, run: str) -> list[WatchFinding]:
    """A finding if the probe vectors of an endpoint have changed; none for a model that runs here."""
    found = probe_cosines(store, encoder, run=run)
    return judge_vectors(f"{encoder.spec.name}, probes", np.asarray([*found.values()]), rule) if found else []


# --- What a watch tells about its figures: findings that are no test, and a summary with the next step.


HISTORY = '`capim query "SELECT * FROM watched"`'
Results = Mapping[tuple[str, str, str], Mapping[str, Any]]
"""Evaluation, protocol and metric -> a row of ``schema.RESULTS``."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Figure:
    """A figure of the watch; ``pinned`` is None where it is watched for the first time."""

    id: FigureId
    metric: str
    evaluation: str
    sets: SetsRef
    corpus: Corpus
    protocol: Protocol
    pinned: Pinned | None

    @property
    def before(self) -> Pinned:
        """The pinned run, or an empty one."""
        return self.pinned or Pinned(run="", evaluation="")


def not_comparable(lost: Sequence[Figure], results: Results, since: Mapping[str, str]) -> list[WatchFinding]:
    """A warning for every encoder and corpus with figures that have nothing to be compared with."""
    findings: dict[str, WatchFinding] = {}
    for figure in lost:
        known = (figure.before.evaluation, figure.id.protocol, figure.metric) in results
        why = "the corpus has changed since" if known else "the store no longer has the outcomes of the run of"
        subject = f"{figure.id.encoder} on {figure.id.corpus}"
        message = f"figures are not comparable: {why} {since[figure.before.run]}; nothing was tested"
        findings.setdefault(subject, WatchFinding("warn", subject, message))
    return list(findings.values())


def exploratory(
    changed: Sequence[Figure], stored: Sequence[Mapping[str, Any]], rule: WatchRule, since: Mapping[str, str]
) -> list[WatchFinding]:
    """A note for every encoder and corpus whose other metrics have large drops, with the largest."""
    of_evaluation: dict[str, dict[tuple[str, str], float]] = defaultdict(dict)
    for row in stored:
        known = METRICS.get(row["metric"])
        if known is not None and known.reduce == "mean" and not row["lower_is_better"] and row["value"] is not None:
            of_evaluation[row["evaluation"]][row["metric"], row["metric_version"]] = row["value"]
    drops: dict[str, list[tuple[float, str, str]]] = defaultdict(list)
    for figure in changed:
        now = of_evaluation[figure.evaluation]
        for (metric, version), old in of_evaluation[figure.before.evaluation].items():
            fall = old - now.get((metric, version), old)
            if metric != figure.metric and fall >= rule.fail_drop:
                name = f"{figure.id.protocol} {metric}"
                drops[f"{figure.id.encoder} on {figure.id.corpus}"].append((fall, name, since[figure.before.run]))
    findings = []
    for subject, found in drops.items():
        fall, name, baseline = max(found)
        message = (
            f"other metrics, not tested: {len(found)} fell by {rule.least_drop} or more, most of all "
            f"{name} by {100 * fall:.1f} points since {baseline}"
        )
        findings.append(WatchFinding("note", subject, message))
    return findings


def weights(store: EmbeddingStore, changed: Sequence[Figure], results: Results) -> list[WatchFinding]:
    """Notes of what differs between the encoders of changed figures and those of the baseline."""
    pairs = {
        (figure.sets, results[figure.before.evaluation, figure.id.protocol, figure.metric]["encoder_fingerprint"])
        for figure in changed
    }
    found = [
        finding
        for sets, earlier in sorted(pairs, key=lambda pair: (pair[0].encoder, pair[1]))
        for finding in judge_settings(
            setting_changes(
                f"weights of {sets.encoder}",
                store.encoder(earlier).identity(),
                store.encoder(sets.encoder_fingerprint).identity(),
            )
        )
    ]
    return list(dict.fromkeys(found))


def summary_lines(
    figures: Sequence[Figure],
    states: Mapping[str, int],
    since: Mapping[str, str],
    *,
    run: str,
    level: float,
    rule: WatchRule,
) -> tuple[str, ...]:
    """What was compared, at which level, and the next step."""
    n_first = states["baseline"]
    lines = []
    if n_first:
        lines.append(f"run {run} is the baseline of {_count(n_first)}, which were watched for the first time")
    if since:
        pinned = ", ".join(f"run {baseline} of {date}" for baseline, date in since.items())
        lines.append(
            f"{_count(len(figures) - n_first)} (the main metric of each protocol), tested as one family, compared with "
            f"pinned {pinned}: {states['unchanged']} unchanged, {states['fail']} failed"
        )
        lines.append(
            f"alarm level of this watch {level:.2g}: at most {100 * rule.alpha:g} % of years with up to one watch a "
            "day have a false alarm"
        )
    if states["fail"] or states["warn"] or states["not comparable"]:
        lines.append(
            f"all figures of all watches: {HISTORY}; if the changes are intended, repeat the watch with "
            f"`--baseline {run}`, which pins this run"
        )
    return tuple(lines)


def _count(n: int) -> str:
    return f"{n} figure{'s' if n != 1 else ''}"


# --- The figures of a watch beside those of the pinned run: what fell, by how much, and whether by chance.
#
# The family of the tests is the main metric of every protocol of every encoder and corpus of the watch: R@1, the group
# score of quadruples, the accuracy of pairs, nDCG@10 of judged documents. The other metrics are exploratory: their
# large drops are named, and cannot fail a watch.


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
    changes = {_id_of_change(change): change for change in tested_changes(groups, level=level, resampling=resampling)}
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


def _id_of_change(change: FigureChange) -> FigureId:
    corpus, protocol, _, encoder = change.key
    return FigureId(encoder, corpus, protocol)
