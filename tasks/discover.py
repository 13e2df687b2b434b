"""Tasks: find embedding sets and evaluations in the store by the names of corpora and encoders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from capim.store import EmbeddingStore
from capim.store.errors import RequestError
from capim.store.query.names import names_with_rows
from capim.store.schema import texts
from capim.tasks.corpora.naming import stored_corpora
from capim.tasks.runtime.references import SEVERAL_PROTOCOLS, EvaluationRef, SetsRef, encoder_name
from capim.tasks.runtime.scoring import missing_sets
from capim.tasks.runtime.shell import shell
from capim.tasks.runtime.stored import outcome_encoders

Named = str | dict[str, Any]


@shell("find-sets")
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


@shell("find-evaluations")
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
        if not SEVERAL_PROTOCOLS.isdisjoint(row["protocol"]):
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
