"""Shells: find sealed embedding sets; score them and write outcomes and results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from prefect import task
from prefect.cache_policies import NO_CACHE

from store import EmbeddingStore
from store.errors import RequestError
from store.schema import RESULTS
from store.types import Corpus, EvalProtocol, Modality, digest16
from tasks.analysis.summary import Provenance, result_rows
from tasks.encoders.device import choose_device
from tasks.metrics import metrics_of
from tasks.progress import track
from tasks.references import EvaluationRef, SetsRef, corpus_name, encoder_name
from tasks.scoring.evaluate import SCORER_VERSION, evaluate
from tasks.scoring.outcomes import Outcomes
from tasks.scoring.protocols import select

Named = str | dict[str, Any]


@task(name="find-sets", cache_policy=NO_CACHE)
def find_sets(store_uri: str, *, corpora: Sequence[Named], encoders: Sequence[Named]) -> tuple[SetsRef, ...]:
    """The newest sealed pairs of embedding sets by these names; all that there are where none is named.

    Raises:
        RequestError: A named pair is not there, or nothing is.
    """
    store = EmbeddingStore.open(store_uri)
    sealed = {(s.key.encoder_fingerprint, s.key.corpus_fingerprint, s.key.modality) for s in store.sealed_sets()}
    encoder_names = [encoder_name(e) for e in encoders] or sorted(set(store.encoders()["name"].to_pylist()))
    corpus_names = [corpus_name(c) for c in corpora] or sorted(set(store.corpora()["name"].to_pylist()))
    found, faults = [], []
    for corpus in corpus_names:
        for encoder in encoder_names:
            key = store.key(encoder=encoder, corpus=corpus, modality="image")
            whose = (key.encoder_fingerprint, key.corpus_fingerprint)
            if {(*whose, "image"), (*whose, "caption")} <= sealed:
                found.append(
                    SetsRef(
                        encoder=key.encoder,
                        encoder_fingerprint=key.encoder_fingerprint,
                        corpus=key.corpus,
                        corpus_fingerprint=key.corpus_fingerprint,
                    )
                )
            elif encoders and corpora:
                faults.append(f"{corpus!r} is not completely encoded by {encoder!r}; run `capim embed` with both")
    if not found and not faults:
        faults.append(f"the store {store.uri} has no complete embedding sets; run `capim embed` or `capim run` first")
    if faults:
        raise RequestError(faults)
    return tuple(found)


@task(name="score", task_run_name="score-{sets.encoder}-{sets.corpus}", cache_policy=NO_CACHE)
def score(
    sets: SetsRef,
    *,
    store_uri: str,
    protocols: Sequence[str],
    device: str,
    replicates: int,
    seed: int,
    level: float,
    run: str,
) -> EvaluationRef:
    """Outcomes and results of one encoder on one corpus; what was scored before is read, not scored again."""
    store = EmbeddingStore.open(store_uri)
    corpus = store.corpus(sets.corpus, sets.corpus_fingerprint)
    asked = select(corpus, protocols or None)
    tags = _tags(store, sets)
    evaluations = {p.id: digest16([tags["image_digest"], tags["caption_digest"], p.id, SCORER_VERSION]) for p in asked}
    known = _known_results(store, evaluations, replicates=replicates, seed=seed, level=level)
    todo = [protocol for protocol in asked if protocol.id not in known]
    scored = 0
    with track(f"{sets.encoder} · {sets.corpus} · scoring", total=len(asked), unit="protocols") as advance:
        advance(len(known))
        stored = {p.id: rows for p in todo if (rows := store.rows("outcomes", evaluation=evaluations[p.id])).num_rows}
        fresh = _score(store, sets, corpus, [p for p in todo if p.id not in stored], device)
        for protocol in todo:
            if protocol.id in stored:
                outcomes = Outcomes.from_arrow(stored[protocol.id], protocol)
            else:
                outcomes = fresh[protocol.id]
                whose = {name: getattr(sets, name) for name in SetsRef.__dataclass_fields__}
                rows = outcomes.to_arrow(evaluation=evaluations[protocol.id], **whose)
                store.write_rows("outcomes", rows, replace="evaluation")
                scored += 1
            results = _results(outcomes, corpus, sets, evaluations[protocol.id], tags, run, replicates, seed, level)
            store.write_rows("results", results, replace="evaluation")
            advance(1)
    return EvaluationRef(sets=sets, evaluations=evaluations, n_scored=scored)


def _tags(store: EmbeddingStore, sets: SetsRef) -> dict[str, str]:
    tags = {}
    modalities: tuple[Modality, ...] = ("image", "caption")
    for modality in modalities:
        key = store.key(encoder=sets.encoder_fingerprint, corpus=sets.corpus_fingerprint, modality=modality)
        sealed = store.sealed(key)
        if sealed is None:
            raise RequestError(f"{modality}s of {sets.corpus!r} by {sets.encoder!r} are not sealed; run `capim embed`")
        tags[f"{modality}_tag"], tags[f"{modality}_digest"] = sealed.tag, sealed.digest
    return tags


def _known_results(
    store: EmbeddingStore, evaluations: dict[str, str], *, replicates: int, seed: int, level: float
) -> set[str]:
    """Protocols whose results are stored already, computed in this very way."""
    rows = store.rows("results", evaluation=list(evaluations.values()))
    same = (replicates, seed, level)
    return {
        row["protocol"]
        for row in rows.select(["protocol", "replicates", "seed", "level"]).to_pylist()
        if (row["replicates"], row["seed"], row["level"]) == same
    }


def _score(
    store: EmbeddingStore, sets: SetsRef, corpus: Corpus, protocols: Sequence[EvalProtocol], device: str
) -> dict[str, Outcomes]:
    if not protocols:
        return {}
    encoder, whole = sets.encoder_fingerprint, sets.corpus_fingerprint
    if store.encoder(encoder).vectors == "multi":
        return evaluate(
            corpus,
            protocols,
            images=lambda: store.multivectors(encoder=encoder, corpus=whole, modality="image"),
            captions=lambda: store.multivectors(encoder=encoder, corpus=whole, modality="caption"),
            device=choose_device(device),
        )
    return evaluate(
        corpus,
        protocols,
        images=store.vectors(encoder=encoder, corpus=whole, modality="image").matrix,
        captions=store.vectors(encoder=encoder, corpus=whole, modality="caption").matrix,
        device=choose_device(device),
    )


def _results(
    outcomes: Outcomes,
    corpus: Corpus,
    sets: SetsRef,
    evaluation: str,
    tags: dict[str, str],
    run: str,
    replicates: int,
    seed: int,
    level: float,
) -> pa.Table:
    """Every metric of the protocol with its interval."""
    metrics = metrics_of(outcomes)
    if not metrics:
        return RESULTS.empty_table()
    n_clusters = len(corpus.quadruples if outcomes.protocol.direction == "quadruples" else corpus.images)
    provenance = Provenance(
        evaluation=evaluation,
        encoder=sets.encoder,
        encoder_fingerprint=sets.encoder_fingerprint,
        corpus=sets.corpus,
        corpus_fingerprint=sets.corpus_fingerprint,
        image_tag=tags["image_tag"],
        caption_tag=tags["caption_tag"],
        run=run,
    )
    return result_rows(
        outcomes, metrics, provenance, n_clusters=n_clusters, seed=seed, replicates=replicates, level=level
    )
