"""Corpora that one run has read from their files, handed from task to task."""

from __future__ import annotations

import json
from typing import Any, cast

from store import EmbeddingStore
from store.errors import WorkError
from store.types import Corpus
from tasks.corpora import open_corpus
from tasks.corpora.images.image_index import index_images
from tasks.runtime.progress import track
from tasks.runtime.references import CorpusRef


class OpenCorpora:
    """The corpora of a run, each read once per process; image bytes stay in their files.

    A pickled copy is empty: a task in another process reads the corpora that it needs itself.
    """

    def __init__(self) -> None:
        self._corpora: dict[str, Corpus] = {}

    def __reduce__(self) -> tuple[type[OpenCorpora], tuple[()]]:
        return (OpenCorpora, ())

    def read(self, what: str | dict[str, Any], *, sample: int | None, seed: int) -> Corpus:
        """The corpus as :func:`tasks.corpora.open_corpus` gives it, or as :meth:`index` left it.

        Raises:
            RequestError: The corpus is unknown, missing, empty or contradicts itself.
        """
        key = _key(what, sample, seed)
        if key not in self._corpora:
            self._corpora[key] = open_corpus(what, sample=sample, seed=seed)
        return self._corpora[key]

    def index(self, store: EmbeddingStore, what: str | dict[str, Any], *, sample: int | None, seed: int) -> Corpus:
        """The corpus without images that cannot be decoded; images that the store has not seen are decoded."""
        corpus = self.read(what, sample=sample, seed=seed)
        shas = cast("list[str]", corpus.images["sha"].drop_null().unique().to_pylist())
        indexed = store.indexed_images(shas)
        with track(f"{corpus.name} · decoding", total=len(shas) - len(indexed), unit="images") as advance:
            done = 0

            def progress(finished: int, _total: int) -> None:
                nonlocal done
                advance(finished - done)
                done = finished

            corpus = index_images(corpus, known=indexed, sink=store.write_image_index, progress=progress)
        self._corpora[_key(what, sample, seed)] = corpus
        return corpus

    def get(self, store: EmbeddingStore, reference: CorpusRef) -> Corpus:
        """The registered corpus of a reference, with a source for its image bytes.

        Raises:
            WorkError: The files changed since the corpus was registered.
        """
        corpus = self._corpora.get(_key(reference.what, reference.sample, reference.seed))
        if corpus is None or corpus.fingerprint != reference.fingerprint:
            corpus = self.index(store, reference.what, sample=reference.sample, seed=reference.seed)
        if corpus.fingerprint != reference.fingerprint:
            raise WorkError(
                f"corpus {reference.name!r} changed during the run: expected fingerprint {reference.fingerprint}, got "
                f"{corpus.fingerprint}; what was encoded is stored, run the same command again"
            )
        return corpus


def _key(what: str | dict[str, Any], sample: int | None, seed: int) -> str:
    return json.dumps([what, sample, seed], sort_keys=True, default=str)
