"""Tasks: find embedding sets and evaluations in the store by the names of corpora and encoders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from store import EmbeddingStore
from store.errors import RequestError
from tasks.runtime.references import SEVERAL_PROTOCOLS, EvaluationRef, SetsRef, corpus_name, encoder_name
from tasks.runtime.scoring import missing_sets
from tasks.runtime.shell import shell

Named = str | dict[str, Any]


@shell("find-sets")
def find_sets(store_uri: str, *, corpora: Sequence[Named], encoders: Sequence[Named]) -> tuple[SetsRef, ...]:
    """The newest sealed pairs of embedding sets of these names; all pairs where no name is given.

    Raises:
        RequestError: A named pair is missing, or the store has none.
    """
    store = EmbeddingStore.open(store_uri)
    sealed = {(s.key.encoder_fingerprint, s.key.corpus_fingerprint, s.key.modality) for s in store.sealed_sets()}
    encoder_names = [encoder_name(e) for e in encoders] or sorted(
        set(cast("list[str]", store.encoders()["name"].to_pylist()))
    )
    corpus_names = [corpus_name(c) for c in corpora] or sorted(
        set(cast("list[str]", store.corpora()["name"].to_pylist()))
    )
    found: list[SetsRef] = []
    faults: list[str] = []
    parts: list[str] = []
    for corpus in corpus_names:
        for encoder in encoder_names:
            key = store.key(encoder=encoder, corpus=corpus, modality="image")
            pair = (key.encoder_fingerprint, key.corpus_fingerprint)
            lacking = [modality for modality in ("image", "caption") if (*pair, modality) not in sealed]
            if not lacking:
                found.append(SetsRef(**{name: getattr(key, name) for name in SetsRef.__dataclass_fields__}))
            elif (encoders and corpora) or len(lacking) == 1:
                (faults if encoders and corpora else parts).append(missing_sets(store, key, lacking))
    if not found and not faults:
        first = "run `capim run`, `capim embed`, or `capim import` for embeddings made elsewhere"
        faults = parts or [f"the store {store.uri} has no complete embedding sets; {first}"]
    if faults:
        raise RequestError(faults)
    return tuple(found)


@shell("find-evaluations")
def find_evaluations(
    store_uri: str, *, corpora: Sequence[Named] = (), encoders: Sequence[Named] = ()
) -> tuple[EvaluationRef, ...]:
    """The newest evaluations of every encoder and corpus name, imported outcomes included.

    In the order of the given names, else sorted by name, so that comparisons do not depend on the order of writing.

    Raises:
        RequestError: A name has no results, or these names have none together.
    """
    store = EmbeddingStore.open(store_uri)
    wanted = {"corpus": [corpus_name(c) for c in corpora], "encoder": [encoder_name(e) for e in encoders]}
    rows = store.rows("results", **{name: names for name, names in wanted.items() if names})
    if any(not set(names) <= set(rows[column].to_pylist()) for column, names in wanted.items()):
        everything = store.rows("results")
        with_results = {column: sorted(set(cast("list[str]", everything[column].to_pylist()))) for column in wanted}
        faults = [
            f"{column} {name!r} has no results in {store.uri}; those with results: {', '.join(with_results[column])}"
            for column, names in wanted.items()
            for name in names
            if everything.num_rows and name not in with_results[column]
        ]
        if faults:
            raise RequestError(faults)
    newest: dict[tuple[str, str], EvaluationRef] = {}
    for row in rows.sort_by("created").select([*SetsRef.__dataclass_fields__, "protocol", "evaluation"]).to_pylist():
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
