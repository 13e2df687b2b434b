"""R@1 and its slices stand with and without the ambiguous misses beside each other, and the headline stays."""

from __future__ import annotations

import json
from functools import partial

from tests.reports.stand_in import StandIn, block, part, report, texts

WITHOUT = "R@1 without ambiguous misses"


def test_the_table_shows_both_and_how_many_misses_are_ambiguous(demo_store: StandIn) -> None:
    add = partial(part, demo_store, "tiny-clip", "shapes", "ambiguous", level="")
    add(feature="all queries", value=0.62)
    for feature, value, n in (("annotation", 0.65, 190), ("either", 0.65, 190)):
        detail = json.dumps({"ambiguous": 10, "misses": 76, "queries": [], "sources": []})
        add(feature=feature, value=value, metric=WITHOUT, n_queries=n)
        add(feature=feature, value=10 / 76, metric="share of misses", n_queries=76, detail=detail)
    table = block(report(demo_store), "ambiguous-shapes")
    assert texts(table) == [["tiny-clip", "text to image (t2i/all)", "62.0", "65.0", "–", "65.0", "76", "10", "–"]]
    [row] = table.rows
    assert row[2].note == "60.0–64.0"
    assert row[3].title == "190 queries in 40 clusters"
    assert [cell.title for cell in (row[4], row[8])] == ["cannot be known here"] * 2


def test_a_contrast_has_its_difference_without_ambiguous_misses_beside_it(demo_store: StandIn) -> None:
    for metric, gain in (("R@1", -0.1), (WITHOUT, -0.02)):
        for level, value in (("with", 0.5), ("without", 0.6), ("difference", gain)):
            part(demo_store, "tiny-clip", "shapes", "complexity", "spatial", level, value, metric=metric)
    chart = block(report(demo_store), "complexity-shapes-t2i-all-R1")
    headings = [column.heading for column in chart.data.columns]
    assert headings[2:] == ["with", "without", "difference", "difference without ambiguous misses"]
    assert [cell.text for cell in chart.data.rows[0]][4:] == ["−10.0", "−2.0"]
