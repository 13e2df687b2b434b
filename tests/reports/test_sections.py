"""What holds of every row of SECTIONS, those of installed packages among them; a new row is found here by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from capim.reports.elements.page import Section
from capim.reports.rows.reading import read_report_data
from capim.reports.write import SECTIONS


@pytest.fixture(scope="module")
def data():
    from tests.reports.stand_in import demo

    return read_report_data(demo())


@pytest.mark.parametrize("name", SECTIONS)
def test_a_section_is_made_of_stored_rows_and_the_same_rows_make_the_same_section(name, data) -> None:
    made = SECTIONS[name](data)
    assert isinstance(made, Section)
    assert SECTIONS[name](data) == made
    if made.blocks:
        assert made.id
        assert made.title
        assert all(block.kind for block in made.blocks)


def test_the_folder_of_a_users_own_code_is_not_shown(data) -> None:
    code = {name: replace(spec, adapter="/home/ada/my_loader.py:load") for name, spec in data.specs.items()}
    shown = [str(SECTIONS[name](replace(data, specs=code))) for name in ("provenance", "leaderboard")]
    assert all("my_loader.py:load" in text and "/home/ada" not in text for text in shown)
