"""`capim compare` over several corpora: the ranking is printed, stored, read by SQL and exported, and replaced."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from capim.reports.rows.reading import read_report_data
from capim.reports.sections import evidence
from capim.store import EmbeddingStore
from capim.store.schema import Ranking
from capim.tasks.corpora.build import CaptionRow, ImageRow, build_corpus
from tests.command import Printed, command, json_rows
from tests.reports.stand_in import block

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
    data = read_report_data(EmbeddingStore.open(workspace / "store"))
    note = block(evidence.section(data), "ranking-corpora").note
    assert "w enters no mean" in note
    assert "Not in the ranking" not in note
    chosen = command("choose --weights w=1,x=1,y=1,z=1", workspace)
    assert "not ranked: broken: not shown above chance on any task with a weight" in " ".join(chosen.err.split())


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


def test_json_has_every_comparison_with_its_verdict_and_sql_reads_the_ranking(workspace: Path) -> None:
    printed = compare(workspace, "--format json")
    assert f"{len(printed.rows)} comparisons stored" in printed.err
    [row] = [r for r in printed.rows if (r["corpus"], r["metric"], r["encoder_a"]) == ("z", "R@1", "strong")]
    assert (row["encoder_b"], row["difference"], row["state"]) == ("weak", 0.725, "better")
    assert row["simultaneous_low"] < row["difference"] < row["simultaneous_high"]
    assert 0 < row["p_adjusted"] < 0.01
    statement = "SELECT encoder, value, rank_low, rank_high FROM rankings "
    statement += "WHERE estimand = 'these corpora' AND tied_with_best"
    [best] = json_rows(f'query "{statement}"', workspace)
    assert (best["encoder"], best["rank_low"], best["rank_high"]) == ("strong", 1, 1)


def test_two_corpora_have_no_ranking_and_the_reason_and_one_no_word_about_it(workspace: Path) -> None:
    two, one = compare(workspace, "--corpora x,y"), compare(workspace, "--corpora x")
    assert [two.out.count("\n"), one.out.count("\n")] == [2 + 6, 2 + 3], "pairs alone"
    assert "a ranking over corpora needs 3 of them, got 2" in two.err
    assert "ranking" not in one.err
    assert stored(workspace) == []


def test_the_ranking_is_that_of_the_last_command_and_goes_with_the_outcomes_of_any_encoder(workspace: Path) -> None:
    compare(workspace, "--level 0.8")  # the usual level would stay current
    before = stored(workspace)
    compare(workspace, "--level 0.9")
    after = EmbeddingStore.open(workspace / "store").current(Ranking)
    assert len(after) == len(before) > 0
    assert {row.level for row in after} == {0.9}
    imported(workspace, "weak", "y", 30, "--replace")
    assert stored(workspace) == []


def test_the_ranking_follows_the_first_screen(workspace: Path) -> None:
    compare(workspace)
    page = command("report", workspace).page
    document = json.loads(page.with_name("results.json").read_text())
    text = page.read_text("utf-8")
    assert re.findall('<section id="([^"]+)"', text)[0] == "sure"
    ranking = text.partition('id="ranking-corpora"')[2].partition("<tbody>")[2]
    assert re.search(r"<th[^>]*>strong</th>\s*<td[^>]*>1</td>", ranking.partition("</tr>")[0])
    assert {row["encoder"] for row in document["rankings"]} == {"strong", "weak", "partial"}
    other = command("report --corpora x,y", workspace).page.with_name("results.json")
    assert json.loads(other.read_text())["rankings"] == []
