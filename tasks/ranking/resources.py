"""Resources for computing scores: the outcomes depend on neither the device nor the memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

DEFAULT_MEMORY_BYTES = 2 << 30


@dataclass(frozen=True)
class Resources:
    """A device, and memory on it.

    Attributes:
        device: Name of the device, as in torch.
        memory_bytes: For vectors and scores together (for late interaction: beyond the captions' vectors). None: 2 GiB,
            or, for single vectors on a CUDA device, a quarter of its free memory if that is more.
    """

    device: str = "cpu"
    memory_bytes: int | None = None

    @property
    def budget(self) -> int:
        """Return the bytes of memory, independent of the device."""
        return self.memory_bytes or DEFAULT_MEMORY_BYTES


ON_CPU = Resources()


Each: TypeAlias = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]
Advance: TypeAlias = Callable[[float], None]  # called with the fraction of the work that was just done

_ON_A_GPU = 2  # threads: one prepares and launches the next product while the other waits for its result
_AHEAD = 2  # items per thread that are read before the first of them is done


def ignore(_share: float) -> None:
    """The :data:`Advance` of a caller that shows no progress."""


@contextmanager
def one_thread_each(device: str) -> Iterator[Each]:
    """Yield a ``map`` in order that reads the next items while a few are computed.

    On a CPU it has as many workers as torch has threads, each computing on one thread. Many small products on busy
    threads were measured to be fastest: a product that is itself spread over threads waits for the last of them, and
    an idle thread takes milliseconds to wake. On a CUDA device it has two workers, so that the device does not wait
    for items to be read and for results to be stored.
    """
    import torch

    n_threads = torch.get_num_threads()
    initializer: Callable[[], object] | None = None
    if device.startswith("cuda"):
        workers = _ON_A_GPU
        if torch.cuda.is_available():  # a thread's first product warns if no thread has opened the device in it
            initializer = partial(torch.cuda.synchronize, device)
    elif device == "cpu" and n_threads > 1:
        workers, initializer = n_threads, partial(torch.set_num_threads, 1)
    else:
        yield map
        return
    with ThreadPoolExecutor(workers, initializer=initializer) as pool:
        try:
            yield partial(_bounded_map, pool, _AHEAD * workers)
        finally:
            torch.set_num_threads(n_threads)


def _bounded_map(
    pool: ThreadPoolExecutor, ahead: int, function: Callable[[Any], Any], items: Iterable[Any]
) -> Iterator[Any]:
    """Yield ``map`` in a pool, with at most ``ahead`` items read and not yet yielded."""
    waiting: deque[Future[Any]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) == ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
