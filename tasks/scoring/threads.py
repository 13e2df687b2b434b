"""A thread pool for many small computations, each on one thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch

Each: TypeAlias = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]


@contextmanager
def one_thread_each(device: str) -> Iterator[Each]:
    """A ``map``; on a CPU with as many workers as torch has threads, each computing on one thread.

    Many small products on busy threads were measured to be fastest: a product that is itself spread over threads waits
    for the last of them, and an idle thread takes milliseconds to wake.
    """
    workers = torch.get_num_threads()
    if device != "cpu" or workers == 1:
        yield map
        return
    with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        try:
            yield pool.map
        finally:
            torch.set_num_threads(workers)
