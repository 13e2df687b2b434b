"""Progress of long work, reported to a listener.

Code wraps its loop in :func:`track`; the command line listens and draws bars, a Prefect flow listens and updates an
artifact, and with no listener nothing happens. Plain code gets a callback and needs neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

DOWNLOADED = "MB downloaded"
"""The unit of downloads, which are announced before they begin."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """One step of one piece of work.

    Attributes:
        work: What is being done, unique among what runs at once: ``"tiny-clip · shapes · images"``.
        done: Units finished so far, with the part of those in work where it is known.
        total: Units in all; ``done == total`` ends the work.
        unit: What is counted: ``images``, ``captions``, ``encoders``.
        step: Whether it is a whole step of a run, which consists of such pieces.
    """

    work: str
    done: float
    total: int
    unit: str
    step: bool = False


Listener = Callable[[Progress], None]

_listener: ContextVar[Listener | None] = ContextVar("progress_listener", default=None)


def current_listener() -> Listener:
    """The current listener, or one that does nothing."""
    return _listener.get() or (lambda _progress: None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Send every progress of the block to ``listener``."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def track(work: str, *, total: int, unit: str, step: bool = False) -> Iterator[Callable[[float], None]]:
    """Gives a callback that takes the number of units just finished.

    Examples:
        >>> seen = []
        >>> with listening(lambda p: seen.append((p.done, p.total))), track("w", total=3, unit="images") as advance:
        ...     advance(2)
        ...     advance(1)
        >>> seen
        [(0, 3), (2, 3), (3, 3)]
    """
    listener = _listener.get()
    done: float = 0

    def advance(units: float) -> None:
        nonlocal done
        done += units
        if listener is not None:
            listener(Progress(work=work, done=round(done, 6), total=total, unit=unit, step=step))

    advance(0)
    yield advance
