"""Adapter ``http`` against a service on this machine: what it sends, what it survives, and what it refuses."""

from __future__ import annotations

import asyncio
import logging
import re
import time
import tomllib
from collections.abc import Callable, Iterator
from functools import partial
from threading import Timer
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest

from capim.store.errors import RequestError, WorkError
from capim.store.types import EncoderSpec
from capim.tasks.encoders import ADAPTERS, Encoder, encode_captions, encode_images, entry_from, load_encoder, resolve
from capim.tasks.encoders.adapters import endpoint as client
from capim.tasks.encoders.adapters.endpoint import BODY, FORMS, EndpointOptions, Pace, probe_vectors
from capim.tasks.encoders.conformance import check_encoder, noise_image, six_scenes
from capim.tasks.encoders.pipeline import CaptionWork, encode_stream
from tests.documents import ROOT, fenced_blocks
from tests.encoders.endpoint_stub import DIM, Stub, answering, cut, dripping, endpoint, huge, spec_of, status
from tests.encoders.service_doubles import DOUBLES

KEY = "sk-very-secret"
CAPTIONS = [f"caption number {n} of a street" for n in range(20)]
IMAGES = [noise_image(40, 30, seed) for seed in range(3)]
NO_TIME = ("0", "0.0", "-5", "nan", "inf", "-inf", "soon", "", "Wed, 21 Oct 2015 07:28:00 GMT", "1 Oct 99999 GMT")


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stub]:
    monkeypatch.setattr(client, "FIRST_WAIT_SECONDS", 0.01)
    monkeypatch.delenv("STUB_KEY", raising=False)
    with endpoint() as running:
        yield running


spec_for = partial(spec_of, image_form="messages")


def loaded(stub: Stub, **options: Any) -> Encoder:
    return load_encoder(spec_for(stub, **options))


def unit(stub: Stub, items: list[Any]) -> np.ndarray:
    vectors = np.asarray([stub.vector(item) for item in items])
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("form", ["messages", "input"])
@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_vectors_come_in_the_order_of_the_items_with_unit_norm_and_their_own_norm(form, encoding, stub) -> None:
    stub.shuffled = True
    options = {"image_form": form, "body:encoding_format": encoding, "inputs_per_request": 3}
    encoder = loaded(stub, **options)
    images = [noise_image(40, 30, seed) for seed in range(5)]
    block, pictures = encode_captions(encoder, CAPTIONS), encode_images(encoder, images)
    np.testing.assert_allclose(block.values, unit(stub, CAPTIONS), atol=1e-6)
    np.testing.assert_allclose(pictures.values, unit(stub, images), atol=1e-6)
    np.testing.assert_allclose(block.norms, [np.linalg.norm(stub.vector(text)) for text in CAPTIONS], rtol=1e-6)
    assert {body["model"] for body in stub.bodies} == {"org/model"}
    assert max(len(body.get("input", [0])) for body in stub.bodies) == 3
    assert {body.get("encoding_format") for body in stub.bodies} == {encoding}


def test_tokens_are_known_for_an_item_that_had_a_request_of_its_own(stub) -> None:
    encoder: Any = loaded(stub, caption_form="messages", image_prompt="Represent the given image.")
    assert encode_captions(encoder, ["a b c", "a"]).n_tokens.tolist() == [5, 3]
    assert encode_images(encoder, [noise_image(8, 8, 0)]).n_tokens.tolist() == [50]
    assert stub.bodies[-1]["messages"][0]["content"][1] == {"type": "text", "text": "Represent the given image."}
    together: Any = loaded(stub)
    assert encode_captions(together, ["a b c", "a"]).n_tokens.tolist() == [0, 0]
    assert [answer.tokens for answer in together.service.answers("caption", ["a b c", "a"])] == [8]


@pytest.mark.parametrize("trouble", [status(429, Retry_After="0"), status(429), status(500), status(503), cut])
def test_a_service_that_is_busy_or_breaks_off_is_asked_again(trouble, stub) -> None:
    encoder = loaded(stub)
    stub.troubles = [trouble, trouble]
    np.testing.assert_allclose(encode_captions(encoder, CAPTIONS).values, unit(stub, CAPTIONS), atol=1e-6)
    assert len(stub.bodies) == 3


def test_the_time_that_a_service_asks_for_is_waited_by_all_requests(stub) -> None:
    encoder = loaded(stub, concurrency=1)
    stub.troubles = [status(429, Retry_After="0.2")]
    encode_captions(encoder, CAPTIONS)
    assert np.diff(stub.times).min() >= 0.19


def test_a_wait_applies_to_requests_that_already_wait_for_their_turn() -> None:
    async def begun_after() -> list[float]:
        pace, start = Pace(60 / 0.02), time.monotonic()

        async def request() -> float:
            await pace.turn()
            return time.monotonic() - start

        waiting = [asyncio.create_task(request()) for _ in range(3)]
        await asyncio.sleep(0)  # the first has its turn, the others wait for theirs
        pace.hold(0.3)
        return sorted(await asyncio.gather(*waiting))

    first, second, third = asyncio.run(begun_after())
    assert first < 0.3 <= second <= third - 0.02


@pytest.mark.parametrize("headers", [False, True])
def test_an_answer_that_comes_byte_by_byte_is_waited_for_as_long_as_the_table_says(headers, stub, monkeypatch) -> None:
    monkeypatch.setattr(client, "FIRST_TRIES", 2)
    encoder = loaded(stub, timeout_seconds=0.4)
    stub.troubles = [dripping(0.1, headers=headers)] * 2
    begun = time.monotonic()
    with pytest.raises(
        WorkError, match=r"not answer in 2 tries \(last: incomplete response after timeout_seconds = 0.4\)"
    ):
        encode_captions(encoder, ["a"])
    assert 0.8 < time.monotonic() - begun < 3
    stub.troubles = [dripping(0.001, headers=headers)]
    np.testing.assert_allclose(encode_captions(encoder, ["a"]).values, unit(stub, ["a"]), atol=1e-6)


@pytest.mark.parametrize("code", [200, 503])
def test_an_answer_that_is_far_too_large_is_not_read(code, stub) -> None:
    encoder, sent = loaded(stub), list[int]()
    stub.troubles = [huge(400, sent, code)]
    with pytest.raises(
        WorkError, match=r"answered 3 inputs with more than 16 MiB, which 3 vectors of 8 numbers do not"
    ):
        encode_captions(encoder, ["a", "b", "c"])
    assert len(sent) < 40
    assert len(stub.bodies) == 1
    assert len(encode_captions(encoder, ["a"])) == 1


@pytest.mark.parametrize("form", ["input", "messages"])
def test_parameters_of_captions_or_images_win_over_those_of_both(form, stub) -> None:
    own = {"body:task": "none", "body:dimensions": 8, "caption_body:task": "query", "image_body:task": "passage"}
    encoder = loaded(stub, image_form=form, caption_form=form, **own)
    encode_captions(encoder, ["a"])
    encode_images(encoder, [noise_image(8, 8, 0)])
    assert [(body["task"], body["dimensions"]) for body in stub.bodies] == [("query", 8), ("passage", 8)]
    assert not [name for body in stub.bodies for name in body if ":" in name]


def test_an_encode_that_is_ended_does_not_sit_out_the_time_that_a_service_asks_for(stub) -> None:
    encoder = loaded(stub)
    work = CaptionWork(ords=np.arange(20, dtype=np.int32), texts=CAPTIONS)
    stream = encode_stream(encoder, work, batch_size=4)
    stub.troubles = [lambda *_: False, *[status(429, Retry_After="60")] * 4]
    assert len(next(stream).ords) == 4
    begun = time.monotonic()
    stream.close()
    assert time.monotonic() - begun < 5
    stub.troubles = []
    again: Any = loaded(stub)
    stub.troubles = [status(429, Retry_After="60")]
    Timer(0.2, again.service.stop).start()
    with pytest.raises(WorkError, match="was interrupted before it responded"):
        encode_captions(again, ["a"])


def test_an_address_where_nothing_answers_is_known_soon(stub, monkeypatch) -> None:
    monkeypatch.setattr(client, "FIRST_WAIT_SECONDS", 0.0)
    encoder = loaded(Stub(url="http://127.0.0.1:9/v1"))
    with pytest.raises(WorkError, match=r"127.0.0.1:9 did not answer in 3 tries \(last: ConnectError.*check url"):
        encode_captions(encoder, ["a"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a["data"].pop(), r"answered 3 inputs with the indices 0, 1, expected each of 0 to 2 once"),
        (lambda a: a["data"][0].update(index=1), r"with the indices 1, 1, 2, expected"),
        (lambda a: a["data"][0].pop("index"), "answered without embeddings"),
        (lambda a: a["data"][1]["embedding"].pop(), "vectors of 7 components, expected 8; correct dim"),
        (lambda a: a["data"][1].update(embedding=[[1.0] * 8] * 2), r"vectors of \(2, 8\) components, expected 8"),
        (lambda a: a["data"][1]["embedding"].__setitem__(3, float("nan")), r"NaN.* 1 of 3 inputs: the caption 'b'"),
        (lambda a: a["data"][2].update(embedding=[0.0] * 8), r"zero for 1 of 3 inputs: the caption 'c'"),
    ],
)
def test_an_answer_that_is_not_one_right_vector_for_each_input_is_refused(
    change: Callable[[Any], object], message: str, stub
) -> None:
    encoder = loaded(stub)
    stub.troubles = [answering(change)]
    with pytest.raises(WorkError, match=message):
        encode_captions(encoder, ["a", "b", "c"])


@pytest.mark.parametrize(
    ("trouble", "message"),
    [
        (status(307, Location="http://127.0.0.1:9/elsewhere"), "another URL: set url to that one"),
        (status(404, "no such model"), r"404: .*no such model.*check url and checkpoint: .* for the model 'org/model'"),
        (status(402, "no credit"), "correct the encoder's table or the account of the service"),
        (status(429, "insufficient_quota"), "the account of the service"),
        (status(429, "tomorrow", Retry_After="36000"), "asked to retry after 36,000 s .*tomorrow.*same command then"),
        (status(503), r"did not answer in 8 tries \(last: 503.*Stored embeddings are kept"),
    ],
)
def test_an_answer_that_would_be_the_same_again_ends_the_encode_and_a_busy_service_is_asked_eight_times(
    trouble, message, stub, monkeypatch
) -> None:
    monkeypatch.setattr(client, "FIRST_WAIT_SECONDS", 0.0)
    encoder, n_asked = loaded(stub), client.TRIES if "8 tries" in message else 1
    stub.troubles = [trouble] * n_asked
    with pytest.raises(WorkError, match=message):
        encode_captions(encoder, ["a"])
    assert len(stub.bodies) == n_asked


def test_too_many_inputs_are_halved_from_then_on_and_one_that_is_refused_is_named(stub) -> None:
    stub.most = 4
    encoder = loaded(stub, concurrency=1)
    encode_captions(encoder, CAPTIONS)
    first = [len(body["input"]) for body in stub.bodies]
    assert first[0] == 20
    assert sum(size for size in first if size <= 4) == 20
    encode_captions(encoder, CAPTIONS)
    assert max(len(body["input"]) for body in stub.bodies[len(first) :]) <= 4
    stub.troubles = [status(400, "input is too long")] * 2
    with pytest.raises(WorkError, match=r"refuses the caption 'a b' \(400: .*too long.*capim check far"):
        encode_captions(encoder, ["a b", "c"])


def test_requests_at_once_and_per_minute_are_bounded(stub) -> None:
    stub.seconds = 0.05
    encode_captions(loaded(stub, concurrency=3, inputs_per_request=2), CAPTIONS)
    assert 1 < stub.most_at_once <= 3
    stub.times.clear()
    stub.seconds = 0
    encode_captions(loaded(stub, requests_per_minute=1200, inputs_per_request=5), CAPTIONS)
    assert stub.times[-1] - stub.times[0] > 0.13  # four requests, 0.05 s apart when they were sent
    encoder = loaded(stub, tokens_per_minute=6000)
    begun = time.monotonic()
    encode_captions(encoder, ["a " * 18])  # 20 tokens: 0.2 s
    encode_captions(encoder, ["a"])
    assert time.monotonic() - begun > 0.2


def test_the_key_comes_from_the_environment_and_is_seen_by_the_service_alone(stub, monkeypatch, caplog) -> None:
    caplog.set_level(logging.DEBUG)
    stub.key = KEY
    with pytest.raises(RequestError, match=r"variable STUB_KEY is not set; .*export STUB_KEY="):
        loaded(stub, api_key_env="STUB_KEY")
    monkeypatch.setenv("STUB_KEY", KEY)
    encoder = loaded(stub, api_key_env="STUB_KEY")
    assert len(encode_captions(encoder, ["a"])) == 1
    stub.key = "another"
    with pytest.raises(WorkError, match=r"401: .*provided: \*\*\*.*check the key in STUB_KEY") as caught:
        encode_captions(encoder, ["a"])
    with pytest.raises(WorkError, match="it needs a key: name its variable in api_key_env"):
        encode_captions(loaded(stub), ["a"])
    monkeypatch.setenv("STUB_KEY", f"{KEY} and a remark")
    with pytest.raises(RequestError, match="STUB_KEY holds spaces") as refused:
        loaded(stub, api_key_env="STUB_KEY")
    for text in (caplog.text, repr(caught.value), repr(refused.value), repr(encoder.spec), str(caught.value.__cause__)):
        assert KEY not in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"url": "https://me:s3cret@host/v1"},
            "without user, password or query: put the key into an environment variable",
        ),
        ({"url": "https://host/v1?key=s3cret"}, "without user, password or query"),
        ({"url": "host/v1"}, "expected a URL such as https://api.example.com/v1"),
        ({"image_form": "chat"}, "option image_form: '', 'input', .* or 'gemini', got 'chat'"),
        ({"concurrency": 0}, "option concurrency: .*greater than or equal to 1, got 0"),
        ({"requests_per_second": 1}, "option 'requests_per_second' is unknown"),
        ({"image_form": "tei"}, "option image_form: .*got 'tei'"),
        # which the form would leave out
        ({"image_form": "input", "image_prompt": "x"}, "image_prompt needs messages or cohere or voyage or gemini"),
        ({"caption_system": "Find."}, "option caption_system needs messages as the form of its requests"),
        ({"image_form": "input", "last_turn": "assistant"}, "option last_turn needs messages"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_sent(options, message, stub) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        resolve(spec_for(stub, **options))
    assert "s3cret" not in str(caught.value)
    assert not stub.bodies


def test_all_faults_of_a_table_come_together(stub) -> None:
    row = {"adapter": "http", "checkpoint": "m", "dim": 4, "vectors": "multi", "precision": "bfloat16"}
    with pytest.raises(RequestError) as caught:
        resolve(entry_from("far", row).spec)
    assert len(caught.value.faults) == 3
    assert "option 'url' is missing" in caught.value.faults[0]


def test_the_address_and_what_is_sent_are_the_identity_and_how_fast_is_not(stub) -> None:
    first = resolve(spec_for(stub)).fingerprint
    same: dict[str, Any] = {"concurrency": 9, "api_key_env": "OTHER", "requests_per_minute": 60}
    assert resolve(spec_for(stub, **same)).fingerprint == first
    bodies = [{f"{prefix}body:dimensions": 8} for prefix in ("", "caption_", "image_")]
    others: list[dict[str, Any]] = [
        {"url": "http://other/v1"}, {"image_form": "input"}, {"revision": "2026-11"}, *bodies
    ]  # fmt: skip
    assert len({first, *(resolve(spec_for(stub, **other)).fingerprint for other in others)}) == 7
    assert not stub.bodies


def test_a_service_without_an_image_form_says_how_to_name_one(stub) -> None:
    with pytest.raises(RequestError, match=r'image_form = "input" \(OpenAI.* or "messages" \(vLLM\).*--only captions'):
        encode_images(loaded(stub, image_form=""), six_scenes()[0])


@pytest.mark.slow  # some two hundred requests, among them large images
def test_the_suite_of_checks_runs_on_an_endpoint_and_claims_nothing_that_it_cannot_know(stub) -> None:
    rows = {row.check: row for row in check_encoder(spec_for(stub))}
    assert [row for row in rows.values() if row.result == "fail" and row.check != "matching pairs"] == []
    for check in ("loads offline", "identity", "no missing weights", "truncation", "weights in the model"):
        assert rows[check].result == "skip", check
    assert stub.url in rows["loads offline"].detail


PAGE = ROOT / "docs" / "endpoint.md"
RECIPES = {
    str(row["name"]): row
    for block in fenced_blocks(PAGE)
    if block.language == "toml"
    for row in tomllib.loads(block.text)["encoder"]
}


def recipe(name: str, stub: Stub) -> EncoderSpec:
    """The spec of a recipe of the page, for the double of its service."""
    row = {key: value for key, value in RECIPES[name].items() if key != "name"}
    own = {key: value for key, value in row["options"].items() if key != "requests_per_minute"}
    address = stub.url.removesuffix("/v1") + urlsplit(own["url"]).path
    return entry_from(name, {**row, "dim": DIM, "options": {**own, "url": address}}).spec


@pytest.mark.parametrize("name", DOUBLES)
def test_a_recipe_of_the_page_is_right_for_the_double_of_its_service(name, stub, monkeypatch) -> None:
    double, spec = DOUBLES[name], recipe(name, stub)
    stub.double = double
    if variable := str(spec.options.get("api_key_env", "")):
        stub.key = KEY
        monkeypatch.setenv(variable, KEY)
    encoder: Any = load_encoder(spec)
    template = str(spec.options.get("caption_template", "{caption}"))
    queries: list[Any] = [template.replace("{caption}", caption) for caption in CAPTIONS]
    of_images = encode_images(encoder, IMAGES).values if encoder.service.takes_images else None
    vectors = encode_captions(encoder, CAPTIONS).values, of_images
    for found, items, role in zip(vectors, (queries, IMAGES), double.roles, strict=True):
        if found is not None:
            wanted = np.asarray([stub.in_role(item, role) for item in items])
            np.testing.assert_allclose(found, wanted / np.linalg.norm(wanted, axis=1, keepdims=True), atol=1e-6)
    counted = {answer.tokens for answer in encoder.service.answers("caption", queries)}
    assert counted == ({None} if name in ("gemini", "tei") else {7})


def test_every_form_has_a_recipe_and_the_table_of_the_page_is_the_table_of_the_code() -> None:
    forms = {str(row["options"].get(f"{m}_form", "input")) for row in RECIPES.values() for m in ("caption", "image")}
    assert forms == FORMS.keys()
    assert RECIPES.keys() == DOUBLES.keys()
    lines = [line.split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines() if line.count(" | ") == 5]
    rows = {cells[0].strip("| `"): cells for cells in lines if cells[0].startswith("| `")}
    said = {True: "yes", False: "no"}
    for name, form in FORMS.items():
        takes = f"yes, {said[form.image is not None]}"
        assert rows[name][1:5] == [form.title, takes, said[form.together], said[form.prompted]], name
        assert re.findall(r"https://[^) |,;]+", rows[name][5])[0] in form.source
    assert rows.keys() == FORMS.keys()


@pytest.mark.parametrize(
    ("headers", "body", "seconds"),
    [
        ({"Retry-After": "0.3"}, "busy", 0.3),
        ({"retry-after-ms": "250", "Retry-After": "9"}, "busy", 0.25),
        ({}, '{"error": {"details": [{"@type": "…RetryInfo", "retryDelay": "0.2s"}]}}', 0.2),
        ({"retry-after-ms": "nan"}, '{"retryDelay": "0s"}', None),
        ({"Retry-After": "5"}, '{"retryDelay": "0s"}', 5.0),
        *(({"Retry-After": value}, "busy", None) for value in NO_TIME),
    ],
)
def test_the_time_that_a_service_asks_for_is_read_in_every_form(headers, body, seconds) -> None:
    assert client.pause_of(httpx.Response(429, headers=headers, text=body)) == seconds


def test_a_service_that_mixes_the_items_of_a_request_is_found_by_the_probes(stub) -> None:
    encoder = loaded(stub)
    assert len(probe_vectors(encoder, image=True)) == 5
    stub.troubles = [answering(lambda a: [row.update(index=k) for k, row in enumerate(reversed(a["data"]))])]
    with pytest.raises(
        WorkError,
        match=r"returned different vectors for 'a red bus' by itself and in a batch of 4 captions \(cosine 0\.\d+",
    ):
        probe_vectors(encoder, image=True)


def test_the_page_about_endpoints_names_every_option() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("## Services")[0]
    lines = [line.split("|") for line in text.splitlines() if line.startswith("| `")]
    shown = {name: cells[3].strip() for cells in lines for name in re.findall(r"`([^`]+)`", cells[1])}
    assert {name.removesuffix("NAME") for name in shown} == {*EndpointOptions.model_fields, *BODY}
    assert ADAPTERS["http"].options == ("caption_template", *EndpointOptions.model_fields, *BODY)
    defaults = {name: field.default for name, field in EndpointOptions.model_fields.items()}
    assert {name: int(value) for name, value in shown.items() if value.isdigit()} == {
        name: value for name, value in defaults.items() if isinstance(value, int | float)
    }
