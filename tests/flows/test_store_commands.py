"""`capim store` and the commands that only read: nothing is dropped without --yes, and no store is made by a typo."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from flows.cli import main
from store import EmbeddingStore, EncoderSpec


@pytest.mark.parametrize("command", [["report"], ["compare"], ["evaluate"], ["results"], ["store", "info"]])
def test_a_command_that_reads_makes_no_store(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--workspace", str(tmp_path / "typo")]) == 2
    assert "there is no store at" in capsys.readouterr().err
    assert not (tmp_path / "typo").exists()


def test_drop_lists_first_and_drops_with_yes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = EmbeddingStore.open(tmp_path / "store", create=True)
    store.write_encoder(EncoderSpec(name="old", adapter="a", checkpoint="c", revision="r1", dim=4))
    drop = ["store", "drop", "--encoder", "old", "--workspace", str(tmp_path)]
    assert main(drop) == 0
    assert "nothing was changed: add --yes" in capsys.readouterr().err
    assert store.encoder("old").dim == 4
    assert main([*drop, "--yes"]) == 0
    assert "dropped" in capsys.readouterr().err
    assert store.encoders().num_rows == 0


def test_after_a_drop_everything_else_goes_on(
    small_demo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Results are kept, and nothing that reads them needs the vectors or the corpus again."""
    workspace = tmp_path / "workspace"
    shutil.copytree(small_demo / "store", workspace / "store")
    quick = ["--quiet", "--replicates", "100", "--permutations", "1000"]
    some = ["compare", *quick, "--corpora", "shapes-sample12"]
    rest = ["results"], ["compare", *quick, "--analyses", "complexity"], ["report", "--quiet"]
    export = ["export", "results", "--to", str(tmp_path / "results.csv")]
    for dropped, commands in (
        (["--encoder", "tiny-clip"], (some, *rest)),
        (["--corpus", "shapes-winoground-sample12"], (*rest, export)),
    ):
        for command in (["store", "drop", *dropped, "--yes"], *commands):
            assert main([*command, "--workspace", str(workspace)]) == 0, (command, capsys.readouterr().err)
        page = max((workspace / "reports").glob("*/report.html")).read_text("utf-8")
        assert ("on corpus shapes-winoground-sample12, which was dropped" in page) == ("--corpus" in dropped)
