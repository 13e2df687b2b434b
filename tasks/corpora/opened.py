"""Corpora that one run has read from their files, handed from task to task."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from capim.store import EmbeddingStore
from capim.store.errors import RequestError, WorkError
from capim.store.schema import StoredCorpus
from capim.store.types import Corpus
from capim.tasks.corpora import CORPORA
from capim.tasks.corpora.check import describe_change
from capim.tasks.corpora.description import open_corpus
from capim.tasks.corpora.images.source import ImageHashes, using
from capim.tasks.corpora.naming import CorpusToRead, corpus_to_read, disambiguate
from capim.tasks.corpora.subset import index_images
from capim.tasks.hub.progress import track


class OpenCorpora:
    """The corpora of a run, each read once per process; image bytes stay in their files.

    A pickled copy is empty: a task in another process reads the corpora that it needs itself.
    """

    def __init__(self) -> None:
        self._corpora: dict[str, Corpus] = {}
        self._hashes: ImageHashes | None = None

    def __reduce__(self) -> tuple[type[OpenCorpora], tuple[()]]:
        return (OpenCorpora, ())

    def read(self, request: CorpusToRead, store: EmbeddingStore | None = None) -> Corpus:
        """Return the corpus as :func:`tasks.corpora.description.open_corpus` gives it, or as :meth:`index` left it.

        Images are not read if the store has their hashes.

        Raises:
            RequestError: The corpus is unknown, missing, empty or contradicts itself.
        """
        key = _key(request)
        if key not in self._corpora:
            if self._hashes is None:
                self._hashes = ImageHashes(dict if store is None else store.image_hashes)
            with using(self._hashes):
                self._corpora[key] = open_corpus(request.what, sample=request.sample, seed=request.seed)
        return self._corpora[key]

    def index(self, store: EmbeddingStore, request: CorpusToRead, *, write: bool = True) -> Corpus:
        """Return the corpus as it is stored: without images that cannot be decoded, under a name of its own.

        Images that the store has not seen are decoded; with ``write``, it keeps the results and the thumbnails.
        """
        corpus = disambiguate(self._decoded(store, request, write=write), request, store.corpora())
        if write and self._hashes is not None:
            store.write_images(self._hashes.take_fresh())
        self._corpora[_key(request)] = corpus
        return corpus

    def get(self, store: EmbeddingStore, request: CorpusToRead, name: str, fingerprint: str) -> Corpus:
        """Return the corpus that was registered under this name, with a source for its image bytes.

        Raises:
            WorkError: The files changed since the corpus was registered.
        """
        corpus = self._corpora.get(_key(request))
        if corpus is None or corpus.fingerprint != fingerprint:
            corpus = replace(self._decoded(store, request), name=name)
            self._corpora[_key(request)] = corpus
        if corpus.fingerprint != fingerprint:
            raise WorkError(
                f"corpus {name!r} changed during the run: expected fingerprint {fingerprint}, got "
                f"{corpus.fingerprint}; the encoded vectors are stored, run the same command again"
            )
        return corpus

    def _decoded(self, store: EmbeddingStore, request: CorpusToRead, *, write: bool = True) -> Corpus:
        """Return the corpus without the images that cannot be decoded."""
        corpus = self.read(request, store)
        shas = cast("list[str]", corpus.images["sha"].drop_null().unique().to_pylist())
        indexed = store.indexed_images(shas)
        with track(f"{corpus.name} · decoding", total=len(shas) - len(indexed), unit="images") as advance:
            sink = store.write_images if write else lambda _: None
            return index_images(corpus, known=indexed, sink=sink, advance=advance)


def corpus_for_import(store: EmbeddingStore, what: str | dict[str, Any]) -> Corpus:
    """Return a stored corpus by its name or fingerprint; any other as it is read now, not stored yet.

    Raises:
        RequestError: The corpus is unknown, missing, empty or contradicts itself.
    """
    register = store.corpora()
    stored = {name for row in register for name in (row.name, row.fingerprint)}
    if isinstance(what, str) and what in stored and not Path(what).expanduser().exists():
        return store.corpus(what)
    return OpenCorpora().index(store, corpus_to_read(what, register))


def change_since(store: EmbeddingStore, request: CorpusToRead, stored: StoredCorpus) -> str:
    """Return what changed in the files of a corpus since this state of it was stored; empty if nothing, or for a name.

    Images are not read if the store has their place, size and time.
    """
    if isinstance(request.what, str) and (request.what in CORPORA or not Path(request.what).expanduser().exists()):
        return ""
    try:
        now = OpenCorpora().index(store, request, write=False)
    except RequestError as error:
        return f"corpus {stored.name}: the stored state is used; its files were not compared with it: {error}"
    changes = "; ".join(describe_change(store.corpus(stored.name, stored.fingerprint), now))
    used = f"used is the stored state {stored.fingerprint} of {stored.written:%Y-%m-%d %H:%M}"
    how = f"`capim embed --corpora {stored.name} --encoders …` encodes what changed"
    return changes and f"corpus {stored.name} changed since it was stored ({changes}); {used}. {how}"


def store_at(store_uri: str) -> EmbeddingStore | None:
    """Return the store; None where there is none yet."""
    try:
        return EmbeddingStore.open(store_uri)
    except RequestError:
        return None


def _key(request: CorpusToRead) -> str:
    return json.dumps(request, sort_keys=True, default=str)
