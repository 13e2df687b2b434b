"""The same store at s3://…, against moto's server on this machine."""

from __future__ import annotations

import io
import re
import socket

import numpy as np
import pytest

from capim.store import EmbeddingStore, RequestError, WorkError
from capim.store.connection import Connection, _session
from capim.store.digests import TableFiles
from capim.store.integrity import repair_one
from capim.store.inventory import info
from capim.store.removal import compact_store, drop
from tests.random_store import rows_of
from tests.store.test_crashes import start, wait_for
from tests.store.toy import fill, make_corpus, make_embeddings, make_spec, states


@pytest.fixture(scope="module")
def endpoint():
    server = pytest.importorskip("moto.server").ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{'127.0.0.1' if host == '0.0.0.0' else host}:{port}"
    server.stop()


def in_environment(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_ENDPOINT_URL")
    for name, value in zip(names, ("testing", "testing", "us-east-1", endpoint), strict=True):
        monkeypatch.setenv(name, value)


@pytest.fixture
def bucket(endpoint, monkeypatch, tmp_path):
    """Address of an empty bucket; credentials and endpoint are in the environment, as a user would have them."""
    import boto3  # type: ignore[import-untyped]

    in_environment(monkeypatch, endpoint)
    monkeypatch.setattr("capim.store.connection.COPIES", tmp_path / "copies")
    boto3.client("s3", region_name="us-east-1", endpoint_url=endpoint).create_bucket(Bucket="capim")
    return "s3://capim"


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
    assert again.missing(key, 20).tolist() == []
    assert states(again) == {"sound"}
    assert again.sql("SELECT count(*) AS n FROM embeddings").to_pylist() == [{"n": 40}]
    assert len(info(again).sets) == 2
    compact_store(again)
    local = EmbeddingStore.open(tmp_path / "local", create=True)
    fill(local, corpus, spec)
    here, there = local.sealed(key), again.sealed(key)
    assert here is not None
    assert there is not None
    assert here.digest == there.digest, "the same set, wherever it is"
    assert drop(again, encoder="late", dry_run=False).done
    assert again.sealed(late) is None


def test_a_file_of_a_table_in_a_bucket_that_was_changed_is_removed_by_a_repair(bucket):
    store = EmbeddingStore.open(f"{bucket}/damaged", create=True)
    for n in (1, 2):
        store.write_rows("outcomes", rows_of("outcomes", {"query_id": str(n)}))
    files = store.connection.digests.files
    first = next(path for path in files.sizes("outcomes") if path.startswith("data/"))
    files.write("outcomes", first, b"damaged")
    again = EmbeddingStore.open(f"{bucket}/damaged")
    assert repair_one(again, "outcomes").startswith("0 files restored, 1 removed")
    assert EmbeddingStore.open(f"{bucket}/damaged").rows("outcomes").num_rows == 1


@pytest.mark.slow
def test_two_processes_fill_one_set_in_a_bucket(bucket):
    uri = f"{bucket}/shared"
    wait_for(*(start(uri, 32, seed) for seed in (1, 2)))
    store = EmbeddingStore.open(uri)
    assert [sealed.n_rows for sealed in store.sealed_sets()] == [32, 32]
    assert "damaged" not in states(store)


def test_rows_of_small_tables_are_copied_to_this_machine_and_as_new_as_the_root(bucket, tmp_path, monkeypatch):
    store = EmbeddingStore.open(f"{bucket}/copied", create=True)
    corpus = make_corpus(20)
    key = fill(store, corpus, make_spec(), step=20)
    store.write_rows("runs", rows_of("runs", {"run": "1"}))

    def read() -> tuple[int, int, bool]:
        opened = EmbeddingStore.open(f"{bucket}/copied")
        assert opened.corpus("toy").fingerprint == corpus.fingerprint
        return opened.rows("runs").num_rows, opened.encoders().num_rows, opened.intact(key)

    assert read() == (1, 1, True)
    copies = {path: path.read_bytes() for path in (tmp_path / "copies").rglob("*.arrow")}
    with monkeypatch.context() as patched:
        patched.setattr(Connection, "find", None)  # no table is opened
        assert read() == (1, 1, True)
        fresh = EmbeddingStore.open(f"{bucket}/copied")
        assert fresh.rows("published").num_rows == 0, "nor is one that was never written"
    for path, contents in copies.items():
        path.write_bytes(contents[:-1] + bytes([contents[-1] ^ 1]))
    assert read() == (1, 1, True), "a copy that was changed on disk is no copy"
    assert {path: path.read_bytes() for path in copies} == copies
    store.write_rows("runs", rows_of("runs", {"run": "2"}))
    assert read() == (2, 1, True)
    assert len([*(tmp_path / "copies").rglob("*.arrow")]) == len(copies), "those of older versions are gone"
    drop(store, encoder="enc", dry_run=False)
    assert not EmbeddingStore.open(f"{bucket}/copied").intact(key)


def test_what_a_run_has_written_is_there_while_another_writes(bucket, monkeypatch):
    """Where another process records its commit before ours, the root that we have read is behind both."""
    EmbeddingStore.open(f"{bucket}/both", create=True).write_rows("runs", rows_of("runs", {"run": "1"}))
    ours, others = (EmbeddingStore.open(f"{bucket}/both") for _ in range(2))
    ours.connection.kept.look_seconds = 30.0
    assert ours.rows("runs").num_rows == 1, "of which there is a copy on this machine from now on"
    others.write_rows("runs", rows_of("runs", {"run": "2"}))
    record = ours.connection.digests.record

    def late(name, table, **words):
        others.write_rows(name, rows_of(name, {"run": "4"}))
        record(name, table, **words)

    monkeypatch.setattr(ours.connection.digests, "record", late)
    ours.write_rows("runs", rows_of("runs", {"run": "3"}))
    assert set(ours.rows("runs")["run"].to_pylist()) == {*"1234"}


def test_the_root_names_the_newest_version_whoever_removes_the_older_record(bucket, monkeypatch):
    """Two processes that write at the same time both remove the record of the version before."""
    store = EmbeddingStore.open(f"{bucket}/removed", create=True)
    store.write_rows("runs", rows_of("runs", {"run": "1"}))
    remove = TableFiles.remove

    def twice(files, name, path):
        remove(files, name, path)
        remove(files, name, path)

    monkeypatch.setattr(TableFiles, "remove", twice)
    store.write_rows("runs", rows_of("runs", {"run": "2"}))
    assert EmbeddingStore.open(f"{bucket}/removed").rows("runs").num_rows == 2
    [newest, *_] = store.connection.digests.files.manifests("runs")
    assert store.connection.digests.root.entries(fresh=True)["runs"].version == newest[0]


def test_rows_that_a_repair_accepts_take_the_place_of_copies(bucket):
    store = EmbeddingStore.open(f"{bucket}/accepted", create=True)
    store.write_rows("runs", rows_of("runs", {"run": "1", "name": "distinct"}))

    def name() -> str:
        [row] = EmbeddingStore.open(f"{bucket}/accepted").rows("runs").to_pylist()
        return str(row["name"])

    assert name() == "distinct"
    files = store.connection.digests.files
    [data] = [path for path in files.sizes("runs") if path.startswith("data/")]
    contents = files.read("runs", data)
    assert contents is not None
    files.write("runs", data, changed := contents.replace(b"distinct", b"distinkt"))
    assert changed != contents
    for record in files.sizes("runs", "digests"):
        files.remove("runs", record)
    assert name() == "distinct", "as it was written"
    repair_one(EmbeddingStore.open(f"{bucket}/accepted"), "runs", accept=True)
    _session.cache_clear()  # as a new process
    assert name() == "distinkt"


def test_a_bucket_that_does_not_exist_is_not_a_damaged_table(bucket):
    with pytest.raises(WorkError, match="There is no bucket of this name") as caught:
        EmbeddingStore.open("s3://nowhere/store", create=True)
    assert "truncated" not in str(caught.value)


def test_wrong_credentials_and_unreachable_servers_are_errors_with_the_address(monkeypatch):
    in_environment(monkeypatch, "http://127.0.0.1:9")
    with pytest.raises(WorkError, match="opening s3://capim/store failed"):
        EmbeddingStore.open("s3://capim/store")


def test_a_file_whose_answer_breaks_off_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that another process replaced while it was read: "Failed to flush response stream" ended a run."""
    monkeypatch.setattr("capim.store.digests._READ_AGAIN", (0.0,))
    answers: list[OSError | bytes] = [OSError("AWS Error INTERNAL_FAILURE during GetObject: Failed to flush"), b"whole"]

    class System:
        def open_input_file(self, _: str) -> io.BytesIO:
            if isinstance(answer := answers.pop(0), OSError):
                raise answer
            return io.BytesIO(answer)

    files = TableFiles("s3://bucket/store", "http://127.0.0.1:1")
    monkeypatch.setattr(files, "_system", System())
    assert files.read("results", "digests/1-a.json") == b"whole"
    answers += [OSError("AWS Error INTERNAL_FAILURE during GetObject")] * 2
    with pytest.raises(OSError, match="INTERNAL_FAILURE"):
        files.read("results", "digests/1-a.json")


def test_a_storage_that_does_not_answer_is_named_and_given_up(monkeypatch, caplog):
    with socket.create_server(("127.0.0.1", 0), backlog=100) as silent:
        in_environment(monkeypatch, f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setattr("capim.store.connection._WAIT_SECONDS", 0.5)
        connection = Connection("s3://silent/work/store")
        connection.options |= {"timeout": "500ms", "client_retry_timeout": "0"}
        with pytest.raises(WorkError, match=r"does not answer.*What was stored before is kept"):
            connection.open("results")
    waits = [record.getMessage() for record in caplog.records if "waiting for the storage" in record.getMessage()]
    told = "waiting for the storage since . s: opening table 'results' at its newest version"
    assert re.fullmatch(told, waits[0])
    assert 2 <= len(waits) <= 4  # after 0.5, 1, 2 and 4 seconds
