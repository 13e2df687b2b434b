"""What is said of random stores: no two statements of `compare`, the report and results.json contradict each other."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capim.reports.rows.report_data import reversed_comparison
from capim.reports.rows.standing import decision_of
from capim.store import EmbeddingStore
from capim.store.schema import Comparison, texts
from capim.store.types import EncoderSpec
from capim.tasks.corpora.readers.shapes import read_shapes
from tests.command import command, json_rows
from tests.random_store import embeddings, put_all
from tests.reports.pages import long_table

NAMES = ("ada", "bob", "cyd", "dot")
Row = dict[str, Any]


def random_workspace(folder: Path, seed: int) -> Path:
    """Two corpora, and four encoders: two may be the same, or nearly as good, and some guess; evaluated, analysed."""
    rng = np.random.default_rng(seed)
    store = EmbeddingStore.open(folder / "store", create=True)
    signals = {name: float(rng.choice([0.0, 0.9, 0.92, 1.5])) for name in NAMES}
    twins = rng.random() < 0.5
    for corpus in (
        replace(read_shapes(n_scenes=int(n)), name=f"c{n}") for n in rng.choice(range(40, 100), 2, replace=False)
    ):
        store.write_corpus(corpus)
        images, of = texts(corpus.images["id"]), texts(corpus.captions["image_id"])
        for at, name in enumerate(NAMES):
            spec = EncoderSpec(name=name, adapter="hf_dual", checkpoint=f"me/{name}", revision="r", dim=12)
            store.write_encoder(spec)
            drawn = 1000 * seed + (0 if twins and at < 2 else at)
            pictures = embeddings(spec, len(images), drawn)
            near = np.float32(signals[NAMES[0] if twins and at < 2 else name]) * pictures.values
            captions = embeddings(spec, len(of), drawn + 500, near[[images.index(image) for image in of]])
            put_all(store, spec, corpus, "image", pictures)
            put_all(store, spec, corpus, "caption", captions)
    command("evaluate --device cpu --quiet --protocols t2i/all,i2t/any", folder)
    command("analyse --analyses tags --quiet", folder)
    return folder


@pytest.fixture(scope="module", params=range(4))
def said(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each place says of one random store."""
    folder = random_workspace(tmp_path_factory.mktemp("statements") / "workspace", request.param)
    compared, told = json_rows("compare", folder), command("compare", folder)
    page = command("report", folder).page
    numbers = json.loads(page.with_name("results.json").read_text()) | {"comparisons": long_table(page, "comparisons")}
    return {"compared": compared, "told": told.err, "numbers": numbers, "page": page.with_name("report.md").read_text()}


def plain(text: str) -> str:
    return " ".join(text.replace("**", "").split())


def key(row: Row) -> tuple[str, ...]:
    return tuple(row[name] for name in ("corpus", "protocol", "metric", "encoder_a", "encoder_b"))


def turned(row: Row) -> Row:
    """A comparison the other way round."""
    stored = Comparison(**{each.name: row[each.name] for each in fields(Comparison) if each.name in row})
    return {**row, **vars(reversed_comparison(stored))}


def states(said: dict[str, Any]) -> dict[tuple[str, ...], str | None]:
    """What the rows of the report know of every pair, either way round."""
    found: dict[tuple[str, ...], str | None] = {}
    for row in said["numbers"]["comparisons"]:
        for each in (row, turned(row)):
            decision = decision_of(Comparison(**each))
            found[key(each)] = None if decision is None else decision.state
    return found


def test_compare_and_the_numbers_of_the_report_know_the_same_of_every_pair(said: dict[str, Any]) -> None:
    of_report = states(said)
    assert {key(row): row["state"] for row in said["compared"]}.items() <= of_report.items()


def test_every_interval_has_a_width_holds_its_value_and_lies_in_that_of_all_pairs(said: dict[str, Any]) -> None:
    for row in said["numbers"]["results"]:
        shown = row["ci_low"] is not None
        assert shown == (row["interval_method"] != "none")
        assert shown or row["reason"]
        assert not shown or (row["ci_low"] < row["ci_high"] and row["ci_low"] <= row["value"] <= row["ci_high"])
    for row in said["numbers"]["comparisons"]:
        low, high, wide_low, wide_high = (
            row[name] for name in ("ci_low", "ci_high", "simultaneous_low", "simultaneous_high")
        )
        if low is not None:
            assert low <= row["difference"] <= high
        if wide_low is not None:
            assert wide_low < wide_high and wide_low <= row["difference"] <= wide_high
            assert (wide_low > 0 or wide_high < 0) == (row["p_adjusted"] < 0.05)
            assert not 0 < abs(wide_low) < 1e-12 and not 0 < abs(wide_high) < 1e-12
        if row["metric"] in ("mean_rank", "median_rank"):
            assert (low, wide_low, row["p_adjusted"]) == (None, None, None)


def test_the_answer_says_no_more_of_encoders_than_the_tests_of_their_pairs(said: dict[str, Any]) -> None:
    """Whom no test shows to be better on any task of a corpus is not shown to be better on the whole of it."""
    known = states(said)
    tasks = [(protocol, "R@1") for protocol in ("t2i/all", "i2t/any")]
    checked = 0
    for line in said["numbers"]["answer"]:
        if not (found := re.fullmatch(r"(c\d+): (.+) \((clear|\d-way tie)\): (.+)", line)):
            continue
        corpus, listed, badge, why = found.groups()
        first, *others = re.findall(r"\b(?:ada|bob|cyd|dot)\b", listed)
        if better := re.search(r"better than (\w+)", why):
            assert badge == "clear" and not others
            assert "better" in {known.get((corpus, *task, first, better[1])) for task in tasks}, line
        for name in others:
            assert {known.get((corpus, *task, name, first)) for task in tasks} != {"worse"}, line
        checked += 1
    assert checked or "nobody" in str(said["numbers"]["answer"])


def test_the_tests_behind_the_answer_are_those_of_compare_with_the_interval_of_all_pairs(said: dict[str, Any]) -> None:
    of_pair = {key(row): row for row in said["compared"]}
    of_pair |= {key(row): row for row in map(turned, said["compared"])}
    for line in said["numbers"]["evidence"]:
        assert plain(line) in plain(said["page"])
        corpus = line.partition(", ")[0]
        for first, second, rest in re.findall(r"(\w+) minus (\w+): (.+?)(?=; \w+ minus|\. About|\.$)", line):
            for title, difference, inner in re.findall(r"(\w+ to \w+) ([+−]?[\d.]+) \(([^)]+)\)", rest):
                row = of_pair[corpus, "t2i/all" if title == "text to image" else "i2t/any", "R@1", first, second]
                assert float(difference.replace("−", "-")) == pytest.approx(100 * row["difference"], abs=0.051)
                opposite = {"better": "worse", "worse": "better"}
                is_turned = row["encoder_a"] != first
                state = opposite.get(row["state"], row["state"]) if is_turned else row["state"]
                assert (state or "not tested") in inner, line
                if bound := re.search(r"up to ([\d.]+) points? worse", inner):
                    assert float(bound[1]) == pytest.approx(-100 * row["simultaneous_low"], abs=0.051)


def test_images_that_would_settle_it_are_named_only_where_something_is_undecided(said: dict[str, Any]) -> None:
    undecided = {row["corpus"] for row in said["compared"] if row["state"] == "undecided" and row["metric"] == "R@1"}
    told = " ".join(said["told"].split())
    assert {*re.findall(r"(c\d+): About [\d,]+ images like these would settle", told)} <= undecided
