"""R@1 and its slices stand with and without the ambiguous misses beside each other, and the headline stays."""

from __future__ import annotations

import json

from capim.reports.elements.page import Chart, Table
from tests.reports.stand_in import START, StandIn, report

WITHOUT = "R@1 without ambiguous misses"


def add(
    store: StandIn, encoder: str, metric: str, analysis: str, feature: str, value: float, n: int = 200, **more: object
) -> None:
    contents = store.contents["shapes"]
    row = {
        "slice": f"{encoder} {metric} {analysis} {feature} {more.get('level_name')}",
        "encoder": encoder,
        "encoder_fingerprint": store.specs[encoder].fingerprint,
        "corpus": "shapes",
        "corpus_fingerprint": contents.fingerprint,
        "protocol": "t2i/all",
        "metric": metric,
        "analysis": analysis,
        "feature": feature,
        "level_name": "",
        "value": value,
        "ci_low": value - 0.02,
        "ci_high": value + 0.02,
        "p_adjusted": None,
        "n_queries": n,
        "n_clusters": 40,
        "reason": None,
        "detail": None,
        "run": "run-1",
        "created": START,
    }
    store.tables["slices"].append(row | more)


def test_the_table_shows_both_and_how_many_misses_are_ambiguous(demo_store: StandIn) -> None:
    add(demo_store, "tiny-clip", "R@1", "ambiguous", "all queries", 0.62)
    for feature, value, n in (("annotation", 0.65, 190), ("either", 0.65, 190)):
        detail = json.dumps({"ambiguous": 10, "misses": 76, "queries": [], "sources": []})
        add(demo_store, "tiny-clip", WITHOUT, "ambiguous", feature, value, n)
        add(demo_store, "tiny-clip", "share of misses", "ambiguous", feature, 10 / 76, 76, detail=detail)
    [table] = next(s for s in report(demo_store).sections if s.id == "failures").blocks
    assert isinstance(table, Table)
    [row] = table.rows
    assert [cell.text for cell in row] == [
        "tiny-clip",
        "text to image (t2i/all)",
        "62.0",
        "65.0",
        "–",
        "65.0",
        "76",
        "10",
        "–",
    ]
    assert row[2].note == "60.0–64.0"
    assert row[3].title == "190 queries in 40 clusters"
    assert [cell.title for cell in (row[4], row[8])] == ["cannot be known here"] * 2


def test_a_contrast_has_its_difference_without_ambiguous_misses_beside_it(demo_store: StandIn) -> None:
    for metric, gain in (("R@1", -0.1), (WITHOUT, -0.02)):
        for level, value in (("with", 0.5), ("without", 0.6), ("difference", gain)):
            add(demo_store, "tiny-clip", metric, "complexity", "spatial", value, level_name=level)
    charts = [
        block
        for section in report(demo_store).sections
        if section.id == "slices"
        for block in section.blocks
        if isinstance(block, Chart)
    ]
    [chart] = charts
    assert [column.heading for column in chart.data.columns][2:] == [
        "with",
        "without",
        "difference",
        "difference without ambiguous misses",
    ]
    assert [cell.text for cell in chart.data.rows[0]][4:] == ["−10.0", "−2.0"]
