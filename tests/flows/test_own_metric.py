"""New metrics on stored evaluations, through the command line: one added to the table, and a user's own."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from capim.store import EmbeddingStore
from capim.store.schema import TABLES
from capim.tasks.corpora.readers.shapes import read_shapes
from capim.tasks.metrics import METRICS
from capim.tasks.metrics.metric import RETRIEVAL, Metric
from tests.command import command, json_rows
from tests.random_store import OTHER, SPECS, random_store

pytestmark = pytest.mark.slow  # whole suites of commands

N_SCENES = 20
PROTOCOLS = ("i2t/any", "t2i/all")
SAME = "--replicates 100 --quiet"
EVALUATE = f"evaluate --protocols {','.join(PROTOCOLS)} --device cpu {SAME}"
COMPARE = f"compare {SAME}"
NEW = Metric(
    name="hit_2",
    title="Found among the first two, ties lost",
    directions=RETRIEVAL,
    values=lambda outcomes, _: (outcomes.rank_worst <= 2).astype(np.float64),
)
SHORT = '''
import numpy as np


def short(outcomes, n):
    """Found first, of captions of at most n words."""
    words = np.array([np.nan if text is None else len(text.split()) for text in outcomes.query_texts])
    return np.where(words <= n, outcomes["rank_worst"] == 1, np.nan)


def margin(block):
    """How far the best relevant item is ahead of the best other one."""
    own = np.where(block.relevant, block.scores, -np.inf).max(axis=1)
    other = np.where(block.relevant, -np.inf, block.scores).max(axis=1)
    return own - other


def first_items(outcomes):
    """Largest number of queries that find the same item first."""
    return outcomes.top_ords[:, 0]


first_items.aggregate = lambda items: np.unique(items, return_counts=True)[1].max()
first_items.lower_is_better = True


def broken(outcomes):
    if outcomes.protocol.direction == "t2i":
        raise LookupError("nothing of that kind")
    return outcomes.rank_best
'''


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with three encoders of random vectors, evaluated and compared."""
    folder = tmp_path_factory.mktemp("own-metric") / "workspace"
    random_store(folder / "store", read_shapes(n_scenes=N_SCENES), (*SPECS, OTHER))
    command(f"{EVALUATE} --keep-replicates", folder)
    command(COMPARE, folder)
    command(f"analyse --analyses complexity {SAME}", folder)
    return folder


@pytest.fixture
def workspace(evaluated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy, and the user's file in the current folder."""
    shutil.copytree(evaluated, tmp_path / "workspace")
    (tmp_path / "own.py").write_text(SHORT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CAPIM_WORKSPACE", str(tmp_path / "workspace"))
    return tmp_path / "workspace"


def rows(workspace: Path, table: str, **equals: Any) -> list[dict[str, Any]]:
    """Rows without which run they belong to, in a fixed order."""
    return plain(EmbeddingStore.open(workspace / "store").rows(table, **equals).to_pylist())


def current(workspace: Path, table: str, **equals: Any) -> list[dict[str, Any]]:
    """Those of the rows that are current."""
    found = EmbeddingStore.open(workspace / "store").current(TABLES[table].row, **equals)
    return plain([vars(row) for row in found])


def plain(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return sorted(({k: v for k, v in row.items() if k not in ("run", "created")} for row in found), key=repr)


def others(found: list[dict[str, Any]], *metrics: str) -> list[dict[str, Any]]:
    """The rows of other metrics."""
    return [row for row in found if row["metric"] not in metrics]


# --- a metric of the table -------------------------------------------------------------------------------------------
def test_a_metric_added_to_the_table_is_computed_for_stored_evaluations_and_nothing_else_is(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> NDArray[np.float64]:
        raise AssertionError("a stored metric was computed again")

    before = {table: rows(workspace, table) for table in ("results", "replicates", "outcomes", "comparisons")}
    monkeypatch.setitem(METRICS, NEW.name, NEW)
    with monkeypatch.context() as stored:
        for name in ("R@1", "MRR", "median_rank", "mAP@R"):
            stored.setitem(METRICS, name, replace(METRICS[name], values=refused))
        said = command(f"{EVALUATE} --keep-replicates").err
        assert "0 protocols scored, 6 were already stored; 6 results computed" in said
        assert command(f"{EVALUATE} --keep-replicates").err.endswith("6 were already stored\n")
    for table in ("results", "replicates"):
        after = rows(workspace, table)
        assert others(after, NEW.name) == before[table]
        assert len(after) == len(before[table]) + 6
    assert rows(workspace, "outcomes") == before["outcomes"]
    ranks = rows(workspace, "outcomes", encoder="one", protocol="t2i/all")
    [row] = rows(workspace, "results", metric=NEW.name, encoder="one", protocol="t2i/all")
    assert row["value"] == np.mean([rank["rank_worst"] <= 2 for rank in ranks])
    command(COMPARE)
    after = rows(workspace, "comparisons")
    assert others(after, NEW.name) == before["comparisons"]
    assert sum(row["metric"] == NEW.name for row in after) == 6


def test_another_version_of_a_metric_counts_in_sums_and_replicates_too_and_leaves_no_slices(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {table: rows(workspace, table) for table in ("results", "replicates", "comparisons", "slices")}
    monkeypatch.setitem(METRICS, "R@1", replace(METRICS["R@1"], version=2))
    command(EVALUATE)
    for table, earlier in before.items():  # nothing is replaced
        assert [row for row in rows(workspace, table) if row in earlier] == earlier
    found = current(workspace, "results", metric="R@1")
    assert {row["metric_version"] for row in current(workspace, "results", metric="RSUM")} == {"2, 1, 1"}
    for table, left in (("comparisons", {"R@1", "RSUM"}), ("slices", {"R@1"})):  # made of the earlier version
        assert {row["metric"] for row in before[table]} - {row["metric"] for row in current(workspace, table)} == left
    # with replicates they are computed, because none of today's version are stored
    command(f"{EVALUATE} --keep-replicates")
    kept = rows(workspace, "replicates", metric="R@1", result=[row["result"] for row in found])
    assert sorted(row["value"] for row in kept) == sorted(row["value"] for row in found)


def test_means_over_languages_have_the_version_of_their_metric(
    in_languages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Path(shutil.copytree(in_languages, tmp_path / "workspace"))

    def figures() -> dict[tuple[str, str, str], tuple[Any, str]]:
        found = current(workspace, "results")
        return {(r["encoder"], r["protocol"], r["metric"]): (r["value"], r["metric_version"]) for r in found}

    before = figures()
    halved = replace(METRICS["R@5"], values=lambda *given: METRICS["success@5"].values(*given) / 2, version=2)
    monkeypatch.setitem(METRICS, "R@5", halved)
    command(f"evaluate --device cpu {SAME}", workspace)
    after = figures()
    assert after.keys() == before.keys()
    assert {version for (_, _, metric), (_, version) in after.items() if metric == "R@5"} == {"2"}
    means = [key for key in before if key[1] == "t2i/*/*" and key[2] in ("R@1", "R@5")]
    assert len(means) == 4
    for key in means:
        assert after[key][0] == pytest.approx(before[key][0] / (2 if key[2] == "R@5" else 1))
    command(f"compare {SAME}", workspace)
    for row in current(workspace, "comparisons", protocol="t2i/*/*"):
        sides = [after[row[side], "t2i/*/*", row["metric"]] for side in ("encoder_a", "encoder_b")]
        assert row["difference"] == pytest.approx(sides[0][0] - sides[1][0])
        assert {version for _, version in sides} == {row["metric_version"]}


# --- a user's metric -------------------------------------------------------------------------------------------------
def test_a_users_metric_with_texts_and_nan_enters_every_table_and_the_report(workspace: Path) -> None:
    captions = EmbeddingStore.open(workspace / "store").items("shapes", "caption")["text"].to_pylist()
    n = int(np.median([len(str(text).split()) for text in captions]))
    name, metric = f"own:short(n={n})", f"--own-metric 'own.py:short(n={n})'"
    before = {table: rows(workspace, table) for table in ("results", "comparisons", "slices")}
    printed = json_rows(f"{EVALUATE} {metric} --keep-replicates")
    assert {(row["metric"], row["protocol"]) for row in printed} == {(name, "t2i/all")}
    query = "SELECT o.encoder, o.rank_worst, c.text FROM outcomes o JOIN captions c ON o.query_id = c.id "
    ranks = json_rows(f"query \"{query} WHERE o.protocol = 't2i/all'\"")
    chosen = [row for row in ranks if len(row["text"].split()) <= n]
    for row in printed:
        hits = [c["rank_worst"] == 1 for c in chosen if c["encoder"] == row["encoder"]]
        assert (row["value"], row["n_queries"]) == (pytest.approx(np.mean(hits)), len(hits))
        assert 0 < len(hits) < 5 * N_SCENES
    own = {table: rows(workspace, table, metric=name) for table in (*before, "replicates")}
    assert [len(own[table]) for table in ("results", "replicates", "comparisons")] == [3, 3, 3]
    assert {row["n_queries"] for row in own["comparisons"]} == {len(chosen) // 3}
    assert {row["analysis"] for row in own["slices"]} >= {"complexity", "ordinal"}
    for table, earlier in before.items():
        assert others(rows(workspace, table), name) == earlier
    # without --own-metric its comparisons stay as they are; with it they are computed again
    command(f"{COMPARE} --permutations 2000")
    assert current(workspace, "comparisons", metric=name) == own["comparisons"]
    again = command(f"compare {metric} {SAME} --margin 3")
    assert "3 comparisons by own:short(n=12)" in again.err
    assert len(current(workspace, "comparisons", metric=name)) == 3
    assert rows(workspace, "results", metric=name) == own["results"]
    folder = command("report").page.parent
    assert f"Found first, of captions of at most n words ({name})" in (folder / "report.html").read_text()
    assert name in (folder / "slices.csv").read_text()


def test_values_in_the_unit_of_the_scores_are_not_compared_between_cosines_and_maxsim_sums(workspace: Path) -> None:
    said = command(f"{EVALUATE} --own-metric own.py:margin".replace("--quiet", "")).err
    assert "t2i/all: values in the unit of the scores: MaxSim sums (many) are not compared with cosines (" in said
    assert len(rows(workspace, "results", metric="own:margin")) == 3 * len(PROTOCOLS)
    pairs = [{row["encoder_a"], row["encoder_b"]} for row in rows(workspace, "comparisons", metric="own:margin")]
    assert pairs == [{"one", "other"}] * len(PROTOCOLS)
    relative = SHORT.replace("    return own - other\n", "    return (own - other) / np.ptp(block.scores, axis=1)\n")
    (workspace.parent / "own.py").write_text(relative)
    command(f"{EVALUATE} --own-metric own.py:margin")
    assert len(current(workspace, "comparisons", metric="own:margin")) == 3 * len(PROTOCOLS)


def test_an_aggregate_has_an_interval_and_a_difference_but_no_test_and_no_slices(workspace: Path) -> None:
    command(f"{EVALUATE} --own-metric own.py:first_items")
    name = "own:first_items"
    results, comparisons = (rows(workspace, table, metric=name) for table in ("results", "comparisons"))
    assert (len(results), len(comparisons), rows(workspace, "slices", metric=name)) == (6, 6, [])
    for row in results:
        held = row["ci_low"] is not None and row["ci_low"] <= row["value"] <= row["ci_high"]
        assert held or "the bootstrap does not suit this figure" in row["reason"]  # draws repeat images
        assert row["value"] == int(row["value"])
    assert {row["p_sign_flip"] for row in comparisons} == {row["wins"] for row in comparisons} == {None}
    assert all("aggregate" in row["reason"] for row in comparisons)
    text = command("report --markdown whole").page.with_name("report.md").read_text()
    assert name.replace("_", r"\_") in text


def test_a_mistake_in_the_users_code_shows_its_line_and_leaves_nothing(workspace: Path) -> None:
    before = rows(workspace, "results")
    said = command(f"{EVALUATE} --own-metric own.py:broken", code=2).err
    assert said.startswith("capim: metric 'own:broken': LookupE")
    assert rows(workspace, "results") == before
    assert [row for row in rows(workspace, "derived") if "own:" in row["identity"]] == []
    assert "Traceback" in command(f"{EVALUATE} --own-metric own.py:broken --debug", code=2).err
    n_runs = len(rows(workspace, "runs"))
    command(f"{EVALUATE} --own-metric own.py:absent", code=2)
    assert len(rows(workspace, "runs")) == n_runs


def test_rows_of_an_earlier_state_of_the_file_do_not_stay(workspace: Path) -> None:
    file = workspace.parent / "own.py"
    evaluate = f"{EVALUATE} --own-metric 'own.py:short(n=99)'"
    tables = ("results", "comparisons", "slices")

    def counts() -> list[int]:
        return [len(current(workspace, table, metric="own:short(n=99)")) for table in tables]

    before = {table: rows(workspace, table) for table in tables}
    file.write_text(SHORT.replace("np.nan if text is None else", "1 if text is None else"))
    command(f"{evaluate} --keep-replicates")
    everywhere = counts()
    assert everywhere[:2] == [6, 6]
    file.write_text(SHORT)
    command(evaluate)
    assert counts()[:2] == [3, 3]
    assert 0 < counts()[2] < everywhere[2]
    found = rows(workspace, "results")
    file.write_text(f"# a remark\n{SHORT}")
    command(evaluate)
    assert rows(workspace, "results") == found
    file.write_text(SHORT.replace("return np.where(words <= n,", "return np.where(words < 0,"))
    command(evaluate)
    assert counts() == [0, 0, 0]
    assert rows(workspace, "replicates", metric="own:short(n=99)") == []
    assert {table: rows(workspace, table) for table in tables} == before


def test_ranks_that_are_known_as_ranges_are_left_out_where_they_do_not_determine_the_metric(
    workspace: Path, tmp_path: Path
) -> None:
    (tmp_path / "hits").mkdir()
    for cutoff, positions in ((1, [0, 3]), (5, [0, 1, 3])):
        np.save(tmp_path / "hits" / f"theirs_ir{cutoff}_rank_index.npy", np.array(positions))
    command("import --corpus shapes --outcomes hits --replicates 100")
    (tmp_path / "at.py").write_text("def at(outcomes, k):\n    return outcomes.rank_worst <= k\n")
    for k, determined in ((5, True), (3, False)):
        said = command(f"{EVALUATE} --own-metric 'at.py:at(k={k})'").err
        assert ("theirs on shapes, t2i/all: its ranks are known as ranges" in said) == (not determined)
        encoders = {row["encoder"] for row in rows(workspace, "results", metric=f"at:at(k={k})")}
        assert ("theirs" in encoders) == determined
    said = command(f"evaluate --own-metric own.py:margin --encoders theirs {SAME}", code=2).err
    assert "theirs on shapes, t2i/all: no score blocks, the store has no embeddings" in said
