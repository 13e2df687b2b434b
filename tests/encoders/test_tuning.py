"""find_batch_size finds the smallest batch size that is fast and fits."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from capim.store.errors import WorkError
from capim.tasks.encoders import pipeline
from capim.tasks.encoders.pipeline import find_batch_size
from tests.encoders.toy import ToyEncoder


@pytest.fixture(autouse=True)
def timed_once(monkeypatch) -> None:
    monkeypatch.setattr(pipeline, "_TIMED_SECONDS", 0.0)


class Slow(ToyEncoder):
    """A pass takes 20 ms up to eight items and 2.5 ms per item beyond, on a clock that only it advances."""

    now = 0.0

    def embed(self, prepared):
        self.now += max(0.02, 0.0025 * len(prepared))
        return super().embed(prepared)


def test_doubling_stops_when_larger_batches_are_no_faster(monkeypatch) -> None:
    encoder = Slow()
    monkeypatch.setattr(pipeline, "time", SimpleNamespace(perf_counter=lambda: encoder.now))
    assert find_batch_size(encoder, "caption", start=1, largest=256, gain=1.3) == 8


def test_doubling_stops_at_the_memory() -> None:
    assert find_batch_size(ToyEncoder(capacity=9), "image", start=2, gain=0.0) == 8


def test_doubling_stops_at_the_largest_allowed_size() -> None:
    assert find_batch_size(ToyEncoder(), "caption", start=4, largest=16, gain=0.0) == 16


def test_a_model_that_fits_nothing_is_an_error() -> None:
    with pytest.raises(WorkError, match="not even 4 captions fit"):
        find_batch_size(ToyEncoder(capacity=3), "caption")


def test_one_image_is_prepared_for_all_batch_sizes_of_a_model_that_joins_images() -> None:
    prepared: list[int] = []

    class Counting(ToyEncoder):
        def prepare_images(self, images):
            prepared.append(len(images))
            return super().prepare_images(images)

    assert find_batch_size(Counting(), "image", start=2, largest=64, gain=0.0) == 64
    assert set(prepared) == {1}
