"""`capim store` and the commands that only read: nothing is dropped without --yes, and no store is made by a typo."""

from __future__ import annotations

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
