"""Dense scoring at COCO's size, side by side with the bare product and with CLIP_benchmark's own route.

Vectors are synthetic, at the strength of a good model (t2i R@1 near 45 %); captions, folds and the Crisscrossed
Captions and ECCV Caption positives are COCO's own where ``../shared/data`` is there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from clip_benchmark.metrics.zeroshot_retrieval import batchify, recall_at_k
from numpy.typing import NDArray
from rows import Row

from store.types import Corpus
from tasks.corpora.build import CaptionRow, ImageRow, build_corpus
from tasks.corpora.ground_truths import extra_positives
from tasks.metrics import METRICS
from tasks.scoring.dense import score_dense
from tasks.scoring.protocols import judge_all, protocols_of

SPLIT = Path(__file__).parents[2].parent / "shared/data/coco_karpathy/test_5k.json"
DIM = 1024


def run(quick: bool = False) -> list[Row]:
    """Rows of RESULTS.md; ``quick`` takes the first 1,000 images, a size at which the ratios are not the claims."""
    corpus = karpathy(limit=1000 if quick else None)
    images, captions, image_of = synthetic(corpus, dim=DIM)
    judgements = judge_all(corpus, protocols_of(corpus))
    product = fastest(lambda: torch.from_numpy(captions) @ torch.from_numpy(images).T)
    ours = fastest(lambda: score_dense(images, captions, judgements))
    found, peak = with_peak(lambda: score_dense(images, captions, judgements))
    share = 0.02 if not quick else 0.2
    theirs_seconds, theirs, queries = clip_benchmark(images, captions, image_of, share)
    mine = {f"{d}@{k}": METRICS[f"R@{k}"].per_query(found[id_]) for d, id_ in (("t2i", "t2i/all"), ("i2t", "i2t/any")) for k in (1, 5, 10)}
    apart = max(abs(mine[name][: queries[name[:3]]].mean() - value) for name, value in theirs.items())
    shape = f"{len(captions):,} x {len(images):,} x {DIM}, {len(judgements)} protocols"
    bar = "" if quick else "<= 3"
    return [
        Row("dense: everything over the bare product", ours / product, "times", bar, "torch float32 product", shape),
        Row("dense: seconds", ours, "s", "", "", f"bare product {product:.2f} s on {torch.get_num_threads()} threads"),
        Row("dense: peak memory beyond the embeddings", peak / 2**30, "GiB", "" if quick else "<= 1", "", shape),
        Row("dense: speed over CLIP_benchmark", theirs_seconds / ours, "times", "" if quick else ">= 20", "clip_benchmark",
            f"its six recalls, timed on {share:.0%} of the queries and scaled up"),
        Row("dense: largest difference of a recall", apart, "", "<= 1e-6", "clip_benchmark", "on the queries that it was run on"),
    ]  # fmt: skip


def karpathy(limit: int | None = None) -> Corpus:
    """The Karpathy test split by ids, with both extra ground truths; 5,000 images of five captions without the data."""
    if not SPLIT.is_file():
        images = [ImageRow(id=f"{i}") for i in range(limit or 5000)]
        rows = [CaptionRow(id=f"{i.id}-{k}", image_id=i.id, text="x") for i in images for k in range(5)]
        return build_corpus("coco-karpathy-shape", images, rows, source=None)
    entries = json.loads(SPLIT.read_text())[:limit]
    images = [ImageRow(id=str(entry["image_id"])) for entry in entries]
    rows, caption_of = [], {}
    for entry in entries:
        for k, text in enumerate(entry["captions"]):
            rows.append(CaptionRow(id=f"{entry['image_id']}-{k}", image_id=str(entry["image_id"]), text=text))
            if k < len(entry["annotation_ids"]):
                caption_of[str(entry["annotation_ids"][k])] = rows[-1].id
    relevance = list(extra_positives(caption_of, {image.id for image in images}))
    return build_corpus("coco-karpathy-ids", images, rows, source=None, relevance=relevance)


def synthetic(corpus: Corpus, *, dim: int) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int64]]:
    """Image vectors in clusters, captions near their image; and the image of every caption."""
    rng = np.random.default_rng(0)
    ids = corpus.images["id"].to_pylist()
    place = {id_: ord_ for ord_, id_ in enumerate(ids)}
    image_of = np.array([place[id_] for id_ in corpus.captions["image_id"].to_pylist()])
    topics = rng.standard_normal((len(ids) // 20 + 1, dim), dtype=np.float32)
    images = topics[rng.integers(len(topics), size=len(ids))] + rng.standard_normal((len(ids), dim), dtype=np.float32)
    captions = images[image_of] + 10.0 * rng.standard_normal((len(image_of), dim), dtype=np.float32)
    for vectors in (images, captions):
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return images, captions, image_of


def clip_benchmark(
    images: NDArray[np.float32], captions: NDArray[np.float32], image_of: NDArray[np.int64], share: float
) -> tuple[float, dict[str, float], dict[str, int]]:
    """Seconds of CLIP_benchmark's route for all queries, from a share of them; its recalls on that share.

    Its one-hot tensors grow with queries x k x gallery, so its cost is proportional to the queries.
    """
    start = time.perf_counter()
    scores = torch.from_numpy(captions) @ torch.from_numpy(images).T
    positive = torch.zeros_like(scores, dtype=torch.bool)
    positive[torch.arange(len(scores)), torch.from_numpy(image_of)] = True
    seconds = time.perf_counter() - start
    found, counts = {}, {}
    for direction, x, y in (("t2i", scores, positive), ("i2t", scores.T, positive.T)):
        n = max(64, int(share * len(x)))
        counts[direction] = n
        for k in (1, 5, 10):
            start = time.perf_counter()
            hits = batchify(recall_at_k, x[:n], y[:n], 64, "cpu", k=k) > 0
            seconds += (time.perf_counter() - start) * len(x) / n
            found[f"{direction}@{k}"] = float(hits.double().mean())
    return seconds, found, counts


def fastest(work: Callable[[], object], runs: int = 3) -> float:
    """Seconds of the fastest of a few runs, after one that is not counted."""
    work()
    taken = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return min(taken)


def with_peak(work: Callable[[], dict[str, object]]) -> tuple[dict[str, object], int]:
    """What the work gives, and how far the process' memory rose above where it stood."""
    import threading

    page = 4096
    read = lambda: int(Path("/proc/self/statm").read_text().split()[1]) * page  # noqa: E731
    before, highest, done = read(), 0, threading.Event()

    def watch() -> None:
        nonlocal highest
        while not done.wait(0.005):
            highest = max(highest, read())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        result = work()
    finally:
        done.set()
        watcher.join()
    return result, max(0, highest - before)


if __name__ == "__main__":
    for row in run():
        print(f"{row.name:45s} {row.value:10.4g} {row.unit:6s} {row.bar:8s} {row.note}")  # noqa: T201
