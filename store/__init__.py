"""The store: encoders, corpora, embeddings, outcomes and results, in LanceDB.

A notebook needs two lines::

    from store import EmbeddingStore
    store = EmbeddingStore.open("workspace/store")
"""

from store.embedding_store import EmbeddingStore
from store.errors import RequestError, WorkError
from store.ragged import Ragged
from store.sets.checks import Block
from store.sets.reading import Vectors
from store.sets.seal import SealedSet
from store.types import Corpus, Embeddings, EncoderSpec, EvalProtocol, IndexedImage, Modality, SetKey

__all__ = [
    "Block",
    "Corpus",
    "EmbeddingStore",
    "Embeddings",
    "EncoderSpec",
    "EvalProtocol",
    "IndexedImage",
    "Modality",
    "Ragged",
    "RequestError",
    "SealedSet",
    "SetKey",
    "Vectors",
    "WorkError",
]
