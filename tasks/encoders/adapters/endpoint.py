"""Models behind an HTTP API, of a provider or of one's own server: sending, pacing, retrying and checking requests.

In this order: the services (``FORMS``, one row for each form of request), the options of an endpoint, the probes that
represent its weights, the encoder, and the client. Requests are paced, and retried if that may help, all in one event
loop: there the time from the request to the last byte can be limited, and anything that waits can be ended. A blocking
client would wait forever for one byte a second.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import itertools
import logging
import math
import os
import random
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from typing import Any, Literal, NamedTuple, TypeAlias, cast
from urllib.parse import urlsplit

import httpx
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from capim.store.errors import RequestError, WorkError, noted, shortened
from capim.store.types import MODALITIES, Embeddings, EncoderSpec, Modality, Option
from capim.tasks.encoders.adapters.loaded_encoder import LoadedEncoder
from capim.tasks.encoders.encoder import Encoder, Inputs, Prepared, encode_captions, encode_images, service_of
from capim.tasks.encoders.tensors import unit_embeddings

log = logging.getLogger(__name__)
# the single loop of all endpoints, since a connection works only in the loop that opened it: started by the import of
# this file, which happens once, however many threads load a model
_LOOP = asyncio.new_event_loop()
threading.Thread(target=_LOOP.run_forever, name="endpoints", daemon=True).start()

TRIES = 8
FIRST_TRIES = 3  # until the service has responded once: the URL may be wrong
FIRST_WAIT_SECONDS = 1.0  # doubled with every try, and varied by half so that retries do not coincide
LONGEST_WAIT_SECONDS = 60.0
LONGEST_RETRY_AFTER_SECONDS = 600.0  # a longer wait means that the service is closed for the day
_SENT_AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_TOO_MUCH = frozenset({400, 413, 422})  # too many or too large inputs, or one that the service does not accept
_RETRY_INFO = re.compile(r'"retryDelay"\s*:\s*"([0-9.]+)s"')
_SHOWN = 300  # characters of a response in an error
_NUMBER_BYTES = 64  # most bytes of a component in a response: 25 are usual, indented
_ANSWER_BYTES = 16 * 2**20  # of a response in addition, so that vectors of another dim are read and reported

# an option with one of these prefixes is a parameter of the service, sent unchanged with every request for these items
BODY: Mapping[str, tuple[Modality, ...]] = {
    "body:": ("caption", "image"),
    "caption_body:": ("caption",),
    "image_body:": ("image",),
}
UNVERSIONED = "unversioned"  # revision of a model without one from the user
LOWEST_COSINE = 0.999  # of a probe in two runs; providers answer the same input with cosines above 0.9999
PROBE_CAPTIONS = (
    "a red bus",
    "A yellow tram passes an old church.",
    "Two dogs, one brown and one white, play with a yellow ball on the grass behind a wooden fence.",
    "Ein Mann liest am Fenster eine Zeitung, 1987.",
)
PROBE_IMAGE = "image: gradient with a dark square"

Rows: TypeAlias = "list[tuple[Any, Any]]"
"""Position of an input in its request, and its embedding."""


def data_url(png: str) -> str:
    """Return the ``data:`` URL of a PNG in Base64."""
    return f"data:image/png;base64,{png}"


def _texts(*texts: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text} for text in texts if text]


def _image_part(kind: str, value: object, prompt: str) -> list[dict[str, Any]]:
    """Return an image, and the text that is sent with it."""
    return [{"type": kind, kind: value}, *_texts(prompt)]


def _of_openai(answer: Any) -> Rows:
    rows = answer["data"]
    return [(row["index"] if len(rows) > 1 else 0, row["embedding"]) for row in rows]


def _usage(answer: Any) -> Any:
    usage = answer.get("usage") or {}
    return usage.get("prompt_tokens", usage.get("total_tokens"))


def _as_input(model: str, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {"model": model, **parameters, "input": list(inputs)}


@dataclass(frozen=True, kw_only=True)
class ServiceForm:
    """One form of request; the defaults are OpenAI's.

    Attributes:
        title: The services that accept it.
        source: URL of the document that describes it.
        path: Suffix of the option ``url``, with ``{model}`` in the place of the model's name.
        text: Function from a text to its form in a request.
        image: Function from the Base64 of an image's PNG, and a text that may be sent with it, to its form in a
            request; None: no images.
        body: Function from the name of the model, inputs and parameters of the service to the request.
        rows: Function from a response to its embeddings.
        tokens: Function from a response to the tokens that it counts; None if it counts none.
        together: True if a request may have several inputs.
        prompted: True if a text may be sent with an image.
        key: Name of the header for the key, and its value with ``{key}``.
    """

    title: str
    source: str
    path: str = "/embeddings"
    text: Callable[[str], Any] = str
    image: Callable[[str, str], Any] | None
    body: Callable[[str, Sequence[Any], Mapping[str, Any]], dict[str, Any]] = _as_input
    rows: Callable[[Any], Rows] = _of_openai
    tokens: Callable[[Any], Any] = _usage
    together: bool = True
    prompted: bool = False
    key: tuple[str, str] = ("Authorization", "Bearer {key}")


# a row follows the document that it names, or published code that uses the service: see docs/endpoint.md
FORMS: dict[str, ServiceForm] = {
    "input": ServiceForm(
        title="OpenAI, Jina, SGLang, TEI and others",
        source="https://platform.openai.com/docs/api-reference/embeddings; images: https://api.jina.ai/redoc",
        image=lambda png, _: {"image": png},
    ),
    "data_url": ServiceForm(
        title="Infinity",
        source="https://github.com/michaelfeil/infinity (OpenAIEmbeddingInput_Image)",
        image=lambda png, _: data_url(png),
    ),
    "messages": ServiceForm(
        title="vLLM",
        source="https://docs.vllm.ai (examples/pooling/embed/vision_embedding_online.py)",
        text=_texts,
        image=lambda png, prompt: _image_part("image_url", {"url": data_url(png)}, prompt),
        body=lambda model, inputs, parameters: {"model": model, **parameters, "messages": inputs[0]},
        together=False,
        prompted=True,
    ),
    "cohere": ServiceForm(
        title="Cohere, v2",
        source="https://docs.cohere.com/reference/embed",
        path="/embed",
        text=lambda text: {"content": _texts(text)},
        image=lambda png, prompt: {"content": _image_part("image_url", {"url": data_url(png)}, prompt)},
        body=lambda model, inputs, parameters: {
            "model": model, "embedding_types": ["float"], **parameters, "inputs": list(inputs)
        },
        rows=lambda answer: list(enumerate(answer["embeddings"]["float"])),
        tokens=lambda answer: answer.get("meta", {}).get("billed_units", {}).get("input_tokens"),
        prompted=True,
    ),
    "voyage": ServiceForm(
        title="Voyage, multimodal",
        source="https://docs.voyageai.com/reference/multimodal-embeddings-api",
        path="/multimodalembeddings",
        text=lambda text: {"content": _texts(text)},
        image=lambda png, prompt: {"content": _image_part("image_base64", data_url(png), prompt)},
        body=lambda model, inputs, parameters: {"model": model, **parameters, "inputs": list(inputs)},
        prompted=True,
    ),
    "gemini": ServiceForm(
        title="Gemini",
        source="https://ai.google.dev/gemini-api/docs/embeddings (batchEmbedContents)",
        path="/models/{model}:batchEmbedContents",
        text=lambda text: {"parts": [{"text": text}]},
        image=lambda png, prompt: {
            "parts": [{"inlineData": {"mimeType": "image/png", "data": png}}, *([{"text": prompt}] if prompt else [])]
        },
        body=lambda model, inputs, parameters: {
            "requests": [{"model": f"models/{model}", **parameters, "content": content} for content in inputs]
        },
        rows=lambda answer: [(place, one["values"]) for place, one in enumerate(answer["embeddings"])],
        tokens=lambda answer: (answer.get("usageMetadata") or {}).get("promptTokenCount"),
        prompted=True,
        key=("x-goog-api-key", "{key}"),
    ),
    "tei": ServiceForm(
        title="Text Embeddings Inference, with the prompts of the checkpoint",
        source="https://huggingface.github.io/text-embeddings-inference (POST /embed)",
        path="/embed",
        image=None,
        body=lambda _, inputs, parameters: {**parameters, "inputs": list(inputs)},
        rows=lambda answer: list(enumerate(answer)),
        tokens=lambda _: None,
    ),
}  # fmt: skip


class EndpointOptions(BaseModel):
    """The options of one endpoint.

    Attributes:
        url: URL without credentials; the path of the form is added unless the URL ends with it.
        image_form: Form of a request for images, a key of ``FORMS``; empty: the service takes no images.
        caption_form: Form of a request for captions.
        image_prompt: Text after every image, in a form that can hold one.
        image_system: Text of the system's turn before an image of form ``messages``.
        caption_system: Text of the system's turn before a caption of form ``messages``.
        last_turn: ``assistant``: an empty turn of the assistant ends every request of form ``messages``.
        api_key_env: The environment variable that holds the key; empty: no key is sent.
        concurrency: Number of simultaneous requests.
        inputs_per_request: Most inputs of one request of form ``input``.
        requests_per_minute: Most requests per minute, including retries.
        tokens_per_minute: Most tokens per minute, as counted by the responses so far.
        timeout_seconds: Longest time from sending a request to the last byte of its response.
    """

    model_config = ConfigDict(frozen=True, strict=True)

    url: str
    image_form: Literal["", "input", "data_url", "messages", "cohere", "voyage", "gemini"] = ""
    caption_form: Literal["input", "data_url", "messages", "cohere", "voyage", "gemini", "tei"] = "input"
    image_prompt: str = ""
    image_system: str = ""
    caption_system: str = ""
    last_turn: Literal["", "assistant"] = ""
    api_key_env: str = ""
    concurrency: int = Field(default=4, ge=1, le=64)
    inputs_per_request: int = Field(default=32, ge=1)
    requests_per_minute: float | None = Field(default=None, gt=0)
    tokens_per_minute: float | None = Field(default=None, gt=0)
    timeout_seconds: float = Field(default=120.0, gt=0)

    @field_validator("url")
    @classmethod
    def _address(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("expected a URL such as https://api.example.com/v1")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError("expected a URL without user, password or query: put the key into an environment variable "
                             'and name it, api_key_env = "EXAMPLE_API_KEY"')  # fmt: skip
        return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"

    def form(self, modality: Modality) -> ServiceForm:
        """Return the form of requests for captions, or for images if the service takes them."""
        return FORMS[self.caption_form if modality == "caption" else self.image_form]

    def address(self, modality: Modality, model: str) -> str:
        """Return the URL of requests for captions or images of a model."""
        path = self.form(modality).path.format(model=model)
        return self.url if self.url.endswith(path) else self.url + path

    def conversation(self, modality: Modality, content: object) -> list[dict[str, object]]:
        """Return the turns of a request of form ``messages``."""
        system = self.caption_system if modality == "caption" else self.image_system
        turns = [("system", [{"type": "text", "text": system}])] if system else []
        last = [("assistant", [{"type": "text", "text": ""}])] if self.last_turn else []
        return [{"role": role, "content": each} for role, each in [*turns, ("user", content), *last]]

    @property
    def host(self) -> str:
        """Host and port of the service."""
        return urlsplit(self.url).netloc

    def key(self, name: str) -> str | None:
        """Return the key from the environment; None if the service needs none.

        Raises:
            RequestError: If the variable is not set, or is not a possible key. The message does not show the value.
        """
        if not self.api_key_env:
            return None
        key = os.environ.get(self.api_key_env, "").strip()
        if not key:
            raise RequestError(
                f"encoder {name!r}: the environment variable {self.api_key_env} is not set; set it to the key of "
                f"{self.host} and run the same command again (export {self.api_key_env}=…)"
            )
        if not key.isascii() or not key.isprintable() or " " in key:
            raise RequestError(f"encoder {name!r}: {self.api_key_env} holds spaces or characters that no key has")
        return key


def endpoint_options(spec: EncoderSpec) -> EndpointOptions:
    """Return the options of a spec of adapter ``http``, without its template and the parameters of the service.

    Raises:
        RequestError: If options are missing or wrong; lists all of them, without the value of a URL.
    """
    try:
        return EndpointOptions.model_validate(
            {name: value for name, value in spec.options.items() if name in EndpointOptions.model_fields}
        )
    except ValidationError as error:
        faults = []
        for fault in error.errors():
            field = str(fault["loc"][0])
            if fault["type"] == "missing":
                faults.append(f'option {field!r} is missing: options = {{ {field} = "https://api.example.com/v1" }}')
                continue
            message = fault["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
            got = "" if field == "url" else f", got {fault['input']!r}"
            faults.append(f"option {field}: {message}{got}")
        raise RequestError([f"encoder {spec.name!r}: {fault}" for fault in faults]) from None


def service_parameters(spec: EncoderSpec, modality: Modality) -> dict[str, Option]:
    """Return the service's parameters for captions or images by name; those of one modality take precedence."""
    return {
        name.removeprefix(prefix): value
        for prefix, modalities in BODY.items()
        for name, value in spec.options.items()
        if name.startswith(prefix) and modality in modalities
    }


def resolve_endpoint(spec: EncoderSpec) -> EncoderSpec:
    """Return the spec of an endpoint with a fixed revision: the user's, or ``unversioned``. Sends no request.

    The vectors of the probes represent the weights; every run compares them with those of the first run.

    Raises:
        RequestError: If an option is missing or wrong, or if the spec requires features that an endpoint lacks.
    """
    faults: list[str] = []
    with noted(faults):
        faults += _of_another_form(spec)
    if spec.precision != "float32":
        faults.append(
            f"encoder {spec.name!r}: the service chooses the precision of its forward pass; leave precision out"
        )
    if spec.vectors != "single":
        faults.append(f"encoder {spec.name!r}: adapter http takes one vector per item; leave vectors out")
    if faults:
        raise RequestError(faults)
    return spec if spec.resolved else replace(spec, revision=UNVERSIONED)


def _of_another_form(spec: EncoderSpec) -> list[str]:
    """Return errors for options that the chosen forms would silently ignore."""
    options = endpoint_options(spec)
    caption, image = options.caption_form, options.image_form
    prompted = [name for name, form in FORMS.items() if form.prompted]
    needs: list[tuple[str, set[str], list[str]]] = [
        ("image_prompt", {image}, prompted),
        ("image_system", {image}, ["messages"]),
        ("caption_system", {caption}, ["messages"]),
        ("last_turn", {caption, image}, ["messages"]),
    ]
    return [
        f"encoder {spec.name!r}: option {name} needs {' or '.join(forms)} as the form of its requests"
        for name, used, forms in needs
        if getattr(options, name) and not used.intersection(forms)
    ]


def probe_vectors(encoder: Encoder, *, image: bool) -> dict[str, NDArray[np.float32]]:
    """Return probe -> its vector, shape ``(dim,)``; including the image probe if ``image``.

    The image of 96 x 64 pixels is computed, so that it is the same everywhere and always.

    Raises:
        WorkError: If a caption has another vector in a request with others than by itself.
    """
    vectors = dict(zip(PROBE_CAPTIONS, encode_captions(encoder, PROBE_CAPTIONS).values, strict=True))
    together, alone = vectors[PROBE_CAPTIONS[0]], encode_captions(encoder, PROBE_CAPTIONS[:1]).values[0]
    if (cosine := float(together @ alone)) < LOWEST_COSINE:
        raise WorkError(
            f"encoder {encoder.spec.name!r}: {cast('Any', service_of(encoder)).address} returned different "
            f"vectors for {PROBE_CAPTIONS[0]!r} by itself and in a batch of {len(PROBE_CAPTIONS)} captions (cosine "
            f"{cosine:.4f}, expected {LOWEST_COSINE} or more): its vectors depend on the batch; set "
            "inputs_per_request = 1, or fix the service"
        )
    if image:
        rows, columns = np.mgrid[0:64, 0:96]
        pixels = np.stack([columns * 255 // 95, rows * 255 // 63, (rows + columns) % 256], axis=2)
        pixels[20:44, 30:60] = (20, 30, 60)
        vectors[PROBE_IMAGE] = encode_images(encoder, [Image.fromarray(pixels.astype(np.uint8))]).values[0]
    return vectors


def load(spec: EncoderSpec, *, device: str, trust_remote_code: bool) -> EndpointEncoder:
    """Return the encoder of an endpoint; ``device`` has no effect, and nothing is sent yet.

    Raises:
        RequestError: If an option is wrong, or if the key is missing.
    """
    return EndpointEncoder(spec)


class EndpointEncoder(LoadedEncoder):
    """The model of a service; images are sent as PNG, which is lossless.

    The number of tokens of an item is known if it had a request of its own, else 0; the service counts all of them.
    None of the examined services reports truncation, so nothing counts as truncated.
    """

    def __init__(self, spec: EncoderSpec) -> None:
        self.service = EndpointClient(spec)
        # requests are limited by their number of captions, not by length
        super().__init__(spec, "cpu", modules=[], forwards={}, pixels=self._images, pads_to_longest=False)

    def _images(self, images: list[Image.Image]) -> Inputs:
        if not self.service.takes_images:
            forms = " or ".join(f'"{name}" ({form.title})' for name, form in FORMS.items() if form.image)
            raise RequestError(
                f"encoder {self.spec.name!r}: its table does not say how {self.service.address} takes images; add the "
                f"option image_form = {forms}, or encode only captions: capim embed --only captions"
            )
        return {"items": [_png(image) for image in images]}

    def embed(self, prepared: Prepared) -> Embeddings:
        """Return the service's vectors, normalised."""
        answers = self.service.answers(prepared.modality, cast("list[str]", prepared.inputs["items"]))
        counted = [a.tokens or 0 if len(a.vectors) == 1 else 0 for a in answers for _ in a.vectors]
        features = torch.from_numpy(np.concatenate([answer.vectors for answer in answers]))
        return unit_embeddings(features, replace(prepared, n_tokens=np.asarray(counted, dtype=np.int32)), self.spec)


def _png(image: Image.Image) -> str:
    """Return the Base64 of an image as PNG."""
    file = io.BytesIO()
    image.save(file, format="png", compress_level=1)  # a higher level takes long and saves little
    return base64.b64encode(file.getvalue()).decode("ascii")


class EndpointAnswer(NamedTuple):
    """Vectors of a response, shape ``(n, dim)``, and the tokens that the service counted; None if it counts none."""

    vectors: NDArray[np.float32]
    tokens: int | None


class _TooMuchError(Exception):
    """The service refuses these inputs together; the message is its reason."""


class EndpointClient:
    """Client that sends the inputs of one encoder to its service; used by one thread.

    Args:
        spec: A spec of adapter ``http``.

    Attributes:
        address: Host and port.
        takes_images: True if the service encodes images too.

    Raises:
        RequestError: If an option is wrong, or if the key is missing.
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
        self._under_way: Future[list[EndpointAnswer]] | None = None
        self.address = self.options.host
        self.takes_images = bool(self.options.image_form)

    def stop(self) -> None:
        """Let the requests in progress end with an error instead of waiting any longer; later ones are sent again."""
        if self._under_way is not None:
            self._under_way.cancel()

    def answers(self, modality: Modality, items: Sequence[str]) -> list[EndpointAnswer]:
        """Return the responses to captions, or to images in Base64, in order; if one fails, the others are cancelled.

        Several inputs share a request, if the form allows it.
        """
        size = self._together if self.options.form(modality).together else 1
        parts = [items[start : start + size] for start in range(0, len(items), size)]
        self._under_way = asyncio.run_coroutine_threadsafe(self._all(modality, parts), _LOOP)
        try:
            return self._under_way.result()
        except CancelledError:
            raise self._error("was interrupted before it responded") from None
        finally:
            self.stop()  # if this thread was interrupted

    async def _all(self, modality: Modality, parts: Sequence[Sequence[str]]) -> list[EndpointAnswer]:
        sent = [asyncio.ensure_future(self._halving(modality, part)) for part in parts]
        try:
            return [answer for answers in await asyncio.gather(*sent) for answer in answers]
        finally:
            for each in sent:
                each.cancel()

    async def _halving(self, modality: Modality, inputs: Sequence[str]) -> list[EndpointAnswer]:
        """Return the responses to inputs; those that the service refuses together are sent in halves, now and later.

        A refusal need not say whether there were too many inputs or one was wrong: the halves show it.
        """
        try:
            async with self._free:
                return [await self._response_to(modality, inputs)]
        except _TooMuchError as refusal:
            if len(inputs) == 1:
                shown, check = self._shown(modality, inputs[0]), f"`capim check {self._spec.name}`"
                raise self._error(f"refuses {shown} ({refusal}); {check} shows what it takes") from None
            half = len(inputs) // 2
            self._together = min(self._together, half)
            log.info("%s refuses %d inputs in one request: %s", self.address, len(inputs), refusal)
        return [each for part in (inputs[:half], inputs[half:]) for each in await self._halving(modality, part)]

    def _body(self, modality: Modality, inputs: Sequence[str]) -> dict[str, Any]:
        """Return the request for some captions, or for images in Base64."""
        form = self.options.form(modality)
        write = cast("Any", form.text if modality == "caption" else form.image)
        prompt = () if modality == "caption" else (self.options.image_prompt,)
        contents = [write(item, *prompt) for item in inputs]
        if not form.together:
            contents = [self.options.conversation(modality, content) for content in contents]
        return form.body(self._spec.checkpoint, contents, self._parameters[modality])

    async def _response_to(self, modality: Modality, inputs: Sequence[str]) -> EndpointAnswer:
        """Return the checked response to one request with these inputs."""
        n, form = len(inputs), self.options.form(modality)
        reply = await self._reply(modality, self._body(modality, inputs), n)
        try:
            answer = reply.json()
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
        return EndpointAnswer(vectors=matrix, tokens=tokens)

    async def _reply(self, modality: Modality, body: dict[str, Any], n: int) -> httpx.Response:
        """Return the response to ``n`` inputs with status 200; retry later if the service is busy or silent."""
        most = _ANSWER_BYTES + n * self._spec.dim * _NUMBER_BYTES
        address = self.options.address(modality, self._spec.checkpoint)
        header, value = self.options.form(modality).key
        headers = {header: value.format(key=self._key)} if self._key else {}
        for number in itertools.count(1):
            await self._tokens.turn(0)
            await self._requests.turn()
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
                    reason = f"incomplete response after timeout_seconds = {self.options.timeout_seconds:g}"
                tries = TRIES if self._reached else FIRST_TRIES
            else:
                self._reached = True
                if reply.status_code == httpx.codes.OK:
                    break
                reason = f"{reply.status_code}: {self._plain(reply.text)}"
                if reply.status_code in _TOO_MUCH:
                    raise _TooMuchError(reason)
                if reply.status_code not in _SENT_AGAIN or "insufficient_quota" in reply.text:
                    raise self._error(f"refuses requests ({reason}); {self._advice(reply.status_code, address)}")
                pause = pause_of(reply)
                if pause is not None and pause > LONGEST_RETRY_AFTER_SECONDS:
                    raise self._error(f"asked to retry after {pause:,.0f} s ({reason}); run the same command then")
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
                self._requests.hold(pause)  # a wait for one request applies to all
        return reply

    async def _sent(self, request: httpx.Request, most: int) -> httpx.Response:
        """Return the complete response to a request.

        Raises:
            httpx.RequestError: If there is none.
            TimeoutError: If it is not complete in time.
            TooLargeError: If it has more than ``most`` bytes.
        """
        received = bytearray()
        async with asyncio.timeout(self.options.timeout_seconds):
            async with contextlib.aclosing(await self._http.send(request, stream=True)) as response:
                async for part in response.aiter_bytes():
                    received += part
                    if len(received) > most:
                        raise TooLargeError
        response.headers.pop("Content-Encoding", None)  # undone by aiter_bytes
        return httpx.Response(response.status_code, headers=response.headers, content=bytes(received))

    def _error(self, problem: str) -> WorkError:
        return WorkError(f"encoder {self._spec.name!r}: {self.address} {problem}. Stored embeddings are kept")

    def _shown(self, modality: Modality, item: str) -> str:
        """Return a caption, or the words "an image", for a message."""
        return f"the caption {self._plain(item, 60)!r}" if modality == "caption" else "an image"

    def _advice(self, status: int, address: str) -> str:
        if status in (401, 403):
            variable = self.options.api_key_env
            return f"check the key in {variable}" if variable else "it needs a key: name its variable in api_key_env"
        if status == 404:
            return f"check url and checkpoint: {address} for the model {self._spec.checkpoint!r}"
        if 300 <= status < 400:
            return "it redirects to another URL: set url to that one"
        return "correct the encoder's table or the account of the service, then run the same command"

    def _plain(self, text: str, longest: int = _SHOWN) -> str:
        """Return a text of the service as one short line, without the key."""
        return shortened(" ".join((text.replace(self._key, "***") if self._key else text).split()), longest)


def _components(embedding: object) -> NDArray[np.float32]:
    """Return one vector from a list of numbers, or from the Base64 of little-endian float32."""
    if isinstance(embedding, str):
        return np.frombuffer(base64.b64decode(embedding, validate=True), dtype="<f4").astype(np.float32)
    return np.asarray(embedding, dtype=np.float32)


def pause_of(reply: httpx.Response) -> float | None:
    """Return the seconds to wait before a retry: ``Retry-After``, its form in ms, or Google's ``RetryInfo``."""
    info, in_ms = _RETRY_INFO.search(reply.text), retry_after(reply.headers.get("retry-after-ms"))
    waits = info and retry_after(info[1]), in_ms and in_ms / 1000, retry_after(reply.headers.get("Retry-After"))
    return next((seconds for seconds in waits if seconds), None)


class TooLargeError(Exception):
    """The response is larger than allowed; the rest of it was not read."""


class Pace:
    """Spaces out events of one event loop, so that they stay within a rate; ``None`` per minute: no limit."""

    def __init__(self, per_minute: float | None) -> None:
        self._seconds = 60 / per_minute if per_minute else 0.0
        self._next = 0.0

    async def turn(self, n: float = 1) -> None:
        """Wait for a turn for ``n`` more events; a :meth:`hold` in the meantime applies to those that wait, too."""
        while (seconds := self._next - time.monotonic()) > 0:
            await asyncio.sleep(seconds)
        self._next = time.monotonic() + n * self._seconds

    def hold(self, seconds: float, n: float = 0) -> None:
        """Let no event begin for so many seconds, and then count ``n``."""
        self._next = max(self._next, time.monotonic() + seconds) + n * self._seconds


def retry_after(value: str | None) -> float | None:
    """Return the seconds to wait from a header ``Retry-After``: a number, or a date (RFC 9110, 10.2.3).

    None if it has no positive wait: no value, a value without meaning, zero, or a time that has passed.

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
