"""Tasks of an evaluation: find what is stored, score it, and complete the figures of stored outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from capim.store import EmbeddingStore
from capim.store.errors import RequestError
from capim.store.removal import drop_superseded
from capim.store.rows import names_with_rows
from capim.store.schema import texts
from capim.tasks.corpora.naming import stored_corpora
from capim.tasks.protocols import MAIN, Protocol
from capim.tasks.ranking.protocols import select_protocols
from capim.tasks.ranking.resources import Resources
from capim.tasks.results.combined import LanguagePart
from capim.tasks.runtime.progress import track
from capim.tasks.runtime.references import EvaluationRef, SetsRef, encoder_name
from capim.tasks.runtime.results import ResultWriter, joint_protocols, outdated_results
from capim.tasks.runtime.scoring import (
    missing_sets,
    open_sets,
    outcomes_of,
    stored_evaluations,
    write_score_part,
)
from capim.tasks.runtime.stored import outcome_encoders
from capim.tasks.runtime.task import task
from capim.tasks.statistics.draws import Resampling

Named = str | dict[str, Any]
RANKING = 0.5  # the part of the work on a protocol that comes before its metrics and their intervals


@task("score", run_name="score-{sets.encoder}-{sets.corpus}")
def score(
    sets: SetsRef,
    *,
    store_uri: str,
    protocols: Sequence[str],
    device: str,
    resampling: Resampling,
    run: str,
    keep_replicates: bool = False,
    memory_bytes: int | None = None,
    n_parts: int = 1,
) -> EvaluationRef:
    """Outcomes and results of one encoder on one corpus; of ``n_parts`` parts, those that `score_part` stored merge.

    Stored outcomes are read instead of scored again, and of stored results only what is missing of the table's metrics
    is computed.
    """
    store = EmbeddingStore.open(store_uri)
    scored = open_sets(store, sets, protocols)
    writer = ResultWriter(scored=scored, resampling=resampling, run=run)
    evaluations = scored.evaluations
    joint = joint_protocols(scored)
    ids = [*evaluations.values(), *map(scored.joint_evaluation, joint.values())]
    renewed = writer.renew(ids, keep_replicates=keep_replicates)
    # comparisons and slices also need the outcomes, which a damaged store may have lost in part
    stored = store.counts("outcomes", "protocol", evaluation=list(evaluations.values()))
    present = {protocol: found for protocol, found in renewed.items() if stored.get(protocol) == found.n_queries}
    todo = [p for p in scored.protocols if p.id not in present or present[p.id].lacks(p)]
    n_scored = n_added = 0
    parts: dict[str, LanguagePart] = {}
    with track(f"{sets.encoder} · {sets.corpus} · scoring", total=len(evaluations), unit="protocols") as advance:
        advance(len(evaluations) - len(todo))

        def ranked(n_protocols: float) -> None:
            advance(RANKING * n_protocols)

        resources = Resources(device, memory_bytes)
        scoring = outcomes_of(scored, todo, stored, resources=resources, n_parts=n_parts, advance=ranked)
        for scored_together, is_fresh in scoring:
            n_scored += len(scored_together) * is_fresh
            kept = {} if is_fresh else present
            for outcomes in scored_together:
                if outcomes.protocol in joint.get("mean", ()) and outcomes.protocol.id not in kept:
                    parts[outcomes.protocol.id] = writer.language(outcomes)
            n_figures = writer.write_metrics(scored_together, keep_replicates=keep_replicates, present=kept)
            n_added += 0 if is_fresh else n_figures
            advance(len(scored_together) * (1 - RANKING if is_fresh else 1))
    kinds = {Protocol.of(protocol).kind for protocol in renewed}
    if "sum" in joint and ("sum" not in kinds or any(protocol not in present for protocol in MAIN)):
        writer.write_rsum(joint["sum"])
    if "mean" in joint and (parts or "mean" not in kinds):
        writer.write_languages(joint["mean"], parts)
    writer.drop_outdated(list(evaluations.values()))
    drop_superseded(store, encoder_fingerprint=sets.encoder_fingerprint, corpus_fingerprint=scored.corpus.fingerprint)
    return EvaluationRef(sets=sets, evaluations=dict(evaluations), n_scored=n_scored, n_added=n_added)


@task("score-part", run_name="score-{sets.encoder}-{sets.corpus}-part-{part}-of-{n_parts}")
def score_part(
    sets: SetsRef,
    *,
    store_uri: str,
    protocols: Sequence[str],
    device: str,
    memory_bytes: int | None,
    part: int,
    n_parts: int,
) -> SetsRef:
    """Score one part of the gallery, from 1, for `score` to merge; nothing where the outcomes are stored."""
    store = EmbeddingStore.open(store_uri)
    scored = open_sets(store, sets, protocols)
    stored = store.counts("outcomes", "protocol", evaluation=list(scored.evaluations.values()))
    write_score_part(scored, stored, part - 1, n_parts, Resources(device, memory_bytes))
    return sets


@task("check-scoring")
def check_scoring(
    sets: Sequence[SetsRef], *, store_uri: str, protocols: Sequence[str], distractors: Sequence[str]
) -> None:
    """Check that protocols fit the corpora of these sets, and that distractors are stored, before anything is scored.

    Raises:
        RequestError: A protocol is unknown or does not fit, a corpus of distractors is unknown or has no vectors by an
            encoder; all faults together.
    """
    store, faults = EmbeddingStore.open(store_uri), list[str]()
    for corpus, fingerprint in dict.fromkeys((pair.corpus, pair.corpus_fingerprint) for pair in sets):
        try:
            select_protocols(store.corpus(corpus, fingerprint), protocols)
        except RequestError as error:
            faults += error.faults
    for encoder, corpus in product(dict.fromkeys(pair.encoder_fingerprint for pair in sets), distractors):
        try:
            key = store.key(encoder=encoder, corpus=corpus, modality="image")
            faults += [] if store.sealed(key) else [missing_sets(store, key, ["image"])]
        except RequestError as error:
            faults += error.faults
    if faults:
        raise RequestError(list(dict.fromkeys(faults)))


@task("find-outdated")
def find_outdated(store_uri: str, evaluations: Sequence[EvaluationRef]) -> tuple[EvaluationRef, ...]:
    """Those of these evaluations that have results by another version of a metric than today's."""
    store = EmbeddingStore.open(store_uri)
    ids = sorted({id_ for each in evaluations for id_ in each.evaluations.values()})
    stale = {row["evaluation"] for row in outdated_results(store.rows("results", evaluation=ids).to_pylist())}
    return tuple(each for each in evaluations if not stale.isdisjoint(each.evaluations.values()))


@task("complete-figures", run_name="complete-{evaluation.sets.encoder}-{evaluation.sets.corpus}")
def complete_figures(
    evaluation: EvaluationRef,
    *,
    store_uri: str,
    protocols: Sequence[str],
    resampling: Resampling,
    run: str,
    keep_replicates: bool = False,
) -> EvaluationRef:
    """The table's metrics that stored outcomes determine and that have no result with these settings yet.

    Figures over several protocols are computed anew if they are stored: where ranks are left open they never were.
    """
    store = EmbeddingStore.open(store_uri)
    scored = stored_evaluations(store, evaluation, protocols)
    writer = ResultWriter(scored=scored, resampling=resampling, run=run)
    evaluations = scored.evaluations
    joint = joint_protocols(scored)
    ids = {kind: scored.joint_evaluation(group) for kind, group in joint.items()}
    stored = store.counts("results", "evaluation", evaluation=list(ids.values()))
    present = writer.renew([*evaluations.values(), *ids.values()], keep_replicates=keep_replicates)
    anew = {kind for kind, id_ in ids.items() if id_ in stored} - {Protocol.of(id_).kind for id_ in present}
    n_added = 0
    for protocol in scored.protocols:
        if protocol.id not in present or present[protocol.id].lacks(protocol):
            outcomes = [scored.read(protocol)]
            n_added += writer.write_metrics(outcomes, keep_replicates=keep_replicates, present=present)
    if "sum" in anew:
        writer.write_rsum(joint["sum"])
    if "mean" in anew:
        writer.write_languages(joint["mean"], {})
    writer.drop_outdated(list(evaluations.values()))
    return EvaluationRef(sets=evaluation.sets, evaluations=dict(scored.evaluations), n_scored=0, n_added=n_added)


@task("find-sets")
def find_sets(
    store_uri: str, *, corpora: Sequence[Named], encoders: Sequence[Named], sample: int | None = None, seed: int = 0
) -> tuple[SetsRef, ...]:
    """The newest sealed pairs of embedding sets of these names; all pairs, of encoders with embeddings, without names.

    Raises:
        RequestError: A named pair is missing, or there are neither pairs nor outcomes.
    """
    store = EmbeddingStore.open(store_uri)
    sealed = {(s.key.encoder_fingerprint, s.key.corpus_fingerprint, s.key.modality) for s in store.sealed_sets()}
    encoder_names = [encoder_name(e) for e in encoders] or sorted(set(texts(store.encoders()["name"])))
    register = store.corpora().to_pylist()
    rows = stored_corpora(corpora, register, sample=sample, seed=seed, uri=store.uri)
    states = [row["fingerprint"] for row in rows] or sorted({row["name"] for row in register})
    without_embeddings = outcome_encoders(store)
    encoded = [name for name in encoder_names if name not in without_embeddings]
    found: list[SetsRef] = []
    faults: list[str] = []
    parts: list[str] = []
    for state in states:
        for encoder in encoded:
            key = store.key(encoder=encoder, corpus=state, modality="image")
            pair = (key.encoder_fingerprint, key.corpus_fingerprint)
            lacking = [modality for modality in ("image", "caption") if (*pair, modality) not in sealed]
            if not lacking:
                found.append(SetsRef(**{name: getattr(key, name) for name in SetsRef.__dataclass_fields__}))
            elif (encoders and corpora) or len(lacking) == 1:
                (faults if encoders and corpora else parts).append(missing_sets(store, key, lacking))
    if not found and not faults and (parts or encoded == encoder_names):
        first = "run `capim run`, `capim embed`, or `capim import` for embeddings made elsewhere"
        faults = parts or [f"the store {store.uri} has no complete embedding sets; {first}"]
    if faults:
        raise RequestError(faults)
    return tuple(found)


@task("find-evaluations")
def find_evaluations(
    store_uri: str,
    *,
    corpora: Sequence[Named] = (),
    encoders: Sequence[Named] = (),
    protocols: Sequence[str] = (),
    sample: int | None = None,
    seed: int = 0,
) -> tuple[EvaluationRef, ...]:
    """The newest evaluations of every encoder and corpus name under these protocols, imported outcomes included.

    In the order of the given names, else sorted by name, so that comparisons do not depend on the order of writing.

    Raises:
        RequestError: A name or protocol has no results, or these have none together.
    """
    store = EmbeddingStore.open(store_uri)
    rows = stored_corpora(corpora, store.corpora().to_pylist(), sample=sample, seed=seed, uri=store.uri)
    wanted = {"corpus": [row["name"] for row in rows], "encoder": [encoder_name(e) for e in encoders]}
    chosen = names_with_rows(store, "results", {**wanted, "protocol": protocols})
    present = texts(store.corpora()["fingerprint"])  # others were dropped
    found = store.rows("results", **chosen, corpus_fingerprint=present).sort_by("created")
    newest: dict[tuple[str, str], EvaluationRef] = {}
    for row in found.select([*SetsRef.__dataclass_fields__, "protocol", "evaluation"]).to_pylist():
        if Protocol.of(row["protocol"]).is_combined:
            continue
        sets = SetsRef(**{name: row[name] for name in SetsRef.__dataclass_fields__})
        known = newest.get((sets.encoder, sets.corpus))
        earlier = known.evaluations if known is not None and known.sets == sets else {}
        evaluations = {**earlier, row["protocol"]: row["evaluation"]}
        newest[sets.encoder, sets.corpus] = EvaluationRef(sets=sets, evaluations=evaluations, n_scored=0)
    if not newest:
        raise RequestError(
            f"the store {store.uri} has no results of these encoders and corpora; run `capim evaluate` first"
        )
    places = [{name: place for place, name in enumerate(wanted[kind])} for kind in ("corpus", "encoder")]

    def order(names: tuple[str, str]) -> tuple[tuple[int, str], ...]:
        encoder, corpus = names
        return tuple((place.get(name, 0), name) for place, name in zip(places, (corpus, encoder), strict=True))

    return tuple(newest[names] for names in sorted(newest, key=order))


@task("find-outcomes")
def find_outcomes(
    store_uri: str, *, corpora: Sequence[Named], encoders: Sequence[Named], sample: int | None, seed: int
) -> tuple[EvaluationRef, ...]:
    """The newest evaluations of imported outcomes, and of fused and re-ranked scores; empty if there are none.

    Raises:
        RequestError: A named encoder of this kind has no results on these corpora.
    """
    store = EmbeddingStore.open(store_uri)
    named = [encoder_name(e) for e in encoders]
    kind = outcome_encoders(store)
    names = (
        [name for name in named if name in kind] if named else sorted(kind & store.counts("results", "encoder").keys())
    )
    if not names:
        return ()
    try:
        return find_evaluations.fn(store_uri, corpora=corpora, encoders=names, sample=sample, seed=seed)
    except RequestError:
        if named:
            raise
        return ()  # none of them on these corpora
