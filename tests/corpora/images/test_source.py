from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from capim.tasks.corpora.images.source import Folder, Folders


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
    for source in (Folder(two[0]), Folders(two)):
        with pytest.raises(OSError, match="leaves"):
            source.read(key)


def test_folders_are_searched_in_turn_and_all_named_where_none_has_the_file(two: tuple[Path, Path]) -> None:
    source = Folders(two)
    assert source.read("deep/two.jpg") == b"two"
    with pytest.raises(FileNotFoundError, match=r"'x.jpg' is in none of .*one, .*two"):
        source.read("x.jpg")


def test_sources_pickle(two: tuple[Path, Path]) -> None:
    for source in (Folder(two[0]), Folders(two)):
        assert pickle.loads(pickle.dumps(source)) == source
