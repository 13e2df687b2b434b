"""What disks and people do to a store is noticed and named; a silently wrong vector never comes back."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from capim.store import EmbeddingStore, RequestError, WorkError
from capim.store.connection import compact
from capim.store.digests import COPIED, Digests, TableFiles
from capim.store.integrity import repair, repair_all, verify
from capim.store.inventory import check_disk_space
from capim.store.removal import compact_store, drop, drop_set
from capim.store.rows import merge
from capim.store.schema import texts
from tests.command import Printed, command
from tests.random_store import rows_of
from tests.store.toy import begin, fill, make_block, make_corpus, make_embeddings, make_key, make_spec, states

pytestmark = pytest.mark.usefixtures("no_pauses")


@pytest.fixture(scope="module")
def ground(tmp_path_factory):
    """A store with a sealed dense set, which no test changes."""
    store = EmbeddingStore.open(tmp_path_factory.mktemp("ground") / "store", create=True)
    return store.uri, fill(store, make_corpus(300), make_spec(dim=64), step=100)


@pytest.fixture
def sealed(ground, tmp_path):
    """A copy of it: the store, the key of the set and the folder of its table."""
    uri, key = ground
    store = EmbeddingStore.open(shutil.copytree(uri, tmp_path / "store"))
    return store, key, store.connection.folder(key.table)


def again(store):
    """The store as another process opens it."""
    return EmbeddingStore.open(store.uri)


def read(store):
    return again(store).vectors(encoder="enc", corpus="toy", modality="image")


def data_files(store, name: str) -> list[Path]:
    """The data files of a table, oldest first."""
    return sorted((store.connection.folder(name) / "data").iterdir(), key=lambda file: file.stat().st_mtime_ns)


def only_file(folder: Path) -> Path:
    (file,) = (folder / "data").iterdir()
    return file


def flip(file: Path, values: np.ndarray, at: int, bit: int = 0x10) -> None:
    """Flips a bit of stored components, at this byte of them."""
    data = bytearray(file.read_bytes())
    data[data.index(values.tobytes()) + at] ^= bit
    file.write_bytes(data)


def change(store, name: str, old: bytes, new: bytes) -> None:
    """Other bytes in all data files of a table."""
    for file in data_files(store, name):
        file.write_bytes(file.read_bytes().replace(old, new))


def records(store, name: str) -> Path:
    """The folder of the records of a table's digests."""
    return Path(store.uri) / "digests" / name


def expect(store, name: str, state: str, *words: str) -> str:
    """Compares what `store verify` says of a table or a corpus with a state and some words; gives the whole detail."""
    (check,) = (check for check in verify(again(store)) if check.what == name)
    assert check.state == state
    assert all(each in check.detail for each in words), check.detail
    return str(check.detail)


def capim(words: str, store, code: int = 0) -> Printed:
    """Runs ``capim store WORDS``; it has to end with this exit code."""
    return command(f"store {words}", Path(store.uri).parent, code=code)


@pytest.mark.parametrize("vectors", ["single", "multi"])
def test_a_flipped_byte_in_a_vector_is_named_with_its_item(store, vectors):
    spec = make_spec(dim=64, vectors=vectors)
    key = fill(store, make_corpus(150), spec)
    flip(only_file(store.connection.folder(key.table)), make_embeddings([123], spec).values.astype(spec.storage), 9)
    words = r"checksum mismatch in 1 rows \(changed on disk\), first items 'i00123'"
    with pytest.raises(WorkError, match=words):
        if vectors == "single":
            read(store)
        else:
            list(again(store).multivectors(encoder="enc", corpus="toy", modality="image"))
    with pytest.raises(WorkError, match=words):
        list(again(store).stored_blocks(key))
    expect(store, key.table, "damaged", "'i00123'", f"Run `capim store repair {key.table}`")


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
            found = read(store)
        except (WorkError, RequestError):
            noticed += 1
        else:
            assert found.ids == good.ids
            np.testing.assert_array_equal(found.matrix, good.matrix)
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
    assert "store verify" not in expect(store, key.table, "damaged", f"capim store repair {key.table}")
    expect(store, "sets", "sound")


def embed_again(store, key):
    """What `capim embed` does; returns how many items were encoded."""
    missing = store.missing(key, 300)
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
    for position in (7, 123):
        flip(only_file(folder), make_embeddings([position], spec).values, 60)
    fresh = again(store)
    assert repair(fresh, key.table).rows == 20
    batches = [*range(10), *range(120, 130)]
    assert fresh.missing(key, 300).tolist() == batches
    assert writing.missing().tolist() == batches, "a writer that was there before sees it too"
    assert embed_again(fresh, key) == 20
    np.testing.assert_array_equal(read(store).matrix, before.matrix)
    sealed = fresh.sealed(key)
    assert sealed is not None
    assert sealed.digest == state.digest
    assert "damaged" not in states(store)


def test_the_record_of_an_append_is_that_of_the_version_before_and_its_own_files(store, monkeypatch):
    corpus, spec, key = begin(store, 50)
    blocks = [make_block(corpus, spec, range(start, start + 10)) for start in range(0, 50, 10)]
    store.put(key, spec, blocks[0])
    with monkeypatch.context() as counted:
        counted.setattr("capim.store.digests.Digests._paths", lambda *_: pytest.fail("lists every fragment"))
        store.put(key, spec, blocks[1])
    again(store).put(key, spec, blocks[2])  # a version that the first process does not know
    store.put(key, spec, blocks[3])
    (record,) = records(store, key.table).iterdir()
    written = json.loads(record.read_bytes())
    store.connection.digests.record(key.table, store.connection.find(key.table), anew=True)
    assert json.loads(record.read_bytes()) == written
    assert len([path for path in written["files"] if path.startswith("data/")]) == 4
    drop_set(again(store), key)
    for block in blocks[:4]:  # until it has the version that the first process knows
        again(store).put(key, spec, block)
    store.put(key, spec, blocks[4])
    assert again(store).connection.digests.faults(key.table) == [], "none of the old files"


@pytest.mark.parametrize("damage", [lambda file: file.unlink(), lambda file: file.write_bytes(b"x" * 100)])
def test_after_a_repair_the_rows_of_a_lost_file_are_made_again(store, damage):
    corpus, spec, key = begin(store, 300, dim=64)
    for start in (0, 100, 200):
        store.put(key, spec, make_block(corpus, spec, range(start, start + 100)))
    files = data_files(store, key.table)
    damage(files[1])
    fresh = again(store)
    assert repair(fresh, key.table).rows == 100
    assert fresh.missing(key, 300).tolist() == list(range(100, 200))
    assert embed_again(fresh, key) == 100
    assert states(store) == {"sound"}


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
    files = data_files(store, "runs")
    damage(files[1])
    fresh = again(store)
    with pytest.raises(WorkError, match=rf"{files[1]} {words}.*capim store repair runs"):
        fresh.rows("runs")
    expect(store, "runs", "damaged", f"{files[1]} {words}", "capim store repair runs")
    assert repair(fresh, "runs") == (1, 0, 0)
    assert repair(fresh, "runs") == (0, 0, 0)
    assert sorted(texts(fresh.rows("runs")["state"])) == ["completed r1", "completed r2", "completed r3"]
    expect(store, "runs", "sound")
    with pytest.raises(RequestError, match="no table 'rums' to repair; the tables are batches,"):
        repair(fresh, "rums")


def test_history_of_which_there_is_no_copy_is_lost_and_the_rest_stays(store, monkeypatch):
    monkeypatch.setattr("capim.store.digests._COPIED_BYTES", 0)
    write_runs(store, "r1", "r2", "r3")
    files = data_files(store, "runs")
    files[1].unlink()
    advice = "no run makes its rows again. Restore the table from a backup, or run `capim store repair runs`"
    expect(store, "runs", "lost", advice)
    done = "0 files restored, 1 removed with 1 rows; no run makes these again"
    assert dict(repair_all(again(store))) == {"runs": done}
    assert sorted(texts(again(store).rows("runs")["run"])) == ["r1", "r3"]
    expect(store, "runs", "sound")


def test_with_a_changed_outcome_goes_its_whole_evaluation(store):
    for evaluation in ("e1", "e2"):
        rows = [{"evaluation": evaluation, "query_id": f"{evaluation}-{i}"} for i in range(30)]
        store.write_rows("outcomes", rows_of("outcomes", *rows))
    change(store, "outcomes", b"e2-17", b"e2-71")
    fresh = again(store)
    assert repair(fresh, "outcomes") == (0, 1, 30)
    assert fresh.counts("outcomes", "evaluation") == {"e1": 30}


@pytest.mark.parametrize("damage", [lambda file: file.unlink(), lambda file: file.write_bytes(b"")])
def test_of_a_corpus_that_cannot_be_read_only_the_corpus_is_repaired_and_its_embeddings_stay(sealed, damage):
    store, key, _ = sealed
    before = read(store)
    (folder,) = Path(store.uri).glob("corpus-images-*")
    damage(only_file(folder))
    fresh = again(store)
    expect(store, "corpus toy", "damaged", f"Run `capim store repair {folder.stem}`")
    advice = expect(store, key.table, "incomplete", "Follow the advice for that corpus, or for table 'corpora'")
    assert "store repair" not in advice
    assert dict(repair_all(fresh)) == {folder.stem: "0 files restored, 1 removed with 300 rows"}
    assert states(store) == {"sound", "incomplete"}
    fresh.write_corpus(make_corpus(300))
    assert states(store) == {"sound"}
    assert len(fresh.missing(key, 300)) == 0
    np.testing.assert_array_equal(read(store).matrix, before.matrix)


def test_a_missing_tag_is_named_and_comes_back_with_the_next_seal(sealed):
    store, key, _ = sealed
    before = read(store)
    state = store.sealed(key)
    store.connection.find(key.table).tags.delete(state.tag)
    with pytest.raises(WorkError, match=rf"{state.tag}.*"):
        read(store)
    expect(store, key.table, "damaged")
    sealed_again = again(store).seal(key, n_items=300)
    assert (sealed_again.tag, sealed_again.digest) == (state.tag, state.digest)
    np.testing.assert_array_equal(read(store).matrix, before.matrix)


def test_a_set_sealed_again_with_other_vectors_says_that_old_results_lost_their_source(sealed, caplog):
    store, key, _ = sealed
    store.connection.drop(key.table)  # and not the row that it is sealed
    fresh, spec = again(store), make_spec(dim=64)
    block = make_block(make_corpus(300), spec, range(300))
    block.embeddings.values[:] = np.roll(block.embeddings.values, 1, axis=0)
    assert fresh.put(key, spec, block) == 300
    before = store.sealed(key)
    assert fresh.seal(key, n_items=300).digest != before.digest
    assert f"now holds other vectors than {before.tag}" in caplog.text


def test_a_set_whose_table_and_record_are_gone_is_missing_until_it_is_dropped(sealed):
    store, key, folder = sealed
    for gone in (folder, records(store, folder.stem)):
        shutil.rmtree(gone)
        with pytest.raises(WorkError, match="missing"):
            read(store)
        with pytest.raises(WorkError, match="missing"):
            again(store).seal(key, n_items=300)
    expect(store, key.table, "damaged")
    assert drop(again(store), encoder="enc", dry_run=False).tables == (key.table,)
    assert len(again(store).missing(key, 300)) == 300


def test_a_changed_caption_is_noticed_by_verify(store):
    corpus = make_corpus(50)
    store.write_corpus(corpus)
    name = f"corpus-captions-toy-{corpus.fingerprint}"
    change(store, name, b"en text 17 1", b"en text 17 9")
    (file,) = data_files(store, name)
    expect(store, "corpus toy", "damaged", f"{file} was changed on disk")
    with pytest.raises(WorkError, match=f"{file} was changed on disk"):
        again(store).corpus("toy")


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
    ballast.unlink()
    assert fresh.put(key, spec, make_block(corpus, spec, range(written, written + 200))) == 200
    assert "damaged" not in states(store)


def test_too_small_a_disk_is_refused_before_the_encode(small_disk):
    store = EmbeddingStore.open(small_disk / "store", create=True)
    assert check_disk_space(store, make_spec(dim=512), 100) == int(100 * (2048 + 120) * 1.3)
    with pytest.raises(WorkError, match=r"1000000 items by 'enc' need about 2.82 GB, .* has 0.00 GB free"):
        check_disk_space(store, make_spec(dim=512), 1_000_000)


def test_a_read_only_folder_can_be_read_and_says_so_when_written(small_disk):
    store = EmbeddingStore.open(small_disk / "store", create=True)
    fill(store, make_corpus(20), make_spec())
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    assert len(read(store)) == 20
    with pytest.raises(WorkError, match=r"Read-only file system.*check its owner and mode"):
        again(store).write_encoder(make_spec(revision="r9"))


def break_manifest(folder: Path) -> Path:
    """Changes the place of the contents in the newest version of a table so that Lance panics when it opens it."""
    manifest = min((folder / "_versions").iterdir())
    data = bytearray(manifest.read_bytes())
    data[-16:-8] = (len(data) - 16).to_bytes(8, "little")
    manifest.write_bytes(data)
    return manifest


@pytest.mark.parametrize("name", ["single", "formats", "sets", "encoders"])
def test_a_damaged_manifest_is_an_error_with_the_file_and_the_command_that_heals(sealed, name, capfd):
    """Lance panics; a panic is no ``Exception``, so that every command ended with a traceback."""
    store, _, _ = sealed
    (folder,) = Path(store.uri).glob(f"{name}*.lance")
    before = min((folder / "_versions").iterdir()).read_bytes()
    manifest = break_manifest(folder)
    with pytest.raises(WorkError, match=rf"{manifest} was changed on disk.*capim store repair {folder.stem}"):
        store.connection.digests.forget(folder.stem) or store.connection.find(folder.stem)
    expect(store, folder.stem, "damaged", str(manifest), f"capim store repair {folder.stem}")
    assert "panicked" not in capfd.readouterr().err, "Lance does not come to read it"
    assert repair(again(store), folder.stem) == (1, 0, 0)
    assert manifest.read_bytes() == before
    expect(store, folder.stem, "sound")


def test_of_a_damaged_manifest_without_a_copy_the_version_before_is_the_newest(store):
    write_runs(store, "r1", "r2", "r3")
    break_manifest(Path(store.uri) / "runs.lance")
    shutil.rmtree(records(store, "runs"))
    with pytest.raises(WorkError, match=r"digests/runs is missing"):
        again(store).rows("runs")
    expect(store, "runs", "damaged")
    assert repair(again(store), "runs", accept=True) == (0, 1, 0)
    assert sorted(texts(again(store).rows("runs")["run"])) == ["r1", "r2"]
    expect(store, "runs", "sound")
    write_runs(again(store), "r3")
    assert sorted(texts(again(store).rows("runs")["run"])) == ["r1", "r2", "r3"]


@pytest.mark.parametrize("a_folder_is_there", [False, True])
def test_a_deleted_newest_version_is_not_taken_for_the_one_before(store, a_folder_is_there):
    write_runs(store, "r1", "r2")
    manifest = min((Path(store.uri) / "runs.lance" / "_versions").glob("*.manifest"))
    manifest.unlink()
    if a_folder_is_there:
        (manifest / "inside").mkdir(parents=True)
    with pytest.raises(WorkError, match=f"{manifest} is missing.*capim store repair runs"):
        again(store).rows("runs")
    with pytest.raises(WorkError, match=f"{manifest} is missing"):
        write_runs(again(store), "r3")
    expect(store, "runs", "damaged")
    assert dict(repair_all(again(store))) == {"runs": "1 files restored, 0 removed with 0 rows"}
    assert sorted(texts(again(store).rows("runs")["run"])) == ["r1", "r2"]


def test_a_commit_whose_record_was_never_written_is_no_damage(store, monkeypatch):
    """A process was killed in between, or the disk was full: whoever opens the table next writes it."""
    write_runs(store, "r1")
    with monkeypatch.context() as killed:
        killed.setattr("capim.store.digests.Digests._record", lambda *_, **__: (_ for _ in ()).throw(OSError("full")))
        write_runs(store, "r2")
    folder = Path(store.uri) / "runs.lance"
    before = {path.name for path in records(store, "runs").iterdir()}
    assert sorted(texts(again(store).rows("runs")["run"])) == ["r1", "r2"]
    assert {path.name for path in records(store, "runs").iterdir()} != before
    min((folder / "_versions").glob("*.manifest")).unlink()
    with pytest.raises(WorkError, match="manifest is missing"):
        again(store).rows("runs")


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
    assert again(store).connection.digests.faults("runs") == []
    assert len(listings) == 3


def test_what_stays_missing_is_waited_for_once(store, monkeypatch):
    """Every embedding set reads the register of corpora: with each of them `capim store verify` waited anew."""
    pauses: list[float] = []
    monkeypatch.setattr("capim.store.digests.time.sleep", pauses.append)
    write_runs(store, "r1", "r2", "r3")
    folder = Path(store.uri) / "runs.lance" / "data"
    first, second, third = ((file, file.read_bytes()) for file in folder.iterdir())
    digests = again(store).connection.digests

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
    writing = again(store)
    assert writing.rows("runs").num_rows == 3
    (record,) = records(store, "runs").iterdir()
    damage(record)
    if two_faults:
        change(store, "runs", b"completed r2", b"completed r7")
    left = {path: path.read_bytes() for path in records(store, "runs").rglob("*")}
    for _ in range(2):
        with pytest.raises(WorkError, match=rf"{words}.*capim store repair runs --accept"):
            again(store).rows("runs")
        with pytest.raises(WorkError, match=words):
            write_runs(again(store), "r4")
        assert re.search(rf"{words}.*capim store repair runs --accept", expect(store, "runs", "damaged"))
    with pytest.raises(WorkError, match=words):
        repair(again(store), "runs")
    with pytest.raises(WorkError, match=words):
        compact(writing.connection, "runs", free=False)
    assert {path: path.read_bytes() for path in records(store, "runs").rglob("*")} == left, "nothing recorded anew"
    if "missing" in words:
        with pytest.raises(WorkError, match=words):  # a process that compared the record before finds it gone
            write_runs(writing, "r4")
    expect(store, "runs", "damaged")
    repair(again(store), "runs", accept=True)
    expect(store, "runs", "sound")
    assert again(store).rows("runs").num_rows == (4 if "missing" in words else 3)


def test_a_table_that_others_write_to_whenever_its_record_is_read_is_not_behind_the_root(store, monkeypatch):
    """Four suites at once: "digests/derived is of version 452, the newest is version 461: it is an older copy"."""
    write_runs(store, "r0")
    reading, writing, records, n_written = again(store), again(store), Digests._records, 0

    def written_to(digests: Digests, name: str) -> object:
        nonlocal n_written
        found = records(digests, name)
        if digests is reading.connection.digests and name == "runs":
            n_written += 1
            write_runs(writing, f"r{n_written}")
        return found

    monkeypatch.setattr(Digests, "_records", written_to)
    reading.connection.digests.root.entries(fresh=True)
    assert reading.rows("runs").num_rows >= 2
    assert not reading.connection.digests.faults("runs")
    assert n_written >= 2


def test_a_file_that_another_process_removes_while_it_is_read_is_looked_for_again(sealed, monkeypatch):
    store, key, _ = sealed
    gone: list[str] = []
    digest = TableFiles.digest

    def removed_first(files: TableFiles, name: str, path: str) -> tuple[int, str]:
        if name == key.table and path.startswith("data/") and not gone:
            gone.append(path)
            return -1, ""  # by a compaction, whose record is about to be written
        return digest(files, name, path)

    monkeypatch.setattr(TableFiles, "digest", removed_first)
    assert again(store).connection.digests.faults(key.table) == []
    assert gone


def test_a_repair_of_all_goes_on_after_what_it_cannot_mend_and_says_at_the_end_what_is_left(sealed, monkeypatch):
    store, key, _ = sealed
    write_runs(store, "r1")
    store.write_rows("results", rows_of("results", {"image_tag": "", "caption_tag": ""}))
    shutil.rmtree(records(store, "results"))  # nothing says what was written
    store.connection.find("sets").update({"digest": "'another'"})  # nothing says which of the two is right
    for name in ("runs", "encoders"):
        data_files(store, name)[0].unlink()
    write = TableFiles.write

    def full(files: TableFiles, name: str, path: str, contents: bytes) -> None:
        if name == "encoders":
            raise OSError("No space left on device (os error 28)")
        write(files, name, path, contents)

    with monkeypatch.context() as disk:
        disk.setattr(TableFiles, "write", full)
        said = capim("repair --all", store, code=1).err.splitlines()
    assert said[-1] == f"still damaged: {key.table}, encoders, results"
    assert any("encoders: cannot be repaired: repairing 'encoders' failed: No space left" in line for line in said)
    expect(store, "runs", "sound")
    assert capim("repair --all", store, code=1).err.splitlines()[-1] == f"still damaged: {key.table}, results"
    expect(store, "encoders", "sound")


def test_a_process_that_read_a_record_before_it_was_changed_writes_the_next_from_what_it_read(store):
    write_runs(store, "r1", "r2")
    (record,) = records(store, "runs").iterdir()
    record.write_bytes(bytes(20))
    change(store, "runs", b"completed r2", b"completed r7")
    with pytest.raises(WorkError, match=r"data/\w+.lance was changed on disk.*capim store repair runs`,"):
        write_runs(store, "r3")
        again(store).rows("runs")
    assert repair(again(store), "runs") == (1, 0, 0)
    assert "completed r2" in texts(again(store).rows("runs")["state"])


def test_the_record_of_an_append_holds_what_the_process_before_wrote_not_what_the_disk_has(store):
    """The files of another process were digested again, as they were then."""
    write_runs(store, "r1")
    write_runs(again(store), "r2")
    change(store, "runs", b"completed r2", b"completed r7")
    table = store.connection.open("runs")
    store.connection.append(table, [lambda: table.to_table(filter="run = 'r1'").to_batches()[0]])
    with pytest.raises(WorkError, match=r"was changed on disk"):
        again(store).rows("runs")


@pytest.mark.parametrize(
    "name", ["runs", "formats", "sets", "encoders", "corpora", "results", "single", "corpus-images"]
)
@pytest.mark.parametrize("with_record", [False, True])
def test_a_table_that_was_removed_is_missing_and_never_made_anew_in_silence(sealed, name, with_record):
    store, _, _ = sealed
    write_runs(store, "r1")
    store.write_rows("results", rows_of("results", {"image_tag": "", "caption_tag": ""}))
    before, rows = read(store), {table: store.rows(table) for table in ("runs", "results")}
    (folder,) = Path(store.uri).glob(f"{name}*.lance")
    for gone in (folder, records(store, folder.stem))[: 1 + with_record]:
        shutil.rmtree(gone)
    fresh = again(store)
    with pytest.raises(WorkError, match=rf"table '{folder.stem}': {folder} is missing.*capim store repair"):
        fresh.connection.find(folder.stem)
    with pytest.raises(WorkError, match=f"{folder} is missing"):
        merge(fresh.connection, folder.stem, rows["runs"], update=False)
    with pytest.raises(WorkError, match="is missing"):
        if store.connection.find(folder.stem) is None:  # by an object that had it open
            raise AssertionError
    assert not folder.exists()
    assert any(f"{folder} is missing" in detail for detail in damaged_tables(store).values())
    assert folder.stem in dict(repair_all(again(store)))
    assert states(store) <= {"sound", "incomplete"}
    if name in COPIED and not with_record:  # the record has a copy of them
        assert states(store) == {"sound"}
        assert again(store).rows("runs").equals(rows["runs"])
        np.testing.assert_array_equal(read(store).matrix, before.matrix)
    fill(again(store), make_corpus(300), make_spec(dim=64), step=100)
    assert damaged_tables(store) == {}


def exchange(one: Path, other: Path) -> None:
    aside = one.rename(one.with_name("aside"))
    other.rename(one)
    aside.rename(other)


def damaged_tables(store) -> dict[str, str]:
    """Table -> what `store verify` says of it, of those that are damaged or lost."""
    return {check.what: check.detail for check in verify(again(store)) if check.state in ("damaged", "lost")}


@pytest.mark.parametrize("n_newer", [1, 3])
def test_an_older_copy_of_a_table_and_its_record_is_named_and_stays_until_a_user_accepts_it(store, tmp_path, n_newer):
    write_runs(store, "r1")
    for folder in (store.connection.folder("runs"), records(store, "runs")):
        shutil.copytree(folder, tmp_path / "older" / folder.name)
    for number in range(n_newer):
        write_runs(again(store), f"newer {number}")
    for folder in (store.connection.folder("runs"), records(store, "runs")):
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "older" / folder.name, folder)
    assert re.search("digests/runs is of version .*an older copy", damaged_tables(store)["runs"])
    for act in (
        lambda: again(store).rows("runs"),
        lambda: write_runs(again(store), "r9"),
        lambda: repair(store, "runs"),
    ):
        with pytest.raises(WorkError, match=r"an older copy.*capim store repair runs --accept"):
            act()
    repair(again(store), "runs", accept=True)
    assert damaged_tables(store) == {}
    assert texts(again(store).rows("runs")["run"]) == ["r1"]


@pytest.mark.parametrize(("with_records", "n_steps"), [(False, 20), (True, 20), (True, 7)])
def test_tables_that_were_exchanged_are_both_named(store, with_records, n_steps):
    specs = [make_spec(revision=revision) for revision in ("r1", "r2")]
    keys = [fill(store, make_corpus(20), spec, step=step) for spec, step in zip(specs, (20, n_steps), strict=True)]
    exchange(*(store.connection.folder(key.table) for key in keys))
    if with_records:
        exchange(*(records(store, key.table) for key in keys))
    assert {key.table for key in keys} <= damaged_tables(store).keys()
    with pytest.raises(WorkError, match=r"digests/single.* was changed on disk" if with_records else "is missing"):
        read(store)


def test_a_table_in_the_place_of_that_of_formats_is_named(store):
    write_runs(store, "r1")
    for place in (store.connection.folder, partial(records, store)):
        exchange(*map(place, ("formats", "runs")))
    assert {"formats", "runs"} <= damaged_tables(store).keys()


@pytest.mark.parametrize("damage", [shutil.rmtree, lambda root: next(root.iterdir()).write_bytes(b"{}")])
def test_a_root_that_is_gone_or_changed_is_named_until_a_user_accepts_what_there_is(store, damage):
    write_runs(store, "r1")
    damage(records(store, "root"))
    write_runs(again(store), "r2")
    assert re.search(
        r"digests/root.* (is missing|was changed on disk)\. .*repair root --accept", damaged_tables(store)["root"]
    )
    capim("verify --quiet", store, code=1)
    capim("repair --all", store, code=1)
    capim("repair root --accept", store)
    capim("verify --quiet", store)
    assert damaged_tables(store) == {}
    for gone in (store.connection.folder("runs"), records(store, "runs")):
        shutil.rmtree(gone)
    assert damaged_tables(store).keys() == {"runs"}


def test_of_entries_that_are_changed_at_once_none_is_lost(tmp_path, monkeypatch):
    """Another process changes the root between the reading and the writing of each change."""
    one, other, third = (Digests(str(tmp_path)).root for _ in range(3))
    one.enter("first", 1, "a")
    write, busy = TableFiles.write, list[str]()

    def midway(files: TableFiles, name: str, path: str, contents: bytes) -> None:
        if not busy:
            busy.append(path)
            other.enter("second", len(busy), "b")
            third.enter("first", 3, "c")
            third.enter("fourth", 1, "d")
        write(files, name, path, contents)

    monkeypatch.setattr(TableFiles, "write", midway)
    one.enter("third", 7, "e")
    read = Digests(str(tmp_path)).root
    expected = {"first": (3, "c"), "second": (1, "b"), "third": (7, "e"), "fourth": (1, "d")}
    assert {name: entry[1:] for name, entry in read.entries().items()} == expected
    other.enter("first", 0)  # of a process that was about to make it
    other.enter("first", 2, "late")  # an older version, recorded by a process that was slower
    assert read.entries(fresh=True)["first"][1:] == (3, "c")
    other.enter("second", 0, replaces=True)
    assert {name for name, entry in read.entries(fresh=True).items() if entry.version} == {"first", "third", "fourth"}
    assert len([*(tmp_path / "digests" / "root").iterdir()]) == 1, "what was read is removed"


def test_compaction_does_not_give_damaged_rows_new_digests(store):
    corpus, spec, key = begin(store, 30)
    for start in (0, 10, 20):
        store.put(key, spec, make_block(corpus, spec, range(start, start + 10)))
    change(store, key.table, b"abab", b"abac")
    with pytest.raises(WorkError, match=rf"was changed on disk.*capim store repair {key.table}"):
        again(store).seal(key, n_items=30)
    assert repair(again(store), key.table).rows == 30


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
        again(store).encoder("enc")
    expect(store, "encoders", "damaged", "capim store repair encoders")
    assert repair(again(store), "encoders") == (0, 0, 1)
    store.write_encoder(make_spec(dim=64))
    assert again(store).encoder("enc").fingerprint == key.encoder_fingerprint
    assert states(store) == {"sound"}


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
    assert states(fresh) == {"sound"}
    moved.rename(tmp_path / folder)
    again = EmbeddingStore.open(tmp_path / folder / "store")
    assert again.vectors(encoder="enc", corpus="toy", modality="image").matrix.shape == (60, 64)
    assert sum(compact_store(again).values()) >= 0
    assert drop(again, encoder="enc", dry_run=False).done
    assert [path.name for path in tmp_path.iterdir()] == [folder]


def test_what_a_full_or_read_only_disk_does_to_compacting_is_told_in_words(store, monkeypatch):
    def refuse(*_, **__):
        raise OSError(30, "Read-only file system", store.uri)

    monkeypatch.setattr("capim.store.removal.compact", refuse)
    shown = capim("compact", store, code=1).err
    assert "capim: compacting failed: [Errno 30] Read-only file system" in shown
    assert "The folder is not writable" in shown
