"""The store: encoders, corpora, embeddings, outcomes and results, in LanceDB.

A notebook needs two lines::

    from capim.store import EmbeddingStore
    store = EmbeddingStore.open("workspace/store")

A name is imported on first use, so that a module such as ``store.errors`` does not import Arrow.
"""

if __name__ != "capim.store":
    raise ImportError(
        f"{__name__!r} is imported as capim.store; a package of your own with this name needs an __init__.py"
    )

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from capim.store.embedding_store import EmbeddingStore
    from capim.store.errors import RequestError, WorkError
    from capim.store.sets.sealed import SealedSet, Vectors
    from capim.store.sets.writing import Block
    from capim.store.types import Corpus, Embeddings, EncoderSpec, Modality, SetKey
    from capim.store.vectors import Ragged

__all__ = [
    "Block", "Corpus", "EmbeddingStore", "Embeddings", "EncoderSpec", "Modality", "Ragged",
    "RequestError", "SealedSet", "SetKey", "Vectors", "WorkError",
]  # fmt: skip
_ELSEWHERE = {
    "Block": "sets.writing",
    "SealedSet": "sets.sealed",
    "Vectors": "sets.sealed",
    "EmbeddingStore": "embedding_store",
    "Ragged": "vectors",
    "RequestError": "errors",
    "WorkError": "errors",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"capim.store.{_ELSEWHERE.get(name, 'types')}"), name)
