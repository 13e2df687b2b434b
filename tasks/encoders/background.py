"""Iterators that run in threads of their own."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Generator, Iterator, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Shared(Generic[T]):
    """One iterator for several threads: each item goes to whoever asks first."""

    def __init__(self, source: Iterator[T]) -> None:
        self._source = source
        self._turn = threading.Lock()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        with self._turn:
            return next(self._source)


class _End:
    """Marks the end of one background iterator, with the error that ended it."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def in_background(sources: Sequence[Iterator[T]], depth: int) -> Generator[T, None, None]:
    """The items of all sources as they come, each source in a thread of its own.

    Closing this generator, or an error in one source, stops every thread after the item that it is at; the error is
    raised here.

    Args:
        sources: Iterators; each is used by its own thread alone.
        depth: Items that may wait here for the caller, per source.

    Examples:
        >>> sorted(in_background([iter([1, 2]), iter([3])], depth=1))
        [1, 2, 3]
    """
    items: queue.Queue[T | _End] = queue.Queue(maxsize=depth * len(sources))
    stopped = threading.Event()

    def produce(source: Iterator[T]) -> None:
        error: BaseException | None = None
        try:
            for item in source:
                items.put(item)
                if stopped.is_set():
                    break
        except BaseException as raised:  # noqa: BLE001 - handed to the consumer, which raises it
            error = raised
        items.put(_End(error))

    threads = [threading.Thread(target=produce, args=(s,), name="forward", daemon=True) for s in sources]
    for thread in threads:
        thread.start()
    try:
        running = len(threads)
        while running:
            item = items.get()
            if not isinstance(item, _End):
                yield item
            elif item.error is not None:
                raise item.error
            else:
                running -= 1
    finally:
        stopped.set()
        while any(thread.is_alive() for thread in threads):
            with contextlib.suppress(queue.Empty):
                items.get(timeout=0.05)
