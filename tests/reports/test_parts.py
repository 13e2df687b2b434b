"""The pieces that sections are made of, on values worked out by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from altair.vegalite.v6.schema import core
from hypothesis import given
from hypothesis import strategies as st

from capim.reports.elements import charts
from capim.reports.elements.page import Cell, Chart, Column, Notice, Report, Section, Table
from capim.reports.rows.reading import read_report_data
from capim.reports.rows.report_data import WITHOUT, ReportData
from capim.reports.rows.speed import speeds
from capim.reports.sections import differences, failures, leaderboard, provenance, slices, speed
from capim.reports.sections.speed import accuracy_over_cost, pareto
from tests.reports.large import coco
from tests.reports.stand_in import StandIn, block, corpus, part, report, result, section, spec, texts, timed


@pytest.fixture
def two_models(undrawn: None) -> StandIn:
    """Two models with slices, languages and compositional corpora; their charts are not drawn."""
    return coco(n_images=8, n_models=2, n_languages=1)


def test_places_follow_from_who_is_significantly_better_and_worse(demo_store: StandIn) -> None:
    # neighbours are tied (p 0.2), the first and the last are not (p 0.0004)
    found = read_report_data(demo_store).ranks("shapes", "t2i/all", "R@1")
    assert {name: (s.best, s.worst, s.tied_with_best) for name, s in found.items()} == {
        "tiny-clip": (1, 2, True),
        "tiny-clip-plain": (1, 3, True),
        "tiny-colpali": (2, 3, False),
    }
    for row in demo_store.tables["comparisons"]:
        row["p_adjusted"] = None
    assert all(s.tied_with_best for s in read_report_data(demo_store).ranks("shapes", "t2i/all", "R@1").values())


def test_a_kept_script_is_read_unless_it_was_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charts, "SCRIPTS", tmp_path)
    bundles: list[str] = []

    def bundled(snippet: str) -> str:
        bundles.append(snippet)
        return f"// é\n{snippet}"

    monkeypatch.setattr("vl_convert.javascript_bundle", bundled)
    made = charts.script.__wrapped__  # without what the process keeps
    assert made() == made() == f"// é\n{bundles[0]}"
    assert len(bundles) == 1
    [kept] = tmp_path.iterdir()
    kept.write_bytes(kept.read_bytes()[:-1])
    assert made() == made()
    assert len(bundles) == 2


def test_charts_are_valid_vega_lite(demo_store: StandIn, two_models: StandIn) -> None:
    """Altair's own check takes a sixth of the time of a report; it is made here instead."""
    stores = (demo_store, two_models)
    charts = [b for store in stores for s in report(store).sections for b in s.blocks if isinstance(b, Chart)]
    assert len({chart.id.partition("-")[0] for chart in charts}) >= 3
    for chart in charts:
        spec = json.loads(chart.spec)
        assert spec.pop("background") is None  # Vega-Lite takes it for transparent, its schema does not
        core.Root.validate(spec)


def test_pairs_stand_beside_the_chance_of_their_own_protocol() -> None:
    store = StandIn(specs={"a": spec("a")}, contents={"s": corpus("s", n_images=4)})
    for protocol, chance in (("sugarcrepe-pp/swap_att", 1 / 3), ("negbench/hybrid", 1 / 4)):
        result(store, "a", "s", protocol, "pair_accuracy", 0.5, chance=chance)
    for protocol, value in (("winoground", 0.25), ("winoground/swap-att", 0.5)):
        result(store, "a", "s", protocol, "winoground_group", value)
    made = leaderboard.compositional_section(read_report_data(store))
    assert texts(block(made, "pairs-s"))[-1] == ["chance", "25.0", "33.3"]
    assert texts(block(made, "winoground-tags-s"))[0][:2] == ["a", "50.0"]


def test_a_part_that_differs_between_encoders_shows_the_queries_of_each(two_models: StandIn) -> None:
    """Of parts such as hits and misses, the table printed the largest number of any encoder for all."""
    first, second = two_models.specs
    rows = [row for row in two_models.tables["slices"] if (row["analysis"], row["feature"]) == ("length", "words")]
    same = slices.section(read_report_data(two_models))
    for row in rows:
        row["n_queries"] = {first: 3100, second: 210}[row["encoder"]]
    for row in two_models.tables["slices"]:
        if (row["analysis"], row["feature"], row["encoder"]) == ("complexity", "spatial", first):
            row["n_queries"] = 4100
    made = slices.section(read_report_data(two_models))
    table = block(made, "length-coco-karpathy-t2i-all-R1-parts")
    assert [column.heading for column in table.columns].count("queries") == 2
    assert all({"3,100", "210"} <= set(row) for row in texts(table))
    columns = block(same, "length-coco-karpathy-t2i-all-R1-parts").columns
    assert [column.heading for column in columns].count("queries") == 1
    of_features = dict(row[:2] for row in texts(block(made, "complexity-coco-karpathy-t2i-all-R1").data))
    assert of_features.pop("spatial") == "4,100–5,200", "a range"
    assert set(of_features.values()) == {"5,200"}


def test_a_suspect_stands_at_the_top_of_the_report(two_models: StandIn) -> None:
    made = report(two_models)
    assert [s.id for s in made.sections][:4] == ["answer", "breaks", "languages", "gate"]
    notice = section(made, "gate").blocks[0]
    assert isinstance(notice, Notice)
    assert "siglip2-so400m on coco-karpathy, text to image (t2i/all), R@1: 55.3 here, 74.3 published" in notice.items[0]


def test_a_sample_is_said_not_to_be_compared_with_published_figures(two_models: StandIn) -> None:
    first, _ = two_models.specs
    for row in two_models.tables["slices"]:
        if row["analysis"] == "reference" and row["encoder"] == first:
            row |= {"level_name": "not compared", "reason": "sample of 500 of 5,000 images, not compared"}
    gate = provenance.published_section(read_report_data(two_models))
    assert (
        "coco-karpathy is a sample of 500 of 5,000 images, not compared: published figures are about all" in gate.lead
    )
    assert "No published figures" not in gate.lead
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
    assert 400 < images.stages["forward"].mean < 530  # 1 / (0.002 s × 0.95 … 1.1)
    assert ("tiny-colpali", "image") not in found, "it has only warm-up batches"


def test_an_encoder_has_one_speed_over_all_its_sets_whose_batches_count_once(demo_store: StandIn) -> None:
    data = timed(read_report_data(demo_store), {"tiny-clip": [100, 200, 400]})
    [found] = speeds(data)
    assert found.stages["forward"].by_corpus == pytest.approx({"shapes": 100, "pages": 200, "signs": 400})  # medians
    assert found.stages["forward"].mean == pytest.approx(200)
    [line] = texts(block(speed.section(data), "throughput-stages"))
    assert line[:3] == ["tiny-clip", "images", "9"]
    assert "200" in line


@pytest.mark.parametrize(("rates", "shown"), [([140, 150, 160], True), ([150, 220, 220], False), ([140, 150], False)])
def test_accuracy_over_speed_claims_a_frontier_only_where_speeds_are_shown_to_differ(
    rates: list[float], shown: bool, demo_store: StandIn
) -> None:
    data = read_report_data(demo_store)
    first = timed(data, {"tiny-clip": [200] * len(rates)}, device="CPU")

    def chart(device: str) -> tuple[bool, bool, bool]:
        second = timed(data, {"tiny-clip-plain": rates}, device=device)
        both = replace(data, batches=first.batches + second.batches)
        made = accuracy_over_cost(both, "shapes", "t2i/all", "R@1")
        assert made is not None and made.data is not None
        claims = "No other encoder is both faster" in made.alt
        return "on the frontier" in [column.heading for column in made.data.columns], "No frontier" in made.note, claims

    assert chart("CPU") == (True, False, shown)
    assert chart("GPU") == (False, True, False)


@pytest.mark.parametrize("fast", [True, False])
def test_the_tooltip_of_a_point_names_its_cost(fast: bool) -> None:
    point = {"encoder": "a", "rate": 1.0, "speed": "4.0 KiB per image"}
    picture = speed._picture([point], ["a"], "R@1, percent", "R@1", ["a"], fast=fast).to_json()
    assert ('"title": "speed"' in picture, '"title": "size"' in picture) == (fast, not fast)


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
    table = block(leaderboard.section(read_report_data(demo_store)), "leaderboard-shapes")
    assert "ties" not in {column.heading for column in table.columns}


def test_a_null_result_shows_its_reason_and_sorts_last() -> None:
    store = StandIn(specs={n: spec(n) for n in ("a", "b")}, contents={"c": corpus("c", n_images=4)})
    result(store, "a", "c", "t2i/all", "R@1", None, reason="fewer than 2 clusters")
    result(store, "b", "c", "t2i/all", "R@1", 0.4)
    data = read_report_data(store)
    assert [r.encoder for r in data.ranked("c", "t2i/all", "R@1")] == ["b", "a"]
    table = block(leaderboard.section(data), "leaderboard-c")
    assert [row[1].title for row in table.rows][1] == "fewer than 2 clusters"
    assert not math.isnan(np.float64(table.rows[0][1].sort))


def test_of_several_requests_one_is_shown_and_a_part_of_a_larger_one_is_called_so(demo_store: StandIn) -> None:
    compared = demo_store.tables["comparisons"]
    of_all = [dict(row) for row in compared]
    [pair] = [
        {**row, "run": "later", "created": row["created"] + timedelta(days=1), "p_adjusted": 0.001}
        for row in of_all
        if {row["encoder_a"], row["encoder_b"]} == {"tiny-clip", "tiny-clip-plain"}
        and (row["corpus"], row["protocol"], row["metric"]) == ("shapes", "t2i/all", "R@1")
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
    assert differences.section(restricted).lead.endswith("of which this report shows 2.")


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


def test_a_contrast_has_its_difference_without_ambiguous_misses_beside_it(demo_store: StandIn) -> None:
    for metric, gain in (("R@1", -0.1), (WITHOUT, -0.02)):
        for level, value in (("with", 0.5), ("without", 0.6), ("difference", gain)):
            part(demo_store, "tiny-clip", "shapes", "complexity", "spatial", level, value, metric=metric)
    chart = block(slices.section(read_report_data(demo_store)), "complexity-shapes-t2i-all-R1")
    headings = [column.heading for column in chart.data.columns]
    assert headings[2:] == ["with", "without", "difference", "difference without ambiguous misses"]
    assert [cell.text for cell in chart.data.rows[0]][4:] == ["−10.0", "−2.0"]
