"""Published answers of models to BiVLC and SugarCrepe: the figures of their papers."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from capim.store.tables import read_row_file
from capim.store.types import Corpus
from capim.tasks.corpora.readers.published import table_reader
from capim.tasks.corpora.readers.published_files import read_bivlc
from capim.tasks.metrics import METRICS
from capim.tasks.ranking.protocols import build_task, protocols_of
from capim.tasks.results.imported.sources import Source, described_corpus, outcomes_of_source
from capim.tasks.results.imported.tables import FoundRows, named_rows, outcomes_of_rows
from tests.results.gpt_4v import gpt_4v_files
from tests.results.test_imported_tables import SCORES, figures

# --- BiVLC ------------------------------------------------------------------------------------------------------
BIVLC = {  # I2T, T2I and group of the two published files
    "ViT-B-32": (0.7583, 0.5240, 0.4906),
    "CLIP_TROHN-Text": (0.7818, 0.6219, 0.5748),
}


@pytest.fixture(scope="module")
def bivlc(shared_data: Path) -> Corpus:
    """Ids and texts of BiVLC from one of the files."""
    return read_bivlc(shared_data / "bivlc" / "ViT-B-32.csv")


@pytest.fixture(scope="module")
def sugarcrepe(shared_data: Path) -> Corpus:
    return table_reader("sugarcrepe")(shared_data / "sugar_crepe")


def test_bivlc_files_give_the_published_scores_and_those_of_every_type(bivlc: Corpus, shared_data: Path) -> None:
    for model, expected in BIVLC.items():
        path = shared_data / "bivlc" / f"{model}.csv"
        found = outcomes_of_source(Source("outcomes", str(path), model), bivlc)[model]
        assert found.left_out == []
        by_protocol = {outcomes.protocol.id: outcomes for outcomes in found.outcomes}
        assert set(by_protocol) == {
            "winoground", *(f"winoground/{tag}" for tag in ("add", "replace", "swap", "att", "obj", "rel"))
        }  # fmt: skip
        whole = by_protocol["winoground"]
        assert tuple(round(METRICS[name].value(whole), 4) for name in SCORES) == expected
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        for tag, column in (("swap", "type"), ("replace", "type"), ("add", "type"), ("rel", "subtype")):
            of_tag = [row["group_score"] == "True" for row in rows if row[column] == tag]
            assert METRICS["winoground_group"].value(by_protocol[f"winoground/{tag}"]) == np.mean(of_tag)
            assert len(by_protocol[f"winoground/{tag}"]) == len(of_tag)
        assert whole.judgements is not None
        assert whole.judgements[:, 0].tolist() == [row["text_score_i0"] == "True" for row in rows]


def test_rows_may_have_the_names_of_the_later_publication_another_order_or_no_texts(bivlc, shared_data) -> None:
    rows = read_row_file(shared_data / "bivlc" / "CLIP_TROHN-Text.csv")
    later = {
        "text_score_i0": "Ipos_2T", "text_score_i1": "Ineg_2T", "image_score_c0": "Tpos_2I",
        "image_score_c1": "Tneg_2I", "text_score": "I2T", "image_score": "T2I",
    }  # fmt: skip
    renamed = [{later.get(name, name): cell for name, cell in row.items()} for row in rows]
    scores = [{name: cell for name, cell in row.items() if "caption" not in name} for row in rows]
    shuffled = [{"example_id": str(at), **scores[at]} for at in np.random.default_rng(1).permutation(len(rows))]
    expected = figures(outcomes_of_rows(named_rows(rows), bivlc).outcomes)
    for given, how in (
        (renamed, "2,933 of 2,933 rows matched by their texts"),
        (rows[::-1], "2,933 of 2,933 rows matched by their texts"),
        (shuffled, "2,933 of 2,933 rows matched by `example_id`"),
        (scores, "2,933 rows taken in the corpus' order; no column of ids"),
    ):
        found = outcomes_of_rows(named_rows(given), bivlc)
        assert (figures(found.outcomes), [*found.how]) == (expected, [how])


def test_the_file_holds_its_corpus(shared_data: Path, tmp_path: Path) -> None:
    path = str(shared_data / "bivlc" / "ViT-B-32.csv")
    source = Source("outcomes", path, "x")
    assert described_corpus(source, "bivlc") == {"reader": "bivlc", "root": path}
    assert described_corpus(source, "bivlc", stored=["bivlc"]) == "bivlc"
    assert described_corpus(source, "winoground") == "winoground"
    (tmp_path / "own.csv").write_text("query,rank\na,1\n")
    assert described_corpus(Source("outcomes", str(tmp_path / "own.csv"), "x"), "bivlc") == "bivlc"


# --- SugarCrepe by GPT-4V ---------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def answers(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gpt-4v")
    gpt_4v_files(folder, shared_data / "sugar_crepe")
    return folder


def of_source(path: Path, corpus: Corpus, *protocols: str) -> FoundRows:
    return outcomes_of_source(Source("outcomes", str(path), "gpt-4v", protocols), corpus)["gpt-4v"]


def test_the_answers_of_gpt_4v_are_imported_as_published(answers: Path, sugarcrepe: Corpus) -> None:
    found = of_source(answers / "gpt4v-swap_att.json", sugarcrepe)
    assert figures(found.outcomes) == {"sugarcrepe/swap_att": {"pair_accuracy": 0.9114}}  # 607 of 666
    assert found.left_out == []
    found = of_source(answers / "gpt4v-swap_obj.json", sugarcrepe)
    assert figures(found.outcomes) == {"sugarcrepe/swap_obj": {"pair_accuracy": round(210 / 245, 4)}}
    [line] = found.left_out
    assert line.startswith("1 of 246 rows left out because their texts are not in the corpus")
    assert "West 32nd" in line


FOLDERS = {"sugarcrepe": "sugar_crepe", "sugarcrepe-pp": "sugarcrepe_pp"}


@pytest.mark.parametrize("reader", FOLDERS)
def test_shuffled_answers_have_the_same_values_by_ids_under_an_unusual_name_or_by_texts(shared_data, reader) -> None:
    """A set of two right captions is one query."""
    folder = shared_data / FOLDERS[reader]
    corpus = table_reader(reader)(folder, categories=[path.stem for path in sorted(folder.glob("*_*.json"))])
    text_of = dict(zip(corpus.captions["id"].to_pylist(), corpus.captions["text"].to_pylist(), strict=True))
    queries = {query for protocol in protocols_of(corpus) for query in build_task(corpus, protocol).query_ids.tolist()}
    rows = [
        {"id": row["id"], "correct": len(str(text_of[row["caption_id"]])) % 3 > 0, "category": row["category"],
         "caption": text_of[row["caption_id"]], "negative_caption": text_of[row["negative_id"]]}
        for row in corpus.pairs.to_pylist() if row["id"] in queries
    ]  # fmt: skip
    expected = figures(outcomes_of_rows(named_rows(rows), corpus).outcomes)
    shuffled = [rows[at] for at in np.random.default_rng(0).permutation(len(rows))]
    by_id = [{"nummer": row["id"], "correct": row["correct"]} for row in shuffled]
    for given in (by_id, [{name: row[name] for name in row if name != "id"} for row in shuffled]):
        assert figures(outcomes_of_rows(named_rows(given), corpus).outcomes) == expected


def test_pairs_with_the_same_texts_are_told_apart_by_their_category(sugarcrepe: Corpus) -> None:
    """BiVLC's results on SugarCrepe have no ids; three pairs are in swap_att and in swap_obj."""
    texts = dict(zip(sugarcrepe.captions["id"].to_pylist(), sugarcrepe.captions["text"].to_pylist(), strict=True))
    rows = []
    for pair in sugarcrepe.pairs.to_pylist()[::-1]:
        both = {"caption": texts[pair["caption_id"]], "negative_caption": texts[pair["negative_id"]]}
        kind = dict(zip(("type", "subtype"), pair["category"].split("_"), strict=True))
        rows.append({**both, **kind, "correct": int(pair["category"] != "swap_obj")})
    by_protocol = figures(outcomes_of_rows(named_rows(rows), sugarcrepe).outcomes)
    assert by_protocol["sugarcrepe/swap_obj"]["pair_accuracy"] == 0
    assert by_protocol["sugarcrepe/swap_att"]["pair_accuracy"] == 1
