"""Tasks of the regression watch: compare vectors, figures and library versions with the pinned run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import cast

from capim.store import EmbeddingStore
from capim.store.types import MODALITIES, EncoderSpec
from capim.tasks.encoders import load_encoder
from capim.tasks.encoders.device import device_identity
from capim.tasks.reference.changes import setting_changes
from capim.tasks.reference.regression import WatchFinding, WatchRule, cosines, judge_settings, judge_vectors
from capim.tasks.runtime.encoding import device_for, hardware_of, held
from capim.tasks.runtime.open_corpora import OpenCorpora
from capim.tasks.runtime.references import EmbedRef, EvaluationRef
from capim.tasks.runtime.shell import shell
from capim.tasks.runtime.stored import chosen
from capim.tasks.runtime.versions import library_versions
from capim.tasks.runtime.watched import (
    WatchedFigures,
    changed_canaries,
    fresh_vectors,
    run_fault,
    stored_vectors,
    watch_figures,
)
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

    Sets that this run encoded as a whole are skipped. Of an endpoint, the canaries are compared first.
    """
    stored = [reference for reference in embedded if reference.n_encoded < reference.n_items]
    if not stored:
        return []
    store = EmbeddingStore.open(store_uri)
    device = device_for(spec, device)
    findings: list[WatchFinding] = []
    with held(device_identity(device)):
        encoder = load_encoder(spec, device=device, trust_remote_code=trust_remote_code)
        findings += changed_canaries(store, encoder, rule, run=run)
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
