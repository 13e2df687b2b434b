"""The forms of tables in docs/own_data.md are those of store/forms.toml.

After a change of the forms: ``python -m tests.test_forms`` writes the tables of the page again.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from capim.store.errors import RequestError
from capim.store.forms import FORMS, NAMES, given_columns, renamed

PAGE = Path(__file__).resolve().parents[1] / "docs" / "own_data.md"
START, END = "<!-- made by python -m tests.test_forms -->\n", "<!-- end of what is made -->\n"


def tables() -> str:
    """The forms with their roles, and the roles with the usual names of their columns."""
    lines = ["| form | a row is | needs | may have: what a missing one means |", "|---|---|---|---|"]
    for form in FORMS.values():
        may = "; ".join(f"`{role}`: {missing}" for role, missing in form.may.items())
        lines.append(f"| `{form.name}` | {form.row} | {', '.join(f'`{role}`' for role in form.needs)} | {may} |")
    lines += ["", "| role | usual names of its column |", "|---|---|"]
    lines += [f"| `{role}` | {', '.join(names)} |" for role, names in NAMES.items()]
    for form in FORMS.values():
        lines += [f"| `{role}` of `{form.name}` | {', '.join(names)} |" for role, names in form.called.items()]
    return "\n".join(lines) + "\n"


def test_the_page_shows_the_forms_of_the_code() -> None:
    assert f"{START}\n{tables()}\n{END}" in PAGE.read_text(encoding="utf-8"), "run: python -m tests.test_forms"


def test_every_role_of_a_form_has_names_and_no_role_needs_the_name_of_another() -> None:
    for form in FORMS.values():
        assert all(form.names(role) for role in form.roles)
        assert form.fits([form.names(role)[0] for role in form.needs])


def test_a_column_that_the_user_names_takes_the_place_of_one_of_the_usual_name() -> None:
    columns = {"query": "q", "document": "d"}
    assert renamed(["q", "query", "d", "grade"], columns, FORMS["judgements"], "f") == {
        "q": "query",
        "d": "document",
        "grade": "grade",
    }
    with pytest.raises(RequestError) as caught:
        renamed(["q"], {"qury": "q", "grade": "g"}, FORMS["judgements"], "f")
    assert [fault.partition(";")[0] for fault in caught.value.faults] == [
        "f: columns has the unknown role 'qury'",
        "f: no column 'g' for role 'grade'",
    ]


@pytest.mark.parametrize("word", ["caption", "=title", "caption="])
def test_a_word_that_is_no_role_and_column_is_refused(word: str) -> None:
    with pytest.raises(RequestError, match="--columns: expected ROLE=COLUMN, such as caption=title"):
        given_columns([word])


if __name__ == "__main__":
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
    PAGE.write_text(f"{before}{START}\n{tables()}\n{END}{rest.partition(END)[2]}", encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")
