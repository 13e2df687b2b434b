"""mteb's Any2Any retrieval, both directions, of an open_clip model in the hub's cache on a folder of photographs.

As a program: ``python -m tests.benchmarks.retrieval_by_mteb MODEL FOLDER CACHE OUT.json``. Everything is mteb's own:
its open_clip encoder, its embedding cache, its task and evaluator; this file only says where the data come from.
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, Literal, cast

import mteb
from datasets import Dataset, Image
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.models.cache_wrappers import CachedEmbeddingWrapper
from mteb.models.model_implementations.openclip_models import openclip_loader
from mteb.models.model_meta import ModelMeta, ScoringFunction
from mteb.models.models_protocols import EncoderProtocol

CUTOFFS = (1, 5, 10)


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

    class Task(AbsTaskRetrieval):
        metadata = TaskMetadata(
            name=f"Capim{direction.upper()}Retrieval",
            description="A folder of captioned photographs.",
            reference="https://cocodataset.org",
            dataset={"path": str(folder), "revision": "local"},
            type="Any2AnyRetrieval",
            category=direction,
            modalities=["text", "image"],
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            main_score="hit_rate_at_1",
        )

        def load_data(self, *_: Any, **__: Any) -> None:
            split = RetrievalSplitData(
                corpus=sides[direction[-1]],
                queries=sides[direction[0]],
                relevant_docs=dict(relevant),
                top_ranked=None,
            )
            self.dataset = {"default": {"test": split}}
            self.data_loaded = True

        def task_specific_scores(self, scores: dict[str, dict[str, float]], *_: Any, **__: Any) -> dict[str, float]:
            # its means are rounded to five digits; its values per query are not
            kept: dict[str, float] = {}
            for k in CUTOFFS:
                hits = [one[f"success_{k}"] for one in scores.values()]
                shares = [one[f"recall_{k}"] for one in scores.values()]
                kept |= {f"any@{k}": sum(hits) / len(hits), f"share@{k}": sum(shares) / len(shares)}
            return kept

    return Task()


def main(model: str, folder: Path, cache: Path, target: Path) -> None:
    """Evaluate with embeddings cached in ``cache``; write the recalls, and the seconds without imports and loading."""
    meta = ModelMeta(
        loader=openclip_loader, name=model, revision="local", release_date=None, languages=["eng-Latn"],
        modalities=["image", "text"], n_parameters=None, memory_usage_mb=None, max_tokens=77, embed_dim=512,
        license=None, open_weights=True, public_training_code=None, public_training_data=None, framework=["PyTorch"],
        similarity_fn_name=ScoringFunction.COSINE, use_instructions=False, training_datasets=None,
    )  # fmt: skip
    loaded = CachedEmbeddingWrapper(cast("EncoderProtocol", meta.load_model(device="cpu")), cache)
    tasks = [task_of(folder, "t2i"), task_of(folder, "i2t")]
    begun = time.perf_counter()
    found = mteb.evaluate(loaded, tasks, cache=None, encode_kwargs={"batch_size": 64}, show_progress_bar=False)
    seconds = time.perf_counter() - begun
    recalls = {
        f"{direction} {kind}@{k}": done.scores["test"][0][f"{kind}@{k}"]
        for direction, done in zip(("t2i", "i2t"), found.task_results, strict=True)
        for kind in ("any", "share")
        for k in CUTOFFS
    }
    target.write_text(json.dumps({"seconds": seconds, "recalls": recalls}))


if __name__ == "__main__":
    main(sys.argv[1], *(Path(word) for word in sys.argv[2:]))
