"""What stands for a model behind an address: its options, the revision that the user gives, and probes.

An endpoint's weights cannot be hashed, and the name of a model does not change with them. So the first run keeps the
vectors of four captions and one computed image, and every later one encodes these probes again before it encodes
anything else. What sends requests is :mod:`tasks.encoders.adapters.endpoint`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, cast
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from capim.store.errors import RequestError, WorkError, noted
from capim.store.types import EncoderSpec, Modality, Option
from capim.tasks.encoders.encoder import Encoder, encode_captions, encode_images, service_of
from capim.tasks.encoders.service_forms import FORMS, ServiceForm

# an option with one of these prefixes is a parameter of the service, sent as it is with every request for these items
BODY: Mapping[str, tuple[Modality, ...]] = {
    "body:": ("caption", "image"),
    "caption_body:": ("caption",),
    "image_body:": ("image",),
}
UNVERSIONED = "unversioned"  # revision of a model to which the user gave none
LOWEST_COSINE = 0.999  # of a probe in two runs; providers answer the same input with cosines above 0.9999
PROBE_CAPTIONS = (
    "a red bus",
    "A yellow tram passes an old church.",
    "Two dogs, one brown and one white, play with a yellow ball on the grass behind a wooden fence.",
    "Ein Mann liest am Fenster eine Zeitung, 1987.",
)
PROBE_IMAGE = "image: gradient with a dark square"


class EndpointOptions(BaseModel):
    """The options of one endpoint.

    Attributes:
        url: Address without credentials; the path of the form is added where it does not end so.
        image_form: How an image is sent, a key of ``FORMS``; empty: the service takes no images.
        caption_form: How a caption is sent.
        image_prompt: Text after every image, in a form that can hold one.
        image_system: Text of the system's turn before an image of form ``messages``.
        caption_system: Text of the system's turn before a caption of form ``messages``.
        last_turn: ``assistant``: an empty turn of the assistant ends every request of form ``messages``.
        api_key_env: The environment variable that holds the key; empty: no key is sent.
        concurrency: Requests at the same time.
        inputs_per_request: Most inputs of one request of form ``input``.
        requests_per_minute: Most requests per minute, those that are tried again included.
        tokens_per_minute: Most tokens per minute, as counted by the answers so far.
        price_per_million_tokens: In any currency.
        timeout_seconds: Longest time from sending a request to the last byte of its answer.
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
    price_per_million_tokens: float | None = Field(default=None, ge=0)
    timeout_seconds: float = Field(default=120.0, gt=0)

    @field_validator("url")
    @classmethod
    def _address(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("expected an address as https://api.example.com/v1")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError("expected an address without user, password or query: put the key into a variable of the "
                             'environment and name it, api_key_env = "EXAMPLE_API_KEY"')  # fmt: skip
        return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"

    def form(self, modality: Modality) -> ServiceForm | None:
        """How captions or images are sent; None: not at all."""
        return FORMS.get(self.caption_form if modality == "caption" else self.image_form)

    def address(self, modality: Modality, model: str) -> str:
        """Where requests for captions or images of a model go."""
        form = self.form(modality)
        path = form.path.format(model=model) if form else ""
        return self.url if self.url.endswith(path) else self.url + path

    def conversation(self, modality: Modality, content: object) -> list[dict[str, object]]:
        """The turns of a request of form ``messages``."""
        system = self.caption_system if modality == "caption" else self.image_system
        turns = [("system", [{"type": "text", "text": system}])] if system else []
        last = [("assistant", [{"type": "text", "text": ""}])] if self.last_turn else []
        return [{"role": role, "content": each} for role, each in [*turns, ("user", content), *last]]

    @property
    def host(self) -> str:
        """Host and port of the service."""
        return urlsplit(self.url).netloc

    def key(self, name: str) -> str | None:
        """The key from the environment; None if the service needs none.

        Raises:
            RequestError: The variable is not set, or holds what cannot be a key. The message does not show the value.
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
    """The options of a spec of adapter ``http``, without its template and the parameters of the service.

    Raises:
        RequestError: Lists every option that is missing or wrong, without the value of an address.
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
    """The parameters of the service for captions or images by name; those of one modality win."""
    return {
        name.removeprefix(prefix): value
        for prefix, modalities in BODY.items()
        for name, value in spec.options.items()
        if name.startswith(prefix) and modality in modalities
    }


def resolve_endpoint(spec: EncoderSpec) -> EncoderSpec:
    """The spec of an endpoint with its revision fixed: what the user gave, or ``unversioned``. Sends no request.

    What stands for the weights are the vectors of the probes, which every run compares with those of the first.

    Raises:
        RequestError: An option is missing or wrong, or the spec asks for what an endpoint does not have.
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
    """Options that the chosen forms would leave out in silence."""
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
    """Probe -> its vector, shape ``(dim,)``; that of the image where it is wanted.

    The image of 96 x 64 pixels is computed, so that it is the same everywhere and for ever.

    Raises:
        WorkError: A caption has another vector in a request with others than alone.
    """
    vectors = dict(zip(PROBE_CAPTIONS, encode_captions(encoder, PROBE_CAPTIONS).values, strict=True))
    together, alone = vectors[PROBE_CAPTIONS[0]], encode_captions(encoder, PROBE_CAPTIONS[:1]).values[0]
    if (cosine := float(together @ alone)) < LOWEST_COSINE:
        raise WorkError(
            f"encoder {encoder.spec.name!r}: {cast('Any', service_of(encoder)).address} gives {PROBE_CAPTIONS[0]!r} "
            f"alone another vector than among {len(PROBE_CAPTIONS)} captions (cosine {cosine:.4f}, expected "
            f"{LOWEST_COSINE} or more): its vectors depend on the batch; set inputs_per_request = 1, or mend it"
        )
    if image:
        from PIL import Image

        rows, columns = np.mgrid[0:64, 0:96]
        pixels = np.stack([columns * 255 // 95, rows * 255 // 63, (rows + columns) % 256], axis=2)
        pixels[20:44, 30:60] = (20, 30, 60)
        vectors[PROBE_IMAGE] = encode_images(encoder, [Image.fromarray(pixels.astype(np.uint8))]).values[0]
    return vectors
