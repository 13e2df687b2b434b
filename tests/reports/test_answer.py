"""The first screen: the right sentence from the tests of each kind of corpus, and nothing at chance hidden."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import scipy

from capim.reports.elements.page import Notice
from capim.reports.format import PERCENT
from capim.reports.rows.reading import read_report_data
from capim.reports.sections import answer
from capim.reports.sections.glossary import TERMS
from capim.reports.sections.leaderboard import MEAN
from capim.tasks.statistics.decision import SHARERS
from tests.reports.stand_in import StandIn, block, comparison, corpus, demo, report, result, spec, timed

BOTH = "t2i/all+i2t/any"
pytestmark = pytest.mark.usefixtures("undrawn")


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


def interval(difference: float, half: float) -> dict[str, object]:
    """The columns of a difference with its intervals."""
    ends = {"low": difference - half, "high": difference + half}
    found = {f"{kind}_{end}": at for kind in ("ci", "simultaneous") for end, at in ends.items()}
    return {"difference": difference} | found | {f"shared_{end}": [at] * len(SHARERS) for end, at in ends.items()}


def sentence(store: StandIn) -> str:
    return " ".join(answer.answer(read_report_data(store)))


def grid(store: StandIn) -> dict[tuple[str, str], str]:
    """Encoder and task to the state in the grid."""
    table = block(answer.section(read_report_data(store)), "answer-grid").table
    return {
        (row[0].text, c.heading + MEAN * c.group.endswith(MEAN)): cell.state
        for row in table.rows
        for c, cell in zip(table.columns, row, strict=True)
    }


T2I = {"protocol": "t2i/all"}


def test_equal_on_one_direction_and_better_on_the_other_is_a_choice() -> None:
    store = tied_on_one_direction("a", "b")
    assert sentence(store) == (
        "Text to image (photos): a or b, equivalent within 1 point. "
        "Image to text (photos): a, 20.0 points better than b."
    )
    assert grid(store)["b", "text to image"] == "equivalent"
    assert grid(store)["b", "image to text"] == "20.0 worse"


def test_an_undecided_direction_says_how_much_worse_it_could_be() -> None:
    store = tied_on_one_direction("a", "b", "c", p_equivalent=0.6)
    assert sentence(store) == (
        "Text to image (photos): a, b or c; none is shown to be worse than a (b could be up to 1.0 point worse). "
        "Image to text (photos): a, 20.0 points better than b, the closest."
    )
    assert grid(store)["c", "text to image"] == "undecided: up to 1.0 worse"


def test_one_direction_each_is_no_winner() -> None:
    worse = {"p_adjusted": 0.001, "p_equivalent": 1.0, **interval(-0.05, 0.01)}
    assert sentence(change(tied_on_one_direction("a", "b"), "comparisons", T2I, **worse)) == (
        "Text to image (photos): a or b; none is shown to be worse than a (b is 5.0 points better). "
        "Image to text (photos): a, 20.0 points better than b."
    )


def test_equivalent_on_both_directions_is_a_choice_by_cost() -> None:
    same = {"p_adjusted": 0.9, "p_equivalent": 0.001, **interval(0.0, 0.002)}
    assert sentence(change(tied_on_one_direction("a", "b"), "comparisons", {}, **same)) == (
        "Text to image and image to text (photos): a or b, equivalent within 1 point."
    )


def test_nobody_above_chance_is_no_choice() -> None:
    store = change(tied_on_one_direction("a", "b"), "results", {}, chance=0.99, p_chance=0.0001)
    assert sentence(store) == (
        "Text to image and image to text (photos): no encoder is shown to be better than chance."
    )


def test_a_single_encoder_is_named_with_its_figures() -> None:
    assert sentence(tied_on_one_direction("a")) == (
        f"Text to image and image to text (photos): only a was evaluated, R@1 60.0{PERCENT} (58.0–62.0) and "
        f"80.0{PERCENT} (78.0–82.0)."
    )


def test_without_tests_there_is_no_choice() -> None:
    store = tied_on_one_direction("a", "b", tested=False)
    assert sentence(store) == (
        f"Text to image and image to text (photos): not tested; a has the highest figure, 60.0{PERCENT} (58.0–62.0) "
        f"and 80.0{PERCENT} (78.0–82.0) (run `capim compare`)."
    )
    assert grid(store)["b", "image to text"] == "not tested"
    change(store, "results", {"corpus": "photos"}, n_clusters=1)
    assert sentence(store).endswith("(with one image there is no test).")


def test_below_chance_is_said_as_such_everywhere() -> None:
    store = change(tied_on_one_direction("a", "b"), "results", T2I, chance=0.7, p_chance=0.0001)
    change(store, "results", {"protocol": "i2t/any", "encoder": "b"}, chance=0.6, p_chance=0.9)
    assert sentence(store).startswith("Text to image (photos): no encoder is shown to be better than chance.")
    assert sentence(store).endswith("Not ranked: b, not shown above chance on any task.")
    assert grid(store)["a", "text to image"] == "below chance"
    assert grid(store)["b", "image to text"].startswith("not shown above chance; ")
    made = report(store)
    assert [section.id for section in made.sections[:2]] == ["answer", "breaks"], "beside the grid"
    [notice] = [b for b in made.sections[1].blocks if isinstance(b, Notice)]
    assert notice.items == (
        "every task: not shown above chance for b",
        "text to image, R@1 (photos): below chance for a",
    )


def test_without_an_interval_nothing_is_said_of_chance() -> None:
    """One query of two was missed: "below chance"; one of one was found, and so the other encoder was not named."""
    absent = dict.fromkeys(("ci_low", "ci_high", "p_chance"))
    store = change(
        tied_on_one_direction("a", "b"), "results", {"metric": "R@1"}, value=0.0, interval_method="none", **absent
    )
    assert "chance" not in sentence(store)
    assert not any("chance" in state for state in grid(store).values())
    assert not any(isinstance(b, Notice) for b in answer.weaknesses_section(read_report_data(store)).blocks)


def test_undecided_by_an_interval_that_ends_at_zero_is_not_up_to_zero_points_worse() -> None:
    ends = {"difference": 0.004, "shared_low": [-0.0001] * 12, "shared_high": [0.009] * 12}
    store = change(tied_on_one_direction("a", "b", p_equivalent=0.6), "comparisons", T2I, **ends)
    said = "Text to image (photos): a or b; none is shown to be worse than a (b could be up to 0.9 "
    assert sentence(store).startswith(said)
    assert grid(store)["b", "text to image"] == "undecided: up to 0.9 worse"


def test_the_sum_of_both_directions_does_not_choose_for_one_of_them() -> None:
    """Better by 20 points on image to text alone, and by the sum: "Choose a … text to image is undecided"."""
    store = tied_on_one_direction("a", "b", p_equivalent=0.6)
    change(store, "comparisons", T2I, **interval(-0.01, 0.14))
    said = "Text to image (photos): a or b; none is shown to be worse than a (b could be up to 13.0 points worse). "
    assert sentence(store).startswith(f"{said}Image to text")


def test_the_budgets_are_told_in_a_line() -> None:
    assert answer.evidence(read_report_data(tied_on_one_direction("a", "b")))[-1] == (
        "At most 5 % for any false one of: better and worse, over all pairs of 3 planned figures of 1 corpus; "
        "equivalent, over the pairs of each figure; better than and below chance, over 4 results. The rest is "
        "exploratory."
    )


def test_it_is_told_where_queries_are_not_independent() -> None:
    store = tied_on_one_direction("a", "b")
    for table in ("results", "comparisons"):
        change(store, table, T2I, protocol="t2i/judged", metric="nDCG@10")
    assert answer.evidence(read_report_data(store))[-1] == (
        "photos: a false better or worse is likelier than that, because queries share right items or are searched "
        "themselves, and the tests take them for independent."
    )


def test_a_claim_from_few_images_and_images_of_unequal_weight_say_so() -> None:
    store = tied_on_one_direction("a", "b")
    change(store, "comparisons", {}, n_effective=12.0)
    change(store, "results", T2I, n_effective=1.9, n_clusters=20, largest_share=0.72)
    assert "Image to text (photos): a, 20.0 points better (few images) than b." in sentence(store)
    assert grid(store)["b", "image to text"] == "20.0 worse (few images)"
    lines = answer.evidence(read_report_data(store))
    assert "photos: one image holds 72 % of the queries: 20 images count as 1.9 of equal weight." in lines


def test_a_further_corpus_takes_its_part_of_what_is_better() -> None:
    """One p-value of .02 is a claim on one screen of one figure, and none among six."""
    store = tied_on_one_direction("a", "b")
    change(store, "comparisons", {"protocol": "i2t/any"}, p_adjusted=0.02)
    change(store, "comparisons", {"metric": "RSUM"}, p_adjusted=0.5)
    assert grid(store)["b", "image to text"] == "undecided: up to 21.0 worse"
    for table in ("results", "comparisons"):
        store.tables[table] = [row for row in store.tables[table] if row["protocol"] == "i2t/any"]
    assert grid(store)["b", "image to text"] == "20.0 worse"


def test_an_interval_that_ends_a_hair_from_zero_is_worse_in_the_decision_as_on_the_board() -> None:
    store = change(tied_on_one_direction("a", "b"), "comparisons", {"protocol": "i2t/any"}, **interval(0.2, 0.1999999))
    board = block(answer.section(read_report_data(store)), "answer-grid")
    state, _, difference, low, high = board.pairs[1]["b"]["a"]
    assert (state, difference) == ("worse", -20.0)
    assert low < -39.9 and -0.001 < high < 0


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        (
            [280, 300, 320],
            f"tiny-clip encodes images 1.50 times as fast (95{PERCENT} interval 1.27–1.77, over 3 corpora)",
        ),
        (
            [140, 150, 160],
            f"tiny-clip-plain encodes images 1.34 times as fast (95{PERCENT} interval 1.13–1.58, over 3 ",
        ),
        ([340, 220, 220], ""),  # something else ran on the machine during the first
        ([280, 300], ""),
    ],
)
def test_one_encoder_is_faster_only_where_the_ratios_by_corpus_show_it(rates: list[float], said: str) -> None:
    data = read_report_data(_with_i2t(demo()))
    other = {"tiny-clip-plain": [200] * len(rates)}
    text = " ".join(answer.answer(timed(data, {"tiny-clip": rates, **other})))
    assert said in text
    assert (" times as fast" in text) == bool(said)
    logs = np.log(rates) - np.log(200)
    if "tiny-clip " in said:
        ends = np.exp(scipy.stats.t.interval(0.95, 2, logs.mean(), scipy.stats.sem(logs)))
        assert "–".join(f"{end:.2f}" for end in ends) in said


@pytest.mark.parametrize("setting", [{"device": "Example GPU"}, {"forward_precision": "bfloat16"}])
def test_speeds_of_two_devices_or_precisions_are_not_compared(setting: dict[str, str]) -> None:
    data = read_report_data(_with_i2t(demo()))
    first, second = timed(data, {"tiny-clip": [280, 300, 320]}), timed(data, {"tiny-clip-plain": [200] * 3}, **setting)
    assert " times as fast" not in " ".join(answer.answer(replace(data, batches=first.batches + second.batches)))


def _with_i2t(store: StandIn) -> StandIn:
    tested = {"protocol": "t2i/all", "metric": "R@1"}
    change(store, "comparisons", tested, p_adjusted=0.001, p_sign_flip=0.001)
    for row in [r for r in store.tables["comparisons"] if tested.items() <= r.items()]:
        comparison(store, "shapes", "i2t/any", "R@1", row["encoder_a"], row["encoder_b"], row["difference"], 0.001)
    return store


def test_each_term_is_explained_once_in_the_section_in_which_it_first_stands() -> None:
    made = report(_with_i2t(demo()))
    explained = [dict(made.strip), *(dict(section.terms) for section in made.sections)]
    terms = [term for of in explained for term in of]
    assert len(terms) == len(set(terms)) > 10
    patterns = {term: pattern for term, (pattern, _) in TERMS.items()}
    assert set(explained[0]) == {
        term for term, p in patterns.items() if re.search(p, "\n".join(made.answer), re.IGNORECASE)
    }
    assert {"R@1", "Interval"} <= {*explained[0], *explained[1]}, "below the grid"
    place = {term: section.id for section in made.sections for term, _ in section.terms}
    assert (place["R@k"], place["Sign-flip test"], place["Sealed"]) == ("leaderboard", "differences", "provenance")


@pytest.mark.parametrize("share", [0.001, 0.5])
def test_languages_that_no_encoder_reads_are_in_the_sentence_and_a_mean_does_not_hide_them(share: float) -> None:
    store = tied_on_one_direction("a", "b")
    store.contents["tongues"] = corpus("tongues", n_images=40)
    shares = {"en/human": 0.5, "it/human": share, "ru/human": share, "*/*": 0.3}
    for name, direction, of in product(store.specs, ("t2i", "i2t"), shares):
        result(store, name, "tongues", f"{direction}/{of}", "R@1", shares[of], half=0.02, chance=0.025)
    hidden = grid(store)["a", "text to image, mean over languages"]
    if share < 0.01:
        assert sentence(store).endswith("Languages: no encoder is shown to read Italian or Russian better than chance.")
        assert "2 of 3 languages not shown above chance" in hidden
    else:
        assert "shown to read" not in sentence(store)
        assert "chance" not in hidden


def test_encoders_without_a_query_between_them_are_said_to_be_the_same_on_every_query() -> None:
    ends = [f"{of}_{end}" for of in ("ci", "simultaneous", "shared") for end in ("low", "high")]
    none = {"p_adjusted": None, "p_equivalent": 1.0, "wins": 0, "losses": 0, **dict.fromkeys(ends)}
    store = change(tied_on_one_direction("a", "b"), "comparisons", T2I, **none)
    assert "text to image 0.0 (the same on every query, undecided)" in answer.evidence(read_report_data(store))[0]
