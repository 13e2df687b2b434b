"""`capim compare` over several corpora: the ranking is printed, stored, read by SQL and exported, and replaced."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from capim.store import EmbeddingStore
from capim.store.schema import Ranking
from capim.tasks.corpora.build import CaptionRow, ImageRow, build_corpus
from tests.command import Printed, command

pytestmark = pytest.mark.slow  # whole suites of commands

N_IMAGES = 40
PAIRS = ["corpus", "protocol", "metric", "encoder_a", "encoder_b", "difference"]


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three corpora, ids only; three models with imported ranks, one of which has no ranks on the last corpus."""
    folder = tmp_path_factory.mktemp("ranking") / "workspace"
    store = EmbeddingStore.open(folder / "store", create=True)
    for name in ("x", "y", "z"):
        add_corpus(store, name, prefix=name)
        for encoder, n_hits in (("strong", 38), ("weak", 9), ("partial", 20)):
            if (encoder, name) != ("partial", "z"):
                imported(folder, encoder, name, n_hits)
    return folder


def add_corpus(store: EmbeddingStore, name: str, *, prefix: str, caption: str = "x") -> None:
    """Photographs that are told by hashes, whose names begin with the prefix, two captions each."""
    images = [ImageRow(f"{prefix}{i}.jpg", sha=f"{prefix}{i}") for i in range(N_IMAGES)]
    captions = [CaptionRow(f"c{i}-{k}", f"{prefix}{i}.jpg", caption) for i in range(N_IMAGES) for k in range(2)]
    store.write_corpus(build_corpus(name, images, captions, source=None))


@pytest.fixture
def workspace(evaluated: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    return Path(shutil.copytree(evaluated, tmp_path / "workspace"))


def imported(workspace: Path, encoder: str, corpus: str, n_hits: int, more: str = "") -> None:
    """Import ranks of the captions: 1 for those of the first images, 3 for the others."""
    file = workspace.parent / "ranks.csv"
    ranks = [f"c{i}-{k},{1 if i < n_hits else 3}" for i in range(N_IMAGES) for k in range(2)]
    file.write_text("\n".join(["query,rank", *ranks]) + "\n")
    command(f"import --encoder {encoder} --corpus {corpus} --outcomes {file} {more} --replicates 100", workspace)


def compare(workspace: Path, words: str = "") -> Printed:
    return command(f"compare --replicates 200 --quiet {words}", workspace)


def stored(workspace: Path) -> list[Ranking]:
    return EmbeddingStore.open(workspace / "store").all(Ranking)


def test_the_ranking_is_printed_with_ranks_figures_and_who_is_left_out(workspace: Path) -> None:
    printed = compare(workspace)
    pairs, ranking = printed.out.split("\n\n")
    assert pairs.splitlines()[0].split() == [*PAIRS, "low", "high", "p_adjusted", "state"]
    assert len(pairs.splitlines()) == 2 + 3 + 3 + 1, "the pairs on x, y and z"
    heading, _, first, second = ranking.splitlines()
    assert heading.split() == ["ranks", "encoder", "macro_mean", "low", "high", "x", "y", "z"]
    assert first.split()[:3] == ["1", "strong", "0.9500"]
    assert second.split()[:3] == ["2", "weak", "0.2250"]
    assert "x (R@1 under t2i/all)" in printed.err
    assert "partial: not ranked: not evaluated on z\n" in printed.err
    assert "corpora like these: at least 5 corpora say something about others like them, there are 3" in printed.err
    imported(workspace, "weak", "y", 30, "--replace")
    assert stored(workspace) == [], "ranks are those of all outcomes together"
    assert "a ranking over corpora needs 3 of them, got 2" in compare(workspace, "--corpora x,y").err


def test_a_broken_encoder_and_a_corpus_that_nobody_does_are_in_no_mean_and_named(workspace: Path) -> None:
    """Each encoder finds as many images of w as a guesser, and broken finds no more than that anywhere."""
    add_corpus(EmbeddingStore.open(workspace / "store"), "w", prefix="w")
    guessers = [("broken", name, 1) for name in "wxyz"] + [("strong", "w", 0), ("weak", "w", 0)]
    for encoder, name, n_hits in guessers:
        imported(workspace, encoder, name, n_hits)
    printed = compare(workspace)
    told = " ".join(printed.err.split())
    assert "broken: not ranked: not shown above chance on x, y, z" in told
    assert "w enters no mean: no encoder that could be ranked is shown above chance there." in told
    ranking = printed.out.split("\n\n")[1].splitlines()
    assert [ranking[0].split()[-3:], *(line.split()[1] for line in ranking[2:])] == [["x", "y", "z"], "strong", "weak"]


def test_one_corpus_under_three_names_is_ranked_once_and_so_not_at_all(workspace: Path) -> None:
    """Ranks 1 and 2 "with 95 % confidence", where p is .24 on the one corpus that there is."""
    for name in ("x2", "x3"):
        add_corpus(EmbeddingStore.open(workspace / "store"), name, prefix="x")
        for encoder in ("strong", "weak"):
            imported(workspace, encoder, name, 38)
    counted_once = "x, x2 and x3 hold the same photographs and captions: they count once"
    told = " ".join(compare(workspace, "--corpora x,x2,x3").err.split())
    assert stored(workspace) == []
    assert "no ranking: no two encoders have 3 corpora in common" in told
    assert counted_once in told
    assert counted_once in " ".join(compare(workspace).err.split())
    assert {row.n_corpora for row in stored(workspace)} == {3}


def test_corpora_that_share_photographs_are_joined_by_them_and_it_is_told(workspace: Path) -> None:
    add_corpus(EmbeddingStore.open(workspace / "store"), "others", prefix="x", caption="another text")
    for encoder, n_hits in (("strong", 38), ("weak", 9)):
        imported(workspace, encoder, "others", n_hits)
    told = "40 of the 40 photographs of x are in others: a photograph is one unit in all corpora that have it."
    said = compare(workspace, "--corpora x,others,y --encoders strong,weak").err
    assert told in " ".join(said.split()) + "."
    compare(workspace, "--corpora x,z,y --encoders strong,weak")
    of_weak = [row for row in stored(workspace) if row.encoder == "weak"]
    joint, apart = (row for row in of_weak if row.estimand == "these corpora")
    assert (joint.value, '"others"' in joint.corpora) == (apart.value, True)
    wider = (joint.ci_high - joint.ci_low) / (apart.ci_high - apart.ci_low)  # type: ignore[operator]
    assert wider > 1.1, "three corpora of 40 images each are 120 independent images, these are 80"
