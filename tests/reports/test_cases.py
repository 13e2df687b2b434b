"""Cases of the gallery: every direction, the turns of the corpora, the bounds, and the marks of ambiguous misses."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from capim.reports.elements import pictures
from capim.reports.elements.page import Case, Gallery
from capim.reports.elements.pictures import data_uris, draw_map, patch_map
from capim.reports.render import _tile, _view, render_html
from capim.reports.rows import gallery
from capim.reports.rows.gallery import (
    COLUMNS,
    MOST_CASES,
    GalleryTask,
    relevant_documents,
    select_queries,
    shown_protocols,
)
from capim.reports.rows.reading import read_report_data
from capim.reports.rows.report_data import ReportData
from capim.reports.sections.failures import case_of, section
from capim.reports.write import report_of
from capim.store import schema
from capim.store.types import Corpus
from capim.store.vectors import Explanation, PatchGrid
from capim.tasks.corpora.build import CaptionRow, ImageRow, RelevanceRow, build_corpus
from capim.tasks.protocols import Direction
from tests.reports.large import noisy_jpeg
from tests.reports.stand_in import StandIn, block, corpus, result, spec


def table(low: list[int], high: list[int] | None = None, protocol: str = "t2i/all", **columns: Any) -> pa.Table:
    n = len(low)
    rows: dict[str, Any] = {
        "protocol": [protocol] * n,
        "query_id": [f"q{i}" for i in range(n)],
        "query_ord": range(n),
        "cluster": range(n),
        "rank_best": low,
        "rank_worst": high or low,
        "top_ords": [[1, 0, 2, 3, 4, 5]] * n,
        "top_scores": [[0.5, 0.4, 0.3, 0.2, 0.1, 0.0]] * n,
        **dict.fromkeys(("relevant_rank_best", "relevant_rank_worst", "scores", "n_ranked"), [None] * n),
        **columns,
    }
    types = schema.TABLES["outcomes"].columns
    return pa.table({name: pa.array(rows[name], types.field(name).type) for name in COLUMNS})


def task(name: str = "c", direction: Direction = "t2i", **outcomes: pa.Table) -> GalleryTask:
    return GalleryTask(corpus=name, direction=direction, outcomes=outcomes, examples={})


def first_case(contents: Corpus, of: GalleryTask, slices: tuple[Any, ...] = ()) -> Case:
    """The first query that is chosen, as the gallery shows it."""
    chosen, _ = select_queries([of])
    data = ReportData(
        uri="", results=(), comparisons=(), slices=slices, batches=(), runs=(), sets=(), specs={"a": spec("a")},
        corpora={contents.name: contents}, queries=tuple(chosen),
    )  # fmt: skip
    return case_of(data, chosen[0], 1)


def test_cases_are_chosen_by_kind_with_the_hardest_first() -> None:
    #        missed by all  only a misses  only a finds  tied  found by both
    a = table([9, 50, 4, 1, 1, 1], [9, 50, 4, 1, 2, 1])
    b = table([7, 60, 1, 3, 1, 1])
    cases, _ = select_queries([task(a=a, b=b)])
    assert [(case.query_id, case.kind) for case in cases] == [
        ("q0", "missed by all"),
        ("q1", "missed by all"),
        ("q2", "missed by only one"),
        ("q3", "found by only one"),
        ("q4", "decided by a tie"),
    ]
    assert [answer.rank_best for answer in cases[1].lists] == [50, 60]
    hubs, _ = select_queries([replace(task(a=table([1, 1])), examples={"hub": ["q1"]})])
    assert [(case.query_id, case.kind) for case in hubs] == [("q1", "hub")], "examples of the failure analysis join"


def test_encoders_evaluated_on_different_queries_are_left_out() -> None:
    cases, _ = select_queries([task(a=table([5, 5]), b=table([5]))])
    assert {answer.encoder for case in cases for answer in case.lists} == {"a"}


def test_corpora_and_directions_contribute_in_turn() -> None:
    many = [2] * (2 * MOST_CASES)
    chosen, totals = select_queries([task("large", a=table(many)), task("small", a=table([3] * 7), b=table([1] * 7))])
    assert len(chosen) == MOST_CASES
    assert sum(query.corpus == "small" for query in chosen) == 7
    assert vars(totals[1]) == {
        "corpus": "small", "direction": "t2i", "queries": 7, "missed": {"a": 7, "b": 0}, "found": {"a": 0, "b": 7},
        "both": {"a": {"b": 7}, "b": {"a": 0}},
    }  # fmt: skip


def test_languages_take_turns_and_each_has_its_own_query_of_an_image(monkeypatch: pytest.MonkeyPatch) -> None:
    both = pa.concat_tables([table([9] * 40, protocol="t2i/de/human"), table([2] * 40, protocol="t2i/en/human")])
    monkeypatch.setattr(gallery, "MOST_CASES", 10)
    chosen, _ = select_queries([task(a=both)])
    assert [query.protocol for query in chosen].count("t2i/de/human") == 5


def test_lists_are_shortened_before_queries_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = []
    for n_encoders in (3, 9, 17, 33):
        encoders: dict[str, Any] = {f"e{i}": table([2] * 300) for i in range(n_encoders)}
        chosen, _ = select_queries([task(**encoders)])
        lengths = [len(ranked.top) for query in chosen for ranked in query.lists]
        assert sum(lengths) <= gallery.MOST_ITEMS
        shapes.append((len(chosen), *set(lengths)))
    assert shapes == [(200, 5), (200, 3), (100, 3), (100, 1)]
    monkeypatch.setattr(gallery, "MOST_PICTURES", 50)
    assert len(select_queries([task(**encoders)])[0]) in range(44, 51)


def test_pictures_of_a_page_are_whole_and_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many bytes for each as there are for one of 900."""
    rng = np.random.default_rng(0)
    few = data_uris({"wide": noisy_jpeg(rng)})
    assert len(few["wide"]) > 5000
    monkeypatch.setattr(pictures, "MOST_BYTES", pictures.MOST_BYTES // 30)
    many = data_uris({str(i): noisy_jpeg(rng) for i in range(30)})
    assert len(many) == 30
    assert sum(map(len, many.values())) <= pictures.MOST_BYTES


def test_quadruples_are_shown_as_such_and_every_language_once() -> None:
    def shown(evaluated: str, part: tuple[str, str] = ("en", "human")) -> dict[Any, list[str]]:
        contents: Any = SimpleNamespace(main_part=part)
        result: Any = SimpleNamespace(encoder="a")
        return shown_protocols({id_: [result] for id_ in evaluated.split()}, contents)

    assert shown("winoground t2i/all i2t/any") == {"quadruples": ["winoground"]}
    pairs = "sugarcrepe/add_att sugarcrepe/swap_obj sugarcrepe/macro"
    assert shown(pairs) == {"pairs": ["sugarcrepe/add_att", "sugarcrepe/swap_obj"]}
    assert shown(f"{pairs} sugarcrepe/micro") == {"pairs": ["sugarcrepe/micro"]}
    both = {"t2i": ["t2i/all", "t2i/de/human"], "i2t": ["i2t/de/human", "i2t/en/human"]}
    assert shown("t2i/all t2i/first t2i/de/human t2i/en/human i2t/de/human i2t/en/human") == both


def test_the_reason_of_an_ambiguous_miss_stands_beside_the_answer() -> None:
    shares = tuple(
        SimpleNamespace(
            analysis="ambiguous", metric="share of misses", corpus="c", protocol="t2i/all", encoder=name,
            feature=cause, detail=json.dumps({"queries": ["q0"], **detail}),
        )
        for name, cause, detail in (("a", "annotation", {"sources": ["cxc, same words"]}), ("b", "agreement", {}))
    )  # fmt: skip
    case = first_case(corpus("c", n_images=6), task(a=table([2]), b=table([3]), c=table([1])), shares)
    assert [answer.note for answer in case.answers] == [
        "Ambiguous: the first is right too (by the ground truth cxc; it has a caption with the same words).",
        "Ambiguous, a suspicion: 3 of 3 encoders have the same first.",
        "",
    ]
    assert case.tags["ambiguous"] == ("another annotation", "agreement of encoders (a suspicion)")
    assert (case.tags["missed"], case.tags["found"]) == (("a", "b"), ("c",))
    assert len(case.answers[0].hits) == 5


def test_the_pages_of_a_query_are_those_judged_relevant_by_their_grades() -> None:
    grades = {"a": 1, "b": 0, "c": 2}
    judged = [RelevanceRow("judged", "t2i", "q", page, grade) for page, grade in grades.items()]
    made = build_corpus("c", map(ImageRow, grades), [CaptionRow("q", None, "x")], source=None, relevance=judged)
    assert relevant_documents(made, "judged") == {0: (2, 0)}


def test_an_image_as_query_shows_its_captions_and_the_captions_that_were_found() -> None:
    ranks: dict[str, Any] = {f"relevant_rank_{end}": [[2, 3]] for end in ("best", "worst")}
    found = table([2], protocol="i2t/any", query_id=["im00000"], top_ords=[[2, 0, 1, 3, 4, 5]], **ranks)
    asked = task(direction="i2t", a=found)
    case = first_case(corpus("c", n_images=3, per_image=2), asked)
    assert case.query == "im00000"
    assert case.relevant == ("picture 0 in words 0", "picture 0 in words 1")
    assert [(hit.label, hit.right) for hit in case.answers[0].hits][:3] == [
        ("picture 1 in words 0", False), ("picture 0 in words 0", True), ("picture 0 in words 1", True)
    ]  # fmt: skip


def test_an_image_without_a_picture_is_its_first_caption_and_its_id_on_the_wall_and_in_its_view() -> None:
    case = first_case(corpus("c", n_images=6, per_image=2), task(a=table([2])))
    assert [hit.label for hit in case.expected] == ["picture 0 in words 0 (im00000)"]
    for made in (_tile(case, "cases"), _view(case)):
        assert "<img" not in made
        assert "picture 0 in words 0 (im00000)" in made
        assert "picture 1 in words 0 (im00001)" in made


def test_a_quadruple_shows_what_each_caption_and_each_picture_chooses() -> None:
    contents = corpus("w", n_images=2, per_image=1)
    row = {"id": "q0", "image_0": "im00000", "image_1": "im00001", "caption_0": "im00000#0", "caption_1": "im00001#0",
           "tags": ["swap"]}  # fmt: skip
    contents = replace(contents, quadruples=pa.Table.from_pylist([row], schema=schema.QUADRUPLES))
    scores: dict[str, Any] = {"scores": [[0.9, 0.2, 0.95, 0.5]], "top_ords": [None], "top_scores": [None]}
    case = first_case(contents, task("w", "quadruples", a=table([3], protocol="winoground", **scores)))
    assert case.query == "picture 0 in words 0 / picture 1 in words 0"
    assert case.tags["slice"] == ("swap",)
    assert [(hit.rank or hit.label, hit.score, hit.right) for hit in case.answers[0].hits] == [
        ("caption 1", "0.900 > 0.200", True),
        ("caption 2", "0.500 < 0.950", False),
        ("picture 1: caption 2", "0.900 < 0.950", False),
        ("picture 2: caption 2", "0.500 > 0.200", True),
    ]


def test_a_pair_shows_both_captions_with_their_scores() -> None:
    contents = corpus("s", n_images=2, per_image=2)
    row = {"id": "q0", "image_id": "im00000", "caption_id": "im00000#0", "negative_id": "im00000#1", "category": "swap"}
    contents = replace(contents, pairs=pa.Table.from_pylist([row], schema=schema.PAIRS))
    scores: dict[str, Any] = {"scores": [[0.2, 0.3]], "top_ords": [None], "top_scores": [None]}
    case = first_case(contents, task("s", "pairs", a=table([2], protocol="sugarcrepe/swap", **scores)))
    assert [(hit.label, hit.score, hit.right) for hit in case.answers[0].hits] == [
        ("picture 0 in words 1", "0.300", False), ("picture 0 in words 0", "0.200", True)
    ]  # fmt: skip
    assert case.answers[0].rank == "wrong"


@pytest.mark.parametrize("size", [(640, 2), (2, 640), (1, 1)])
def test_a_map_is_drawn_on_pictures_that_are_thinner_than_their_patches(size: tuple[int, int]) -> None:
    similarities = np.eye(2, 16, dtype=np.float32)
    grids = (PatchGrid(0, 4, 4),)
    ids = {"encoder": "e", "corpus": "c", "caption_id": "1", "image_id": "a", "text": "a dog", "sha": ""}
    found = Explanation(
        **ids, tokens=("a", "dog"), shares=np.ones(2, np.float32), similarities=similarities, grids=grids
    )
    drawn = draw_map(Image.new("RGB", size), found, patch_map(found))
    assert min(drawn.size) >= 1


def test_the_first_screen_has_no_cases_where_no_query_is_missed() -> None:
    contents = corpus("c", n_images=8)
    chosen, totals = select_queries([task(a=table([1, 1], [2, 1]))])
    store = StandIn(specs={"a": spec("a")}, contents={"c": contents})
    result(store, "a", "c", "t2i/all", "R@1", 0.75)
    data = read_report_data(store, gallery=False)
    report = report_of(replace(data, queries=tuple(chosen), totals=tuple(totals)))
    made = block(report, "cases")
    assert (len(made.cases), made.first, made.lead) == (1, (), "")
    assert "Where it fails" not in render_html(report)


def test_the_first_screen_has_misses_of_the_highest_encoder_that_another_finds_and_what_was_put_first() -> None:
    contents = corpus("c", n_images=8)
    chosen, totals = select_queries([task(a=table([9, 5, 1, 1]), b=table([9, 1, 4, 1]))])
    store = StandIn(specs={name: spec(name) for name in "ab"}, contents={"c": contents})
    for name, value in (("a", 0.5), ("b", 0.4)):
        result(store, name, "c", "t2i/all", "R@1", value)
    pictures = dict.fromkeys(schema.texts(contents.images["sha"]), b"")
    data = read_report_data(store, gallery=False)
    data = replace(data, queries=tuple(chosen), totals=tuple(totals), thumbnails=pictures)
    made = next(block for block in section(data).blocks if isinstance(block, Gallery))
    assert (made.lead, made.wanted) == ("missed by a, found by b: 1 of 4 queries", {"missed": "a", "found": "b"})
    assert [case.about for case in made.cases if case.id in made.first] == ["c · t2i/all · q1"]
    wrong = [each for case in made.cases for answer in case.answers for each in answer.hits if each.caption]
    assert wrong
    assert not any(each.right for each in wrong)
    assert {each.caption for each in wrong} <= {*contents.captions["text"].to_pylist()}
