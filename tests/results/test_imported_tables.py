"""Tables of answers and ranks: every example of docs/outcomes.md, contradicting answers, and what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from capim.store.errors import RequestError
from capim.store.forms import FORMS, OUTCOMES
from capim.store.row_types import columns_of
from capim.store.schema import OfStates, Outcome
from capim.store.sets.importing import imported_encoder
from capim.store.types import OF_OUTCOMES, Corpus
from capim.tasks.corpora.build import CaptionRow, ImageRow, PairRow, QuadrupleRow, build_corpus
from capim.tasks.metrics import METRICS, metrics_of
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.results.imported.sources import Source, outcomes_of_source
from capim.tasks.results.imported.tables import named_rows, outcomes_of_rows
from tests.results.thirty import N_IMAGES, thirty_images

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "outcomes.md").read_text(encoding="utf-8")
SUFFIXES = {"csv": ".csv", "jsonl": ".jsonl", "json": ".json", "trec": ".trec"}
EXAMPLES = re.findall(rf"```({'|'.join(SUFFIXES)})\n(.*?)```", PAGE, re.DOTALL)


# The corpus of the page's examples: four images with a caption each, two pairs and two quadruples of them.
SMALL = build_corpus(
    "small",
    [ImageRow(i) for i in "abcd"],
    [CaptionRow(f"{i}-0", i, f"caption of {i}") for i in "abcd"]
    + [CaptionRow(f"{i}-n", None, f"negative of {i}") for i in "ab"],
    source=None,
    pairs=[PairRow(f"p{k}", i, f"{i}-0", f"{i}-n", "swap") for k, i in enumerate("ab")],
    quadruples=[QuadrupleRow(f"q{k}", i, j, f"{i}-0", f"{j}-0") for k, (i, j) in enumerate((("a", "b"), ("c", "d")))],
)
THIRTY = thirty_images()


SCORES = ("winoground_text", "winoground_image", "winoground_group")


def figures(found: list[Outcomes]) -> dict[str, dict[str, float]]:
    return {o.protocol.id: {m.name: round(m.value(o), 4) for m in metrics_of(o)} for o in found}


EXPECTED: list[dict[str, dict[str, float]]] = [
    {"t2i/all": {"R@1": 0.5, "R@5": 1, "R@10": 1, "MRR": 0.7083, "median_rank": 1.5, "mean_rank": 1.75}},
    {"t2i/all": {"R@1": 0.5, "R@5": 1, "R@10": 1}},
    {"i2t/any": {"R@1": 0.5, "R@5": 1, "R@10": 1}},
    {"pairs/swap": {"pair_accuracy": 0.5}},
    {"winoground": {"winoground_text": 1, "winoground_image": 0.5, "winoground_group": 0.5}},
    {"winoground": {"winoground_text": 1, "winoground_image": 0.5, "winoground_group": 0.5}},
    {"t2i/all": {"R@1": 0.75, "R@5": 1, "R@10": 1}},
]


@pytest.mark.parametrize(("example", "expected"), zip(EXAMPLES, EXPECTED, strict=True), ids=range(len(EXPECTED)))
def test_every_example_of_the_page_gives_its_figures(
    example: tuple[str, str], expected: dict[str, dict[str, float]], tmp_path: Path
) -> None:
    form, text = example
    path = tmp_path / f"example{SUFFIXES[form]}"
    path.write_text(text)
    found = outcomes_of_source(Source("run" if form == "trec" else "outcomes", str(path), "theirs"), SMALL)
    assert figures(found["theirs"].outcomes) == expected
    states = OfStates(encoder="x", encoder_fingerprint="x", corpus="x", corpus_fingerprint="x")
    for outcomes in found["theirs"].outcomes:  # and they are rows of the store
        rows = outcomes.to_arrow("x", states)
        rows.validate(full=True)
        assert rows.schema.equals(columns_of(Outcome))
        assert figures([Outcomes.from_arrow(rows, outcomes.protocol)]) == expected


SCHEMA = json.loads((DOCS / "outcomes.schema.json").read_text())


def test_the_schema_beside_the_page_has_the_columns_of_the_code() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["items"]["properties"].keys() == {*chain(FORMS["outcomes"].roles, *OUTCOMES.values())}
    assert [tuple(kind["required"]) for kind in SCHEMA["items"]["anyOf"]] == [*dict.fromkeys(OUTCOMES.values())]


def test_the_page_explains_every_column_as_the_schema_does() -> None:
    for name, column in SCHEMA["items"]["properties"].items():
        assert f"| `{name}` | {column['description']} |" in PAGE


def test_the_schema_takes_the_examples_and_no_row_without_an_outcome() -> None:
    validator = jsonschema.Draft202012Validator(SCHEMA)
    examples = [json.loads(text) for form, text in EXAMPLES if form == "json"]
    examples += [[json.loads(line) for line in text.splitlines()] for form, text in EXAMPLES if form == "jsonl"]
    assert len(examples) == 2
    for rows in examples:
        validator.validate(rows)
    for wrong in ([{"query": "a"}], [{"query": "a", "rank": 0}], [{"query": "p0", "correct": "maybe"}], []):
        assert list(validator.iter_errors(wrong)), wrong


def test_winogrounds_scores_are_the_answers_that_they_give_and_a_tie_is_none() -> None:
    scores = {"c0_i0": 0.5, "c0_i1": 0.4, "c1_i0": 0.2, "c1_i1": 0.4}
    wide = named_rows([{"id": query, **scores} for query in ("q0", "q1")])
    with pytest.raises(RequestError, match="'q0_c0_i0' has two scores, 1 and 2; keep one"):
        named_rows([{"label": "q0_c0_i0", "score": score} for score in (1, 2)])
    cells = named_rows([{"label": f"{q}_{cell}", "score": s} for q in ("q0", "q1") for cell, s in scores.items()])
    assert [[row[half] for half in OUTCOMES["halves"]] for row in wide] == 2 * [[True, False, True, True]]
    assert cells == wide
    [outcomes] = outcomes_of_rows(wide, SMALL).outcomes
    assert [METRICS[name].value(outcomes) for name in SCORES] == [0, 1, 0]


@pytest.mark.parametrize(("one", "other"), [("gt_rank", "rank"), ("Rank", "rank"), ("hit", "correct")])
def test_two_columns_with_one_meaning_are_refused_where_they_differ(one: str, other: str) -> None:
    """The last of them was read."""
    assert named_rows([{"query": "q0", one: 1, other: 1}])[0][other] == 1
    with pytest.raises(RequestError, match=f"row a.csv:1: columns {one}, {other} mean {other} and differ; keep one"):
        named_rows([{"query": "q0", one: 1, other: 0}], "a.csv")


def test_answers_that_no_scores_could_give_are_kept() -> None:
    """Right caption for both images, wrong image for both captions: c0i0 > c1i0 >= c1i1 > c0i1 >= c0i0."""
    contradicting: dict[str, Any] = {"text_0": 1, "text_1": 1, "image_0": 0, "image_1": 0}
    answers = [{"query": "q0", **contradicting}, {"query": "q1", **dict.fromkeys(contradicting, 1)}]
    [outcomes] = outcomes_of_rows(named_rows(answers), SMALL).outcomes
    assert [METRICS[name].value(outcomes) for name in SCORES] == [1, 0.5, 0.5]
    assert outcomes.rank_worst.tolist() == [3, 1]  # comparisons lost
    assert outcomes.scores is None


# --- which query a row is about ------------------------------------------------------------------------------------
RANKS: dict[str, dict[str, int]] = {
    "t2i/all": {"a-0": 1, "b-0": 3, "c-0": 2, "d-0": 4},
    "i2t/any": {"a": 1, "b": 3, "c": 2, "d": 4},
}


def told(rows: Iterable[dict[str, Any]], *protocols: str, corpus: Corpus = SMALL) -> tuple[dict[str, list[int]], Any]:
    """The ranks or lost comparisons of every protocol, and how the rows were matched."""
    found = outcomes_of_rows(named_rows(rows), corpus, protocols=protocols)
    return {outcomes.protocol.id: outcomes.rank_worst.tolist() for outcomes in found.outcomes}, [*found.how]


@pytest.mark.parametrize(
    "column", ["query", "query_id", "query-id", "id", "ID", "_id", "qid", "caption_id", "index", ""]
)
def test_ranks_in_any_order_are_those_of_their_ids_whatever_the_column_is_called(column: str) -> None:
    rows = [{column: query, "rank": rank} for query, rank in RANKS["t2i/all"].items()]
    name = {"ID": "id", "query-id": "query_id", "": "index"}.get(column, column)
    expected = {"t2i/all": [1, 3, 2, 4]}, [f"t2i/all: 4 of 4 rows matched by `{name}`"]
    assert told(rows) == told(rows[::-1]) == expected
    rows = [{"query": query, "rank": rank} for query, rank in RANKS["i2t/any"].items()]
    assert told(rows, "i2t/any@image-as-query")[0] == {"i2t/any@image-as-query": [1, 3, 2, 4]}


def test_of_two_columns_of_ids_that_of_the_kind_of_the_query_counts() -> None:
    rows = [{"image_id": f"{i}", "caption_id": f"{i}-0"} for i in "abcd"]
    for protocol, column in (("t2i/all", "caption_id"), ("i2t/any", "image_id")):
        ranked = [{**row, "rank": RANKS[protocol][row[column]]} for row in rows][::-1]
        how = [f"{protocol}: 4 of 4 rows matched by `{column}`"]
        assert told(ranked, protocol) == ({protocol: [1, 3, 2, 4]}, how)
    with pytest.raises(RequestError, match="cells of `caption_id`, `image_id` are ids of captions and of images, fi"):
        told(ranked)


def test_captions_may_be_named_by_their_image_where_it_has_only_one() -> None:
    rows = [{"image_id": query, "rank": rank} for query, rank in RANKS["i2t/any"].items()][::-1]
    how = ["t2i/all: 4 of 4 rows matched by `image_id`, images of the queries"]
    assert told(rows, "t2i/all") == ({"t2i/all": [1, 3, 2, 4]}, how)
    rows = [{"caption_id": query, "rank": rank} for query, rank in RANKS["t2i/all"].items()][::-1]
    assert told(rows, "i2t/any")[0] == {"i2t/any": [1, 3, 2, 4]}


def test_images_of_several_captions_only_confirm_the_order_of_the_corpus() -> None:
    rows = [{"image_id": f"i{i}", "rank": 1 + i} for i in range(N_IMAGES) for _ in range(2)]
    ranks, how = told(rows, "t2i/all", corpus=THIRTY)
    assert ranks == {"t2i/all": [1 + i for i in range(N_IMAGES) for _ in range(2)]}
    assert how == ["t2i/all: 60 rows taken in the corpus' order, with which `image_id` agrees"]
    with pytest.raises(
        RequestError, match="`image_id` holds ids of images, and 'i29' in row 1 is an id of 2 of the qu"
    ):
        told(rows[::-1], "t2i/all", corpus=THIRTY)


@pytest.mark.parametrize("name", ["id", "query", "Example ID", "nummer", "row_of_the_paper", "score_of_it", "index"])
@pytest.mark.parametrize("form", ["pairs", "scores", "halves", "hits"])
def test_every_form_takes_ids_from_a_usual_column_and_from_another_all_or_none(form: str, name: str) -> None:
    given: dict[str, list[dict[str, Any]]] = {
        "pairs": [{"id": f"p{i}", "correct": i < 4} for i in range(10)],
        "scores": [{"id": f"q{i}", "text": i < 2, "image": i < 1} for i in range(5)],
        "halves": [{"id": f"q{i}", **dict.fromkeys(OUTCOMES["halves"], i < 2)} for i in range(5)],
        "hits": [{"id": f"i{i}", "correct": i < 7, "k": k} for k in (1, 5) for i in range(N_IMAGES)],
    }
    rows = given[form]
    in_order, renamed = (
        [{own: row["id"], **{each: cell for each, cell in row.items() if each != "id"}} for row in rows]
        for own in ("query", name)
    )
    try:
        ranks, [how] = told(renamed[::-1], corpus=THIRTY)
    except RequestError:
        assert name not in ("id", "query")
        return
    assert ranks == told(in_order, corpus=THIRTY)[0]
    assert name != "id" or how.endswith("rows matched by `id`")


def numbered(ids: list[str]) -> Corpus:
    captions = [CaptionRow(f"c{i}", i, "x") for i in ids]
    return build_corpus("numbers", [ImageRow(i) for i in ids], captions, source=None)


@pytest.mark.parametrize(
    "cells", [["7", "8", "10"], [7, 8, 10], [7.0, 8.0, 10.0], ["007", "008", "010"], [" 7", "8 ", "10"]]
)
@pytest.mark.parametrize("ids", [["7", "8", "10"], ["007", "008", "010"]])
def test_a_number_is_the_same_id_however_it_is_written(cells: list[Any], ids: list[str]) -> None:
    rows = [{"id": cell, "rank": rank} for cell, rank in zip(cells, (1, 2, 3), strict=True)]
    assert told(rows[::-1], corpus=numbered(ids))[0] == {"i2t/any": [1, 2, 3]}


def test_numbers_that_the_corpus_tells_apart_are_not_the_same_id() -> None:
    apart = numbered(["7", "007"])
    assert told([{"id": "007", "rank": 2}, {"id": "7", "rank": 1}], corpus=apart)[0] == {"i2t/any": [1, 2]}
    with pytest.raises(RequestError, match=r"`id`: 1 of 2 ids are not among the 2 queries, first 7.0 in row 1"):
        told([{"id": 7.0, "rank": 2}, {"id": "7", "rank": 1}], corpus=apart)


def test_rows_without_ids_are_in_the_order_of_the_corpus_and_you_are_told() -> None:
    answers = [{"correct": i < 4} for i in range(10)]
    assert told(answers, corpus=THIRTY)[1] == ["10 rows taken in the corpus' order; no column of ids"]
    counted = [{"": i, **row} for i, row in enumerate(answers)]
    ranks, [how] = told(counted, corpus=THIRTY)
    assert ranks["pairs/micro"] == [1] * 4 + [2] * 6
    assert how == "10 rows taken in the corpus' order; `index` holds no ids of the pairs, first 0"
    with pytest.raises(RequestError, match="`index` counts the rows in another order, and holds no ids of the pairs"):
        told(counted[::-1], corpus=THIRTY)


def test_texts_count_before_a_number_of_the_row_that_contradicts_them() -> None:
    rows = [
        {"id": f"p{1 - k}", "correct": k, "caption": f"caption of {i}", "negative_caption": f"negative of {i}"}
        for k, i in enumerate("ab")
    ]
    assert told(rows) == ({"pairs/swap": [2, 1]}, ["2 of 2 rows matched by their texts"])


# --- what is refused ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("rows", "protocols", "message"),
    [
        ([{"query": "a-0"}], [], r"1 of 1 rows say no outcome, first row 1 \(it has query\); expected one of: rank; "),
        ([{"query": "a-0", "rank": 1}], [], r"3 of 4 queries have no row, first 'b-0'"),
        (
            [{"id": q, "rank": 1} for q in ("a-0", "b-0", "c-O", "d-0")],
            [],
            r"`id`: 1 of 4 ids are not among the 4 queries, first 'c-O' in row 3; ids look like 'a-0'",
        ),
        ([{"query": "z", "rank": 1}], [], r"the queries are ids of neither captions nor images, first 'z'; name the"),
        ([{"rank": 1}] * 4, [], r"the rows have no column `query`; name the protocol with --protocol"),
        ([{"rank": 1}] * 3, ["t2i/all"], r"3 rows without ids for 4 queries: give their ids in a column or array `q"),
        ([{"rank": 5}] * 4, ["t2i/all"], r"4 queries have impossible ranks, first 'a-0': expected a rank from 1"),
        ([{"rank": "first"}] * 4, ["t2i/all"], r"rank: expected a whole number from 1, got 'first' in row 1"),
        ([{"rank": 1.5}] * 4, ["t2i/all"], r"rank: expected a whole number from 1, got 1.5 in row 1"),
        ([{"rank_best": 3, "rank_worst": 2}] * 4, ["t2i/all"], r"4 queries have impossible ranks, .* got 3 to 2"),
        ([{"rank": 1}] * 4, ["t2i/none"], r"protocol 't2i/none' is unknown"),
        ([{"rank": 1}] * 4, ["winoground"], r"rank: only of retrieval protocols, winoground is of quadruples"),
        ([{"rank": 1}] * 4, ["?2?/a*"], r"it means \d protocols, .*; name one"),
        ([{"query": "p0", "correct": "maybe"}, {"query": "p1", "correct": 1}], [], r"correct: expected true, false"),
        ([{"query": "p0", "correct": 1}], [], r"pairs/swap: 1 of 2 pairs have no row, first 'p1'"),
        ([{"query": "p0", "correct": 1}], ["pairs/swap"], r"1 of 2 pairs have no row, first 'p1'"),
        ([{"query": "p0", "correct": 1}, {"correct": 0}], [], r"1 of 2 rows have no `query`, first row 2"),
        ([{"id": q, "correct": 1} for q in ("p1", "p0", "p1")], [], r"more than one row, first 'p1' in rows 1 and 3"),
        ([{"image_id": i, "rank": 1} for i in "dz"], ["t2i/all"], r"not among the images of the queries"),
        ([{"id": q, "rank": 1} for q in "wxyz"], [], r"the cells of `id` are ids of neither captions nor images"),
        (
            [{"query": q, "text": 1, "image": 1, "group": 0} for q in ("q0", "q1")],
            [],
            r"2 rows contradict themselves, first row 1: group is 0, but text 1, image 1",
        ),
        (
            [{"query": "p0", "correct": 1, "caption": "caption of b", "negative_caption": "x"},
             {"query": "p1", "correct": 1, "caption": "caption of b", "negative_caption": "negative of b"}],
            [],
            r"row 1: 'p0' has the texts \('caption of a', 'negative of a'\) in the corpus, got \('caption of b', 'x'\)",
        ),
        (
            [{"correct": 1, "caption": "other", "negative_caption": "another"}] * 2,
            [],
            r"none of the 2 rows has the texts of one of the 2 pairs",
        ),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_meant_is_explained(
    rows: list[dict[str, Any]], protocols: list[str], message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        told(rows, *protocols)


def test_answers_about_pairs_need_a_corpus_of_pairs() -> None:
    with pytest.raises(RequestError, match=r"the rows judge pairs \(columns correct\), corpus 'numbers' has none"):
        told([{"query": "p0", "correct": 1}], corpus=numbered(["7"]))


def test_all_faults_of_a_table_are_named_together() -> None:
    rows: list[dict[str, Any]] = [{"query": "p0", "correct": "maybe"}, {"query": "p9", "correct": 1}]
    with pytest.raises(RequestError) as caught:
        told(rows)
    assert len(caught.value.faults) == 2


def test_an_encoder_of_outcomes_is_what_the_user_says() -> None:
    first = imported_encoder("gpt-4v", OF_OUTCOMES, dim=1, revision="2023-11")
    assert (first.adapter, first.revision, first.options) == ("outcomes", "2023-11", {})
    assert imported_encoder("gpt-4v", OF_OUTCOMES, dim=1, namesakes=[first]) == first  # it need not be repeated
    second = imported_encoder("gpt-4v", OF_OUTCOMES, dim=1, revision="2024-05", namesakes=[first])
    assert imported_encoder("gpt-4v", OF_OUTCOMES, dim=1, namesakes=[first, second]) == second
    assert imported_encoder("gpt-4v", OF_OUTCOMES, dim=1, revision="2023-11", namesakes=[first, second]) == first
    assert imported_encoder("gpt-4v", OF_OUTCOMES, dim=1).revision == "unversioned"
    for name, message in (("a b", "expected 1 to 120 ASCII letters"), ("0011223344556677", "looks like a fingerprint")):
        with pytest.raises(RequestError, match=message):
            imported_encoder(name, OF_OUTCOMES, dim=1)
