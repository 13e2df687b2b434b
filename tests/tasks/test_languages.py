"""A corpus in several languages: its planned value is the mean over them, and every part of a page reads it so.

Of 60 items X finds 37 by German and all by English captions; Y all by German and 55 by English ones.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capim.reports.elements.tables import failures_address
from capim.reports.rows.reading import read_report_data
from capim.reports.rows.report_data import ReportData
from capim.reports.rows.standing import headline_tasks, planned
from capim.reports.write import report_of
from capim.store import EmbeddingStore
from capim.store.schema import Ranking, texts
from capim.store.types import Corpus, EncoderSpec, Modality
from capim.tasks import report
from capim.tasks.analyses.table import applying
from capim.tasks.compare import compare_combined, compare_corpus, rank_suite
from capim.tasks.corpora.build import CaptionRow, ImageRow, build_corpus
from capim.tasks.corpora.check import check_corpus
from capim.tasks.protocols import MAIN, MEANS, Protocol
from capim.tasks.ranking.protocols import protocols_of
from capim.tasks.references import EvaluationRef, RunSettings, SetsRef
from capim.tasks.report import diagnose_corpus
from capim.tasks.statistics.draws import Resampling
from tests.command import json_rows
from tests.random_store import embeddings, put_all, scored
from tests.reports.stand_in import section

N = 60
HITS = {"X": {"de": 37, "en": N, "fr": 50, "en/bing": N}, "Y": {"de": N, "en": 55, "fr": N, "en/bing": 0}}
HOW: dict[str, Any] = {"resampling": Resampling(replicates=100, permutations=500), "run": "r"}


def corpus_of(*parts: str, name: str = "shop") -> Corpus:
    """60 images with a caption in every part: a language by people, or LANGUAGE/TRANSLATOR."""
    images = [ImageRow(f"{name}{i:02d}") for i in range(N)]
    captions = [
        CaptionRow(f"{image.id}-{part}", image.id, f"{part} {image.id}", 0, *part.split("/"))
        for part in parts
        for image in images
    ]
    return build_corpus(name, images, captions, source=None)


def evaluated(store: EmbeddingStore, corpus: Corpus, protocols: Sequence[str] = ()) -> tuple[EvaluationRef, ...]:
    """Evaluations of X and Y: a caption that finds its image has its vector, another one that of the next image."""
    store.write_corpus(corpus)
    found: list[EvaluationRef] = []
    for name, hits in HITS.items():
        spec = EncoderSpec(name=name, adapter="hf_dual", checkpoint=f"me/{name}", revision="a1", dim=N)
        store.write_encoder(spec)
        of = [id_.partition("-") for id_ in texts(corpus.captions["id"])]
        ords = [(int(image[-2:]), part) for image, _, part in of]
        captions = np.eye(N)[[(i + (i >= hits[part])) % N for i, part in ords]]
        vectors: dict[Modality, Any] = {"image": np.eye(N), "caption": captions}
        for modality, of_modality in vectors.items():
            made = embeddings(spec, len(of_modality), seed=0)
            put_all(store, spec, corpus, modality, replace(made, values=of_modality.astype(np.float32)))
        found += scored(store, corpus, [spec], protocols=protocols, **HOW)
    return tuple(found)


def analysed(folder: Path, *parts: str) -> EmbeddingStore:
    """A store with all that is made of a corpus."""
    store = EmbeddingStore.open(folder / "store", create=True)
    evaluations = evaluated(store, corpus_of(*parts))
    main = [protocol for protocol in MAIN if protocol in evaluations[0].evaluations]
    if main:
        compare_corpus.fn(evaluations, RunSettings(store_uri=store.uri, **HOW), protocols=main)
    compare_combined.fn(evaluations, RunSettings(store_uri=store.uri, **HOW))
    diagnose_corpus.fn(evaluations, RunSettings(store_uri=store.uri, analyses=("errors", "ambiguous"), **HOW))
    return store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> EmbeddingStore:
    return analysed(tmp_path_factory.mktemp("german-english"), "de", "en")


@pytest.fixture(scope="module")
def data(store: EmbeddingStore) -> ReportData:
    return read_report_data(store)


def blocks_of(data: ReportData, id_: str) -> list[Any]:
    """The blocks of a section of the report."""
    return [*section(report_of(data), id_).blocks]


def titles(data: ReportData, id_: str) -> list[str]:
    """The titles of the tables and charts of a section of the report."""
    return [str(getattr(each, "caption", "") or getattr(each, "title", "")) for each in blocks_of(data, id_)]


def test_the_mean_over_languages_is_the_one_planned_value_of_comparisons_answer_and_leaderboard(data) -> None:
    means = {("t2i/*/*", "R@1"), ("i2t/*/*", "R@1")}
    assert {(row.protocol, row.metric) for row in data.comparisons if row.family == "headline"} == means
    assert {key[1:] for key in planned(data.comparisons)} == {task[1:3] for task in headline_tasks(data)} == means
    made = report_of(data)
    assert made.board is not None
    assert made.board.headline == "Use Y"
    assert [row.encoder for row in made.board.rows] == ["Y", "X"]
    assert {column.key for column in made.board.columns} == {"shop:t2i/*/*", "shop:i2t/*/*"}
    assert {column.metric for column in made.board.columns} == {"R@1, mean"}


def test_failures_and_slices_have_every_language_once_and_say_which(data) -> None:
    every = {"t2i/all", "i2t/any", "t2i/de/human", "i2t/de/human"}
    assert {query.protocol for query in data.queries} == every
    assert {row.protocol for row in data.slices if row.analysis == "errors"} == every
    [gallery] = [each for each in blocks_of(data, "failures") if each.kind == "gallery"]
    assert {each.name: each.options for each in gallery.filters}["language"] == ("de", "en")
    german = data.row("shop", "i2t/de/human", "R@1", "X")
    assert failures_address(data, german) == "#cases?corpus=shop&direction=image+to+text&missed=X&language=de"
    english = tuple(row for row in data.slices if row.protocol in ("t2i/all", "i2t/any"))
    blocks = blocks_of(replace(data, slices=english), "slices")
    [[lacking]] = [each.lines for each in blocks if each.kind == "evidence"]
    assert lacking.startswith("shop: no slices of i2t/de/human and t2i/de/human (capim analyse --corpora shop --protoc")


def test_without_the_reference_language_the_mean_is_planned_and_every_language_is_shown(tmp_path: Path) -> None:
    data = read_report_data(analysed(tmp_path, "de", "fr"))
    assert {row.protocol for row in data.comparisons if row.family == "headline"} == {"t2i/*/*", "i2t/*/*"}
    assert {query.protocol[4:6] for query in data.queries} == {"de", "fr"}
    [picker] = blocks_of(data, "leaderboard")
    assert {"text to image, German by human (t2i/de/human)", "text to image, French by human (t2i/fr/human)"} <= {
        label for _, label, _ in picker.views
    }


def test_many_languages_are_analysed_only_where_they_are_named(store: EmbeddingStore, monkeypatch) -> None:
    monkeypatch.setattr(report, "MOST_SPOKEN", 1)
    corpus = store.corpus("shop")
    names = {protocol.id: "" for protocol in protocols_of(corpus)}
    sets = SetsRef(encoder="X", encoder_fingerprint="f", corpus="shop", corpus_fingerprint=corpus.fingerprint)
    found = [EvaluationRef(sets=sets, evaluations=names, n_scored=0)]
    assert [protocol.id for protocol in report.diagnosed(corpus, found)] == ["i2t/any", "t2i/all"]
    one = [replace(found[0], evaluations={"t2i/de/human": ""})]
    assert [protocol.id for protocol in report.diagnosed(corpus, one)] == ["t2i/de/human"]
    of_language, of_all = (
        {analysis.name for analysis in applying(Protocol.of(id_))} for id_ in ("t2i/de/human", "t2i/all")
    )
    assert {"errors", "ambiguous", "categories"} < of_language < of_all - {"compression"}


def test_a_suite_ranks_by_the_planned_value_also_where_a_language_has_more_translators(tmp_path: Path) -> None:
    store = EmbeddingStore.open(tmp_path / "store", create=True)
    found: list[EvaluationRef] = []
    for name, parts in (("a", ["de", "en", "en/bing"]), ("b", ["en"]), ("c", ["en"])):
        found += evaluated(store, corpus_of(*parts, name=name), ["*/*/*"] if name == "a" else ["t2i/all"])
    rank_suite.fn(tuple(found), RunSettings(store_uri=store.uri, **HOW))
    [row, *_] = store.all(Ranking, encoder="Y")
    assert json.loads(row.corpora)[0]["headline"] == "R@1 under t2i/*/* and i2t/*/*"
    values = [store.rows("results", encoder="Y", protocol=id_, metric="R@1")["value"][0].as_py() for id_ in MEANS]
    assert json.loads(row.headlines)["a"] == pytest.approx(sum(values) / 2)
    assert values[0] == pytest.approx((1 + (55 / N + 0) / 2) / 2)


def test_the_list_of_protocols_and_the_check_of_a_corpus_say_which_captions_are_taken(tmp_path: Path) -> None:
    listed = {row["id"]: row["several_languages"] for row in json_rows("list protocols")}
    assert listed["t2i/all"] == listed["t2i/first"] == "the captions of the reference language"
    assert listed["t2i/*/*"] == "all: the planned results"
    for languages, said in ((["de", "en"], "RSUM take the English captions"), (["de", "fr"], "there is no t2i/all")):
        table = tmp_path / "captions.csv"
        table.write_text(f"image,{','.join(f'caption_{each}' for each in languages)}\na,x,y\nb,v,w\n")
        checked = check_corpus({"reader": "table", "root": str(table), "ids_only": True})
        [line] = [each for each in checked.warnings if "*" in each]
        assert line.startswith("captions in 2 languages: planned are the means, t2i/*/* and i2t/*/*; ")
        assert said in line
