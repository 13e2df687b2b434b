"""A model behind an HTTP address: an OpenAI-style ``POST /v1/embeddings``, of a provider or of one's own server.

What was verified, and where: texts as the list ``input`` (OpenAI's reference); images and texts as chat ``messages``
(vLLM, ``examples/pooling/embed/vision_embedding_online.py``); images as ``{"image": BASE64}`` in ``input`` (Jina's API,
SGLang). Other forms are not guessed. One vector per item: the form of vLLM's token vectors was not verified.
"""

from __future__ import annotations

import base64
import io
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from capim.store.errors import RequestError
from capim.store.types import Embeddings, EncoderSpec
from capim.tasks.encoders.adapters.loaded_encoder import LoadedEncoder
from capim.tasks.encoders.encoder import Inputs, Prepared
from capim.tasks.encoders.endpoints.client import Answer, EndpointClient
from capim.tasks.encoders.tensors import dense_embeddings


class EndpointEncoder(LoadedEncoder):
    """The model of a service; images are sent as PNG, so that nothing is lost on the way.

    The number of tokens of an item is known where it had a request of its own, else 0; the service counts all of
    them. No service that was looked at says what it truncates, so nothing counts as truncated.
    """

    pads_to_longest = False  # requests have a number of captions, whatever their length

    def __init__(self, spec: EncoderSpec) -> None:
        super().__init__(spec, "cpu", modules=[], forwards={})
        self.service = EndpointClient(spec)
        self._options = self.service.options

    def pixels(self, images: list[Image.Image]) -> Inputs:
        """The images as the service takes them."""
        if not self._options.image_form:
            raise RequestError(
                f"encoder {self.spec.name!r}: its table does not say how {self.service.address} takes images; add the "
                'option image_form = "messages" (vLLM) or "input" (Jina, SGLang), or encode captions alone: '
                "capim embed --only captions"
            )
        return {"items": [_png(image) for image in images]}

    def tokens(self, texts: list[str]) -> tuple[Inputs, NDArray[np.integer], NDArray[np.bool_]]:
        """The captions themselves."""
        return {"items": texts}, np.zeros(len(texts), dtype=np.int32), np.zeros(len(texts), dtype=np.bool_)

    def embed(self, prepared: Prepared) -> Embeddings:
        """The service's vectors, normalised."""
        answers = self._answers(prepared)
        counted = [a.tokens or 0 if len(a.vectors) == 1 else 0 for a in answers for _ in a.vectors]
        features = torch.from_numpy(np.concatenate([answer.vectors for answer in answers]))
        return dense_embeddings(features, replace(prepared, n_tokens=np.asarray(counted, dtype=np.int32)), self.spec)

    def _answers(self, prepared: Prepared) -> list[Answer]:
        items = cast("list[Any]", prepared.inputs["items"])
        if prepared.modality == "caption":
            if self._options.caption_form == "input":
                return self.service.texts_or_images("caption", items)
            return self.service.conversations("caption", [[{"type": "text", "text": text}] for text in items])
        if self._options.image_form == "input":
            return self.service.texts_or_images("image", [{"image": image} for image in items])
        prompt = self._options.image_prompt
        after: list[dict[str, object]] = [{"type": "text", "text": prompt}] if prompt else []
        urls = [{"url": f"data:image/png;base64,{image}"} for image in items]
        return self.service.conversations("image", [[{"type": "image_url", "image_url": url}, *after] for url in urls])


def _png(image: Image.Image) -> str:
    """The Base64 of an image as PNG."""
    file = io.BytesIO()
    image.save(file, format="png", compress_level=1)  # more takes long and saves little
    return base64.b64encode(file.getvalue()).decode("ascii")


def load(spec: EncoderSpec, *, device: str, trust_remote_code: bool) -> EndpointEncoder:
    """The encoder of an endpoint; ``device`` has no effect, and nothing is sent yet.

    Raises:
        RequestError: An option is wrong, or the key is missing.
    """
    return EndpointEncoder(spec)
