"""What disks and people do to a store is noticed and named; a silently wrong value never comes back."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from capim.store import EmbeddingStore, RequestError, WorkError
from capim.store.connection import _session, storage_faults
from capim.store.ledger import KEYED_BY
from capim.store.row_types import rows_in
from capim.store.rows import delete, read_where
from capim.store.rows import read as read_rows
from capim.store.schema import CORPUS_PARTS, LedgerEntry, Result, texts
from capim.store.types import SET_PREFIXES, Modality
from capim.store.upkeep.integrity import drop_damaged, verify
from capim.store.upkeep.inventory import check_disk_space
from capim.store.upkeep.removal import compact_store, drop
from capim.tasks.corpora.readers.shapes import read_shapes
from tests.command import command
from tests.random_store import OTHER, SPECS, random_store, rows_of
from tests.store import golden
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


def flip(file: Path, values: np.ndarray, at: int) -> None:
    """Flips a bit of stored components, at this byte of them."""
    data = bytearray(file.read_bytes())
    data[data.index(values.tobytes()) + at] ^= 0x10
    file.write_bytes(data)


def expect(store, name: str, state: str, *words: str) -> None:
    """Compares what `store verify` says of a table or a corpus with a state and some words."""
    (check,) = (check for check in verify(again(store)) if check.what == name)
    assert check.state == state
    assert all(each in check.detail for each in words), check.detail


def drop_all(store, *, imports: bool = False) -> list[str]:
    """Removes what is damaged; gives the names of the parts."""
    return drop_damaged([*verify(store)], imports=imports)


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
    expect(store, key.table, "damaged", "'i00123'")


@pytest.mark.parametrize(
    "damage",
    [lambda file: file.write_bytes(file.read_bytes()[:-2000]), lambda file: file.write_bytes(b""), Path.unlink],
)
def test_a_truncated_or_deleted_file_is_named(sealed, damage):
    store, key, folder = sealed
    damage(only_file(folder))
    with pytest.raises(WorkError, match=r"missing or truncated.*capim store verify") as caught:
        read(store)
    assert key.table in str(caught.value)
    expect(store, key.table, "damaged")
    expect(store, "sets", "sound")


def embed_again(store, key):
    """What `capim embed` does; returns how many items were encoded."""
    missing = store.missing(key)
    store.put(key, make_spec(dim=64), make_block(make_spec(dim=64), missing))
    store.seal(key)
    return len(missing)


def test_after_what_is_damaged_is_dropped_only_the_batches_of_damaged_rows_are_made_again(store):
    """Whole batches: the last bits of an embedding depend on its neighbours."""
    spec, key = begin(store, 300, dim=64)
    for start in range(0, 300, 10):
        store.put(key, spec, make_block(spec, range(start, start + 10), batch_id=f"batch-{start}"))
    store.seal(key)
    folder = store.connection.folder(key.table)
    before, state = read(store), store.sealed(key)
    assert drop_all(store) == []
    assert store.sealed(key) == state
    writing = store.writer(key)
    assert len(writing.missing()) == 0
    for position in (7, 123):
        flip(only_file(folder), make_embeddings([position], spec).values, 60)
    fresh = again(store)
    assert drop_all(fresh) == [key.table]
    batches = [*range(10), *range(120, 130)]
    assert fresh.missing(key).tolist() == batches
    assert writing.missing().tolist() == batches, "a writer that was there before sees it too"
    assert embed_again(fresh, key) == 20
    np.testing.assert_array_equal(read(store).matrix, before.matrix)
    assert fresh.sealed(key).digest == state.digest
    assert "damaged" not in states(store)


@pytest.mark.parametrize("damage", [lambda file: file.unlink(), lambda file: file.write_bytes(b"x" * 100)])
def test_after_what_is_damaged_is_dropped_the_rows_of_a_lost_file_are_made_again(store, damage):
    spec, key = begin(store, 300, dim=64)
    for start in (0, 100, 200):
        store.put(key, spec, make_block(spec, range(start, start + 100)))
    files = data_files(store, key.table)
    damage(files[1])
    fresh = again(store)
    assert drop_all(fresh) == [key.table]
    assert fresh.missing(key).tolist() == list(range(100, 200))
    assert embed_again(fresh, key) == 100
    assert states(store) == {"sound"}


@pytest.mark.parametrize("damage", [lambda file: file.unlink(), lambda file: file.write_bytes(b"")])
def test_of_a_corpus_that_cannot_be_read_only_the_corpus_is_dropped_and_its_embeddings_stay(sealed, damage):
    store, key, _ = sealed
    before = read(store)
    (folder,) = Path(store.uri).glob("corpus-images-*")
    damage(only_file(folder))
    fresh = again(store)
    expect(store, "corpus toy", "damaged", "images")
    expect(store, key.table, "incomplete", "corpus 'toy' cannot be read", "capim store verify --drop")
    assert drop_all(fresh) == ["corpus toy"]
    assert states(store) == {"sound", "incomplete"}
    fresh.write_corpus(make_corpus(300))
    assert states(store) == {"sound"}
    assert len(fresh.missing(key)) == 0
    np.testing.assert_array_equal(read(store).matrix, before.matrix)


def test_a_missing_tag_is_named_and_comes_back_with_the_next_seal(sealed):
    store, key, _ = sealed
    before = read(store)
    state = store.sealed(key)
    store.connection.find(key.table).tags.delete(state.tag)
    with pytest.raises(WorkError, match=rf"{state.tag}.*"):
        read(store)
    expect(store, key.table, "damaged")
    sealed_again = again(store).seal(key)
    assert (sealed_again.tag, sealed_again.digest) == (state.tag, state.digest)
    np.testing.assert_array_equal(read(store).matrix, before.matrix)


def test_a_set_sealed_again_with_other_vectors_says_that_old_results_lost_their_source(sealed, caplog):
    store, key, _ = sealed
    store.connection.drop(key.table)  # and not the row that it is sealed
    fresh, spec = again(store), make_spec(dim=64)
    block = make_block(spec, range(300))
    block.embeddings.values[:] = np.roll(block.embeddings.values, 1, axis=0)
    assert fresh.put(key, spec, block) == 300
    before = store.sealed(key)
    assert fresh.seal(key).digest != before.digest
    assert f"now holds other vectors than {before.tag}" in caplog.text


def test_a_set_whose_table_is_gone_is_missing_until_it_is_dropped(sealed):
    store, key, folder = sealed
    shutil.rmtree(folder)
    with pytest.raises(WorkError, match="missing"):
        read(store)
    with pytest.raises(WorkError, match="missing"):
        again(store).seal(key)
    expect(store, key.table, "damaged")
    assert drop(again(store), encoder="enc", dry_run=False).tables == (key.table,)
    assert len(again(store).missing(key)) == 300


def test_a_changed_caption_is_noticed_by_verify(store):
    corpus = make_corpus(50)
    store.write_corpus(corpus)
    for file in data_files(store, f"corpus-captions-toy-{corpus.fingerprint}"):
        file.write_bytes(file.read_bytes().replace(b"en text 17 1", b"en text 17 9"))
    expect(store, "corpus toy", "damaged", "was changed on disk")
    with pytest.raises(WorkError, match="corpus 'toy' was changed on disk: its fingerprint is"):
        again(store).corpus("toy")


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 3 MB, as a function that can also make it read-only."""
    place = tmp_path / "small"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", place], capture_output=True, check=False)
    if done.returncode:
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
            written += store.put(key, spec, make_block(spec, range(start, start + 200)))
    assert 0 < written < 4000
    fresh = EmbeddingStore.open(small_disk / "store")
    assert len(fresh.missing(key)) == 4000 - written
    ballast.unlink()
    assert fresh.put(key, spec, make_block(spec, range(written, written + 200))) == 200
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


@pytest.mark.parametrize("name", ["single", "sets", "encoders", "corpora"])
def test_a_damaged_manifest_is_an_error_with_the_command_that_heals(sealed, name):
    """Lance panics; a panic is no ``Exception``, so that every command ended with a traceback."""
    store, _, _ = sealed
    (folder,) = Path(store.uri).glob(f"{name}*.lance")
    manifest = min((folder / "_versions").iterdir())  # the newest version
    data = bytearray(manifest.read_bytes())
    data[-16:-8] = (len(data) - 16).to_bytes(8, "little")  # another place of the contents
    manifest.write_bytes(data)
    with pytest.raises(WorkError, match=rf"opening table '{folder.stem}'.*damaged file.*capim store verify"):
        again(store).connection.find(folder.stem)
    expect(store, folder.stem, "damaged")
    assert folder.stem in drop_all(again(store))
    fill(again(store), make_corpus(300), make_spec(dim=64), step=100)
    assert states(store) == {"sound"}
    assert len(read(store)) == 300


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
    before = store.encoders()[0].spec
    assert spec(before) != before
    table.update({"spec": "'" + spec(before) + "'"})
    with pytest.raises(
        WorkError, match=r"spec of 'enc' does not match its fingerprint '\w{16}'.*capim store verify --drop"
    ):
        again(store).encoder("enc")
    expect(store, "encoders", "damaged", "specs of 1 encoders")
    assert drop_all(again(store)) == ["encoders"]
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
    assert compact_store(again) >= 0
    drop(again, encoder="enc", dry_run=False)
    assert [path.name for path in tmp_path.iterdir()] == [folder]


def test_what_a_full_or_read_only_disk_does_to_compacting_is_told_in_words(store, monkeypatch):
    def refuse(*_, **__):
        raise OSError(30, "Read-only file system", store.uri)

    monkeypatch.setattr("capim.store.upkeep.removal.compact", refuse)
    shown = command("store prune --yes", Path(store.uri).parent, code=1).err
    assert "capim: compacting failed: [Errno 30] Read-only file system" in shown
    assert "The folder is not writable" in shown


# --- Bits and files of every kind of table, drawn with a seed.


def made(workspace: Path) -> EmbeddingStore:
    """What encoding, `capim evaluate`, `capim compare` and `capim analyse` store, made or completed."""
    store = random_store(workspace / "store", read_shapes(n_scenes=6), (*SPECS, OTHER))
    for words in golden.COMMANDS:
        command(words, workspace)
    return store


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """A workspace in which tests put back what they change."""
    workspace = tmp_path_factory.mktemp("made")
    made(workspace)
    return workspace


def fresh(workspace: Path) -> EmbeddingStore:
    """The store as a new process opens it, without what Lance keeps of files in memory."""
    _session.cache_clear()
    return EmbeddingStore.open(workspace / "store")


def value(store: EmbeddingStore, name: str) -> object:
    """What is read of a table: vectors, the corpus, or rows, but for the columns that say who made them."""
    if name.startswith("corpus-"):
        corpus = store.corpus("shapes")
        return [str(getattr(corpus, part).to_pylist()) for part in CORPUS_PARTS]
    if name.startswith(SET_PREFIXES):
        modality: Modality = "image" if "-image-" in name else "caption"
        encoder = name.rpartition("-")[2]
        if name.startswith("single"):
            return store.vectors(encoder=encoder, corpus="shapes", modality=modality).matrix.tobytes()
        blocks = store.multivectors(encoder=encoder, corpus="shapes", modality=modality)
        return [block.values.tobytes() for block in blocks]
    rows = store.rows(name)
    return str(rows.drop_columns([each for each in ("run", "created") if each in rows.column_names]).to_pylist())


def is_named(workspace: Path, name: str, before: object) -> bool:
    """True if a read of a table and `store verify` name it, with a command; False if nothing that is read differs."""
    try:
        assert value(fresh(workspace), name) == before
    except (WorkError, RequestError) as fault:
        assert "capim " in str(fault)
        what = "corpus shapes" if name.startswith("corpus-") else name
        assert any((check.what, check.state) == (what, "damaged") for check in verify(fresh(workspace)))
        return True
    return False


@pytest.mark.parametrize(
    "fault",
    [
        'Wrapped error: task 8 panicked with message "the offset + length of the sliced Buffer cannot exceed the …"',
        'does not have sufficient data, len: 10, bytes: b"xxxxxxxxxx"',
    ],
    ids=["a panic that Arrow hands on, of some flipped bits", "a truncated manifest"],
)
def test_what_damaged_files_raise_says_what_to_do(fault: str) -> None:
    with pytest.raises(WorkError, match="Run `capim store verify`"), storage_faults("reading table 'outcomes'"):
        raise pa.ArrowInvalid(fault)


@pytest.mark.slow  # the same commands after every change
@pytest.mark.parametrize(("n_flips", "n_removed"), [(25, 0), (0, 13)], ids=["flips", "removed files"])
@pytest.mark.parametrize(
    "kinds", [("single-", "multi-"), ("outcomes",), ("results", "comparisons", "slices"), ("corpus-",)], ids=str
)
def test_every_bit_and_file_that_changes_what_is_read_is_named(workspace, kinds, n_flips, n_removed):
    rng = random.Random(f"{kinds}")
    names = sorted(path.stem for path in (workspace / "store").iterdir() if path.name.startswith(kinds))
    before = {name: value(fresh(workspace), name) for name in names}
    n_named = 0
    for _ in range(n_flips + n_removed):
        name = rng.choice(names)
        folder = workspace / "store" / f"{name}.lance"
        file = rng.choice(sorted(path for path in folder.glob("*/*") if path.parent.name in ("data", "_versions")))
        whole = file.read_bytes()
        if n_flips:
            changed = bytearray(whole)
            changed[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
            file.write_bytes(changed)
        else:
            file.unlink()
        n_named += is_named(workspace, name, before[name])
        file.write_bytes(whole)
    assert n_named >= (n_flips + n_removed) // 8


@pytest.mark.slow  # the same commands after every change
@pytest.mark.parametrize("damage", [lambda file: file.unlink(), lambda file: file.write_bytes(bytes(100))])
def test_after_all_is_dropped_that_is_damaged_the_same_commands_give_the_same_figures(workspace, tmp_path, damage):
    place = shutil.copytree(workspace, tmp_path / "damaged")
    before = golden.figures(place)
    for name in ("single", "multi", "outcomes", "results", "comparisons", "slices", "corpus-captions", "encoders"):
        damage(next((place / "store").glob(f"{name}*/data/*")))
    assert len(drop_all(fresh(place))) == 6
    fresh(place).write_corpus(read_shapes(n_scenes=6))
    assert len(drop_all(fresh(place))) == 2, "sets, which could not be checked without their corpus"
    made(place)
    assert golden.figures(place) == before
    assert states(fresh(place)) == {"sound"}


def test_an_older_ledger_or_outcomes_without_their_entry_are_not_read_and_made_again(workspace, tmp_path):
    """Of a process that was killed between rows and their entry, and of one that others restored."""
    place = shutil.copytree(workspace, tmp_path / "older")
    before = golden.figures(place)
    store = fresh(place)
    keys = sorted(store.counts("outcomes", "evaluation"))
    delete(store.connection, "derived", "key", keys[:1])
    assert {*texts(fresh(place).rows("outcomes")["evaluation"])} == {*keys[1:]}
    assert fresh(place).outcomes(keys[:1])[keys[0]].num_rows == 0
    assert fresh(place).stored_rows(keys).keys() == {*keys[1:]}
    made(place)
    assert {*texts(fresh(place).rows("outcomes")["evaluation"])} == {*keys}
    assert golden.figures(place) == before


def test_a_store_that_was_copied_without_its_ledger_is_not_called_sound(workspace, tmp_path):
    place = shutil.copytree(workspace, tmp_path / "copied")
    before = golden.figures(place)
    shutil.rmtree(place / "store" / "derived.lance")
    said = {each.what: (each.state, each.detail) for each in verify(fresh(place))}
    for name in ("outcomes", "results"):
        assert said[name][0] == "incomplete"
        assert "are not shown because the ledger lacks them" in said[name][1]
    made(place)
    assert golden.figures(place) == before


def test_outcomes_of_a_ledger_that_cannot_be_read_are_not_shown_and_made_again(workspace, tmp_path):
    place = shutil.copytree(workspace, tmp_path / "unreadable")
    before = golden.figures(place)
    for file in data_files(fresh(place), "derived"):
        file.write_bytes(bytes(100))
    expect(fresh(place), "outcomes", "incomplete", "are not shown because the ledger lacks them")
    assert "derived" in drop_all(fresh(place))
    made(place)
    assert golden.figures(place) == before
    assert states(fresh(place)) == {"sound"}


@pytest.mark.parametrize("statement", ["SELECT count(*) FROM outcomes", "SELECT rank_best FROM all_outcomes"])
def test_a_query_of_outcomes_whose_table_is_gone_is_an_error_and_not_0(workspace, tmp_path, statement):
    place = shutil.copytree(workspace, tmp_path / "copied")
    shutil.rmtree(place / "store" / "outcomes.lance")
    with pytest.raises(WorkError, match="table 'outcomes' is damaged"):
        fresh(place).sql(statement)
    with pytest.raises(WorkError, match="table 'outcomes' is damaged"):
        read_rows(fresh(place).connection, "outcomes", columns=["rank_best"])


def test_outcomes_that_were_removed_on_purpose_are_no_damage(store):
    store.write_rows("outcomes", rows_of("outcomes", *({"evaluation": each, "query_id": "q"} for each in "ab")))
    delete(store.connection, "outcomes", "evaluation", ["a"])
    assert states(store) == {"sound"}


def test_imported_outcomes_without_an_entry_of_the_ledger_are_lost(store):
    store.write_rows("outcomes", rows_of("outcomes", {"evaluation": "e", "query_id": "q"}))
    store.write_rows("imports", rows_of("imports", {"imported": "e", "source": "o.csv"}))
    assert states(store) == {"sound"}
    delete(store.connection, "derived", "key", ["e"])
    expect(store, "outcomes", "lost", "outcomes of 1 evaluations", "`capim import o.csv --corpus x --encoder x`")


def test_rows_that_are_derived_while_a_store_is_verified_are_no_damage(store, monkeypatch):
    def derive(key: str) -> None:
        rows = rows_of("results", {"result": key, "derived": key, "image_tag": "", "caption_tag": ""})
        entries = rows_in(LedgerEntry, rows_of("derived", {"key": key}))
        store.write_derived("results", rows_in(Result, rows), entries)

    def read_before_others_write(*given):
        rows = read_where(*given)
        derive("b")
        return rows

    derive("a")
    monkeypatch.setattr("capim.store.upkeep.integrity.read_where", read_before_others_write)
    assert states(store) == {"sound"}


def test_pruning_leaves_no_entry_without_its_rows_and_no_rows_without_their_entry(workspace, tmp_path):
    place = shutil.copytree(workspace, tmp_path / "pruned")
    before = golden.figures(place)
    command("evaluate --level 0.9 --protocols t2i/all --quiet", place)
    command(golden.COMMANDS[0], place)
    assert "nothing to remove" not in command("store prune --keep 1 --yes", place).out
    store = fresh(place)
    listed, stored = set[tuple[str, str]](), set[tuple[str, str]]()
    for row in store.rows("derived").to_pylist():
        listed |= {(row["table_name"], row["key"])} if row["n_rows"] else set()
    for name, column in KEYED_BY.items():
        if name != "derived":
            stored |= {(name, key) for key in texts(read_where(store.connection, name)[column].drop_null())}
    assert listed == stored
    values = [[row["value"] for row in rows] for rows in (golden.figures(place), before)]
    assert values[0] == values[1]  # of two runs of one second, the one with the greater id is kept
    assert states(store) == {"sound"}


def test_what_was_imported_is_lost_and_goes_only_where_that_is_asked_for(workspace, tmp_path):
    place = shutil.copytree(workspace, tmp_path / "imported")
    store, command_words = fresh(place), "--corpus shapes --encoder theirs"
    queries = texts(store.corpus("shapes").captions["id"])
    answers = tmp_path / "answers.csv"
    answers.write_text("\n".join(["query_id,rank", *(f"{query},{1 + n % 3}" for n, query in enumerate(queries))]))
    command(f"import --outcomes {answers} --protocol t2i/all {command_words}", place)
    vectors = tmp_path / "images.npy"
    np.save(vectors, np.eye(store.corpus("shapes").images.num_rows, 8, dtype=np.float32) + 1)
    command(f"import --images {vectors} --corpus shapes --encoder others", place)
    [imported] = [row for row in fresh(place).rows("imports").to_pylist() if row["what"] == "t2i/all"]
    [key] = [row for row in fresh(place).sealed_sets() if row.key.encoder == "others"]
    lance.dataset(place / "store" / "outcomes.lance").delete(f"evaluation = '{imported['imported']}'")
    lance.dataset(place / "store" / f"{key.key.table}.lance").tags.delete(key.tag)
    wrong = {check.what: check for check in verify(fresh(place)) if check.state != "sound"}
    assert {what: check.state for what, check in wrong.items()} == {"outcomes": "lost", key.key.table: "lost"}
    assert f"`capim import {answers} {command_words}`" in wrong["outcomes"].detail
    assert f"`capim import --corpus shapes --encoder others --images {vectors}`" in wrong[key.key.table].detail
    assert drop_all(fresh(place)) == []
    assert {*drop_all(fresh(place), imports=True)} == {*wrong}
    command(f"import {answers} {command_words}", place)
    command(f"import --corpus shapes --encoder others --images {vectors}", place)
    assert states(fresh(place)) == {"sound"}


# --- LanceDB's own tools.


def restored(name: str) -> Callable[[str], None]:
    def change(uri: str) -> None:
        import lancedb

        table = lancedb.connect(uri).open_table(name)
        table.checkout(max(1, table.version // 2))
        table.restore()

    return change


def optimized(uri: str) -> None:
    import lancedb

    for name in lancedb.connect(uri).table_names(limit=100):
        lancedb.connect(uri).open_table(name).optimize(cleanup_older_than=timedelta(0))


def indexed(uri: str) -> None:
    import lancedb

    database = lancedb.connect(uri)
    database.open_table("results").create_scalar_index("metric")
    name = next(each for each in database.table_names(limit=100) if each.startswith("single-shapes-caption"))
    database.open_table(name).create_index("cosine", num_partitions=1, num_sub_vectors=2, index_type="IVF_FLAT")


def copied(uri: str) -> None:
    shutil.copytree(uri, f"{uri}-2")
    shutil.rmtree(uri)
    shutil.move(f"{uri}-2", uri)


def with_nullable_column(uri: str) -> None:
    lance.dataset(f"{uri}/results.lance").add_columns(pa.schema([pa.field("note", pa.string())]))


def with_column(uri: str) -> None:
    rows = lance.dataset(f"{uri}/results.lance").to_table()
    note = pa.field("note", pa.int64(), nullable=False)
    lance.write_dataset(rows.append_column(note, pa.array([1] * len(rows))), f"{uri}/results.lance", mode="overwrite")


@pytest.mark.slow  # the same commands after every change
@pytest.mark.parametrize(
    "change",
    [optimized, indexed, copied, with_nullable_column, with_column,
     *map(restored, ("outcomes", "results", "corpora", "derived"))],
    ids=["optimized", "indexed", "copied", "nullable column", "column", "outcomes", "results", "corpora", "derived"],
)  # fmt: skip
def test_after_tools_of_lancedb_a_store_is_usable_or_the_message_says_how(workspace, tmp_path, change):
    place = shutil.copytree(workspace, tmp_path / "used")
    before = golden.figures(place)
    change(str(place / "store"))
    _session.cache_clear()
    drop_all(fresh(place))
    if change is with_column:
        told = command("evaluate --level 0.9 --protocols t2i/all --quiet", place, code=1).err
        assert "capim store upgrade" in told
        command("store upgrade", place)
    made(place)
    command("evaluate --level 0.9 --protocols t2i/all --quiet", place)
    command(golden.COMMANDS[0], place)
    assert golden.figures(place) == before
    assert states(fresh(place)) == {"sound"}
