"""The first screen: the right recommendation from the tests of every corpus, and nothing at chance hidden.

One rule of chance in all that names a winner: an encoder at chance is no contender, a task of such ones no task.
"""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy

from capim.reports.elements.page import CONTENDERS, Board, Cell, Chart, Table
from capim.reports.exports import paper
from capim.reports.exports.board import exports
from capim.reports.exports.latex import column_table
from capim.reports.format import PERCENT
from capim.reports.render import board_markdown
from capim.reports.rows import choice, reading, standing
from capim.reports.rows.reading import read_report_data
from capim.reports.rows.report_data import Before, ReportData
from capim.reports.rows.standing import Task, headline_pairs, pair_rows
from capim.reports.sections import board, leaderboard, slices, speed, tests
from tests.reports.stand_in import (
    StandIn,
    block,
    comparison,
    corpus,
    demo,
    part,
    report,
    result,
    section,
    spec,
    spread,
    texts,
    timed,
    with_a_broken_encoder,
)

BOTH = "t2i/all+i2t/any"


def tied_on_one_direction(*names: str, p_equivalent: float = 0.001, tested: bool = True) -> StandIn:
    """Encoders equal on text to image; on image to text each is 20 points better than the next."""
    store = StandIn(specs={n: spec(n) for n in names}, contents={"photos": corpus("photos", n_images=40)})
    for i, name in enumerate(names):
        result(store, name, "photos", "t2i/all", "R@1", 0.6, half=0.02, chance=0.025)
        result(store, name, "photos", "i2t/any", "R@1", 0.8 - 0.2 * i, half=0.02, chance=0.025)
        result(store, name, "photos", BOTH, "RSUM", 400.0 - 50 * i, half=5)
    half = 0.009 if p_equivalent < 0.05 else 0.01  # an interval that reaches the margin is not inside it
    for i, a in enumerate(names if tested else ()):
        for j, b in enumerate(names[i + 1 :], i + 1):
            comparison(store, "photos", "t2i/all", "R@1", a, b, 0.0, 0.9, p_equivalent=p_equivalent, half=half)
            comparison(store, "photos", "i2t/any", "R@1", a, b, 0.2 * (j - i), 0.0004)
            comparison(store, "photos", BOTH, "RSUM", a, b, 50.0 * (j - i), 0.0004, half=10.0, margin=6.0)
    return store


def change(store: StandIn, table: str, where: dict[str, str], **columns: object) -> StandIn:
    """Other values in the rows of a table that have these values."""
    for row in store.tables[table]:
        if where.items() <= row.items():
            row.update(columns)
    return store


def board_of(store: StandIn) -> Board:
    return board.board(read_report_data(store))


def verdicts(store: StandIn) -> dict[tuple[str, str], tuple[str, str]]:
    """Encoder and task to how it stands, and the same in words."""
    made = board_of(store)
    return {
        (row.encoder, column.key.partition(":")[2]): (cell.kind, cell.verdict)
        for row in made.rows
        for column, cell in zip(made.columns, row.cells, strict=True)
    }


T2I, I2T = {"protocol": "t2i/all"}, {"protocol": "i2t/any"}


def test_equal_on_one_direction_and_better_on_the_other_is_better_overall_and_says_so_by_task() -> None:
    store = tied_on_one_direction("a", "b", "c")
    made = board_of(store)
    assert made.headline == "Use a"
    assert made.sure[0] == (
        "R@1, mean of text to image and image to text (photos): 70.0, 10.0 points (9.0–11.0) ahead of the runner-up, b."
    )
    [card] = made.cards
    assert (card.names, card.badge) == (("a",), "clear")
    assert verdicts(store)["b", "t2i/all"] == ("equal", "equivalent")
    assert verdicts(store)["b", "i2t/any"] == ("worse", "20.0 worse")


def test_of_open_contenders_it_says_that_none_is_shown_to_be_worse_and_how_much_worse_one_could_be() -> None:
    open_ = {"p_adjusted": 0.5, "p_equivalent": 0.6, **spread(0.01, 0.02)}
    store = change(tied_on_one_direction("a", "b", "c", "d", "e"), "comparisons", {}, **open_)
    change(store, "results", I2T, value=0.6)
    made = board_of(store)
    assert made.headline == "Use a, b, c or one of 2 more"
    assert "none is shown to be worse than a (b could be 3.0 points worse)" in made.sure[0]
    [card] = made.cards
    assert (card.badge, card.names, card.more) == ("5-way tie", ("a", "b"), 3)
    assert verdicts(store)["c", "t2i/all"] == ("open", "undecided: up to 3.0 worse")


def test_a_task_on_which_another_encoder_is_shown_to_be_better_is_named() -> None:
    worse = {"p_adjusted": 0.001, "p_equivalent": 1.0, **spread(-0.05, 0.01)}
    store = change(tied_on_one_direction("a", "b"), "comparisons", T2I, **worse)
    change(store, "results", {"encoder": "b", **T2I}, value=0.65)
    made = board_of(store)
    assert made.headline == "Use a"
    assert made.sure[1] == "b is better on photos (text to image)."


def test_nobody_above_chance_is_no_choice() -> None:
    store = change(tied_on_one_direction("a", "b"), "results", {}, chance=0.99, p_chance=0.0001)
    made = board_of(store)
    assert made.headline == "No encoder scores significantly above chance"
    assert made.cards[0].badge == "nobody"
    assert {kind for kind, _ in verdicts(store).values()} == {"chance"}
    assert [row.mean.text for row in made.rows] == ["–", "–"]
    assert dict(made.unranked) == dict.fromkeys("ab", "not shown above chance on 2 of 2 tasks")


def test_a_single_encoder_is_named_with_its_figure() -> None:
    made = board_of(tied_on_one_direction("a"))
    assert (made.headline, made.cards[0].badge) == ("Only a was evaluated", "only one")
    assert made.sure == ("R@1, mean of text to image and image to text (photos): 70.0.",)


def test_without_tests_there_is_no_recommendation() -> None:
    store = tied_on_one_direction("a", "b", tested=False)
    made = board_of(store)
    assert made.headline == "Not tested; the highest is a"
    assert made.sure[0].endswith("70.0; nothing was tested (run capim compare).")
    assert made.cards[0].badge == "not tested"
    assert verdicts(store)["b", "i2t/any"] == ("untested", "not tested")
    change(store, "results", {"corpus": "photos"}, n_clusters=1)
    assert board_of(store).sure[0].endswith("(with one image there is no test).")


def test_a_task_that_nobody_does_enters_no_mean_and_who_is_at_chance_on_all_others_is_not_ranked() -> None:
    store = change(tied_on_one_direction("a", "b"), "results", T2I, chance=0.7, p_chance=0.0001)
    change(store, "results", {"protocol": "i2t/any", "encoder": "b"}, chance=0.6, p_chance=0.9)
    made = board_of(store)
    assert made.sure == (
        "R@1, image to text (photos): 80.0. No other encoder can be ranked.",
        "photos, text to image enters no mean: no encoder that could be ranked is shown above chance there.",
    )
    assert made.unranked == (("b", "not shown above chance on 1 of 1 task: a broken model?"),)
    assert [row.encoder for row in made.rows] == ["a"]
    assert verdicts(store)["a", "t2i/all"] == ("chance", "below chance")
    assert [column.counts for column in made.columns] == [False, True]


def test_without_an_interval_nothing_is_said_of_chance() -> None:
    """One query of two was missed: "below chance"; one of one was found, and so the other encoder was not named."""
    absent = dict.fromkeys(("ci_low", "ci_high", "p_chance"))
    store = change(
        tied_on_one_direction("a", "b"), "results", {"metric": "R@1"}, value=0.0, interval_method="none", **absent
    )
    assert "chance" not in " ".join(board_of(store).lines)
    assert not any("chance" in said for said in verdicts(store).values())


def test_undecided_by_an_interval_that_ends_at_zero_is_not_up_to_zero_points_worse() -> None:
    ends = {"difference": 0.004, "shared_low": [-0.0001] * 12, "shared_high": [0.009] * 12}
    store = change(tied_on_one_direction("a", "b", p_equivalent=0.6), "comparisons", T2I, **ends)
    assert verdicts(store)["b", "t2i/all"] == ("open", "undecided: up to 0.9 worse")


def test_the_budgets_are_told_in_a_line() -> None:
    assert tests.evidence(read_report_data(tied_on_one_direction("a", "b")))[-1] == (
        "Family-wise error rate of 5% each for: better and worse, over all pairs of 3 planned results of 1 corpus; "
        "equivalent, over the pairs of each result; better than and below chance, over 4 results. Everything else is "
        "exploratory."
    )


def test_it_is_told_where_queries_are_not_independent() -> None:
    store = tied_on_one_direction("a", "b")
    for table in ("results", "comparisons"):
        change(store, table, T2I, protocol="t2i/judged", metric="nDCG@10")
    assert tests.evidence(read_report_data(store))[-1] == (
        "photos: a false better or worse is likelier than that, because queries share right items or are searched "
        "themselves, and the tests take them for independent."
    )


def test_a_claim_from_few_images_and_images_of_unequal_weight_say_so() -> None:
    store = tied_on_one_direction("a", "b")
    change(store, "comparisons", {}, n_effective=12.0)
    change(store, "results", T2I, n_effective=1.9, n_clusters=20, largest_share=0.72)
    assert verdicts(store)["b", "i2t/any"] == ("worse", "20.0 worse (few images)")
    lines = tests.evidence(read_report_data(store))
    assert "photos: one image holds 72 % of the queries: 20 images count as 1.9 of equal weight." in lines


def test_a_further_corpus_takes_its_part_of_what_is_better() -> None:
    """One p-value of .02 is a claim on one screen of one figure, and none among six."""
    store = tied_on_one_direction("a", "b")
    change(store, "comparisons", {"protocol": "i2t/any"}, p_adjusted=0.02)
    change(store, "comparisons", {"metric": "RSUM"}, p_adjusted=0.5)
    assert verdicts(store)["b", "i2t/any"] == ("open", "undecided: up to 21.0 worse")
    for table in ("results", "comparisons"):
        store.tables[table] = [row for row in store.tables[table] if row["protocol"] == "i2t/any"]
    assert verdicts(store)["b", "i2t/any"] == ("worse", "20.0 worse")


def test_an_interval_that_ends_a_hair_from_zero_is_worse_in_the_weights_of_the_page_as_on_the_board() -> None:
    store = change(tied_on_one_direction("a", "b"), "comparisons", {"protocol": "i2t/any"}, **spread(0.2, 0.1999999))
    [state, difference, low, high] = board_of(store).script["pairs"][1]["0 1"]  # type: ignore[index]
    assert (state, difference) == ("better", 20.0)
    assert high > 39.9 and 0 < low < 0.001


def test_the_strips_of_a_column_lie_on_one_labelled_scale_and_far_ones_are_numbers() -> None:
    store = tied_on_one_direction("a", "b")
    made = board_of(store)
    assert made.ticks == (("0", "−8"), ("56", "0"))
    near, far = (cell.strip for cell in made.rows[1].cells)
    assert near is not None and far is not None
    assert (near.point, float(near.low), float(near.high)) == ("56.0", 49.7, 62.3), "0.9 points of 7 pixels"
    assert (far.far, far.point) == ("−20.0", "")


@pytest.mark.parametrize("n", [2, 9, 14, 40])
def test_the_table_fits_a_screen_whatever_the_number_of_tasks(n: int) -> None:
    names, store = [f"corpus-{at:02}" for at in range(n)], tied_on_one_direction("encoder-with-a-name", "b")
    for name in names:
        store.contents[name] = corpus(name, n_images=40)
        for encoder, protocol in product(store.specs, ("t2i/all", "i2t/any")):
            result(store, encoder, name, protocol, "R@1", 0.6, half=0.02, chance=0.025)
    columns = [column for column in board_of(store).columns if column.shown]
    assert sum(board.WIDE if column.wide else board.NARROW for column in columns) <= board.SCREEN
    assert {column.corpus for column in columns} >= {*names[:10]}


def test_an_encoder_that_lacks_a_task_has_no_mean_and_is_listed_with_the_reason() -> None:
    store = tied_on_one_direction("a", "b")
    lacking = {"encoder": "b", **I2T}.items()
    store.tables["results"] = [row for row in store.tables["results"] if not lacking <= row.items()]
    made = board_of(store)
    assert made.rows[1].mean.text == "–"
    assert made.unranked == (("b", "evaluated only on photos"),)


def test_what_is_far_from_a_published_figure_stands_below_the_headline() -> None:
    store = tied_on_one_direction("a", "b")
    detail = json.dumps({"published": 0.75, "source": "model card"})
    part(store, "a", "photos", "reference", "model card", "suspect", 0.6, detail=detail)
    assert board_of(store).suspects == (
        "a on photos, text to image (t2i/all), R@1: published 75.0 (model card), here 60.0 (58.0–62.0): suspect",
    )


def test_to_take_away_are_a_csv_with_value_ends_and_verdict_in_columns_and_a_command() -> None:
    data = read_report_data(tied_on_one_direction("a", "b"))
    made = exports(data, board.board(data))
    rows = list(csv.DictReader(made["csv"].splitlines()))
    assert rows[-1] == {
        "encoder": "b", "corpus": "photos", "protocol": "i2t/any", "metric": "R@1",
        "value": "60.0", "low": "58.0", "high": "62.0", "verdict": "20.0 worse",
        "parameters": "", "licence": "", "trained_on": "", "model card": "",
    }  # fmt: skip
    assert made["command"] == "capim choose --weights photos=1"
    assert made["latex"].count("\\textbf{60.0}") == 2
    compile(made["python"], "python", "exec")


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        ([280, 300, 320], f"1.50 times as fast as tiny-clip-plain (95{PERCENT} interval 1.27–1.77, over 3 corpora)"),
        ([140, 150, 160], f"1.34 times as fast as tiny-clip (95{PERCENT} interval 1.13–1.58, over 3 corpora)"),
        ([340, 220, 220], ""),  # something else ran on the machine during the first
        ([280, 300], ""),
    ],
)
def test_one_encoder_is_faster_only_where_the_ratios_by_corpus_show_it(rates: list[float], said: str) -> None:
    data = read_report_data(_with_i2t(demo()))
    other = {"tiny-clip-plain": [200] * len(rates)}
    text = " ".join(tests.evidence(timed(data, {"tiny-clip": rates, **other})))
    assert said in text
    assert (" times as fast" in text) == bool(said)
    logs = np.log(rates) - np.log(200)
    if "1.50" in said:
        ends = np.exp(scipy.stats.t.interval(0.95, 2, logs.mean(), scipy.stats.sem(logs)))
        assert "–".join(f"{end:.2f}" for end in ends) in said


@pytest.mark.parametrize("setting", [{"device": "Example GPU"}, {"forward_precision": "bfloat16"}])
def test_speeds_of_two_devices_or_precisions_are_not_compared(setting: dict[str, str]) -> None:
    data = read_report_data(_with_i2t(demo()))
    first, second = timed(data, {"tiny-clip": [280, 300, 320]}), timed(data, {"tiny-clip-plain": [200] * 3}, **setting)
    assert " times as fast" not in " ".join(tests.evidence(replace(data, batches=first.batches + second.batches)))


def _with_i2t(store: StandIn) -> StandIn:
    tested = {"protocol": "t2i/all", "metric": "R@1"}
    change(store, "comparisons", tested, p_adjusted=0.001, p_sign_flip=0.001)
    for row in [r for r in store.tables["comparisons"] if tested.items() <= r.items()]:
        comparison(store, "shapes", "i2t/any", "R@1", row["encoder_a"], row["encoder_b"], row["difference"], 0.001)
    return store


def test_each_term_is_explained_once_below() -> None:
    made = report(_with_i2t(demo()))
    [table] = section(made, "definitions").blocks
    assert isinstance(table, Table)
    terms = [row[0].text for row in table.rows]
    assert len(terms) == len(set(terms)) > 10
    assert {"R@1", "Interval"} <= {*terms}


@pytest.mark.parametrize("share", [0.001, 0.5])
def test_languages_that_no_encoder_reads_are_in_the_sentence_and_a_mean_does_not_hide_them(share: float) -> None:
    store = tied_on_one_direction("a", "b")
    store.contents["tongues"] = corpus("tongues", n_images=40)
    shares = {"en/human": 0.5, "it/human": share, "ru/human": share, "*/*": 0.3}
    for name, direction, of in product(store.specs, ("t2i", "i2t"), shares):
        result(store, name, "tongues", f"{direction}/{of}", "R@1", shares[of], half=0.02, chance=0.025)
    hidden, notes = verdicts(store)["a", "t2i/*/*"][1], board_of(store).notes
    if share < 0.01:
        assert notes == ("Languages: no encoder scores significantly above chance in Italian or Russian.",)
        assert "2 of 3 languages not shown above chance" in hidden
    else:
        assert notes == ()
        assert "chance" not in hidden


def test_encoders_without_a_query_between_them_are_said_to_be_the_same_on_every_query() -> None:
    ends = [f"{of}_{end}" for of in ("ci", "simultaneous", "shared") for end in ("low", "high")]
    none = {"p_adjusted": None, "p_equivalent": 1.0, "wins": 0, "losses": 0, **dict.fromkeys(ends)}
    store = change(tied_on_one_direction("a", "b"), "comparisons", T2I, **none)
    assert "text to image 0.0 (the same on every query, undecided)" in tests.evidence(read_report_data(store))[0]


def test_where_no_interval_holds_for_all_pairs_none_is_printed() -> None:
    ends = [f"{of}_{end}" for of in ("simultaneous", "shared") for end in ("low", "high")]
    store = change(
        tied_on_one_direction("a", "b"), "comparisons", T2I, p_equivalent=1.0, **dict.fromkeys((*ends, "p_adjusted"))
    )
    data = read_report_data(store)
    row = data.comparison("photos", "t2i/all", "R@1", "a", "b")
    assert row is not None
    assert row.ci_low is not None
    assert "text to image 0.0 (adjusted p –, undecided)" in tests.evidence(data)[0]
    [(_, _, _, difference, *_)] = tests.pairs(data, "", [row]).rows
    assert difference.note == ""
    shown = [each for each in headline_pairs(pair_rows(data.comparisons)) if each["protocol"] == "t2i/all"]
    assert [(each["low"], each["high"]) for each in shown] == [(None, None)]


def test_a_value_of_a_corpus_that_was_trained_on_is_marked_and_the_answer_says_it() -> None:
    store = tied_on_one_direction("a", "b")
    facts: dict[str, str | int] = {"trained_on": "other, photos", "parameters": 428, "link": "https://example.org/card"}
    store.specs["a"] = replace(store.specs["a"], facts=facts, licence="MIT")
    store.specs["b"] = replace(store.specs["b"], facts={"link": "javascript:alert(1)"})
    made = board_of(store)
    assert "a was trained on photos" in made.sure[1]
    a, b = made.rows
    assert ([cell.seen for cell in a.cells], [cell.seen for cell in b.cells]) == ([True, True], [False, False])
    assert "trained on this corpus" in a.cells[0].said
    assert made.models == (("a", "https://example.org/card", "428 million parameters, MIT"),)
    assert made.facts[0] == "parameters"
    assert a.facts[0].text == "428 M"
    assert b.card != "javascript:alert(1)"
    assert "60.0** ●†" in board_markdown(made)


def test_parameters_are_shown_only_where_no_strip_goes_for_them() -> None:
    facts = {"parameters": {"a": Cell(text="428 M")}, "dim": {"a": Cell(text="512")}}
    tasks = [Task(f"corpus {at}", "t2i/all", "R@1", "text to image") for at in range(10)]
    assert [*board._fitting(facts, tasks, ["a"])[0]] == ["dim"]
    assert [*board._fitting(facts, tasks[:3], ["a"])[0]] == ["parameters", "dim"]


def test_what_changed_since_the_run_before_is_a_line_and_a_mark_at_the_value() -> None:
    data = read_report_data(tied_on_one_direction("a", "b"))
    assert board.board(data).notes == (), "no run before"
    then = {(row.corpus, row.protocol, row.metric, row.encoder): replace(row, evaluation="e") for row in data.results}
    ended = datetime(2026, 11, 28, 21, 4, tzinfo=UTC)
    same = Before(ended=ended, results=then, comparisons=())
    [told] = board.board(replace(data, before=same)).notes
    assert told == "Since the run that ended 2026-11-28 21:04 UTC: no headline result is significantly better or worse."
    lower = {key: replace(row, value=(row.value or 0.0) - 0.3) if key[3] == "a" else row for key, row in then.items()}
    del lower["photos", "t2i/all", "R@1", "a"]
    lower["photos", "t2i/all", "R@1", "b"] = replace(lower["photos", "t2i/all", "R@1", "b"], value=0.9)
    changed = replace(data, before=Before(ended=ended, results=lower, comparisons=()))
    made = board.board(changed)
    assert made.notes[0].endswith(
        "significantly worse: b on photos, text to image (−30.0); "
        "significantly better: a on photos, image to text (+30.0)."
    )
    marks = {(row.encoder, column.heading): cell.moved for row in made.rows for column, cell in zip(
        made.columns, row.cells, strict=True) if cell.moved}  # fmt: skip
    assert marks == {("a", "image → text"): "▲", ("b", "text → image"): "▼"}
    assert "▲" in board_markdown(made) and "▼" in board_markdown(made)
    assert changed.digest != data.digest


@pytest.mark.parametrize(("hours", "told"), [(2, "one"), (0.5, "zero")])
def test_runs_less_than_an_hour_apart_are_one_night(hours: float, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs 0, 1 and 2, with a day between the first two, and so many hours between the others."""
    starts = {"zero": 0.0, "one": 24.0, "two": 24.5 + hours}
    zero = datetime(2026, 11, 28, tzinfo=UTC)
    times = {name: zero + timedelta(hours=start) for name, start in starts.items()}
    ends = {name: time + timedelta(hours=0.5) for name, time in times.items()}
    rows: Any = [SimpleNamespace(run=name, created=time + timedelta(hours=0.1)) for name, time in times.items()]
    runs: Any = [
        SimpleNamespace(run=name, state="completed", started=times[name], finished=ends[name]) for name in times
    ]
    source: Any = None
    monkeypatch.setattr(reading, "results_until", lambda source, written, end: {"until": end})
    found = reading._before(source, rows[2:], rows, runs, [])
    assert found is not None
    assert found.ended == ends[told] == found.results["until"]  # type: ignore[index]
    assert reading._before(source, rows[:1], rows[:1], runs[:1], []) is None


@pytest.fixture(scope="module")
def data() -> ReportData:
    return read_report_data(with_a_broken_encoder())


@pytest.fixture(scope="module")
def made(data: ReportData) -> Board:
    return board.board(data)


def test_the_answer_names_no_encoder_at_chance_and_says_who_is_not_ranked(made: Board) -> None:
    assert made.headline == "Use good"
    assert [(card.corpus, card.names, card.badge) for card in made.cards] == [
        ("photos", ("good",), "clear"),
        ("signs", ("good", "fine"), "2-way tie"),
        ("binding", ("none above chance",), "nobody"),
    ]
    assert made.unranked == (("broken", "not shown above chance on 2 of 2 tasks: a broken model?"),)
    assert not any("broken" in line for line in made.lines[:-1])


def test_no_table_shows_an_encoder_at_chance_bold_and_no_strip_holds_it(data: ReportData, made: Board) -> None:
    assert [row.encoder for row in made.rows] == ["good", "fine"]
    for row in made.rows:
        for column, cell in zip(made.columns, row.cells, strict=True):
            assert (cell.kind == "chance") == (column.corpus == "binding")
            assert cell.kind in CONTENDERS or not cell.bold
            assert cell.strip is None or column.corpus != "binding"
    for name, _, table in block(leaderboard.section(data), "figures").views:
        for line in table.rows:
            assert not any(cell.mark == "best" for cell in line) or (name != "binding" and line[0].text != "broken")
    assert "\\textbf{21.0}" not in column_table(data)
    assert "\\textbf{60.0}" in column_table(data)


def test_no_chart_draws_an_encoder_at_chance(data: ReportData) -> None:
    charts = [each for each in (*tests.section(data).blocks, speed.quality_over_cost(data)) if isinstance(each, Chart)]
    drawn = [{*re.findall(r">(\w+)(?: [\d.]+)?</text>", chart.svg)} for chart in charts]
    assert [names & {*data.specs} for names in drawn] == [{"good", "fine"}] * 3


def test_no_slices_are_shown_of_a_task_that_nobody_does(data: ReportData) -> None:
    [table] = slices.section(data).blocks
    assert isinstance(table, Table)
    assert [row[0].text for row in table.rows] == ["words 1-7"]
    assert [column.heading for column in table.columns] == ["Slice", "good", "fine"]


def test_a_mean_leaves_out_the_task_that_nobody_does_and_ranks_nobody_at_chance_on_all_others(data: ReportData) -> None:
    weights = choice.weights_of(data, ["photos=10", "signs=10", "binding=80"])
    made = choice.choose(data, weights, {})
    assert [(each.encoder, round(each.value, 6)) for each in made.order] == [("good", 57.5), ("fine", 52.0)]
    assert made.out == {"broken": "not shown above chance on any task with a weight"}
    assert [task.corpus for task in made.uncounted] == ["binding"]
    nobody = choice.choose(data, choice.weights_of(data, ["binding=1"]), {})
    assert (nobody.order, [*nobody.out]) == ((), ["broken", "fine", "good"])


def test_a_figure_without_a_test_of_its_own_is_read_like_the_tested_ones_of_its_protocols(data: ReportData) -> None:
    assert standing.at_chance(data, "photos", "t2i/all", "R@5", "broken") == "not shown above chance"
    assert standing.at_chance(data, "photos", "t2i/all", "R@5", "good") == ""
    assert standing.at_chance(data, "photos", "t2i/all+i2t/any", "RSUM", "broken") == "not shown above chance"


def test_the_paper_draws_and_marks_the_same_contenders(data: ReportData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paper, "_pdf", str.encode)
    drawn = [text for text in ("good", "fine", "broken", "binding") if f">{text}<" in paper._forest(data).decode()]
    assert drawn == ["good", "fine"]


def test_the_pairs_of_three_encoders_are_a_grid_of_differences_with_stars() -> None:
    made, two = (tests.section(read_report_data(tied_on_one_direction(*names))) for names in ("abc", "ab"))
    first, second = (texts(each) for each in made.blocks if isinstance(each, Table))
    ties = ["0.0 ns"] * 2
    assert first == [["a", "–", *ties], ["b", ties[0], "–", ties[1]], ["c", *ties, "–"]]
    assert second == [
        ["a", "–", "+20.0 **", "+40.0 **"],
        ["b", "−20.0 **", "–", "+20.0 **"],
        ["c", "−40.0 **", "−20.0 **", "–"],
    ]
    assert not any(isinstance(each, Table) for each in two.blocks)
