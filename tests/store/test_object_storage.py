"""The same store at s3://…, against moto's server on this machine."""

from __future__ import annotations

import re
import socket

import numpy as np
import pytest

from capim.store import EmbeddingStore, RequestError, WorkError
from capim.store.connection import Connection
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
