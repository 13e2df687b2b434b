"""A wrong word is answered with the nearest right one; singular and plural options mean the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from capim.flows.commands import parse
from capim.flows.config import PLURALS
from tests.command import command
from tests.flows.commands import Option, leaf_commands

SHAPES = "shapes-sample12"
TYPOS = {
    "command": ("reslts", "results"),
    "command of a command": ("store inf", "info"),
    "option": ("run --corpra shapes --encoders tiny-clip", "--corpora"),
    "option with its value": ("run --bach-size=3 --encoders tiny-clip", "--batch-size"),
    "abbreviated option": ("run --rep 100", "--replicates"),
    "choice": ("list encodrs", "encoders"),
    "known corpus": ("list ids winogruond", "winoground"),
    "stored encoder of a search": (f"search x --encoder TinyClip --corpus {SHAPES}", "tiny-clip"),
    "part of a stored corpus": ("results --corpus winoground", "shapes-winoground-sample12"),
    "protocol of results": ("results --protocol i2t-any", "i2t/any"),
    "metric": ("results --metric r@01", "R@1"),
    "column": ("results --columns encoder,valu", "value"),
    "column of a query": ("query 'SELECT encodr FROM results'", "encoder"),
    "column of a table's short name": ("query 'SELECT r.valu FROM results r'", "value"),
    "format of a file": ("export results --to x.cvs", "csv"),
    "table of a query": ("query 'SELECT * FROM reslts'", "results"),
}


WITHOUT_STORE = ("list", "check")


@pytest.mark.parametrize(("words", "meant"), TYPOS.values(), ids=TYPOS)
def test_a_wrong_word_is_answered_with_the_nearest_right_one(words: str, meant: str, small_demo: Path) -> None:
    out, error = command(words, None if words.startswith(WITHOUT_STORE) else small_demo, code=2)
    assert out == ""
    assert f"id you mean {meant!r}?" in error.replace('"', "'")  # "Did" in the words of cyclopts
    assert error.startswith("capim: ")
    assert "Traceback" not in error


@pytest.mark.parametrize("form", ["table", "json", "csv"])
@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("query \"SELECT * FROM results WHERE encoder = 'tiny-clap'\"", "'tiny-clap'; did you mean 'tiny-clip'?"),
        ("query \"SELECT * FROM results WHERE metric = 'r@5'\"", "'r@5'; did you mean 'R@5'?"),
        (
            f"results --corpus {SHAPES} --protocol winoground",
            f"instead of corpus {SHAPES}: more-quadruples-sample12, shapes-winoground-sample12",
        ),
    ],
)
def test_no_rows_is_exit_code_1_with_the_nearest_values(words: str, hint: str, form: str, small_demo: Path) -> None:
    printed = command(f"{words} --format {form}", small_demo, code=1)
    assert "no rows" in printed.err
    assert hint in printed.err
    assert form != "json" or printed.rows == []


SPELT = [
    (words, option, spelling)
    for words, options in leaf_commands().items()
    for option in options
    for spelling in option.spellings[:1]
    if spelling.lstrip("-") in {*PLURALS, *PLURALS.values()}
]


def test_both_spellings_are_in_more_than_thirty_places() -> None:
    assert len(SPELT) > 30


@pytest.mark.parametrize(("words", "option", "spelling"), SPELT, ids=[f"{words} {each}" for words, _, each in SPELT])
def test_singular_and_plural_are_one_option_in_every_command(words: str, option: Option, spelling: str) -> None:
    twins = {f"--{one}": f"--{several}" for one, several in PLURALS.items()}
    other = twins.get(spelling) or next(one for one, several in twins.items() if several == spelling)
    assert set(option.spellings) == {spelling, other}
    options = leaf_commands()[words]
    if option.several and all(each.spellings for each in options):  # no arguments
        required = [word for each in options if each.required and each != option for word in (*each.spellings[:1], "x")]
        parsed = parse([*words.split(), *required, spelling, "a,b", other, "c"]).arguments.arguments
        assert parsed[option.dest] == ("a", "b", "c"), "repeated names are all taken"


@pytest.mark.parametrize("words", ["results --encoder ' , '", "compare --protocols="])
def test_an_option_for_names_without_a_name_is_refused_not_taken_for_all(words: str, tmp_path: Path) -> None:
    out, error = command(words, tmp_path / "workspace", code=2)
    assert out == ""
    assert "all are taken" in error
    assert not (tmp_path / "workspace").exists()


def test_an_option_that_takes_one_name_refuses_a_second() -> None:
    error = command("search x --encoder tiny-clip --encoders tiny-colpali --corpus shapes", code=2).err
    assert "--encoders specified multiple times" in error
