"""What holds of every row of SECTIONS, those of installed packages among them; a new row is found here by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from capim.reports.elements.page import Picker, Section
from capim.reports.rows.reading import read_report_data
from capim.reports.write import SECTIONS
from tests.reports.large import coco
from tests.reports.stand_in import result


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


def test_a_multilingual_corpus_shows_what_is_stored_over_all_languages() -> None:
    store = coco(n_images=8, n_models=2, n_languages=3)
    over = {"": 0.5, "@without-en": 0.25, "@speakers": 0.75}
    figures = [(f"t2i/*/*{of}", "R@1", value) for of, value in over.items()]
    for protocol, metric, value in (*figures, ("t2i/*/*@without-en", "R@1_eta2_language", 0.875)):
        result(store, "siglip2-so400m", "coco-sm", protocol, metric, value, half=0.01)
    [picker] = SECTIONS["leaderboard"](read_report_data(store)).blocks
    assert isinstance(picker, Picker)
    shown = {label: table.rows[0] for corpus, label, table in picker.views if corpus == "coco-sm"}
    found = {label: (row[1].text, row[1].note) for label, row in shown.items() if "t2i/*" in label}
    assert {*found.values()} == {("50.0", "49.0–51.0"), ("25.0", "24.0–26.0"), ("75.0", "74.0–76.0")}
    assert ("87.5", "86.5–88.5") in {(cell.text, cell.note) for row in shown.values() for cell in row}
