"""`capim embed` and `capim check` for one's own models and for corpora that can be encoded in part."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from capim.flows.cli import main
from capim.store import EmbeddingStore
from capim.tasks.corpora.build import CaptionRow, ImageRow, build_corpus
from capim.tasks.corpora.check import encodable, encoding_fault
from tests.encoders.own_module import write_module, write_suite, write_weights

NAMED = 'files = ["weights.npy"]\n'
GAP = "its identity is model.py alone"


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    """What a command writes to standard error."""
    capsys.readouterr()
    assert main([*words]) == code, capsys.readouterr().err
    return capsys.readouterr().err


@pytest.mark.slow
def test_a_module_is_encoded_again_when_the_weights_beside_it_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_module(tmp_path, NAMED)
    embed = ["embed", str(write_suite(tmp_path)), "--workspace", str(tmp_path / "w"), "--quiet"]
    first = said(capsys, *embed)
    assert re.search(r"own on shapes-sample4: \d+ items encoded, 0 were already stored", first)
    assert GAP not in first
    write_weights(tmp_path, seed=0)
    assert "own on shapes-sample4: 0 items encoded" in said(capsys, *embed)
    write_weights(tmp_path, seed=1)
    assert "own on shapes-sample4: 24 items encoded" in said(capsys, *embed)
    write_weights(tmp_path, seed=0)
    assert "own on shapes-sample4: 0 items encoded" in said(capsys, *embed)
    (tmp_path / "weights.npy").unlink()
    assert "needs the file 'weights.npy', which does not exist" in said(capsys, *embed, code=2)


@pytest.mark.slow
def test_a_module_that_names_no_files_is_said_once_to_be_its_file_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_module(tmp_path)
    where = ["--workspace", str(tmp_path / "w"), "--quiet"]
    run = ["run", str(write_suite(tmp_path)), "--corpora", "shapes,shapes-winoground", "--replicates", "100", *where]
    lines = [line for line in said(capsys, *run).splitlines() if GAP in line]
    assert len(lines) == 1
    assert 'files = ["weights.pt"]' in lines[0]
    report = next((tmp_path / "w" / "reports").glob("*/report.md")).read_text()
    assert "sha256-" in report
    in_table = write_suite(tmp_path, NAMED + 'revision = "second try"')
    assert GAP not in said(capsys, "embed", str(in_table), *where)
    spec = EmbeddingStore.open(tmp_path / "w" / "store").encoder("own")
    assert spec.revision.startswith("second try+sha256-")
    assert str(spec.options["revision:weights.npy"]).startswith("sha256-")


@pytest.mark.slow
def test_check_of_a_module_claims_nothing_that_it_cannot_know(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_module(tmp_path)
    main(["check", "own", "--suite", str(write_suite(tmp_path)), "--format", "json"])
    rows = {row["check"]: row for row in json.loads(capsys.readouterr().out)}
    for check in ("identity", "no missing weights", "loads offline"):
        assert rows[check]["result"] == "skip"
        assert rows[check]["detail"].startswith("not verified: ")
    assert GAP in rows["identity"]["detail"]


@pytest.fixture
def without_images(tmp_path: Path) -> Path:
    """A corpus of captions with texts whose images are ids."""
    (tmp_path / "ids.tsv").write_text("image\tcaption\n17\ta red bus\n17\ta bus\n18\ttwo dogs\n")
    description = tmp_path / "ids.toml"
    description.write_text('name = "ids"\nreader = "table"\nroot = "ids.tsv"\nids_only = true\n')
    return description


@pytest.mark.slow
@pytest.mark.parametrize("shards", ["1", "2"])
def test_captions_alone_are_encoded_and_what_is_printed_leads_to_figures(
    without_images: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    shards: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    where = ["--workspace", str(tmp_path / "w")]
    named = ["--corpora", str(without_images), "--encoders", "tiny-clip"]
    printed = said(capsys, "embed", *named, "--shards", shards, "--device", "cpu", "--quiet", *where)
    lines = [line for line in printed.splitlines() if line.startswith(("tiny-clip on", "corpus "))]
    assert lines[0].startswith("tiny-clip on ids: 3 items encoded, 0 were already stored")
    assert len(lines) == 2
    assert lines[1].startswith("corpus 'ids': its images have no files, so only its captions can be encoded.")
    assert "tiny-clip on ids: 0 items encoded, 3 were" in said(capsys, "embed", *named, "--quiet", *where)
    in_store = ["--corpora", "ids", "--encoders", "tiny-clip", *where]
    assert "its images have no files" in said(capsys, "evaluate", *in_store, "--quiet", code=2)
    assert "its images have no files" in said(capsys, "run", *named, "--device", "cpu", "--quiet", *where, code=2)
    # the two commands that are printed, as they are printed
    monkeypatch.chdir(tmp_path)
    np.savez("images.npz", ids=np.array(["17", "18"]), embeddings=np.random.default_rng(0).normal(size=(2, 64)))
    commands = re.findall(r"`capim ([^`]*)`", lines[1])
    assert len(commands) == 2
    for command in commands:
        said(capsys, *shlex.split(command.replace("FILE", "images.npz")), *where)
    evaluate = ["--corpora", "ids", "--encoders", "tiny-clip-imported", "--replicates", "100", "--device", "cpu"]
    assert "protocols scored" in said(capsys, "evaluate", *evaluate, "--quiet", *where)


@pytest.mark.slow
def test_one_modality_is_encoded_where_only_it_is_wanted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    embed = ["embed", "--corpora", "shapes", "--sample", "4", "--encoders", "tiny-clip", "--device", "cpu", "--quiet"]
    embed += ["--workspace", str(tmp_path / "w")]
    assert "tiny-clip on shapes-sample4: 20 items encoded, 0 were" in said(capsys, *embed, "--only", "captions")
    store = EmbeddingStore.open(tmp_path / "w" / "store")
    assert [sealed.key.modality for sealed in store.sealed_sets()] == ["caption"]
    assert "4 items encoded, 0 were already stored" in said(capsys, *embed, "--only", "images")
    assert "0 items encoded, 24 were already stored" in said(capsys, *embed)


def test_what_cannot_be_encoded_is_refused_with_the_import_that_works(
    without_images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--workspace", str(tmp_path / "w")]
    embed = ["embed", "--corpora", str(without_images), "--encoders", "tiny-clip", *where]
    only = said(capsys, *embed, "--only", "images", code=2)
    assert "its images have no files, so they cannot be encoded" in only
    (tmp_path / "ids.tsv").write_text("image\tcaption_id\n17\tc1\n18\tc2\n")
    nothing = said(capsys, *embed, code=2)
    assert "its images have no files and its captions have no texts, so they cannot be encoded" in nothing
    assert not (tmp_path / "w").exists()
    np.save(tmp_path / "two.npy", np.random.default_rng(0).normal(size=(2, 8)))
    for message in (only, nothing):
        command = re.findall(r"`capim ([^`]*)`", message)[0]
        words = command.replace("FILE", str(tmp_path / "two.npy")).replace("NAME", "theirs")
        said(capsys, *shlex.split(words), *where)


def test_captions_without_texts_leave_the_images_to_encode() -> None:
    images = [ImageRow("a", sha="0" * 32), ImageRow("b", sha="1" * 32)]
    corpus = build_corpus("c", images, [CaptionRow("a0", "a", None), CaptionRow("b0", "b", "two")], source=None)
    assert encodable(corpus) == ("image",)
    assert encoding_fault(corpus, ["image", "caption"]) is None
    assert "its captions have no texts" in str(encoding_fault(corpus, ["caption"]))
