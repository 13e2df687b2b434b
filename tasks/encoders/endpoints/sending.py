"""One request and its whole answer, within a time and a size.

A blocking client can bound the wait for the next bytes, and a service that sends one byte a second then keeps it for
ever. Requests therefore wait in an event loop, in which the time from the address to the last byte is bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from email.utils import parsedate_to_datetime
from functools import cache
from typing import NamedTuple

import httpx


class Reply(NamedTuple):
    """What a service answered: status, header ``Retry-After`` and the whole body."""

    status: int
    retry_after: str | None
    body: bytes

    @property
    def text(self) -> str:
        """The body, whatever its bytes."""
        return self.body.decode("utf-8", errors="replace")


class TooLargeError(Exception):
    """The answer is larger than it may be; the rest of it was not read."""


class Sender:
    """Sends requests from any thread over kept connections.

    Args:
        key: Goes along as bearer token; None: none.
        connections: Most of them.
        seconds: Longest time from the beginning of a request to the last byte of its answer.
    """

    def __init__(self, *, key: str | None, connections: int, seconds: float) -> None:
        self._seconds = seconds
        self._loop = _loop()
        self._client = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(None, connect=30.0),
            limits=httpx.Limits(max_connections=connections),
        )

    def post(self, url: str, body: dict[str, object], *, most: int) -> Reply:
        """The answer to a request.

        Raises:
            httpx.RequestError: There is none.
            TimeoutError: It is not whole in time.
            TooLargeError: It has more than ``most`` bytes.
        """
        request = self._client.build_request("POST", url, json=body)
        return asyncio.run_coroutine_threadsafe(self._sent(request, most), self._loop).result()

    async def _sent(self, request: httpx.Request, most: int) -> Reply:
        body = bytearray()
        async with asyncio.timeout(self._seconds):
            response = await self._client.send(request, stream=True)
            try:
                async for part in response.aiter_bytes():
                    body += part
                    if len(body) > most:
                        raise TooLargeError
            finally:
                await response.aclose()
        return Reply(response.status_code, response.headers.get("Retry-After"), bytes(body))


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="endpoints", daemon=True).start()
    return loop


# --- When a request may be sent: limits per minute, and the time that a service asks to wait.


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
