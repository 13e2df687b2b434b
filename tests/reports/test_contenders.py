"""One rule of chance in all that names a winner: an encoder at chance is no contender, a task of such ones no task."""

from __future__ import annotations

import re

import pytest

from capim.reports.elements.page import CONTENDERS, Board, Chart, Table
from capim.reports.exports import paper
from capim.reports.exports.latex import column_table
from capim.reports.rows import choice, standing
from capim.reports.rows.reading import read_report_data
from capim.reports.rows.report_data import ReportData
from capim.reports.sections import board, leaderboard, slices, speed, tests
from tests.reports.stand_in import block, texts, with_a_broken_encoder
from tests.reports.test_board import tied_on_one_direction


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
    for corpus, _, table in block(leaderboard.section(data), "figures").views:
        for line in table.rows:
            assert not any(cell.mark == "best" for cell in line) or (corpus != "binding" and line[0].text != "broken")
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
