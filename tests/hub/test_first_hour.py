"""The first hour on a connected machine, with rows of the catalog and corpora by their names; all: ``make faults``."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from capim.store import EmbeddingStore
from capim.tasks.encoders import catalog
from tests.hub.double import HubDouble
from tests.hub.first_hour import FirstHour
from tests.hub.models import ROWS

CLIP, COLPALI = "openai/clip-vit-large-patch14-336", "vidore/colpali-v1.3"
WORDS = ("embed", "--device", "cpu", "--encoders", "openai-clip-l-336,colpali-v1.3", "--corpora")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def hour(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FirstHour]:
    with HubDouble() as hub:
        made = FirstHour(hub, tmp_path_factory.mktemp("first-hour"))
        made.publish(encoders=["openai-clip-l-336", "colpali-v1.3"], corpora=["coco-karpathy", "winoground"])
        yield made


def test_a_plan_says_what_would_be_downloaded_and_how_much_room_there_is(hour: FirstHour) -> None:
    done = hour.capim("run", "--dry-run", "--corpora", "shapes", "--sample", "4", *WORDS[1:-1])
    assert done.code == 0, done.err
    line = rf"; \d MB to download into {hour.home}/hub/hub, where [\d.]+ [GM]B are free; "
    assert re.search(line, done.out + done.err)
    assert not hour.hub.served["model.safetensors"]


def test_cut_refused_for_a_while_and_repeated_it_ends_well(hour: FirstHour) -> None:
    hour.hub.cuts = {"model.safetensors": [1000, 300_000], "adapter_model.safetensors": [10]}
    hour.hub.limited = 1
    done = hour.capim(*WORDS, "coco-karpathy,winoground")
    assert done.code == 0, done.err
    assert not hour.hub.unknown
    assert f"downloading {CLIP} (1 MB into {hour.home}/hub/hub, " in done.err
    assert "Generating" not in done.err, "bars of libraries"
    store = EmbeddingStore.open(str(hour.place / "ws" / "store"))
    assert {row.name for row in store.corpora()} == {"coco-karpathy", "winoground"}
    hour.hub.away = True
    again = hour.capim(*WORDS, "coco-karpathy,winoground", HF_HUB_OFFLINE="1")
    assert again.code == 0, again.err
    assert again.out.count(" 0 items encoded, ") + again.err.count(" 0 items encoded, ") == 4


def test_a_data_set_with_a_script_is_read_from_its_files_or_refused_in_one_line(hour: FirstHour) -> None:
    hour.hub.away = False
    hour.publish(encoders=[], corpora=["flickr30k-karpathy"])
    done = hour.capim("check", "flickr30k-karpathy")
    assert done.code == 0, done.err
    assert "flickr30k-karpathy" in done.out
    assert hour.hub.served["test_1k_flickr.csv"]
    assert not hour.hub.unknown
    scripted = hour.place / "scripted"
    scripted.mkdir()
    (scripted / "set.py").write_text("raise SystemExit('a script ran')")
    (scripted / "table.csv").write_text("image,caption\na.jpg,red\n")
    hour.hub.push("datasets", "a/set", scripted)
    suite = hour.place / "scripted.toml"
    suite.write_text('name = "s"\nreader = "hub"\ndataset = "a/set"\n')
    done = hour.capim("check", str(suite))
    assert (done.code, done.err) == (2, f"checking {suite} as a corpus\n")
    refused = r"fault: a/set \(split test\): .*Dataset scripts are no .*`hf download a/set --repo-type dataset`.*\n"
    assert re.fullmatch(refused, done.out)


def test_every_row_is_rehearsed() -> None:
    on_hub = {name for name, entry in catalog().items() if entry_is_of_hub(entry.checkpoint, entry.adapter)}
    assert on_hub == set(ROWS)


def entry_is_of_hub(checkpoint: str, adapter: str) -> bool:
    return checkpoint != adapter and not checkpoint.startswith("package:")
