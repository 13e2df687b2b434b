"""A model behind an HTTP address, of a provider or of one's own server: what is sent, paced, repeated and checked.

The forms of requests and answers are those of :mod:`tasks.encoders.service_forms`. One vector per item: the form of
vLLM's token vectors was not verified.

Requests are paced, and repeated where that may help, all in one event loop: there the time from the address to the last
byte can be bounded, and whatever waits can be ended. A blocking client would wait for ever on one byte a second.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import itertools
import json
import logging
import math
import random
import re
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import replace
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, cast

import httpx
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from capim.store.errors import RequestError, WorkError, shortened
from capim.store.types import MODALITIES, Embeddings, EncoderSpec, Modality
from capim.tasks.encoders.adapters.loaded_encoder import LoadedEncoder
from capim.tasks.encoders.encoder import Inputs, Prepared
from capim.tasks.encoders.endpoint import EndpointOptions, endpoint_options, service_parameters
from capim.tasks.encoders.service_forms import FORMS, ServiceForm
from capim.tasks.encoders.tensors import unit_embeddings

log = logging.getLogger(__name__)
# the one loop of all endpoints, since a connection works only in the loop that opened it: begun by the import of this
# file, which happens once, however many threads load a model
_LOOP = asyncio.new_event_loop()
threading.Thread(target=_LOOP.run_forever, name="endpoints", daemon=True).start()

TRIES = 8
FIRST_TRIES = 3  # until the service has answered once: the address may be wrong
FIRST_WAIT_SECONDS = 1.0  # doubled with every try, and spread by half so that requests do not come back together
LONGEST_WAIT_SECONDS = 60.0
LONGEST_RETRY_AFTER_SECONDS = 600.0  # a service that asks for more has closed for today
_SENT_AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_TOO_MUCH = frozenset({400, 413, 422})  # too many or too large inputs, or one that the service does not take
_RETRY_INFO = re.compile(r'"retryDelay"\s*:\s*"([0-9.]+)s"')
_SHOWN = 300  # characters of an answer in an error
_NUMBER_BYTES = 64  # of a component in an answer, at most: 25 are usual, indented
_ANSWER_BYTES = 16 * 2**20  # of an answer beside them, so that the vectors of another dim are read and named


def load(spec: EncoderSpec, *, device: str, trust_remote_code: bool) -> EndpointEncoder:
    """The encoder of an endpoint; ``device`` has no effect, and nothing is sent yet.

    Raises:
        RequestError: An option is wrong, or the key is missing.
    """
    return EndpointEncoder(spec)


class EndpointEncoder(LoadedEncoder):
    """The model of a service; images are sent as PNG, so that nothing is lost on the way.

    The number of tokens of an item is known where it had a request of its own, else 0; the service counts all of
    them. No service that was looked at says what it truncates, so nothing counts as truncated.
    """

    def __init__(self, spec: EncoderSpec) -> None:
        self.service = EndpointClient(spec)
        # requests have a number of captions, whatever their length
        super().__init__(spec, "cpu", modules=[], forwards={}, pixels=self._images, pads_to_longest=False)

    def _images(self, images: list[Image.Image]) -> Inputs:
        if not self.service.takes_images:
            forms = " or ".join(f'"{name}" ({form.title})' for name, form in FORMS.items() if form.image)
            raise RequestError(
                f"encoder {self.spec.name!r}: its table does not say how {self.service.address} takes images; add the "
                f"option image_form = {forms}, or encode captions alone: capim embed --only captions"
            )
        return {"items": [_png(image) for image in images]}

    def embed(self, prepared: Prepared) -> Embeddings:
        """The service's vectors, normalised."""
        answers = self.service.answers(prepared.modality, cast("list[str]", prepared.inputs["items"]))
        counted = [a.tokens or 0 if len(a.vectors) == 1 else 0 for a in answers for _ in a.vectors]
        features = torch.from_numpy(np.concatenate([answer.vectors for answer in answers]))
        return unit_embeddings(features, replace(prepared, n_tokens=np.asarray(counted, dtype=np.int32)), self.spec)


def _png(image: Image.Image) -> str:
    """The Base64 of an image as PNG."""
    file = io.BytesIO()
    image.save(file, format="png", compress_level=1)  # more takes long and saves little
    return base64.b64encode(file.getvalue()).decode("ascii")


class EndpointAnswer(NamedTuple):
    """Vectors as a service gave them, shape ``(n, dim)``, and the tokens that it counted; None if it counts none."""

    vectors: NDArray[np.float32]
    tokens: int | None


class _TooMuchError(Exception):
    """The service refuses these inputs together; the message is its reason."""


class EndpointClient:
    """Sends the inputs of one encoder to its service; used by one thread.

    Args:
        spec: Of adapter ``http``.

    Attributes:
        address: Host and port.
        takes_images: Whether the service encodes images too.
        price: Of a million tokens; None if unknown.

    Raises:
        RequestError: An option is wrong, or the key is missing.
    """

    def __init__(self, spec: EncoderSpec) -> None:
        self.options: EndpointOptions = endpoint_options(spec)
        self._spec = spec
        self._key = self.options.key(spec.name)
        self._parameters = {modality: service_parameters(spec, modality) for modality in MODALITIES}
        self._http = httpx.AsyncClient(timeout=httpx.Timeout(None, connect=30.0))
        self._free = asyncio.Semaphore(self.options.concurrency)
        self._requests = Pace(self.options.requests_per_minute)
        self._tokens = Pace(self.options.tokens_per_minute)
        self._together = self.options.inputs_per_request
        self._reached = False
        self._spent: int | None = None
        self._under_way: Future[list[EndpointAnswer]] | None = None
        self.address = self.options.host
        self.takes_images = bool(self.options.image_form)
        self.price = self.options.price_per_million_tokens

    def tokens_spent(self) -> int | None:
        """The tokens that the answers since the last call name; None if they name none."""
        spent, self._spent = self._spent, None
        return spent

    def stop(self) -> None:
        """Let the requests under way end with an error instead of waiting any longer; the next ones are sent again."""
        if self._under_way is not None:
            self._under_way.cancel()

    def answers(self, modality: Modality, items: Sequence[str]) -> list[EndpointAnswer]:
        """The answers to captions, or to images in Base64, in order; where one fails, the others are not waited for.

        Several go together in a request, in a form that takes several.
        """
        size = self._together if self._form(modality).together else 1
        parts = [items[start : start + size] for start in range(0, len(items), size)]
        self._under_way = asyncio.run_coroutine_threadsafe(self._all(modality, parts), _LOOP)
        try:
            return self._under_way.result()
        except CancelledError:
            raise self._error("was not waited for any longer") from None
        finally:
            self.stop()  # where this thread was interrupted

    async def _all(self, modality: Modality, parts: Sequence[Sequence[str]]) -> list[EndpointAnswer]:
        sent = [asyncio.ensure_future(self._halving(modality, part)) for part in parts]
        try:
            return [answer for answers in await asyncio.gather(*sent) for answer in answers]
        finally:
            for each in sent:
                each.cancel()

    def _form(self, modality: Modality) -> ServiceForm:
        return cast("ServiceForm", self.options.form(modality))

    async def _halving(self, modality: Modality, inputs: Sequence[str]) -> list[EndpointAnswer]:
        """The answers to some inputs; those that the service refuses together are sent in halves, here and from now on.

        A refusal need not say whether there were too many inputs or one was wrong: the halves tell.
        """
        try:
            async with self._free:
                return [await self._asked(modality, inputs)]
        except _TooMuchError as refusal:
            if len(inputs) == 1:
                shown, check = self._shown(modality, inputs[0]), f"`capim check {self._spec.name}`"
                raise self._error(f"refuses {shown} ({refusal}); {check} shows what it takes") from None
            half = len(inputs) // 2
            self._together = min(self._together, half)
            log.info("%s refuses %d inputs in one request: %s", self.address, len(inputs), refusal)
        return [each for part in (inputs[:half], inputs[half:]) for each in await self._halving(modality, part)]

    def _body(self, modality: Modality, inputs: Sequence[str]) -> dict[str, Any]:
        """The request for some captions, or for images in Base64."""
        form = self._form(modality)
        write = cast("Any", form.text if modality == "caption" else form.image)
        prompt = () if modality == "caption" else (self.options.image_prompt,)
        contents = [write(item, *prompt) for item in inputs]
        if not form.together:
            contents = [self.options.conversation(modality, content) for content in contents]
        return form.body(self._spec.checkpoint, contents, self._parameters[modality])

    async def _asked(self, modality: Modality, inputs: Sequence[str]) -> EndpointAnswer:
        """The checked answer to one request with these inputs."""
        n, form = len(inputs), self._form(modality)
        reply = await self._reply(modality, self._body(modality, inputs), n)
        try:
            answer = json.loads(reply.body)
            rows, tokens = form.rows(answer), form.tokens(answer)
            numbers = [int(place) for place, _ in rows]
            vectors = [_components(embedding) for _, embedding in rows]
        except (ValueError, TypeError, KeyError, AttributeError):
            raise self._error(f"answered without embeddings: {self._plain(reply.text)}") from None
        if sorted(numbers) != list(range(n)):
            found = shortened(", ".join(map(str, sorted(numbers))), 40)
            raise self._error(
                f"answered {n} inputs with the indices {found}, expected each of 0 to {n - 1} once; nothing of this "
                "request was stored"
            )
        if wrong := {vector.shape for vector in vectors} - {(self._spec.dim,)}:
            raise self._error(
                f"answered with vectors of {', '.join(str(s[0]) if len(s) == 1 else str(s) for s in sorted(wrong))} "
                f"components, expected {self._spec.dim}; correct dim in the encoder's table"
            )
        matrix = np.stack([vectors[place] for place in np.argsort(numbers)])
        bad = np.flatnonzero(~(np.isfinite(matrix).all(axis=1) & matrix.any(axis=1)))
        if bad.size:
            raise self._error(
                f"answered with a vector that is NaN, infinite or zero for {bad.size} of {n} inputs: "
                f"{self._shown(modality, inputs[bad[0]])}; nothing of this request was stored"
            )
        tokens = int(tokens) if isinstance(tokens, int | float) else None
        if tokens is not None:
            self._tokens.hold(0.0, tokens)
            self._spent = (self._spent or 0) + tokens
        return EndpointAnswer(vectors=matrix, tokens=tokens)

    async def _reply(self, modality: Modality, body: dict[str, Any], n: int) -> Reply:
        """The answer to ``n`` inputs with status 200; a service that is busy or silent is asked again after a while."""
        most = _ANSWER_BYTES + n * self._spec.dim * _NUMBER_BYTES
        address = self.options.address(modality, self._spec.checkpoint)
        header, value = self._form(modality).key
        headers = {header: value.format(key=self._key)} if self._key else {}
        for number in itertools.count(1):
            await asyncio.sleep(self._tokens.turn(0))
            await asyncio.sleep(self._requests.turn())
            tries, pause = TRIES, None
            try:
                request = self._http.build_request("POST", address, json=body, headers=headers)
                reply = await self._sent(request, most)
            except TooLargeError:
                raise self._error(
                    f"answered {n} inputs with more than {most / 2**20:,.0f} MiB, which {n} vectors of "
                    f"{self._spec.dim} numbers do not need; check url and checkpoint, and dim"
                ) from None
            except (httpx.RequestError, TimeoutError) as error:
                reason = self._plain(f"{type(error).__name__}: {error}")
                if isinstance(error, TimeoutError):
                    reason = f"no whole answer in timeout_seconds = {self.options.timeout_seconds:g}"
                tries = TRIES if self._reached else FIRST_TRIES
            else:
                self._reached = True
                if reply.status == httpx.codes.OK:
                    break
                reason = f"{reply.status}: {self._plain(reply.text)}"
                if reply.status in _TOO_MUCH:
                    raise _TooMuchError(reason)
                if reply.status not in _SENT_AGAIN or "insufficient_quota" in reply.text:
                    raise self._error(f"refuses requests ({reason}); {self._advice(reply.status, address)}")
                pause = reply.pause
                if pause is not None and pause > LONGEST_RETRY_AFTER_SECONDS:
                    raise self._error(f"asks to come back in {pause:,.0f} s ({reason}); run the same command then")
            if number >= tries:
                raise self._error(
                    f"did not answer in {tries} tries (last: {reason}); check url, or run the same command again later"
                )
            backoff = min(FIRST_WAIT_SECONDS * 2 ** (number - 1), LONGEST_WAIT_SECONDS) * random.uniform(0.75, 1.25)
            level = logging.INFO if number == 1 else logging.WARNING
            log.log(level, "%s: %s; try %d in %.1f s", self.address, reason, number + 1, pause or backoff)
            if pause is None:
                await asyncio.sleep(backoff)
            else:
                self._requests.hold(pause)  # what one request was told holds for all
        return reply

    async def _sent(self, request: httpx.Request, most: int) -> Reply:
        """The whole answer to a request.

        Raises:
            httpx.RequestError: There is none.
            TimeoutError: It is not whole in time.
            TooLargeError: It has more than ``most`` bytes.
        """
        received = bytearray()
        async with asyncio.timeout(self.options.timeout_seconds):
            async with contextlib.aclosing(await self._http.send(request, stream=True)) as response:
                async for part in response.aiter_bytes():
                    received += part
                    if len(received) > most:
                        raise TooLargeError
        return Reply(response.status_code, response.headers, bytes(received))

    def _error(self, problem: str) -> WorkError:
        return WorkError(f"encoder {self._spec.name!r}: {self.address} {problem}. Stored embeddings are kept")

    def _shown(self, modality: Modality, item: str) -> str:
        """A caption or the word image, for a message."""
        return f"the caption {self._plain(item, 60)!r}" if modality == "caption" else "an image"

    def _advice(self, status: int, address: str) -> str:
        if status in (401, 403):
            variable = self.options.api_key_env
            return f"check the key in {variable}" if variable else "it needs a key: name its variable in api_key_env"
        if status == 404:
            return f"check url and checkpoint: {address} for the model {self._spec.checkpoint!r}"
        if 300 <= status < 400:
            return "it sends requests to another address: give that one as url"
        return "correct the encoder's table or the account of the service, then run the same command"

    def _plain(self, text: str, longest: int = _SHOWN) -> str:
        """A text of the service in one short line, without the key."""
        return shortened(" ".join((text.replace(self._key, "***") if self._key else text).split()), longest)


def _components(embedding: object) -> NDArray[np.float32]:
    """One vector from a list of numbers, or from the Base64 of little-endian float32."""
    if isinstance(embedding, str):
        return np.frombuffer(base64.b64decode(embedding, validate=True), dtype="<f4").astype(np.float32)
    return np.asarray(embedding, dtype=np.float32)


class Reply(NamedTuple):
    """What a service answered: status, headers and the whole body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The body, whatever its bytes."""
        return self.body.decode("utf-8", errors="replace")

    @property
    def pause(self) -> float | None:
        """The seconds after which it asks to come back: ``Retry-After``, its form in ms, or Google's ``RetryInfo``."""
        if found := _RETRY_INFO.search(self.text):
            return retry_after(found[1])
        in_ms = retry_after(self.headers.get("retry-after-ms"))
        return in_ms / 1000 if in_ms else retry_after(self.headers.get("Retry-After"))


class TooLargeError(Exception):
    """The answer is larger than it may be; the rest of it was not read."""


class Pace:
    """Spaces out events, so that no more of them begin than may; ``None`` per minute: no limit."""

    def __init__(self, per_minute: float | None) -> None:
        self._seconds = 60 / per_minute if per_minute else 0.0
        self._next = 0.0

    def turn(self, n: float = 1) -> float:
        """The seconds until the turn of ``n`` more events, which is taken."""
        now = time.monotonic()
        begin = max(now, self._next)
        self._next = begin + n * self._seconds
        return begin - now

    def hold(self, seconds: float, n: float = 0) -> None:
        """Let no event begin for so many seconds, and then count ``n``."""
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
