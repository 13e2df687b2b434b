"""mteb's own retrieval of a judged corpus whose vectors are looked up: its task, search and evaluator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mteb
import numpy as np
from datasets import Dataset, disable_progress_bars
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.models.abs_encoder import AbsEncoder
from mteb.models.model_meta import ModelMeta, ScoringFunction
from numpy.typing import NDArray

Judged = Mapping[str, Mapping[str, int]]


class Lookup(AbsEncoder):  # type: ignore[misc]  # untyped base
    """An encoder whose texts are the ids of stored vectors."""

    def __init__(self, vectors: Mapping[str, NDArray[np.float32]]) -> None:
        self.vectors = vectors
        self.model = None
        self.mteb_model_meta = ModelMeta(
            loader=None, name="capim/lookup", revision="local", release_date=None, languages=["eng-Latn"],
            modalities=["text"], n_parameters=None, memory_usage_mb=None, max_tokens=None, embed_dim=None,
            license=None, open_weights=True, public_training_code=None, public_training_data=None, framework=[],
            similarity_fn_name=ScoringFunction.COSINE, use_instructions=False, training_datasets=None,
        )  # fmt: skip

    def encode(self, inputs: Any, **_: object) -> NDArray[np.float32]:
        return np.stack([self.vectors[text] for batch in inputs for text in batch["text"]])


def ndcg_by_mteb(judged: Judged, vectors: Mapping[str, NDArray[np.float32]]) -> dict[str, float]:
    """nDCG@10 of every query, from mteb's search and evaluation; ``vectors`` are of queries and documents by id."""
    documents = [name for name in vectors if name not in judged]

    class Task(AbsTaskRetrieval):
        metadata = TaskMetadata(
            name="CapimJudgedRetrieval",
            description="Stored vectors.",
            reference="https://example.org",
            dataset={"path": "local", "revision": "local"},
            type="Retrieval",
            category="t2t",
            modalities=["text"],
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            main_score="ndcg_at_10",
        )

        def load_data(self, *_: Any, **__: Any) -> None:
            split = RetrievalSplitData(
                corpus=Dataset.from_dict({"id": documents, "text": documents}),
                queries=Dataset.from_dict({"id": list(judged), "text": list(judged)}),
                relevant_docs={query: dict(found) for query, found in judged.items()},
                top_ranked=None,
            )
            self.dataset = {"default": {"test": split}}
            self.data_loaded = True

        def task_specific_scores(self, scores: dict[str, dict[str, float]], *_: Any, **__: Any) -> dict[str, float]:
            found.update({query: one["ndcg_cut_10"] for query, one in scores.items()})
            return {}

    found: dict[str, float] = {}
    disable_progress_bars()
    mteb.evaluate(Lookup(vectors), Task(), cache=None, show_progress_bar=False)
    return found
