"""The pieces that sections are made of, on values worked out by hand."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from datetime import timedelta
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capim.reports.elements.drawings import WIDTH, Marked, forest
from capim.reports.elements.page import Cell, Chart, Column, Evidence, Picker, Report, Section, Table
from capim.reports.rows.reading import read_report_data
from capim.reports.rows.report_data import WITHOUT, ReportData
from capim.reports.rows.speed import speeds
from capim.reports.sections import failures, leaderboard, provenance, slices, speed, tests
from capim.reports.sections.speed import pareto
from tests.reports.large import coco
from tests.reports.stand_in import StandIn, block, corpus, part, result, spec, texts, timed


@pytest.fixture
def two_models() -> StandIn:
    """Two models with slices, languages and compositional corpora."""
    return coco(n_images=8, n_models=2, n_languages=1)


def view(data: ReportData, corpus: str, label: str) -> Table:
    """The table of a corpus and of a protocol or metric among all figures."""
    picker = next(each for each in leaderboard.section(data).blocks if isinstance(each, Picker))
    return next(table for of, name, table in picker.views if (of, name) == (corpus, label))


def test_pairs_stand_beside_the_chance_of_their_own_protocol() -> None:
    store = StandIn(specs={"a": spec("a")}, contents={"s": corpus("s", n_images=4)})
    for protocol, chance in (("sugarcrepe-pp/swap_att", 1 / 3), ("negbench/hybrid", 1 / 4)):
        result(store, "a", "s", protocol, "pair_accuracy", 0.5, chance=chance)
    for protocol, value in (("winoground", 0.25), ("winoground/swap-att", 0.5)):
        result(store, "a", "s", protocol, "winoground_group", value)
    data = read_report_data(store)
    for protocol, shown in (("sugarcrepe-pp/swap_att", "33.3"), ("negbench/hybrid", "25.0")):
        assert texts(view(data, "s", data.titled("s", protocol)))[-1] == ["chance", shown]
    assert texts(view(data, "s", "group score, all protocols")) == [["a", "25.0", "50.0"]]


def test_a_drawing_escapes_names_and_holds_its_labels() -> None:
    svg = forest([Marked("<b>&", "best", 50.0, 40.0, 60.0, "50.0"), Marked("b", "worse", 9.0, 9.0, 9.0, "9.0")], "R@1")
    assert "&lt;b&gt;&amp;" in svg and "<b>" not in svg
    places = [float(x) for x in re.findall(r'(?:x1|x2|cx|x)="([-\d.]+)"', svg)]
    assert min(places) >= 0 and max(places) <= WIDTH


def test_a_tick_has_no_label_where_the_unit_stands() -> None:
    rows = [Marked("a", "best", 100.0, 99.0, 100.0, "100.0"), Marked("b", "worse", 42.0, 36.0, 49.0, "42.0")]
    assert (">100</text>" in forest(rows, "R@1"), ">100</text>" in forest(rows, "group score")) == (True, False)


def test_a_sample_is_said_not_to_be_compared_with_published_figures(two_models: StandIn) -> None:
    first, _ = two_models.specs
    for row in two_models.tables["slices"]:
        if row["analysis"] == "reference" and row["encoder"] == first:
            row |= {"level_name": "not compared", "reason": "sample of 500 of 5,000 images, not compared"}
    gate = provenance.published_section(read_report_data(two_models))
    assert (
        "coco-karpathy is a sample of 500 of 5,000 images, not compared: published results are about all" in gate.lead
    )
    assert "No published results" not in gate.lead
    assert first not in [row[0] for row in texts(block(gate, "gate-figures"))]


def test_warm_up_batches_do_not_count(demo_store: StandIn) -> None:
    rows = demo_store.tables["batches"]
    for row in rows:
        if row["warmup"]:
            row["forward_seconds"] = 1e6
    demo_store.tables["batches"] = [r for r in rows if r["warmup"] or r["encoder"] != "tiny-colpali"]
    found = {(s.encoder, s.modality): s for s in speeds(read_report_data(demo_store))}
    images = found["tiny-clip", "image"]
    assert images.n_batches == 12
    assert 400 < images.rate("forward") < 530  # 1 / (0.002 s × 0.95 … 1.1)
    assert ("tiny-colpali", "image") not in found, "it has only warm-up batches"


def test_an_encoder_has_one_speed_over_all_its_sets_whose_batches_count_once(demo_store: StandIn) -> None:
    data = timed(read_report_data(demo_store), {"tiny-clip": [100, 200, 400]})
    [found] = speeds(data)
    assert found.stages["forward"] == pytest.approx({"shapes": 100, "pages": 200, "signs": 400})  # medians
    assert found.rate("forward") == pytest.approx(200)
    [line] = texts(block(speed.section(data), "throughput-stages"))
    assert line[:3] == ["tiny-clip", "images", "9"]
    assert "200" in line


def test_quality_is_drawn_over_speed_only_where_all_were_measured_alike(demo_store: StandIn) -> None:
    data = read_report_data(demo_store)
    first = timed(data, {"tiny-clip": [200]}, device="CPU")

    def chart(device: str) -> Chart:
        second = timed(data, {"tiny-clip-plain": [150]}, device=device)
        made = speed.quality_over_cost(replace(data, batches=first.batches + second.batches))
        assert made is not None
        return made

    assert "images/s" in chart("CPU").alt
    assert {*re.findall(r"([\w-]+): [\d.]+ at", chart("CPU").alt)} == {"tiny-clip", "tiny-clip-plain"}
    assert "No other encoder is both faster and better than tiny-clip, as measured." in chart("CPU").note
    assert "per image" in chart("GPU").alt, "by size, which needs no device"


def test_only_the_newest_state_of_an_encoder_is_shown_and_the_older_is_named(demo_store: StandIn) -> None:
    old = dict(demo_store.tables["results"][0])
    old.update(encoder_fingerprint="0" * 16, value=0.99, created=old["created"].replace(year=2020))
    demo_store.tables["results"].insert(0, old)
    data = read_report_data(demo_store)
    assert data.value("shapes", "t2i/all", "R@1", "tiny-clip") == 0.62
    assert "earlier version of tiny-clip (fingerprint 0000000000000000)" in data.left_out[0]


points = st.lists(st.tuples(st.floats(0.1, 1e4), st.floats(0, 1)), min_size=1, max_size=12)


@given(points)
def test_no_point_beats_one_on_the_frontier_and_some_point_beats_every_other(places: list[tuple[float, float]]) -> None:
    on_it = pareto(places)
    assert any(on_it)
    for (x, y), kept in zip(places, on_it, strict=True):
        beaten = any(a >= x and b >= y and (a, b) != (x, y) for a, b in places)
        assert kept != beaten


def test_a_row_of_another_length_is_an_error() -> None:
    with pytest.raises(ValueError, match="row 0 has 1 cells for 2 columns"):
        Table(id="t", caption="", columns=(Column(heading="a"), Column(heading="b")), rows=((Cell(text="x"),),))


def test_anchors_are_unique() -> None:
    table = Table(id="same", caption="", columns=(Column(heading="a"),), rows=())
    section = Section(id="s", title="", lead="", blocks=(table, table))
    with pytest.raises(ValueError, match="same"):
        Report(title="", subtitle="", facts=(), sections=(section,), thumbnails={}, sources="", colophon="")


def test_results_of_hit_lists_have_no_ties_to_show_and_break_nothing(demo_store: StandIn) -> None:
    for row in demo_store.tables["results"]:
        row.update(tie_share=None, value_ties_lost=None, value_ties_won=None)
    table = view(read_report_data(demo_store), "shapes", "text to image (t2i/all)")
    assert "ties" not in {column.heading for column in table.columns}


def test_a_null_result_shows_its_reason_and_sorts_last() -> None:
    store = StandIn(specs={n: spec(n) for n in ("a", "b")}, contents={"c": corpus("c", n_images=4)})
    result(store, "a", "c", "t2i/all", "R@1", None, reason="fewer than 2 clusters")
    result(store, "b", "c", "t2i/all", "R@1", 0.4)
    data = read_report_data(store)
    assert [r.encoder for r in data.ranked("c", "t2i/all", "R@1")] == ["b", "a"]
    table = view(data, "c", "text to image (t2i/all)")
    assert [row[1].title for row in table.rows][1] == "fewer than 2 clusters"
    assert not math.isnan(np.float64(table.rows[0][1].sort))


def test_of_several_requests_one_is_shown_and_a_part_of_a_larger_one_is_called_so(demo_store: StandIn) -> None:
    compared = demo_store.tables["comparisons"]
    [pair] = [
        {**row, "run": "later", "created": row["created"] + timedelta(days=1), "p_adjusted": 0.001}
        for row in compared
        if (row["encoder_a"], row["encoder_b"], row["metric"]) == ("tiny-clip", "tiny-clip-plain", "R@1")
    ]
    compared.append(pair)

    def p_of(data: ReportData) -> float | None:
        row = data.comparison("shapes", "t2i/all", "R@1", "tiny-clip", "tiny-clip-plain")
        return None if row is None else row.p_adjusted

    everything = read_report_data(demo_store)
    assert p_of(everything) == 0.2, "the request for two takes no pair from all"
    assert everything.larger_families == ()
    two = ["tiny-clip", "tiny-clip-plain"]
    assert p_of(read_report_data(demo_store, encoders=two)) == 0.001
    compared.remove(pair)
    restricted = read_report_data(demo_store, encoders=two)
    assert p_of(restricted) == 0.2
    assert "On shapes, p-values are adjusted over the pairs of all 3 encoders" in restricted.larger_families[0]
    assert tests.evidence(restricted)[-1].endswith("; this report shows 2 of them.")


def test_r_at_1_stands_with_and_without_the_ambiguous_misses(demo_store: StandIn) -> None:
    add = partial(part, demo_store, "tiny-clip", "shapes", "ambiguous", level="")
    add(feature="all queries", value=0.62)
    for feature, value, n in (("annotation", 0.65, 190), ("either", 0.65, 190)):
        detail = json.dumps({"ambiguous": 10, "misses": 76, "queries": [], "sources": []})
        add(feature=feature, value=value, metric=WITHOUT, n_queries=n)
        add(feature=feature, value=10 / 76, metric="share of misses", n_queries=76, detail=detail)
    table = block(failures.section(read_report_data(demo_store)), "ambiguous-shapes")
    assert texts(table) == [["tiny-clip", "text to image (t2i/all)", "62.0", "65.0", "–", "65.0", "76", "10", "–"]]
    [row] = table.rows
    assert row[2].note == "60.0–64.0"
    assert row[3].title == "190 queries in 40 clusters"
    assert [cell.title for cell in (row[4], row[8])] == ["cannot be known here"] * 2


def test_slices_are_one_matrix_of_the_worst_and_name_the_largest_tested_differences(demo_store: StandIn) -> None:
    for feature, gain, p in (("spatial", -0.1, 0.01), ("counting", -0.3, 0.6)):
        for level, value in (("with", 0.5 + gain), ("without", 0.5), ("difference", gain)):
            adjusted = p if level == "difference" else None
            part(demo_store, "tiny-clip", "shapes", "complexity", feature, level, value, p_adjusted=adjusted)
    made = slices.section(read_report_data(demo_store))
    table = block(made, "slices-worst")
    assert table.rows[0][0].text == "counting"
    assert [each.shade for each in table.rows[0][1:2]] == ["2"]
    gaps, _ = [each for each in made.blocks if isinstance(each, Evidence)]  # the other names what has no slices
    assert [line.partition(" (")[0] for line in gaps.lines] == ["tiny-clip, shapes, text to image: −10.0 with spatial"]


def test_ablations_are_one_matrix_of_what_changes_anything_with_cut_vectors_by_their_part(demo_store: StandIn) -> None:
    for encoder, change in (("tiny-clip", -0.2), ("tiny-clip-plain", -0.004)):
        for analysis, feature, level in (
            ("truncation", "32 components", "32 components"),
            ("precision", "stored in", "int8"),
        ):
            size = change if analysis == "truncation" else 0.001
            detail = json.dumps({"change": size, "change_low": size - 0.01, "change_high": size + 0.01})
            part(demo_store, encoder, "shapes", analysis, feature, level, 0.4, detail=detail)
    made = slices.ablations_section(read_report_data(demo_store))
    table = block(made, "ablations-matrix")
    assert [column.heading for column in table.columns] == ["Encoder", "1/2 of the components"]
    assert texts(table) == [["tiny-clip", "−20.0"], ["tiny-clip-plain", "−0.4"]]
    assert [row[1].mark for row in table.rows] == ["warn", "muted"]


def test_slices_of_an_analysis_that_is_no_more_are_shown_nowhere(demo_store: StandIn) -> None:
    before = read_report_data(demo_store).slices
    detail = json.dumps({"change": -0.2, "change_low": -0.3, "change_high": -0.1})
    part(demo_store, "tiny-clip", "shapes", "duplicates", "", "without equal bytes", 0.4, detail=detail)
    data = read_report_data(demo_store)
    assert data.slices == before
    assert not slices.ablations_section(data).blocks
    version = "1 of a-package 0.1"
    part(demo_store, "tiny-clip", "shapes", "theirs", "", "without", 0.4, detail=detail, analysis_version=version)
    assert len(read_report_data(demo_store).slices) == len(before) + 1
