from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from capim.store.errors import RequestError
from capim.tasks.corpora import open_corpus
from capim.tasks.corpora.files import require_file
from capim.tasks.corpora.readers.webdataset import TarShards, read_cc3m, read_webdataset


def shard(path: Path, members: dict[str, bytes], mode: Literal["w", "w:gz"] = "w") -> Path:
    with tarfile.open(path, mode) as tar:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


@pytest.fixture
def shards(tmp_path: Path, picture: Callable[..., bytes]) -> Path:
    shard(tmp_path / "b.tar", {"0002.png": picture("blue"), "0002.txt": b"blue\n"})
    shard(
        tmp_path / "a.tar",
        {
            "./0000.txt": b"red",
            "./0000.PNG": picture("red"),
            "x/0001.png": picture("green"),
            "x/0001.json": json.dumps({"caption": "green"}).encode(),
            "x/0001.txt": "grün".encode(),
            "0003.json": b"{}",
            "0004.png": picture("white"),
            "0005.seg.png": picture("black"),
            "0005.png": picture("navy"),
            "0005.txt": b"navy",
            "README": b"no sample",
        },
    )
    return tmp_path


def test_samples_come_in_the_order_of_shards_and_members(shards: Path) -> None:
    corpus = open_corpus(shards)
    assert corpus.images["id"].to_pylist() == ["0000", "x/0001", "0005", "0002"]
    assert corpus.captions["text"].to_pylist() == ["red", "grün", "navy", "blue"]


def test_samples_without_image_or_caption_are_listed(shards: Path) -> None:
    assert open_corpus(shards).skipped.to_pylist() == [
        {"item_id": "0003", "reason": "no image in a.tar", "modality": "image"},
        {"item_id": "0004", "reason": "no txt caption in a.tar", "modality": "image"},
    ]


def test_the_picture_is_the_member_whose_whole_suffix_is_an_images(shards: Path, picture: Callable[..., bytes]) -> None:
    corpus = open_corpus(shards)
    assert corpus.source is not None
    assert corpus.source.read(corpus.images["key"][2].as_py()) == picture("navy")


def test_captions_can_be_a_field_of_the_json_member(shards: Path) -> None:
    assert read_webdataset(shards, caption="json").captions["text"].to_pylist() == ["green"]


def test_one_shard_alone_can_be_opened(shards: Path) -> None:
    assert open_corpus(shards / "b.tar").captions["text"].to_pylist() == ["blue"]


def test_cc3m_reads_its_validation_shards_alone_and_offline_says_how_to_get_them(
    tmp_path: Path, picture: Callable[..., bytes]
) -> None:
    shard(tmp_path / "cc3m-validation-0000.tar", {"1.png": picture("red"), "1.txt": b"a"})
    shard(tmp_path / "cc3m-train-0000.tar", {"1.png": picture("red"), "1.txt": b"a"})
    assert read_cc3m(tmp_path).images.num_rows == 1
    with pytest.raises(RequestError, match="pixparse/cc3m-wds: its shards are not in the cache and the hub cannot"):
        read_cc3m()


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"1.png": b"x", "1.txt": b"\xff"}, "a.tar: 1.txt: not UTF-8 text"),
        ({}, "no images; check"),
        ({"1.png": b"x"}, "no images (all 1 were left out; the first: no txt caption in a.tar)"),
    ],
)
def test_wrong_members_are_named(tmp_path: Path, members: dict[str, bytes], expected: str) -> None:
    shard(tmp_path / "a.tar", members)
    with pytest.raises(RequestError) as caught:
        read_webdataset(tmp_path)
    assert expected in str(caught.value)


def test_json_captions_of_the_wrong_kind_are_named(tmp_path: Path) -> None:
    for value, expected in (
        (b"{", "not JSON"),
        (b'{"caption": 3}', "'caption' is 3, expected a text or a list of texts"),
    ):
        shard(tmp_path / "a.tar", {"1.png": b"x", "1.json": value})
        with pytest.raises(RequestError, match=r"1\.json") as caught:
            read_webdataset(tmp_path, caption="json")
        assert expected in str(caught.value)


def test_samples_of_two_shards_with_one_name_are_an_error(tmp_path: Path, picture: Callable[..., bytes]) -> None:
    for name in "ab":
        shard(tmp_path / f"{name}.tar", {"1.png": picture("red"), "1.txt": b"red"})
    with pytest.raises(RequestError, match="duplicate image ids: '1'"):
        read_webdataset(tmp_path)


def test_a_pipe_is_no_shard(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.tar")
    with pytest.raises(RequestError, match="no file matches"):
        read_webdataset(tmp_path)
    with pytest.raises(RequestError, match=r"a\.tar is a pipe or device, not a file"):
        require_file(tmp_path / "a.tar", "table")


def test_compressed_and_cut_shards_are_named(shards: Path, picture: Callable[..., bytes]) -> None:
    whole = (shards / "a.tar").read_bytes()
    (shards / "a.tar").write_bytes(whole[:700])
    with pytest.raises(RequestError, match=r"a.tar: (cut short within|not an uncompressed tar file)"):
        read_webdataset(shards)
    shard(shards / "a.tar", {"1.png": picture("red")}, "w:gz")
    with pytest.raises(RequestError, match=r"a.tar: not an uncompressed tar file, or damaged .*; unpack .gz first"):
        read_webdataset(shards)
    with pytest.raises(RequestError, match=r"no file matches shards = '\*.zip'"):
        read_webdataset(shards, shards="*.zip")


def test_a_shard_that_shrank_is_an_os_error(shards: Path) -> None:
    key = open_corpus(shards).images["key"][3].as_py()
    (shards / "b.tar").write_bytes(b"short")
    with pytest.raises(OSError, match=r"b.tar: ends before byte \d+; has the file changed"):
        TarShards(shards).read(key)


def members_of_a_hundred(tmp_path: Path, picture: Callable[..., bytes]) -> Path:
    files = {
        f"{n:03d}.{kind}": picture((n, 0, 0)) if kind == "png" else b"x" for n in range(100) for kind in ("png", "txt")
    }
    return shard(tmp_path / "a.tar", files)


def test_a_damaged_header_and_a_cut_between_members_are_never_a_smaller_corpus(
    tmp_path: Path, picture: Callable[..., bytes]
) -> None:
    file = members_of_a_hundred(tmp_path, picture)
    whole = file.read_bytes()
    assert read_webdataset(tmp_path).images.num_rows == 100
    with tarfile.open(file) as tar:
        starts = [member.offset for member in tar if member.name.endswith(".png")]
    damaged = bytearray(whole)
    damaged[starts[50]] ^= 0xFF
    file.write_bytes(damaged)
    with pytest.raises(RequestError, match=rf"a\.tar: damaged or cut short at byte {starts[50]:,}; download it again"):
        read_webdataset(tmp_path)
    file.write_bytes(whole[: starts[30]])
    with pytest.raises(RequestError, match=r"a\.tar"):
        read_webdataset(tmp_path)
    file.write_bytes(whole + whole)
    with pytest.raises(RequestError, match=r"a\.tar: holds more after the end of the archive"):
        read_webdataset(tmp_path)
