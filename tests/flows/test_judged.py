"""A judged corpus through the commands: read, vectors imported, evaluated, compared, reported, exported."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from capim.store import EmbeddingStore
from capim.store.schema import Result, Slice
from tests.benchmarks.judged_pages import write_judged_pages
from tests.command import command, json_rows
from tests.reports.pages import readable

pytestmark = pytest.mark.slow  # whole suites of commands

QUICK = "--replicates 200"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eighty pages, twenty queries, 120 judgements; random vectors of two encoders."""
    folder = tmp_path_factory.mktemp("judged")
    write_judged_pages(folder / "finance", n_pages=80, n_queries=20, n_judgements=120)
    pages, queries = (str(folder / "finance" / f"{name}.npz") for name in ("pages", "queries"))
    with np.load(queries) as saved:
        np.savez(folder / "mirrored.npz", ids=saved["ids"], vectors=saved["vectors"][:, ::-1])
    for encoder, captions in (("random", queries), ("mirrored", str(folder / "mirrored.npz"))):
        files = f"--images {pages} --captions {captions}"
        command(f"import --corpus {folder}/finance --encoder {encoder} {files}", folder)
    command(f"evaluate --corpora finance --encoders random,mirrored {QUICK}", folder)
    command(f"analyse --corpora finance {QUICK}", folder)
    command(f"analyse --corpora finance --encoders random --analyses compression {QUICK}", folder)
    return folder


def values(workspace: Path) -> dict[str, float | None]:
    """The results of the first encoder, by metric."""
    rows = EmbeddingStore.open(workspace / "store").all(Result, encoder="random")
    return {row.metric: row.value for row in rows}


def test_figures_equal_pytrec_eval_on_the_exported_run_and_qrels(workspace: Path, tmp_path: Path) -> None:
    pytrec_eval = pytest.importorskip("pytrec_eval", reason="the peers extra is not installed")
    command(f"export trec --to {tmp_path}", workspace)
    place = tmp_path / "finance" / "t2i-judged"
    qrels = pytrec_eval.parse_qrel((place / "qrels.txt").open())
    assert {grade for found in qrels.values() for grade in found.values()} == {1, 2}
    run = pytrec_eval.parse_run((place / "random.run").open())  # 80 pages: the stored lists hold them all
    theirs = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut", "map"}).evaluate(run)
    ours = values(workspace)
    for name, measure in (("nDCG@10", "ndcg_cut_10"), ("AP", "map")):
        mean = float(np.mean([found[measure] for found in theirs.values()]))
        assert ours[name] == pytest.approx(mean, abs=1e-9), name


def test_encoders_are_compared_by_the_headline_of_judged_documents(workspace: Path) -> None:
    command(f"compare --corpora finance --encoders random,mirrored {QUICK} --permutations 1000", workspace)
    query = "SELECT metric, family, n_clusters FROM comparisons WHERE protocol = 't2i/judged'"
    rows = {row["metric"]: row for row in json_rows(f'query "{query}"', workspace)}
    assert {name for name, row in rows.items() if row["family"] == "headline"} == {"nDCG@10"}
    assert rows["nDCG@10"]["n_clusters"] == 20


def test_compression_is_measured_by_the_headline_and_reported(workspace: Path) -> None:
    slices = EmbeddingStore.open(workspace / "store").all(Slice, analysis="approximate-search")
    [exact] = [row for row in slices if row.feature == "exact"]
    assert {row.metric for row in slices} == {"nDCG@10"}
    assert exact.value == pytest.approx(values(workspace)["nDCG@10"], abs=1e-12)


def test_a_report_of_a_judged_corpus_is_made(workspace: Path) -> None:
    report = command("report", workspace).page
    page = readable(report.read_text())
    assert "nDCG@10" in page
    assert "t2i/judged" in page
    assert "unjudged in the top 10" in page
    assert "question query" in page  # single queries, with their relevant pages
    with report.with_name("slices.csv").open(encoding="utf-8") as file:  # the page leaves out encoders at chance
        listed = {(row["analysis"], row["protocol"]) for row in csv.DictReader(file)}
    assert {("judged", "t2i/judged"), ("approximate-search", "t2i/judged")} <= listed, listed


def test_pages_in_two_stages_and_fused_are_encoders_like_any_other(workspace: Path) -> None:
    store, stored = EmbeddingStore.open(workspace / "store"), []
    for _ in range(2):
        command(f"rerank --first random --second mirrored --depths 10,80 --corpora finance {QUICK}", workspace)
        rows = store.rows("slices", analysis="two-stage")
        stored.append(rows.drop_columns(["run", "created", "seconds_per_query"]).sort_by("slice"))
    assert stored[0].equals(stored[1]), "only the wall time differs"
    assert all(seconds and seconds > 0 for seconds in rows["seconds_per_query"].to_pylist())
    command(f"fuse --encoders random,mirrored --corpora finance {QUICK}", workspace)
    value = {(row.encoder, row.metric): row.value for row in store.all(Result)}
    for metric in ("nDCG@10", "recall@10", "AP"):  # all 80 pages ordered again: the second encoder alone
        assert value["random-then-mirrored", metric] == pytest.approx(value["mirrored", metric], abs=1e-12), metric
    shown = {row.metric for row in store.all(Slice, analysis="two-stage")}
    assert shown == {"nDCG@5", "nDCG@10", "recall@10"}
    assert all(row.derived for row in store.all(Slice)), "rows that are not in the ledger are not checked when read"
