"""Dense scoring at COCO's size, side by side with the bare product and with CLIP_benchmark's own route.

Vectors are synthetic, at the strength of a good model (t2i R@1 near 45 %); captions, folds and the Crisscrossed
Captions and ECCV Caption positives are COCO's own where ``../shared/data`` is there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import psutil
import torch
from clip_benchmark.metrics.zeroshot_retrieval import batchify, recall_at_k
from numpy.typing import NDArray

from capim.tasks.corpora import CORPORA
from capim.tasks.corpora.build import CaptionRow, ImageRow, build_corpus
from capim.tasks.metrics import METRICS
from capim.tasks.ranking.cosine import dense_part
from capim.tasks.ranking.evaluate import evaluate
from capim.tasks.ranking.protocols import build_tasks, protocols_of, select_protocols
from tests.benchmarks.made import karpathy, near, unit
from tests.benchmarks.rows import Row, fastest

T = TypeVar("T")
DIM = 1024
LARGE_BATCH = 512  # at which CLIP_benchmark's one-hot tensors take the 2 GB of issue 6; 64 is its default


def run(quick: bool = False) -> list[Row]:
    """Rows of RESULTS.md; ``quick`` takes the first 1,000 images, a size at which the ratios are not the claims."""
    corpus = karpathy(limit=1000 if quick else None)
    place = {id_: ord_ for ord_, id_ in enumerate(corpus.images["id"].to_pylist())}
    image_of = np.array([place[id_] for id_ in corpus.captions["image_id"].to_pylist()])
    images, captions = near(len(place), image_of, DIM, noise=10.0)
    tasks = build_tasks(corpus, protocols_of(corpus))
    product = fastest(lambda: torch.from_numpy(captions) @ torch.from_numpy(images).T)
    ours = fastest(lambda: dense_part(images, captions, tasks).outcomes())
    found, peak = with_peak(lambda: dense_part(images, captions, tasks).outcomes())
    peers = {batch: clip_benchmark(images, captions, image_of, batch=batch) for batch in (64, LARGE_BATCH)}
    ours_recalls = {
        f"{d}@{k}": METRICS[f"R@{k}"].per_query(found[id_])
        for d, id_ in (("t2i", "t2i/all"), ("i2t", "i2t/any"))
        for k in (1, 5, 10)
    }
    apart = max(
        abs(ours_recalls[name][: peer.queries[name[:3]]].mean() - value)
        for peer in peers.values()
        for name, value in peer.recalls.items()
    )
    shape = f"{len(captions):,} x {len(images):,} x {DIM}, {len(tasks)} protocols"
    bare = f"bare product {product:.2f} s on {torch.get_num_threads()} threads"
    ratio, name = ours / product, "dense: time of all protocols relative to the bare matrix product"
    same = "on the queries that the peer was run on"
    return [
        Row(name, ratio, "times", "<= 3", "torch float32 product", shape),
        Row("dense: time", ours, "s", note=bare),
        Row("dense: peak memory beyond the embeddings", peak / 2**30, "GiB", "<= 1", note=shape),
        *(
            Row(
                f"dense: speed relative to CLIP_benchmark, batches of {batch}",
                peer.seconds / ours,
                "times",
                ">= 20" if batch == LARGE_BATCH else "",
                "clip_benchmark",
                f"the peer's six recalls take {peer.seconds / product:.0f} bare products; two batches, scaled up",
            )
            for batch, peer in peers.items()
        ),
        Row("dense: largest difference of a recall", apart, "", "<= 1e-6", "clip_benchmark", same),
        *languages(quick),
    ]


def languages(quick: bool) -> list[Row]:
    """COCO-SM: 21 languages by 3 translators, both ways, with consistency; a translator at a time, as `capim` does."""
    n_images, dim = (500, 512) if quick else (4993, 512)
    languages = CORPORA["coco-sm"].languages
    codes, translators = (languages[:3], ("google",)) if quick else (languages, ("google", "bing", "nllb"))
    images = [ImageRow(id=f"{i}") for i in range(n_images)]
    rows = [
        CaptionRow(id=f"{language}-{way}-{i.id}-{k}", image_id=i.id, text="x", language=language, translator=way)
        for way in translators
        for language in codes
        for i in images
        for k in range(5)
    ]
    corpus = build_corpus("coco-sm-shape", images, rows, source=None)
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((n_images, dim), dtype=np.float32)
    english = np.repeat(vectors, 5, axis=0) + 6 * rng.standard_normal((5 * n_images, dim), dtype=np.float32)
    drift = rng.standard_normal((5 * n_images, dim), dtype=np.float32)
    vectors = unit(vectors)
    reading = 0.0

    class Captions:
        """The captions of a part, made when they are indexed."""

        dtype, shape = np.dtype(np.float32), (len(rows), dim)

        def __len__(self) -> int:
            return len(rows)

        def __getitem__(self, ords: Any, /) -> NDArray[np.float32]:
            nonlocal reading
            begun = time.perf_counter()
            way, language = divmod(int(ords[0]) // len(english), len(codes))
            captions = unit(english + np.float32(language * (1 + way / 4)) * drift)
            reading += time.perf_counter() - begun
            return captions

    product = fastest(lambda: torch.from_numpy(english) @ torch.from_numpy(vectors).T) * len(codes) * len(translators)
    reading, n_protocols = 0.0, 0

    def everything() -> None:
        nonlocal n_protocols
        for way in translators:
            protocols = select_protocols(corpus, [f"t2i/*/{way}", f"i2t/*/{way}"])
            n_protocols += len(evaluate(corpus, protocols, images=vectors, captions=Captions()))

    begun = time.perf_counter()
    _, peak = with_peak(everything)
    seconds = time.perf_counter() - begun - reading
    size = f"{len(codes) * len(translators)} x {len(english):,} x {n_images:,} x {dim}"
    shape = f"{size}, {n_protocols} protocols with nDCG@20 and RBO; {seconds:.0f} s, bare products {product:.0f} s"
    ratio, name = seconds / product, "languages: time of all protocols relative to the bare matrix products"
    return [
        Row(name, ratio, "times", "<= 3", "torch float32 product", shape),
        Row("languages: peak memory", peak / 2**30, "GiB", "<= 2", note="vectors of one language included"),
    ]


class Peer(NamedTuple):
    """CLIP_benchmark's route: seconds for all queries, its recalls on those that it was run on, and their number."""

    seconds: float
    recalls: dict[str, float]
    queries: dict[str, int]


def clip_benchmark(
    images: NDArray[np.float32], captions: NDArray[np.float32], image_of: NDArray[np.int64], *, batch: int
) -> Peer:
    """Its product and its recalls, warmed up and repeated like ours; the recalls on two batches, scaled up.

    Its one-hot tensors grow with batch x k x gallery; its cost per query is the same for every batch.
    """

    def scores_and_positives() -> tuple[torch.Tensor, torch.Tensor]:
        scores = torch.from_numpy(captions) @ torch.from_numpy(images).T
        positive = torch.zeros_like(scores, dtype=torch.bool)
        positive[torch.arange(len(scores)), torch.from_numpy(image_of)] = True
        return scores, positive

    seconds = fastest(scores_and_positives)
    scores, positive = scores_and_positives()
    found, counts = {}, {}
    for direction, x, y in (("t2i", scores, positive), ("i2t", scores.T, positive.T)):
        n = min(2 * batch, len(x))
        counts[direction] = n
        for k in (1, 5, 10):
            recall = partial(batchify, recall_at_k, x[:n], y[:n], batch, "cpu", k=k)
            seconds += fastest(recall) * len(x) / n
            found[f"{direction}@{k}"] = float((recall() > 0).double().mean())
    return Peer(seconds, found, counts)


def with_peak(work: Callable[[], T]) -> tuple[T, int]:
    """What the work gives, and how far the process' memory rose above where it stood."""
    process, done = psutil.Process(), threading.Event()
    before, highest = process.memory_info().rss, 0

    def watch() -> None:
        nonlocal highest
        while not done.wait(0.005):
            highest = max(highest, process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        result = work()
    finally:
        done.set()
        watcher.join()
    return result, max(0, highest - before)
