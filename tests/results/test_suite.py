"""Rows of a ranking over corpora: which encoders and corpora are ranked, and what stands beside those that are not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from capim.store.schema import Ranking
from capim.tasks.metrics.table import Figure
from capim.tasks.ranking.outcomes import outcomes_of
from capim.tasks.results import suite
from capim.tasks.results.suite import CorpusHeadline, EncoderId, Photograph, ranking_rows
from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.intervals import ClusteredValues
from tests.random_store import BEGUN

QUICK = Resampling(replicates=200, permutations=500)
A, B, C, D = (EncoderId(name, f"f-{name}") for name in "abcd")


def headline(name: str, shares: Mapping[EncoderId, float | str], metric: str = "R@1") -> CorpusHeadline:
    """A corpus of 100 queries on which encoders hit these shares, or have no headline for a reason."""
    queries = Clusters.of(range(100))
    values = {
        encoder: share
        if isinstance(share, str)
        else [ClusteredValues((np.arange(100) < 100 * share).astype(np.float64), queries)]
        for encoder, share in shares.items()
    }
    protocol = "winoground" if metric == "winoground_group" else "t2i/all"
    return CorpusHeadline(
        corpus=name,
        fingerprint=f"f-{name}",
        figures=(Figure(protocol, metric),),
        values=values,
        contents=name,
        photographs=[(Photograph(None, f"{name}{i}.jpg"),) for i in range(100)],
    )


def rows_of(*corpora: CorpusHeadline) -> list[Ranking]:
    return ranking_rows(corpora, run="r", resampling=QUICK)


def macro(rows: list[Ranking]) -> dict[str, Ranking]:
    chosen = [r for r in rows if r.estimand == "these corpora"]
    return {row.encoder: row for row in chosen}


def test_every_encoder_has_its_headlines_and_the_ranks_it_can_hold() -> None:
    both = {A: 0.9, B: 0.5}
    rows = rows_of(headline("x", both), headline("y", both), headline("z", {A: 0.6, B: 0.5}, "winoground_group"))
    assert len(rows) == 2 * 2
    best = macro(rows)["a"]
    assert (best.rank, best.rank_low, best.rank_high, best.tied_with_best) == (1, 1, 1, True)
    assert best.value == pytest.approx(0.8)
    assert json.loads(best.headlines) == {"x": 0.9, "y": 0.9, "z": 0.6}
    assert [c["headline"] for c in json.loads(best.corpora)] == [
        "R@1 under t2i/all", "R@1 under t2i/all", "winoground_group under winoground",
    ]  # fmt: skip
    assert macro(rows)["b"].tied_with_best is False
    assert {(r.n_corpora, r.n_encoders, r.run) for r in rows} == {(3, 2, "r")}
    assert len({r.ranking for r in rows}) == 1


def test_an_encoder_without_a_corpus_is_left_out_with_the_reason_and_changes_no_rank() -> None:
    full = {A: 0.9, B: 0.5}
    corpora = [headline(name, full) for name in "xyz"]
    of_c: dict[str, Any] = {"x": {C: 1.0}, "y": {C: "not evaluated under t2i/all"}, "z": {}}
    rows = rows_of(*[headline(name, {**full, **more}) for name, more in of_c.items()])
    left_out = macro(rows)["c"]
    assert left_out.reason == "not ranked: not evaluated under t2i/all on y; not evaluated on z"
    assert (left_out.value, left_out.rank, left_out.rank_low) == (None, None, None)
    assert json.loads(left_out.headlines) == {"x": 1.0}

    def plain(rows: list[Ranking]) -> list[Ranking]:
        return [replace(row, created=BEGUN, ranking="") for row in rows if row.value is not None]

    assert plain(rows) == plain(rows_of(*corpora))


def test_a_corpus_of_few_encoders_does_not_leave_the_others_without_a_ranking() -> None:
    full = {A: 0.9, B: 0.5, C: 0.4}
    rows = rows_of(*[headline(name, full) for name in "xyz"], headline("published", {C: 0.6, D: 0.7}))
    assert {row.encoder for row in rows if row.value is not None} == {"a", "b", "c"}
    assert {corpus["corpus"] for corpus in json.loads(rows[0].corpora)} == {"x", "y", "z"}
    assert macro(rows)["d"].reason == "not ranked: not evaluated on x, y, z"


def test_corpora_that_only_together_are_common_are_found() -> None:
    has = {"v": {A}, "w": {A, B}, "x": {A, B}, "y": {A, B}, "z": {B}}
    assert suite.largest_block({corpus: frozenset(encoders) for corpus, encoders in has.items()}) == {"w", "x", "y"}


def test_neither_a_corpus_that_nobody_does_better_than_chance_is_ranked_nor_who_is_at_chance_on_the_others() -> None:
    """Without the rule d is first: it has the highest share where all guess, and a lucky one elsewhere."""
    figure, full = Figure("t2i/all", "R@1"), {A: 0.9, B: 0.8, D: 0.1}
    corpora = [replace(headline(name, full), at_chance={figure: {D}}) for name in "xyz"]
    guessed = replace(headline("w", {A: 0.1, B: 0.2, D: 1.0, C: 0.7}), at_chance={figure: {A, B, D}})
    rows = rows_of(*corpora, guessed)
    assert {name: row.reason for name, row in macro(rows).items() if row.value is None} == {
        "d": "not ranked: not shown above chance on x, y, z",
        "c": "not ranked: not evaluated on x, y, z",
    }
    assert macro(rows)["a"].value == pytest.approx(0.9), "a mean over three corpora"
    assert json.loads(macro(rows)["d"].headlines) == dict.fromkeys("xyz", 0.1)
    assert json.loads(rows[0].corpora)[0]["not_counted"] == ["w"]


def test_a_direction_that_no_encoder_does_better_than_chance_leaves_the_mean_of_a_corpus() -> None:
    t2i, i2t = Figure("t2i/all", "R@1"), Figure("i2t/any", "R@1")
    values = {each: [*headline("x", {each: share}).values[each]] * 2 for each, share in ((A, 0.9), (B, 0.5))}
    both = replace(headline("x", {}), figures=(t2i, i2t), values=values, at_chance={i2t: {A, B}})
    [counting], weak = suite.counted_headlines([both])
    assert (counting.figures, len(counting.values[A]), weak) == ((t2i,), 1, [])


def test_fewer_than_three_corpora_and_encoders_without_three_in_common_give_no_rows() -> None:
    for n_corpora in range(3):
        assert rows_of(*[headline(name, {A: 0.9, B: 0.5}) for name in "xy"[:n_corpora]]) == []
    assert rows_of(headline("x", {A: 0.9, B: 0.5}), headline("y", {A: 0.9}), headline("z", {B: 0.5})) == []


def test_outcomes_that_leave_the_metric_open_are_no_headline() -> None:
    outcomes = outcomes_of([[1], [4]], protocol="t2i/all")
    figure = Figure("t2i/all", "R@1")
    known: Any = suite.figure_values(outcomes, figure, 2)
    assert known.values.tolist() == [1.0, 0.0]
    anywhere = replace(outcomes, rank_worst=outcomes.rank_worst + 9, n_ranked=np.zeros(2, dtype=np.int32))
    assert suite.figure_values(anywhere, figure, 2) == "its outcomes under t2i/all leave R@1 open"


def test_photographs_are_the_same_by_their_bytes_and_never_by_name() -> None:
    """Two corpora of ids i0000 and on, without bytes: "41 of the 1,200 photographs of big are in heavy"."""

    def with_photographs(name: str, *photographs: Photograph) -> CorpusHeadline:
        return replace(headline(name, {}), photographs=[(one,) for one in photographs])

    hashed = with_photographs("hashed", Photograph("aa", "1.jpg"), Photograph("bb", "2.jpg"))
    again = with_photographs("again", Photograph("bb", "8.jpg"), Photograph("dd", "1.jpg"))
    named, other = (with_photographs(name, Photograph(None, "2.jpg"), Photograph(None, "3.jpg")) for name in "xy")
    found = suite.shared_photographs([hashed, again, named, other])
    assert found.common == [(2, {"again": 1}), (2, {"hashed": 1}), (2, {}), (2, {})]
    units = [of.tolist() for of in found.units or []]
    assert units[0][1] == units[1][0]
    assert len(set().union(*units)) == 7
    assert suite.shared_photographs([hashed, named, other]).units is None


def test_the_same_encoders_and_corpora_replace_their_ranking_and_others_do_not() -> None:
    corpora = [headline(name, {A: 0.9, B: 0.5}) for name in "xyz"]
    again, more = rows_of(*reversed(corpora)), rows_of(*corpora, headline("w", {A: 0.9, B: 0.5}))
    assert {row.ranking for row in again} == {row.ranking for row in rows_of(*corpora)}
    assert {row.ranking for row in more} != {row.ranking for row in again}
