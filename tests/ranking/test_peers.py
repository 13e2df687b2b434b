"""Equal to the peers' own code on the same arrays, to 1e-6; and where a peer is wrong, the difference on purpose."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from capim.store.types import Corpus
from capim.store.vectors import Ragged
from capim.tasks.corpora.readers.karpathy import read_coco_karpathy
from capim.tasks.metrics import METRICS
from capim.tasks.ranking.evaluate import evaluate
from capim.tasks.ranking.layout import layout_of
from capim.tasks.ranking.protocols import select_protocols
from tests.ranking.conftest import score_dense, small_corpus, tasks_of, unit
from tests.results.thirty import quadruples

pytestmark = pytest.mark.peers


class Lookup:
    """A "model" whose inputs are the numbers of stored embeddings, for peers that insist on encoding."""

    def __init__(self, images: NDArray[np.float32], captions: NDArray[np.float32]) -> None:
        self.images, self.captions = torch.from_numpy(images), torch.from_numpy(captions)

    def encode_image(self, numbers: torch.Tensor) -> torch.Tensor:
        return self.images[numbers.flatten().long()]

    def encode_text(self, numbers: torch.Tensor) -> torch.Tensor:
        return self.captions[numbers]


def numbers(texts: list[str]) -> torch.Tensor:
    return torch.tensor([int(text) for text in texts])


def test_retrieval_equals_clip_benchmark() -> None:
    peer = pytest.importorskip("clip_benchmark.metrics.zeroshot_retrieval")
    rng = np.random.default_rng(0)
    counts = [5] * 90 + [6] * 10
    images = rng.standard_normal((100, 32))
    of = np.repeat(np.arange(100), counts)
    captions = unit(images[of] + 2 * rng.standard_normal((len(of), 32)))
    image_vectors = unit(images)
    own = [[str(c) for c in np.flatnonzero(of == i)] for i in range(100)]
    loader = [(torch.arange(i, i + 20).view(-1, 1, 1, 1), own[i : i + 20]) for i in range(0, 100, 20)]
    with contextlib.redirect_stderr(io.StringIO()):
        theirs = peer.evaluate(
            Lookup(image_vectors, captions), loader, numbers, "cpu", amp=False, recall_k_list=[1, 5, 10]
        )
    corpus = small_corpus(counts)
    found = score_dense(image_vectors, captions, tasks_of(corpus, "t2i/all", "i2t/any"))
    for k in (1, 5, 10):
        for id_, theirs_is_of in (("t2i/all", "image"), ("i2t/any", "text")):
            expected = theirs[f"{theirs_is_of}_retrieval_recall@{k}"]
            assert METRICS[f"R@{k}"].value(found[id_]) == pytest.approx(expected, abs=1e-6)


def winoground_both_ways(images: NDArray[np.float32], captions: NDArray[np.float32]) -> tuple[dict[str, float], ...]:
    peer = pytest.importorskip("clip_benchmark.metrics.image_caption_selection")
    n = len(images) // 2
    corpus = quadruples({str(i): () for i in range(n)})
    outcomes = score_dense(images, captions, tasks_of(corpus, "winoground"))["winoground"]
    ours = {score: METRICS[f"winoground_{score}"].value(outcomes) for score in ("text", "image", "group")}
    loader = [
        (torch.tensor([[2 * i, 2 * i + 1]]).view(1, 2, 1, 1, 1), [[str(2 * i), str(2 * i + 1)]]) for i in range(n)
    ]
    with contextlib.redirect_stderr(io.StringIO()):
        theirs = peer.evaluate(Lookup(images, captions), loader, numbers, "cpu", amp=False)
    return ours, {"text": theirs["text_acc"], "image": theirs["image_acc"], "group": theirs["acc"]}


def test_winoground_equals_clip_benchmark() -> None:
    rng = np.random.default_rng(1)
    ours, theirs = winoground_both_ways(unit(rng.standard_normal((200, 8))), unit(rng.standard_normal((200, 8))))
    assert ours == pytest.approx(theirs, abs=1e-6)


def test_clip_benchmark_counts_a_tie_on_item_0_as_right() -> None:
    """Caption 0 scores the same with both images: argmax picks image 0; by the definition the example is wrong."""
    images = np.array([[1, 0], [0, 1]], np.float32)
    captions = np.array([[1, 1], [0, 1]], np.float32)
    ours, theirs = winoground_both_ways(images, unit(captions))
    assert (ours["image"], theirs["image"]) == (0, 1)


@pytest.fixture(scope="module")
def coco(shared_data: Path) -> Corpus:
    return read_coco_karpathy(shared_data / "coco_karpathy" / "test_5k.json")


@pytest.mark.slow
def test_coco_5k_1k_cxc_and_eccv_equal_eccv_caption_in_all_digits(coco: Corpus) -> None:
    """Images in 400 topics, noisy captions; the peer searches what its files name: 25,000 captions, ECCV 25,002."""
    peer = pytest.importorskip("eccv_caption").Metrics()
    layout = layout_of(coco)
    rng = np.random.default_rng(2)
    topics = rng.standard_normal((400, 48))[rng.integers(400, size=5000)]
    images = topics + 0.6 * rng.standard_normal((5000, 48))
    captions = unit(images[layout.caption_images] + 1.3 * rng.standard_normal((25_010, 48)))
    image_vectors = unit(images)
    found = score_dense(image_vectors, captions, tasks_of(coco))
    assert (len(found["t2i/cxc"]), len(found["t2i/eccv"]), len(found["i2t/eccv"])) == (24_972, 1_332, 1_261)
    assert set(found["i2t/cxc"].n_gallery.tolist()) == {25_000}
    assert set(found["i2t/eccv"].n_gallery.tolist()) == {25_002}

    # the peer takes lists of ids: long enough that every fold of 1,000 is in the first hundreds of each
    scores = torch.from_numpy(captions) @ torch.from_numpy(image_vectors).T
    image_ids = layout.image_ids.astype(np.int64)
    caption_ids = np.array([int(a or 0) for a in coco.captions["annotation_id"].to_pylist()])
    named = np.flatnonzero(caption_ids)
    assert len(named) == 25_002

    def lists(chosen: NDArray[np.int64]) -> dict[str, dict[int, list[int]]]:
        table = scores[torch.from_numpy(chosen)]
        to_images = image_ids[table.topk(200, dim=1).indices.numpy()].tolist()
        to_captions = caption_ids[chosen][table.T.contiguous().topk(300, dim=1).indices.numpy()].tolist()
        t2i = dict(zip(caption_ids[chosen].tolist(), to_images, strict=True))
        return {"t2i": t2i, "i2t": dict(zip(image_ids.tolist(), to_captions, strict=True))}

    first_five, eccv = lists(named[layout.ordinals[named] < 5]), lists(named)
    with contextlib.redirect_stderr(io.StringIO()):
        theirs = peer.eccv_metrics(eccv, "all")
        for name in ("coco_1k", "coco_5k", "cxc", "eccv"):
            recalls, run = getattr(peer, f"{name}_recalls"), eccv if name == "eccv" else first_five
            theirs |= {f"{name}_r{k}": recalls(run, "all", K=k) for k in (1, 5, 10)}

    ids = {
        "coco_1k": ("t2i/1k", "i2t/1k"),
        "coco_5k": ("t2i/ordinal-mean", "i2t/any5"),
        "cxc": ("t2i/cxc", "i2t/cxc"),
        "eccv": ("t2i/eccv", "i2t/eccv"),
    }
    shown = {f"{name}_r{k}": (ids[name], f"R@{k}") for name in ids for k in (1, 5, 10)}
    shown |= {"eccv_map_at_r": (ids["eccv"], "mAP@R"), "eccv_rprecision": (ids["eccv"], "R-Precision")}
    assert set(shown) == set(theirs)
    for name, (protocols, metric) in shown.items():
        for id_ in protocols:
            expected = theirs[name][id_[:3]]
            assert METRICS[metric].value(found[id_]) == pytest.approx(expected, abs=1e-12), (name, id_)


def maxsim_both_ways(
    corpus: Corpus, images: list[NDArray[np.float32]], captions: list[NDArray[np.float32]]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Our scores, caption by caption in image order, and colpali_engine's."""
    peer = pytest.importorskip("colpali_engine.utils.processing_utils")
    blocks: Any = {"images": lambda: [Ragged.of(images)], "captions": lambda: [Ragged.of(captions)]}
    found = evaluate(corpus, select_protocols(corpus, ["t2i/all"]), **blocks)["t2i/all"]
    assert found.top_ords is not None
    assert found.top_scores is not None
    ours = np.empty(found.top_ords.shape, dtype=np.float32)
    np.put_along_axis(ours, found.top_ords.astype(np.int64), found.top_scores, axis=1)
    tensors = [[torch.from_numpy(v) for v in items] for items in (captions, images)]
    return ours, peer.BaseVisualRetrieverProcessor.score_multi_vector(*tensors, device="cpu").numpy()


def test_maxsim_equals_colpali_engine() -> None:
    rng = np.random.default_rng(4)
    images = [unit(rng.standard_normal((n, 128))) for n in rng.integers(60, 90, size=40)]
    captions = [unit(rng.standard_normal((n, 128))) for n in rng.integers(3, 25, size=40)]
    ours, theirs = maxsim_both_ways(small_corpus([1] * 40), images, captions)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)


def test_colpali_engine_lets_padding_beat_negative_similarities() -> None:
    """Its zero rows score 0 with every token; image 0 has two vectors less than image 1 and gets them."""
    captions = [np.array([[1, 0]], np.float32), np.array([[0, 1]], np.float32)]
    images = [np.array([[-1, 0]], np.float32), np.array([[0, 1], [-1, 0], [-1, 0]], np.float32)]
    ours, theirs = maxsim_both_ways(small_corpus([1, 1]), images, captions)
    assert (ours[0, 0], theirs[0, 0]) == (-1, 0)
