"""Files of the hub: what is asked for and kept, what a user reads of trouble, and how a cut download goes on."""

from __future__ import annotations

import json
import re
import shutil
from collections import namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants
from huggingface_hub.utils import _http

from capim.flows.config import run_config
from capim.flows.planning import plan_run
from capim.store.errors import RequestError, WorkError
from capim.store.types import EncoderSpec
from capim.tasks import hub as ours
from capim.tasks.corpora import CORPORA, pinned
from capim.tasks.corpora.description import open_corpus
from capim.tasks.encoders import catalog
from capim.tasks.encoders.adapters import ADAPTERS
from capim.tasks.encoders.checkpoint import downloads_of, snapshot
from capim.tasks.hub import commit_of, folder_at, hub_json
from capim.tasks.hub.progress import DOWNLOADED, Progress, listening
from tests.corpora import hub_copies, local_copies
from tests.corpora.own_data import contents, refusal, write
from tests.hub.double import TOKEN, HubDouble
from tests.hub.models import ROWS

WEIGHTS = ADAPTERS["hf_dual"].weights
BIG = 3_000_000
Disk = namedtuple("Disk", "total used free")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubDouble]:
    """The double, which this process takes for the hub; it has one model of four files, two of them weights."""
    from datasets import config  # which takes over what is set when it is imported

    folder = tmp_path / "pushed"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "clip"}))
    (folder / "model.safetensors").write_bytes(bytes(range(250)) * (BIG // 250))
    (folder / "pytorch_model.bin").write_bytes(b"never wanted" * 10_000)
    (folder / "tokenizer.json").write_text("{}")
    with HubDouble() as double:
        double.push("models", "a/model", folder)
        monkeypatch.setattr(constants, "ENDPOINT", double.address)
        template = "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", double.address + template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(config, "HF_ENDPOINT", double.address)
        monkeypatch.setattr(config, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(config, "HF_DATASETS_CACHE", tmp_path / "datasets")
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setattr("time.sleep", lambda _: None)
        _http.close_session()
        yield double
        _http.close_session()


def files_below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def get() -> Path:
    return snapshot("a/model", commit_of("a/model", "main"), WEIGHTS)


def test_needed_files_are_downloaded_once_with_progress_in_megabytes(hub: HubDouble) -> None:
    seen: list[Progress] = []
    with listening(seen.append):
        folder = get()
    assert files_below(folder) == {"config.json", "model.safetensors", "tokenizer.json"}
    assert (folder / "model.safetensors").stat().st_size == BIG
    assert {each.unit for each in seen} == {DOWNLOADED}
    assert seen[0].work.startswith("downloading a/model (3 MB into ")
    assert (seen[0].done, seen[0].total) == (0, 3)
    assert seen[-1].done == pytest.approx(3, abs=0.01)
    asked = len(hub.asked)
    with listening(seen.append):
        assert get() == folder
    assert len(seen) == len([each for each in seen if each.unit == DOWNLOADED])
    assert [line for line in hub.asked[asked:] if "resolve" in line] == []


@pytest.mark.parametrize("offline", [True, False])
def test_a_model_whose_other_weights_were_left_out_is_whole_without_the_hub(
    hub: HubDouble, offline, monkeypatch
) -> None:
    """Before, the cache was asked for every file of the repository, and said that it lacks some."""
    folder = get()
    hub.away = True
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
    assert get() == folder
    (folder / "tokenizer.json").unlink()
    with pytest.raises(WorkError, match="cannot be reached for a/model"):
        get()
    with pytest.raises(WorkError, match="HF_HUB_OFFLINE is set.*hf download b/b" if offline else "cannot be reached"):
        commit_of("b/b", "main")


def test_a_download_cut_at_ten_places_goes_on_where_it_was_cut(hub: HubDouble, monkeypatch) -> None:
    """A piece that had not arrived whole is sent again; pieces are of 10 MB, here of 1,000 bytes."""
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1000)
    hub.cuts["model.safetensors"] = [1, 2000, 99_999, 1, 65_536, 1_000_000, 1, 300_500, 20, 500_000]
    folder = get()
    assert (folder / "model.safetensors").read_bytes() == bytes(range(250)) * (BIG // 250)
    assert hub.cuts["model.safetensors"] == []
    assert BIG <= hub.served["model.safetensors"] < BIG + 10 * 1000
    assert not list(folder.parents[1].rglob("*.incomplete"))


def test_a_download_that_is_given_up_leaves_no_half_file_and_the_next_command_keeps_whole_ones(hub: HubDouble) -> None:
    hub.cuts["model.safetensors"] = [0] * 7
    with pytest.raises(WorkError, match="the hub cannot be reached for a/model"):
        get()
    assert not list(Path(constants.HF_HUB_CACHE).rglob("*.incomplete"))
    before = hub.served.copy()
    hub.cuts.clear()
    get()
    assert hub.served["tokenizer.json"] == before["tokenizer.json"] == 2
    assert hub.served["model.safetensors"] == BIG


def test_a_revision_that_is_not_there_is_named_with_the_page_of_those_that_are(hub: HubDouble) -> None:
    with pytest.raises(RequestError, match=r"a/model has no revision 'none'; see https://.*/a/model/commits/main"):
        commit_of("a/model", "none")


def test_a_branch_that_moved_is_another_commit_and_the_old_one_stays(hub: HubDouble, tmp_path: Path) -> None:
    first = get()
    moved = shutil.copytree(tmp_path / "pushed", tmp_path / "moved")
    (moved / "config.json").write_text(json.dumps({"model_type": "siglip"}))
    commit = hub.push("models", "a/model", moved)
    sent = hub.served["model.safetensors"]
    second = get()
    assert second.name == commit != first.name
    assert hub.served["model.safetensors"] == sent, "the same bytes are not fetched again"
    types = [hub_json("a/model", each.name, "config.json")["model_type"] for each in (first, second)]
    assert types == ["clip", "siglip"]


def test_too_many_requests_is_waited_for_in_a_download_and_named_where_it_is_not(hub: HubDouble) -> None:
    with pytest.raises(WorkError, match="the hub temporarily refuses a/model"):
        hub.limited = 1
        commit_of("a/model", "main")
    commit = commit_of("a/model", "main")
    hub.limited = 3
    assert snapshot("a/model", commit, WEIGHTS).is_dir()


TERMS = "a/model is gated: accept its terms at https://huggingface.co/a/model while logged in, then set HF_TOKEN"


@pytest.mark.parametrize(
    ("gate", "token", "kind", "message"),
    [
        ("terms", "", WorkError, TERMS),  # 401
        ("terms", "hf_of_somebody", WorkError, TERMS),  # 403
        ("private", "", RequestError, r"a/model is not on the hub \(or is private: set HF_TOKEN\)"),
    ],
)
def test_who_may_not_read_is_told_how_to_in_one_line(hub, monkeypatch, gate, token, kind, message) -> None:
    hub.repositories["models", "a/model"].gate = gate
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    else:
        monkeypatch.delenv("HF_TOKEN")
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", "/nowhere")
    with pytest.raises(kind, match=message) as raised:
        commit_of("a/model", "main")
    assert "\n" not in str(raised.value)
    commit = next(iter(hub.repositories["models", "a/model"].commits))
    with pytest.raises(kind, match=message):
        hub_json("a/model", commit, "config.json")
    with pytest.raises(kind, match=message):
        snapshot("a/model", commit, WEIGHTS)
    assert not list(Path(constants.HF_HUB_CACHE).rglob("config.json"))


def test_a_file_that_is_there_and_cannot_be_had_is_an_error_and_not_an_empty_one(hub: HubDouble) -> None:
    """Before, a base model that a connection hid was left out of the identity of an adapter."""
    commit = commit_of("a/model", "main")
    assert hub_json("a/model", commit, "adapter_config.json") == {}
    hub.away = True
    with pytest.raises(WorkError, match="cannot be reached"):
        hub_json("a/model", commit, "config.json")


def test_what_would_be_downloaded_is_known_before_and_nothing_afterwards(hub: HubDouble, tmp_path: Path) -> None:
    commit = commit_of("a/model", "main")
    spec = EncoderSpec(name="x", adapter="hf_dual", checkpoint="a/model", revision=commit, dim=8)
    sizes = {"a/model/config.json": 22, "a/model/model.safetensors": BIG, "a/model/tokenizer.json": 2}
    assert downloads_of(spec) == sizes
    row = {"name": "x", "adapter": "hf_dual", "checkpoint": "a/model", "dim": 8}
    run = run_config({"corpora": ["shapes"], "encoders": [row], "sample": 4, "workspace": str(tmp_path / "w")})
    cache = re.escape(constants.HF_HUB_CACHE)
    assert re.search(rf"; 3 MB to download into {cache}, where [\d.]+ [GM]B are free; ", plan_run(run).summary)
    assert not list(Path(constants.HF_HUB_CACHE).rglob("*.safetensors"))
    get()
    assert downloads_of(spec) == {}
    assert "download" not in plan_run(run).summary


def test_files_that_do_not_fit_are_not_begun(hub: HubDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Disk(10**9, 10**9 - 10**6, 10**6))
    with pytest.raises(WorkError, match=r"a/model takes 3 MB in the hub's cache .*, where 1 MB are free; make space"):
        get()
    assert not [line for line in hub.asked if line.endswith("model.safetensors")]


def test_of_each_adapter_only_its_weights_are_fetched(hub: HubDouble, tmp_path: Path) -> None:
    folder = tmp_path / "several"
    folder.mkdir()
    for name in ("open_clip_config.json", "open_clip_pytorch_model.bin", "model.safetensors", "m.onnx"):
        (folder / name).write_text("{}")
    found: dict[str, set[str]] = {}
    for adapter in ("openclip", "hf_dual", ""):
        name = f"some/{adapter or 'related'}"
        commit = hub.push("models", name, folder)
        found[name] = files_below(snapshot(name, commit, ADAPTERS[adapter].weights if adapter else ()))
    assert found == {
        "some/openclip": {"open_clip_config.json", "open_clip_pytorch_model.bin"},
        "some/hf_dual": {"open_clip_config.json", "model.safetensors"},
        "some/related": {"open_clip_config.json"},
    }


def test_data_sets_take_room_twice_and_their_messages_name_their_page(hub: HubDouble, tmp_path, monkeypatch) -> None:
    commit = hub.push("datasets", "a/set", tmp_path / "pushed")
    every: Callable[..., list[str]] = list
    assert folder_at("a/set", commit_of("a/set", "main", kind="dataset"), every, kind="dataset").name == commit
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Disk(10**9, 10**9, 4 * 10**6))
    other = hub.push("datasets", "b/set", tmp_path / "pushed")
    with pytest.raises(WorkError, match="b/set takes 6 MB in the hub's cache"):
        folder_at("b/set", other, every, kind="dataset")
    with pytest.raises(RequestError, match=r"https://huggingface\.co/datasets/c/set"):
        commit_of("c/set", "main", kind="dataset")
    assert ours.hub_error(OSError(), "b/set", other, "dataset").args[0].endswith("--repo-type dataset")


def test_a_data_set_with_a_script_is_read_from_its_files_or_refused_in_one_line(hub: HubDouble, tmp_path: Path) -> None:
    corpus = open_corpus(local_copies.flickr30k_karpathy(tmp_path / "copy").description)
    hub_copies.flickr30k_karpathy(tmp_path / "set", tmp_path / "copy", contents(corpus))
    name = CORPORA["flickr30k-karpathy"].hub
    hub.push("datasets", name, tmp_path / "set", commit=pinned(name) or "")
    assert open_corpus("flickr30k-karpathy").fingerprint == corpus.fingerprint
    assert hub.served["test_1k_flickr.csv"]
    script, table = "raise SystemExit('a script ran')", "image,caption\na.jpg,red\n"
    hub.push("datasets", "a/set", write(tmp_path / "scripted", {"set.py": script, "table.csv": table}))
    refused = r"a/set \(split test\): .*Dataset scripts are no .*`hf download a/set --repo-type dataset`.*"
    assert re.fullmatch(refused, refusal({"reader": "hub", "dataset": "a/set"}))
    assert not hub.unknown


def test_every_row_of_the_catalog_that_is_on_the_hub_is_rehearsed() -> None:
    elsewhere = {n for n, e in catalog().items() if e.checkpoint == e.adapter or e.checkpoint.startswith("package:")}
    assert catalog().keys() - elsewhere == set(ROWS)
