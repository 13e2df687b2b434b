"""The store: encoders, corpora, embeddings, outcomes and results, in LanceDB.

A notebook needs two lines::

    from store import EmbeddingStore
    store = EmbeddingStore.open("workspace/store")

A name is imported when it is first used, so that a module such as ``store.errors`` does not import Arrow.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
_ELSEWHERE = {
    "Block": "sets.checks",
    "EmbeddingStore": "embedding_store",
    "Ragged": "ragged",
    "RequestError": "errors",
    "SealedSet": "sets.seal",
    "Vectors": "sets.reading",
    "WorkError": "errors",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'store' has no attribute {name!r}")
    return getattr(import_module(f"store.{_ELSEWHERE.get(name, 'types')}"), name)
