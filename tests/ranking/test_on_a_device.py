"""The parts of scoring that run on a card, checked on the processor against those that run there."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from capim.tasks.encoders.device import full_float32
from capim.tasks.ranking import best_lists, cosine
from capim.tasks.ranking.maxsim_products import gather, image_as_query_scores, maxsim_scores, sums_over_tokens
from capim.tasks.ranking.resources import Resources, one_thread_each
from tests.ranking.test_maxsim import Items

# torch takes it for the processor; to the code it is not "cpu", so that pieces have a card's sizes
A_DEVICE = "cpu:0"


@pytest.mark.parametrize("score", [maxsim_scores, image_as_query_scores])
def test_pieces_of_a_cards_size_give_the_same_late_interaction_scores(score) -> None:
    images, captions = Items(0, 40, 128, longest=60, window=16), gather(Items(1, 50, 128)())
    on_cpu, on_device = (
        score(images, captions, range(40), resources=Resources(device)) for device in ("cpu", A_DEVICE)
    )
    np.testing.assert_allclose(on_device, on_cpu, rtol=1e-5, atol=1e-5)


def test_sums_over_tokens_are_those_of_numpy() -> None:
    best, counts = torch.randn(3, 47), torch.tensor([5, 1, 30, 11])
    expected = np.add.reduceat(best.numpy(), [0, 5, 6, 36], axis=1)
    np.testing.assert_allclose(sums_over_tokens(best, counts).numpy(), expected, rtol=1e-5, atol=1e-5)
    alone = sums_over_tokens(best[:, 6:36], counts[2:3])
    assert torch.equal(sums_over_tokens(best, counts)[:, 2:3], alone)


@pytest.mark.parametrize(("n_items", "k"), [(5, 5), (99, 1), (700, 100), (5003, 100)])
def test_the_score_that_k_items_reach_is_the_same_on_a_device(n_items: int, k: int) -> None:
    scores = torch.randint(0, 300, (7, n_items)).float()
    np.testing.assert_array_equal(
        best_lists._kth_score_bound_on_device(scores, k).numpy(), best_lists.kth_score_bound(scores.numpy(), k)
    )


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_a_few_items_are_read_ahead_and_results_come_in_order(device: str) -> None:
    read = 0

    def items() -> Iterator[int]:
        nonlocal read
        for item in range(50):
            read += 1
            yield item

    before = torch.get_num_threads()
    with one_thread_each(device) as each:
        results = each(lambda item: -item, items())
        assert next(results) == 0
        assert read < 50
        assert list(results) == [-item for item in range(1, 50)]
    assert torch.get_num_threads() == before


def test_repeated_vectors_are_found_by_hashes_that_are_equal_for_them_alone() -> None:
    vectors = np.random.default_rng(0).integers(-1, 2, (4000, 6)).astype(np.float32)
    copies, originals = cosine._repeated(vectors, cosine._hashes(torch.from_numpy(vectors)))
    seen: dict[bytes, int] = {}
    expected = {row: seen[v.tobytes()] for row, v in enumerate(vectors) if seen.setdefault(v.tobytes(), row) != row}
    assert dict(zip(copies.tolist(), originals.tolist(), strict=True)) == expected


def test_an_error_of_one_item_reaches_the_caller() -> None:
    def fail(item: int) -> int:
        raise ArithmeticError(item)

    with one_thread_each("cuda:0") as each, pytest.raises(ArithmeticError):
        list(each(fail, range(9)))


def test_neither_products_nor_convolutions_are_rounded_to_tf32_while_scores_are_made() -> None:
    torch.backends.cudnn.allow_tf32 = True
    with full_float32():
        assert not torch.backends.cudnn.allow_tf32
        assert torch.get_float32_matmul_precision() == "highest"
    assert torch.backends.cudnn.allow_tf32


def test_a_thread_that_ends_leaves_no_tf32_to_another_that_still_scores() -> None:
    torch.backends.cudnn.allow_tf32 = True
    inside, end = threading.Event(), threading.Event()

    def other() -> None:
        with full_float32():
            inside.set()
            end.wait(10)

    thread = threading.Thread(target=other)
    with full_float32():
        thread.start()
        assert inside.wait(10)
    assert not torch.backends.cudnn.allow_tf32
    end.set()
    thread.join()
    assert torch.backends.cudnn.allow_tf32
