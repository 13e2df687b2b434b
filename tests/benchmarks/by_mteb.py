"""mteb's own retrieval of local data: Any2Any of a folder of photographs, and of a judged corpus of known vectors.

As a program, of an open_clip model in the hub's cache on a folder of photographs, both directions:
``python -m tests.benchmarks.by_mteb MODEL FOLDER CACHE OUT.json``. Everything is mteb's own: its open_clip encoder, its
embedding cache, its task and evaluator; this file only says where the data come from.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, cast

import mteb
import numpy as np
from datasets import Dataset, Image, disable_progress_bars
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.models.abs_encoder import AbsEncoder
from mteb.models.cache_wrappers import CachedEmbeddingWrapper
from mteb.models.model_implementations.openclip_models import openclip_loader
from mteb.models.model_meta import ModelMeta, ScoringFunction
from mteb.models.models_protocols import EncoderProtocol
from numpy.typing import NDArray

CUTOFFS = (1, 5, 10)
Judged = Mapping[str, Mapping[str, int]]  # query -> item -> grade
PerQuery = dict[str, dict[str, float]]  # query -> score -> value


def local_task(
    queries: Dataset,
    items: Dataset,
    relevant: Mapping[str, Mapping[str, int]],
    kept: Callable[[PerQuery], Any],
    **about: Any,
) -> AbsTaskRetrieval:
    """A task over data in memory; ``kept`` makes figures of mteb's scores per query, ``about`` is its metadata."""

    class Task(AbsTaskRetrieval):
        metadata = TaskMetadata(
            description="Local data.", eval_splits=["test"], eval_langs=["eng-Latn"],
            dataset={"path": "local", "revision": "local"}, reference="https://example.org", **about,
        )  # fmt: skip

        def load_data(self, *_: Any, **__: Any) -> None:
            judged = {query: dict(found) for query, found in relevant.items()}
            split = RetrievalSplitData(corpus=items, queries=queries, relevant_docs=judged, top_ranked=None)
            self.dataset = {"default": {"test": split}}
            self.data_loaded = True

        def task_specific_scores(self, scores: PerQuery, *_: Any, **__: Any) -> dict[str, float]:
            return kept(scores) or {}

    return Task()


def local_model(name: str, **about: Any) -> ModelMeta:
    """What mteb has to know of a model, of which it need not know more than ``about``."""
    unknown = (
        "n_parameters memory_usage_mb license public_training_code public_training_data release_date max_tokens "
        "embed_dim loader training_datasets"
    )
    known: dict[str, Any] = dict.fromkeys(unknown.split())
    known |= {"name": name, "revision": "local", "languages": ["eng-Latn"], "open_weights": True, "framework": []}
    known |= {"similarity_fn_name": ScoringFunction.COSINE, "use_instructions": False}
    return ModelMeta(**known | about)


def task_of(folder: Path, direction: Literal["t2i", "i2t"]) -> AbsTaskRetrieval:
    """``t2i`` or ``i2t`` over a folder with ``images`` and a COCO-format ``captions.json``."""
    written = json.loads((folder / "captions.json").read_text())
    images = {f"i{one['id']}": str(folder / "images" / one["file_name"]) for one in written["images"]}
    texts = {f"c{one['id']}": one["caption"] for one in written["annotations"]}
    sides = {
        "i": Dataset.from_dict({"id": list(images), "image": list(images.values())}).cast_column("image", Image()),
        "t": Dataset.from_dict({"id": list(texts), "text": list(texts.values())}),
    }
    relevant: dict[str, dict[str, int]] = defaultdict(dict)
    for one in written["annotations"]:
        pair = (f"c{one['id']}", f"i{one['image_id']}")
        query, found = pair if direction == "t2i" else pair[::-1]
        relevant[query][found] = 1

    def kept(scores: PerQuery) -> dict[str, float]:
        # its means are rounded to five digits; its values per query are not
        kinds = (("any", "success"), ("share", "recall"))
        names = [(f"{ours}@{k}", f"{theirs}_{k}") for k in CUTOFFS for ours, theirs in kinds]
        return {ours: fmean(one[theirs] for one in scores.values()) for ours, theirs in names}

    return local_task(
        sides[direction[0]], sides[direction[-1]], relevant, kept, name=f"Capim{direction.upper()}Retrieval",
        type="Any2AnyRetrieval", category=direction, modalities=["text", "image"], main_score="hit_rate_at_1",
    )  # fmt: skip


class Lookup(AbsEncoder):  # type: ignore[misc]  # untyped base
    """An encoder whose texts are the ids of stored vectors."""

    def __init__(self, vectors: Mapping[str, NDArray[np.float32]]) -> None:
        self.vectors = vectors
        self.model = None
        self.mteb_model_meta = local_model("capim/lookup", modalities=["text"])

    def encode(self, inputs: Any, **_: object) -> NDArray[np.float32]:
        return np.stack([self.vectors[text] for batch in inputs for text in batch["text"]])


def scores_by_mteb(
    judged: Judged,
    queries: Mapping[str, NDArray[np.float32]],
    documents: Mapping[str, NDArray[np.float32]],
    *,
    among_others: bool = False,
) -> PerQuery:
    """mteb's scores of every query, from its own search and evaluation of vectors by id.

    Its evaluator of retrieval is one for all kinds of items and never looks at them, so that these are the ids.
    ``among_others``: an item that searches its own kind is not found for itself.
    """
    found: PerQuery = {}
    sides = [{f"{side} {id_}": vector for id_, vector in of.items()} for side, of in (("q", queries), ("d", documents))]
    task = local_task(
        Dataset.from_dict({"id": list(queries), "text": list(sides[0])}),
        Dataset.from_dict({"id": list(documents), "text": list(sides[1])}),
        judged,
        found.update,
        name="CapimLocalRetrieval", type="Retrieval", category="t2t", modalities=["text"], main_score="ndcg_at_10",
    )  # fmt: skip
    task.ignore_identical_ids = among_others
    disable_progress_bars()
    mteb.evaluate(Lookup(sides[0] | sides[1]), task, cache=None, show_progress_bar=False)
    return found


def ndcg_by_mteb(judged: Judged, vectors: Mapping[str, NDArray[np.float32]]) -> dict[str, float]:
    """nDCG@10 of every query; ``vectors`` are of queries and documents by id."""
    sides = [{id_: vector for id_, vector in vectors.items() if (id_ in judged) is asks} for asks in (True, False)]
    return {query: one["ndcg_cut_10"] for query, one in scores_by_mteb(judged, *sides).items()}


def main(model: str, folder: Path, cache: Path, target: Path) -> None:
    """Evaluate with embeddings cached in ``cache``; write the recalls."""
    about = {"modalities": ["image", "text"], "max_tokens": 77, "embed_dim": 512, "framework": ["PyTorch"]}
    meta = local_model(model, loader=openclip_loader, **about)
    loaded = CachedEmbeddingWrapper(cast("EncoderProtocol", meta.load_model(device="cpu")), cache)
    tasks = [task_of(folder, "t2i"), task_of(folder, "i2t")]
    found = mteb.evaluate(loaded, tasks, cache=None, encode_kwargs={"batch_size": 64}, show_progress_bar=False)
    recalls = {
        f"{direction} {kind}@{k}": done.scores["test"][0][f"{kind}@{k}"]
        for direction, done in zip(("t2i", "i2t"), found.task_results, strict=True)
        for kind in ("any", "share")
        for k in CUTOFFS
    }
    target.write_text(json.dumps(recalls))


if __name__ == "__main__":
    main(sys.argv[1], *(Path(word) for word in sys.argv[2:]))
