"""The regression watch: quiet when nothing changed, loud when vectors or figures did, always against the pinned run."""

from __future__ import annotations

import dataclasses
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import capim.tasks.watch
from capim.flows.benchmark import RegressionError, watch
from capim.flows.config import RunConfig
from capim.flows.execution import start
from capim.store import EmbeddingStore
from capim.store.errors import WorkError
from capim.tasks.encoders import encode_images, load_encoder, spec_of
from capim.tasks.metrics import METRICS
from capim.tasks.reference.changes import WatchRule
from tests.command import command

pytestmark = pytest.mark.slow


def config_in(workspace: Path) -> RunConfig:
    """A watch of two models on twelve images."""
    return RunConfig(
        workspace=str(workspace),
        corpora=({"name": "few", "reader": "shapes", "n_scenes": 12},),
        encoders=("tiny-clip", "tiny-colpali"),
        replicates=200,
        device="cpu",
    )


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    return config_in(tmp_path)


@pytest.fixture(scope="module")
def watched_once(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A workspace in which ``ours`` was watched with the weights of tiny-clip, and the run; not to be changed."""
    workspace = tmp_path_factory.mktemp("watched-once")
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv("PREFECT_API_URL", raising=False)
        return workspace, start(watch, named(config_in(workspace), "tiny-clip")).run


@pytest.fixture
def first(watched_once: tuple[Path, str], config: RunConfig) -> str:
    """The run of that watch, in the workspace of the configuration."""
    shutil.copytree(watched_once[0], config.workspace, dirs_exist_ok=True)
    return watched_once[1]


def named(config: RunConfig, checkpoint: str, **changed: Any) -> RunConfig:
    """A watch of an encoder ``ours`` with the weights of a model of the catalog."""
    spec = spec_of(checkpoint)
    entry = {"name": "ours", "adapter": spec.adapter, "checkpoint": spec.checkpoint, "dim": spec.dim}
    many = ({"name": "many", "reader": "shapes", "n_scenes": 150},)
    return dataclasses.replace(
        config, corpora=many, encoders=({**entry, "options": dict(spec.options), **changed},), protocols=("t2i/all",)
    )


def watched(config: RunConfig) -> list[dict[str, Any]]:
    """The stored figures of all watches, the oldest first."""
    return EmbeddingStore.open(config.store_uri).rows("watched").sort_by("created").to_pylist()


def test_a_second_watch_finds_nothing_where_nothing_changed(config: RunConfig) -> None:
    first = start(watch, config)
    assert first.summary[0].startswith(f"run {first.run} is the baseline of ")
    assert {finding.verdict for finding in first.findings} == {"pinned"}
    few = "no drop on few can be significant at the level 8.2e-05: that takes 14 images of equal weight, and it has 12"
    assert first.summary[1] == f"{few}; one of 1 point or more warns"
    second = start(watch, config)
    assert second.findings == ()
    assert f"compared with pinned run {first.run} of 20" in second.summary[0]
    assert second.summary[1].startswith(
        "alarm level of this watch 8.2e-05: at most a 3 % chance of a false alarm per year"
    )
    assert {row["baseline"] for row in watched(config)} == {first.run}


def test_a_strict_watch_with_nothing_to_compare_with_fails_and_says_what_it_pinned(
    config: RunConfig, tmp_path: Path
) -> None:
    suite = tmp_path / "suite.toml"
    suite.write_text('encoders = ["tiny-clip"]\n[[corpus]]\nname = "few"\nreader = "shapes"\nn_scenes = 12\n')
    words = f"watch {suite} --strict --format json --quiet --replicates 200 --device cpu"
    printed = command(words, tmp_path, code=1)
    assert [(each["verdict"], each["subject"]) for each in printed.rows] == [("pinned", "tiny-clip on few")]
    assert printed.err.startswith("capim: nothing to compare with (--strict): [pinned] tiny-clip on few: watched for")
    assert command(words, tmp_path).rows == []
    suite.write_text(suite.read_text().replace("12", "13"))
    assert "the corpus has changed" in command(words, tmp_path, code=1).err


def test_vectors_that_a_model_no_longer_gives_fail_the_watch_and_its_record(
    config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(watch, config)

    def drifted(encoder: object, images: object) -> object:
        made = encode_images(encoder, images)  # type: ignore[arg-type]
        noise = np.random.default_rng(0).normal(scale=0.3, size=made.values.shape).astype(np.float32)
        return dataclasses.replace(made, values=made.values + noise)

    monkeypatch.setattr(capim.tasks.watch, "encode_images", drifted)
    monkeypatch.setattr(capim.tasks.watch, "library_versions", lambda: {"torch": "99"})
    with pytest.raises(WorkError, match=r"tiny-clip on few, images: 12 items encoded again.*below 0\.999") as caught:
        start(watch, config)
    assert "torch: " in str(caught.value)
    assert "captions:" not in str(caught.value)
    states = EmbeddingStore.open(config.store_uri).rows("runs").sort_by("started")["state"].to_pylist()
    assert states == ["completed", "failed"]
    suite = tmp_path / "suite.toml"
    suite.write_text('encoders = ["tiny-clip"]\n[[corpus]]\nname = "few"\nreader = "shapes"\nn_scenes = 12\n')
    printed = command(f"watch {suite} --format json --quiet", tmp_path, code=1)
    assert [finding["verdict"] for finding in printed.rows][:2] == ["fail", "note"]
    assert printed.err.startswith("capim: regression: [fail] tiny-clip on few, images")


def test_a_worse_revision_fails_by_a_paired_test_until_it_is_put_right(config: RunConfig, first: str) -> None:
    for _ in range(2):  # the baseline stays pinned: the second one compares with the same run
        with pytest.raises(WorkError) as caught:
            start(watch, named(config, "tiny-clip-plain"))
        assert "[fail] ours on many, t2i/all R@1: from " in str(caught.value)
        assert " points) since 20" in str(caught.value)
        assert f"compared with pinned run {first} of 20" in str(caught.value)
        assert "[note] weights of ours: checkpoint: " in str(caught.value)
        assert f"repeat the watch with `--baseline {watched(config)[-1]['run']}`" in str(caught.value)
    assert not [f for f in start(watch, named(config, "tiny-clip")).findings if f.verdict != "note"]


def test_a_drop_on_so_few_images_that_none_can_be_significant_warns_or_fails_as_the_rule_says(
    config: RunConfig,
) -> None:
    few = dataclasses.replace(named(config, "tiny-clip"), corpora=config.corpora)
    start(watch, few)
    worse = dataclasses.replace(few, encoders=named(config, "tiny-clip-plain").encoders)
    [drop] = [each for each in start(watch, worse).findings if each.verdict == "warn"]
    assert drop.message.endswith("not significant, as no drop of 12 images can be: that takes 14")
    with pytest.raises(RegressionError, match=r"\[fail\] ours on few: t2i/all R@1 from "):
        start(watch, worse, WatchRule(strict=True))


def test_figures_by_another_version_of_a_metric_are_no_drop(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    start(watch, named(config, "tiny-clip-plain"))
    before = watched(config)[-1]["value"]
    halved = {name: lambda *given, name=name: METRICS[name].values(*given) / 2 for name in ("success@1", "success@5")}
    for name, values in zip(("R@1", "R@5"), halved.values(), strict=True):
        monkeypatch.setitem(METRICS, name, dataclasses.replace(METRICS[name], values=values, version=2))
    done = start(watch, named(config, "tiny-clip"))  # which is better
    assert not [finding for finding in done.findings if finding.verdict != "note" or "fell" in finding.message]
    last = watched(config)[-1]
    assert last["baseline_value"] == before / 2 < last["value"] < before


@pytest.mark.usefixtures("first")
def test_a_corpus_that_changed_is_reported_as_not_comparable_until_a_run_with_it_is_pinned(config: RunConfig) -> None:
    grown = ({"name": "many", "reader": "shapes", "n_scenes": 151},)
    for _ in range(2):
        done = start(watch, dataclasses.replace(named(config, "tiny-clip"), corpora=grown))
        [warning] = [finding for finding in done.findings if finding.verdict == "warn"]
        assert "not comparable: the corpus has changed since 20" in warning.message
        assert re.search(r": 0 unchanged, 0 failed, 0 warned, [1-9]\d* not comparable", "\n".join(done.summary))
    pinned = dataclasses.replace(named(config, "tiny-clip"), corpora=grown, baseline=done.run)
    assert start(watch, pinned).findings == ()


def test_a_baseline_without_such_figures_is_refused_with_runs_that_have_some(
    config: RunConfig, first: str, tmp_path: Path
) -> None:
    n_runs = EmbeddingStore.open(config.store_uri).rows("runs").num_rows
    others = f"watch --corpora shapes --encoders tiny-clip --baseline {first} --protocols nope"
    said = command(others, tmp_path, code=2).err
    assert f"run '{first}' has no results of tiny-clip, only of ours" in said
    assert "leave --baseline out" in said
    assert "'nope'" in said  # all faults together
    assert EmbeddingStore.open(config.store_uri).rows("runs").num_rows == n_runs


@pytest.mark.usefixtures("first")
def test_the_sample_is_encoded_with_the_same_consent_to_remote_code_as_the_set(
    config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    consents = []

    def loaded(*args: Any, trust_remote_code: bool = False, **named: Any) -> Any:
        consents.append(trust_remote_code)
        return load_encoder(*args, **named)

    monkeypatch.setattr(capim.tasks.watch, "load_encoder", loaded)
    start(watch, named(config, "tiny-clip", remote_code=True))
    start(watch, named(config, "tiny-clip"))
    start(watch, dataclasses.replace(named(config, "tiny-clip"), trust_remote_code=True))
    assert consents == [True, False, True]
