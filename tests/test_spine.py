"""What must not matter, through the command line: batches, the order of the encoders, cores, a corrupt photograph."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from capim.store import EmbeddingStore
from tests.command import command, json_rows

EVERY = ("tiny-clip", "tiny-clip-plain", "tiny-colpali")
RUN = "run --corpora shapes,shapes-winoground --sample 24 --replicates 100 --analyses errors --device cpu --quiet"
# those of a run, those that are drawn at random, and digests of such
TAGS = ("run", "created", "image_tag", "caption_tag", "evaluation", "derived", "result")


def figures(workspace: Path) -> list[tuple[str, ...]]:
    """All results without their tags."""
    rows = json_rows("results", workspace)
    return sorted(tuple(str(v) for k, v in sorted(row.items()) if k not in TAGS) for row in rows)


@pytest.mark.slow
def test_other_batches_another_order_and_one_core_give_the_same_figures(tmp_path: Path) -> None:
    import torch

    command(f"{RUN} --encoders {','.join(EVERY)}", tmp_path / "one")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        command(f"{RUN} --encoders {','.join(reversed(EVERY))} --batch-size 7", tmp_path / "other")
    finally:
        torch.set_num_threads(threads)
    assert figures(tmp_path / "one") == figures(tmp_path / "other")
    one, other = (EmbeddingStore.open(tmp_path / name / "store") for name in ("one", "other"))
    for key in (found.key for found in one.sealed_sets() if found.key.encoder != "tiny-colpali"):
        first, second = (
            each.vectors(encoder=key.encoder, corpus=key.corpus, modality=key.modality).matrix for each in (one, other)
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
