"""The same store at s3://…, against moto's server on this machine."""

from __future__ import annotations

import re
import socket

import numpy as np
import pytest

from capim.store import EmbeddingStore, RequestError, WorkError
from capim.store.connection import Connection, explained
from capim.store.upkeep.inventory import info
from capim.store.upkeep.removal import compact_store, drop
from tests.deployments.object_storage import bucket as s3_bucket
from tests.store.toy import fill, make_corpus, make_embeddings, make_spec, states


def in_environment(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_ENDPOINT_URL")
    for name, value in zip(names, ("testing", "testing", "us-east-1", endpoint), strict=True):
        monkeypatch.setenv(name, value)


@pytest.fixture
def bucket(monkeypatch):
    """Address of an empty bucket; credentials and endpoint are in the environment, as a user would have them."""
    pytest.importorskip("moto.server")
    with s3_bucket() as reach:
        in_environment(monkeypatch, reach["AWS_ENDPOINT_URL"])
        yield "s3://capim"


@pytest.mark.slow
def test_everything_works_in_a_bucket(bucket, tmp_path):
    with pytest.raises(RequestError, match=r"there is no store at s3://capim/none"):
        EmbeddingStore.open(f"{bucket}/none")
    store = EmbeddingStore.open(f"{bucket}/workspace/store", create=True)
    corpus, spec = make_corpus(20), make_spec()
    key = fill(store, corpus, spec, step=20)
    late = fill(store, corpus, make_spec(name="late", vectors="multi"), step=20)
    again = EmbeddingStore.open(f"{bucket}/workspace/store")
    given = make_embeddings(range(20), spec).values
    np.testing.assert_array_equal(again.vectors(encoder="enc", corpus="toy", modality="image").matrix, given)
    assert sum(map(len, again.multivectors(encoder="late", corpus="toy", modality="image"))) == 20
    assert again.missing(key).tolist() == []
    assert states(again) == {"sound"}
    assert again.sql("SELECT count(*) AS n FROM embeddings").to_pylist() == [{"n": 40}]
    assert len(info(again).sets) == 2
    compact_store(again)
    local = EmbeddingStore.open(tmp_path / "local", create=True)
    fill(local, corpus, spec)
    [here] = local.sealed_sets()
    assert here.digest in {there.digest for there in again.sealed_sets()}, "the same set, wherever it is"
    drop(again, encoder="late", dry_run=False)
    assert again.sealed(late) is None


def test_a_bucket_that_does_not_exist_is_not_a_damaged_table(bucket):
    with pytest.raises(WorkError, match="There is no bucket of this name") as caught:
        EmbeddingStore.open("s3://nowhere/store", create=True)
    assert "truncated" not in str(caught.value)


def test_wrong_credentials_and_unreachable_servers_are_errors_with_the_address(monkeypatch):
    in_environment(monkeypatch, "http://127.0.0.1:9")
    with pytest.raises(WorkError, match=r"opening table 'encoders' .* failed.*The storage does not respond"):
        EmbeddingStore.open("s3://capim/store")


LIST = (
    "LanceError(IO): Generic S3 error: Error performing list request: Error performing GET http://h:9/b?list-type=2&"
    "prefix=my%2Fws%2Fstore%2Fruns.lance%2F_versions%2F in 454.982104ms, after 3 retries, max_retries: 3, "
    "retry_timeout: 30s  - {}, /home/runner/work/lance/lance/rust/lance-io/src/object_store.rs:1506:92"
)
GET = "LanceError(IO): Generic S3 error: Error performing GET http://h:9/b/my/ws/store/runs.lance/data/x in 1ms - {}"
STATUS = "Server returned non-2xx status code: "
SLOW = "<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Less</Message></Error>"
ANSWERS = {
    "HTTP error: error sending request": "no answer. The storage does not respond: check the network",
    f"{STATUS}503 Service Unavailable: {SLOW}": "503 Service Unavailable: SlowDown: Less. The storage is overloaded",
    f"{STATUS}502 Bad Gateway: <html>bad</html>": "502 Bad Gateway. The storage is overloaded or down",
}


@pytest.mark.parametrize("request_", [LIST, GET], ids=["list", "get"])
@pytest.mark.parametrize("answer", ANSWERS)
def test_an_outage_is_a_line_with_the_workspace_and_the_next_step(request_: str, answer: str) -> None:
    line = str(explained("reading table 'runs' failed", OSError(request_.format(answer))))
    assert line.startswith(f"reading table 'runs' failed: http://h:9/b/my/ws: {ANSWERS[answer]}")
    assert not re.search(r"LanceError|Error performing|retries|\.rs|<|%2F", line)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("list response body: HTTP error: request or response body error", "broke off. The storage does not respond"),
        ("Got invalid list response: not found before end of input", "there is no object storage: check AWS_ENDPOINT"),
    ],
)
def test_an_answer_that_is_none_is_no_damaged_table(fault: str, said: str) -> None:
    """The page of a proxy was taken for a damaged table, to be dropped by `capim store verify --drop`."""
    line = str(explained("opening failed", OSError(f"LanceError(IO): Generic S3 error: {fault}")))
    assert said in line
    assert "verify" not in line


def test_a_storage_that_does_not_answer_is_named_and_given_up(monkeypatch, caplog):
    with socket.create_server(("127.0.0.1", 0), backlog=100) as silent:
        in_environment(monkeypatch, f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setattr("capim.store.connection._WAIT_SECONDS", 0.5)
        connection = Connection("s3://silent/work/store")
        connection.options |= {"timeout": "500ms", "client_retry_timeout": "0"}
        with pytest.raises(WorkError, match=r"does not respond.*Stored data are kept"):
            connection.find("results")
    waits = [record.getMessage() for record in caplog.records if "waiting for the storage" in record.getMessage()]
    told = "waiting for the storage since . s: opening table 'results' at its newest version"
    assert re.fullmatch(told, waits[0])
    assert 2 <= len(waits) <= 4  # after 0.5, 1, 2 and 4 seconds
