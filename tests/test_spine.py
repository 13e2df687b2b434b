"""What must not matter, through the command line: batches, the order of the encoders, cores, a corrupt photograph."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from capim.store import EmbeddingStore
from tests.command import command, json_rows

EVERY = "tiny-clip,tiny-clip-plain,tiny-colpali"
RUN = "run --corpora shapes,shapes-winoground --sample 24 --replicates 100 --analyses errors --device cpu --quiet"


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
def test_a_corrupt_photograph_is_skipped_and_counted_in_the_report(shared_data: Path, tmp_path: Path) -> None:
    photos, folder = tmp_path / "photos", tmp_path / "workspace"
    shutil.copytree(shared_data / "coco_photos", photos)
    victim = next((photos / "images").glob("*.jpg"))
    victim.chmod(0o644)
    victim.write_bytes(victim.read_bytes()[:500])
    words = "run --encoders tiny-clip --replicates 200 --protocols t2i/all --analyses errors --device cpu --quiet"
    printed = command(f"{words} --corpora {photos}", folder)
    assert victim.stem.lstrip("0") in printed.err
    assert victim.stem.lstrip("0") in printed.page.read_text()
    rows = json_rows("results --protocol t2i/all --metric R@1", folder)
    assert rows[0]["n_clusters"] == 90
