"""Two encodes never share an accelerator, and one encode can use several."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capim.flows.config import RunConfig
from capim.flows.embed import embed
from capim.flows.execution import start
from capim.store import EmbeddingStore
from capim.store.errors import RequestError
from tests.deployments.conftest import suite_of
from tests.encoders.own_module import own_encoder

ROOT = Path(__file__).resolve().parents[2]
CAPIM = str(Path(sys.executable).with_name("capim"))
HOLDER = """import time; from capim.tasks.embed import held
with held('cpu:0'):
    print('held', flush=True); time.sleep(250)
"""


def config_of(workspace: Path, *, n_scenes: int, **more: Any) -> RunConfig:
    """An encode of rendered scenes by one model."""
    corpora = ({"name": "few", "reader": "shapes", "n_scenes": n_scenes},)
    own = own_encoder(workspace.parent / "own")
    return RunConfig(workspace=str(workspace), corpora=corpora, encoders=(own,), **more)


@pytest.mark.slow
def test_an_encode_without_a_server_waits_for_a_device_until_the_process_that_has_it_dies(tmp_path: Path) -> None:
    suite = suite_of(tmp_path / "suite.toml", own_encoder(tmp_path / "own"), n_scenes=4)
    alone = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
    # the processor under a name that is locked, as a card's would be
    other = subprocess.Popen([sys.executable, "-c", HOLDER], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    assert other.stdout.readline() == "held\n"
    words = [CAPIM, "embed", str(suite), "--workspace", str(tmp_path), "--device", "cpu:0"]
    process = subprocess.Popen(words, env=alone, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = next(line for line in process.stderr if "cpu:0" in line)
    assert "cpu:0 is encoding for another process; waiting until it is free" in said
    assert EmbeddingStore.open(f"{tmp_path}/store").rows("batches").num_rows == 0
    other.kill()
    other.wait(timeout=20)
    assert "24 items encoded" in process.communicate(timeout=250)[1]
    assert process.returncode == 0


@pytest.mark.slow
def test_shards_on_two_devices_give_the_store_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    matrices = {}
    for device in ("cpu", "cpu,cpu"):
        config = config_of(tmp_path / device, n_scenes=8, batch_size=4, device=device)
        [done] = start(embed, config)
        assert done.n_encoded == done.n_items == 48
        [again] = start(embed, config)
        assert again.n_encoded == 0
        store = EmbeddingStore.open(config.store_uri)
        assert store.rows("batches")["n_items"].to_numpy().sum() == 48
        matrices[device] = [
            store.vectors(encoder="own", corpus="few", modality=side).matrix for side in ("image", "caption")
        ]
    for one, two in zip(matrices["cpu"], matrices["cpu,cpu"], strict=True):
        assert np.allclose(one, two, atol=2e-3)  # other batches, other order of sums


def test_parts_of_a_set_are_runs_of_their_own_and_the_last_one_seals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    config = config_of(tmp_path / "workspace", n_scenes=10, device="cpu", shards=2)
    with pytest.raises(RequestError, match=r"between 1 and 2 \(--shards\), got 3"):
        start(embed, config, shard=3)
    assert start(embed, config, shard=2) == ()
    store = EmbeddingStore.open(config.store_uri)
    assert not store.sealed_sets()
    [done] = start(embed, config, shard=1)
    assert (done.n_items, done.n_encoded, len(store.sealed_sets())) == (60, 30, 2)
    [again] = start(embed, config)
    assert again.n_encoded == 0
    assert store.rows("batches")["n_items"].to_numpy().sum() == 60
