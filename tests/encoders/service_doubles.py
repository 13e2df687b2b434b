"""Doubles of services, each as strict as the document that describes it: an unknown or missing parameter is refused.

A double reads the items of a request and the role in which they are to be encoded, which moves their vectors, as the
prompt of a role moves those of a real model; and it writes vectors in the form of the service's answers.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from typing import Any, NamedTuple

from PIL import Image

Row = list[float]


class Asked(NamedTuple):
    """The items of a request, the role of them all, and a text that came with an image."""

    items: list[object]
    role: str
    prompt: str = ""


class ServiceDouble(NamedTuple):
    """One service.

    Attributes:
        path: Where it listens, below the address of the stub.
        read: The items and role of a request; raises KeyError or ValueError for any other request.
        write: The answer that holds these vectors.
        roles: Of captions and of images, as its document calls them, in a right request.
        key: The header that holds the key, and how.
    """

    path: str
    read: Callable[[dict[str, Any]], Asked]
    write: Callable[[list[Row]], Any]
    roles: tuple[str, str] = ("", "")
    key: tuple[str, str] = ("Authorization", "Bearer {}")


def only(given: dict[str, Any], *, needed: set[str], known: set[str] = frozenset()) -> None:  # type: ignore[assignment]
    """Raise ValueError unless a request has what it must have, and nothing unknown."""
    if missing := needed - given.keys():
        raise ValueError(f"missing {sorted(missing)}")
    if unknown := given.keys() - needed - known:
        raise ValueError(f"unknown {sorted(unknown)}")


def one_of(value: object, *known: str) -> str:
    if value not in known:
        raise ValueError(f"{value!r} is not one of {known}")
    return str(value)


def image_of(text: str, *, prefix: str = "") -> Image.Image:
    if not text.startswith(prefix):
        raise ValueError(f"expected {prefix}…, got {text[:20]}")
    return Image.open(io.BytesIO(base64.b64decode(text.removeprefix(prefix), validate=True)))


PNG = "data:image/png;base64,"


def openai_rows(rows: list[Row], **usage: int) -> dict[str, Any]:
    data = [{"object": "embedding", "index": place, "embedding": row} for place, row in enumerate(rows)]
    return {"object": "list", "data": data, "model": "m", "usage": usage}


def read_openai(body: dict[str, Any]) -> Asked:
    only(body, needed={"model", "input"}, known={"dimensions", "encoding_format", "user"})
    return Asked([str(text) for text in body["input"]], "")


def read_jina(body: dict[str, Any]) -> Asked:
    only(body, needed={"model", "input"}, known={"task", "dimensions", "embedding_type", "truncate", "late_chunking"})
    role = one_of(body.get("task", ""), "", "retrieval.query", "retrieval.passage", "text-matching")
    return Asked([one if isinstance(one, str) else image_of(one["image"]) for one in body["input"]], role)


def read_infinity(body: dict[str, Any]) -> Asked:
    only(body, needed={"model", "input"}, known={"modality", "encoding_format", "dimensions", "user"})
    modality = one_of(body.get("modality", "text"), "text", "image", "audio")
    return Asked([one if modality == "text" else image_of(one, prefix=PNG) for one in body["input"]], modality)


def read_tei(body: dict[str, Any]) -> Asked:
    only(body, needed={"inputs"}, known={"prompt_name", "normalize", "truncate", "truncation_direction", "dimensions"})
    return Asked([str(text) for text in body["inputs"]], one_of(body.get("prompt_name", ""), "", "query", "document"))


def read_vllm(body: dict[str, Any]) -> Asked:
    known = {"encoding_format", "dimensions", "add_generation_prompt", "continue_final_message", "add_special_tokens"}
    only(body, needed={"model", "messages"}, known=known)
    *before, last = body["messages"]
    if last["role"] == "assistant":
        if not body.get("continue_final_message") or last["content"] != [{"type": "text", "text": ""}]:
            raise ValueError("the turn of the assistant is not to be continued")
        *before, last = before
    [system] = [turn["content"][0]["text"] for turn in before if turn["role"] == "system"] or [""]
    first, *others = last["content"]
    item = first["text"] if first["type"] == "text" else image_of(first["image_url"]["url"], prefix=PNG)
    return Asked([item], system, " ".join(other["text"] for other in others))


def _contents(body: dict[str, Any], role: str, url_of: Callable[[dict[str, Any]], str]) -> Asked:
    """The items of a request, each a text, or an image that may have texts beside it."""
    items, prompts = list[object](), []
    for one in body["inputs"]:
        text = " ".join(part["text"] for part in one["content"] if part["type"] == "text")
        images = [image_of(url_of(part), prefix=PNG) for part in one["content"] if part["type"] != "text"]
        if len(images) > 1:
            raise ValueError(f"{len(images)} images of one item")
        items.append(images[0] if images else text)
        prompts.append(text if images else "")
    return Asked(items, role, prompts[0])


def read_cohere(body: dict[str, Any]) -> Asked:
    known = {"output_dimension", "max_tokens", "truncate", "texts", "images"}
    only(body, needed={"model", "input_type", "embedding_types", "inputs"}, known=known)
    if body["embedding_types"] != ["float"] or len(body["inputs"]) > 96:
        raise ValueError("at most 96 inputs, of float")
    role = one_of(body["input_type"], "search_query", "search_document", "classification", "clustering", "image")
    return _contents(body, role, lambda part: part["image_url"]["url"])


def read_voyage(body: dict[str, Any]) -> Asked:
    known = {"input_type", "truncation", "output_encoding", "output_dimension"}
    only(body, needed={"model", "inputs"}, known=known)
    role = one_of(body.get("input_type") or "", "", "query", "document")
    return _contents(body, role, lambda part: part["image_base64"])


def read_gemini(body: dict[str, Any]) -> Asked:
    only(body, needed={"requests"})
    items: list[object] = []
    roles, prompts = set(), set()
    for request in body["requests"]:
        known = {"taskType", "title", "outputDimensionality"}
        only(request, needed={"model", "content"}, known=known)
        one_of(request["model"], "models/gemini-embedding-2")
        kinds = [[*part] for part in request["content"]["parts"]]
        images = [part["inlineData"] for part in request["content"]["parts"] if "inlineData" in part]
        texts = [part["text"] for part in request["content"]["parts"] if "text" in part]
        if len(images) + len(texts) != len(kinds):
            raise ValueError(f"parts {kinds}")
        for image in images:
            one_of(image["mimeType"], "image/png", "image/jpeg")
        items.append(image_of(images[0]["data"]) if images else texts[0])
        prompts.add("" if not images else " ".join(texts))
        roles.add("query" if not images and texts[0].startswith("task: search result | query: ") else "")
    return Asked(items, roles.pop(), prompts.pop())


def with_usage(**usage: int) -> Callable[[list[Row]], Any]:
    return lambda rows: openai_rows(rows, **usage)


def write_cohere(rows: list[Row]) -> Any:
    meta = {"api_version": {"version": "2"}, "billed_units": {"input_tokens": 7}}
    return {"id": "x", "embeddings": {"float": rows}, "meta": meta}


_FIND, _REPRESENT = "Retrieve images or text relevant to the user's query.", "Represent the user's input."
_GEMINI = "/v1beta/models/gemini-embedding-2:batchEmbedContents"
_VOYAGE = with_usage(text_tokens=5, image_pixels=0, total_tokens=7)
DOUBLES: dict[str, ServiceDouble] = {
    "openai": ServiceDouble("/v1/embeddings", read_openai, with_usage(prompt_tokens=7)),
    "jina": ServiceDouble(
        "/v1/embeddings", read_jina, with_usage(total_tokens=7), ("retrieval.query", "retrieval.passage")
    ),
    "infinity": ServiceDouble(
        "/embeddings", read_infinity, with_usage(prompt_tokens=7, total_tokens=7), ("text", "image")
    ),
    "tei": ServiceDouble("/embed", read_tei, lambda rows: rows, ("query", "")),
    "vllm": ServiceDouble("/v1/embeddings", read_vllm, with_usage(prompt_tokens=7), (_FIND, _REPRESENT)),
    "cohere": ServiceDouble("/v2/embed", read_cohere, write_cohere, ("search_query", "search_document")),
    "voyage": ServiceDouble("/v1/multimodalembeddings", read_voyage, _VOYAGE, ("query", "document")),
    "gemini": ServiceDouble(
        _GEMINI,
        read_gemini,
        lambda rows: {"embeddings": [{"values": row} for row in rows]},
        ("query", ""),
        key=("x-goog-api-key", "{}"),
    ),
}
"""By the name of the recipe in docs/endpoint.md."""
