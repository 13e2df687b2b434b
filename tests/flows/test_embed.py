"""`capim embed` and `capim check` for one's own models and for corpora that can be encoded in part."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from capim.store import EmbeddingStore
from capim.tasks.corpora.build import CaptionRow, ImageRow, build_corpus
from capim.tasks.corpora.check import encodable, encoding_fault
from tests.command import command

pytestmark = pytest.mark.slow  # whole suites of runs


@pytest.fixture
def without_images(tmp_path: Path) -> Path:
    """A corpus of captions with texts whose images are ids."""
    (tmp_path / "ids.tsv").write_text("image\tcaption\n17\ta red bus\n17\ta bus\n18\ttwo dogs\n")
    description = tmp_path / "ids.toml"
    description.write_text('name = "ids"\nreader = "table"\nroot = "ids.tsv"\nids_only = true\n')
    return description


@pytest.mark.parametrize("shards", ["1", "2"])
def test_captions_alone_are_encoded_and_what_is_printed_leads_to_figures(
    without_images: Path, tmp_path: Path, shards: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = tmp_path / "w"
    named = f"--corpora {without_images} --encoders tiny-clip --quiet"
    printed = command(f"embed {named} --shards {shards} --device cpu", workspace).err
    lines = [line for line in printed.splitlines() if line.startswith(("tiny-clip on", "corpus "))]
    assert lines[0].startswith("tiny-clip on ids: 3 items encoded, 0 were already stored")
    assert len(lines) == 2
    assert lines[1].startswith("corpus 'ids': its images have no files, so only its captions can be encoded.")
    assert "tiny-clip on ids: 0 items encoded, 3 were" in command(f"embed {named}", workspace).err
    for words in ("evaluate --corpora ids --encoders tiny-clip", f"run {named} --device cpu"):
        assert "its images have no files" in command(words, workspace, code=2).err
    # the two commands that are printed, as they are printed
    monkeypatch.chdir(tmp_path)
    np.savez("images.npz", ids=np.array(["17", "18"]), embeddings=np.random.default_rng(0).normal(size=(2, 64)))
    commands = re.findall(r"`capim ([^`]*)`", lines[1])
    assert len(commands) == 2
    for words in commands:
        command(words.replace("FILE", "images.npz"), workspace)
    evaluate = "evaluate --corpora ids --encoders tiny-clip-imported --replicates 100 --device cpu"
    assert "protocols scored" in command(evaluate, workspace).err


def test_one_modality_is_encoded_where_only_it_is_wanted(tmp_path: Path) -> None:
    embed = "embed --corpora shapes --sample 4 --encoders tiny-clip --device cpu --quiet"
    said = command(f"{embed} --only captions", tmp_path).err
    assert "tiny-clip on shapes-sample4: 20 items encoded, 0 were" in said
    store = EmbeddingStore.open(tmp_path / "store")
    assert [sealed.key.modality for sealed in store.sealed_sets()] == ["caption"]
    assert "4 items encoded, 0 were already stored" in command(f"{embed} --only images", tmp_path).err
    assert "0 items encoded, 24 were already stored" in command(embed, tmp_path).err
    twice = embed.replace("shapes", "shapes,shapes").replace("tiny-clip", "tiny-clip,tiny-clip")
    assert command(twice, tmp_path).err.count("0 items encoded, 24 were already stored") == 1


def test_the_storage_type_of_an_encode_is_an_option_and_its_rounding_is_said(tmp_path: Path) -> None:
    embed = "embed --corpora shapes --sample 5 --device cpu"
    assert "rounded" not in command(f"{embed} --encoders tiny-clip", tmp_path).err
    for request in ("tiny-clip --storage float16", "tiny-colpali"):
        assert "stored as float16: " in command(f"{embed} --encoders {request}", tmp_path).err
    sealed_sets = EmbeddingStore.open(tmp_path / "store").sealed_sets()
    stored = [(sealed.key.encoder, sealed.storage) for sealed in sealed_sets if sealed.key.modality == "image"]
    assert stored == [("tiny-clip", "float32"), ("tiny-clip", "float16"), ("tiny-colpali", "float16")]
    assert len({sealed.key.encoder_fingerprint for sealed in sealed_sets}) == 3


def test_what_cannot_be_encoded_is_refused_with_the_import_that_works(without_images: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    embed = f"embed --corpora {without_images} --encoders tiny-clip"
    only = command(f"{embed} --only images", workspace, code=2).err
    assert "its images have no files, so they cannot be encoded" in only
    (tmp_path / "ids.tsv").write_text("image\tcaption_id\n17\tc1\n18\tc2\n")
    nothing = command(embed, workspace, code=2).err
    assert "its images have no files and its captions have no texts, so they cannot be encoded" in nothing
    assert not workspace.exists()
    np.save(tmp_path / "two.npy", np.random.default_rng(0).normal(size=(2, 8)))
    for message in (only, nothing):
        words = re.findall(r"`capim ([^`]*)`", message)[0]
        command(words.replace("FILE", f"{tmp_path}/two.npy").replace("NAME", "theirs"), workspace)


def test_captions_without_texts_leave_the_images_to_encode() -> None:
    images = [ImageRow("a", sha="0" * 32), ImageRow("b", sha="1" * 32)]
    corpus = build_corpus("c", images, [CaptionRow("a0", "a", None), CaptionRow("b0", "b", "two")], source=None)
    assert encodable(corpus) == ("image",)
    assert encoding_fault(corpus, ["image", "caption"]) is None
    assert "its captions have no texts" in str(encoding_fault(corpus, ["caption"]))
