"""Encode many items: decoding and preprocessing in worker threads, the forward pass in its own, the caller writing.

Three things happen at once, so that the device never waits: workers read, decode and prepare the next batches; one
thread runs the forward pass; the caller stores the block that it was handed. Blocks come with the positions that
they belong to, so their order does not matter and any of them may be missing after a crash.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from store.errors import RequestError, WorkError
from store.types import Embeddings
from tasks.encoders.background import Shared, in_background
from tasks.encoders.batching import Batch, caption_batches, group_equal, image_batches
from tasks.encoders.encoder import Encoder, Prepared, concatenate, gather
from tasks.encoders.memory import assemble, is_out_of_memory, peak_bytes, release, usable_cores

if TYPE_CHECKING:
    from PIL.Image import Image

_CHUNK = 8  # images that one worker decodes and prepares at a time


@dataclass(frozen=True, kw_only=True)
class ImageWork:
    """Images to encode.

    Attributes:
        ords: Position of each image in its corpus.
        keys: What ``read`` takes, one per image.
        shas: Hash of each image's bytes; images of equal hash are encoded once. None: not known.
        read: Encoded bytes of an image; called from several threads.
        decode: Bytes to an upright RGB image; called from several threads.
    """

    ords: NDArray[np.int32]
    keys: Sequence[str]
    shas: Sequence[str | None]
    read: Callable[[str], bytes]
    decode: Callable[[bytes], Image]


@dataclass(frozen=True, kw_only=True)
class CaptionWork:
    """Captions to encode; equal texts are encoded once.

    Attributes:
        ords: Position of each caption in its corpus.
        texts: The captions.
    """

    ords: NDArray[np.int32]
    texts: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Timings:
    """Where one batch's time went.

    Attributes:
        decode_seconds: Reading and decoding, summed over worker threads; 0 for captions.
        preprocess_seconds: Resizing or tokenising, summed over worker threads.
        forward_seconds: The forward pass, the device waited for, vectors back on the CPU.
        wait_seconds: What the forward thread waited for this batch: 0 when workers keep up.
    """

    decode_seconds: float
    preprocess_seconds: float
    forward_seconds: float
    wait_seconds: float


@dataclass(frozen=True, kw_only=True)
class EncodedBatch:
    """What one forward pass gave.

    Attributes:
        index: 0, 1, 2 …; the first one warms the device up and does not count in throughput.
        ords: int32, shape ``(n,)``: corpus positions of the rows of ``embeddings``.
        embeddings: One row per ord; items that are equal share their vector.
        n_encoded: Items that went through the model: ``n`` less the duplicates.
        batch_size: Largest number of items in one forward pass at that moment.
        timings: Where the time went.
        peak_memory_bytes: Highest memory of the device so far (on the CPU: of the process).
    """

    index: int
    ords: NDArray[np.int32]
    embeddings: Embeddings
    n_encoded: int
    batch_size: int
    timings: Timings
    peak_memory_bytes: int


class _Part(NamedTuple):
    """What one worker prepared."""

    prepared: Prepared
    decode_seconds: float
    preprocess_seconds: float


class _Ready(NamedTuple):
    """A batch whose turn has come."""

    number: int
    batch: Batch
    prepared: Prepared
    decode_seconds: float
    preprocess_seconds: float


def encode_stream(
    encoders: Encoder | Sequence[Encoder],
    work: ImageWork | CaptionWork,
    *,
    batch_size: int,
    workers: int | None = None,
    ahead: int = 3,
) -> Generator[EncodedBatch, None, None]:
    """Encode all items; yields each block as soon as it is there, in any order of items.

    Captions go longest first, so that a batch holds captions of one length and too little memory shows at once.
    Where a caption costs by its length, ``batch_size`` counts captions of 32 tokens: shorter ones go in larger
    batches, longer ones in smaller. When a batch does not fit into memory it is halved, and so are all later ones;
    nothing is computed twice except that batch.

    Args:
        encoders: A loaded model, or the same model on several devices, which share the work.
        work: The images or captions; no items, no blocks.
        batch_size: Items of one forward pass.
        workers: Threads that read, decode and prepare; None: as many as there are cores, at most 16.
        ahead: Batches prepared in advance for each device.

    Raises:
        RequestError: ``batch_size`` or ``workers`` is less than 1, or there is no encoder.
        WorkError: An image cannot be read or decoded, a single item does not fit into memory, or the model gave no
            usable vector. Blocks that were handed out before are right and complete.
    """
    replicas = list(encoders) if isinstance(encoders, Sequence) else [encoders]
    if batch_size < 1 or (workers is not None and workers < 1) or not replicas:
        raise RequestError(
            f"batch size and workers must be at least 1 (got {batch_size} and {workers}), and so must the encoders"
        )
    plan = plan_batches(replicas[0], work, batch_size)
    pool = ThreadPoolExecutor(max_workers=workers or min(16, usable_cores()), thread_name_prefix="prepare")
    # joining and pinning a batch takes as long as a GPU's pass over it: neither the pass nor the workers wait for it
    joiner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="join")
    try:
        batches = Shared(_prepared(replicas[0], work, plan, pool, joiner, ahead * len(replicas)))
        streams = [_encoded(replica, work.ords, batches, batch_size) for replica in replicas]
        with contextlib.closing(in_background(streams, depth=2)) as blocks:
            yield from blocks
    finally:
        pool.shutdown(cancel_futures=True)
        joiner.shutdown(cancel_futures=True)


def plan_batches(encoder: Encoder, work: ImageWork | CaptionWork, batch_size: int) -> list[Batch]:
    """Which items go through the model together; equal ones once."""
    if isinstance(work, CaptionWork):
        firsts, places = group_equal(work.texts)
        plan = caption_batches([work.texts[i] for i in firsts], batch_size, by_length=encoder.pads_to_longest)
    else:
        firsts, places = group_equal([sha or key for sha, key in zip(work.shas, work.keys, strict=True)])
        plan = image_batches(len(firsts), batch_size)
    return [Batch([firsts[i] for i in batch], [places[i] for i in batch]) for batch in plan]


def _encoded(
    encoder: Encoder, ords: NDArray[np.int32], batches: Iterator[_Ready], batch_size: int
) -> Iterator[EncodedBatch]:
    """Forward passes on one device, one after the other, over batches that workers prepare."""
    limit: int | None = None
    while True:
        asked = time.perf_counter()
        ready = next(batches, None)
        if ready is None:
            return
        begun = time.perf_counter()
        pieces, limit = _forward(encoder, ready.prepared, limit)
        block = concatenate(pieces)
        done = time.perf_counter()
        places = ready.batch.places
        rows = np.repeat(np.arange(len(places)), [len(place) for place in places])
        yield EncodedBatch(
            index=ready.number,
            ords=ords[np.concatenate(places)],
            embeddings=block if len(rows) == len(places) else gather(block, rows),
            n_encoded=len(places),
            batch_size=limit or batch_size,
            timings=Timings(
                decode_seconds=ready.decode_seconds,
                preprocess_seconds=ready.preprocess_seconds,
                forward_seconds=done - begun,
                wait_seconds=begun - asked,
            ),
            peak_memory_bytes=peak_bytes(encoder.device),
        )


def _forward(encoder: Encoder, prepared: Prepared, limit: int | None) -> tuple[list[Embeddings], int | None]:
    """The forward pass in pieces of at most ``limit`` items, halved whenever memory runs out."""
    pieces: list[Embeddings] = []
    done = 0
    size = min(limit or len(prepared), len(prepared))
    while done < len(prepared):
        try:
            pieces.append(encoder.embed(prepared.part(done, done + size)))
            done += size
            continue
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            if size == 1:
                raise WorkError(
                    f"encoder {encoder.spec.name!r}: one {prepared.modality} alone does not fit into the memory of "
                    f"{encoder.device}; try --precision bfloat16 or another device. What was stored is kept"
                ) from error
        # outside the handler: the error's traceback holds the tensors of the failed pass
        size = limit = size // 2
        release(encoder.device)
    return pieces, limit


def _prepared(
    encoder: Encoder,
    work: ImageWork | CaptionWork,
    plan: Sequence[Batch],
    pool: ThreadPoolExecutor,
    joiner: ThreadPoolExecutor,
    ahead: int,
) -> Iterator[_Ready]:
    """Prepared batches in the order of the plan, of which the next few are under way."""
    waiting: deque[Future[_Ready]] = deque()
    todo = iter(enumerate(plan))
    for _ in plan:
        for number, coming in itertools.islice(todo, ahead + 1 - len(waiting)):
            chunk = _CHUNK if isinstance(work, ImageWork) and encoder.joins_images else len(coming.firsts)
            items = [coming.firsts[i : i + chunk] for i in range(0, len(coming.firsts), chunk)]
            parts = [pool.submit(_prepare, encoder, work, part) for part in items]
            waiting.append(joiner.submit(_joined, encoder, number, coming, parts))
        yield waiting.popleft().result()


def _joined(encoder: Encoder, number: int, batch: Batch, parts: Sequence[Future[_Part]]) -> _Ready:
    done = [part.result() for part in parts]
    begun = time.perf_counter()
    prepared = assemble([part.prepared for part in done], encoder.device)
    return _Ready(
        number,
        batch,
        prepared,
        sum(part.decode_seconds for part in done),
        sum(part.preprocess_seconds for part in done) + time.perf_counter() - begun,
    )


def _prepare(encoder: Encoder, work: ImageWork | CaptionWork, items: Sequence[int]) -> _Part:
    begun = time.perf_counter()
    if isinstance(work, CaptionWork):
        prepared = encoder.prepare_captions([work.texts[i] for i in items])
        return _Part(prepared, 0.0, time.perf_counter() - begun)
    images = [_decoded(work, work.keys[i]) for i in items]
    decoded = time.perf_counter()
    prepared = encoder.prepare_images(images)
    return _Part(prepared, decoded - begun, time.perf_counter() - decoded)


def _decoded(work: ImageWork, key: str) -> Image:
    try:
        return work.decode(work.read(key))
    except (OSError, ValueError) as error:
        raise WorkError(
            f"image {key!r} cannot be read: {error}; it was readable when the corpus was indexed_images. "
            "What was stored is kept: mend it and run again"
        ) from error
