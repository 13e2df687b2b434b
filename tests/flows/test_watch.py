"""The regression watch: quiet when nothing changed, loud when vectors or metrics did."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from flows.cli import main
from flows.config import RunConfig
from flows.execution import start
from flows.watch import watch
from store import EmbeddingStore
from store.errors import WorkError

pytestmark = pytest.mark.slow


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    return RunConfig(
        workspace=str(tmp_path),
        corpora=({"name": "few", "reader": "shapes", "n_scenes": 12},),
        encoders=("tiny-clip", "tiny-colpali"),
        replicates=200,
        device="cpu",
    )


def test_a_second_watch_finds_nothing_where_nothing_changed(config: RunConfig) -> None:
    start(watch, config)
    assert start(watch, config).findings == ()


def test_vectors_that_a_model_no_longer_gives_fail_the_watch_and_its_record(
    config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    start(watch, config)
    import tasks.runtime.watching
    import tasks.watch
    from tasks.encoders import encode_images as encode

    def drifted(encoder: object, images: object) -> object:
        made = encode(encoder, images)  # type: ignore[arg-type]
        noise = np.random.default_rng(0).normal(scale=0.3, size=made.values.shape).astype(np.float32)
        return dataclasses.replace(made, values=made.values + noise)

    monkeypatch.setattr(tasks.runtime.watching, "encode_images", drifted)
    monkeypatch.setattr(tasks.watch, "library_versions", lambda: {"torch": "99"})
    with pytest.raises(WorkError, match=r"tiny-clip on few, images: 12 items encoded again.*below 0\.999") as caught:
        start(watch, config)
    assert "torch: " in str(caught.value)
    assert "captions:" not in str(caught.value)
    states = EmbeddingStore.open(config.store_uri).rows("runs").sort_by("started")["state"].to_pylist()
    assert states == ["completed", "failed"]
    suite = tmp_path / "suite.toml"
    suite.write_text('encoders = ["tiny-clip"]\n[[corpus]]\nname = "few"\nreader = "shapes"\nn_scenes = 12\n')
    assert main(["watch", str(suite), "--format", "json", "--workspace", config.workspace, "--quiet"]) == 1
    printed = capsys.readouterr()
    assert [finding["verdict"] for finding in json.loads(printed.out)][:2] == ["fail", "note"]
    assert printed.err.startswith("capim: regression: [fail] tiny-clip on few, images")


def test_a_worse_revision_fails_by_a_paired_test_until_it_is_put_right(config: RunConfig) -> None:
    good = dataclasses.replace(config, corpora=({"name": "many", "reader": "shapes", "n_scenes": 60},))
    from tasks.encoders import spec_of

    def named(checkpoint: str) -> RunConfig:
        spec = spec_of(checkpoint)
        entry = {"name": "ours", "adapter": spec.adapter, "checkpoint": spec.checkpoint, "dim": spec.dim}
        return dataclasses.replace(good, encoders=({**entry, "options": dict(spec.options)},))

    start(watch, named("tiny-clip"))
    for _ in range(2):  # a failed watch is no good run: the second one compares with the same past
        with pytest.raises(WorkError) as caught:
            start(watch, named("tiny-clip-plain"))
        assert "[fail] ours on many, t2i/all" in str(caught.value)
        assert "[note] weights of ours: checkpoint: " in str(caught.value)
    assert not [finding for finding in start(watch, named("tiny-clip")).findings if finding.verdict != "note"]
