"""Tasks of the regression watch: compare vectors, metrics and library versions with the last completed run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import cast

from store import EmbeddingStore
from store.types import MODALITIES, EncoderSpec
from tasks.encoders import load_encoder
from tasks.encoders.device import choose_device, device_identity, device_name
from tasks.reference.changes import setting_changes
from tasks.reference.regression import WatchFinding, WatchRule, cosines, judge_metric, judge_settings, judge_vectors
from tasks.runtime.device_lock import held
from tasks.runtime.open_corpora import OpenCorpora
from tasks.runtime.references import EmbedRef, EvaluationRef
from tasks.runtime.shell import shell
from tasks.runtime.stored import chosen
from tasks.runtime.versions import library_versions
from tasks.runtime.watching import earlier_evaluations, figure_changes, fresh_vectors, stored_vectors
from tasks.scoring.protocols.selection import select_protocols
from tasks.statistics.resampling import Resampling


@shell("watch-vectors", encodes=True, run_name="watch-vectors-{spec.name}", timeout_hours=6)
def watch_vectors(
    spec: EncoderSpec,
    embedded: Sequence[EmbedRef],
    opened: OpenCorpora,
    *,
    store_uri: str,
    device: str,
    rule: WatchRule,
    seed: int,
) -> list[WatchFinding]:
    """Encode a sample of every set again with the same model and compare it with the stored vectors.

    Sets that this run encoded as a whole are skipped.
    """
    stored = [reference for reference in embedded if reference.n_encoded < reference.n_items]
    if not stored:
        return []
    store = EmbeddingStore.open(store_uri)
    device = choose_device(device)
    findings: list[WatchFinding] = []
    with held(device_identity(device)):
        encoder = load_encoder(spec, device=device)
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
                change = setting_changes(
                    f"device of {subject}", {"device": ", ".join(devices)}, {"device": device_name(device)}
                )
                findings += judge_settings(change)
    return findings


@shell("watch-metrics", run_name="watch-metrics-{now.sets.encoder}-{now.sets.corpus}")
def watch_metrics(
    now: EvaluationRef, *, store_uri: str, run: str, rule: WatchRule, resampling: Resampling
) -> list[WatchFinding]:
    """Compare an encoder's outcomes with those of the same name and corpus in the last completed run, query by query.

    Outcomes differ only if the encoder (its revision, precision or options) or the scorer changed.
    """
    store = EmbeddingStore.open(store_uri)
    corpus = store.corpus(now.sets.corpus, now.sets.corpus_fingerprint)
    earlier = earlier_evaluations(store, now, run)
    shared = sorted(earlier.keys() & now.evaluations.keys())
    findings: list[WatchFinding] = []
    for protocol in select_protocols(corpus, shared) if shared else ():
        evaluation = earlier[protocol.id]["evaluation"]
        for change in figure_changes(store, corpus, protocol, now, evaluation, resampling=resampling):
            subject = f"{now.sets.encoder} on {corpus.name}, {protocol.id} {change.key[2]}"
            findings += judge_metric(subject, change, rule)
    new = store.encoder(now.sets.encoder_fingerprint)
    for fingerprint in {row["encoder_fingerprint"] for row in earlier.values()} - {now.sets.encoder_fingerprint}:
        before = store.encoder(fingerprint).identity()
        findings += judge_settings(setting_changes(f"weights of {new.name}", before, new.identity()))
    return list(dict.fromkeys(findings))


@shell("watch-libraries")
def watch_libraries(*, store_uri: str, run: str) -> list[WatchFinding]:
    """Compare library versions with those of the last completed run."""
    rows = EmbeddingStore.open(store_uri).rows("runs", state="completed").sort_by("started").to_pylist()
    earlier = [json.loads(row["versions"]) for row in rows if row["run"] != run]
    return judge_settings(setting_changes("library", earlier[-1], library_versions())) if earlier else []
