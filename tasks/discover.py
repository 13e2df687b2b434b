"""Shells: which embedding sets and which evaluations a store has, by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from store import EmbeddingStore
from store.errors import RequestError
from tasks.runtime.references import EvaluationRef, SetsRef, corpus_name, encoder_name
from tasks.runtime.shell import shell

Named = str | dict[str, Any]
OF_SEVERAL_PROTOCOLS = frozenset("+*")  # in the protocol of a figure over several, which has no outcomes of its own


@shell("find-sets", kind="read")
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


@shell("find-evaluations", kind="read")
def find_evaluations(
    store_uri: str, *, corpora: Sequence[Named] = (), encoders: Sequence[Named] = ()
) -> tuple[EvaluationRef, ...]:
    """What was evaluated, imported outcomes included: of every encoder and corpus name the newest state.

    In the order in which names are given, else by name: which encoder comes first in a comparison must not depend on
    whose results were written first.

    Raises:
        RequestError: Nothing was evaluated by these names.
    """
    store = EmbeddingStore.open(store_uri)
    wanted = {"corpus": [corpus_name(c) for c in corpora], "encoder": [encoder_name(e) for e in encoders]}
    rows = store.rows("results", **{name: names for name, names in wanted.items() if names})
    newest: dict[tuple[str, str], EvaluationRef] = {}
    for row in rows.sort_by("created").select([*SetsRef.__dataclass_fields__, "protocol", "evaluation"]).to_pylist():
        if not OF_SEVERAL_PROTOCOLS.isdisjoint(row["protocol"]):
            continue
        sets = SetsRef(**{name: row[name] for name in SetsRef.__dataclass_fields__})
        known = newest.get((sets.encoder, sets.corpus))
        earlier = known.evaluations if known is not None and known.sets == sets else {}
        evaluations = {**earlier, row["protocol"]: row["evaluation"]}
        newest[sets.encoder, sets.corpus] = EvaluationRef(sets=sets, evaluations=evaluations, n_scored=0)
    if not newest:
        raise RequestError(f"the store {store.uri} has no results to compare; run `capim evaluate` first")
    places = [{name: place for place, name in enumerate(wanted[kind])} for kind in ("corpus", "encoder")]

    def order(names: tuple[str, str]) -> tuple[tuple[int, str], ...]:
        encoder, corpus = names
        return tuple((place.get(name, 0), name) for place, name in zip(places, (corpus, encoder), strict=True))

    return tuple(newest[names] for names in sorted(newest, key=order))
