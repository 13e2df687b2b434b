"""The first screen: the right sentence from the tests of each kind of corpus, and nothing at chance hidden."""

from __future__ import annotations

import re

import pytest

from capim.reports.elements.page import Notice, Report
from capim.reports.format import PERCENT
from capim.reports.sections.glossary import TERMS
from capim.reports.sections.leaderboard import MEAN
from tests.reports.stand_in import StandIn, block, comparison, corpus, demo, report, result, spec

BOTH = "t2i/all+i2t/any"


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


def grid(made: Report) -> dict[tuple[str, str], str]:
    """Encoder and task to the state in the grid."""
    table = block(made, "answer-grid")
    return {
        (row[0].text, c.heading + MEAN * c.group.endswith(MEAN)): cell.state
        for row in table.rows
        for c, cell in zip(table.columns, row, strict=True)
    }


def test_equal_on_one_direction_and_better_on_the_other_is_a_choice() -> None:
    made = report(tied_on_one_direction("a", "b"))
    assert made.answer == (
        "Choose a: compared with b, it is equivalent within 1 point on text to image and 20.0 points better on "
        "image to text."
    )
    assert grid(made)["b", "text to image"] == "equivalent"
    assert grid(made)["b", "image to text"] == "20.0 worse"


def test_an_undecided_direction_says_how_much_worse_it_could_be() -> None:
    made = report(tied_on_one_direction("a", "b", "c", p_equivalent=0.6))
    assert made.answer == (
        "Choose a: compared with b, the closest rival, it is 20.0 points better on image to text; "
        "text to image is undecided (a could be up to 1.0 point worse)."
    )
    assert grid(made)["c", "text to image"] == "undecided: up to 1.0 worse"


def test_one_direction_each_is_no_winner() -> None:
    store = tied_on_one_direction("a", "b")
    for row in store.tables["comparisons"]:
        if row["protocol"] == "t2i/all":
            row.update(difference=-0.05, p_adjusted=0.001, p_equivalent=1.0)
            row.update(ci_low=-0.06, ci_high=-0.04, simultaneous_low=-0.06, simultaneous_high=-0.04)
    text = report(store).answer
    assert text == (
        "No winner: the tests do not separate a and b: a is 5.0 points worse on text to image and 20.0 points better "
        "on image to text."
    )


def test_better_on_one_direction_alone_is_no_winner_where_both_together_are_undecided() -> None:
    store = tied_on_one_direction("a", "b", p_equivalent=0.6)
    for row in store.tables["comparisons"]:
        if row["metric"] == "RSUM":
            row["p_adjusted"] = 0.3
    assert report(store).answer.startswith("No winner: the tests do not separate a and b: ")


def test_equivalent_on_both_directions_is_a_choice_by_cost() -> None:
    store = tied_on_one_direction("a", "b")
    for row in store.tables["comparisons"]:
        row.update(difference=0.0, p_adjusted=0.9, p_equivalent=0.001)
        row.update(ci_low=-0.002, ci_high=0.002, simultaneous_low=-0.002, simultaneous_high=0.002)
    assert report(store).answer == (
        "Choose by cost: a and b are both equivalent within 1 point on text to image and image to text."
    )


def test_below_chance_is_said_as_such_everywhere() -> None:
    store = tied_on_one_direction("a", "b")
    for row in store.tables["results"]:
        if row["protocol"] == "t2i/all":
            row.update(chance=0.7, against_chance="worse")
        elif row["protocol"] == "i2t/any" and row["encoder"] == "b":
            row.update(chance=0.6, against_chance="open")
    made = report(store)
    assert "but below chance on text to image" in made.answer
    assert grid(made)["a", "text to image"] == "below chance; highest"
    assert grid(made)["b", "image to text"].startswith("at chance; ")
    assert [section.id for section in made.sections[:2]] == ["answer", "breaks"], "beside the grid"
    [notice] = [b for b in made.sections[1].blocks if isinstance(b, Notice)]
    assert notice.items == (
        "text to image, R@1 (photos): below chance for every encoder",
        "image to text, R@1 (photos): at chance for b",
    )


def test_without_an_interval_nothing_is_said_of_chance() -> None:
    """One query of two was missed: "below chance"; one of one was found, and so the other encoder was not named."""
    store = tied_on_one_direction("a", "b")
    for row in store.tables["results"]:
        if row["metric"] == "R@1":
            row.update(value=0.0, ci_low=None, ci_high=None, against_chance=None, interval_method="none")
    made = report(store)
    assert "chance" not in made.answer
    assert not any("chance" in state for state in grid(made).values())
    assert not any(isinstance(block, Notice) for section in made.sections for block in section.blocks[:1])


def test_undecided_by_an_interval_that_ends_at_zero_is_not_up_to_zero_points_worse() -> None:
    store = tied_on_one_direction("a", "b", p_equivalent=0.6)
    for row in store.tables["comparisons"]:
        if row["protocol"] == "t2i/all":
            row.update(difference=0.004, simultaneous_low=-0.0001, simultaneous_high=0.009)
    made = report(store)
    assert made.answer.endswith("; text to image is undecided.")
    assert grid(made)["b", "text to image"] == "undecided: up to 0.9 worse"


def test_nobody_above_chance_is_no_choice() -> None:
    store = tied_on_one_direction("a", "b")
    for row in store.tables["results"]:
        row.update(chance=0.99, against_chance="worse")
    assert report(store).answer == (
        "No choice: no encoder is better than chance on text to image and image to text (photos)."
    )


def test_a_single_encoder_is_named_with_its_figures() -> None:
    assert report(tied_on_one_direction("a")).answer == (
        f"Only a was evaluated: R@1 60.0{PERCENT} (58.0–62.0) on text to image and "
        f"80.0{PERCENT} (78.0–82.0) on image to text."
    )


def test_without_tests_there_is_no_choice() -> None:
    made = report(tied_on_one_direction("a", "b", tested=False))
    assert made.answer == (
        "Not tested, so no choice: a has the highest figure on text to image and image to text (run `capim compare`)."
    )
    assert grid(made)["b", "image to text"] == "not tested"


def test_speed_is_a_measured_ratio_with_its_spread() -> None:
    text = report(_with_i2t(demo())).answer
    assert " times as fast (measured, " in text
    assert "signific" not in text


def _with_i2t(store: StandIn) -> StandIn:
    for row in [r for r in store.tables["comparisons"] if r["protocol"] == "t2i/all" and r["metric"] == "R@1"]:
        row.update(p_adjusted=0.001, p_sign_flip=0.001)
        comparison(store, "shapes", "i2t/any", "R@1", row["encoder_a"], row["encoder_b"], row["difference"], 0.001)
    return store


def test_each_term_is_explained_once_in_the_section_in_which_it_first_stands() -> None:
    made = report(_with_i2t(demo()))
    explained = [dict(made.strip), *(dict(section.terms) for section in made.sections)]
    terms = [term for of in explained for term in of]
    assert len(terms) == len(set(terms)) > 10
    patterns = {term: pattern for term, (pattern, _) in TERMS.items()}
    assert set(explained[0]) == {term for term, p in patterns.items() if re.search(p, made.answer, re.IGNORECASE)}
    assert {"R@1", "Interval"} <= {*explained[0], *explained[1]}, "below the grid"
    place = {term: section.id for section in made.sections for term, _ in section.terms}
    assert (place["R@k"], place["Sign-flip test"], place["Sealed"]) == ("leaderboard", "differences", "provenance")


@pytest.mark.parametrize("share", [0.001, 0.5])
def test_languages_that_no_encoder_reads_are_in_the_sentence_and_a_mean_does_not_hide_them(share: float) -> None:
    store = tied_on_one_direction("a", "b")
    store.contents["tongues"] = corpus("tongues", n_images=40)
    for name in store.specs:
        for code in ("en", "it", "ru"):
            for direction in ("t2i", "i2t"):
                value = share if code in ("it", "ru") else 0.5
                result(store, name, "tongues", f"{direction}/{code}/human", "R@1", value, half=0.02, chance=0.025)
        for direction in ("t2i", "i2t"):
            result(store, name, "tongues", f"{direction}/*/*", "R@1", 0.3, half=0.02, chance=0.025)
    made = report(store)
    hidden = grid(made)["a", "text to image, mean over languages"]
    if share < 0.01:
        assert made.answer.endswith("; no encoder reads Italian or Russian better than chance.")
        assert "2 of 3 languages at chance" in hidden
    else:
        assert "no encoder reads" not in made.answer
        assert "chance" not in hidden
