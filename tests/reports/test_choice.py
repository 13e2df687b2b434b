"""The decision: a weighted mean with its interval, limits, and how far the weights can go."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from capim.reports.rows import choice
from capim.reports.rows.reading import read_report_data
from capim.reports.rows.report_data import ReportData
from capim.reports.rows.speed import bytes_per_image
from capim.reports.rows.standing import Task
from capim.reports.sections import board
from capim.store.errors import RequestError
from tests.reports.stand_in import comparison, demo, result, spec, store_of, timed


def two_corpora() -> ReportData:
    """Encoder a is 10 points better on photos, b is 20 points better on signs; intervals of 3 and of 4 points."""
    store = store_of("abc", photos=40, signs=40)
    values = {"photos": {"a": 0.6, "b": 0.5}, "signs": {"a": 0.3, "b": 0.5, "c": 0.9}}
    for name, of in values.items():
        for encoder, value in of.items():
            result(store, encoder, name, "t2i/all", "R@1", value, half=0.02)
    comparison(store, "photos", "t2i/all", "R@1", "a", "b", 0.1, 0.001, half=0.03)
    comparison(store, "signs", "t2i/all", "R@1", "a", "b", -0.2, 0.001, half=0.04)
    return read_report_data(store)


def tasks(data: ReportData) -> dict[str, Task]:
    return {task.corpus: task for task in choice.tasks_to_weigh(data)}


def test_the_mean_its_interval_and_the_share_at_which_another_encoder_is_first_by_hand() -> None:
    data = two_corpora()
    of = tasks(data)
    made = choice.choose(data, {of["photos"]: 80.0, of["signs"]: 20.0}, {})
    first, second = made.order
    assert (first.encoder, first.state, second.encoder) == ("a", "first", "b")
    assert [first.value, second.value, second.difference] == pytest.approx([54, 50, -4])
    half = math.hypot(0.8 * 3, 0.2 * 4)  # two corpora are independent
    assert [second.low, second.high] == pytest.approx([-4 - half, -4 + half])
    assert second.state == "worse"
    assert made.out == {"c": "not evaluated on photos, text to image"}
    assert [*made.same[of["photos"]]] == pytest.approx([2 / 3, 1.0])  # 10 w = 20 (1 - w)
    assert [*made.same[of["signs"]]] == pytest.approx([0.0, 1 / 3])


def test_a_weight_next_to_a_far_larger_one_leaves_the_shares_at_which_another_is_first() -> None:
    data = two_corpora()
    of = tasks(data)
    made = choice.choose(data, {of["photos"]: 1e17, of["signs"]: 1.0}, {})
    assert [*made.same[of["photos"]]] == pytest.approx([2 / 3, 1.0])


def test_tasks_of_one_corpus_count_as_wholly_dependent() -> None:
    store = store_of("ab", photos=40)
    for protocol in ("t2i/all", "i2t/any"):
        for encoder, value in (("a", 0.6), ("b", 0.5)):
            result(store, encoder, "photos", protocol, "R@1", value, half=0.02)
        comparison(store, "photos", protocol, "R@1", "a", "b", 0.1, 0.001, half=0.03)
    data = read_report_data(store)
    second = choice.choose(data, choice.weights_of(data, ["photos=1"]), {}).order[1]
    assert [second.low, second.high] == pytest.approx([-13, -7])


def test_corpora_that_share_photographs_are_correlated_by_the_share_of_these() -> None:
    data = two_corpora()
    of = tasks(data)
    said = [
        {"corpus": name, "shared": {other: 7}, "copies": copies, "photographs": 40}
        for name, other, copies in (("photos", "signs", ["again"]), ("signs", "photos", []))
    ]
    shared = replace(data, rankings=(cast(Any, SimpleNamespace(corpora=json.dumps(said))),))
    assert choice.shared(data) == {}
    assert choice.shared(shared)["photos"] == {"photos": 1.0, "again": 1.0, "signs": 7 / 40}
    second = choice.choose(shared, {of["photos"]: 80.0, of["signs"]: 20.0}, {}).order[1]
    half = math.sqrt((0.8 * 3) ** 2 + (0.2 * 4) ** 2 + 2 * 7 / 40 * 0.8 * 3 * 0.2 * 4)
    assert [second.low, second.high] == pytest.approx([-4 - half, -4 + half])
    script: Any = board.board(shared).script
    assert script["shared"] == choice.shared(shared)


def test_a_task_without_a_test_of_the_two_gives_no_interval() -> None:
    data = two_corpora()
    made = choice.choose(data, {tasks(data)["signs"]: 1.0}, {})
    assert [(each.encoder, each.state) for each in made.order] == [
        ("c", "first"),
        ("b", "not tested"),
        ("a", "not tested"),
    ]


def test_a_difference_without_an_interval_for_all_pairs_is_no_claim_however_large_it_is() -> None:
    store = store_of("ab", photos=40)
    for encoder, value in (("a", 0.6), ("b", 0.2)):
        result(store, encoder, "photos", "t2i/all", "R@1", value, half=0.02)
    comparison(store, "photos", "t2i/all", "R@1", "a", "b", 0.4, None)
    [row] = store.tables["comparisons"]
    row.update(dict.fromkeys(f"{of}_{end}" for of in ("ci", "simultaneous", "shared") for end in ("low", "high")))
    data = read_report_data(store)
    second = choice.overall(data).order[1]
    assert (second.state, second.low, second.high) == ("not tested", None, None)
    made = board.board(data)
    assert made.sure[0].endswith("60.0; nothing was tested (no interval holds for all pairs).")
    assert made.script["pairs"] == [{}]


@pytest.mark.parametrize(
    ("texts", "fault"),
    [
        (["photo=1"], "did you mean 'photos'"),
        (["photos"], "expected a name and a number"),
        (["photos=-1"], "expected a name and a number"),
        (["photos=0"], "expected at least one above 0"),
        (["photos=1", "photos=2"], "photos is given twice, 1 and 2: leave one of them"),
    ],
)
def test_wrong_weights_name_what_was_expected(texts: list[str], fault: str) -> None:
    with pytest.raises(RequestError, match=fault):
        choice.weights_of(two_corpora(), texts)


def test_an_unknown_cost_is_refused_and_an_encoder_beyond_a_limit_is_out() -> None:
    data = two_corpora()
    with pytest.raises(RequestError, match="limits"):
        choice.bounds_of(data, ["bytes=10"])  # nothing is known of any size here
    limit = choice.Limit(key="rate", name="speed", heading="/s", values={"a": 9.0}, texts={"a": "9"}, at_least=True)
    assert limit.broken("a", 8) == ""
    assert limit.broken("a", 10) == "speed: 9"
    assert limit.broken("b", 10) == "speed not known"


def test_a_limit_of_cost_takes_the_values_that_the_columns_show_whatever_corpora_are_chosen() -> None:
    whole = timed(read_report_data(demo()), {"tiny-clip": [100, 200, 400], "tiny-colpali": [30]})
    chosen = replace(whole, results=tuple(row for row in whole.results if row.corpus == "shapes-winoground"))
    with pytest.raises(RequestError, match="dim is given twice, as 10 and 20: leave one of them"):
        choice.bounds_of(whole, ["dim=10", "dim=20"])
    limits = {limit.key: limit for limit in choice.limits(whole)}
    assert limits["rate"].values == pytest.approx({"tiny-clip": 200, "tiny-colpali": 30})
    facts = board._facts(chosen)
    for key, heading in (("rate", "images/s"), ("bytes", "per image"), ("dim", "dim")):
        shown = {name: float(fact.sort) for name, fact in facts[heading].items() if fact.sort}
        assert shown == pytest.approx(limits[key].values)


def test_the_bytes_of_an_image_are_those_of_its_vectors_and_not_of_files() -> None:
    data = read_report_data(demo())
    vectors = {("tiny-colpali", "shapes"): 10, ("tiny-colpali", "shapes-winoground"): 4}
    widths = {"tiny-clip": "float32"}
    sets = [
        replace(
            each,
            n_bytes=10**6,
            n_vectors=each.n_rows * vectors.get((each.key.encoder, each.key.corpus), 1),
            storage=widths.get(each.key.encoder, "float16"),
        )
        for each in data.sets
    ]
    found = bytes_per_image(replace(data, sets=tuple(sets)))
    assert found == {"tiny-clip": 64 * 4, "tiny-clip-plain": 64 * 2, "tiny-colpali": (40 * 10 + 20 * 4) / 60 * 64 * 2}


def test_a_limit_of_licence_leaves_out_what_is_not_free_or_not_known_and_says_which() -> None:
    data = two_corpora()
    licences = {"a": "CC-BY-NC-4.0", "b": "gemma", "c": "not specified"}
    data = replace(data, specs={name: spec(name, licence=text) for name, text in licences.items()})
    task = {tasks(data)["signs"]: 1.0}
    free = choice.choose(data, task, choice.bounds_of(data, ["licence=free"]))
    assert free.out == {"a": "licence: CC-BY-NC-4.0", "b": "licence: gemma", "c": "licence not known"}
    used = choice.choose(data, task, choice.bounds_of(data, ["licence=commercial-use"]))
    assert [each.encoder for each in used.order] == ["b"]
    with pytest.raises(RequestError, match="commercial-use, free"):
        choice.bounds_of(data, ["licence=open"])


def test_an_encoder_that_was_trained_on_a_corpus_with_a_weight_is_out_if_only_unseen_ones_are_asked_for() -> None:
    data = two_corpora()
    data = replace(data, specs={**data.specs, "a": replace(data.specs["a"], facts={"trained_on": "other, photos"})})
    of, bounds = tasks(data), choice.bounds_of(data, ["unseen"])
    assert choice.choose(data, {of["photos"]: 1.0}, bounds).out["a"] == "trained on photos"
    assert "a" not in choice.choose(data, {of["signs"]: 1.0}, bounds).out
    with pytest.raises(RequestError, match="did you mean 'unseen'"):
        choice.bounds_of(data, ["unsen=1"])
