"""Tasks: check the corpora of a request, and register a corpus in the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from store import EmbeddingStore
from store.errors import RequestError
from store.types import MODALITIES, Corpus, Modality
from tasks.corpora.change import describe_change
from tasks.corpora.encodable import encodable, encoding_fault
from tasks.runtime.open_corpora import OpenCorpora
from tasks.runtime.references import CorpusRef
from tasks.runtime.retries import may_pass
from tasks.runtime.shell import shell

SKIPPED_SHOWN = 5


@shell("check-corpora", timeout_hours=12)
def check_corpora(
    corpora: Sequence[str | dict[str, Any]],
    opened: OpenCorpora,
    *,
    sample: int | None,
    seed: int,
    modalities: Sequence[Modality] = MODALITIES,
) -> list[str]:
    """Read corpora into ``opened`` before anything is written; returns the faults of all of them.

    A corpus without a file or text for any of ``modalities`` is a fault.

    Raises:
        RequestError: The same faults, if one of them may pass (a hub that did not answer), so that the task is retried.
    """
    faults: list[str] = []
    passing: RequestError | None = None
    for what in corpora:
        try:
            reason = encoding_fault(opened.read(what, sample=sample, seed=seed), modalities, given=what)
            faults += [reason] if reason else []
        except RequestError as error:
            faults.extend(error.faults)
            passing = error if may_pass(error) else passing
    if passing is not None:
        raise RequestError(faults) from passing
    return faults


@shell("register-corpus", timeout_hours=24)
def register_corpus(
    what: str | dict[str, Any], opened: OpenCorpora, *, store_uri: str, sample: int | None, seed: int
) -> CorpusRef:
    """Read a corpus, decode every image that the store has not seen, and store its items and thumbnails.

    Raises:
        RequestError: The corpus is unknown, missing, empty or contradicts itself.
    """
    store = EmbeddingStore.open(store_uri, create=True)
    corpus = opened.index(store, what, sample=sample, seed=seed)
    changes = _changes(store, corpus)
    store.write_corpus(corpus)
    skipped = corpus.skipped.slice(0, SKIPPED_SHOWN).to_pylist()
    return CorpusRef(
        what=what,
        sample=sample,
        seed=seed,
        name=corpus.name,
        fingerprint=corpus.fingerprint,
        n_images=len(corpus.images),
        n_captions=len(corpus.captions),
        n_skipped=len(corpus.skipped),
        changes=changes,
        skipped=tuple(f"{row['image_id']}: {row['reason']}" for row in skipped),
        encodable=encodable(corpus),
    )


def _changes(store: EmbeddingStore, corpus: Corpus) -> tuple[str, ...]:
    """Differences from the newest stored corpus of the same name; empty if there are none."""
    if corpus.name not in store.corpora()["name"].to_pylist():
        return ()
    stored = store.corpus(corpus.name)
    return () if stored.fingerprint == corpus.fingerprint else tuple(describe_change(stored, corpus))
