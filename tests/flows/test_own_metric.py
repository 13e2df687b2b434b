"""New metrics on stored evaluations, through the command line: one added to the table, and a user's own."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from capim.flows.cli import main
from capim.store import EmbeddingStore
from capim.tasks.corpora import open_corpus
from capim.tasks.corpora.readers.shapes import read_shapes, read_shapes_multilingual
from capim.tasks.metrics import METRICS
from capim.tasks.metrics.metric import RETRIEVAL, Metric
from tests.random_store import OTHER, SPECS, random_store

N_SCENES = 20
PROTOCOLS = ("i2t/any", "t2i/all")
SAME = ["--replicates", "100", "--quiet"]
ONLY = ["--protocols", ",".join(PROTOCOLS), "--device", "cpu"]
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
    return np.where(words <= n, outcomes["rank_worst"].to_numpy() == 1, np.nan)


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


def nowhere(outcomes):
    return np.full(len(outcomes), np.nan)
'''


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with three encoders of random vectors, evaluated and compared."""
    folder = tmp_path_factory.mktemp("own-metric") / "workspace"
    random_store(folder / "store", read_shapes(n_scenes=N_SCENES), (*SPECS, OTHER))
    where = ["--workspace", str(folder)]
    assert main(["evaluate", *ONLY, *SAME, "--keep-replicates", *where]) == 0
    assert main(["compare", "--analyses", "complexity", *SAME, *where]) == 0
    return folder


@pytest.fixture
def workspace(evaluated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy, and the user's file in the current folder."""
    shutil.copytree(evaluated, tmp_path / "workspace")
    (tmp_path / "own.py").write_text(SHORT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CAPIM_WORKSPACE", str(tmp_path / "workspace"))
    return tmp_path / "workspace"


def own(metric: str, *words: str) -> int:
    """``capim evaluate --metric`` of the user's file."""
    return main(["evaluate", "--metric", f"own.py:{metric}", *ONLY, *SAME, *words])


def printed(capsys: pytest.CaptureFixture[str], *command: str) -> Any:
    """What a command prints as JSON."""
    capsys.readouterr()
    assert main([*command, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def report(capsys: pytest.CaptureFixture[str]) -> Path:
    """The folder of a new report."""
    capsys.readouterr()
    assert main(["report"]) == 0
    return Path(capsys.readouterr().out.strip()).parent


def rows(workspace: Path, table: str, **equals: Any) -> list[dict[str, Any]]:
    """Rows without which run they belong to, in a fixed order."""
    found = EmbeddingStore.open(workspace / "store").rows(table, **equals).to_pylist()
    plain = [{key: value for key, value in row.items() if key not in ("run", "created")} for row in found]
    return sorted(plain, key=repr)


# --- a metric of the table -------------------------------------------------------------------------------------------
def test_a_metric_added_to_the_table_is_computed_for_stored_evaluations_and_nothing_else_is(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*_: object) -> NDArray[np.float64]:
        raise AssertionError("a stored metric was computed again")

    before = {table: rows(workspace, table) for table in ("results", "replicates", "outcomes", "comparisons")}
    monkeypatch.setitem(METRICS, NEW.name, NEW)
    with monkeypatch.context() as stored:
        for name in ("R@1", "MRR", "median_rank", "mAP@R"):
            stored.setitem(METRICS, name, replace(METRICS[name], values=refused))
        assert main(["evaluate", *ONLY, *SAME, "--keep-replicates"]) == 0
        assert "0 protocols scored, 6 were already stored; 6 figures computed" in capsys.readouterr().err
        assert main(["evaluate", *ONLY, *SAME, "--keep-replicates"]) == 0
        assert capsys.readouterr().err.endswith("6 were already stored\n")
    for table in ("results", "replicates"):
        after = rows(workspace, table)
        assert [row for row in after if row["metric"] != NEW.name] == before[table]
        assert len(after) == len(before[table]) + 6
    assert rows(workspace, "outcomes") == before["outcomes"]
    ranks = rows(workspace, "outcomes", encoder="one", protocol="t2i/all")
    [row] = rows(workspace, "results", metric=NEW.name, encoder="one", protocol="t2i/all")
    assert row["value"] == np.mean([rank["rank_worst"] <= 2 for rank in ranks])
    assert main(["compare", "--analyses", "complexity", *SAME]) == 0
    after = rows(workspace, "comparisons")
    assert [row for row in after if row["metric"] != NEW.name] == before["comparisons"]
    assert sum(row["metric"] == NEW.name for row in after) == 6
    # a metric of several relevant items only where there are several
    monkeypatch.setitem(METRICS, "recall_all@3", replace(METRICS["recall_all@10"], name="recall_all@3"))
    assert main(["evaluate", *ONLY, *SAME]) == 0
    assert {row["protocol"] for row in rows(workspace, "results", metric="recall_all@3")} == {"i2t/any"}


def test_another_version_of_a_metric_replaces_its_results_and_all_that_was_made_of_them(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    halved = replace(METRICS["R@1"], values=lambda *given: METRICS["success@1"].values(*given) / 2, version=2)
    tables = ("results", "replicates", "comparisons", "slices")
    before = {table: rows(workspace, table) for table in tables}
    value = {row["result"]: row["value"] for row in before["results"]}
    monkeypatch.setitem(METRICS, "R@1", halved)
    capsys.readouterr()
    assert main(["evaluate", *ONLY, *SAME]) == 0
    assert "0 protocols scored, 6 were already stored; 6 figures computed" in capsys.readouterr().err
    after = {table: rows(workspace, table) for table in tables}
    for table in tables:
        others = [row for row in before[table] if row["metric"] not in ("R@1", "RSUM")]
        assert [row for row in after[table] if row["metric"] not in ("R@1", "RSUM")] == others
        assert len(others) < len(before[table])
    found = [row for row in after["results"] if row["metric"] == "R@1"]
    assert [row["metric_version"] for row in found] == ["2"] * 6
    assert all(row["value"] == value[row["result"]] / 2 for row in found)
    assert {row["metric_version"] for row in after["results"] if row["metric"] == "RSUM"} == {"2, 1, 1"}
    assert all("R@1" not in {row["metric"] for row in after[table]} for table in tables[1:])
    # with replicates they are computed, because none of today's version are stored
    assert main(["evaluate", *ONLY, *SAME, "--keep-replicates"]) == 0
    kept = rows(workspace, "replicates", metric="R@1")
    assert sorted(row["value"] for row in kept) == sorted(row["value"] for row in found)
    assert main(["compare", "--analyses", "complexity", *SAME]) == 0
    pairs = {row["comparison"]: row for row in rows(workspace, "comparisons", metric="R@1")}
    earlier = [row for row in before["comparisons"] if row["metric"] == "R@1"]
    assert len(pairs) == len(earlier) == 6
    for row in earlier:
        assert pairs[row["comparison"]]["difference"] == pytest.approx(row["difference"] / 2)
        assert (row["metric_version"], pairs[row["comparison"]]["metric_version"]) == ("1", "2")


@pytest.fixture(scope="module")
def in_languages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with two encoders of random vectors, evaluated on captions in several languages."""
    folder = tmp_path_factory.mktemp("languages") / "workspace"
    random_store(folder / "store", read_shapes_multilingual(n_scenes=10), (SPECS[0], OTHER))
    assert main(["evaluate", "--device", "cpu", *SAME, "--workspace", str(folder)]) == 0
    return folder


@pytest.mark.parametrize("command", ["evaluate", "compare"])
def test_means_over_languages_have_the_version_of_their_metric(
    in_languages: Path, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Path(shutil.copytree(in_languages, tmp_path / "workspace"))
    monkeypatch.setenv("CAPIM_WORKSPACE", str(workspace))
    words = {"evaluate": ["evaluate", "--device", "cpu"], "compare": ["compare", "--analyses", "complexity"]}

    def figures() -> dict[tuple[str, str, str], tuple[float | None, str]]:
        found = rows(workspace, "results")
        return {(r["encoder"], r["protocol"], r["metric"]): (r["value"], r["metric_version"]) for r in found}

    before = figures()
    halved = replace(METRICS["R@5"], values=lambda *given: METRICS["success@5"].values(*given) / 2, version=2)
    monkeypatch.setitem(METRICS, "R@5", halved)
    assert main([*words[command], *SAME]) == 0
    after = figures()
    assert after.keys() == before.keys()
    assert {version for (_, _, metric), (_, version) in after.items() if metric == "R@5"} == {"2"}
    means = [key for key in before if key[1] == "t2i/*/*" and key[2] in ("R@1", "R@5")]
    assert len(means) == 4
    for key in means:
        assert after[key][0] == pytest.approx(before[key][0] / (2 if key[2] == "R@5" else 1))  # type: ignore[operator]
    assert main([*words["compare"], *SAME]) == 0
    for row in rows(workspace, "comparisons", protocol="t2i/*/*"):
        sides = [after[row[side], "t2i/*/*", row["metric"]] for side in ("encoder_a", "encoder_b")]
        assert row["difference"] == pytest.approx(sides[0][0] - sides[1][0])  # type: ignore[operator]
        assert {version for _, version in sides} == {row["metric_version"]}


# --- a user's metric -------------------------------------------------------------------------------------------------
def test_a_users_metric_with_texts_and_nan_enters_every_table_and_the_report(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    captions = EmbeddingStore.open(workspace / "store").items("shapes", "caption")["text"].to_pylist()
    n = int(np.median([len(str(text).split()) for text in captions]))
    name = f"own:short(n={n})"
    asked = ["--metric", f"own.py:short(n={n})", *SAME]
    before = {table: rows(workspace, table) for table in ("results", "comparisons", "slices")}
    found = printed(capsys, "evaluate", *asked, *ONLY, "--keep-replicates")
    assert {(row["metric"], row["protocol"]) for row in found} == {(name, "t2i/all")}
    query = "SELECT o.encoder, o.rank_worst, c.text FROM outcomes o JOIN captions c ON o.query_id = c.id"
    asked_of_sql = printed(capsys, "query", f"{query} WHERE o.protocol = 't2i/all'")
    chosen = [row for row in asked_of_sql if len(row["text"].split()) <= n]
    for row in found:
        hits = [c["rank_worst"] == 1 for c in chosen if c["encoder"] == row["encoder"]]
        assert (row["value"], row["n_queries"]) == (pytest.approx(np.mean(hits)), len(hits))
        assert 0 < len(hits) < 5 * N_SCENES
    stored = {table: rows(workspace, table, metric=name) for table in (*before, "replicates", "metrics")}
    assert [len(stored[table]) for table in ("results", "replicates", "comparisons", "metrics")] == [3, 3, 3, 1]
    assert {row["n_queries"] for row in stored["comparisons"]} == {len(chosen) // 3}
    assert {row["analysis"] for row in stored["slices"]} >= {"complexity", "ordinal"}
    assert stored["metrics"][0]["title"] == "Found first, of captions of at most n words."
    for table, earlier in before.items():
        assert [row for row in rows(workspace, table) if row["metric"] != name] == earlier
    # without --metric its comparisons stay as they are; with it they are computed again
    assert main(["compare", "--analyses", "complexity", *SAME, "--adjustment", "benjamini-hochberg"]) == 0
    assert rows(workspace, "comparisons", metric=name) == stored["comparisons"]
    assert main(["compare", *asked, "--adjustment", "benjamini-hochberg"]) == 0
    assert "3 comparisons by own.py:short" in capsys.readouterr().err
    assert {row["adjustment"] for row in rows(workspace, "comparisons", metric=name)} == {"benjamini-hochberg"}
    assert rows(workspace, "results", metric=name) == stored["results"]
    assert main(["report"]) == 0
    page = Path(capsys.readouterr().out.strip()).read_text()
    title = f"Found first, of captions of at most n words ({name})"
    for section in ("leaderboard", "differences", "slices"):
        shown = page.partition(f'<section id="{section}"')[2].partition("</section>")[0]
        assert title in shown, section


def test_a_metric_of_score_blocks_works_for_single_and_multi_vectors(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = printed(capsys, "evaluate", "--metric", "own.py:margin", *ONLY, *SAME)
    assert {(r["encoder"], r["protocol"]) for r in found} == set(product(("one", "other", "many"), PROTOCOLS))
    for row in found:
        first = rows(workspace, "results", encoder=row["encoder"], protocol=row["protocol"], metric="R@1")
        assert row["n_queries"] == first[0]["n_queries"]
        assert -2 * 3 < row["value"] < 2 * 3


def test_an_aggregate_has_an_interval_and_a_difference_but_no_test_and_no_slices(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert own("first_items") == 0
    name = "own:first_items"
    results, comparisons = (rows(workspace, table, metric=name) for table in ("results", "comparisons"))
    assert (len(results), len(comparisons), rows(workspace, "slices", metric=name)) == (6, 6, [])
    for row in results:
        assert row["ci_low"] <= row["ci_high"] and row["value"] == int(row["value"])
    assert {row["p_sign_flip"] for row in comparisons} == {row["wins"] for row in comparisons} == {None}
    assert all("aggregate" in row["reason"] for row in comparisons)
    text = (report(capsys) / "report.md").read_text()
    assert "Bold: lowest value; an aggregate over queries has no test." in text


def test_a_mistake_in_the_users_code_shows_its_line_and_leaves_nothing(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = rows(workspace, "results")
    capsys.readouterr()
    assert own("broken") == 2
    line = 1 + SHORT.splitlines().index('        raise LookupError("nothing of that kind")')
    message = capsys.readouterr().err
    assert message == (
        f"capim: metric 'own:broken': LookupError: nothing of that kind, at own.py line {line}: "
        'raise LookupError("nothing of that kind")\n'
    )
    assert rows(workspace, "results") == before
    assert own("nowhere") == 0  # a metric that applies to no query is no mistake
    assert "0 results and 0 comparisons by own.py:nowhere stored" in capsys.readouterr().err
    assert [row for row in rows(workspace, "metrics") if ":" in row["metric"]] == []
    assert own("broken", "--debug") == 2
    assert "Traceback" in capsys.readouterr().err
    n_runs = len(rows(workspace, "runs"))
    assert own("absent") == 2
    assert len(rows(workspace, "runs")) == n_runs


def test_rows_of_an_earlier_state_of_the_file_do_not_stay(workspace: Path) -> None:
    file = workspace.parent / "own.py"
    tables = ("results", "replicates", "comparisons", "slices")

    def counts() -> list[int]:
        return [len(rows(workspace, table, metric="own:short(n=99)")) for table in tables]

    others = {table: rows(workspace, table) for table in tables}
    file.write_text(SHORT.replace("np.nan if text is None else", "1 if text is None else"))
    assert own("short(n=99)", "--keep-replicates") == 0
    everywhere = counts()
    assert everywhere[:3] == [6, 6, 6]
    file.write_text(SHORT)
    assert own("short(n=99)") == 0
    assert counts()[:3] == [3, 0, 3]
    assert 0 < counts()[3] < everywhere[3]
    file.write_text(SHORT.replace("return np.where(words <= n,", "return np.where(words < 0,"))
    assert own("short(n=99)") == 0
    assert counts() == [0, 0, 0, 0]
    assert {table: rows(workspace, table) for table in tables} == others


def test_rows_of_an_earlier_state_of_the_file_are_not_shown_beside_those_of_the_present_one(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, name = workspace.parent / "own.py", "own:short(n=99)"
    assert own("short(n=99)") == 0
    file.write_text(f"# a remark\n{SHORT}")
    assert own("short(n=99)", "--encoders", "one") == 0
    assert len({row["metric_version"] for row in rows(workspace, "results", metric=name)}) == 1
    file.write_text(SHORT.replace('["rank_worst"].to_numpy() == 1', '["rank_worst"].to_numpy() == 2'))
    assert own("short(n=99)", "--encoders", "one") == 0
    assert len({row["metric_version"] for row in rows(workspace, "results", metric=name)}) == 2
    folder = report(capsys)
    document = json.loads((folder / "results.json").read_text())
    shown = [row for table in ("results", "comparisons") for row in document[table] if row["metric"] == name]
    assert [row.get("encoder") for row in shown] == ["one"]
    assert f"{name} of many on shapes by another version of the metric" in (folder / "report.md").read_text()


def test_ranks_that_are_known_as_ranges_are_left_out_where_they_do_not_determine_the_metric(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hits = tmp_path / "hits"
    hits.mkdir()
    for cutoff, positions in ((1, [0, 3]), (5, [0, 1, 3])):
        np.save(hits / f"theirs_ir{cutoff}_rank_index.npy", np.array(positions))
    assert main(["import", "--corpus", "shapes", "--outcomes", str(hits), "--replicates", "100"]) == 0
    capsys.readouterr()
    (tmp_path / "at.py").write_text("def at(outcomes, k):\n    return outcomes.rank_worst <= k\n")
    for k, determined in ((5, True), (3, False)):
        assert main(["evaluate", "--metric", f"at.py:at(k={k})", *ONLY, *SAME]) == 0
        left_out = "theirs on shapes, t2i/all: its ranks are known as ranges" in capsys.readouterr().err
        encoders = {row["encoder"] for row in rows(workspace, "results", metric=f"at:at(k={k})")}
        assert ("theirs" in encoders, left_out) == (determined, not determined)
    assert main(["evaluate", "--metric", "own.py:margin", "--encoders", "theirs", *SAME]) == 2
    assert "theirs on shapes, t2i/all: no score blocks, the store has no embeddings" in capsys.readouterr().err


def test_a_metric_added_to_the_table_is_computed_for_imported_outcomes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace, file = tmp_path / "imported", tmp_path / "ranks.csv"
    captions = open_corpus("shapes").captions["id"].to_pylist()
    lines = ["protocol,query,rank", *(f"t2i/all,{caption},{1 + n % 3}" for n, caption in enumerate(captions))]
    file.write_text("\n".join(lines))
    where = ["--workspace", str(workspace), "--replicates", "100"]
    assert main(["import", "--outcomes", str(file), "--encoder", "theirs", "--corpus", "shapes", *where]) == 0
    before = rows(workspace, "results")
    monkeypatch.setitem(METRICS, NEW.name, NEW)
    capsys.readouterr()
    assert main(["evaluate", *where]) == 0
    assert "0 protocols scored, 1 were already stored; 1 figures computed" in capsys.readouterr().err
    after = rows(workspace, "results")
    assert [row for row in after if row["metric"] != NEW.name] == before
    [new] = [row for row in after if row["metric"] == NEW.name]
    assert new["value"] == pytest.approx(np.mean([1 + n % 3 <= 2 for n in range(len(captions))]))
    assert main(["evaluate", "--encoders", "theirs", *where]) == 0
    assert main(["evaluate", "--encoders", "nobody", *where]) == 2
