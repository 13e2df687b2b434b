"""Two encodes never share an accelerator, and one encode can use several."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from flows.config import RunConfig
from flows.embed import embed
from flows.execution import start
from store import EmbeddingStore
from tasks.device_lock import held, lock_file

ROOT = Path(__file__).resolve().parents[2]
HOLDER = """import time; from tasks.device_lock import held
with held({0!r}):
    print('held', flush=True); time.sleep({1})
"""


def holder(identity: str, seconds: float) -> subprocess.Popen[str]:
    """Another process that has the device."""
    words = [sys.executable, "-c", HOLDER.format(identity, seconds)]
    process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_process_waits_until_the_device_is_free_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    other = holder("cuda-test-wait", 2)
    started = time.monotonic()
    with caplog.at_level("WARNING"), held("cuda-test-wait"):
        assert time.monotonic() - started > 1
    assert "encoding for another process" in caplog.text
    other.wait(timeout=20)
    lock_file("cuda-test-wait").unlink(missing_ok=True)


def test_a_killed_process_leaves_the_device_free() -> None:
    other = holder("cuda-test-kill", 100)
    other.kill()
    other.wait(timeout=20)
    started = time.monotonic()
    with held("cuda-test-kill"):
        assert time.monotonic() - started < 1
    lock_file("cuda-test-kill").unlink(missing_ok=True)


@pytest.mark.slow
def test_shards_on_two_devices_give_the_store_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    matrices = {}
    for device in ("cpu", "cpu,cpu"):
        config = RunConfig(
            workspace=str(tmp_path / device),
            corpora=({"name": "few", "reader": "shapes", "n_scenes": 20},),
            encoders=("tiny-clip",),
            batch_size=4,
            device=device,
        )
        [done] = start(embed, config)
        assert done.n_encoded == done.n_items == 120
        [again] = start(embed, config)
        assert again.n_encoded == 0
        store = EmbeddingStore.open(config.store_uri)
        assert store.rows("batches")["n_items"].to_numpy().sum() == 120
        matrices[device] = [
            store.vectors(encoder="tiny-clip", corpus="few", modality=side).matrix for side in ("image", "caption")
        ]
    for one, two in zip(matrices["cpu"], matrices["cpu,cpu"], strict=True):
        assert np.allclose(one, two, atol=2e-3)  # other batches, other order of sums, float16 in the store
