from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from tasks.corpora.images.source import Folder, Folders, Parts


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("one", "two"):
        (tmp_path / name / "deep").mkdir(parents=True)
        (tmp_path / name / "deep" / f"{name}.jpg").write_bytes(name.encode())
    (tmp_path / "secret").write_bytes(b"secret")
    return tmp_path / "one", tmp_path / "two"


@pytest.mark.parametrize(
    "key",
    ["../secret", "deep/../../secret", "/etc/passwd", "..\\secret", "C:\\secret", "C:secret", "a\0b", "\\\\host\\x"],
)
def test_a_key_never_leaves_its_folder(two: tuple[Path, Path], key: str) -> None:
    for source in (Folder(two[0]), Folders(two), Parts((("a", Folder(two[0])),))):
        with pytest.raises(OSError, match=r"leaves|none of the parts"):
            source.read(key if not isinstance(source, Parts) else f"a/{key}")


def test_folders_are_searched_in_turn_and_all_named_where_none_has_the_file(two: tuple[Path, Path]) -> None:
    source = Folders(two)
    assert source.read("deep/two.jpg") == b"two"
    with pytest.raises(FileNotFoundError, match=r"'x.jpg' is in none of .*one, .*two"):
        source.read("x.jpg")


def test_parts_send_a_key_to_their_source(two: tuple[Path, Path]) -> None:
    source = Parts((("a", Folder(two[0])), ("b", Folder(two[1]))))
    assert source.read("b/deep/two.jpg") == b"two"
    with pytest.raises(FileNotFoundError, match="'c' is none of the parts a, b"):
        source.read("c/deep/two.jpg")


def test_sources_pickle(two: tuple[Path, Path]) -> None:
    source = Parts((("a", Folder(two[0])), ("b", Folders(two))))
    assert pickle.loads(pickle.dumps(source)) == source
