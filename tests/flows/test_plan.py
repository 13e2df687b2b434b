"""`capim run --dry-run` says what the run then does, and `capim why` what it did and why."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import capim
from capim.flows.config import run_config
from capim.flows.embed import embed
from capim.store import EmbeddingStore
from capim.store.schema import FORMAT
from capim.tasks.encoders import spec_of
from capim.tasks.metrics.table import METRICS
from capim.tasks.report import publish_report
from tests.command import command, json_rows
from tests.flows.conftest import QUICK, RUN, empty_pages

pytestmark = pytest.mark.slow  # whole suites of runs

THREE = f"{RUN},tiny-clip-plain"
DERIVED = {
    "figures": ["result"],
    "comparisons": ["comparison"],
    "rankings": ["ranking"],
    "analyses": ["analysis", "gate", "devices"],
}


def planned(words: str, workspace: Path) -> dict[str, int]:
    """What is to do, by what it is."""
    todo: dict[str, int] = {}
    for row in json_rows(f"{words} --dry-run", workspace):
        todo[row["what"]] = todo.get(row["what"], 0) + row["to_do"]
    return todo


def reasons_of(words: str, workspace: Path, what: str) -> set[str]:
    """The reasons for which some of this is to do."""
    return {row["reason"] for row in json_rows(f"{words} --dry-run", workspace) if row["what"] == what and row["to_do"]}


def made(store: EmbeddingStore, run: str) -> dict[str, int]:
    """What a run wrote into the ledger, by the same names."""
    kinds = store.counts("derived", "kind", run=run)
    return {what: sum(kinds.get(kind, 0) for kind in names) for what, names in DERIVED.items()}


def files(folder: Path) -> dict[Path, tuple[int, int]]:
    return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*") if path.is_file()}


def newest_run(workspace: Path) -> str:
    return str(EmbeddingStore.open(workspace / "store").rows("runs").sort_by("started")["run"].to_pylist()[-1])


@pytest.fixture(scope="module")
def grown(small_demo: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int], dict[str, int]]:
    """A workspace to which a run has added an encoder, with what was planned, and what was planned again after it."""
    workspace = tmp_path_factory.mktemp("grown") / "workspace"
    shutil.copytree(small_demo, workspace, symlinks=True)
    before = files(workspace)
    assert reasons_of(THREE, workspace, "figures") == reasons_of(THREE, workspace, "images") == {"new input"}
    plan = planned(THREE, workspace)
    assert files(workspace) == before
    with pytest.MonkeyPatch.context() as patch:
        empty_pages(patch)
        command(THREE, workspace)
    return workspace, plan, planned(THREE, workspace)


def test_without_a_store_everything_is_to_do_and_nothing_is_made(small_demo: Path, tmp_path: Path) -> None:
    plan = planned(RUN, tmp_path / "none")
    assert [*tmp_path.iterdir()] == []
    done = EmbeddingStore.open(small_demo / "store")
    assert made(done, newest_run(small_demo)) == {what: plan[what] for what in DERIVED}
    for modality in ("image", "caption"):
        n_rows = sum(each.n_rows for each in done.sealed_sets() if each.key.modality == modality)
        assert plan[f"{modality}s"] == n_rows
    assert plan["outcomes"] == len(done.counts("outcomes", "evaluation"))
    assert plan["pages"] == 1


def test_means_over_languages_are_planned_as_they_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish_report, "fn", lambda *_, **__: "report.html")
    words = "run --corpora shapes-multilingual --sample 4 --encoders tiny-clip,tiny-clip-plain --analyses errors"
    plan = planned(f"{words} {QUICK}", tmp_path / "none")
    command(f"{words} {QUICK}", tmp_path / "w")
    store = EmbeddingStore.open(tmp_path / "w" / "store")
    assert store.rows("results", protocol="t2i/*/*").num_rows
    assert made(store, newest_run(tmp_path / "w")) == {what: plan.get(what, 0) for what in DERIVED}


def test_an_added_encoder_makes_what_was_planned_and_then_nothing_is_to_do(
    grown: tuple[Path, dict[str, int], dict[str, int]],
) -> None:
    workspace, plan, again = grown
    store = EmbeddingStore.open(workspace / "store")
    assert made(store, newest_run(workspace)) == {what: plan[what] for what in DERIVED}
    assert plan["images"] > 0 and plan["pages"] == 1
    assert plan["figures"] < sum(store.counts("derived", "kind", kind="result").values())
    assert set(again.values()) == {0}
    printed = command(f"{THREE} --dry-run", workspace)
    assert "nothing to do: all" in printed.err
    assert printed.out.splitlines()[0].split()[:6] == ["step", "what", "corpus", "encoder", "stored", "to_do"]


def test_other_settings_and_newer_code_are_planned_with_seconds_at_the_rates_of_earlier_runs(
    grown: tuple[Path, dict[str, int], dict[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, *_ = grown
    assert reasons_of(f"{THREE} --margin 3", workspace, "comparisons") == {"other setting"}
    other = planned(f"{THREE} --margin 3", workspace)
    assert other["figures"] == other["images"] == other["outcomes"] == 0
    assert other["comparisons"] > 0 and other["rankings"] == 0, "ranks do not depend on the margin"
    monkeypatch.setitem(METRICS, "MRR", replace(METRICS["MRR"], version="another"))
    rows = [row for row in json_rows(f"{THREE} --dry-run", workspace) if row["to_do"]]
    assert {row["reason"] for row in rows if row["what"] in ("figures", "comparisons")} == {"newer code"}
    assert {row["step"] for row in rows} == {"evaluate", "compare", "rank", "analyse", "report"}
    assert all(row["seconds"] > 0 for row in rows if row["step"] in ("evaluate", "compare", "rank"))


def test_what_a_run_refuses_its_plan_refuses(tmp_path: Path) -> None:
    words = "--corpora shapez --encoders tiny-clap --protocols t2i/al --workspace"
    refusals = [command(f"run {words} {tmp_path / name} {name}", code=2).err for name in ("--dry-run", "--quiet")]
    assert refusals[0] == refusals[1]
    assert "did you mean 'shapes'" in refusals[0] and "did you mean 'tiny-clip'" in refusals[0]
    assert "no effect without --dry-run" in command("run --corpora shapes --encoders tiny-clip --wide", code=2).err


def test_a_store_of_another_format_is_no_empty_store(
    small_demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("capim.store.embedding_store.FORMAT", FORMAT + 1)
    assert f"has format {FORMAT}" in command(f"{RUN} --dry-run", small_demo, code=2).err


def test_bytes_are_those_of_the_vectors_and_seconds_those_of_earlier_batches(tmp_path: Path) -> None:
    few = {"corpora": ["shapes"], "encoders": ["tiny-clip"], "sample": 4, "device": "cpu", "workspace": str(tmp_path)}
    embed.fn(run_config(few))
    plan = capim.open(tmp_path, quiet=True).run(corpora="shapes", encoders="tiny-clip", sample=8, dry_run=True)
    images = plan[plan.what == "images"].iloc[0]
    [per_item] = {row["n_bytes"] / row["to_do"] for row in plan.to_dict("records") if row["step"] == "embed"}
    assert per_item > 4 * spec_of("tiny-clip").dim
    assert (images.stored, images.to_do) == (0, 8)
    assert 0 < images.seconds < 60


# --- `capim why`


def test_an_added_encoder_is_new_input_beside_what_was_found_stored(
    grown: tuple[Path, dict[str, int], dict[str, int]],
) -> None:
    workspace, plan, _ = grown
    rows = json_rows("why", workspace)
    assert sum(row["n"] for row in rows if row["reason"] == "new input" and row["what"] == "result") == plan["figures"]
    assert {row["encoder"] for row in rows if row["what"] in ("result", "embedding") and row["reason"] != "stored"} == {
        "tiny-clip-plain"
    }
    [pairs] = [row for row in rows if row["what"] == "comparison" and row["corpus"] == "shapes-sample12"]
    assert (pairs["reason"], pairs["detail"]) == ("new input", "tiny-clip-plain is new")
    assert any(row["what"] == "result" and row["encoder"] == "tiny-clip" for row in rows if row["reason"] == "stored")


def test_a_run_that_is_unknown_is_refused_with_the_newest(small_demo: Path) -> None:
    assert f"known: {newest_run(small_demo)}" in command("why lost", small_demo, code=2).err
