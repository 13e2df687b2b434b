"""`capim import` for models without embeddings: tables, scores and runs, under the name that the user gives."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capim.reports.elements.page import Table
from capim.reports.rows.reading import read_report_data
from capim.reports.rows.report_data import without_paths
from capim.reports.sections import provenance
from capim.store import EmbeddingStore
from capim.store.schema import Import, Result
from capim.store.types import EncoderSpec
from capim.tasks.published import read_published
from tests.command import command
from tests.documents import ROOT, run_page
from tests.results.gpt_4v import gpt_4v_files
from tests.results.thirty import N_IMAGES, thirty_images, tied_scores, unit_vectors

QUICK = "--replicates 200"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A store with a corpus of thirty images, ids and texts only."""
    folder = tmp_path / "workspace"
    EmbeddingStore.open(folder / "store", create=True).write_corpus(thirty_images())
    return folder


def imported(workspace: Path, words: str, *, encoder: str = "theirs", code: int = 0) -> str:
    """Import for a model; returns what is said."""
    return command(f"import --corpus thirty --encoder {encoder} {words} {QUICK}", workspace, code=code).err


def results(workspace: Path, **equals: str) -> list[Any]:
    return EmbeddingStore.open(workspace / "store").all(Result, **equals)


def values(workspace: Path, **equals: str) -> dict[tuple[str, str], tuple[float, float, float]]:
    rows = results(workspace, **equals)
    return {(r.protocol, r.metric): (r.value, r.ci_low, r.ci_high) for r in rows}


def ranks_file(folder: Path, ranks: list[int], name: str = "ranks.csv") -> str:
    """Ranks of the sixty captions."""
    queries = [f"c{i}-{k}" for i in range(N_IMAGES) for k in range(2)]
    lines = [f"{query},{rank}" for query, rank in zip(queries, ranks, strict=True)]
    (folder / name).write_text("\n".join(["query,rank", *lines]) + "\n")
    return str(folder / name)


def test_other_outcomes_are_refused_unless_they_shall_replace(workspace: Path, tmp_path: Path) -> None:
    first, second = ranks_file(tmp_path, [1, 2] * 30), ranks_file(tmp_path, [2, 3] * 30, "second.csv")
    imported(workspace, f"--outcomes {first}")
    imported(workspace, f"--outcomes {first}", encoder="others")
    compare = f"compare {QUICK} --quiet"
    command(compare, workspace)
    [stored] = {row.evaluation for row in results(workspace, encoder="theirs")}
    message = imported(workspace, f"--outcomes {second}", code=2)
    assert f"'theirs' has other outcomes on 'thirty': t2i/all (stored {stored}, given " in message
    assert "--replace" in message
    assert {row.evaluation for row in results(workspace, encoder="theirs")} == {stored}

    imported(workspace, f"--outcomes {second} --replace")
    store = EmbeddingStore.open(workspace / "store")
    [now] = {row.evaluation for row in results(workspace, encoder="theirs")}
    assert now != stored
    assert f"given {now}" in message
    assert values(workspace, encoder="theirs")["t2i/all", "R@1"][0] == 0
    assert not store.rows("outcomes", evaluation=stored).num_rows
    assert not store.rows("comparisons").num_rows  # they were about what was replaced
    command(compare, workspace)
    assert store.rows("comparisons").num_rows


def test_a_sum_over_protocols_goes_with_what_it_was_made_of(workspace: Path, tmp_path: Path, matrix: str) -> None:
    imported(workspace, f"--scores {matrix}")
    assert ("t2i/all+i2t/any", "RSUM") in values(workspace)
    imported(workspace, f"--outcomes {ranks_file(tmp_path, [1] * 60)} --replace")
    found = values(workspace)
    assert ("t2i/all+i2t/any", "RSUM") not in found
    assert found["t2i/all", "R@1"][0] == 1
    assert ("i2t/any", "R@1") in found


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--outcomes {broken}", "2 errors"),
        ("--outcomes {ranks} --protocol t2i/none", "'t2i/none' is unknown"),
        ("--outcomes {absent}", "no such file"),
        ("--outcomes {hits}", "--encoder names one model, but"),
        ("--outcomes {hits} --protocol t2i/all", "--protocol is for tables, scores and runs"),
    ],
)
def test_a_wrong_request_is_explained_and_leaves_no_trace(
    workspace: Path, tmp_path: Path, words: str, message: str
) -> None:
    (tmp_path / "broken.jsonl").write_text('{"query": "p0", "correct": "maybe"}\n{"query": "p77", "correct": 1}\n')
    (tmp_path / "hits").mkdir()
    for model in ("ALBEF", "TCL"):
        np.save(tmp_path / "hits" / f"{model}_ir1_rank_index.npy", np.arange(3))
    files = {name: tmp_path / file for name, file in (("broken", "broken.jsonl"), ("absent", "absent.csv"))}
    files |= {"ranks": Path(ranks_file(tmp_path, [1] * 60)), "hits": tmp_path / "hits"}
    assert message in imported(workspace, words.format(**files), code=2)
    store = EmbeddingStore.open(workspace / "store")
    for table in ("outcomes", "results"):
        assert not store.rows(table).num_rows
    assert not store.encoders()


@pytest.mark.parametrize("corpus", ["./nowhere", "shapes"])
def test_a_wrong_import_leaves_no_store_behind(tmp_path: Path, corpus: str) -> None:
    command(f"import --encoder theirs --corpus {corpus} --images x.npy", tmp_path / "new", code=2)
    assert not (tmp_path / "new").exists()


def test_outcomes_of_a_model_with_embeddings_stand_in_one_row_with_them(workspace: Path, tmp_path: Path) -> None:
    images, captions = unit_vectors()
    np.savez(tmp_path / "clip.npz", image_features=images, text_features=captions)
    answers = tmp_path / "answers.jsonl"
    answers.write_text("\n".join(json.dumps({"query": f"p{i}", "correct": i < 7}) for i in range(10)))
    command(f"import {tmp_path}/clip.npz --encoder clip", workspace)
    command(f"evaluate --protocols t2i/all {QUICK} --quiet", workspace)
    planned = command(f"import {answers} --same-as clip {QUICK} --dry-run", workspace).err
    assert "nothing was written" in planned
    assert not results(workspace, protocol="pairs/micro")
    command(f"import {answers} --same-as clip {QUICK}", workspace)
    store = EmbeddingStore.open(workspace / "store")
    assert len(store.encoders()) == 1
    found = values(workspace, encoder="clip")
    assert found["pairs/micro", "pair_accuracy"][0] == 0.7
    assert ("t2i/all", "R@1") in found
    matched = {row.what: row.matched for row in store.all(Import)}
    assert (matched["image"], matched["pairs/micro"]) == ("position", "query")
    out = command("results --wide", workspace).out
    assert "matched by position, not verified" in out
    assert "matched by query" in out
    command(f"evaluate --protocols t2i/all,i2t/any {QUICK} --quiet", workspace)  # of the vectors, once more
    after = values(workspace, encoder="clip")
    assert after["pairs/micro", "pair_accuracy"] == found["pairs/micro", "pair_accuracy"]
    assert {("t2i/all", "R@1"), ("i2t/any", "R@1")} <= after.keys()
    assert len(store.encoders()) == 1
    assert "nobody" in command(f"import {answers} --same-as nobody", workspace, code=2).err


def test_a_model_with_embeddings_keeps_its_name(workspace: Path, tmp_path: Path) -> None:
    spec = EncoderSpec(name="clip", adapter="openclip", checkpoint="laion/clip", revision="abc", dim=4)
    EmbeddingStore.open(workspace / "store").write_encoder(spec)
    said = imported(workspace, f"--outcomes {ranks_file(tmp_path, [1] * 60)}", encoder="clip", code=2)
    assert "give the import another name" in said
    assert EmbeddingStore.open(workspace / "store").encoder("clip") == spec


@pytest.fixture
def matrix(tmp_path: Path) -> str:
    path = tmp_path / "matrix.npy"
    np.save(path, tied_scores())
    return str(path)


def test_the_report_gives_commands_without_paths_and_the_store_commands_that_can_be_run(
    workspace: Path, matrix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = f"import --scores {matrix} --encoder cross --corpus thirty {QUICK} --workspace {workspace}"
    monkeypatch.setattr(sys, "argv", ["capim", *words.split()])
    command(words)
    before = values(workspace)
    data = read_report_data(EmbeddingStore.open(workspace / "store"))
    [runs] = [b for b in provenance.section(data).blocks if isinstance(b, Table) and b.id == "runs"]
    written = {row[4].text for row in runs.rows}
    assert written == {without_paths(f"capim {words}")}  # a report is shared, a store is not
    [stored] = EmbeddingStore.open(workspace / "store").rows("runs")["command"].to_pylist()
    command(f"{str(stored).removeprefix('capim ')} --replace")
    assert values(workspace) == before
    [encoders] = [b for b in provenance.section(data).blocks if isinstance(b, Table) and b.id == "encoders"]
    assert "float32" not in {cell.text for cell in encoders.rows[0]}  # nothing is claimed about vectors that are not


def test_published_figures_stand_in_the_report_beside_the_best_of_ours(workspace: Path, tmp_path: Path) -> None:
    imported(workspace, f"--outcomes {ranks_file(tmp_path, [1, 2] * N_IMAGES)}")
    before = command("report", workspace).page
    figures = ["model,dataset,protocol,metric,value,source", "theirs-2,thirty,t2i/all,R@1,0.7,their page"]
    (tmp_path / "published.csv").write_text("\n".join([*figures, "theirs-2,elsewhere,t2i/all,R@1,0.9,their page"]))
    command(f"import --published {tmp_path}/published.csv", workspace)
    page = command("report --markdown whole", workspace).page
    assert page.resolve() != before.resolve()
    [row] = read_report_data(EmbeddingStore.open(workspace / "store"), gallery=False).published
    assert row.value == 0.7
    task = "text to image (t2i/all) | R@1"
    table = f"| theirs-2 | thirty | {task} | 70.0 | 50.0 (theirs) | the same protocol | their page |"
    assert table in page.with_name("report.md").read_text()


@pytest.mark.slow
def test_every_command_of_the_page_runs_as_printed(shared_data: Path, tmp_path: Path) -> None:
    shutil.copy(shared_data / "bivlc" / "ViT-B-32.csv", tmp_path / "BiVLC_ViT-B-32.csv")
    answers = tmp_path / "gpt-4v-results" / "positive-first"
    answers.mkdir(parents=True)
    gpt_4v_files(answers, shared_data / "sugar_crepe")
    (tmp_path / "sugar-crepe").mkdir()
    (tmp_path / "sugar-crepe" / "data").symlink_to(shared_data / "sugar_crepe")
    workspace = tmp_path / "workspace"
    command(f"run --corpora shapes --sample 40 --encoders tiny-clip --device cpu --quiet {QUICK}", workspace)
    run_page(ROOT / "docs" / "outcomes.md", tmp_path)
    found = values(workspace, encoder="gpt-4v")
    assert round(found["sugarcrepe/swap_att", "pair_accuracy"][0], 4) == 0.9114
    assert ("sugarcrepe/macro", "pair_accuracy") in found
    assert {key: value for key, (value, *_) in values(workspace, encoder="theirs").items()} == {
        key: value for key, (value, *_) in values(workspace, encoder="tiny-clip").items()
    }


def test_published_results_are_shown_in_a_store_without_own_ones(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("model,dataset,metric,protocol,value\nm,coco-karpathy,R@1,t2i/all,.304\n")
    command(f"import --published {tmp_path}/table.csv", tmp_path)
    [row] = command("results --against published --format json", tmp_path).rows
    assert (row["encoder"], row["value"], row["published"], row["verdict"]) == ("m", None, 0.304, "published")


def test_recalls_of_clip_benchmark_are_those_of_our_protocols(tmp_path: Path) -> None:
    recalls = "image_retrieval_recall@5,text_retrieval_recall@1"
    (tmp_path / "table.csv").write_text(
        f"dataset,model,pretrained,task,{recalls}\nthirty,m,,zeroshot_retrieval,0.8,0.9\n"
    )
    found = {(row.protocol, row.metric): row.value for row in read_published(tmp_path / "table.csv")}
    assert found.items() >= {("t2i/all", "R@5"): 0.8, ("i2t/any", "R@1"): 0.9}.items()
