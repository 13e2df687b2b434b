"""Encode many items: worker threads prepare, one thread runs the forward pass, the caller stores.

The three run at the same time, so that the device does not wait: workers read, decode and prepare the next batches
while one batch is on the device and another is being stored. Every result names the positions of its items in the
corpus, so that any of them may be missing after a crash. Equal items are encoded once, captions of similar length
together; :func:`find_batch_size` finds the number of items that fit into a forward pass and are worthwhile.
"""

from __future__ import annotations

import itertools
import math
import re
import time
from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from capim.store.errors import RequestError, WorkError
from capim.store.types import Embeddings, Modality
from capim.tasks.encoders.device import is_out_of_memory, peak_bytes, release, usable_cores
from capim.tasks.encoders.encoder import Encoder, Prepared, concatenate, service_of, take
from capim.tasks.encoders.tensors import Uploads, join

NOMINAL_TOKENS = 32  # a batch size for captions counts captions of this many tokens
_MOST_CAPTIONS = 8  # a batch of very short captions has at most this many times the batch size
_PADDING = 8  # a caption joins a batch if it is at most an eighth shorter than the longest one
_PIECES = re.compile(r"[a-zA-Z]{1,12}|[^\W\d]{1,3}|\S")
_CHUNK = 8  # images that one worker decodes and prepares at a time
_MOST_WORKERS = 16
_AHEAD_OF_MODEL = 3  # batches that are prepared in advance
_PER_WORKER = 2  # chunks in advance for each worker; with fewer, workers wait for the model to take a batch
_AHEAD_OF_CALLER = 3  # batches that go through the model while the caller stores one
_LARGEST_BATCH = 1024
LARGEST_ON_CPU: dict[Modality, int] = {"image": 64, "caption": 256}  # out of memory kills the process there
_TIMED_SECONDS = 0.5  # short passes are repeated for so long and the fastest counts: the machine may be shared


@dataclass(frozen=True, kw_only=True)
class ImageWork:
    """Images to encode.

    Attributes:
        ords: Position of each image in its corpus.
        keys: The argument of ``read`` for each image.
        shas: Hash of each image's bytes; images of equal hash are encoded once. None: unknown.
        read: Returns the encoded bytes of an image; called from several threads.
        decode: Turns the bytes into an upright RGB image; called from several threads.
    """

    ords: NDArray[np.int32]
    keys: Sequence[str]
    shas: Sequence[str | None]
    read: Callable[[str], bytes]
    decode: Callable[[bytes], Image.Image]


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
class EncodedBatch:
    """The result of one batch.

    Attributes:
        index: 0, 1, 2, …; batch 0 warms the device up and does not count in throughput.
        ords: int32, shape ``(n,)``: corpus positions of the items of ``embeddings``.
        embeddings: One item per ord; equal items have the same vector.
        n_encoded: Number of items that went through the model: ``n`` without duplicates.
        batch_size: Largest number of items in one forward pass so far.
        decode_seconds: Time for reading and decoding, summed over worker threads; 0 for captions.
        preprocess_seconds: Time for resizing or tokenising, summed over worker threads.
        forward_seconds: Time of the forward pass, until the vectors are back on the CPU.
        peak_memory_bytes: Peak memory of the device so far (on the CPU: of the process).
    """

    index: int
    ords: NDArray[np.int32]
    embeddings: Embeddings
    n_encoded: int
    batch_size: int
    decode_seconds: float
    preprocess_seconds: float
    forward_seconds: float
    peak_memory_bytes: int


Batch: TypeAlias = list[NDArray[np.int64]]
"""Distinct items of one forward pass: for each its positions in the work, several if items are equal."""


class _PreparedBatch(NamedTuple):
    """Items ready for the forward pass, and the seconds of their preparation, summed over threads."""

    prepared: Prepared
    decode_seconds: float
    preprocess_seconds: float


def encode_stream(
    encoder: Encoder, work: ImageWork | CaptionWork, *, batch_size: int
) -> Generator[EncodedBatch, None, None]:
    """Encode all items; yield each batch as soon as it is done, not in the order of the items.

    Captions are encoded longest first, so that a batch holds captions of similar length and a lack of memory shows at
    once. If the cost of a caption depends on its length, ``batch_size`` counts captions of 32 tokens: batches of
    shorter ones are larger, of longer ones smaller. When a batch does not fit into memory it is halved, and so are all
    later ones.

    Args:
        encoder: A loaded model.
        work: The images or captions.
        batch_size: Items of one forward pass.

    Raises:
        RequestError: If ``batch_size`` is less than 1.
        WorkError: If an image cannot be read or decoded, if a single item does not fit into memory, or if a vector is
            not finite. Batches that were yielded before are correct and complete.
    """
    if batch_size < 1:
        raise RequestError(f"batch size must be at least 1, got {batch_size}")
    plan = plan_batches(encoder, work, batch_size)
    workers = min(_MOST_WORKERS, usable_cores())  # that read, decode and prepare
    ahead = _AHEAD_OF_MODEL
    if isinstance(work, ImageWork):
        ahead = max(ahead, _PER_WORKER * workers // math.ceil(batch_size / _CHUNK))
    pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="prepare")
    # joining and pinning a batch takes as long as a GPU's pass over it: neither the pass nor the workers wait for it
    joiner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="join")
    forward = ThreadPoolExecutor(max_workers=1, thread_name_prefix="forward")
    stream = _encoded(encoder, work.ords, _prepared(encoder, work, plan, ahead, pool, joiner), batch_size)
    # while the caller stores one batch, the next ones go through the model
    coming = deque(forward.submit(next, stream, None) for _ in range(_AHEAD_OF_CALLER))
    try:
        while (batch := coming.popleft().result()) is not None:
            coming.append(forward.submit(next, stream, None))
            yield batch
    finally:
        forward.shutdown(wait=False, cancel_futures=True)
        if service := service_of(encoder):
            running = [each for each in coming if not each.cancelled()]
            while wait(running, timeout=0.05).not_done:  # it may be about to send requests
                service.stop()
        for threads in (forward, pool, joiner):
            threads.shutdown(cancel_futures=True)


def plan_batches(encoder: Encoder, work: ImageWork | CaptionWork, batch_size: int) -> list[Batch]:
    """Return the batches of all distinct items."""
    if isinstance(work, ImageWork):
        items = group_equal([sha or key for sha, key in zip(work.shas, work.keys, strict=True)])
        return [items[start : start + batch_size] for start in range(0, len(items), batch_size)]
    items = group_equal(work.texts)
    plan = caption_batches([work.texts[item[0]] for item in items], batch_size, by_length=encoder.pads_to_longest)
    return [[items[i] for i in batch] for batch in plan]


def group_equal(contents: Sequence[Hashable]) -> list[NDArray[np.int64]]:
    """Return all positions of each distinct content, in order of first appearance.

    Examples:
        >>> [positions.tolist() for positions in group_equal(["a", "b", "a"])]
        [[0, 2], [1]]
    """
    positions: dict[Hashable, list[int]] = {}
    for position, content in enumerate(contents):
        positions.setdefault(content, []).append(position)
    return [np.asarray(each, dtype=np.int64) for each in positions.values()]


def caption_batches(texts: Sequence[str], batch_size: int, *, by_length: bool) -> list[list[int]]:
    """Return positions of captions in batches, longest first.

    Args:
        texts: The captions.
        batch_size: Captions of 32 tokens in one batch.
        by_length: Fill a batch up to a number of tokens instead of captions, and end it where captions become
            shorter, so that there is little padding. False: every batch has ``batch_size`` captions.

    Examples:
        >>> caption_batches(["a red bus", "x " * 99, "a dog"], 1, by_length=True)
        [[1], [0], [2]]
        >>> caption_batches(["a red bus", "x " * 99, "a fat dog"], 2, by_length=True)
        [[1], [0, 2]]
        >>> caption_batches(["a red bus", "x " * 99, "a dog"], 2, by_length=False)
        [[1, 0], [2]]
    """
    tokens = [_estimated_tokens(text) for text in texts]
    order = sorted(range(len(texts)), key=lambda i: (-tokens[i], i))
    batches: list[list[int]] = []
    start = 0
    while start < len(order):
        batch = order[start : start + batch_size]
        if by_length:
            longest = tokens[order[start]]
            size = min(max(1, batch_size * NOMINAL_TOKENS // longest), _MOST_CAPTIONS * batch_size)
            batch = [i for i in order[start : start + size] if tokens[i] >= longest - longest // _PADDING]
        batches.append(batch)
        start += len(batch)
    return batches


def _estimated_tokens(text: str) -> int:
    """Return a rough estimate of the number of subword tokens of a caption, plus two special tokens.

    It counts one token for each Latin word of up to twelve letters, for three letters of another script, and for every
    digit and mark: for English within a token of CLIP's count, at a fraction of its cost.

    Examples:
        >>> _estimated_tokens("Two dogs play."), _estimated_tokens("一只红色的公共汽车")
        (6, 5)
    """
    return len(_PIECES.findall(text)) + 2


def _encoded(
    encoder: Encoder, ords: NDArray[np.int32], batches: Iterator[tuple[Batch, _PreparedBatch]], batch_size: int
) -> Iterator[EncodedBatch]:
    """Yield one forward pass after the other over prepared batches."""
    limit: int | None = None
    for index, (batch, ready) in enumerate(batches):
        begun = time.perf_counter()
        embeddings, limit = _forward(encoder, ready.prepared, limit)
        done = time.perf_counter()
        rows = np.repeat(np.arange(len(batch)), [len(positions) for positions in batch])
        yield EncodedBatch(
            index=index,
            ords=ords[np.concatenate(batch)],
            embeddings=embeddings if len(rows) == len(batch) else take(embeddings, rows),
            n_encoded=len(batch),
            batch_size=limit or batch_size,
            decode_seconds=ready.decode_seconds,
            preprocess_seconds=ready.preprocess_seconds,
            forward_seconds=done - begun,
            peak_memory_bytes=peak_bytes(encoder.device),
        )


def _forward(encoder: Encoder, prepared: Prepared, limit: int | None) -> tuple[Embeddings, int | None]:
    """Run the forward pass in pieces of at most ``limit`` items, halved whenever memory runs out."""
    pieces: list[Embeddings] = []
    done, size = 0, min(limit or len(prepared), len(prepared))
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
                    f"encoder {encoder.spec.name!r}: a single {prepared.modality} does not fit into the memory of "
                    f"{encoder.device}; try --precision bfloat16 or another device. Stored embeddings are kept"
                ) from error
        # outside the handler: the error's traceback holds the tensors of the failed pass
        size = limit = size // 2
        release(encoder.device)
    return concatenate(pieces), limit


def _prepared(
    encoder: Encoder,
    work: ImageWork | CaptionWork,
    plan: Sequence[Batch],
    ahead: int,
    pool: ThreadPoolExecutor,
    joiner: ThreadPoolExecutor,
) -> Iterator[tuple[Batch, _PreparedBatch]]:
    """Yield the batches of the plan in its order, prepared; the next ``ahead`` ones are prepared meanwhile."""
    waiting: deque[Future[_PreparedBatch]] = deque()
    coming = iter(plan)
    uploads = Uploads(encoder.device)
    uploaded: _PreparedBatch | None = None
    for batch in plan:
        for later in itertools.islice(coming, ahead + 1 - len(waiting)):
            chunk = _CHUNK if isinstance(work, ImageWork) and encoder.joins_images else len(later)
            chunks = [later[i : i + chunk] for i in range(0, len(later), chunk)]
            parts = [pool.submit(_prepare, encoder, work, [int(item[0]) for item in items]) for items in chunks]
            waiting.append(joiner.submit(_join, encoder, parts))
        ready = waiting.popleft().result()
        ready, uploaded = uploaded or ready, None
        uploads.finish()
        if waiting and waiting[0].done() and waiting[0].exception() is None:
            following = waiting[0].result()
            uploaded = following._replace(prepared=uploads.begin(following.prepared))
        yield batch, ready


def _join(encoder: Encoder, parts: Sequence[Future[_PreparedBatch]]) -> _PreparedBatch:
    batches, decoding, preparing = zip(*(part.result() for part in parts), strict=True)
    begun = time.perf_counter()
    prepared = join(batches, pinned=encoder.device.startswith("cuda"))
    return _PreparedBatch(prepared, sum(decoding), sum(preparing) + time.perf_counter() - begun)


def _prepare(encoder: Encoder, work: ImageWork | CaptionWork, items: Sequence[int]) -> _PreparedBatch:
    begun = time.perf_counter()
    if isinstance(work, CaptionWork):
        prepared = encoder.prepare_captions([work.texts[i] for i in items])
        return _PreparedBatch(prepared, 0.0, time.perf_counter() - begun)
    images = [_decoded(work, work.keys[i]) for i in items]
    decoded = time.perf_counter()
    prepared = encoder.prepare_images(images)
    return _PreparedBatch(prepared, decoded - begun, time.perf_counter() - decoded)


def _decoded(work: ImageWork, key: str) -> Image.Image:
    try:
        return work.decode(work.read(key))
    except (OSError, ValueError) as error:
        raise WorkError(
            f"image {key!r} cannot be read: {error}; it could be read when the corpus was checked. Stored embeddings "
            "are kept: repair the image and run the command again"
        ) from error


def find_batch_size(
    encoder: Encoder, modality: Modality, *, start: int = 4, largest: int | None = None, gain: float = 1.05
) -> int:
    """Return the batch size found by doubling until a batch is no faster, does not fit, or reaches the limit.

    Only the forward pass is timed, on images of 320 x 240 and captions of about 32 tokens, after one warm-up pass.
    Vectors do not depend on the batch size beyond rounding.

    Args:
        encoder: A loaded model.
        modality: Images or captions.
        start: Smallest batch size.
        largest: Largest batch size; None: 1024, on a CPU 64 images or 256 captions.
        gain: A doubled batch must raise the items per second by this factor, or the smaller one is taken.

    Raises:
        WorkError: If not even the smallest batch fits into memory.
    """
    largest = largest or (LARGEST_ON_CPU[modality] if encoder.device == "cpu" else _LARGEST_BATCH)
    best, best_rate, size = 0, 0.0, start
    while size <= largest:
        try:
            rate = _rate(encoder, _batch(encoder, modality, size))
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            break
        if rate < gain * best_rate:
            break
        best, best_rate, size = size, rate, 2 * size
    release(encoder.device)
    if not best:
        raise WorkError(
            f"encoder {encoder.spec.name!r}: not even {start} {modality}s fit into the memory of {encoder.device}"
        )
    return best


def _batch(encoder: Encoder, modality: Modality, size: int) -> Prepared:
    if modality == "caption":
        return encoder.prepare_captions([" ".join(["word"] * (NOMINAL_TOKENS - 2))] * size)
    image = Image.effect_noise((320, 240), 80).convert("RGB")
    if not encoder.joins_images:
        return encoder.prepare_images([image] * size)
    return join([encoder.prepare_images([image])] * size, pinned=encoder.device.startswith("cuda"))


def _rate(encoder: Encoder, batch: Prepared) -> float:
    encoder.embed(batch)
    seconds: list[float] = []
    while not seconds or sum(seconds) < _TIMED_SECONDS:
        begun = time.perf_counter()
        encoder.embed(batch)
        seconds.append(time.perf_counter() - begun)
    return len(batch) / min(seconds)
