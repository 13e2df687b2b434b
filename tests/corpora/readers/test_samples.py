from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path

import pytest

from capim.store.errors import RequestError
from capim.tasks.corpora.description import open_corpus
from capim.tasks.corpora.files import require_file
from capim.tasks.corpora.readers.samples import TarShards, read_cc3m, read_webdataset
from tests.corpora.own_data import contents, png, refusal, shard


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    shard(tmp_path / "b.tar", {"0002.png": png("blue"), "0002.txt": b"blue\n"})
    shard(
        tmp_path / "a.tar",
        {
            "./0000.txt": b"red",
            "./0000.PNG": png("red"),
            "x/0001.png": png("green"),
            "x/0001.json": json.dumps({"caption": "green"}).encode(),
            "x/0001.txt": "grün".encode(),
            "0003.json": b"{}",
            "0004.png": png("white"),
            "0005.seg.png": png("black"),
            "0005.png": png("navy"),
            "0005.txt": b"navy",
            "README": b"no sample",
        },
    )
    return tmp_path


def test_samples_come_in_order_and_those_without_image_or_caption_are_listed(shards: Path) -> None:
    corpus = open_corpus(shards)
    assert corpus.images["id"].to_pylist() == ["0000", "x/0001", "0005", "0002"]
    assert corpus.captions["text"].to_pylist() == ["red", "grün", "navy", "blue"]
    assert contents(corpus)[2] == png("navy"), "the member whose whole suffix is an image's"
    assert corpus.skipped.to_pylist() == [
        {"item_id": "0003", "reason": "no image in a.tar", "modality": "image"},
        {"item_id": "0004", "reason": "no txt caption in a.tar", "modality": "image"},
    ]


def test_captions_can_be_a_field_of_the_json_member_and_one_shard_can_be_opened(shards: Path) -> None:
    assert read_webdataset(shards, caption="json").captions["text"].to_pylist() == ["green"]
    assert open_corpus(shards / "b.tar").captions["text"].to_pylist() == ["blue"]


def test_cc3m_reads_its_validation_shards_alone_and_offline_says_how_to_get_them(tmp_path: Path) -> None:
    shard(tmp_path / "cc3m-validation-0000.tar", {"1.png": png("red"), "1.txt": b"a"})
    shard(tmp_path / "cc3m-train-0000.tar", {"1.png": png("red"), "1.txt": b"a"})
    assert read_cc3m(tmp_path).images.num_rows == 1
    with pytest.raises(RequestError, match=r"pixparse/cc3m-wds .*the cache does not hold it; .*run: hf download"):
        read_cc3m()


@pytest.mark.parametrize(
    ("members", "caption", "expected"),
    [
        ({"1.png": b"x", "1.txt": b"\xff"}, "txt", "a.tar: 1.txt: not UTF-8 text"),
        ({}, "txt", "no images; check"),
        ({"1.png": b"x"}, "txt", "no images (all 1 were left out; the first: no txt caption in a.tar)"),
        (
            {"1.image.png": b"x", "1.txt": b"y"},
            "txt",
            "a.tar: its files end with image.png, txt: name that of the captions",
        ),
        ({"1.png": b"x", "1.json": b"{"}, "json", "1.json: not JSON"),
        ({"1.png": b"x", "1.json": b'{"caption": 3}'}, "json", "1.json: 'caption' is 3, expected a text or a list of"),
    ],
)
def test_wrong_members_are_named(tmp_path: Path, members: dict[str, bytes], caption: str, expected: str) -> None:
    shard(tmp_path / "a.tar", members)
    with pytest.raises(RequestError) as caught:
        read_webdataset(tmp_path, caption=caption)
    assert expected in str(caught.value)


def test_a_sample_that_was_added_twice_is_not_the_first_image_with_the_second_text(tmp_path: Path) -> None:
    for mode, colour in (("w", "red"), ("a", "blue")):
        shard(tmp_path / "a.tar", {"1.png": png(colour), "1.txt": colour.encode()}, mode)
    with pytest.raises(RequestError, match=r"a\.tar: 1\.png is in it twice; write each sample once"):
        read_webdataset(tmp_path)


def test_a_pipe_is_no_shard(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.tar")
    with pytest.raises(RequestError, match="no file matches"):
        read_webdataset(tmp_path)
    with pytest.raises(RequestError, match=r"a\.tar is a pipe or device, not a file"):
        require_file(tmp_path / "a.tar", "table")


def test_compressed_and_cut_shards_are_named(shards: Path) -> None:
    whole = (shards / "a.tar").read_bytes()
    (shards / "a.tar").write_bytes(whole[:700])
    with pytest.raises(RequestError, match=r"a.tar: (cut short within|not an uncompressed tar file)"):
        read_webdataset(shards)
    shard(shards / "a.tar", {"1.png": png("red")}, "w:gz")
    with pytest.raises(RequestError, match=r"a.tar: not an uncompressed tar file, or damaged .*; unpack .gz first"):
        read_webdataset(shards)
    with pytest.raises(RequestError, match=r"no file matches shards = '\*.zip'"):
        read_webdataset(shards, shards="*.zip")


def test_a_shard_that_shrank_is_an_os_error(shards: Path) -> None:
    key = open_corpus(shards).images["key"][3].as_py()
    (shards / "b.tar").write_bytes(b"short")
    with pytest.raises(OSError, match=r"b.tar: ends before byte \d+; has the file changed"):
        TarShards(shards).read(key)


def test_a_damaged_header_and_a_cut_between_members_are_never_a_smaller_corpus(tmp_path: Path) -> None:
    pairs = [{f"{n:03d}.png": png((n, 0, 0)), f"{n:03d}.txt": b"x"} for n in range(100)]
    file = shard(tmp_path / "a.tar", {name: data for pair in pairs for name, data in pair.items()})
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


def test_a_text_of_several_lines_is_one_caption_or_several_as_the_user_says(tmp_path: Path) -> None:
    """CLIP_benchmark keeps the five captions of an image as lines of one text."""
    lines = b"red\na red image \n"
    shard(tmp_path / "a.tar", {"1.png": png("red"), "1.txt": lines, "2.png": png("blue"), "2.txt": b"blue"})
    expected = '1 text files have several lines, the first 1.txt in a.tar; write captions_in_file = "each" if each line'
    assert expected in refusal(tmp_path)
    each = read_webdataset(tmp_path, captions_in_file="each").captions
    assert [(row["image_id"], row["ordinal"], row["text"]) for row in each.to_pylist()] == [
        ("1", 0, "red"), ("1", 1, "a red image"), ("2", 0, "blue"),
    ]  # fmt: skip
    one = read_webdataset(tmp_path, captions_in_file="one").captions
    assert one["text"].to_pylist() == ["red\na red image ", "blue"]


def test_clip_benchmarks_shards_of_classes_are_labelled_images_with_its_prompts(tmp_path: Path) -> None:
    (tmp_path / "classnames.txt").write_text("crane\ndog\ncrane\n")
    (tmp_path / "zeroshot_classification_templates.txt").write_text("a photo of a {c}.\nart of a {c}.\n")
    (tmp_path / "test").mkdir()
    two = {"s0.cls": b"1", "s0.png": png("red"), "s1.cls": b"2\n", "s1.png": png("blue"), "s9.cls": b"1"}
    shard(tmp_path / "test" / "0.tar", two)
    shard(tmp_path / "test" / "1.tar", {"s2.cls": b"0", "s2.png": png("green")})
    corpus = open_corpus(tmp_path)
    assert {row["query_id"]: row["item_id"] for row in corpus.relevance.to_pylist()} == {
        "s0": "dog#0", "s1": "crane 2#0", "s2": "crane 0#0",
    }  # fmt: skip
    assert corpus.captions["text"].to_pylist()[:3] == ["a photo of a crane.", "art of a crane.", "a photo of a crane."]
    assert contents(corpus)[1] == png("blue")
    assert corpus.skipped["item_id"].to_pylist() == ["s9"]
    assert len(open_corpus({"reader": "labels", "root": str(tmp_path), "prompts": "photo"}).captions) == 3
    shard(tmp_path / "test" / "2.tar", {"s3.cls": b"3", "s3.png": png("black")})
    with pytest.raises(RequestError, match=r"where \.cls is not a line number of classnames\.txt, from 0: s3 \('3'\)"):
        open_corpus(tmp_path)


def test_shards_may_lie_in_the_folder_of_their_split(tmp_path: Path) -> None:
    (tmp_path / "flickr" / "test").mkdir(parents=True)
    shard(tmp_path / "flickr" / "test" / "0.tar", {"1.png": png("red"), "1.txt": b"red"})
    corpus = open_corpus(tmp_path / "flickr")
    assert (corpus.name, corpus.captions["text"].to_pylist()) == ("flickr", ["red"])
