"""How services take texts and images and answer with vectors: one row for each form of request, with its source.

A row follows the document that it names, or published code that uses the service (``docs/endpoint.md`` says which), and
``tests/encoders/service_doubles.py`` has a double of the service. What differs between queries and documents is a
parameter of the service, which the options ``caption_body:NAME`` and ``image_body:NAME`` of an encoder hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Rows: TypeAlias = "list[tuple[Any, Any]]"
"""Place of an input in its request, and its embedding."""


@dataclass(frozen=True, kw_only=True)
class ServiceForm:
    """One form of request.

    Attributes:
        title: The services that take it.
        source: Address of the document that describes it.
        path: What is added to the address of the option ``url``, with ``{model}`` in the place of the model's name.
        text: A text as it is sent; None: not described.
        image: An image as it is sent, from the Base64 of its PNG and a text that may be sent with it; None: none.
        body: The request, from the name of the model, inputs and parameters of the service.
        rows: The embeddings of an answer.
        tokens: The tokens that an answer counts; None if it counts none.
        together: Takes several inputs in a request.
        prompted: A text may be sent with an image.
        key: Name of the header for the key, and its value with ``{key}``.
    """

    title: str
    source: str
    path: str = "/embeddings"
    text: Callable[[str], Any] | None
    image: Callable[[str, str], Any] | None
    body: Callable[[str, Sequence[Any], Mapping[str, Any]], dict[str, Any]]
    rows: Callable[[Any], Rows]
    tokens: Callable[[Any], Any]
    together: bool = True
    prompted: bool = False
    key: tuple[str, str] = ("Authorization", "Bearer {key}")


def data_url(png: str) -> str:
    """The ``data:`` URL of a PNG in Base64."""
    return f"data:image/png;base64,{png}"


def _texts(*texts: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text} for text in texts if text]


def _image_part(kind: str, value: object, prompt: str) -> list[dict[str, Any]]:
    """An image, and the text that is sent with it."""
    return [{"type": kind, kind: value}, *_texts(prompt)]


def _of_openai(answer: Any) -> Rows:
    rows = answer["data"]
    return [(row["index"] if len(rows) > 1 else 0, row["embedding"]) for row in rows]


def _usage(answer: Any) -> Any:
    usage = answer.get("usage") or {}
    return usage.get("prompt_tokens", usage.get("total_tokens"))


def _as_input(model: str, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {"model": model, **parameters, "input": list(inputs)}


FORMS: dict[str, ServiceForm] = {
    "input": ServiceForm(
        title="OpenAI, Jina, SGLang, TEI and others",
        source="https://platform.openai.com/docs/api-reference/embeddings; images: https://api.jina.ai/redoc",
        text=str,
        image=lambda png, _: {"image": png},
        body=_as_input,
        rows=_of_openai,
        tokens=_usage,
    ),
    "data_url": ServiceForm(
        title="Infinity",
        source="https://github.com/michaelfeil/infinity (OpenAIEmbeddingInput_Image)",
        text=str,
        image=lambda png, _: data_url(png),
        body=_as_input,
        rows=_of_openai,
        tokens=_usage,
    ),
    "messages": ServiceForm(
        title="vLLM",
        source="https://docs.vllm.ai (examples/pooling/embed/vision_embedding_online.py)",
        text=_texts,
        image=lambda png, prompt: _image_part("image_url", {"url": data_url(png)}, prompt),
        body=lambda model, inputs, parameters: {"model": model, **parameters, "messages": inputs[0]},
        rows=_of_openai,
        tokens=_usage,
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
        rows=_of_openai,
        tokens=lambda answer: (answer.get("usage") or {}).get("total_tokens"),
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
        text=str,
        image=None,
        body=lambda _, inputs, parameters: {**parameters, "inputs": list(inputs)},
        rows=lambda answer: list(enumerate(answer)),
        tokens=lambda _: None,
    ),
}  # fmt: skip
