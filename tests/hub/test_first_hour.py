"""The first hour on a connected machine, with rows of the catalog and corpora by their names; all: ``make faults``."""

from __future__ import annotations

from pathlib import Path

import pytest

from capim.store import EmbeddingStore
from tests.hub.double import HubDouble
from tests.hub.first_hour import FirstHour

CORPORA, ENCODERS = ["coco-karpathy", "winoground"], ["openai-clip-l-336", "colpali-v1.3"]
WORDS = ("embed", "--device", "cpu", "--encoders", ",".join(ENCODERS), "--corpora", ",".join(CORPORA))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_cut_refused_for_a_while_and_repeated_it_ends_well(tmp_path: Path) -> None:
    with HubDouble() as hub:
        hour = FirstHour(hub, tmp_path / "hour")
        hour.publish(encoders=ENCODERS, corpora=CORPORA)
        hub.cuts = {"model.safetensors": [1000, 300_000], "adapter_model.safetensors": [10]}
        hub.limited = 1
        done = hour.capim(*WORDS)
        assert done.code == 0, done.err
        assert not hub.unknown
        assert f"downloading openai/clip-vit-large-patch14-336 (1 MB into {hour.home}/hub/hub, " in done.err
        assert "Generating" not in done.err, "bars of libraries"
        store = EmbeddingStore.open(str(hour.place / "ws" / "store"))
        assert {row.name for row in store.corpora()} == {*CORPORA}
        hub.away = True
        again = hour.capim(*WORDS, HF_HUB_OFFLINE="1")
        assert again.code == 0, again.err
        assert again.out.count(" 0 items encoded, ") + again.err.count(" 0 items encoded, ") == 4
