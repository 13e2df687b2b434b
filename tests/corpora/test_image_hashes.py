"""Images are hashed once: again only when their file, or the code that draws them, has changed."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from capim.store import Corpus, EmbeddingStore
from capim.tasks.corpora.images import source
from capim.tasks.corpora.images.source import Folders, ImageHashes, RenderedImages
from capim.tasks.corpora.naming import CorpusToRead
from capim.tasks.corpora.opened import OpenCorpora
from tests.corpora.own_data import png, write

PHOTOS = ("a.png", "b.png", "deep/c.png")


def age(path: Path, seconds: float = 60) -> None:
    """Set the time of the last change back; that of the inode cannot be set."""
    then = path.stat().st_mtime_ns - int(seconds * 1e9)
    os.utime(path, ns=(then, then))


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    lines = ["image,caption", *(f"{name},a photo of {name}" for name in PHOTOS)]
    folder = write(tmp_path / "photos", {**dict.fromkeys(PHOTOS), "captions.csv": "\n".join(lines)})
    for name in PHOTOS:
        age(folder / name)
    return folder


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], tuple[Corpus, list[str]]]:
    """Reads a corpus as a new run does: the corpus, and the keys of the images whose bytes were read."""
    store = EmbeddingStore.open(tmp_path / "store", create=True)
    keys = Counter[str]()
    for kind in (Folders, RenderedImages):
        original = kind.read

        def counted(self: Any, key: str, original: Callable[[Any, str], bytes] = original) -> bytes:
            keys[key] += 1
            return original(self, key)

        monkeypatch.setattr(kind, "read", counted)

    def run(what: Any) -> tuple[Corpus, list[str]]:
        keys.clear()
        return OpenCorpora().index(store, CorpusToRead(what)), sorted(keys)

    return run


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files were changed long ago."""
    monkeypatch.setattr(source, "time", lambda: time.time() + 60)


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize(
    "change", ["nothing", "contents", "size alone", "time alone", "contents, with the time set back"]
)
def test_a_file_that_may_have_changed_is_read_again_and_no_other(change: str, photos: Path, read: Any) -> None:
    first, keys = read(str(photos))
    assert keys == [*PHOTOS]
    file = photos / "b.png"
    before = file.stat()
    if change == "size alone":
        file.write_bytes(file.read_bytes() + b"\0")
    elif change.startswith("contents"):
        file.write_bytes(png("yellow"))
    if change not in ("nothing", "contents"):
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns - (change == "time alone")))
    second, keys = read(str(photos))
    assert keys == ([] if change == "nothing" else ["b.png"])
    assert second.images.equals(first.images) is (second.fingerprint == first.fingerprint)
    assert (second.fingerprint == first.fingerprint) is (change in ("nothing", "time alone"))
    assert read(str(photos))[1] == []


def test_a_file_that_was_changed_just_now_is_not_trusted(photos: Path, read: Any, request: Any) -> None:
    read(str(photos))
    assert read(str(photos))[1] == [*PHOTOS]
    request.getfixturevalue("later")
    assert [read(str(photos))[1] for _ in range(2)] == [[*PHOTOS], []]


@pytest.mark.usefixtures("later")
def test_a_file_that_is_gone_is_a_fault_as_before(photos: Path, read: Any) -> None:
    read(str(photos))
    (photos / "b.png").unlink()
    with pytest.raises(Exception, match=r"b\.png"):
        read(str(photos))


@pytest.mark.usefixtures("later")
def test_an_image_of_several_folders_is_known_by_the_file_that_is_found(photos: Path, tmp_path: Path) -> None:
    folders, hashes = Folders((tmp_path / "first", photos)), ImageHashes()
    hashes.facts(folders, "a.png")
    [known] = hashes.take_fresh()
    assert known.item == str(photos / "a.png")
    write(tmp_path / "first", {"a.png": png("yellow")})
    assert ImageHashes(lambda: {known.item: known}).facts(folders, "a.png").sha != known.sha


def test_a_rendered_world_is_drawn_again_when_its_code_changes(read: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    world = {"reader": "shapes", "n_scenes": 5}
    (first, drawn), (second, again) = read(world), read(world)
    assert (len(drawn), again) == (5, [])
    assert second.fingerprint == first.fingerprint
    assert read(world | {"seed": 1})[1] != []
    monkeypatch.setattr(source, "_version_of_drawings", lambda _: "another")
    assert read(world)[1] == drawn
