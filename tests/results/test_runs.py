"""Runs and qrels: trec_eval's figures under its names to twelve digits, whatever ties, is missing or is not judged."""

from __future__ import annotations

import json
import string
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capim.store import EmbeddingStore
from capim.store.errors import RequestError
from capim.store.schema import UNLISTED, Comparison, Outcome
from capim.store.sets.columns_read import told
from capim.store.tables import skipping_bad_rows
from capim.tasks.metrics import METRICS, metrics_of
from capim.tasks.metrics.retrieval import TREC_EVAL
from capim.tasks.protocols import TREC_EVAL as PROTOCOL
from capim.tasks.results.imported.recognised import recognise
from capim.tasks.results.imported.runs import Qrels, Run, corpus_of_qrels, outcomes_of_run, read_qrels, read_run, tag_of
from capim.tasks.results.summary import tie_share
from tests.command import command, json_rows

pytrec_eval = pytest.importorskip("pytrec_eval", reason="the peers extra is not installed")

MEASURES = {"map", "P", "recip_rank", "ndcg", "ndcg_cut", "Rprec", "bpref", "recall", "success"}
NAMES = {metric.name for metric in TREC_EVAL}
_QUERIES, _ITEMS = [f"q{i}" for i in range(5)], [*string.ascii_lowercase[:12], "é", "Z", "10"]
_GRADES = st.dictionaries(st.sampled_from(_ITEMS), st.integers(-1, 3), min_size=1, max_size=8)
_LISTS = st.dictionaries(
    st.sampled_from(_ITEMS),
    st.one_of(st.integers(0, 4).map(float), st.floats(-1, 1, width=32), st.just(1.0 + 1e-12)),
    min_size=1,
    max_size=12,
)


def theirs(qrels: Qrels, run: Run) -> dict[str, float]:
    """Means of pytrec_eval over the queries with a relevant document, 0 for those without a list.

    It gets only these: where every grade of a query is below 0, it reads memory that is not its own and may never end.
    """
    asked = {query: grades for query, grades in qrels.items() if max(grades.values()) > 0}
    found = pytrec_eval.RelevanceEvaluator(asked, MEASURES).evaluate({q: run[q] for q in asked.keys() & run.keys()})
    return {name: float(np.mean([found.get(query, {}).get(name, 0.0) for query in asked])) for name in NAMES}


def ours(qrels: Qrels, run: Run) -> dict[str, float]:
    corpus = corpus_of_qrels(qrels, [run], "trec", origin="qrels.txt")
    [outcomes] = [one for one in outcomes_of_run(run, corpus).outcomes if one.protocol.id == PROTOCOL]
    return {metric.name: metric.value(outcomes) for metric in metrics_of(outcomes)}


@settings(max_examples=200, deadline=None)
@given(
    qrels=st.dictionaries(st.sampled_from(_QUERIES), _GRADES, min_size=1),
    run=st.dictionaries(st.sampled_from(_QUERIES), _LISTS, min_size=1),
)
def test_every_measure_of_any_run_is_that_of_pytrec_eval(qrels: Qrels, run: Run) -> None:
    """Ties, also of float64 scores that are one float32; missing queries, unjudged documents, grades from -1 to 3."""
    asked = {query for query, grades in qrels.items() if max(grades.values()) > 0}
    run = {query: items for query, items in run.items() if query in qrels}
    if not asked & run.keys():
        return
    expected, found = theirs(qrels, run), ours(qrels, run)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=0, abs=1e-12), name


def write(folder: Path, qrels: Qrels, runs: dict[str, Run]) -> None:
    """TREC's files."""
    lines = [f"{query} 0 {item} {grade}" for query, items in qrels.items() for item, grade in items.items()]
    (folder / "qrels.txt").write_text("\n".join(lines))
    for name, run in runs.items():
        lines = [f"{query} Q0 {i} 1 {s!r} {name}" for query, items in run.items() for i, s in items.items()]
        (folder / f"{name}.trec").write_text("\n".join(lines))


def random_runs(n_queries: int = 40, seed: int = 3) -> tuple[Qrels, dict[str, Run]]:
    """Two runs with ties, one of which lacks a query; documents that nobody judged; a query without a relevant one."""
    rng = np.random.default_rng(seed)
    documents = [f"d{i}" for i in range(300)]
    qrels, runs = {}, dict[str, Run]()
    for number in range(n_queries):
        judged = rng.choice(documents, 12, replace=False).tolist()
        qrels[f"q{number}"] = {item: int(grade) for item, grade in zip(judged, rng.integers(-1, 3, 12), strict=True)}
    qrels["none"] = {"d0": 0}
    for name, noise in (("ours", 0.5), ("theirs", 2.0)):
        runs[name] = {
            query: {
                item: float(np.round(qrels[query].get(item, 0) + noise * rng.standard_normal(), 1))
                for item in [*rng.choice(documents, 120, replace=False).tolist(), *qrels[query]]
            }
            for query in list(qrels)[1 if name == "theirs" else 0 :]
        }
    return qrels, runs


def test_qrels_and_two_runs_are_one_command_and_a_comparison_with_intervals(tmp_path: Path) -> None:
    qrels, runs = random_runs()
    write(tmp_path, qrels, runs)
    files = f"{tmp_path}/qrels.txt --run {tmp_path}/ours.trec --run {tmp_path}/theirs.trec"
    said = command(f"import --qrels {files} --corpus trec --replicates 200", tmp_path / "w").err
    assert "theirs: 1 of 40 queries have no list and count as not found, first 'q0'" in said
    assert "lists are of queries that the corpus left out, first 'none'" in said
    rows = json_rows("results --corpus trec", tmp_path / "w")
    for name, run in runs.items():
        found = {r["metric"]: r["value"] for r in rows if (r["encoder"], r["protocol"]) == (name, PROTOCOL)}
        for measure, value in theirs(qrels, run).items():
            assert found[measure] == pytest.approx(value, rel=0, abs=1e-12), (name, measure)
    expected = {r["metric"]: r for r in rows if (r["encoder"], r["protocol"]) == ("ours", "t2i/judged")}
    for metric in ("P@5", "R-Precision", "nDCG@10", "success@1"):
        ends = expected[metric]["ci_low"], expected[metric]["ci_high"]
        assert ends == (None, None) or ends[0] < expected[metric]["value"] < ends[1]
        assert (ends[0] is None) == ("effective hits or misses" in (expected[metric]["reason"] or ""))
        assert expected[metric]["tie_share"] > 0
    command("compare --corpora trec --replicates 200 --quiet", tmp_path / "w")
    compared = EmbeddingStore.open(tmp_path / "w" / "store").all(Comparison, protocol=PROTOCOL)
    assert {"map", "bpref", "recip_rank"} <= {row.metric for row in compared}
    assert all(row.p_adjusted is not None for row in compared if row.metric == "map")
    again = command(f"import {files.replace('--run ', '')} --corpus trec --replicates 200", tmp_path / "w").err
    assert again.count("stored already, nothing to do") == 4


def beir(folder: Path, qrels: Qrels) -> None:
    """BEIR's folder; the lines of documents and queries have texts, which nobody needs."""
    (folder / "qrels").mkdir(parents=True)
    for name, ids in (("corpus", [f"d{i}" for i in range(300)]), ("queries", list(qrels))):
        (folder / f"{name}.jsonl").write_text("\n".join(json.dumps({"_id": i, "text": f"of {i}"}) for i in ids))
    judged = [f"{query}\t{item}\t{grade}" for query, items in qrels.items() for item, grade in items.items()]
    (folder / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judged]))


def test_a_folder_in_a_usual_layout_beside_a_run_is_its_corpus(tmp_path: Path) -> None:
    qrels, runs = random_runs(n_queries=12)
    write(tmp_path, qrels, runs)
    beir(tmp_path / "scifact", qrels)
    said = command(f"import {tmp_path}/scifact {tmp_path}/ours.trec --replicates 100", tmp_path / "w").err
    assert "taken for a folder of queries, documents and judgements" in said
    found = {r["metric"]: r["value"] for r in json_rows("results --corpus scifact", tmp_path / "w")
             if r["protocol"] == PROTOCOL}  # fmt: skip
    assert found == pytest.approx(theirs(qrels, runs["ours"]), rel=0, abs=1e-12)


LISTS: Run = {"q1": {"a": 2.5, "b": 1.5}, "q2": {"c": 0.5}}
FORMS = {
    "run.trec": "q1 Q0 a 1 2.5 s\nq1 Q0 b 2 1.5 s\nq2 Q0 c 1 0.5 s",
    "run.csv": "qid,docid,score\nq1,a,2.5\nq1,b,1.5\nq2,c,0.5",
    "pyterrier.csv": "qid,docid,docno,rank,score\nq1,7,a,0,2.5\nq1,8,b,1,1.5\nq2,9,c,0,0.5",
    "run.json": json.dumps(LISTS),
    "predictions.json": json.dumps({"mteb": {"v": "2"}, "default": {"test": LISTS}}),
    "run.jsonl": '{"qid": "q1", "docid": "a", "score": 2.5}\n{"qid": "q1", "docid": "b", "score": 1.5}\n'
    '{"qid": "q2", "docid": "c", "score": 0.5}',
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_a_run_is_the_same_in_every_form(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(FORMS[name])
    assert read_run(tmp_path / name) == LISTS
    assert tag_of(tmp_path / name) == ("s" if name == "run.trec" else Path(name).stem)


def test_ranks_without_scores_are_a_run_too(tmp_path: Path) -> None:
    (tmp_path / "run.marco").write_text("q1\ta\t1\nq1\tb\t2\n")
    assert read_run(tmp_path / "run.marco") == {"q1": {"a": -1.0, "b": -2.0}}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("lists.json", '{"q1": ["a", "b"], "q2": ["c"]}'),
        ("lists.json", '[{"query_id": "q1", "retrieved": ["a", "b"]}, {"query_id": "q2", "retrieved": ["c"]}]'),
        ("lists.jsonl", '{"qid": "q1", "ranked": ["a", "b"]}\n{"qid": "q2", "ranked": ["c"]}'),
    ],
)
def test_lists_without_numbers_are_runs_in_their_order_and_qrels_of_grade_one(
    tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)
    assert read_run(tmp_path / name) == {"q1": {"a": -1.0, "b": -2.0}, "q2": {"c": -1.0}}
    assert read_qrels(tmp_path / name) == {"q1": {"a": 1, "b": 1}, "q2": {"c": 1}}
    (tmp_path / name).write_text(text.replace('"b"', '"a"'))
    with pytest.raises(RequestError, match="item 'a' comes twice in the list of 'q1'"):
        read_run(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("qrels.txt", "q1 0 a 2\nq1 0 b 0"),
        ("test.tsv", "query-id\tcorpus-id\tscore\nq1\ta\t2\nq1\tb\t0"),
        ("qrels.json", '{"q1": {"a": 2, "b": 0}}'),
    ],
)
def test_qrels_are_the_same_in_every_form(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert read_qrels(tmp_path / name) == {"q1": {"a": 2, "b": 0}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("q1 0 a 0.5", "1 grades are no whole numbers, first 0.5 of 'q1', 'a'"),
        ("q1 0 a 2\nq1 0 a 1", "line 2: item 'a' comes twice in the list of 'q1', with 2 and 1"),
        ("q1 0 a", "line 1: expected `query iteration item grade`, got 'q1 0 a'"),
        ("query_id\tdoc_id\trelevance\n", "it has no rows"),
    ],
)
def test_wrong_qrels_are_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "qrels.txt").write_text(text)
    with pytest.raises(RequestError, match=message):
        read_qrels(tmp_path / "qrels.txt")


def test_documents_that_a_run_does_not_list_are_below_its_list_and_are_no_ties() -> None:
    """Three of nine documents listed. By hand: only `a` of q1 ties, with `x`; before, `b`, `d` and `c` tied as well."""
    qrels: Qrels = {"q1": {"a": 1, "b": 1}, "q2": {"c": 1, "d": 1}, "q3": {"c": 1}, "q4": {"y": 1}, "none": {"z": 0}}
    run: Run = {
        "q1": {"a": 2.0, "x": 2.0, "y": 1.0},
        "q2": {"c": 3.0, "x": 2.0, "y": 2.0},
        "q3": {"x": 3.0, "y": 2.0, "z": 2.0},
        "q4": {"y": 1.0, "v": 0.5, "w": 0.5},
    }
    corpus = corpus_of_qrels(qrels, [run], "trec", origin="q")
    ours, theirs = outcomes_of_run(run, corpus).outcomes
    assert (ours.n_gallery[0], ours.n_ranked.tolist()) == (9, [1, 1, 0, 1])  # type: ignore[union-attr]
    known = {metric.name: metric for metric in metrics_of(ours)}
    assert [tie_share(ours, several=known[name].several) for name in ("P@1", "success@1")] == [0.25, 0.25]
    assert [known["P@1"].value(ours, ties) for ties in ("lost", "expected", "won")] == [0.5, 0.625, 0.75]
    assert tie_share(theirs) == 0.0  # trec_eval orders equal scores by id


def test_queries_that_nobody_judged_are_left_out_and_a_query_without_a_list_is_found_at_no_k(tmp_path: Path) -> None:
    """Four documents; equal to pytrec_eval with 0 for q2, as `trec_eval -c` has it. Before, success@5 was 1."""
    qrels: Qrels = {"q1": {"a": 1, "b": 0}, "q2": {"c": 1, "d": 2}}
    run: Run = {"q1": {"b": 2.0, "a": 1.0}, "Q3": {"a": 1.0, "c": 0.5}, "q4": {"b": 1.0}}
    (tmp_path / "qrels.json").write_text(json.dumps({**qrels, "q4": {}}))
    write(tmp_path, {}, {"ours": run})
    files = f"{tmp_path}/qrels.json --run {tmp_path}/ours.trec --corpus trec --replicates 100"
    said = command(f"import --qrels {files}", tmp_path / "w").err
    assert "2 lists are of queries that nobody judged, left out, first 'Q3'" in said
    assert "1 of 2 queries have no list and count as not found, first 'q2'" in said
    rows = {r["metric"]: r["value"] for r in json_rows("results --corpus trec", tmp_path / "w")}
    expected = theirs(qrels, run)
    pairs = {"nDCG@10": "ndcg_cut_10", "recall@10": "recall_10", "P@5": "P_5", "AP": "map", "MRR": "recip_rank"}
    for name, measure in (
        pairs | {"success@5": "success_5", "success@10": "success_10", "R-Precision": "Rprec"}
    ).items():
        assert rows[name] == pytest.approx(expected[measure], abs=1e-12), name
        assert rows[measure] == pytest.approx(expected[measure], abs=1e-12), measure
    store = EmbeddingStore.open(tmp_path / "w" / "store")
    [rank] = [r.rank_best for r in store.all(Outcome, protocol="t2i/judged") if r.query_id == "q2"]
    assert rank == UNLISTED


def test_a_run_whose_items_have_other_ids_than_the_judged_ones_is_a_warning(tmp_path: Path) -> None:
    """Its values are 0; the lines of a second system in its file, and unknown items that are left out, are named."""
    write(tmp_path, {"q1": {"007": 1}}, {"other": {"q1": {"7": 2.0}}})
    corpus = corpus_of_qrels({"q1": {"007": 1}}, [run := read_run(tmp_path / "other.trec")], "trec", origin="q")
    [note] = outcomes_of_run(run, corpus).left_out
    assert note == "warning: none of its 1 items is judged, first '7'; judged are such as '007': compare the ids"
    (tmp_path / "two.trec").write_text("q1 Q0 7 1 2.0 a\nq1 Q0 007 2 1.0 b\nq2 Q0 7 1 1.0 b\nq1 Q0 z 2 1.0 b\n")
    with told() as lines, skipping_bad_rows(True):
        left_out = outcomes_of_run(read_run(tmp_path / "two.trec"), corpus).left_out
    assert left_out == ["2 lines are of queries or items that the corpus does not have, left out"]
    assert "two.trec: lines of 2 tags (a, b) are taken for one run: give each a file" in "".join(lines)


def test_precision_and_r_precision_of_judged_documents_are_means_over_the_orders_of_ties() -> None:
    qrels: Qrels = {"q": {"a": 1, "b": 1, "c": 0}}
    run: Run = {"q": {"a": 2.0, "b": 1.0, "c": 1.0, "d": 0.0}}
    corpus = corpus_of_qrels(qrels, [run], "trec", origin="q")
    [outcomes, _] = outcomes_of_run(run, corpus).outcomes
    values = {name: METRICS[name].value(outcomes) for name in ("P@1", "P@5", "R-Precision", "AP")}
    assert values == {"P@1": 1, "P@5": 0.4, "R-Precision": 0.75, "AP": pytest.approx((1 + 5 / 6) / 2)}


def test_lists_in_a_file_called_qrels_are_what_is_relevant(tmp_path: Path) -> None:
    file = tmp_path / "qrels.jsonl"
    file.write_text('{"query_id": "q1", "relevant": ["d1", "d2"]}\n{"query_id": "q2", "relevant": ["d2"]}\n')
    assert [found.what for found in recognise(file)] == ["qrels"]
