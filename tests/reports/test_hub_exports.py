"""Results for MTEB and for model cards, read back by MTEB and by huggingface_hub."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from capim.reports.exports import export_results
from capim.reports.exports.other_tools import their_task, their_tasks
from capim.reports.rows.reading import read_report_data
from capim.store.errors import RequestError
from capim.store.schema import texts
from capim.store.types import Corpus
from capim.tasks.corpora.build import CaptionRow, ImageRow, RelevanceRow, build_corpus
from capim.tasks.corpora.readers.published import table_reader
from capim.tasks.protocols import Protocol
from tests.reports.stand_in import StandIn, corpus, result, spec


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
