"""A loopback service with ``POST /v1/embeddings``: a model of letters and pixels, and the troubles of real services."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
from PIL import Image

from capim.store.types import EncoderSpec
from capim.tasks.encoders import entry_from
from tests.encoders.service_doubles import ServiceDouble

DIM = 8
Trouble = Callable[[BaseHTTPRequestHandler, dict[str, Any]], bool]
"""Answers a request in place of the model; False: it leaves the request to the model."""


@dataclass(kw_only=True)
class Stub:
    """A running service and what it was asked.

    Attributes:
        url: Its address, to be given as option ``url``.
        troubles: Of the next requests, one each.
        changed: How far the weights have moved; 0: as they were.
        most: Inputs of one request that it takes.
        seconds: Time that it takes for a request.
        key: The key that it wants; empty: none.
        double: The service that it stands for; None: OpenAI's form, and those of vLLM and Jina, in any mixture.
    """

    url: str = ""
    troubles: list[Trouble] = field(default_factory=list)
    changed: float = 0.0
    most: int = 1000
    seconds: float = 0.0
    key: str = ""
    shuffled: bool = False
    double: ServiceDouble | None = None
    bodies: list[dict[str, Any]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def inputs(self) -> list[str]:
        """All captions and images that were answered or refused, probes included."""
        return [name_of(one) for body in self.bodies for one in items_of(body)]

    def vector(self, item: object) -> list[float]:
        """The vector of a caption or an image, not of unit norm."""
        if isinstance(item, str):
            values = np.asarray([item.lower().count(letter) + 1.0 for letter in "aeionrst"])
        else:
            assert isinstance(item, Image.Image)
            values = np.asarray(item.convert("L").resize((4, 2)), dtype=np.float64).reshape(-1) / 64 + 1.0
        return (values + self.changed * np.arange(DIM)).tolist()

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request, in OpenAI's form."""
        items = items_of(body)
        rows = [{"object": "embedding", "index": i, "embedding": self.vector(one)} for i, one in enumerate(items)]
        if body.get("encoding_format") == "base64":
            for row in rows:
                row["embedding"] = base64.b64encode(np.asarray(row["embedding"], dtype="<f4").tobytes()).decode()
        if self.shuffled:
            np.random.default_rng(len(rows)).shuffle(rows)  # type: ignore[arg-type]
        tokens = sum(len(one.split()) + 2 if isinstance(one, str) else 50 for one in items)
        return {"object": "list", "data": rows, "model": body["model"], "usage": {"prompt_tokens": tokens}}

    def reply(self, path: str, body: dict[str, Any]) -> tuple[object, int]:
        """The answer to a request, and its status."""
        double = self.double
        if double is None:
            return ({"error": "too many inputs"}, 413) if len(items_of(body)) > self.most else (self.answer(body), 200)
        if path != double.path:
            return {"error": f"no such address {path}"}, 400
        try:
            asked = double.read(body)
        except (KeyError, ValueError, TypeError) as fault:
            return {"error": repr(fault)}, 400
        return double.write([self.in_role(item, asked.role, asked.prompt) for item in asked.items]), 200

    def in_role(self, item: object, role: str, prompt: str = "") -> list[float]:
        """The vector of an item as a model with prompts for its roles gives it."""
        return (np.asarray(self.vector(item)) + np.asarray(self.vector(role + prompt)) / 4).tolist()  # type: ignore[no-any-return]


def spec_of(stub: Stub, *, revision: str = "main", **options: object) -> EncoderSpec:
    """The spec of an encoder ``far`` whose model is the stub's."""
    row = {"adapter": "http", "checkpoint": "org/model", "dim": DIM, "revision": revision}
    return entry_from("far", {**row, "options": {"url": stub.url, **options}}).spec


def items_of(body: dict[str, Any]) -> list[object]:
    """The captions and images of a request of any form."""
    if "messages" not in body:
        return [_image(one["image"]) if isinstance(one, dict) else one for one in body["input"]]
    [message] = body["messages"]
    first = message["content"][0]
    return [first["text"] if first["type"] == "text" else _image(first["image_url"]["url"].partition(",")[2])]


def name_of(item: object) -> str:
    return item if isinstance(item, str) else f"image {hash(item.tobytes())}"  # type: ignore[attr-defined]


def _image(text: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(text)))


def status(code: int, message: str = "busy", **headers: str) -> Trouble:
    """An answer with this status."""

    def answer(handler: BaseHTTPRequestHandler, _: dict[str, Any]) -> bool:
        send(handler, {"error": {"message": message}}, code, headers)
        return True

    return answer


def cut(handler: BaseHTTPRequestHandler, _: dict[str, Any]) -> bool:
    """Half an answer, then the end of the connection."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"data": [')
    handler.close_connection = True
    return True


def dripping(seconds: float, *, headers: bool = False) -> Trouble:
    """The model's answer, or its headers, in a hundred pieces with a pause after each, until the client has gone."""

    def answer(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> bool:
        text = json.dumps(handler.server.stub.answer(body)).encode()  # type: ignore[attr-defined]
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n" % len(text)
        slow = [b"X-%d: slow\r\n" % k for k in range(100)] if headers else []
        slow = [*slow, b"\r\n", text] if headers else [bytes([byte]) for byte in text[:100]] + [text[100:]]
        handler.close_connection = True
        with contextlib.suppress(OSError):
            handler.wfile.write(head if headers else head + b"\r\n")
            for piece in slow:
                handler.wfile.write(piece)
                handler.wfile.flush()
                time.sleep(seconds)
        return True

    return answer


def huge(mebibytes: int, sent: list[int], code: int = 200) -> Trouble:
    """An answer of this size, until the client has gone; ``sent`` gets the mebibytes that were taken."""

    def answer(handler: BaseHTTPRequestHandler, _: dict[str, Any]) -> bool:
        handler.send_response(code)
        handler.send_header("Content-Length", str(mebibytes * 2**20))
        handler.end_headers()
        handler.close_connection = True
        with contextlib.suppress(OSError):
            for number in range(mebibytes):
                handler.wfile.write(b" " * 2**20)
                sent.append(number)
        return True

    return answer


def answering(change: Callable[[dict[str, Any]], object]) -> Trouble:
    """The model's answer, changed."""

    def answer(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> bool:
        right = handler.server.stub.answer(body)  # type: ignore[attr-defined]
        change(right)
        send(handler, right)
        return True

    return answer


def send(
    handler: BaseHTTPRequestHandler, contents: object, code: int = 200, headers: dict[str, str] | None = None
) -> None:
    body = json.dumps(contents).encode()
    handler.send_response(code)
    for name, value in (headers or {}).items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        stub: Stub = self.server.stub  # type: ignore[attr-defined]
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with stub.lock:
            stub.bodies.append(body)
            stub.times.append(time.monotonic())
            stub.at_once += 1
            stub.most_at_once = max(stub.most_at_once, stub.at_once)
            trouble = stub.troubles.pop(0) if stub.troubles else None
        try:
            time.sleep(stub.seconds)
            name, form = ("Authorization", "Bearer {}") if stub.double is None else stub.double.key
            given = self.headers.get(name) or ""
            if stub.key and given != form.format(stub.key):
                send(self, {"error": {"message": f"Incorrect API key provided: {given.removeprefix('Bearer ')}"}}, 401)
            elif trouble is None or not trouble(self, body):
                send(self, *stub.reply(self.path, body))
        finally:
            with stub.lock:
                stub.at_once -= 1

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def endpoint() -> Iterator[Stub]:
    """A service on this machine for the block."""
    stub = Stub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that was killed is no news
    server.stub = stub  # type: ignore[attr-defined]
    stub.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
