"""The seed's own tables, rebuilt from its own figures."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from tasks.metrics.crosslingual import over_languages, over_speakers, variance_split
from tasks.metrics.language_tables import COLUMNS, reduced, report

TRANSLATORS = ("google", "bing", "nllb")
REPORTS = ("open_clip", "uform-multilingual-v2")


def published(folder: Path, name: str) -> tuple[dict[tuple[str, str], dict[str, float]], str]:
    text = (folder / "coco_sm" / "reports" / f"{name}.csv").read_text()
    rows = list(csv.DictReader(text.splitlines()))
    return {(r["language"], r["meta"]): {column: float(r[column]) for column in COLUMNS} for r in rows}, text


@pytest.mark.parametrize("name", REPORTS)
def test_report_has_the_seeds_columns_order_and_rounding(shared_data: Path, name: str) -> None:
    values, text = published(shared_data, name)
    assert len(values) == 63
    assert report(values, TRANSLATORS) == text


@pytest.mark.parametrize("name", REPORTS)
def test_reduced_has_the_seeds_rows_and_agrees_within_the_rounding_of_its_report(shared_data: Path, name: str) -> None:
    values, _ = published(shared_data, name)
    theirs = list(csv.reader((shared_data / "coco_sm" / "reports" / f"{name}_reduced.csv").read_text().splitlines()))
    mine = list(csv.reader(reduced(values, TRANSLATORS).splitlines()))
    assert [row[0] for row in mine] == [row[0] for row in theirs]
    assert mine[0] == theirs[0]
    for row, other in zip(mine[1:], theirs[1:], strict=True):
        for cell, expected in zip(row[1:], other[1:], strict=True):
            ours, published_ = ([float(number) for number in text.split(" ± ")] for text in (cell, expected))
            np.testing.assert_allclose(ours, published_, atol=0.0011, err_msg=row[0])


def test_published_means_include_english_and_are_lower_without_it(shared_data: Path) -> None:
    values, _ = published(shared_data, "open_clip")
    recall = {row: figures["t2i.recall@1"] for row, figures in values.items()}
    assert round(over_languages(recall).mean, 3) == 0.265  # the README's 26.5
    assert over_languages(recall, without=frozenset({"en"})).mean < 0.26


def test_most_variance_is_between_languages_and_shares_add_up(shared_data: Path) -> None:
    values, _ = published(shared_data, "open_clip")
    recall = {row: figures["t2i.recall@1"] for row, figures in values.items() if row[0] != "en"}
    split = variance_split(recall)
    assert sum(split) == pytest.approx(1)
    assert split.language > 0.8 > split.translator > 0


def test_speakers_weigh_the_large_languages(shared_data: Path) -> None:
    values, _ = published(shared_data, "open_clip")
    recall = {row: figures["t2i.recall@1"] for row, figures in values.items()}
    assert over_speakers(recall) > over_languages(recall).mean  # Armenian, the weakest, has four million
    with pytest.raises(ValueError, match="unknown for xx"):
        over_speakers({("xx", "google"): 0.1})


def test_gaps_are_named() -> None:
    one = dict.fromkeys(COLUMNS, 0.5)
    with pytest.raises(ValueError, match="missing de/bing"):
        report({("de", "google"): one, ("en", "google"): one, ("en", "bing"): one}, ["google", "bing"])
    with pytest.raises(ValueError, match="missing b/y"):
        variance_split({("a", "x"): 0.1, ("a", "y"): 0.2, ("b", "x"): 0.3})
    with pytest.raises(ValueError, match="1 by 2"):
        variance_split({("a", "x"): 0.1, ("a", "y"): 0.2})
