"""From nothing to a report, through the command line, as a user would."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from capim.store import EmbeddingStore
from capim.store.rows import delete
from tests.command import command, json_rows

EVERY = "tiny-clip,tiny-clip-plain,tiny-colpali"
RUN = "run --corpora shapes,shapes-winoground --sample 24 --replicates 100 --analyses hubs --device cpu --quiet"
EVALUATE = "evaluate --device cpu --quiet --interval percentile --replicates"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace after one run over two embedded corpora and the embedded models."""
    folder = tmp_path_factory.mktemp("spine") / "workspace"
    command(f"{RUN} --encoders {EVERY}", folder)
    return folder


def _figures(workspace: Path) -> list[dict[str, object]]:
    """All results without which run they belong to."""
    rows = json_rows("results", workspace)
    return [{key: value for key, value in row.items() if key not in ("run", "created")} for row in rows]


@pytest.mark.slow
def test_every_encoder_has_every_protocol_with_its_interval_around_the_value(workspace: Path) -> None:
    rows = json_rows("results --metric R@1,R@5,R@10", workspace)
    on_shapes = [row for row in rows if row["corpus"] == "shapes-sample24"]
    protocols = {"t2i/all", "t2i/first", "i2t/any", "i2t/symmetric-first"}
    for encoder in EVERY.split(","):
        assert protocols <= {row["protocol"] for row in on_shapes if row["encoder"] == encoder}
    shown = [row for row in rows if row["ci_low"] is not None]
    assert len(shown) > 5  # others lack hits or misses
    for row in rows:
        assert row["reason"] if row not in shown else row["ci_low"] < row["value"] < row["ci_high"], row


@pytest.mark.slow
def test_other_batches_another_order_and_one_core_give_the_same_figures(workspace: Path, tmp_path: Path) -> None:
    import torch

    other = f"{RUN} --encoders {','.join(reversed(EVERY.split(',')))}"
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        command(f"{other} --batch-size 7", tmp_path / "workspace")
    finally:
        torch.set_num_threads(threads)
    tags = ("image_tag", "caption_tag", "evaluation", "derived", "result")  # drawn at random, and digests of such

    def untagged(folder: Path) -> list[tuple[str, ...]]:
        return sorted(tuple(str(v) for k, v in sorted(row.items()) if k not in tags) for row in _figures(folder))

    assert untagged(tmp_path / "workspace") == untagged(workspace)
    one, two = (EmbeddingStore.open(folder / "store") for folder in (workspace, tmp_path / "workspace"))
    for key in (found.key for found in one.sealed_sets() if found.key.encoder != "tiny-colpali"):
        first, second = (
            store.vectors(encoder=key.encoder, corpus=key.corpus, modality=key.modality).matrix for store in (one, two)
        )
        assert np.allclose(first, second, atol=1e-4), key


@pytest.mark.slow
def test_results_computed_anew_from_stored_outcomes_are_the_same_to_the_last_digit(
    workspace: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(workspace, tmp_path / "workspace")
    drawn = "query 'SELECT * EXCLUDE (run, created) FROM all_results WHERE replicates = 100 ORDER BY result'"
    command(f"{EVALUATE} 100", copy)
    before = json_rows(drawn, copy)
    command(f"{EVALUATE} 120", copy)
    delete(EmbeddingStore.open(copy / "store").connection, "results", "replicates", [100])
    command(f"{EVALUATE} 100", copy)
    assert json_rows(drawn, copy) == before != []


@pytest.mark.slow
def test_a_corrupt_photograph_is_skipped_and_counted_in_the_report(shared_data: Path, tmp_path: Path) -> None:
    photos, folder = tmp_path / "photos", tmp_path / "workspace"
    shutil.copytree(shared_data / "coco_photos", photos)
    victim = next((photos / "images").glob("*.jpg"))
    victim.chmod(0o644)
    victim.write_bytes(victim.read_bytes()[:500])
    words = "run --encoders tiny-clip --replicates 200 --protocols t2i/all --analyses hubs --device cpu --quiet"
    printed = command(f"{words} --corpora {photos}", folder)
    assert victim.stem.lstrip("0") in printed.err
    assert victim.stem.lstrip("0") in printed.page.read_text()
    rows = json_rows("results --protocol t2i/all --metric R@1", folder)
    assert rows[0]["n_clusters"] == 90
