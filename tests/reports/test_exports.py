"""Every export is read back, by MTEB and by huggingface_hub, too; what trackers log, through stand-ins for both."""

from __future__ import annotations

import csv
import json
import re
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import huggingface_hub
import jsonschema  # type: ignore[import-untyped]
import pyarrow.csv
import pyarrow.parquet
import pytest

from capim.reports.exports import export_results
from capim.reports.exports.other_tools import their_task, their_tasks
from capim.reports.exports.tabular import in_seed_order, reduced
from capim.reports.exports.tracking import log_to_mlflow, log_to_wandb, tracked_runs
from capim.reports.rows.reading import read_report_data
from capim.store.errors import RequestError, WorkError
from capim.store.row_types import columns_of
from capim.store.schema import Result, texts
from capim.store.types import Corpus
from capim.tasks.corpora.build import CaptionRow, ImageRow, RelevanceRow, build_corpus
from capim.tasks.corpora.readers.published import table_reader
from capim.tasks.protocols import Protocol
from tests.reports.stand_in import StandIn, corpus, result, spec


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_csv_and_parquet_hold_every_result_to_the_last_digit(demo_store: StandIn, tmp_path: Path) -> None:
    data, values = read_report_data(demo_store), sorted(r["value"] for r in demo_store.tables["results"])
    [path] = export_results(data, tmp_path / "r.csv")
    table = pyarrow.csv.read_csv(path)
    assert table.column_names == columns_of(Result).names
    assert sorted(map(float, table["value"].to_numpy())) == values
    [path] = export_results(data, tmp_path / "r.parquet")
    table = pyarrow.parquet.read_table(path)
    assert table.schema.equals(columns_of(Result)), "the store's own types"
    assert sorted(map(float, table["value"].to_numpy())) == values


def test_json_obeys_the_schema_beside_it(demo_store: StandIn, tmp_path: Path) -> None:
    document, schema = (
        json.loads(p.read_text("utf-8")) for p in export_results(read_report_data(demo_store), tmp_path / "r.json")
    )
    jsonschema.validate(document, schema, cls=jsonschema.Draft202012Validator)
    assert len(document["results"]) == len(demo_store.tables["results"])
    document["results"][0]["n_queries"] = "many"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, schema, cls=jsonschema.Draft202012Validator)


def test_v28_csv_has_the_seeds_columns_in_percent_and_names_its_protocols(demo_store: StandIn, tmp_path: Path) -> None:
    [path] = export_results(read_report_data(demo_store), tmp_path / "r.csv", kind="v28")
    first = rows_of(path)[0]
    assert first["Model"] == "tiny-clip"
    assert (first["T2I Protocol"], first["T2I R@1"]) == ("t2i/first", "60.0")
    assert (first["I2T Protocol"], first["I2T R@1"]) == ("i2t/any", "74.0")
    assert first["Winoground Text"] == "43.4"
    assert first["Architecture"] == "Dense"
    assert rows_of(path)[-1]["Architecture"] == "Late-Interaction"


def test_reduced_tables_equal_those_that_coco_sm_published(shared_data: Path) -> None:
    for report in sorted((shared_data / "coco_sm" / "reports").glob("*_reduced.csv")):
        full = rows_of(report.with_name(report.name.replace("_reduced", "")))
        ours = reduced([{k: v if k in ("language", "meta") else float(v) for k, v in row.items()} for row in full])
        theirs = rows_of(report)
        assert [r["language"] for r in ours] == [r["language"] for r in theirs]
        for mine, published in zip(ours, theirs, strict=True):
            for column in published.keys() - {"language"}:
                pairs = zip(mine[column].split(" ± "), published[column].split(" ± "), strict=True)
                # theirs are means of unrounded figures, ours here of the three decimals that they published
                assert all(abs(float(a) - float(b)) < 0.00101 for a, b in pairs), (report.name, mine, column)


def test_coco_sm_files_have_the_published_form(large_store: StandIn, tmp_path: Path, shared_data: Path) -> None:
    export_results(read_report_data(large_store), tmp_path / "out", kind="coco-sm")
    full = tmp_path / "out" / "coco-sm" / "siglip2-so400m.csv"
    published = shared_data / "coco_sm" / "reports" / "open_clip.csv"
    assert full.read_text("utf-8").splitlines()[0] == published.read_text("utf-8").splitlines()[0]
    rows = rows_of(full)
    assert len(rows) == 18 * 3
    assert all(re.fullmatch(r"[01]\.\d{3}", row["t2i.ndcg@20"]) for row in rows)
    last = [row["language"] for row in rows_of(full.with_name("siglip2-so400m_reduced.csv"))][-4:]
    assert last == ["all", "google", "bing", "nllb"]


def test_rows_come_in_the_order_of_the_published_tables(shared_data: Path) -> None:
    for name in ("open_clip", "uform-multilingual-v2"):
        published = [(r["language"], r["meta"]) for r in rows_of(shared_data / "coco_sm" / "reports" / f"{name}.csv")]
        assert len(published) == 63
        assert in_seed_order(sorted(published)) == published


@pytest.mark.parametrize(
    ("target", "kind", "message"),
    [
        ("r.xlsx", None, "r.xlsx: suffix '.xlsx' is unknown; known: csv, json"),
        ("r.csv", "excel", "format 'excel' is unknown"),
        ("r.txt", "csv", "end it with .csv"),
        ("out", "coco-sm", "has no results for the format coco-sm"),
    ],
)
def test_an_export_that_cannot_be_says_why(
    demo_store: StandIn, tmp_path: Path, target: str, kind: str | None, message: str
) -> None:
    with pytest.raises(RequestError, match=re.escape(message)):
        export_results(read_report_data(demo_store), tmp_path / target, kind=kind)
    assert not list(tmp_path.iterdir())


def test_what_trackers_get_has_every_figure_and_no_path_of_the_machine(demo_store: StandIn) -> None:
    local = replace(demo_store.specs["tiny-clip"], checkpoint="/home/ada/models/tiny", options={"prompt": "a"})
    specs = {**demo_store.specs, "tiny-clip": local}
    runs = {run.name: run for run in tracked_runs(replace(read_report_data(demo_store), specs=specs))}
    assert runs.keys() == demo_store.specs.keys()
    run = runs["tiny-clip"]
    assert run.params["checkpoint"] == "…/tiny"
    assert run.params["options.prompt"] == "a"
    rows = [r for r in demo_store.tables["results"] if r["encoder"] == "tiny-clip" and r["metric"] == "R@1"]
    for row in rows:
        name = f"{row['corpus']}/{row['protocol']}/R_at_1"
        assert (run.metrics[name], run.metrics[f"{name}.low"]) == (row["value"], row["ci_low"])
    assert rows
    assert not any(set("@+*") & set(name) for name in run.metrics)


class FakeMlflow(ModuleType):
    """As much of MLflow as is called; keeps what is logged."""

    def __init__(self) -> None:
        super().__init__("mlflow")
        self.logged: dict[str, Any] = {}
        self.exceptions = SimpleNamespace(MlflowException=type("MlflowException", (Exception,), {}))

    def MlflowClient(self, tracking_uri: str) -> FakeMlflow:
        if tracking_uri == "nowhere":
            raise self.exceptions.MlflowException("no /home/ada/secret here")
        return self

    def get_experiment_by_name(self, name: str) -> Any:
        return SimpleNamespace(experiment_id=name)

    def create_run(self, experiment: str, *, run_name: str, tags: dict[str, str]) -> Any:
        self.logged[run_name] = {"metrics": {}, "params": {}, "tags": tags}
        return SimpleNamespace(info=SimpleNamespace(run_id=run_name, start_time=7))

    def log_batch(self, run: str, **batch: list[Any]) -> None:
        for kind, entries in batch.items():
            assert len(entries) <= {"metrics": 1000, "params": 100}[kind]  # MLflow's own limits
            self.logged[run][kind] |= {entry[0]: entry[1] for entry in entries}

    def log_artifacts(self, run: str, folder: str, at: str) -> None:
        if folder == "nowhere":
            raise PermissionError("/home/ada/mlruns is not writable")
        self.logged[run][at] = folder

    def set_terminated(self, run: str, status: str = "FINISHED") -> None:
        self.logged[run]["ended"] = status


def test_mlflow_and_wandb_get_one_run_for_each_encoder_with_the_report(
    demo_store: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, mlflow = read_report_data(demo_store), FakeMlflow()
    entities = SimpleNamespace(Metric=lambda *values: values, Param=lambda *values: values)
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    lines = log_to_mlflow(data, "sqlite:///x.db", tmp_path)
    assert lines[0].startswith("tiny-clip: run tiny-clip of experiment capim")
    for run in tracked_runs(data):
        expected = {"metrics": run.metrics, "params": run.params, "tags": run.tags}
        assert mlflow.logged[run.name] == {**expected, "report": str(tmp_path), "ended": "FINISHED"}
    with pytest.raises(
        WorkError, match="run tiny-clip of experiment capim is incomplete, and marked as failed: …/mlruns"
    ):
        log_to_mlflow(data, "sqlite:///x.db", Path("nowhere"))
    assert mlflow.logged["tiny-clip"]["ended"] == "FAILED"
    with pytest.raises(RequestError, match=re.escape("does not take 'nowhere': no …/secret here")):
        log_to_mlflow(data, "nowhere", None)

    seen: list[dict[str, Any]] = []

    def init(**given: Any) -> Any:
        seen.append({**given, "summary": {}, "artifacts": []})
        run = SimpleNamespace(id="1", summary=seen[-1]["summary"], log_artifact=seen[-1]["artifacts"].append)
        return nullcontext(run)

    artifact = SimpleNamespace(add_dir=lambda folder: None)
    wandb = SimpleNamespace(init=init, Settings=dict, Artifact=lambda name, **kind: artifact)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    assert log_to_wandb(data, "project", tmp_path)[0] == "tiny-clip: run 1 of project project"
    for run, given in zip(tracked_runs(data), seen, strict=True):
        assert (given["name"], given["project"], given["summary"]) == (run.name, "project", run.metrics)
        assert given["artifacts"] == [artifact]
        assert given["settings"]["disable_git"] and given["settings"]["x_disable_meta"]

    for name, package, log in (("mlflow", "mlflow-skinny", log_to_mlflow), ("wandb", "wandb", log_to_wandb)):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(RequestError, match=f"{name} is not installed: pip install {package}"):
            log(data, "x", None)


def _their_numbers(task: Any) -> dict[str, list[int]]:
    """Subset of a task of MTEB -> its texts and their characters, as MTEB publishes them."""
    of_split = task.metadata.descriptive_stats["test"]
    subsets = of_split.get("hf_subset_descriptive_stats") or (
        {"default": of_split} if "num_samples" in of_split else of_split
    )
    numbers = {}
    for subset, stats in subsets.items():
        if "num_queries" in stats:
            n_texts = stats["num_queries" if task.metadata.category == "t2i" else "num_documents"]
            numbers[subset] = [n_texts, stats["number_of_characters"]]
        else:
            n_texts = stats["num_samples"] * len(task.texts_column_names)
            numbers[subset] = [n_texts, stats["text_statistics"]["total_text_length"]]
    return numbers


@pytest.mark.peers
@pytest.mark.slow
def test_tasks_that_we_call_by_mtebs_names_have_mtebs_data_and_main_score() -> None:
    mteb = pytest.importorskip("mteb", reason="the peers extra is not installed")
    for name_of_corpus, known in their_tasks().items():
        for name, task in known["tasks"].items():
            theirs = mteb.get_task(name)
            assert (task["revision"], task["main"]) == (theirs.metadata.revision, theirs.metadata.main_score), name
            assert _their_numbers(theirs) == known["captions"], (name_of_corpus, name)


@pytest.mark.peers
@pytest.mark.slow
def test_mtebs_result_cache_reads_the_folder_as_written(
    shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mteb = pytest.importorskip("mteb", reason="the peers extra is not installed")
    store = StandIn(specs={"ours": spec("ours"), "late": spec("late", vectors="multi")})
    other = corpus("crossmodal3600", n_images=4)
    store.contents = {
        "sugarcrepe": table_reader("sugarcrepe")(shared_data / "sugar_crepe"),
        "winoground": corpus("winoground", n_images=800, per_image=1),  # other texts than Winoground's
        "crossmodal3600": other,
        "tongues": corpus("tongues", n_images=4),
    }
    numbers = [len(other.captions), sum(map(len, texts(other.captions["text"])))]
    patched = {**their_tasks(), "crossmodal3600": {**their_tasks()["crossmodal3600"], "captions": {"en": numbers}}}
    monkeypatch.setattr("capim.reports.exports.other_tools.their_tasks", lambda: patched)
    for encoder in store.specs:
        result(store, encoder, "sugarcrepe", "sugarcrepe/micro", "pair_accuracy", 0.75)
        result(store, encoder, "sugarcrepe", "sugarcrepe/add_att", "pair_accuracy", 0.5)
        result(store, encoder, "winoground", "winoground", "winoground_group", 0.125)
        for direction in ("t2i", "i2t"):
            result(store, encoder, "crossmodal3600", f"{direction}/en/human", "R@1", 0.25)
            for code in ("en", "de"):
                result(store, encoder, "tongues", f"{direction}/{code}/google", "R@1", 0.625)

    data = read_report_data(store)
    ndcg = [replace(row, metric="nDCG@10", value=0.375) for row in data.results if row.corpus == "crossmodal3600"]
    export_results(replace(data, results=(*data.results, *ndcg)), tmp_path, kind="mteb")
    loaded = mteb.ResultCache(cache_path=tmp_path).load_results(include_remote=False)
    tasks = {(model.model_name, task.task_name): task for model in loaded.model_results for task in model.task_results}
    languages = tasks["example/ours", "capim-tongues-t2i"]
    assert (len(languages.scores["test"]), set(languages.languages)) == (2, {"eng", "deu"})
    assert {key: task.get_score() for key, task in tasks.items()} == {
        **{(f"example/{encoder}", f"capim-tongues-{d}"): 0.625 for encoder in store.specs for d in ("t2i", "i2t")},
        ("example/ours", "SugarCrepe"): 0.75,
        ("example/ours", "XM3600T2IRetrieval"): 0.375,
        ("example/ours", "XM3600I2TRetrieval"): 0.375,
        ("example/late", "XM3600T2IRetrieval"): 0.375,  # from images, MTEB sums over the vectors of the image
        ("example/late", "capim-crossmodal3600-i2t"): 0.25,
        ("example/late", "capim-sugarcrepe-sugarcrepe-micro"): 0.75,
        **{(f"example/{encoder}", "capim-sugarcrepe-sugarcrepe-add_att"): 0.5 for encoder in store.specs},
        **{(f"example/{encoder}", "capim-winoground-winoground"): 0.125 for encoder in store.specs},
    }
    checked = mteb.ResultCache(cache_path=tmp_path).load_results(
        tasks=["SugarCrepe"], include_remote=False, validate_and_filter=True
    )
    [[task]] = [model.task_results for model in checked.model_results]
    assert task.get_score() == 0.75


def test_two_encoders_of_one_checkpoint_are_not_written_into_one_folder(tmp_path: Path) -> None:
    store = StandIn(specs={"whole": spec("whole"), "cut": replace(spec("whole"), name="cut", dim=8)})
    store.contents = {"shop": corpus("shop", n_images=4)}
    for encoder in store.specs:
        result(store, encoder, "shop", "t2i/all", "R@1", 0.5)
    with pytest.raises(RequestError, match="takes for one model; name one"):
        export_results(read_report_data(store), tmp_path, kind="mteb")
    written = export_results(read_report_data(store, encoders=["cut"]), tmp_path, kind="mteb")
    assert [path.name for path in written] == ["capim-shop-t2i-all.json", "model_meta.json"]


def test_a_model_card_has_the_headlines_of_one_encoder_and_huggingface_hub_reads_them(
    large_store: StandIn, tmp_path: Path
) -> None:
    every = read_report_data(large_store)
    with pytest.raises(RequestError, match=r"name it with --encoder: one of .*siglip2-so400m"):
        export_results(every, tmp_path / "card.yaml")
    [path] = export_results(read_report_data(large_store, encoders=["siglip2-so400m"]), tmp_path / "card.yaml")
    card = huggingface_hub.ModelCard(f"---\n{path.read_text('utf-8')}---\n# A model\n")
    assert card.data.model_name == "siglip2-so400m"
    found = {(r.dataset_name, r.metric_config, r.metric_type): r for r in card.data.eval_results}
    assert {key[:2] for key in found} >= {("coco-karpathy", "t2i/all"), ("winoground", "winoground")}
    r_at_1 = found["coco-karpathy", "t2i/all", "R@1"]
    row = every.row("coco-karpathy", "t2i/all", "R@1", "siglip2-so400m")
    assert row is not None
    assert r_at_1.metric_value == row.value
    assert r_at_1.metric_args["low"] == row.ci_low
    assert r_at_1.metric_args["model_revision"] == large_store.specs["siglip2-so400m"].revision
    assert (r_at_1.task_type, r_at_1.task_name) == ("text-to-image-retrieval", "text to image")
    assert r_at_1.dataset_revision == large_store.contents["coco-karpathy"].fingerprint


def test_a_published_corpus_of_document_pages_is_its_own_task_with_a_subset_for_each_language() -> None:
    name = "Vidore2ESGReportsRetrieval"
    queries = [CaptionRow(code, None, "x", language=code) for code in ("en", "fr")]
    judged = [RelevanceRow("judged", "t2i", code, "p") for code in ("en", "fr")]
    both = build_corpus(name, [ImageRow("p")], queries, source=None, relevance=judged)
    one = build_corpus(name, [ImageRow("p")], queries[1:], source=None, relevance=judged[1:])
    metrics = ("nDCG@5", "recall@10", "success@1")

    def subset(contents: Corpus, protocol: str) -> tuple[str, str] | None:
        found = their_task(contents, Protocol.of(protocol), spec("ours"), metrics)
        return found and (found.subset, found.main)

    assert subset(both, "t2i/judged/fr") == subset(one, "t2i/judged") == ("french", "ndcg_at_5")
    assert subset(both, "t2i/judged") is None  # mteb itself averages over languages
    single = replace(one, name="VidoreTatdqaRetrieval")
    of_all = Protocol.of("t2i/judged")
    assert their_task(single, of_all, spec("ours"), ("recall@10",)) is None  # its main score is not stored
    with_texts = replace(both, name="Vidore3HrRetrieval.v2")  # mteb's documents are pages with their text
    assert their_task(with_texts, Protocol.of("t2i/judged/fr"), spec("ours"), ("nDCG@10",)) is None
    task = their_task(single, of_all, spec("ours"), metrics)
    assert task is not None
    assert (task.name, task.subset, task.revision) == (
        "VidoreTatdqaRetrieval", "default", "dc7924ec102addd7f85c1ccfdd8625848179f615",
    )  # fmt: skip
    assert (task.scores["recall@10"], task.scores["success@1"]) == ("recall_at_10", "hit_rate_at_1")
    own = {
        "JinaVDRTQARetrieval": ("JinaVDRTQARetrieval", "default", "test"),
        "JinaVDRAirbnbSyntheticRetrieval-jp": ("JinaVDRAirbnbSyntheticRetrieval", "jp", "test"),
        "MIRACLVisionRetrieval-ar": ("MIRACLVisionRetrieval", "ar", "default"),
    }  # the languages that share no documents are corpora, and subsets of one task
    found = {each: their_task(replace(one, name=each), of_all, spec("ours"), metrics) for each in own}
    assert {each: (task.name, task.subset, task.split) for each, task in found.items() if task} == own
