"""Shells of the regression watch: stored vectors against fresh ones, metrics against the last completed run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from store import EmbeddingStore
from store.types import Corpus, EncoderSpec, Modality
from tasks.corpora.images.decode import decode_image
from tasks.embed import opened_corpus
from tasks.encoders import Encoder, encode_captions, encode_images, load_encoder
from tasks.encoders.device import choose_device, device_identity, device_name
from tasks.metrics import METRICS
from tasks.reference.changes import FigureChange, adjust, setting_changes
from tasks.reference.regression import (
    WatchFinding,
    WatchRule,
    cosines,
    judge_metric,
    judge_settings,
    judge_vectors,
)
from tasks.results.comparison import EncoderOutcomes, comparison_rows, shared_metrics
from tasks.runtime.device_lock import held
from tasks.runtime.references import EmbedRef, EvaluationRef
from tasks.runtime.shell import shell
from tasks.runtime.stored_outcomes import read_outcomes
from tasks.runtime.stored_vectors import chosen
from tasks.runtime.versions import library_versions
from tasks.scoring.protocols.layout import cluster_count
from tasks.scoring.protocols.selection import select_protocols
from tasks.statistics.resampling import Resampling

Vectors = list[NDArray[np.float32]]


@shell("watch-vectors", kind="encode", run_name="watch-vectors-{spec.name}", timeout_hours=6)
def watch_vectors(
    spec: EncoderSpec, embedded: Sequence[EmbedRef], *, store_uri: str, device: str, rule: WatchRule, seed: int
) -> list[WatchFinding]:
    """Encode a sample of every set again with the same model and hold it against what is stored.

    Sets that this very run encoded are left out: they are nothing to compare with.
    """
    store = EmbeddingStore.open(store_uri)
    device = choose_device(device)
    if all(reference.n_encoded == reference.n_items for reference in embedded):
        return []
    with held(device_identity(device)):
        return _watched(store, spec, embedded, device=device, rule=rule, seed=seed)


def _watched(
    store: EmbeddingStore, spec: EncoderSpec, embedded: Sequence[EmbedRef], *, device: str, rule: WatchRule, seed: int
) -> list[WatchFinding]:
    findings: list[WatchFinding] = []
    encoder = load_encoder(spec, device=device)
    for reference in embedded:
        if reference.n_encoded == reference.n_items:
            continue
        corpus = opened_corpus(reference.corpus, store.uri)
        subject = f"{spec.name} on {corpus.name}"
        sides: tuple[Modality, ...] = ("image", "caption")
        for modality in sides:
            ords = chosen(len(corpus.images if modality == "image" else corpus.captions), rule.sample, seed)
            found = cosines(_stored(store, reference, modality, ords), _again(encoder, corpus, modality, ords))
            findings += judge_vectors(f"{subject}, {modality}s", found, rule)
        findings += _device(store, reference, subject, device)
    return findings


@shell("watch-metrics", kind="analyse", run_name="watch-metrics-{now.sets.encoder}-{now.sets.corpus}")
def watch_metrics(
    now: EvaluationRef, *, store_uri: str, run: str, rule: WatchRule, resampling: Resampling
) -> list[WatchFinding]:
    """Compare an encoder's outcomes with those of the same name and corpus in the last completed run, query by query.

    The same vectors give the same outcomes, so there is something to compare only where the encoder (its revision,
    its precision, its options) or the scorer changed.
    """
    store = EmbeddingStore.open(store_uri)
    corpus = store.corpus(now.sets.corpus, now.sets.corpus_fingerprint)
    good = set(store.rows("runs", state="completed")["run"].to_pylist())
    rows = store.rows("results", corpus_fingerprint=corpus.fingerprint, encoder=now.sets.encoder).sort_by("created")
    before: dict[str, dict[str, Any]] = {}
    for row in rows.select(["protocol", "evaluation", "encoder_fingerprint", "run"]).to_pylist():
        if row["run"] in good and row["run"] != run and row["evaluation"] not in now.evaluations.values():
            before[row["protocol"]] = row
    findings: list[WatchFinding] = []
    shared = sorted(before.keys() & now.evaluations.keys())
    for protocol in select_protocols(corpus, shared) if shared else ():
        then = before[protocol.id]
        encoders = [
            EncoderOutcomes(encoder="now", fingerprint="now", outcomes=read_outcomes(store, e, protocol))
            if e == now.evaluations[protocol.id]
            else EncoderOutcomes(encoder="then", fingerprint="then", outcomes=read_outcomes(store, e, protocol))
            for e in (now.evaluations[protocol.id], then["evaluation"])
        ]
        n_clusters = cluster_count(corpus, protocol)
        compared = comparison_rows(
            encoders,
            shared_metrics(encoders),
            corpus=corpus.name,
            corpus_fingerprint=corpus.fingerprint,
            run=run,
            n_clusters=n_clusters,
            resampling=resampling,
        )
        changes = adjust(
            [
                FigureChange(
                    key=(corpus.name, protocol.id, row["metric"], now.sets.encoder),
                    difference=row["difference"],
                    p=row["p_sign_flip"],
                    basis="paired test",
                    lower_is_better=not METRICS[row["metric"]].higher_is_better,
                )
                for row in compared.to_pylist()
            ]
        )
        for change in sorted(changes, key=lambda change: change.p or 0.0):
            subject = f"{now.sets.encoder} on {corpus.name}, {protocol.id} {change.key[2]}"
            findings += judge_metric(subject, change, rule)
    for fingerprint in {row["encoder_fingerprint"] for row in before.values()} - {now.sets.encoder_fingerprint}:
        old, new = store.encoder(fingerprint), store.encoder(now.sets.encoder_fingerprint)
        findings += judge_settings(setting_changes(f"weights of {new.name}", old.identity(), new.identity()))
    return list(dict.fromkeys(findings))


@shell("watch-libraries", kind="read")
def watch_libraries(*, store_uri: str, run: str) -> list[WatchFinding]:
    """Library versions now against those of the last completed run."""
    rows = EmbeddingStore.open(store_uri).rows("runs", state="completed").sort_by("started").to_pylist()
    earlier = [row for row in rows if row["run"] != run]
    if not earlier:
        return []
    return judge_settings(setting_changes("library", json.loads(earlier[-1]["versions"]), library_versions()))


def _stored(store: EmbeddingStore, reference: EmbedRef, modality: Modality, ords: NDArray[np.int32]) -> Vectors:
    """Vectors of these items as the store has them, each of shape ``(n_vectors, dim)``."""
    encoder, corpus = reference.sets.encoder_fingerprint, reference.sets.corpus_fingerprint
    if store.encoder(encoder).vectors == "single":
        matrix = store.vectors(encoder=encoder, corpus=corpus, modality=modality).matrix
        return [matrix[i : i + 1] for i in ords]
    wanted = set(ords.tolist())
    found: dict[int, NDArray[np.float32]] = {}
    for block in store.multivectors(encoder=encoder, corpus=corpus, modality=modality):
        for at, position in enumerate(block.ords.tolist()):
            if position in wanted:
                found[position] = block.values[block.offsets[at] : block.offsets[at + 1]].astype(np.float32)
    return [found[i] for i in ords.tolist()]


def _again(encoder: Encoder, corpus: Corpus, modality: Modality, ords: NDArray[np.int32]) -> Vectors:
    """The same items through the model, in one batch."""
    if modality == "caption":
        made = encode_captions(encoder, corpus.captions["text"].take(pa.array(ords)).to_pylist())
    else:
        source = corpus.source
        if source is None:
            return []
        keys = corpus.images["key"].take(pa.array(ords)).to_pylist()
        made = encode_images(encoder, [decode_image(source.read(key)) for key in keys])
    ends = np.cumsum(made.counts)
    return [made.values[end - count : end] for end, count in zip(ends, made.counts, strict=True)]


def _device(store: EmbeddingStore, reference: EmbedRef, subject: str, device: str) -> list[WatchFinding]:
    """A note where the vectors were made on other hardware."""
    whose = {"encoder_fingerprint": reference.sets.encoder_fingerprint, "corpus": reference.sets.corpus}
    made_on = sorted(set(store.rows("batches", **whose)["device"].to_pylist()))
    now = device_name(device)
    if not made_on or made_on == [now]:
        return []
    then = ", ".join(islice(made_on, 3))
    return judge_settings(setting_changes(f"device of {subject}", {"device": then}, {"device": now}))
