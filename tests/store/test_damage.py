"""What disks and people do to a store is noticed and named; a silently wrong vector never comes back."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from capim.store import EmbeddingStore, RequestError, WorkError
from capim.store.connection import compact
from capim.store.digests import COPIED, TableFiles
from capim.store.integrity import repair, repair_all, verify
from capim.store.inventory import check_disk_space
from capim.store.removal import compact_store, drop, drop_set
from capim.store.rows import merge
from capim.store.schema import texts
from tests.random_store import rows_of
from tests.store.toy import begin, fill, make_block, make_corpus, make_embeddings, make_key, make_spec

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    """What is missing is looked for as often, but no other process is about to write it."""
    monkeypatch.setattr("capim.store.digests._PAUSES", (0.0, 0.0, 0.0))


@pytest.fixture
def sealed(store):
    """A sealed dense set: the store, its key and the folder of its table."""
    key = fill(store, make_corpus(300), make_spec(dim=64), step=100)
    return store, key, store.connection.folder(key.table)


def read(store):
    return EmbeddingStore.open(store.uri).vectors(encoder="enc", corpus="toy", modality="image")


def only_file(folder: Path) -> Path:
    (file,) = (folder / "data").iterdir()
    return file


def records(store, name: str) -> Path:
    """The folder of the records of a table's digests."""
    return Path(store.uri) / "digests" / name


def state_of(store, name):
    return next(finding for finding in verify(EmbeddingStore.open(store.uri)) if finding.what == name)


def test_a_flipped_byte_in_a_vector_is_named_with_its_item(sealed):
    store, key, folder = sealed
    file = only_file(folder)
    data = bytearray(file.read_bytes())
    wanted = make_embeddings([123], make_spec(dim=64)).values.tobytes()
    place = data.index(wanted)
    data[place + 60] ^= 0x10
    file.write_bytes(data)

    with pytest.raises(WorkError, match=r"checksum mismatch in 1 rows \(changed on disk\), first items 'i00123'"):
        read(store)
    with pytest.raises(WorkError, match="'i00123'"):
        list(EmbeddingStore.open(store.uri).stored_blocks(key))
    finding = state_of(store, key.table)
    assert finding.state == "damaged"
    assert "'i00123'" in finding.detail
    assert f"Run `capim store repair {key.table}`" in finding.detail


def test_a_flipped_byte_in_a_multi_vector_set_is_named_with_its_item(store):
    spec = make_spec(dim=64, vectors="multi")
    key = fill(store, make_corpus(90), spec)
    file = only_file(store.connection.folder(key.table))
    data = bytearray(file.read_bytes())
    data[data.index(make_embeddings([44], spec).values.astype(np.float16).tobytes()) + 9] ^= 0x01
    file.write_bytes(data)
    with pytest.raises(WorkError, match="'i00044'"):
        list(EmbeddingStore.open(store.uri).multivectors(encoder="enc", corpus="toy", modality="image"))


def test_no_flipped_byte_anywhere_gives_wrong_vectors(sealed):
    """Bytes at regular distances over the whole file: an error, or exactly what was stored."""
    store, _, folder = sealed
    good = read(store)
    file = only_file(folder)
    data = file.read_bytes()
    noticed = 0
    for place in range(11, len(data), len(data) // 60):
        file.write_bytes(data[:place] + bytes([data[place] ^ 0x40]) + data[place + 1 :])
        try:
            again = read(store)
        except (WorkError, RequestError):
            noticed += 1
        else:
            assert again.ids == good.ids
            np.testing.assert_array_equal(again.matrix, good.matrix)
    assert noticed > 30
    file.write_bytes(data)
    np.testing.assert_array_equal(read(store).matrix, good.matrix)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda file: file.write_bytes(file.read_bytes()[:-2000]), r"lance has \d+ bytes, \d+ were written"),
        (lambda file: file.write_bytes(b""), r"lance has 0 bytes, \d+ were written"),
        (lambda file: file.unlink(), r"lance is missing.*capim store repair"),
    ],
)
def test_a_truncated_or_deleted_file_is_named(sealed, damage, message):
    store, key, folder = sealed
    damage(only_file(folder))
    with pytest.raises(WorkError, match=message) as caught:
        read(store)
    assert str(folder / "data") in str(caught.value)
    check = state_of(store, key.table)
    assert check.state == "damaged"
    assert f"capim store repair {key.table}" in check.detail
    assert "store verify" not in check.detail
    assert state_of(store, "sets").state == "sound"


def embed_again(store, key):
    """What `capim embed` does; returns how many items were encoded."""
    missing = store.missing(key, 300)
    if len(missing):
        store.put(key, make_spec(dim=64), make_block(make_corpus(300), make_spec(dim=64), missing))
    store.seal(key, n_items=300)
    return len(missing)


def test_after_a_repair_only_the_batches_of_damaged_rows_are_made_again(store):
    """Whole batches: the last bits of an embedding depend on its neighbours."""
    corpus, spec, key = begin(store, 300, dim=64)
    for start in range(0, 300, 10):
        store.put(key, spec, make_block(corpus, spec, range(start, start + 10), batch_id=f"batch-{start}"))
    store.seal(key, n_items=300)
    folder = store.connection.folder(key.table)
    before, state = read(store), store.sealed(key)
    assert repair(store, key.table).rows == 0
    assert store.sealed(key) == state
    writing = store.writer(key)
    assert len(writing.missing()) == 0
    file = only_file(folder)
    data = bytearray(file.read_bytes())
    for position in (7, 123):
        data[data.index(make_embeddings([position], make_spec(dim=64)).values.tobytes()) + 60] ^= 0x10
    file.write_bytes(data)
    fresh = EmbeddingStore.open(store.uri)
    assert repair(fresh, key.table).rows == 20
    batches = [*range(10), *range(120, 130)]
    assert fresh.missing(key, 300).tolist() == batches
    assert writing.missing().tolist() == batches, "a writer that was there before sees it too"
    assert embed_again(fresh, key, make_corpus, make_spec, make_block) == 20
    np.testing.assert_array_equal(read(store).matrix, before.matrix)
    sealed = fresh.sealed(key)
    assert sealed is not None
    assert sealed.digest == state.digest
    assert "damaged" not in {finding.state for finding in verify(fresh)}


def test_the_record_of_an_append_is_that_of_the_version_before_and_its_own_files(store, monkeypatch):
    corpus, spec, key = begin(store, 40)
    name = key.table
    store.put(key, spec, make_block(corpus, spec, range(10)))
    with monkeypatch.context() as counted:
        counted.setattr("capim.store.digests.Digests._paths", lambda *_: pytest.fail("lists every fragment"))
        store.put(key, spec, make_block(corpus, spec, range(10, 20)))
    other = EmbeddingStore.open(store.uri)
    other.put(key, spec, make_block(corpus, spec, range(20, 30)))  # a version that the first process does not know
    store.put(key, spec, make_block(corpus, spec, range(30, 40)))
    (record,) = records(store, name).iterdir()
    written = json.loads(record.read_bytes())
    store.connection.digests.record(name, store.connection.find(name), anew=True)
    assert json.loads(record.read_bytes()) == written
    assert len([path for path in written["files"] if path.startswith("data/")]) == 4


def test_the_record_of_an_append_to_a_set_that_was_made_anew_has_none_of_the_old_files(store):
    corpus, spec, key = begin(store, 30)
    store.put(key, spec, make_block(corpus, spec, range(10)))
    other = EmbeddingStore.open(store.uri)
    drop_set(other, key)
    other.put(key, spec, make_block(corpus, spec, range(10)))  # has the version that the first process knows
    store.put(key, spec, make_block(corpus, spec, range(10, 20)))
    assert EmbeddingStore.open(store.uri).connection.digests.faults(key.table) == []


@pytest.mark.parametrize("damage", [lambda file: file.unlink(), lambda file: file.write_bytes(b"x" * 100)])
def test_after_a_repair_the_rows_of_a_lost_file_are_made_again(store, damage):
    corpus, spec, key = begin(store, 300, dim=64)
    for start in (0, 100, 200):
        store.put(key, spec, make_block(corpus, spec, range(start, start + 100)))
    files = sorted((store.connection.folder(key.table) / "data").iterdir(), key=lambda file: file.stat().st_mtime_ns)
    damage(files[1])
    fresh = EmbeddingStore.open(store.uri)
    assert repair(fresh, key.table).rows == 100
    assert fresh.missing(key, 300).tolist() == list(range(100, 200))
    assert embed_again(fresh, key, make_corpus, make_spec, make_block) == 100
    assert {finding.state for finding in verify(fresh)} == {"sound"}


def write_runs(store, *runs):
    for run in runs:
        store.write_rows("runs", rows_of("runs", {"run": run, "state": f"completed {run}"}))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda file: file.unlink(), "is missing"),
        (lambda file: file.write_bytes(file.read_bytes()[:50]), "has 50 bytes"),
        (lambda file: file.write_bytes(file.read_bytes().replace(b"completed r2", b"completed r7")), "was changed"),
        (lambda file: file.write_bytes(bytes(file.stat().st_size)), "was changed"),
    ],
)
def test_a_damaged_file_of_a_register_or_of_history_is_named_never_read_and_put_back(store, damage, words):
    """No run makes these rows again, so that a copy of small files stands in the record of the table."""
    write_runs(store, "r1", "r2", "r3")
    files = sorted((Path(store.uri) / "runs.lance" / "data").iterdir(), key=lambda file: file.stat().st_mtime_ns)
    damage(files[1])
    fresh = EmbeddingStore.open(store.uri)
    with pytest.raises(WorkError, match=rf"{files[1]} {words}.*capim store repair runs"):
        fresh.rows("runs")
    finding = state_of(store, "runs")
    assert finding.state == "damaged"
    assert f"{files[1]} {words}" in finding.detail
    assert "capim store repair runs" in finding.detail
    assert repair(fresh, "runs") == (1, 0, 0)
    assert repair(fresh, "runs") == (0, 0, 0)
    assert sorted(texts(fresh.rows("runs")["state"])) == ["completed r1", "completed r2", "completed r3"]
    assert state_of(store, "runs").state == "sound"
    with pytest.raises(RequestError, match="no table 'rums' to repair; the tables are batches,"):
        repair(fresh, "rums")


def test_history_of_which_there_is_no_copy_is_lost_and_the_rest_stays(store, monkeypatch):
    monkeypatch.setattr("capim.store.digests._COPIED_BYTES", 0)
    write_runs(store, "r1", "r2", "r3")
    files = sorted((Path(store.uri) / "runs.lance" / "data").iterdir(), key=lambda file: file.stat().st_mtime_ns)
    files[1].unlink()
    finding = state_of(store, "runs")
    assert finding.state == "lost"
    assert "no run makes its rows again. Restore the table from a backup, or run `capim store repair runs`" in (
        finding.detail
    )
    assert dict(repair_all(EmbeddingStore.open(store.uri))) == {
        "runs": "0 files restored, 1 removed with 1 rows; no run makes these again"
    }
    assert sorted(texts(EmbeddingStore.open(store.uri).rows("runs")["run"])) == ["r1", "r3"]
    assert state_of(store, "runs").state == "sound"


def test_with_a_changed_outcome_goes_its_whole_evaluation(store):
    for evaluation in ("e1", "e2"):
        rows = [{"evaluation": evaluation, "query_id": f"{evaluation}-{i}"} for i in range(30)]
        store.write_rows("outcomes", rows_of("outcomes", *rows))
    for file in (Path(store.uri) / "outcomes.lance" / "data").iterdir():
        file.write_bytes(file.read_bytes().replace(b"e2-17", b"e2-71"))
    fresh = EmbeddingStore.open(store.uri)
    assert repair(fresh, "outcomes") == (0, 1, 30)
    assert fresh.counts("outcomes", "evaluation") == {"e1": 30}


def test_of_a_corpus_that_cannot_be_read_only_the_corpus_is_to_be_repaired(sealed):
    store, key, _ = sealed
    for folder in Path(store.uri).glob(f"corpus-{key.modality}s-*"):
        for file in (folder / "data").iterdir():
            file.unlink()
    advice = {finding.what: finding.detail for finding in verify(EmbeddingStore.open(store.uri))}
    assert f"Run `capim store repair corpus-images-{key.corpus}" in advice[f"corpus {key.corpus}"]
    assert "Follow the advice for that corpus, or for table 'corpora'" in advice[key.table]
    assert "store repair" not in advice[key.table]


def test_a_damaged_corpus_is_written_again_and_its_embeddings_stay(sealed):
    store, key, _ = sealed
    before = read(store)
    (folder,) = Path(store.uri).glob("corpus-images-*")
    only_file(folder).write_bytes(b"")
    fresh = EmbeddingStore.open(store.uri)
    assert dict(repair_all(fresh)) == {folder.stem: "0 files restored, 1 removed with 300 rows"}
    assert {finding.state for finding in verify(EmbeddingStore.open(store.uri))} == {"sound", "incomplete"}
    fresh.write_corpus(make_corpus(300))
    assert {finding.state for finding in verify(EmbeddingStore.open(store.uri))} == {"sound"}
    assert len(fresh.missing(key, 300)) == 0
    np.testing.assert_array_equal(read(store).matrix, before.matrix)


def test_a_missing_tag_is_named_and_comes_back_with_the_next_seal(sealed):
    store, key, _ = sealed
    before = read(store)
    state = store.sealed(key)
    store.connection.find(key.table).tags.delete(state.tag)
    with pytest.raises(WorkError, match=rf"{state.tag}.*"):
        read(store)
    assert state_of(store, key.table).state == "damaged"
    again = EmbeddingStore.open(store.uri).seal(key, n_items=300)
    assert (again.tag, again.digest) == (state.tag, state.digest)
    np.testing.assert_array_equal(read(store).matrix, before.matrix)


def test_a_set_sealed_again_with_other_vectors_says_that_old_results_lost_their_source(sealed, caplog):
    store, key, folder = sealed
    shutil.rmtree(folder)
    shutil.rmtree(records(store, folder.stem))  # a backup without the set, and with the row that it is sealed
    fresh, spec = EmbeddingStore.open(store.uri), make_spec(dim=64)
    block = make_block(make_corpus(300), spec, range(300))
    block.embeddings.values[:] = np.roll(block.embeddings.values, 1, axis=0)
    assert fresh.put(key, spec, block) == 300
    before = store.sealed(key)
    assert fresh.seal(key, n_items=300).digest != before.digest
    assert f"now holds other vectors than {before.tag}" in caplog.text


def test_a_deleted_table_is_not_taken_for_an_empty_one(sealed):
    store, key, folder = sealed
    shutil.rmtree(folder)
    for words in (f"table '{folder.stem}': {folder} is missing", r"the table of set .* is missing"):
        fresh = EmbeddingStore.open(store.uri)
        with pytest.raises(WorkError, match=words):
            read(store)
        with pytest.raises(WorkError, match="missing"):
            fresh.seal(key, n_items=300)
        assert state_of(store, key.table).state == "damaged"
        shutil.rmtree(records(store, folder.stem), ignore_errors=True)  # the row of the set still says it
    assert drop(fresh, encoder="enc", dry_run=False).tables == (key.table,)
    assert len(fresh.missing(key, 300)) == 300


def test_a_copy_of_the_folder_is_a_backup(sealed, tmp_path):
    store, _, _ = sealed
    shutil.copytree(store.uri, tmp_path / "copy")
    copy = EmbeddingStore.open(tmp_path / "copy")
    assert {finding.state for finding in verify(copy)} == {"sound"}
    np.testing.assert_array_equal(
        copy.vectors(encoder="enc", corpus="toy", modality="image").matrix, read(store).matrix
    )


def test_a_changed_caption_is_noticed_by_verify(store):
    corpus = make_corpus(50)
    store.write_corpus(corpus)
    file = only_file(store.connection.folder(f"corpus-captions-toy-{corpus.fingerprint}"))
    data = file.read_bytes()
    file.write_bytes(data.replace(b"en text 17 1", b"en text 17 9", 1))
    finding = state_of(store, "corpus toy")
    assert finding.state == "damaged"
    assert f"{file} was changed on disk" in finding.detail
    with pytest.raises(WorkError, match=f"{file} was changed on disk"):
        EmbeddingStore.open(store.uri).corpus("toy")


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 3 MB, as a function that can also make it read-only."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", place], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small tmpfs needs root")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_full_disk_keeps_what_was_written_and_the_next_run_goes_on(small_disk):
    corpus, spec = make_corpus(4000), make_spec(dim=512)
    store = EmbeddingStore.open(small_disk / "store", create=True)
    store.write_corpus(corpus)
    store.write_encoder(spec)
    key = make_key(corpus, spec)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(1_500_000))
    written = 0
    with pytest.raises(WorkError, match=r"No space left on device.*free space and run the same command again"):
        for start in range(0, 4000, 200):
            written += store.put(key, spec, make_block(corpus, spec, range(start, start + 200)))
    assert 0 < written < 4000
    fresh = EmbeddingStore.open(small_disk / "store")
    assert len(fresh.missing(key, 4000)) == 4000 - written
    partial = fresh.vectors(encoder="enc", corpus="toy", modality="image", partial=True)
    assert len(partial) == written
    ballast.unlink()
    assert fresh.put(key, spec, make_block(corpus, spec, range(written, written + 200))) == 200
    assert "damaged" not in {finding.state for finding in verify(fresh)}


def test_too_small_a_disk_is_refused_before_the_encode(small_disk):
    store = EmbeddingStore.open(small_disk / "store", create=True)
    assert check_disk_space(store, make_spec(dim=512), 100) == int(100 * (2048 + 120) * 1.3)
    with pytest.raises(WorkError, match=r"1000000 items by 'enc' need about 2.82 GB, .* has 0.00 GB free"):
        check_disk_space(store, make_spec(dim=512), 1_000_000)


READ_ONLY = """
import sys
from capim.store import EmbeddingStore, WorkError
store = EmbeddingStore.open(sys.argv[1])
print(len(store.vectors(encoder="enc", corpus="toy", modality="image")))
try:
    store.write_encoder(store.encoder("enc").__class__(**{**vars(store.encoder("enc")), "revision": "r9"}))
except WorkError as fault:
    print(fault)
"""


def test_a_read_only_folder_can_be_read_and_says_so_when_written(small_disk):
    store = EmbeddingStore.open(small_disk / "store", create=True)
    fill(store, make_corpus(20), make_spec())
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    done = subprocess.run(
        [sys.executable, "-c", READ_ONLY, store.uri],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    lines = done.stdout.splitlines()
    assert lines[0] == "20"
    assert "Read-only file system" in lines[1]
    assert "check its owner and mode" in lines[1]


def break_manifest(folder: Path) -> Path:
    """Changes the place of the contents in the newest version of a table so that Lance panics when it opens it."""
    manifest = min((folder / "_versions").iterdir())
    data = bytearray(manifest.read_bytes())
    data[-16:-8] = (len(data) - 16).to_bytes(8, "little")
    manifest.write_bytes(data)
    return manifest


@pytest.mark.parametrize("copied", [True, False])
def test_a_flipped_byte_in_a_manifest_is_an_error_with_the_file_and_the_command_that_heals(store, capfd, copied):
    """Lance panics; a panic is no ``Exception``, so that every command ended with a traceback."""
    write_runs(store, "r1", "r2", "r3")
    manifest = break_manifest(Path(store.uri) / "runs.lance")
    with pytest.raises(WorkError, match=r"was changed on disk.*capim store repair runs") as caught:
        EmbeddingStore.open(store.uri).rows("runs")
    assert str(manifest) in str(caught.value)
    assert "panicked" not in capfd.readouterr().err, "Lance does not come to read it"
    finding = state_of(store, "runs")
    assert finding.state == "damaged"
    assert "capim store repair runs" in finding.detail
    fresh = EmbeddingStore.open(store.uri)
    if not copied:
        shutil.rmtree(records(store, "runs"))
        with pytest.raises(WorkError, match=r"digests/runs is missing"):
            EmbeddingStore.open(store.uri).rows("runs")
        assert state_of(store, "runs").state == "damaged"
    assert repair(fresh, "runs", accept=not copied) == ((1, 0, 0) if copied else (0, 1, 0))
    kept = ["r1", "r2", "r3"] if copied else ["r1", "r2"]
    assert sorted(texts(fresh.rows("runs")["run"])) == kept
    assert state_of(store, "runs").state == "sound"
    write_runs(fresh, "r3")
    assert sorted(texts(EmbeddingStore.open(store.uri).rows("runs")["run"])) == ["r1", "r2", "r3"]


def test_a_deleted_newest_version_is_not_taken_for_the_one_before(store):
    write_runs(store, "r1", "r2")
    manifest = min((Path(store.uri) / "runs.lance" / "_versions").glob("*.manifest"))
    manifest.unlink()
    with pytest.raises(WorkError, match=f"{manifest} is missing.*capim store repair runs"):
        EmbeddingStore.open(store.uri).rows("runs")
    with pytest.raises(WorkError, match=f"{manifest} is missing"):
        write_runs(EmbeddingStore.open(store.uri), "r3")
    assert state_of(store, "runs").state == "damaged"
    assert repair(EmbeddingStore.open(store.uri), "runs") == (1, 0, 0)
    assert sorted(texts(EmbeddingStore.open(store.uri).rows("runs")["run"])) == ["r1", "r2"]


def test_a_commit_whose_record_was_never_written_is_no_damage(store, monkeypatch):
    """A process was killed in between, or the disk was full: whoever opens the table next writes it."""
    write_runs(store, "r1")
    with monkeypatch.context() as killed:
        killed.setattr("capim.store.digests.Digests._record", lambda *_, **__: (_ for _ in ()).throw(OSError("full")))
        write_runs(store, "r2")
    folder = Path(store.uri) / "runs.lance"
    before = {path.name for path in records(store, "runs").iterdir()}
    assert sorted(texts(EmbeddingStore.open(store.uri).rows("runs")["run"])) == ["r1", "r2"]
    assert {path.name for path in records(store, "runs").iterdir()} != before
    min((folder / "_versions").glob("*.manifest")).unlink()
    with pytest.raises(WorkError, match="manifest is missing"):
        EmbeddingStore.open(store.uri).rows("runs")


def test_files_that_go_with_their_version_while_they_are_listed_are_no_damage(store, monkeypatch):
    """Another process compacts: of an old version, data files are gone, its manifest is still listed, then is not."""
    write_runs(store, "r1")
    write_runs(store, "r2")
    (old,) = records(store, "runs").iterdir()
    record = old.read_bytes()
    compact(store.connection, "runs", free=False)
    old.write_bytes(record)  # by a process that was slower
    (new,) = {*old.parent.iterdir()} - {old}
    gone = {*json.loads(record)["files"]} - {*json.loads(new.read_bytes())["files"]}
    sizes, listings = TableFiles.sizes, []

    def midway(files: TableFiles, name: str, folder: str = "") -> dict[str, int]:
        listings.extend([name] if not folder else [])
        missing = {path for path in gone if len(listings) > 2 or path.startswith("data/")}
        return {path: size for path, size in sizes(files, name, folder).items() if path not in missing}

    monkeypatch.setattr(TableFiles, "sizes", midway)
    assert EmbeddingStore.open(store.uri).connection.digests.faults("runs") == []
    assert len(listings) == 3


def test_what_stays_missing_is_waited_for_once(store, monkeypatch):
    """Every embedding set reads the register of corpora: with each of them `capim store verify` waited anew."""
    pauses: list[float] = []
    monkeypatch.setattr("capim.store.digests.time.sleep", pauses.append)
    write_runs(store, "r1", "r2", "r3")
    folder = Path(store.uri) / "runs.lance" / "data"
    first, second, third = ((file, file.read_bytes()) for file in folder.iterdir())
    digests = EmbeddingStore.open(store.uri).connection.digests

    def waits(*files: tuple[Path, bytes]) -> bool:
        pauses.clear()
        faults = digests.faults("runs")
        assert {fault.path for fault in faults} == {f"data/{file.name}" for file, _ in files}
        return bool(pauses)

    first[0].unlink()
    assert [waits(first), waits(first)] == [True, False]
    second[0].unlink()
    assert [waits(first, second), waits(first, second)] == [True, False], "a further file"
    first[0].write_bytes(first[1])
    assert not waits(second)
    second[0].write_bytes(second[1])
    assert not waits()
    third[0].unlink()
    assert waits(third)


def test_folders_that_come_and_go_while_they_are_listed_are_no_fault(tmp_path):
    """Another process has just made a table, or removes an index: its folders are there at one moment only."""
    folder = tmp_path / "runs.lance" / "_refs"
    folder.parent.mkdir()
    program = "import os, sys\nwhile True: os.mkdir(sys.argv[1]); os.rmdir(sys.argv[1])"
    other = subprocess.Popen([sys.executable, "-c", program, str(folder)])
    try:
        end = time.monotonic() + 2
        while time.monotonic() < end:
            assert TableFiles(str(tmp_path)).sizes("runs", "_refs") == {}
            assert TableFiles(str(tmp_path)).sizes("runs") == {}
    finally:
        other.kill()
        other.wait()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda file: file.unlink(), "digests/runs is missing"),
        (lambda file: shutil.rmtree(file.parent), "digests/runs is missing"),
        (lambda file: shutil.rmtree(file.parent.parent), "digests/runs is missing"),
        (lambda file: file.write_bytes(bytes(20)), r"digests/runs/\d-\w+.json was changed on disk"),
    ],
)
@pytest.mark.parametrize("two_faults", [False, True])
def test_a_table_without_its_record_is_damage_until_a_user_accepts_it(store, damage, words, two_faults):
    """The next opening wrote a record of what it found, and wrong bytes were sound from then on."""
    write_runs(store, "r1", "r2")
    write_runs(store, "r3")
    writing = EmbeddingStore.open(store.uri)
    assert writing.rows("runs").num_rows == 3
    (record,) = records(store, "runs").iterdir()
    damage(record)
    if two_faults:
        for file in (Path(store.uri) / "runs.lance" / "data").iterdir():
            file.write_bytes(file.read_bytes().replace(b"completed r2", b"completed r7"))
    left = {path: path.read_bytes() for path in records(store, "runs").rglob("*")}
    for _ in range(2):
        with pytest.raises(WorkError, match=rf"{words}.*capim store repair runs --accept"):
            EmbeddingStore.open(store.uri).rows("runs")
        with pytest.raises(WorkError, match=words):
            write_runs(EmbeddingStore.open(store.uri), "r4")
        finding = state_of(store, "runs")
        assert finding.state == "damaged"
        assert re.search(rf"{words}.*capim store repair runs --accept", finding.detail)
    with pytest.raises(WorkError, match=words):
        repair(EmbeddingStore.open(store.uri), "runs")
    with pytest.raises(WorkError, match=words):
        compact(writing.connection, "runs", free=False)
    assert {path: path.read_bytes() for path in records(store, "runs").rglob("*")} == left, "nothing recorded anew"
    if "missing" in words:
        with pytest.raises(WorkError, match=words):  # a process that compared the record before finds it gone
            write_runs(writing, "r4")
    assert state_of(store, "runs").state == "damaged"
    repair(EmbeddingStore.open(store.uri), "runs", accept=True)
    assert state_of(store, "runs").state == "sound"
    assert EmbeddingStore.open(store.uri).rows("runs").num_rows == (4 if "missing" in words else 3)


def test_a_process_that_read_a_record_before_it_was_changed_writes_the_next_from_what_it_read(store):
    write_runs(store, "r1", "r2")
    (record,) = records(store, "runs").iterdir()
    record.write_bytes(bytes(20))
    for file in (Path(store.uri) / "runs.lance" / "data").iterdir():
        file.write_bytes(file.read_bytes().replace(b"completed r2", b"completed r7"))
    with pytest.raises(WorkError, match=r"data/\w+.lance was changed on disk.*capim store repair runs`,"):
        write_runs(store, "r3")
        EmbeddingStore.open(store.uri).rows("runs")
    assert repair(EmbeddingStore.open(store.uri), "runs") == (1, 0, 0)
    assert "completed r2" in texts(EmbeddingStore.open(store.uri).rows("runs")["state"])


def test_the_record_of_an_append_holds_what_the_process_before_wrote_not_what_the_disk_has(store):
    """The files of another process were digested again, as they were then."""
    write_runs(store, "r1")
    write_runs(EmbeddingStore.open(store.uri), "r2")
    for file in (Path(store.uri) / "runs.lance" / "data").iterdir():
        file.write_bytes(file.read_bytes().replace(b"completed r2", b"completed r7"))
    table = store.connection.open("runs")
    store.connection.append(table, [lambda: table.to_table(filter="run = 'r1'").to_batches()[0]])
    with pytest.raises(WorkError, match=r"was changed on disk"):
        EmbeddingStore.open(store.uri).rows("runs")


@pytest.mark.parametrize(
    "name", ["runs", "formats", "sets", "encoders", "corpora", "results", "single", "corpus-images"]
)
def test_a_table_that_was_removed_is_missing_and_never_made_anew_in_silence(sealed, name):
    store, _, _ = sealed
    write_runs(store, "r1")
    store.write_rows("results", rows_of("results", {"image_tag": "", "caption_tag": ""}))
    before, rows = read(store), {table: store.rows(table) for table in ("runs", "results")}
    (folder,) = Path(store.uri).glob(f"{name}*.lance")
    shutil.rmtree(folder)
    fresh = EmbeddingStore.open(store.uri)
    with pytest.raises(WorkError, match=rf"table '{folder.stem}': {folder} is missing.*capim store repair"):
        fresh.connection.find(folder.stem)
    with pytest.raises(WorkError, match=f"{folder} is missing"):
        merge(fresh.connection, folder.stem, rows["runs"], update=False)
    with pytest.raises(WorkError, match="is missing"):
        if store.connection.find(folder.stem) is None:  # by an object that had it open
            raise AssertionError
    assert not folder.exists()
    found = [check for check in verify(EmbeddingStore.open(store.uri)) if check.state in ("damaged", "lost")]
    assert any(f"{folder} is missing" in check.detail for check in found)
    done = dict(repair_all(EmbeddingStore.open(store.uri)))
    assert folder.stem in done
    if name in COPIED:  # the record has a copy of them
        assert {check.state for check in verify(EmbeddingStore.open(store.uri))} == {"sound"}
        assert EmbeddingStore.open(store.uri).rows("runs").equals(rows["runs"])
        np.testing.assert_array_equal(read(store).matrix, before.matrix)
    else:
        assert {check.state for check in verify(EmbeddingStore.open(store.uri))} <= {"sound", "incomplete"}


def test_tables_whose_folders_were_exchanged_are_damage(store):
    keys = [fill(store, make_corpus(20), make_spec(revision=revision)) for revision in ("r1", "r2")]
    one, other = (store.connection.folder(key.table) for key in keys)
    one.rename(one.with_name("aside"))
    other.rename(one)
    one.with_name("aside").rename(other)
    states = {check.what: check.state for check in verify(EmbeddingStore.open(store.uri))}
    assert [states[folder.stem] for folder in (one, other)] == ["damaged", "damaged"]
    with pytest.raises(WorkError, match="is missing"):
        read(store)


def test_compaction_does_not_give_damaged_rows_new_digests(store):
    corpus, spec, key = begin(store, 30)
    for start in (0, 10, 20):
        store.put(key, spec, make_block(corpus, spec, range(start, start + 10)))
    for file in (store.connection.folder(key.table) / "data").iterdir():
        file.write_bytes(file.read_bytes().replace(b"abab", b"abac"))
    with pytest.raises(WorkError, match=rf"was changed on disk.*capim store repair {key.table}"):
        EmbeddingStore.open(store.uri).seal(key, n_items=30)
    assert repair(EmbeddingStore.open(store.uri), key.table).rows == 30


def test_no_table_with_a_damaged_manifest_stops_the_check_of_the_store(sealed):
    store, key, folder = sealed
    for damaged in (folder, *(Path(store.uri) / f"{name}.lance" for name in ("formats", "sets", "encoders"))):
        before = min((damaged / "_versions").iterdir()).read_bytes()
        manifest = break_manifest(damaged)
        finding = state_of(store, damaged.stem)
        assert finding.state == "damaged"
        assert str(manifest) in finding.detail
        if damaged == folder:
            assert repair(EmbeddingStore.open(store.uri), key.table).rows == 0
        else:
            assert repair(EmbeddingStore.open(store.uri), damaged.stem) == (1, 0, 0)
        assert manifest.read_bytes() == before
        assert state_of(store, damaged.stem).state == "sound"


@pytest.mark.parametrize(
    "spec",
    [
        lambda spec: spec.replace('"dim":64', '"dim":65'),
        lambda spec: spec.replace('"revision":"r1"', '"revision":"main"'),
        lambda spec: spec.replace('"name":"enc"', '"name":"end"'),
        lambda spec: spec.replace('"dim"', '"dam"'),
        lambda spec: spec[:-1],
    ],
)
def test_a_changed_spec_of_an_encoder_is_found_and_healed(sealed, spec):
    """It passed the check, and then every command ended with an error about something else."""
    store, key, _ = sealed
    table = store.connection.find("encoders")
    before = texts(store.encoders()["spec"])[0]
    assert spec(before) != before
    table.update({"spec": "'" + spec(before) + "'"})
    with pytest.raises(WorkError, match=r"name 'enc', fingerprint '\w{16}'.*capim store repair encoders"):
        EmbeddingStore.open(store.uri).encoder("enc")
    finding = state_of(store, "encoders")
    assert finding.state == "damaged"
    assert "capim store repair encoders" in finding.detail
    assert repair(EmbeddingStore.open(store.uri), "encoders") == (0, 0, 1)
    store.write_encoder(make_spec(dim=64))
    assert EmbeddingStore.open(store.uri).encoder("enc").fingerprint == key.encoder_fingerprint
    assert {finding.state for finding in verify(store)} == {"sound"}


@pytest.mark.parametrize("folder", ["Fotos für José", "a#b", "100%25", "a?b", "a[b]", "a*b", "~me", "a b"])
def test_a_store_writes_nothing_beside_itself_whatever_its_path(tmp_path: Path, folder: str) -> None:
    """Lance wrote the tags of sealed sets to a folder with a percent-encoded name beside it."""
    store = EmbeddingStore.open(tmp_path / folder / "store", create=True)
    key = fill(store, make_corpus(60), make_spec(dim=64), step=20)
    assert [path.name for path in tmp_path.iterdir()] == [folder]
    moved = tmp_path / "moved"
    (tmp_path / folder).rename(moved)
    fresh = EmbeddingStore.open(moved / "store")
    assert fresh.sealed(key) is not None
    assert {finding.state for finding in verify(fresh)} == {"sound"}
    moved.rename(tmp_path / folder)
    again = EmbeddingStore.open(tmp_path / folder / "store")
    assert again.vectors(encoder="enc", corpus="toy", modality="image").matrix.shape == (60, 64)
    assert sum(compact_store(again).values()) >= 0
    assert drop(again, encoder="enc", dry_run=False).done
    assert [path.name for path in tmp_path.iterdir()] == [folder]
