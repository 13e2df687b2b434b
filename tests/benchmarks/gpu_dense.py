"""Dense scoring on a card, beside the same on the machine's processor.

Vectors are synthetic. Sums in another order differ in the last digits, so that ranks may differ
where two scores are closer than rounding: ranks are compared with scores in float64, which say between which ranks an
item can stand; and on vectors of small whole numbers, whose sums are exact in any order, all ranks, ties and lists must
be equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from capim.store.types import Corpus
from capim.tasks.ranking.cosine import dense_part
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.resources import Resources
from capim.tasks.ranking.tasks import RetrievalTask
from tests.benchmarks.gpu_card import ROUNDING, Card, peak_gib, reset_peak
from tests.benchmarks.made import both_ways, karpathy, near, unit
from tests.benchmarks.rows import Row, clocked, fastest

DIM = 512


def dense_rows(card: Card, *, quick: bool) -> list[Row]:
    """COCO's captions over its 5,000 images in both directions, and over a million images."""
    corpus = karpathy(200 if quick else None)
    n_captions = len(corpus.captions)
    tasks = both_ways(corpus)
    to_images = next(task for task in tasks if task.protocol.id == "t2i/all")
    rows: list[Row] = []
    for n_images, sample in ((len(corpus.images), n_captions), (2000 if quick else 1_000_000, 256)):
        wide = n_images > len(corpus.images)
        some = [replace(to_images, galleries=(np.arange(n_images, dtype=np.int32),))] if wide else tasks
        images, captions = near(n_images, to_images.clusters, DIM, noise=6.0)
        score = partial(ranked, images, captions, some)
        reset_peak(card.device)
        seconds = fastest(partial(score, card.device), runs=2 if wide else 3)
        peak = peak_gib(card.device) - 4 * (images.size + captions.size) / 2**30
        found = score(card.device)
        on_processor, processor = clocked(score)
        work = 2.0 * n_captions * n_images * DIM
        shape = f"{n_captions:,} x {n_images:,} x {DIM}, {' and '.join(task.protocol.id for task in some)}"
        ours, theirs = found["t2i/all"], on_processor["t2i/all"]
        outside = outside_rounding(images, captions, ours, to_images.clusters, card.device, sample)
        name, cpu = f"dense, {n_images:,} images:", "capim on the CPU"
        rate, faster, threads = (
            work / seconds,
            processor / seconds,
            f"{processor:.1f} s on {torch.get_num_threads()} threads",
        )
        apart = float(np.abs(ours.best_score - theirs.best_score).max())
        n_other = f"{int((ours.rank_best != theirs.rank_best).sum())} of {n_captions:,} ranks differ, by rounding"
        close = f"{sample:,} queries, scores closer than {ROUNDING:g} may stand in either order"
        whole = "vectors in the host's memory to ranks and lists of 100 in the host's memory"
        bar, bar_of_share = (">= 5", "" if quick else ">= 0.25") if wide else (">= 2", "")
        share = f"{name} product of the whole call as a share of the card's float32 rate"
        rows += [
            Row(f"{name} time", seconds, "s", note=f"{shape}; {rate / 1e12:.1f} TFLOP/s"),
            Row(f"{name} speed relative to the same machine's processor", faster, "times", bar, cpu, threads),
            Row(share, rate / card.float32_rate, "", bar_of_share, note=whole),
            Row(f"{name} peak memory of the card beyond the vectors", peak, "GiB"),
            Row(f"{name} ranks outside what float64 scores allow", outside, "", "<= 0", note=close),
            Row(f"{name} largest difference of a score from the CPU's", apart, "", "<= 1e-6", cpu, n_other),
        ]
        del images, captions, found, on_processor
    return [*rows, *exact_rows(tasks, corpus, card)]


def ranked(
    images: NDArray[np.float32], captions: NDArray[np.float32], tasks: Sequence[RetrievalTask], device: str = "cpu"
) -> dict[str, Outcomes]:
    return dense_part(images, captions, tasks, resources=Resources(device)).outcomes()


def exact_rows(tasks: Sequence[RetrievalTask], corpus: Corpus, card: Card) -> list[Row]:
    """Equality with the processor where sums are exact, and independence of an item's place."""
    n_images, n_captions = len(corpus.images), len(corpus.captions)
    rng = np.random.default_rng(0)
    whole = [rng.integers(-90, 91, (n, 128)).astype(np.float32) for n in (n_images, n_captions)]
    found, expected = (ranked(whole[0], whole[1], tasks, device) for device in (card.device, "cpu"))
    differing = sum(unequal(found[id_], expected[id_]) for id_ in found)
    images, captions = map(unit, whole)
    order = rng.permutation(n_images)
    to_images = next(task for task in tasks if task.protocol.id == "t2i/all")
    moved = replace(to_images, relevant=np.argsort(order)[to_images.relevant].astype(np.int32))
    scores = [
        ranked(gallery, captions, [task], card.device)["t2i/all"].best_score
        for gallery, task in ((images, to_images), (images[order], moved))
    ]
    shape = f"{n_captions:,} x {n_images:,} x 128, both directions"
    bits = f"{n_captions:,} scores of relevant images, compared bit by bit"
    changed = int((scores[0] != scores[1]).sum())
    name = "dense, whole numbers: queries with another rank, tie or list than on the CPU"
    return [
        Row(name, differing, "", "<= 0", "capim on the CPU", shape),
        Row("dense: scores that change with the order of the gallery", changed, "", "<= 0", note=bits),
    ]


def unequal(one: Outcomes, other: Outcomes) -> int:
    """Queries whose ranks, ties or lists differ."""
    differs = (one.rank_best != other.rank_best) | (one.rank_worst != other.rank_worst)
    if one.top_ords is not None and other.top_ords is not None:
        differs |= (one.top_ords != other.top_ords).any(axis=1)
    return int(differs.sum())


def outside_rounding(
    images: NDArray[np.float32],
    captions: NDArray[np.float32],
    outcomes: Outcomes,
    relevant: NDArray[np.int32],
    device: str,
    sample: int,
) -> int:
    """Queries of a sample whose rank cannot be, whichever way scores within rounding of the relevant image's fall."""
    chosen = np.random.default_rng(0).permutation(len(captions))[:sample]
    queries = torch.from_numpy(captions[chosen]).to(device).double()
    own = (queries * torch.from_numpy(images[relevant[chosen]]).to(device).double()).sum(dim=1, keepdim=True)
    ahead, reached = (torch.zeros(len(chosen), dtype=torch.int64, device=device) for _ in range(2))
    for part in torch.from_numpy(images).split(20_000):
        scores = queries @ part.to(device).double().T
        ahead += (scores > own + ROUNDING).sum(dim=1)
        reached += (scores >= own - ROUNDING).sum(dim=1)
    best, worst = outcomes.rank_best[chosen], outcomes.rank_worst[chosen]
    return int(((best < 1 + ahead.cpu().numpy()) | (worst > reached.cpu().numpy())).sum())
