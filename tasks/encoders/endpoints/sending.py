"""One request and its whole answer, within a time and a size.

A blocking client can bound the wait for the next bytes, and a service that sends one byte a second then keeps it for
ever. Requests therefore wait in an event loop, in which the time from the address to the last byte is bounded.
"""

from __future__ import annotations

import asyncio
import threading
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
