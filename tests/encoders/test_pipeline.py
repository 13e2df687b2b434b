"""encode_stream: every item once, under its own ord, whatever happens; find_batch_size: small enough and fast."""

from __future__ import annotations

import hashlib
import io
import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from capim.store.errors import WorkError
from capim.store.types import MODALITIES, Embeddings, EncoderSpec, VectorKind
from capim.tasks.encoders import pipeline
from capim.tasks.encoders.adapters.loaded_encoder import LoadedEncoder
from capim.tasks.encoders.encoder import Prepared, encode_captions
from capim.tasks.encoders.pipeline import CaptionWork, ImageWork, encode_stream, find_batch_size
from tests.corpora.own_data import png


class ToyEncoder(LoadedEncoder):
    """Vectors depend only on the item; counts its forward passes and runs out of memory above ``capacity`` items."""

    def __init__(self, *, vectors: VectorKind = "single", capacity: int = 10**6) -> None:
        self.capacity, self.sizes = capacity, list[int]()
        super().__init__(
            EncoderSpec(name="toy", adapter="toy", checkpoint="toy", revision="1", dim=16, vectors=vectors),
            "cpu",
            modules=[],
            forwards=dict.fromkeys(MODALITIES, self._forward),
            pixels=lambda images: {"items": [image.tobytes() for image in images]},
        )

    def _forward(self, items: list[str | bytes]) -> Any:
        self.sizes.append(len(items))
        if len(items) > self.capacity:
            raise MemoryError
        if self.spec.vectors == "single":
            return torch.cat([signs(item, 1) for item in items])
        vectors = torch.nn.utils.rnn.pad_sequence([signs(item, len(item) % 3 + 1) for item in items], batch_first=True)
        return vectors, vectors.any(dim=2)


def signs(item: str | bytes, n: int) -> torch.Tensor:
    """Vectors of 1 and -1, whose norm is 4 in any order of summation, so that they are equal to the last bit."""
    digest = hashlib.shake_128(repr(item).encode()).digest(2 * n)
    return 2.0 * torch.from_numpy(np.unpackbits(np.frombuffer(digest, np.uint8)).reshape(n, 16)) - 1


def caption_work(texts: list[str], *, start: int = 0) -> CaptionWork:
    return CaptionWork(ords=np.arange(start, start + len(texts), dtype=np.int32), texts=texts)


def image_work(images: dict[str, bytes], shas: list[str | None] | None = None) -> ImageWork:
    return ImageWork(
        ords=np.arange(len(images), dtype=np.int32),
        keys=list(images),
        shas=shas or [None] * len(images),
        read=lambda key: images[key],
        decode=lambda data: Image.open(io.BytesIO(data)).convert("RGB"),
    )


def scattered(batches, n: int) -> list[np.ndarray]:
    """Vectors of each item by its ord; fails if an ord comes twice."""
    rows: dict[int, np.ndarray] = {}
    for batch in batches:
        block: Embeddings = batch.embeddings
        starts = block.offsets if block.offsets is not None else np.arange(len(block) + 1)
        for i, position in enumerate(batch.ords):
            assert int(position) not in rows
            rows[int(position)] = block.values[starts[i] : starts[i + 1]]
    return [rows[i] for i in range(n)]


@pytest.mark.parametrize("vectors", ["single", "multi"])
@settings(max_examples=25)
@given(texts=st.lists(st.text(max_size=60), max_size=30), batch_size=st.integers(1, 7))
def test_every_caption_comes_once_and_equals_the_one_shot_result(vectors, texts, batch_size) -> None:
    got = scattered(encode_stream(ToyEncoder(vectors=vectors), caption_work(texts), batch_size=batch_size), len(texts))
    for text, vector in zip(texts, got, strict=True):
        assert np.array_equal(vector, encode_captions(ToyEncoder(vectors=vectors), [text]).values)


def test_equal_captions_go_through_the_model_once() -> None:
    encoder = ToyEncoder()
    batches = list(encode_stream(encoder, caption_work(["a dog", "a cat", "a dog", "a dog"], start=10), batch_size=8))
    assert encoder.sizes == [2]
    assert sorted(np.concatenate([b.ords for b in batches]).tolist()) == [10, 11, 12, 13]
    assert sum(b.n_encoded for b in batches) == 2


def test_images_of_equal_hash_are_read_once() -> None:
    encoder = ToyEncoder()
    images = {"a": png((1, 0, 0)), "b": png((2, 0, 0)), "c": png((1, 0, 0))}
    got = scattered(encode_stream(encoder, image_work(images, ["x", "y", "x"]), batch_size=2), 3)
    assert sum(encoder.sizes) == 2
    assert np.array_equal(got[0], got[2])
    assert not np.array_equal(got[0], got[1])


def test_longest_captions_go_first_and_short_ones_share_larger_batches() -> None:
    encoder = ToyEncoder()
    long, short = ["x" * (200 + i) for i in range(4)], [f"s{i}" for i in range(40)]
    batches = list(encode_stream(encoder, caption_work(short + long), batch_size=8))
    assert set(batches[0].ords.tolist()) <= set(range(40, 44))
    assert len(batches[0].ords) < 8 < len(batches[-1].ords)


def test_out_of_memory_halves_the_batch_and_keeps_what_was_done() -> None:
    encoder = ToyEncoder(capacity=3)
    texts = [f"{i:02d}" * 50 for i in range(16)]
    got = scattered(encode_stream(encoder, caption_work(texts), batch_size=10), 16)
    assert len(got) == 16
    assert max(size for size in encoder.sizes[2:]) <= 3
    assert sum(size for size in encoder.sizes if size <= 3) == 16


def test_one_item_that_does_not_fit_is_an_error_with_the_next_step() -> None:
    with pytest.raises(WorkError, match=r"a single caption does not fit.*bfloat16"):
        list(encode_stream(ToyEncoder(capacity=0), caption_work(["a", "b"]), batch_size=2))


def test_an_unreadable_image_is_named_and_earlier_blocks_are_handed_out() -> None:
    images = {f"i{n}": png((n, 0, 0)) for n in range(6)} | {"torn.jpg": b"not an image"}
    done: list[int] = []
    with pytest.raises(WorkError, match=r"torn\.jpg"):
        for batch in encode_stream(ToyEncoder(), image_work(images), batch_size=2):
            done += batch.ords.tolist()
    assert done == [0, 1, 2, 3, 4, 5]


def test_stopping_early_ends_all_threads() -> None:
    before = threading.active_count()
    stream = encode_stream(ToyEncoder(), caption_work([f"{i}" * 99 for i in range(200)]), batch_size=1)
    next(stream)
    stream.close()
    for _ in range(100):
        if threading.active_count() <= before:
            break
        time.sleep(0.02)
    assert threading.active_count() <= before


def test_later_images_are_read_while_the_model_computes(monkeypatch) -> None:
    monkeypatch.setattr(pipeline, "usable_cores", lambda: 4)
    encoder, images, read = ToyEncoder(), image_work({str(i): png((i, 0, 0)) for i in range(12)}), threading.Event()
    embed = encoder.embed

    def waiting(prepared: Prepared) -> Embeddings:
        assert read.wait(20)
        return embed(prepared)

    def note(key: str) -> bytes:
        if key == "6":
            read.set()
        return images.read(key)

    encoder.embed = waiting  # type: ignore[method-assign]
    assert len(list(encode_stream(encoder, replace(images, read=note), batch_size=2))) == 6


def test_small_batches_keep_all_workers_busy(monkeypatch) -> None:
    monkeypatch.setattr(pipeline, "usable_cores", lambda: 12)
    together = threading.Barrier(12, timeout=20)
    images = image_work({str(i): png((i, 0, 0)) for i in range(24)})

    def decode(data: bytes) -> Image.Image:
        together.wait()  # broken, were fewer images decoded at a time
        return images.decode(data)

    batches = list(encode_stream(ToyEncoder(), replace(images, decode=decode), batch_size=1))
    assert len(batches) == 24


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


def test_doubling_stops_at_the_memory_and_at_the_largest_allowed_size(monkeypatch) -> None:
    monkeypatch.setattr(pipeline, "_TIMED_SECONDS", 0.0)
    assert find_batch_size(ToyEncoder(capacity=9), "image", start=2, gain=0.0) == 8
    assert find_batch_size(ToyEncoder(), "caption", start=4, largest=16, gain=0.0) == 16
    with pytest.raises(WorkError, match="not even 4 captions fit"):
        find_batch_size(ToyEncoder(capacity=3), "caption")


def test_one_image_is_prepared_for_all_batch_sizes_of_a_model_that_joins_images(monkeypatch) -> None:
    prepared: list[int] = []

    class Counting(ToyEncoder):
        def prepare_images(self, images):
            prepared.append(len(images))
            return super().prepare_images(images)

    monkeypatch.setattr(pipeline, "_TIMED_SECONDS", 0.0)
    assert find_batch_size(Counting(), "image", start=2, largest=64, gain=0.0) == 64
    assert set(prepared) == {1}
