"""What is kept and how: encoders, corpora, embeddings, outcomes and results, in LanceDB.

A notebook needs two lines::

    from store import EmbeddingStore
    store = EmbeddingStore.open("workspace/store")
"""

from store.checks import Block
from store.embedding_store import EmbeddingStore
from store.errors import RequestError, WorkError
from store.seal import SealedSet
from store.types import Corpus, Embeddings, EncoderSpec, EvalProtocol, Modality, SetKey, SurveyedImage
from store.vectors import MultiVectors, Vectors

__all__ = [
    "Block",
    "Corpus",
    "EmbeddingStore",
    "Embeddings",
    "EncoderSpec",
    "EvalProtocol",
    "Modality",
    "MultiVectors",
    "RequestError",
    "SealedSet",
    "SetKey",
    "SurveyedImage",
    "Vectors",
    "WorkError",
]
