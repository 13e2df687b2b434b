"""When a request may be sent: limits per minute, and the time that a service asks to wait."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from email.utils import parsedate_to_datetime


class Pace:
    """Spaces out events of all threads, so that no more of them begin than may; ``None`` per minute: no limit."""

    def __init__(self, per_minute: float | None) -> None:
        self._seconds = 60 / per_minute if per_minute else 0.0
        self._next = 0.0
        self._lock = threading.Lock()

    def turn(self, n: float = 1) -> float:
        """The seconds until the turn of ``n`` more events, which is taken."""
        with self._lock:
            now = time.monotonic()
            begin = max(now, self._next)
            self._next = begin + n * self._seconds
        return begin - now

    def hold(self, seconds: float, n: float = 0) -> None:
        """Let no event begin for so many seconds, and then count ``n``."""
        with self._lock:
            self._next = max(self._next, time.monotonic() + seconds) + n * self._seconds


def retry_after(value: str | None) -> float | None:
    """Seconds that a header ``Retry-After`` asks to wait: a number, or a date (RFC 9110, 10.2.3).

    None where it asks for no time to come: nothing, no time at all, or a time that has passed.

    Examples:
        >>> retry_after("7"), retry_after(None), retry_after("soon")
        (7.0, None, None)
        >>> retry_after("0"), retry_after("-3"), retry_after("nan"), retry_after("Wed, 21 Oct 2015 07:28:00 GMT")
        (None, None, None, None)
    """
    seconds = 0.0
    with contextlib.suppress(ValueError, OverflowError):
        seconds = parsedate_to_datetime(value or "").timestamp() - time.time()
    with contextlib.suppress(ValueError):
        seconds = float(value or "")
    return seconds if 0 < seconds < math.inf else None
