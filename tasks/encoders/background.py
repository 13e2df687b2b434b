"""An iterator that runs in a thread of its own."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Generator, Iterator
from typing import TypeVar

T = TypeVar("T")


class _End:
    """Marks the end of the background iterator, with the error that ended it."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def in_background(source: Iterator[T], depth: int) -> Generator[T, None, None]:
    """The items of an iterator that runs in a thread.

    Closing this generator stops the thread after the item that it is computing; an error of the source is raised
    here, after the items before it.

    Args:
        source: Used by the thread alone.
        depth: Items that may wait here for the caller.

    Examples:
        >>> list(in_background(iter([1, 2]), depth=1))
        [1, 2]
    """
    items: queue.Queue[T | _End] = queue.Queue(maxsize=depth)
    stopped = threading.Event()

    def produce() -> None:
        error: BaseException | None = None
        try:
            for item in source:
                items.put(item)
                if stopped.is_set():
                    break
        except BaseException as raised:  # noqa: BLE001 - raised again by the caller
            error = raised
        items.put(_End(error))

    thread = threading.Thread(target=produce, name="forward", daemon=True)
    thread.start()
    try:
        while not isinstance(item := items.get(), _End):
            yield item
        if item.error is not None:
            raise item.error
    finally:
        stopped.set()
        while thread.is_alive():
            with contextlib.suppress(queue.Empty):
                items.get(timeout=0.05)
