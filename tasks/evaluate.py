"""Tasks of an evaluation: find stored sets, score them, and complete the results of stored outcomes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from capim.store import EmbeddingStore
from capim.store.current import States, newest_states_last
from capim.store.errors import RequestError, noted
from capim.store.rows import names_with_rows
from capim.store.schema import OfProtocol, Result, StoredCorpus
from capim.store.types import is_fingerprint
from capim.store.upkeep.removal import drop_superseded
from capim.tasks.corpora.naming import stored_corpora
from capim.tasks.hub.progress import track
from capim.tasks.prefects.task import asset, task
from capim.tasks.protocols import Protocol
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import select_protocols
from capim.tasks.references import EvaluationRef, Named, RunSettings, Selection, SetsRef, encoder_name
from capim.tasks.results.figures import Figures, outdated_results
from capim.tasks.results.scoring import (
    incomplete,
    missing_sets,
    open_sets,
    outcomes_of,
    stored_evaluations,
    write_score_part,
)
from capim.tasks.results.stored import outcome_encoders

RANKING = 0.5  # the part of the work on a protocol that comes before its metrics and their intervals


@task(
    "score",
    makes=lambda sets, settings, **_: [asset(settings.store_uri, "figures", sets.encoder, sets.corpus)],
    run_name="score-{sets.encoder}-{sets.corpus}",
)
def score(sets: SetsRef, settings: RunSettings, *, n_parts: int = 1) -> EvaluationRef:
    """Make the outcomes and results of one encoder on one corpus; merge the ``n_parts`` parts that `score_part` stored.

    Stored outcomes are read instead of scored again, and only those of the table's metrics that have no stored results
    are computed.
    """
    store = EmbeddingStore.open(settings.store_uri)
    scored = open_sets(store, sets, settings.protocols)
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
            how: dict[str, Any] = {"resources": settings.resources, "n_parts": n_parts, "advance": ranked}
            for together, is_fresh in outcomes_of(scored, chosen, stored, **how):
                for each in together:
                    left.pop(each.protocol, None)
                fresh.update(each.protocol.id for each in together if is_fresh)
                yield together
                advance(len(together) * (1 - RANKING if is_fresh else 1))

        figures = Figures(scored=scored, outcomes=outcomes, **settings.of_results)
        uses = figures.derive()
        for _ in outcomes(()) if left else ():
            pass
    n_added = sum(n for protocol, n in figures.added.items() if protocol not in fresh)
    return EvaluationRef(
        sets=sets, evaluations=dict(scored.evaluations), n_scored=len(fresh), n_added=n_added, uses=uses
    )


@task("score-part", run_name="score-{sets.encoder}-{sets.corpus}-part-{part}-of-{n_parts}")
def score_part(sets: SetsRef, settings: RunSettings, *, part: int, n_parts: int) -> SetsRef:
    """Score one part of the gallery, from 1, for `score` to merge; nothing where the outcomes are stored."""
    scored = open_sets(EmbeddingStore.open(settings.store_uri), sets, settings.protocols)
    write_score_part(scored, scored.stored(), part - 1, n_parts, settings.resources)
    return sets


@task("check-scoring")
def check_scoring(sets: Sequence[SetsRef], *, store_uri: str, protocols: Sequence[str]) -> None:
    """Check that protocols fit the corpora of these sets before anything is scored.

    Raises:
        RequestError: A protocol is unknown or does not fit; all faults together.
    """
    store, faults = EmbeddingStore.open(store_uri), list[str]()
    for corpus, fingerprint in dict.fromkeys((pair.corpus, pair.corpus_fingerprint) for pair in sets):
        with noted(faults):
            select_protocols(store.corpus(corpus, fingerprint), protocols)
    if faults:
        raise RequestError(list(dict.fromkeys(faults)))


@task("find-outdated")
def find_outdated(store_uri: str, evaluations: Sequence[EvaluationRef]) -> tuple[EvaluationRef, ...]:
    """Return the evaluations, among these, that have results by another version of a metric than today's."""
    store = EmbeddingStore.open(store_uri)
    ids = sorted({id_ for each in evaluations for id_ in each.evaluations.values()})
    stale = {row.evaluation for row in outdated_results(store.figures(evaluation=ids))}
    return tuple(each for each in evaluations if not stale.isdisjoint(each.evaluations.values()))


@task("complete-figures", run_name="complete-{evaluation.sets.encoder}-{evaluation.sets.corpus}")
def complete_figures(evaluation: EvaluationRef, settings: RunSettings) -> EvaluationRef:
    """Compute the table's metrics that stored outcomes determine and that have no result with these settings yet."""
    scored = stored_evaluations(EmbeddingStore.open(settings.store_uri), evaluation, settings.protocols)
    figures = Figures(scored=scored, **settings.of_results)
    made: dict[str, Any] = {"evaluations": dict(scored.evaluations), "uses": figures.derive()}
    return EvaluationRef(sets=evaluation.sets, n_scored=0, n_added=sum(figures.added.values()), **made)


@task("find-sets")
def find_sets(selection: Selection) -> tuple[SetsRef, ...]:
    """Return the newest sealed pairs of embedding sets with these names; without names, those of all encoders.

    Raises:
        RequestError: A named pair is missing, a named encoder has none, or there are neither pairs nor outcomes.
    """
    store, encoders, corpora = EmbeddingStore.open(selection.store_uri), selection.encoders, selection.corpora
    sealed = {(s.key.encoder_fingerprint, s.key.corpus_fingerprint, s.key.modality) for s in store.sealed_sets()}
    encoder_names = _named(store, encoders) or sorted({row.name for row in store.encoders()})
    states = [row.fingerprint for row in _corpora(store, selection)] or sorted({row.name for row in store.corpora()})
    without_embeddings = outcome_encoders(store)
    encoded = [name for name in encoder_names if name not in without_embeddings]
    found: list[SetsRef] = []
    complete, faults, parts = set[str](), list[str](), list[tuple[str, str]]()
    for state in states:
        for encoder in encoded:
            key = store.key(encoder=encoder, corpus=state, modality="image")
            pair = (key.encoder_fingerprint, key.corpus_fingerprint)
            lacking = [modality for modality in ("image", "caption") if (*pair, modality) not in sealed]
            if not lacking:
                found.append(SetsRef.of(key))
                complete.add(encoder)
            elif encoders or len(lacking) == 1:
                parts.append((encoder, missing_sets(store, key, lacking)))
    if encoders:  # each has to have its sets on all corpora that are named, or on any
        faults = [fault for encoder, fault in parts if corpora or encoder not in complete]
    if not found and not faults and (parts or encoded == encoder_names):
        first = "run `capim run`, `capim embed`, or `capim import` for embeddings made elsewhere"
        faults = [fault for _, fault in parts] or [f"the store {store.uri} has no complete embedding sets; {first}"]
    if faults:
        raise RequestError(faults)
    return tuple(found)


def _corpora(store: EmbeddingStore, selection: Selection) -> list[StoredCorpus]:
    """Return the stored corpora that are named, or samples of them."""
    how: dict[str, Any] = {"sample": selection.sample, "seed": selection.seed, "uri": store.uri}
    return stored_corpora(selection.corpora, store.corpora(), **how)


def _named(store: EmbeddingStore, encoders: Sequence[Named]) -> list[str]:
    """Return the names of encoders; of ``NAME@REVISION`` the fingerprint."""
    return [store.fingerprint_of(encoder_name(each)) for each in encoders]


@task("find-evaluations")
def find_evaluations(selection: Selection) -> tuple[EvaluationRef, ...]:
    """Return the newest evaluations of every encoder and corpus name under these protocols, imported outcomes included.

    In the order of the given names, else sorted by name, so that comparisons do not depend on the order of writing.

    Raises:
        RequestError: A name or protocol has no results, or these have none together.
    """
    store, corpora = EmbeddingStore.open(selection.store_uri), selection.corpora
    states = {row.fingerprint: row.name for row in store.encoders()}
    named = _named(store, selection.encoders)
    names = list(dict.fromkeys(states.get(name, name) for name in named))
    of_corpora = [row.name for row in _corpora(store, selection)]
    chosen = names_with_rows(store, "results", corpus=of_corpora, encoder=names, protocol=selection.protocols)
    present = [row.fingerprint for row in store.corpora()]  # others were dropped
    found = States.asked(evaluated_rows(store, **chosen, corpus_fingerprint=present), [*corpora, *named])
    having = {row.encoder_fingerprint for row in found}
    given = zip(map(str, selection.encoders), named, strict=True)
    if lacking := ",".join(what for what, of in given if is_fingerprint(of) and of not in having):
        raise RequestError(f"{lacking}: no results; run `capim evaluate --encoders {lacking}` first")
    newest = newest_evaluations(found, corpus=[*of_corpora, *map(str, corpora)], encoder=[*names, *named])
    if not newest:
        raise RequestError(
            f"the store {store.uri} has no results of these encoders and corpora; run `capim evaluate` first"
        )
    return newest


def evaluated_rows(store: EmbeddingStore, **equals: Sequence[str]) -> list[Result]:
    """Return the results that hold these texts, those of the newest states last, of each those last used last."""
    return newest_states_last(store.all(Result, **equals), store.uses(), store.registered())


@dataclass(frozen=True, kw_only=True)
class OfEvaluation(OfProtocol):
    """An evaluation that a run makes; it has no results yet."""

    evaluation: str


def newest_evaluations(
    results: Iterable[Result | OfEvaluation], *, corpus: Sequence[str], encoder: Sequence[str]
) -> tuple[EvaluationRef, ...]:
    """Return the newest evaluations in results, oldest first, in the order of these names, else sorted by name.

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
def find_outcomes(selection: Selection) -> tuple[EvaluationRef, ...]:
    """Return the newest evaluations of imported outcomes, and of fused and re-ranked scores; empty if there are none.

    Raises:
        RequestError: A named encoder of this kind has no results on these corpora.
    """
    store = EmbeddingStore.open(selection.store_uri)
    named = _named(store, selection.encoders)
    kind = outcome_encoders(store)
    names = (
        [name for name in named if name in kind] if named else sorted(kind & store.counts("results", "encoder").keys())
    )
    if not names:
        return ()
    try:
        return find_evaluations.fn(replace(selection, encoders=names, protocols=()))
    except RequestError:
        if named:
            raise
        return ()  # none of them on these corpora
