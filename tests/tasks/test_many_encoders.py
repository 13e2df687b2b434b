"""33 heavily correlated encoders on a corpus with duplicate images, and a metric with NaN, through the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from capim.store import Embeddings
from capim.store.types import Corpus, EncoderSpec
from capim.tasks.corpora.build import CaptionRow, ImageRow, build_corpus
from capim.tasks.statistics.draws import ADJUSTMENTS
from capim.tasks.statistics.pairs import HEAVY
from tests import random_store
from tests.command import command, json_rows

N_IMAGES, N_PHOTOGRAPHS, DIM = 60, 45, 12  # fifteen photographs are there twice
SPECS = [
    EncoderSpec(name=f"e{n:02}", adapter="hf_dual", checkpoint=f"me/e{n}", revision="a1", dim=DIM) for n in range(33)
]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
SAME = "--replicates 100 --quiet"
KNOWN = '''
import numpy as np


def known(outcomes):
    """Found first, where the first relevant item is among the first ten."""
    ranks = outcomes["rank_worst"].to_numpy()
    return np.where(ranks <= 10, ranks == 1, np.nan)
'''


def duplicated() -> Corpus:
    images = [ImageRow(f"i{n}", sha=f"{n % N_PHOTOGRAPHS:064}", width=8, height=8) for n in range(N_IMAGES)]
    captions = [CaptionRow(f"c{n}-{k}", f"i{n}", f"{k} of {n}") for n in range(N_IMAGES) for k in range(3)]
    return build_corpus("duplicated", images, captions, source=None)


def correlated(spec: EncoderSpec, n: int, seed: int, _near: object = None) -> Embeddings:
    """Vectors that all encoders share but for a little noise, of which later ones have more, and the first two none."""
    number = int(spec.name[1:])
    images = np.random.default_rng(1).normal(size=(N_PHOTOGRAPHS, DIM))[np.arange(N_IMAGES) % N_PHOTOGRAPHS]
    values = images if n == N_IMAGES else np.repeat(images, 3, axis=0)
    values = values + 1.2 * np.random.default_rng(n).normal(size=values.shape)
    own = np.random.default_rng((n, number)).normal(size=values.shape)
    values = (values + max(0, number - 1) / 20 * own).astype(np.float32)
    return Embeddings(
        values=values / np.linalg.norm(values, axis=1, keepdims=True),
        norms=np.ones(n, dtype=np.float32),
        n_tokens=np.ones(n, dtype=np.int32),
        truncated=np.zeros(n, dtype=bool),
    )


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("many")
    (folder / "own.py").write_text(KNOWN)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(random_store, "embeddings", correlated)
        random_store.random_store(folder / "store", duplicated(), SPECS)
    command(f"evaluate --protocols t2i/all {SAME}", folder)
    return folder


@pytest.mark.parametrize(
    ("adjustment", "metric"), [*((each, "") for each in ADJUSTMENTS), ("benjamini-hochberg", "own.py:known")]
)
def test_33_correlated_encoders_are_compared_without_a_contradiction(
    workspace: Path, adjustment: str, metric: str
) -> None:
    how = f"--metric {workspace / metric}" if metric else "--analyses complexity"
    rows = json_rows(f"compare {how} --adjustment {adjustment} --permutations 1000 {SAME}", workspace)
    figures = {row["metric"] for row in rows}
    assert figures == {"own:known"} if metric else figures > {"R@1", "MRR", "mean_rank", "median_rank"}
    for figure in figures:
        of_figure = [row for row in rows if row["metric"] == figure]
        assert len(of_figure) == 33 * 32 / 2
        [equal] = [row for row in of_figure if (row["encoder_a"], row["encoder_b"]) == ("e00", "e01")]
        assert (equal["difference"], equal["p_sign_flip"], equal["p_adjusted"]) == (0, None, None)
        tested = [row for row in of_figure if row["p_sign_flip"] is not None and HEAVY not in (row["reason"] or "")]
        assert len(tested) > 500
        for row in tested:
            assert 0 < row["p_sign_flip"] <= row["p_adjusted"] <= 1, row
            apart = not row["simultaneous_low"] <= 0 <= row["simultaneous_high"]
            assert apart == (row["p_adjusted"] < 0.05), row
            assert row["permutations"] in (1000, 52_800) or row["p_exact"], "of all 528,000 were drawn"
        if metric:  # pairs of different queries in common
            assert len({row["n_queries"] for row in of_figure}) > 20
    claims = {row["metric"] for row in rows if row["p_adjusted"] is not None and row["p_adjusted"] < 0.05}
    assert figures - claims <= {"median_rank"}, "the noisiest are worse; few flips say nothing of medians by Holm"
