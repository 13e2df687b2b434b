# ruff: noqa: E501 - names of published columns in one line a case
"""Real files, shuffled and with their columns renamed: equal figures or a refusal, never others."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capim.store.errors import RequestError
from capim.store.files import read_row_file
from capim.store.types import Corpus
from capim.tasks.corpora.readers.published import table_reader
from capim.tasks.metrics import metrics_of
from capim.tasks.ranking.protocols import build_task, protocols_of
from capim.tasks.results.imported.tables import named_rows, outcomes_of_hits, outcomes_of_rows, read_hit_lists
from tests.analyses.test_content import quadruples
from tests.results.conftest import Lists
from tests.results.test_published_answers import bivlc  # noqa: F401 - a fixture
from tests.results.thirty import retrieval_task

NAMES = (
    "query", "id", "_id", "Example ID", "qid", "uid", "item", "nummer", "row_of_the_paper", "index", "score_of_it",
)  # fmt: skip
Rows = Sequence[Mapping[str, Any]]
Figures = dict[tuple[str, str], float]


def figures(rows: Rows, corpus: Corpus) -> Figures:
    """Every figure that rows give, to the last digit."""
    found = outcomes_of_rows(named_rows(rows), corpus)
    return {(o.protocol.id, metric.name): metric.value(o) for o in found.outcomes for metric in metrics_of(o)}


def check(rows: Rows, corpus: Corpus, expected: Figures, renamed: Mapping[str, str]) -> bool:
    """Whether shuffled rows under other names are taken; their figures are those in order then."""
    order = np.random.default_rng(0).permutation(len(rows))
    shuffled = [{renamed.get(name, name): cell for name, cell in rows[at].items()} for at in order]
    try:
        found = figures(shuffled, corpus)
    except RequestError:
        return False
    assert found == pytest.approx(expected, rel=0, abs=1e-12), renamed
    return True


@pytest.fixture(scope="module")
def models(shared_data: Path, bivlc: Corpus) -> list[tuple[Rows, Figures]]:  # noqa: F811
    """The rows of two models' files, and their figures in the order of the file."""
    files = [read_row_file(shared_data / "bivlc" / f"{model}.csv") for model in ("ViT-B-32", "CLIP_TROHN-Text")]
    return [(rows, figures(rows, bivlc)) for rows in files]


@pytest.mark.parametrize(
    ("renamed", "taken"),
    [
        ({}, True),
        ({"text_score_i0": "text_0", "text_score_i1": "text_1", "image_score_c0": "image_0", "image_score_c1": "image_1"}, True),
        ({"text_score_i0": "Ipos_2T", "text_score_i1": "Ineg_2T", "image_score_c0": "Tpos_2I", "image_score_c1": "Tneg_2I"}, True),
        ({"caption": "Caption", "negative_caption": "Negative Caption"}, False),
        ({"caption": "wording", "negative_caption": "other wording"}, False),
        ({"negative_caption": "hard negative"}, False),
        ({"text_score_i0": "a", "text_score": "b"}, False),
        ({"type": "kind", "subtype": "kind of kind"}, True),
    ],
)  # fmt: skip
def test_bivlc_s_answers(bivlc: Corpus, models: Any, renamed: dict[str, str], taken: bool) -> None:  # noqa: F811
    for rows, expected in models:
        assert check(rows, bivlc, expected, renamed) or not taken


@pytest.mark.parametrize("name", NAMES)
def test_winoground_s_tags_as_answers(shared_data: Path, name: str) -> None:
    """Right on the examples without a tag alone: a shuffled file taken by position gave every tag about the same."""
    tags = json.loads((shared_data / "winoground_tags" / "new_tag_assignments.json").read_text())
    corpus = quadruples({example: own or ["No Tag"] for example, own in tags.items()})
    rows = [{"id": int(example), "text": not own, "image": not own, "group": not own} for example, own in tags.items()]
    expected = figures(rows, corpus)
    check(rows, corpus, expected, {"id": name})
    assert check(rows, corpus, expected, {"id": "Example-ID"})
    text = {protocol: value for (protocol, metric), value in expected.items() if metric.endswith("text")}
    assert (text.pop("winoground"), text.pop("winoground/No-Tag"), {*text.values()}) == (0.43, 1, {0})


FOLDERS = {"sugarcrepe": "sugar_crepe", "sugarcrepe-pp": "sugarcrepe_pp"}


@cache
def answers(reader: str, shared_data: Path) -> tuple[Corpus, list[dict[str, Any]], Figures]:
    """The pairs of a folder's files, answers that depend on the pair, and their figures.

    A set of two right captions is one query.
    """
    folder = shared_data / FOLDERS[reader]
    corpus = table_reader(reader)(folder, categories=[path.stem for path in sorted(folder.glob("*_*.json"))])
    text_of = dict(zip(corpus.captions["id"].to_pylist(), corpus.captions["text"].to_pylist(), strict=True))
    queries = {query for protocol in protocols_of(corpus) for query in build_task(corpus, protocol).query_ids.tolist()}
    rows = [
        {"id": row["id"], "correct": len(str(text_of[row["caption_id"]])) % 3 > 0, "caption": text_of[row["caption_id"]],
         "negative_caption": text_of[row["negative_id"]], "category": row["category"]}
        for row in corpus.pairs.to_pylist() if row["id"] in queries
    ]  # fmt: skip
    return corpus, rows, figures(rows, corpus)


@pytest.mark.parametrize("reader", FOLDERS)
@pytest.mark.parametrize("name", ["an unusual name", "query", "pair_id", "index", "nummer", "text", "image"])
def test_sugarcrepe_s_and_its_successor_s_pairs(shared_data: Path, reader: str, name: str) -> None:
    """By id, by a number of the row, or by texts."""
    corpus, rows, expected = answers(reader, shared_data)
    by_id = [{name: row[name] for name in ("id", "correct")} for row in rows]
    taken = check(by_id, corpus, expected, {"id": name})
    assert taken or name not in ("an unusual name", "pair_id")  # which name every query once
    check(rows, corpus, expected, {"id": name, "caption": "a", "negative_caption": "b"})


@pytest.mark.parametrize("reader", FOLDERS)
def test_pairs_by_their_texts_alone(shared_data: Path, reader: str) -> None:
    corpus, rows, expected = answers(reader, shared_data)
    assert check([{key: cell for key, cell in row.items() if key != "id"} for row in rows], corpus, expected, {})


def test_hit_lists_have_no_order_and_other_names_are_not_theirs(coco: Corpus, lists: Lists, tmp_path: Path) -> None:
    """Positions in any order are the same list; a list of another direction or under another name is refused."""
    rng = np.random.default_rng(1)
    for protocols in lists.values():
        for protocol, hits in protocols.items():
            task = retrieval_task(coco, protocol)
            whole = outcomes_of_hits(hits, task)
            shuffled = outcomes_of_hits({k: rng.permutation(positions) for k, positions in hits.items()}, task)
            for metric in metrics_of(whole):
                assert metric.value(shuffled) == metric.value(whole)
        with pytest.raises(RequestError, match="is outside"):
            outcomes_of_hits(protocols["t2i/all"], retrieval_task(coco, "i2t/any"))
    np.save(tmp_path / "hits_of_ALBEF.npy", np.arange(3))
    with pytest.raises(RequestError, match="has no file like MODEL_ir1_rank_index"):
        read_hit_lists(tmp_path)
