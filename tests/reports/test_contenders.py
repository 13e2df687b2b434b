"""One rule of chance in all that names a winner: an encoder at chance is no contender, a task of such ones no task."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from capim.reports.elements.page import Notice, Table
from capim.reports.exports import paper
from capim.reports.exports.latex import column_table
from capim.reports.rows import choice, standing
from capim.reports.rows.reading import read_report_data
from capim.reports.rows.report_data import ReportData
from capim.reports.sections import answer, leaderboard
from tests.reports.stand_in import block, with_a_broken_encoder

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(scope="module")
def data() -> ReportData:
    return read_report_data(with_a_broken_encoder())


def test_the_answer_names_no_encoder_at_chance_and_says_who_is_not_ranked(data: ReportData) -> None:
    said = answer.answer(data)
    assert "Binding (binding): no encoder is shown to be better than chance." in said
    assert said[-1] == "Not ranked: broken, not shown above chance on any task."
    assert not any("broken" in line for line in said[:-1])
    assert "the closest" not in said[0], "the third encoder is no contender"
    assert not any("broken" in line for line in answer.evidence(data))


def test_no_table_shows_an_encoder_at_chance_bold_and_no_axis_holds_it(data: ReportData) -> None:
    board = block(answer.section(data), "answer-grid").table
    tables = [board, block(leaderboard.compositional_section(data), "winoground-binding")]
    tables += [block(leaderboard.section(data), f"leaderboard-{name}") for name in ("photos", "signs")]
    for table in tables:
        for row in table.rows:
            for column, cell in zip(table.columns, row, strict=True):
                at_chance = "binding" in (column.group + table.caption) or row[0].text == "broken"
                assert cell.mark != "best" or not at_chance, (table.caption, column.heading)
                assert not (cell.bar and at_chance)
    [bold] = {row[0].text for row in board.rows for cell in row if cell.mark == "best"}
    assert bold == "good"
    assert "\\textbf{21.0}" not in column_table(data)
    assert "\\textbf{60.0}" in column_table(data)


def test_no_chart_draws_an_encoder_at_chance(data: ReportData) -> None:
    speed = block(leaderboard.section(data), "speed-photos")
    assert {point["encoder"] for point in speed.points} == {"good", "fine"}, "the fastest is on no Pareto line"
    assert "Not drawn, because not shown above chance: broken." in speed.note


def test_where_it_breaks_names_a_broken_encoder_once_and_no_slices_of_a_task_that_nobody_does(data: ReportData) -> None:
    blocks = answer.weaknesses_section(data).blocks
    [notice] = [each for each in blocks if isinstance(each, Notice)]
    assert notice.items == (
        "every task: not shown above chance for broken",
        "binding, group score (binding): not shown above chance for every other encoder",
    )
    [slices] = [each for each in blocks if isinstance(each, Table)]
    assert [row[0].text for row in slices.rows] == ["words 1-7"]
    assert [column.heading for column in slices.columns][1] != "broken"


def test_a_mean_leaves_out_the_task_that_nobody_does_and_ranks_no_encoder_at_chance_on_all_others(
    data: ReportData,
) -> None:
    weights = choice.weights_of(data, ["photos=10", "signs=10", "binding=80"])
    made = choice.choose(data, weights, {})
    assert [(each.encoder, round(each.value, 6)) for each in made.order] == [("good", 57.5), ("fine", 52.0)]
    assert made.out == {"broken": "not shown above chance on any task with a weight"}
    assert [task.corpus for task in made.uncounted] == ["binding"]
    nobody = choice.choose(data, choice.weights_of(data, ["binding=1"]), {})
    assert (nobody.order, [*nobody.out]) == ((), ["broken", "fine", "good"])


def test_without_a_test_of_chance_nothing_is_said() -> None:
    untested = read_report_data(with_a_broken_encoder())
    data = replace(untested, results=tuple(replace(row, against_chance=None) for row in untested.results))
    assert "broken" in next(line for line in answer.answer(data) if line.startswith("Binding"))
    assert not any(line.startswith("Not ranked") for line in answer.answer(data))
    assert len(choice.choose(data, choice.weights_of(data, ["binding=1"]), {}).order) == 3


def test_a_figure_without_a_test_of_its_own_is_read_like_the_tested_ones_of_its_protocols(data: ReportData) -> None:
    assert standing.at_chance(data, "photos", "t2i/all", "R@5", "broken") == "not shown above chance"
    assert standing.at_chance(data, "photos", "t2i/all", "R@5", "good") == ""
    assert standing.at_chance(data, "photos", "t2i/all+i2t/any", "RSUM", "broken") == "not shown above chance"


def test_the_paper_draws_and_marks_the_same_contenders(data: ReportData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paper, "_pdf", lambda chart: json.dumps(chart.to_dict(validate=False)).encode())
    drawn = [text for text in ("good", "fine", "broken", "binding") if f'"{text}' in paper._forest(data).decode()]
    assert drawn == ["good", "fine"]
