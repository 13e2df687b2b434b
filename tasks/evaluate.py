"""Tasks of an evaluation: find stored sets, score them, and complete the results of stored outcomes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from capim.store import EmbeddingStore
from capim.store.current import States, age
from capim.store.errors import RequestError, noted
from capim.store.rows import names_with_rows
from capim.store.schema import OfProtocol, Result
from capim.store.upkeep.removal import drop_superseded
from capim.tasks.corpora.naming import stored_corpora
from capim.tasks.hub.progress import track
from capim.tasks.prefects.task import asset, task
from capim.tasks.protocols import Protocol
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import select_protocols
from capim.tasks.ranking.resources import Resources
from capim.tasks.references import EvaluationRef, SetsRef, encoder_name
from capim.tasks.results.figures import derive_figures, outdated_results
from capim.tasks.results.scoring import (
    incomplete,
    missing_sets,
    open_sets,
    outcomes_of,
    stored_evaluations,
    write_score_part,
)
from capim.tasks.results.stored import outcome_encoders
from capim.tasks.statistics.draws import Resampling

Named = str | dict[str, Any]
RANKING = 0.5  # the part of the work on a protocol that comes before its metrics and their intervals


@task(
    "score",
    makes=lambda sets, store_uri, **_: [asset(store_uri, "figures", sets.encoder, sets.corpus)],
    run_name="score-{sets.encoder}-{sets.corpus}",
)
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

    Stored outcomes are read instead of scored again, and only those of the table's metrics that have no stored results
    are computed.
    """
    store = EmbeddingStore.open(store_uri)
    scored = open_sets(store, sets, protocols)
    drop_superseded(store, encoder_fingerprint=sets.encoder_fingerprint, corpus_fingerprint=scored.corpus.fingerprint)
    # comparisons and slices also need the outcomes, which a damaged store may have lost in part
    stored = scored.stored()
    left = dict.fromkeys(incomplete(scored, scored.protocols, stored))
    fresh = set[str]()
    with track(f"{sets.encoder} · {sets.corpus} · scoring", total=len(scored.protocols), unit="protocols") as advance:

        def ranked(n_protocols: float) -> None:
            advance(RANKING * n_protocols)

        def outcomes(lacking: Sequence[Protocol]) -> Iterator[list[Outcomes]]:
            chosen = [protocol for protocol in scored.protocols if protocol in left or protocol in lacking]
            advance(len(scored.protocols) - len(chosen))
            resources = Resources(device, memory_bytes)
            scoring = outcomes_of(scored, chosen, stored, resources=resources, n_parts=n_parts, advance=ranked)
            for together, is_fresh in scoring:
                for each in together:
                    left.pop(each.protocol, None)
                fresh.update(each.protocol.id for each in together if is_fresh)
                yield together
                advance(len(together) * (1 - RANKING if is_fresh else 1))

        how: dict[str, Any] = {"resampling": resampling, "run": run, "keep_replicates": keep_replicates}
        figures = derive_figures(scored, outcomes=outcomes, **how)
        for _ in outcomes(()) if left else ():
            pass
    n_added = sum(n for protocol, n in figures.added.items() if protocol not in fresh)
    return EvaluationRef(
        sets=sets, evaluations=dict(scored.evaluations), n_scored=len(fresh), n_added=n_added, uses=figures.uses
    )


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
    stored = scored.stored()
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
        with noted(faults):
            select_protocols(store.corpus(corpus, fingerprint), protocols)
    for encoder, corpus in product(dict.fromkeys(pair.encoder_fingerprint for pair in sets), distractors):
        with noted(faults):
            key = store.key(encoder=encoder, corpus=corpus, modality="image")
            faults += [] if store.sealed(key) else [missing_sets(store, key, ["image"])]
    if faults:
        raise RequestError(list(dict.fromkeys(faults)))


@task("find-outdated")
def find_outdated(store_uri: str, evaluations: Sequence[EvaluationRef]) -> tuple[EvaluationRef, ...]:
    """Those of these evaluations that have results by another version of a metric than today's."""
    store = EmbeddingStore.open(store_uri)
    ids = sorted({id_ for each in evaluations for id_ in each.evaluations.values()})
    stale = {row.evaluation for row in outdated_results(store.figures(evaluation=ids))}
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
    """The table's metrics that stored outcomes determine and that have no result with these settings yet."""
    store = EmbeddingStore.open(store_uri)
    scored = stored_evaluations(store, evaluation, protocols)
    figures = derive_figures(scored, resampling=resampling, run=run, keep_replicates=keep_replicates)
    made: dict[str, Any] = {"evaluations": dict(scored.evaluations), "uses": figures.uses}
    return EvaluationRef(sets=evaluation.sets, n_scored=0, n_added=sum(figures.added.values()), **made)


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
    encoder_names = _named(store, encoders) or sorted({row.name for row in store.encoders()})
    register = store.corpora()
    rows = stored_corpora(corpora, register, sample=sample, seed=seed, uri=store.uri)
    states = [row.fingerprint for row in rows] or sorted({row.name for row in register})
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
                found.append(SetsRef.of(key))
            elif encoders or len(lacking) == 1:
                (faults if encoders and corpora else parts).append(missing_sets(store, key, lacking))
    if not found and not faults and (parts or encoded == encoder_names):
        first = "run `capim run`, `capim embed`, or `capim import` for embeddings made elsewhere"
        faults = parts or [f"the store {store.uri} has no complete embedding sets; {first}"]
    if faults:
        raise RequestError(faults)
    return tuple(found)


def _named(store: EmbeddingStore, encoders: Sequence[Named]) -> list[str]:
    """Return the names of encoders; of ``NAME@REVISION`` the fingerprint."""
    return [store.fingerprint_of(encoder_name(each)) for each in encoders]


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
    rows = stored_corpora(corpora, store.corpora(), sample=sample, seed=seed, uri=store.uri)
    states = {row.fingerprint: row.name for row in store.encoders()}
    named = _named(store, encoders)
    names = list(dict.fromkeys(states.get(name, name) for name in named))
    of_corpora = [row.name for row in rows]
    chosen = names_with_rows(store, "results", corpus=of_corpora, encoder=names, protocol=protocols)
    present = [row.fingerprint for row in store.corpora()]  # others were dropped
    found = States.asked(evaluated_rows(store, **chosen, corpus_fingerprint=present), [*corpora, *named])
    newest = newest_evaluations(found, corpus=[*of_corpora, *map(str, corpora)], encoder=[*names, *named])
    if not newest:
        raise RequestError(
            f"the store {store.uri} has no results of these encoders and corpora; run `capim evaluate` first"
        )
    return newest


def evaluated_rows(store: EmbeddingStore, **equals: Sequence[str]) -> list[Result]:
    """Return the results that hold these texts, those last used last."""
    uses = store.uses()
    return sorted(store.all(Result, **equals), key=lambda row: age(row, uses)[1:])


@dataclass(frozen=True, kw_only=True)
class OfEvaluation(OfProtocol):
    """An evaluation that a run makes; it has no results yet."""

    evaluation: str


def newest_evaluations(
    results: Iterable[Result | OfEvaluation], *, corpus: Sequence[str], encoder: Sequence[str]
) -> tuple[EvaluationRef, ...]:
    """The newest evaluations in results, oldest first, in the order of these names, else sorted by name.

    Names may be fingerprints: each of these states has its own.
    """
    newest: dict[tuple[str, ...], EvaluationRef] = {}
    places = [{name: place for place, name in enumerate(names)} for names in (corpus, encoder)]
    for row in results:
        if Protocol.of(row.protocol).is_combined:
            continue
        sets = SetsRef.of(row)
        pairs = (sets.corpus, sets.corpus_fingerprint), (sets.encoder, sets.encoder_fingerprint)
        key = tuple(state if state in of else name for (name, state), of in zip(pairs, places, strict=True))
        known = newest.get(key)
        earlier = known.evaluations if known is not None and known.sets == sets else {}
        evaluations = {**earlier, row.protocol: row.evaluation}
        newest[key] = EvaluationRef(sets=sets, evaluations=evaluations, n_scored=0)

    def order(names: tuple[str, ...]) -> tuple[tuple[int, str], ...]:
        return tuple((place.get(name, 0), name) for place, name in zip(places, names, strict=True))

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
    named = _named(store, encoders)
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
