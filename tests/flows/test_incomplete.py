"""One broken encoder does not stop the others: they are encoded, evaluated, compared and reported, and it is named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import capim.tasks.evaluate
from capim.store import EmbeddingStore
from capim.store.errors import WorkError
from capim.store.schema import Run
from tests.command import command
from tests.encoders.own_module import encoder_table

ROOT = Path(__file__).resolve().parents[2]
SOUND = ("tiny-clip", "tiny-clip-plain")
NAN = """
import numpy as np
model, embedding_dim = None, 4
def image_forward_fn(model, images, device, transform):
    {images}
def text_forward_fn(model, texts, device, transform):
    return np.full((len(texts), 4), np.nan, np.float32)
"""


@pytest.fixture(autouse=True)
def without_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)


def broken(folder: Path, kind: str) -> str:
    """The table of an encoder that fails in this way."""
    folder.mkdir(exist_ok=True)
    table = {"name": f"broken-{kind}", "adapter": "module", "checkpoint": str(folder / f"{kind}.py"), "dim": 4}
    if kind == "checkpoint":
        checkpoint = folder / "checkpoint"
        shutil.copytree(ROOT / "tasks" / "encoders" / "tiny" / "clip", checkpoint)
        weights = checkpoint / "model.safetensors"
        weights.chmod(0o644)
        weights.write_bytes(weights.read_bytes()[:5000])
        table |= {"adapter": "hf_dual", "checkpoint": str(checkpoint), "dim": 64}
    elif kind == "package":
        (folder / "package.py").write_text("import a_package_that_nobody_has\n")
    elif kind == "nan":
        (folder / "nan.py").write_text(NAN.format(images="return np.ones((len(images), 4), np.float32)"))
    else:
        (folder / f"{kind}.py").write_text(NAN.format(images="raise MemoryError('no memory left')"))
    return encoder_table(table)


def suite_of(tmp_path: Path, *kinds: tuple[str, ...]) -> Path:
    """A suite of the sound encoders, with broken ones of these kinds before the first, between them, and at the end."""
    tables = [f'[[encoder]]\nname = "{name}"\nadapter = "hf_dual"\ncheckpoint = "package:tiny/{folder}"\ndim = 64\n'
              for name, folder in zip(SOUND, ("clip", "clip-plain"), strict=True)]  # fmt: skip
    for place, of_place in reversed([*enumerate(kinds)]):
        tables[place:place] = [broken(tmp_path / "models", kind) for kind in of_place]
    suite = tmp_path / "suite.toml"
    few = '[[corpus]]\nname = "few"\nreader = "shapes"\nn_scenes = 8\n'
    suite.write_text(f'replicates = 100\ndevice = "cpu"\nanalyses = ["errors"]\n{few}{"".join(tables)}')
    return suite


def check(workspace: Path, names: set[str]) -> str:
    """The sound encoders have everything, the run names the others; returns its message."""
    store = EmbeddingStore.open(workspace / "store")
    assert {s.key.encoder for s in store.sealed_sets()} >= {*SOUND}
    assert {*store.rows("results")["encoder"].to_pylist()} == {*SOUND}
    assert store.rows("comparisons").num_rows
    [run] = store.all(Run)
    assert run.state == "incomplete" and run.message is not None and run.finished is not None
    [report] = (workspace / "reports").glob("*/report.html")
    for name in names:
        assert name in run.message
        assert name in report.read_text()
    [shown] = json.loads(report.with_name("results.json").read_text())["runs"]
    assert (shown["state"], shown["finished"]) == ("incomplete", run.finished.isoformat()), "as the run ended"
    return run.message


@pytest.mark.slow
def test_broken_encoders_in_any_place_are_reasons_of_one_line_each_and_the_others_are_complete(tmp_path: Path) -> None:
    suite = suite_of(tmp_path, ("checkpoint",), ("package", "nan"), ("memory",))
    printed = command(f"run {suite} --quiet", tmp_path / "workspace", code=1)
    assert printed.page.is_file(), "the report"
    assert "Traceback" not in printed.err
    lines = printed.err.splitlines()
    reasons = lines[lines.index("capim: 4 encoders failed; the others are complete:") + 1 :]
    words = {
        "checkpoint": "cannot be loaded",
        "package": "a_package_that_nobody_has",
        "nan": "NaN|finite|nan",
        "memory": "memory",
    }
    assert [line.split(":")[0] for line in reasons] == [f"  - broken-{kind}" for kind in words]
    for line, word in zip(reasons, words.values(), strict=True):
        assert any(each in line for each in word.split("|")), line
    message = check(tmp_path / "workspace", {f"broken-{kind}" for kind in words})
    assert "cannot be loaded" in message


@pytest.mark.slow
def test_embed_encodes_the_others_and_a_repaired_encoder_completes_the_report(tmp_path: Path) -> None:
    suite, workspace = suite_of(tmp_path, ("checkpoint",)), tmp_path / "workspace"
    for shards in (1, 2):
        said = command(f"embed {suite} --quiet --shards {shards}", workspace, code=1).err
        assert "1 encoder failed; the others are complete:\n  - broken-checkpoint: " in said
    assert {s.key.encoder for s in EmbeddingStore.open(workspace / "store").sealed_sets()} == {*SOUND}
    sound = ROOT / "tasks" / "encoders" / "tiny" / "clip" / "model.safetensors"
    (tmp_path / "models" / "checkpoint" / "model.safetensors").write_bytes(sound.read_bytes())
    page = command(f"run {suite} --quiet", workspace).page
    assert "failed" not in page.with_name("report.md").read_text()


@pytest.mark.slow
def test_only_broken_encoders_are_an_error_and_make_no_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("capim.flows.terminal", "capim.tasks.hub.progress"):  # every line says how long something took
        monkeypatch.setattr(f"{module}.QUIET_SECONDS", 0.0)
    suite = tmp_path / "suite.toml"
    suite.write_text('corpora = ["shapes"]\nsample = 8\n' + broken(tmp_path / "models", "checkpoint"))
    said = command(f"run {suite}", tmp_path / "workspace", code=1).err
    assert "cannot be loaded" in said
    assert "encoded in" not in said
    assert not (tmp_path / "workspace" / "reports").exists()
    [run] = EmbeddingStore.open(tmp_path / "workspace" / "store").all(Run)
    assert run.state == "failed"


@pytest.mark.slow
def test_an_encoder_that_cannot_be_scored_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = tmp_path / "workspace"
    command(f"embed --corpora shapes --sample 8 --encoders {','.join(SOUND)} --device cpu --quiet", workspace)
    scored = capim.tasks.evaluate.score.fn

    def score(sets: Any, **options: Any) -> Any:
        if sets.encoder == SOUND[0]:
            raise WorkError("a row was changed on disk")
        return scored(sets, **options)

    monkeypatch.setattr(capim.tasks.evaluate.score, "fn", score)
    said = command("evaluate --replicates 100 --quiet", workspace, code=1).err
    assert "  - tiny-clip on shapes-sample8: a row was changed on disk" in said
    assert {*EmbeddingStore.open(workspace / "store").rows("results")["encoder"].to_pylist()} == {SOUND[1]}
