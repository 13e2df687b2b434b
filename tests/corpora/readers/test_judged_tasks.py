"""The catalogue of published document pages, read from a folder laid out like the hub."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from capim.store.errors import RequestError
from capim.tasks.corpora import CORPORA, open_corpus
from capim.tasks.corpora.description import reader_call
from capim.tasks.corpora.judged_tasks import JUDGED_TASKS, SubsetCounts
from capim.tasks.corpora.naming import list_corpora
from capim.tasks.corpora.readers import hub, judged_files
from tests.corpora.readers.test_judged import PAGES, QRELS, QUERIES, mteb, png

TASK = "Vidore2ESGReportsRetrieval"
JINA = "JinaVDRTQARetrieval"
MIRACL = "MIRACLVisionRetrieval-ar"
TINY = SubsetCounts(samples=5, queries=2, judgements=3, fewest=1, most=2)


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A description of two languages of a task with three pages, whose published counts are those of the copy."""
    for subset in ("english", "french"):
        mteb(tmp_path / "esg", subset=subset)
    counts = {"french": TINY, "english": TINY}
    monkeypatch.setitem(JUDGED_TASKS, TASK, replace(JUDGED_TASKS[TASK], subsets=counts))
    return {"reader": TASK, "root": str(tmp_path / "esg")}


def test_every_task_and_subset_of_vidore_is_named_with_its_revision_and_counts() -> None:
    vidore = {name: task for name, task in JUDGED_TASKS.items() if name.startswith("Vidore")}
    assert len(vidore) == 34
    assert sum(len(task.subsets) for task in vidore.values()) == 143
    assert all(len(task.revision) == 40 and None not in task.subsets.values() for task in vidore.values())
    finance = vidore["Vidore3FinanceEnRetrieval"]
    assert finance.subsets["french"] == SubsetCounts(samples=3251, queries=309, judgements=8766, fewest=1, most=25)
    assert {name[:7]: task.main_metric for name, task in vidore.items()} == {
        "VidoreA": "nDCG@5", "VidoreD": "nDCG@5", "VidoreI": "nDCG@5", "VidoreT": "nDCG@5", "VidoreS": "nDCG@5",
        "Vidore2": "nDCG@5", "Vidore3": "nDCG@10",
    }  # fmt: skip


def test_tasks_are_listed_with_their_size_and_one_without_counts_says_so() -> None:
    rows = {row["name"]: row for row in list_corpora()}
    assert rows["Vidore3FinanceEnRetrieval"]["size"] == "2,942 pages, 309 queries, each of 6 languages"
    assert rows["VidoreArxivQARetrieval"]["size"] == "500 pages, 500 queries"
    assert rows["JinaVDRTQARetrieval"]["size"] == "393 pages, 981 queries"
    assert rows["MIRACLVisionRetrieval-de"]["size"] == "6,302 pages, 128 queries"  # and one with the text of another
    assert rows["NanoViDoRe3"]["size"] == "no published counts"
    assert set(JUDGED_TASKS) <= set(CORPORA)


def test_a_task_has_its_own_name_headline_and_languages(tiny: dict[str, Any]) -> None:
    corpus = open_corpus(tiny)
    assert (corpus.name, corpus.main_metric) == (TASK, "nDCG@5")
    assert set(corpus.captions["language"].to_pylist()) == {"en", "fr"}
    assert open_corpus({**tiny, "subsets": ["french"]}).captions.num_rows == 2


def test_a_wrong_count_is_an_error_that_names_both(tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {"french": TINY, "english": TINY._replace(samples=6, judgements=9)}
    monkeypatch.setitem(JUDGED_TASKS, TASK, replace(JUDGED_TASKS[TASK], subsets=counts))
    with pytest.raises(RequestError) as caught:
        open_corpus(tiny)
    first, second, advice = caught.value.faults
    assert first == f"{TASK} (english): expected 6 pages and queries, got 5"
    assert second == f"{TASK} (english): expected 9 judgements, got 3"
    assert "0542c0d03da0ec1c8cbc517c8d78e7e95c75d3d3 of vidore/esg_reports_v2" in advice


def expect(monkeypatch: pytest.MonkeyPatch, name: str, counts: SubsetCounts = TINY) -> None:
    """Let the only subset of a task have these published counts."""
    task = JUDGED_TASKS[name]
    monkeypatch.setitem(JUDGED_TASKS, name, replace(task, subsets=dict.fromkeys(task.subsets, counts)))


def miracl(root: Path, language: str, *, without_picture: str = "") -> None:
    """The four configurations of a language of MIRACL-Vision: its pages name their pictures, which are a table."""
    pictures = [(f"{page}.png", n) for n, page in enumerate(PAGES) if page != without_picture]
    texts = [f"text of {page}" for page in PAGES]
    tables = {
        "corpus": pa.table({"_id": [*PAGES], "image_id": [f"{page}.png" for page in PAGES], "text": texts}),
        "images": pa.table(
            {
                "file_name": [name for name, _ in reversed(pictures)],
                "image": [{"bytes": png(n), "path": None} for _, n in reversed(pictures)],
            }
        ),
        "queries": pa.table({"_id": [q for q, _ in QUERIES], "text": [text for _, text in QUERIES]}),
        "qrels": pa.table(dict(zip(("query-id", "corpus-id", "score"), zip(*QRELS, strict=True), strict=True))),
    }
    for name, table in tables.items():
        (folder := root / f"{name}-{language}").mkdir(parents=True)
        pq.write_table(table, folder / "default-00000-of-00001.parquet")


def test_the_rows_of_jinavdr_and_miracl_vision_are_those_of_mteb() -> None:
    spec = find_spec("mteb")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    statistics = package / "descriptive_stats" / "Image" / "DocumentUnderstanding"
    loaders = package / "tasks" / "retrieval" / "multilingual"
    code = "".join((loaders / f"{n}_retrieval.py").read_text() for n in ("jina_vdr_bench", "miracl_vision"))
    expected, found = {}, {}
    for file in [*statistics.glob("JinaVDR*.json"), statistics / "MIRACLVisionRetrieval.json"]:
        ((split, whole),) = json.loads(file.read_text()).items()
        for subset, part in (whole.get("hf_subset_descriptive_stats") or {"default": whole}).items():
            judged = part["relevant_docs_statistics"]
            counts = (judged[f"{key}_relevant_docs{per}"] for key, per in zip(
                ("num", "min", "max"), ("", "_per_query", "_per_query"), strict=True))  # fmt: skip
            texts = part["queries_text_statistics"]["unique_texts"]
            expected[file.stem, subset] = split, (part["num_samples"], texts, *counts)
    for name, task in JUDGED_TASKS.items():
        if task.task.startswith(("JinaVDR", "MIRACL")):
            assert f'"path": "{task.dataset}",\n            "revision": "{task.revision}"' in code
            ((subset, counted),) = task.subsets.items()
            assert name == (task.task if subset == "default" else f"{task.task}-{subset}")
            found[task.task, subset] = task.split, counted
    assert found == expected
    assert len({task for task, _ in found}) == 44


def test_a_task_of_jinavdr_is_read_from_its_folders_here_and_on_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mteb(tmp_path / "tqa", subset="default", layout="{subset}/{table}")
    expect(monkeypatch, JINA)
    corpus = open_corpus({"reader": JINA, "root": str(tmp_path / "tqa")})
    assert (corpus.name, corpus.main_metric, corpus.captions.num_rows, corpus.images.num_rows) == (JINA, "nDCG@5", 2, 3)
    wanted = []

    def from_folder(dataset: str, *, split: str, config: str, revision: str | None, **_: object) -> hub.HubSplit:
        wanted.append((dataset, split, config, revision))
        return hub.load_split(str(tmp_path / "tqa"), split=split, config=config)  # datasets reads both alike

    monkeypatch.setattr(judged_files, "load_split", from_folder)
    monkeypatch.setattr(judged_files, "configs_of", lambda *_: pytest.fail("its folders are no configurations"))
    again = open_corpus(JINA)
    assert set(wanted) == {
        ("jinaai/tqa_beir", "test", f"default/{table}", "33b48ad357ceffac3488630b6b0f2c86a9386978")
        for table in ("corpus", "queries", "qrels")
    }
    assert again.fingerprint == corpus.fingerprint
    expect(monkeypatch, JINA, TINY._replace(queries=3))
    with pytest.raises(RequestError, match=r"\(default\): expected 3 queries with different texts, got 2"):
        open_corpus(JINA)


def test_a_language_of_jinavdr_is_a_corpus_since_each_has_its_own_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "JinaVDRAirbnbSyntheticRetrieval-jp"
    for subset in ("ar", "jp"):
        mteb(tmp_path, subset=subset, layout="{subset}/{table}")
    expect(monkeypatch, name)
    corpus = open_corpus({"reader": name, "root": str(tmp_path)})
    assert (corpus.name, set(corpus.captions["language"].to_pylist())) == (name, {"ja"})
    with pytest.raises(RequestError, match=r"ar and jp have different documents.*subsets = \[\"jp\"\]"):
        open_corpus(tmp_path)  # with the same ids


def test_a_language_of_miracl_vision_has_pages_with_text_and_the_pictures_that_they_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    miracl(tmp_path / "all", "ar")
    miracl(tmp_path / "all", "bn", without_picture="p2")
    expect(monkeypatch, MIRACL)
    corpus = open_corpus({"reader": MIRACL, "root": str(tmp_path / "all")})
    assert (corpus.name, corpus.languages_reference) == (MIRACL, "ar")
    assert reader_call(MIRACL).usual_name == MIRACL
    assert set(corpus.captions["language"].to_pylist()) == {"ar"}
    assert corpus.source is not None
    rows = {row["id"]: row for row in corpus.images.to_pylist()}
    assert {id_: row["text"] for id_, row in rows.items()} == {page: f"text of {page}" for page in PAGES}
    assert [corpus.source.read(rows[page]["key"]) for page in PAGES] == [png(n) for n in range(3)]
    bengali = {"reader": "MIRACLVisionRetrieval-bn", "root": str(tmp_path / "all")}
    with pytest.raises(RequestError, match="1 documents hold no image, the first 'p2'"):
        open_corpus(bengali)
    expect(monkeypatch, MIRACL, TINY._replace(samples=77_571))
    with pytest.raises(RequestError, match=r"\(ar\): expected 77,571 pages and queries, got 5"):
        open_corpus({"reader": MIRACL, "root": str(tmp_path / "all")})


def test_miracl_vision_is_read_from_its_configurations_on_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    miracl(tmp_path, "ar")
    miracl(tmp_path, "bn")
    expect(monkeypatch, MIRACL)
    wanted = []

    def from_folder(dataset: str, *, split: str, config: str, revision: str | None, **_: object) -> hub.HubSplit:
        wanted.append((dataset, split, config, revision))
        return hub.load_split(str(tmp_path), split=None, files=sorted((tmp_path / config).iterdir()))

    monkeypatch.setattr(judged_files, "load_split", from_folder)
    monkeypatch.setattr(judged_files, "configs_of", lambda *_: [folder.name for folder in tmp_path.iterdir()])
    assert open_corpus(MIRACL).images.num_rows == 3
    assert set(wanted) == {
        ("nvidia/miracl-vision", "default", f"{table}-ar", "309e1696433408fbd555959cf1da968f3814f8b6")
        for table in ("corpus", "images", "queries", "qrels")
    }
