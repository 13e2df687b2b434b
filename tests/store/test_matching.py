"""Rows of files that name all items by their ids, which are compared as one, match as those that are looked up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capim.store.errors import RequestError
from capim.store.sets import matching
from capim.store.sets.matching import Items, match
from capim.store.types import MODALITIES
from tests.store.toy import make_corpus

IMAGES, CAPTIONS = (Items.of_corpus(make_corpus(6), modality) for modality in MODALITIES)
NAMES = ["id", "image_id", "caption_id", "text", "query", "row", "their own"]


@given(items=st.sampled_from([IMAGES, CAPTIONS]), name=st.sampled_from(NAMES), data=st.data())
def test_all_ids_match_as_each_does(items: Items, name: str, data: st.DataObject) -> None:
    cells: list[str | None] = data.draw(st.permutations(items.ids))
    for at in data.draw(st.sets(st.integers(0, len(cells) - 1), max_size=1)):
        cells[at] = data.draw(st.sampled_from([None, "other", *items.ids]))
    columns = {name: cells, **({"uid": items.ids} if data.draw(st.booleans()) else {})}
    with patch.object(matching, "_all_ids", lambda *_: None):
        expected = _outcome(columns, items)
    assert _outcome(columns, items) == expected


def _outcome(columns: Mapping[str, Sequence[object]], items: Items) -> object:
    try:
        one = match(columns, len(items.ids), items)
    except RequestError as fault:
        return fault.faults
    return one.positions.tolist(), one.by, one.how


def test_a_file_without_ids_has_no_names_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of ten million items take a minute."""

    def looked_up(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(matching, "names_of", looked_up)
    items = Items.of_corpus(make_corpus(6), "image")
    np.testing.assert_array_equal(match({}, 6, items).positions, np.arange(6))
    assert match({"id": items.ids[::-1]}, 6, items).positions.tolist() == [5, 4, 3, 2, 1, 0]


def test_two_columns_of_one_usual_name_are_refused() -> None:
    both = {"image_id": IMAGES.ids, "Image-ID": IMAGES.ids[::-1]}
    with pytest.raises(RequestError, match="columns `image_id` and `Image-ID` mean the same"):
        match(both, 6, IMAGES)
    assert match(both, 6, IMAGES, by_position=True).by == "position"
