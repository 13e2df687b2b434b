"""Judged corpora: one small corpus written in every layout, and what is at fault in them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from capim.store.errors import RequestError
from capim.store.sets.columns_read import told
from capim.store.types import Corpus
from capim.tasks.corpora import JUDGED_TASKS, SubsetCounts
from capim.tasks.corpora.check import check_corpus, corpus_facts
from capim.tasks.corpora.description import open_corpus, reader_call
from capim.tasks.corpora.readers import hub
from capim.tasks.corpora.readers import judged as judged_reader
from tests.corpora.own_data import contents, json_lines, png, publish, refusal, write

PAGES = ("p1", "p2", "p3")
QUERIES = (("q1", "what does it cost"), ("q2", "when does it open"), ("q3", "nobody judged this"))
QRELS = (("q1", "p1", 2), ("q1", "p2", 1), ("q1", "p3", 0), ("q2", "p3", 1))


def page(number: int) -> bytes:
    return png((40 * number, 90, 10))


def written(root: Path, files: Mapping[str, str | bytes | None], *, pages: str = "images") -> dict[str, Any]:
    """The description of a folder with these files and, in a folder of it, the pages."""
    images = {f"{pages}/{name}.png": page(number) for number, name in enumerate(PAGES)}
    return {"reader": "judged", "dataset": str(write(root, {**images, **files}))}


def parquet(root: Path, tables: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The description of a folder with a shard of every table in a folder of its own."""
    for name, columns in tables.items():
        (root / name).mkdir(parents=True)
        pq.write_table(pa.table(columns), root / name / "test-00000-of-00001.parquet")
    return {"reader": "judged", "dataset": str(root)}


def columns(rows: Sequence[Sequence[Any]], *names: str) -> dict[str, list[Any]]:
    return {name: list(cells) for name, cells in zip(names, zip(*rows, strict=True), strict=True)}


def beir(root: Path, qrels: Sequence[Sequence[object]] = QRELS) -> dict[str, Any]:
    json_lines(root / "corpus.jsonl", [{"_id": page, "text": f"text of {page}"} for page in PAGES])
    json_lines(root / "queries.jsonl", [{"_id": query, "text": text} for query, text in QUERIES])
    rows = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in qrels)]
    return written(root, {"qrels/test.tsv": "\n".join(rows) + "\n"})


def mteb(root: Path, *, subset: str = "", grades: Any = None, layout: str = judged_reader.LAYOUTS[0]) -> dict[str, Any]:
    """Parquet shards by configuration, with the columns of ViDoRe 1 and 2; grades may be floats, as in one of them."""
    judged = columns(QRELS, "query-id", "corpus-id", "score")
    tables: dict[str, dict[str, Any]] = {
        "corpus": {
            "corpus-id": PAGES, "image": [{"bytes": page(n), "path": None} for n in range(3)], "doc-id": ["d"] * 3,
        },
        "queries": columns(QUERIES, "query-id", "query"),
        "qrels": {**judged, "score": pa.array(judged["score"], grades)},
    }  # fmt: skip
    named = {layout.format(subset=subset, table=name) if subset else name: table for name, table in tables.items()}
    return parquet(root, named)


def trec(root: Path) -> dict[str, Any]:
    queries = "".join(f"{query}\t{text}\n" for query, text in QUERIES)
    qrels = "".join(f"{query} 0 {page} {grade}\n" for query, page, grade in QRELS)
    return {**written(root, {"queries.tsv": queries, "qrels": qrels}, pages="pages"), "images": str(root / "pages")}


def own_table(root: Path) -> dict[str, Any]:
    documents = "id,image\n" + "".join(f"{page},{page}.png\n" for page in PAGES)
    queries = "id,asked,type\n" + "".join(f"{query},{text},how much;where\n" for query, text in QUERIES)
    judged = "query_id,document,grade\n" + "".join(f"{query},{page},{grade}\n" for query, page, grade in QRELS)
    files = {"documents.csv": documents, "queries.csv": queries, "judgements.csv": judged}
    return {**written(root, files), "columns": {"queries.query": "asked"}}


def objects(root: Path) -> dict[str, Any]:
    documents = {page: {"text": f"text of {page}"} for page in PAGES}
    graded = {query: {page: grade for q, page, grade in QRELS if q == query} for query, _ in QUERIES[:2]}
    tables = {"corpus": documents, "queries": dict(QUERIES), "qrels": graded}
    return written(root, {f"{name}.json": json.dumps(table) for name, table in tables.items()})


def judgements(corpus: Corpus) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in ("query_id", "item_id", "grade")) for row in corpus.relevance.to_pylist()]


@pytest.mark.parametrize("write", [beir, mteb, trec, own_table, objects], ids=lambda write: write.__name__)
def test_every_layout_gives_the_same_corpus_and_lists_a_query_without_a_relevant_document(
    tmp_path: Path, write: Callable[[Path], dict[str, Any]]
) -> None:
    corpus = open_corpus(write(tmp_path / "root"))
    assert corpus.images["id"].to_pylist() == [*PAGES]
    assert corpus.captions["id"].to_pylist() == ["q1", "q2"]
    assert corpus.captions["text"].to_pylist() == [text for _, text in QUERIES[:2]]
    assert corpus.captions["image_id"].null_count == 2
    assert judgements(corpus) == [*QRELS]
    assert contents(corpus) == [page(n) for n in range(3)]
    reason = "no document is judged relevant to this query"
    assert corpus.skipped.to_pylist() == [{"item_id": "q3", "reason": reason, "modality": "caption"}]
    facts = corpus_facts(corpus)
    assert facts["judged"] == {"judgements": 4, "fewest relevant per query": 1, "most relevant per query": 2}
    assert (facts["negatives"], facts["skipped"], facts["positives"]) == (0, 1, {"judged t2i": 2})


def test_rows_of_a_query_and_its_page_are_read_as_vidore_published_them_first(tmp_path: Path) -> None:
    """A query in several rows is one, a page in several rows too, and a page without a query is a distractor."""
    names = ["p1.png", "p2.png", "p3.png", "p1.png", "p4.png"]
    cells = [page(int(name[1])) for name in names]
    asked = ["what does it cost", "what does it cost", "when does it open", "who built it", None]
    root = publish(tmp_path / "vidore", {"query": asked, "image": cells, "image_filename": names, "answer": ["x"] * 5})
    corpus = open_corpus(root)
    assert corpus.images["id"].to_pylist() == ["p1.png", "p2.png", "p3.png", "p4.png"]
    assert contents(corpus) == [page(n) for n in (1, 2, 3, 4)]
    assert corpus.captions["text"].to_pylist() == list(dict.fromkeys(asked[:4]))
    assert judgements(corpus) == [("q1", "p1.png", 1), ("q1", "p2.png", 1), ("q2", "p3.png", 1), ("q3", "p1.png", 1)]
    assert check_corpus(root).recognised == "queries with their pages, in Parquet files (docs/judged.md)"


def test_a_table_of_queries_pages_and_grades_is_a_judged_corpus(tmp_path: Path) -> None:
    rows = ["query,image,relevance", *(f"{dict(QUERIES)[query]},{page}.png,{grade}" for query, page, grade in QRELS)]
    written(tmp_path / "own", {"asked.csv": "\n".join(rows)})
    assert judgements(open_corpus(tmp_path / "own")) == [(q, f"{page}.png", grade) for q, page, grade in QRELS]
    assert check_corpus(tmp_path / "own" / "asked.csv").ok
    (tmp_path / "own" / "asked.csv").write_text("query,image\nwhere,p1.png\nwho,\n")
    assert "asked.csv: row 2 has no image, which names the page" in refusal(tmp_path / "own")
    (tmp_path / "own" / "asked.csv").write_text("question,image\nwhere,p1.png\n")
    described = {"reader": "judged", "dataset": str(tmp_path / "own" / "asked.csv")}
    assert "expected a folder, or a table with columns query and image; it has question, image" in refusal(described)
    assert len(open_corpus({**described, "columns": {"queries.query": "question"}}).captions) == 1


def test_the_pages_of_a_row_have_as_many_names_and_a_name_is_of_one_page(tmp_path: Path) -> None:
    described = {"reader": "judged", "dataset": str(tmp_path / "asked.jsonl"), "columns": {"queries.query": "query"}}
    json_lines(tmp_path / "asked.jsonl", [{"query": "where", "image": ["p1.png", "p2.png"], "doc_id": "r"}])
    assert "asked.jsonl: row 1 has 2 images and 1 names" in refusal(described)
    rows = [{"query": query, "image": f"p{n}.png", "doc_id": "r"} for n, query in enumerate(("where", "who"))]
    json_lines(tmp_path / "asked.jsonl", rows)
    assert "asked.jsonl: row 2: 'r' names two pages, 'p0.png' and 'p1.png'" in refusal(described)


def test_text_and_place_of_a_page_group_and_types_of_a_query_are_kept(tmp_path: Path) -> None:
    beir(tmp_path / "one")
    first = {"_id": "p1", "text": "words", "doc_id": "report", "page_number_in_doc": 7}
    json_lines(tmp_path / "one" / "corpus.jsonl", [first, {"_id": "p2"}, {"_id": "p3"}])
    query = {"_id": "q1", "text": "t", "language": "french", "query_types": ["numerical"], "group": "g"}
    json_lines(tmp_path / "one" / "queries.jsonl", [query, {"_id": "q2", "text": "u"}])
    corpus = open_corpus({"reader": "judged", "dataset": str(tmp_path / "one")})
    row = corpus.images.to_pylist()[0]
    assert (row["text"], row["document"], row["page"]) == ("words", "report", 7)
    row = corpus.captions.to_pylist()[0]
    assert (row["language"], row["query_types"], row["query_group"]) == ("fr", ["numerical"], "g")


Hub = Callable[..., set[tuple[Any, ...]]]


@pytest.fixture
def on_hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    """Lets the hub have the tables of a folder, as configurations or as folders; gives the set of what is asked for."""

    def publish(root: Path, *, folders: bool = False) -> set[tuple[Any, ...]]:
        wanted: set[tuple[Any, ...]] = set()

        def load_split(dataset: str, *, split: str, config: str, revision: str | None, **_: object) -> hub.HubSplit:
            wanted.add((dataset, split, config, revision))
            if folders:
                return hub.load_split(str(root), split=split, config=config)  # datasets reads both alike
            return hub.load_split(str(root), split=None, files=sorted((root / config).iterdir()))

        def configs_of(*_: object) -> list[str]:
            return pytest.fail("no configurations") if folders else [folder.name for folder in root.iterdir()]

        monkeypatch.setattr(judged_reader, "configs_of", configs_of)
        monkeypatch.setattr(judged_reader, "load_split", load_split)
        return wanted

    return publish


def test_a_data_set_on_the_hub_is_read_by_its_configurations(tmp_path: Path, on_hub: Hub) -> None:
    mteb(tmp_path / "hub")
    (tmp_path / "hub" / "qrels").rename(tmp_path / "hub" / "default")
    wanted = on_hub(tmp_path / "hub")
    corpus = open_corpus({"reader": "judged", "dataset": "vidore/example", "revision": "abc"})
    assert wanted == {("vidore/example", "test", name, "abc") for name in ("corpus", "default", "queries")}
    assert (corpus.name, corpus.origin) == ("example", "https://huggingface.co/datasets/vidore/example")
    assert judgements(corpus) == [*QRELS]
    assert contents(corpus)[0] == page(0)


def test_images_of_queries_are_not_read_without_a_word(tmp_path: Path) -> None:
    description = mteb(tmp_path / "mteb")
    (file,) = (tmp_path / "mteb" / "queries").iterdir()
    table = pq.read_table(file)
    for cells, said in (([page(0)] * len(table), True), ([None] * len(table), False)):
        pq.write_table(table.append_column("image", pa.array(cells, pa.binary())), file)
        told = "\n".join(check_corpus(description).columns)
        assert ("queries have images, which are not read: only their texts search" in told) == said


def test_subsets_share_their_documents_and_a_question_in_two_languages_is_one_group(tmp_path: Path) -> None:
    mteb(tmp_path / "two", subset="english")
    description = mteb(tmp_path / "two", subset="french", grades=pa.float64())
    corpus = open_corpus(description)
    assert corpus.images.num_rows == 3
    assert corpus.captions["id"].to_pylist() == ["en/q1", "en/q2", "fr/q1", "fr/q2"]
    assert corpus.captions["language"].to_pylist() == ["en", "en", "fr", "fr"]
    first, second, *others = corpus.captions["query_group"].to_pylist()
    assert first != second
    assert others == [first, second]
    one = open_corpus({**description, "subsets": ["french"]})
    assert one.captions["id"].to_pylist() == ["q1", "q2"]
    assert judgements(one) == [*QRELS]  # whole numbers stored as floats


TWICE = "documents judged twice with different grades"
GRADED = "query 'q1', document 'p1': 2 ({}) and 1 ({})"
HEADER = "query-id\tcorpus-id\tscore\n"
QUERY = '{"_id": "q1", "text": "t"}\n'
LINE = 'name it with columns = { "judgements.grade" = "…" }'


@pytest.mark.parametrize(
    ("files", "options", "expected"),
    [
        ({"qrels/test.tsv": f"{HEADER}q2\tp1\t\n"}, {}, "judgements without a grade: query 'q2', document 'p1', row 1"),
        ({"qrels/test.tsv": f"{HEADER}q2\tp1\t0.5\n"}, {}, "not whole numbers: '0.5' of query 'q2', document 'p1'"),
        ({"qrels/test.tsv": f"{HEADER}q2\tp9\t1\n"}, {}, "that are not in the corpus: 'p9' for query 'q2'"),
        ({"qrels/test.tsv": f"{HEADER}q1\tp1\t2\nq1\tp1\t1\n"}, {}, f"{TWICE}: {GRADED.format('row 1', 'row 2')}"),
        ({"queries.jsonl": 2 * QUERY}, {}, "duplicate query ids: 'q1'"),
        ({"qrels/test.tsv": None}, {}, "no judgements; looked for default, qrels"),
        ({"qrels/test.tsv": "a\tb\tc\n1\t2\t3\n"}, {}, f"no column for grade; it has a, b, c; {LINE}"),
        ({}, {"columns": {"judgement.grade": "c"}}, "unknown columns judgement.grade; known: documents.id"),
        ({}, {"subsets": ["german"]}, "unknown subsets german"),
        ({}, {"split": "dev"}, "qrels: no split 'dev'; it has test"),
    ],
)
def test_what_is_wrong_in_the_tables_is_named(
    tmp_path: Path, files: dict[str, str | None], options: dict[str, Any], expected: str
) -> None:
    description = beir(tmp_path / "root")
    for name in files:
        (tmp_path / "root" / name).unlink()
    write(tmp_path / "root", {name: content for name, content in files.items() if content is not None})
    assert expected in refusal({**description, **options})


@pytest.mark.parametrize("again", [("english", 2), ("english", 1), ("french", 2), ("french", 1)], ids=str)
def test_a_pair_judged_again_in_a_subset_of_other_queries_has_the_same_grade(
    tmp_path: Path, again: tuple[str, int]
) -> None:
    """ViDoRe 2 and 3 have the judgements of all languages in each; of two grades the last subset's was taken."""
    subset, grade = again
    for name, own in (("english", [("q1", "p1", 2)]), ("french", [("q4", "p2", 1)])):
        more = [("q1", "p1", grade)] if name == subset else []
        tables = {
            "corpus": columns([[page] for page in PAGES], "_id"),
            "queries": columns([(own[0][0], f"{name}?")], "_id", "text"),
            "qrels": columns([*own, *more], "query-id", "corpus-id", "score"),
        }
        parquet(tmp_path, {f"{name}-{table}": cells for table, cells in tables.items()})
    description = written(tmp_path, {})
    if grade == 2:
        assert judgements(open_corpus(description)) == [("q1", "p1", 2), ("q4", "p2", 1)]
    else:
        where = ("row 1", "row 2") if subset == "english" else ("subset english", "subset french")
        assert f"{TWICE}: {GRADED.format(*where)}" in refusal(description)


def test_two_grades_of_a_page_in_a_table_of_questions_are_named_by_its_rows(tmp_path: Path) -> None:
    rows = "query,image,grade\na,p1.png,1\n,p3.png,\nb,p2.png,2\na,p1.png,3\n"
    written(tmp_path / "own", {"asked.csv": rows})
    assert "query 'q1', document 'p1.png': 1 (row 1) and 3 (row 4)" in refusal(tmp_path / "own")


def test_a_split_of_questions_is_that_which_is_given_and_not_ignored_where_there_is_none(tmp_path: Path) -> None:
    for split, text in (("dev", "in dev?"), ("test", "in test?")):
        publish(tmp_path / "set", {"query": [text], "image": [page(1)]}, split)
    plain = {"reader": "judged", "dataset": str(tmp_path / "set")}
    assert open_corpus(plain).captions["text"].to_pylist() == ["in test?"]
    dev = {**plain, "split": "dev"}
    assert open_corpus(dev).captions["text"].to_pylist() == ["in dev?"]
    written(tmp_path / "own", {"asked.csv": "query,image\na,p1.png\n"})
    [file] = (tmp_path / "set").rglob("dev*.parquet")
    for one in (tmp_path / "own" / "asked.csv", file):
        assert f"{one.name}: no split 'dev'; it has none, leave split out" in refusal({**dev, "dataset": str(one)})
    with told() as lines:
        open_corpus({**trec(tmp_path / "trec"), "split": "dev"})
    assert any("qrels: read for split 'dev', which its name does not say" in line for line in lines)


def test_judgements_of_queries_in_no_subset_are_left_out_with_a_word(tmp_path: Path) -> None:
    mteb(tmp_path / "two", subset="english")
    description = mteb(tmp_path / "two", subset="french")
    file = tmp_path / "two" / "french-qrels" / "test-00000-of-00001.parquet"
    pq.write_table(pa.table(columns([*QRELS, ("q9", "p1", 1)], "query-id", "corpus-id", "score")), file)
    with told() as lines:
        open_corpus(description)
    assert any("1 judgements of queries without a row are left out, first 'q9'" in line for line in lines)


def test_judgements_in_two_files_of_one_split_are_not_read_from_the_first_alone(tmp_path: Path) -> None:
    description = beir(tmp_path / "root")
    write(tmp_path / "root", {"qrels/test-00001-of-00002.tsv": f"{HEADER}q2\tp1\t1\n"})
    expected = "judgements are in several files, qrels/test-00001-of-00002.tsv, qrels/test.tsv; join them in one"
    assert expected in refusal(description)


def test_a_judgement_twice_is_one_negative_is_not_relevant_and_other_queries_are_ignored(tmp_path: Path) -> None:
    others = [("q1", "p1", "2.0"), ("q2", "p1", -1), ("in another language", "p1", 1)]
    corpus = open_corpus(beir(tmp_path / "root", [*QRELS, *others]))
    assert judgements(corpus) == [*QRELS, ("q2", "p1", -1)]
    assert corpus_facts(corpus)["judged"]["most relevant per query"] == 2


def test_pages_without_a_file_are_skipped_with_their_judgements_or_ids_for_imported_embeddings(tmp_path: Path) -> None:
    description = beir(tmp_path / "root")
    (tmp_path / "root" / "images" / "p2.png").unlink()
    corpus = open_corpus({**description, "missing": "skip"})
    assert corpus.images["id"].to_pylist() == ["p1", "p3"]
    assert [row[1] for row in judgements(corpus)] == ["p1", "p3", "p3"]
    shutil.rmtree(tmp_path / "root" / "images")
    corpus = open_corpus({**description, "ids_only": True})
    assert corpus.source is None
    assert corpus.images["id"].to_pylist() == [*PAGES]


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


def test_a_wrong_count_is_an_error_that_names_both(tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {"french": TINY, "english": TINY._replace(samples=6, judgements=9)}
    monkeypatch.setitem(JUDGED_TASKS, TASK, replace(JUDGED_TASKS[TASK], subsets=counts))
    with pytest.raises(RequestError) as caught:
        open_corpus(tiny)
    revision = "0542c0d03da0ec1c8cbc517c8d78e7e95c75d3d3"
    assert caught.value.faults == (
        f"{TASK} (english): expected 6 pages and queries, got 5",
        f"{TASK} (english): expected 9 judgements, got 3",
        f"{TASK}: read revision {revision} of vidore/esg_reports_v2, whole",
    )


def expect(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let the only subset of a task have the counts of the copy."""
    task = JUDGED_TASKS[name]
    monkeypatch.setitem(JUDGED_TASKS, name, replace(task, subsets=dict.fromkeys(task.subsets, TINY)))


def miracl(root: Path, language: str, *, without_picture: str = "") -> None:
    """The four configurations of a language of MIRACL-Vision: its pages name their pictures, which are a table."""
    numbered = [*enumerate(PAGES)][::-1]
    pictures = [(f"{name}.png", {"bytes": page(n), "path": None}) for n, name in numbered if name != without_picture]
    tables = {
        "corpus": columns([(name, f"{name}.png", f"text of {name}") for name in PAGES], "_id", "image_id", "text"),
        "images": columns(pictures, "file_name", "image"),
        "queries": columns(QUERIES, "_id", "text"),
        "qrels": columns(QRELS, "query-id", "corpus-id", "score"),
    }
    parquet(root, {f"{name}-{language}": table for name, table in tables.items()})


def test_the_rows_of_jinavdr_miracl_vision_kovidore_and_visrag_are_those_of_mteb() -> None:
    spec = find_spec("mteb")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    expected, found = {}, {}
    families = ("JinaVDR", "MIRACLVision", "KoVidore2", "VisRAG")
    for file in (file for name in families for file in (package / "descriptive_stats").rglob(f"{name}*.json")):
        ((split, whole),) = json.loads(file.read_text()).items()
        for subset, part in (whole.get("hf_subset_descriptive_stats") or {"default": whole}).items():
            judged = part["relevant_docs_statistics"]
            counts = (judged[f"{key}_relevant_docs{per}"] for key, per in zip(
                ("num", "min", "max"), ("", "_per_query", "_per_query"), strict=True))  # fmt: skip
            texts = part["queries_text_statistics"]["unique_texts"]
            named = "" if file.stem.startswith(families[2:]) else subset
            expected[file.stem, named] = split, (part["num_samples"], texts, *counts)
    for name, task in JUDGED_TASKS.items():
        if task.task.startswith(families):
            ((subset, counted),) = task.subsets.items()
            assert name == (task.task if subset in ("", "default") else f"{task.task}-{subset}")
            found[task.task, subset] = task.split, counted
    assert found == expected
    assert len({task for task, _ in found}) == 54
    assert JUDGED_TASKS["VisRAGRetSlideVQA"].main_metric == "recall@10"


def test_a_task_of_jinavdr_is_read_from_its_folders_here_and_on_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_hub: Hub
) -> None:
    mteb(tmp_path / "tqa", subset="default", layout="{subset}/{table}")
    expect(monkeypatch, JINA)
    corpus = open_corpus({"reader": JINA, "root": str(tmp_path / "tqa")})
    assert (corpus.name, corpus.main_metric, corpus.captions.num_rows, corpus.images.num_rows) == (JINA, "nDCG@5", 2, 3)
    wanted = on_hub(tmp_path / "tqa", folders=True)
    assert open_corpus(JINA).fingerprint == corpus.fingerprint
    assert wanted == {
        ("jinaai/tqa_beir", "test", f"default/{table}", "33b48ad357ceffac3488630b6b0f2c86a9386978")
        for table in ("corpus", "queries", "qrels")
    }


def test_a_language_of_jinavdr_is_a_corpus_since_each_has_its_own_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "JinaVDRAirbnbSyntheticRetrieval-jp"
    for subset in ("ar", "jp"):
        mteb(tmp_path, subset=subset, layout="{subset}/{table}")
    expect(monkeypatch, name)
    corpus = open_corpus({"reader": name, "root": str(tmp_path)})
    assert (corpus.name, set(corpus.captions["language"].to_pylist())) == (name, {"ja"})
    message = refusal(tmp_path)  # with the same ids
    assert "ar and jp have different documents" in message
    assert 'subsets = ["jp"]' in message


def test_a_language_of_miracl_vision_has_pages_with_text_and_the_pictures_that_they_name_here_and_on_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_hub: Hub
) -> None:
    miracl(tmp_path / "all", "ar")
    miracl(tmp_path / "all", "bn", without_picture="p2")
    expect(monkeypatch, MIRACL)
    corpus = open_corpus({"reader": MIRACL, "root": str(tmp_path / "all")})
    assert (corpus.name, corpus.languages_reference) == (MIRACL, "ar")
    assert reader_call(MIRACL).usual_name == MIRACL
    assert set(corpus.captions["language"].to_pylist()) == {"ar"}
    assert corpus.images["id"].to_pylist() == [*PAGES]
    assert corpus.images["text"].to_pylist() == [f"text of {name}" for name in PAGES]
    assert contents(corpus) == [page(n) for n in range(3)]
    bengali = {"reader": "MIRACLVisionRetrieval-bn", "root": str(tmp_path / "all")}
    assert "1 documents hold no image, the first 'p2'" in refusal(bengali)
    wanted = on_hub(tmp_path / "all")
    assert open_corpus(MIRACL).fingerprint == corpus.fingerprint
    assert wanted == {
        ("nvidia/miracl-vision", "default", f"{table}-ar", "309e1696433408fbd555959cf1da968f3814f8b6")
        for table in ("corpus", "images", "queries", "qrels")
    }
