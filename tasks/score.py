"""Shells: find sealed embedding sets; score them and write outcomes and results."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from prefect import task
from prefect.cache_policies import NO_CACHE

from store import EmbeddingStore
from store.errors import RequestError
from store.schema import RESULTS
from store.types import Corpus, EvalProtocol, Modality, digest16
from tasks.analysis.replicates import replicate_rows
from tasks.analysis.summary import Provenance, result_rows
from tasks.encoders.device import choose_device
from tasks.metrics import metrics_of
from tasks.progress import track
from tasks.references import EvaluationRef, SetsRef, corpus_name, encoder_name
from tasks.scoring.evaluate import SCORER_VERSION, evaluate
from tasks.scoring.outcomes import Outcomes
from tasks.scoring.protocols import select
from tasks.stored_outcomes import in_query_order

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


@task(name="find-evaluations", cache_policy=NO_CACHE)
def find_evaluations(
    store_uri: str, *, corpora: Sequence[Named] = (), encoders: Sequence[Named] = ()
) -> tuple[EvaluationRef, ...]:
    """What was evaluated, imported outcomes included: of every encoder and corpus name the newest state.

    Raises:
        RequestError: Nothing was evaluated by these names.
    """
    store = EmbeddingStore.open(store_uri)
    wanted = {"corpus": [corpus_name(c) for c in corpora], "encoder": [encoder_name(e) for e in encoders]}
    rows = store.rows("results", **{name: names for name, names in wanted.items() if names})
    newest: dict[tuple[str, str], EvaluationRef] = {}
    for row in rows.sort_by("created").select([*SetsRef.__dataclass_fields__, "protocol", "evaluation"]).to_pylist():
        sets = SetsRef(**{name: row[name] for name in SetsRef.__dataclass_fields__})
        known = newest.get((sets.encoder, sets.corpus))
        earlier = known.evaluations if known is not None and known.sets == sets else {}
        evaluations = {**earlier, row["protocol"]: row["evaluation"]}
        newest[sets.encoder, sets.corpus] = EvaluationRef(sets=sets, evaluations=evaluations, n_scored=0)
    if not newest:
        raise RequestError(f"the store {store.uri} has no results to compare; run `capim evaluate` first")
    return tuple(newest.values())


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
    keep_replicates: bool = False,
) -> EvaluationRef:
    """Outcomes and results of one encoder on one corpus; what was scored before is read, not scored again."""
    store = EmbeddingStore.open(store_uri)
    corpus = store.corpus(sets.corpus, sets.corpus_fingerprint)
    asked = select(corpus, protocols or None)
    tags = _tags(store, sets)
    scored_from = [sets.encoder_fingerprint, sets.corpus_fingerprint, tags["image_digest"], tags["caption_digest"]]
    evaluations = {p.id: digest16([*scored_from, p.id, SCORER_VERSION]) for p in asked}
    known = _refreshed(store, evaluations, run, replicates=replicates, seed=seed, level=level)
    if keep_replicates:
        known -= known - set(store.rows("replicates", evaluation=list(evaluations.values()))["protocol"].to_pylist())
    todo = [protocol for protocol in asked if protocol.id not in known]
    whose = {name: getattr(sets, name) for name in SetsRef.__dataclass_fields__}
    scored = 0
    with track(f"{sets.encoder} · {sets.corpus} · scoring", total=len(asked), unit="protocols") as advance:
        advance(len(known))
        stored = {p.id: rows for p in todo if (rows := store.rows("outcomes", evaluation=evaluations[p.id])).num_rows}
        fresh = _score(store, sets, corpus, [p for p in todo if p.id not in stored], device)
        for protocol in todo:
            if protocol.id in stored:
                rows = stored[protocol.id]
            else:
                rows = fresh[protocol.id].to_arrow(evaluation=evaluations[protocol.id], **whose)
                store.write_rows("outcomes", rows, replace="evaluation")
                scored += 1
            outcomes = Outcomes.from_arrow(in_query_order(rows), protocol)
            n_clusters = len(corpus.quadruples if protocol.direction == "quadruples" else corpus.images)
            source = Provenance(
                **whose,
                evaluation=evaluations[protocol.id],
                image_tag=tags["image_tag"],
                caption_tag=tags["caption_tag"],
                run=run,
            )
            metrics = metrics_of(outcomes)
            results = result_rows(
                outcomes, metrics, source, n_clusters=n_clusters, seed=seed, replicates=replicates, level=level
            )
            store.write_rows("results", results, replace="result")
            if keep_replicates:
                drawn = replicate_rows(
                    outcomes, metrics, source, n_clusters=n_clusters, seed=seed, replicates=replicates
                )
                store.write_rows("replicates", drawn, replace="result")
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


def _refreshed(
    store: EmbeddingStore, evaluations: dict[str, str], run: str, *, replicates: int, seed: int, level: float
) -> set[str]:
    """Protocols whose results were computed in this very way before; they become this run's, the newest, unchanged."""
    same = (replicates, seed, level)
    rows = store.rows("results", evaluation=list(evaluations.values())).to_pylist()
    known = [row for row in rows if (row["replicates"], row["seed"], row["level"]) == same]
    now = datetime.now(UTC)
    refreshed = [{**row, "run": run, "created": now} for row in known]
    store.write_rows("results", pa.Table.from_pylist(refreshed, schema=RESULTS), replace="result")
    return {row["protocol"] for row in known}


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
