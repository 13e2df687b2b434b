"""The regression watch: quiet when nothing changed, loud when vectors or figures did, always against the pinned run."""

from __future__ import annotations

import dataclasses
import re
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


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    """A watch of two models on twelve images."""
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    return RunConfig(
        workspace=str(tmp_path),
        corpora=({"name": "few", "reader": "shapes", "n_scenes": 12},),
        encoders=("tiny-clip", "tiny-colpali"),
        replicates=200,
        device="cpu",
    )


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


def test_a_drop_on_so_few_images_that_none_can_be_significant_warns_or_fails_as_the_rule_says(
    config: RunConfig,
) -> None:
    few = dataclasses.replace(named(config, "tiny-clip"), corpora=config.corpora)
    start(watch, few)
    worse = dataclasses.replace(few, encoders=named(config, "tiny-clip-plain").encoders)
    findings = start(watch, worse).findings
    assert {each.verdict for each in findings if each.subject == "weights of ours"} == {"note"}
    [drop] = [each for each in findings if each.verdict == "warn"]
    assert drop.message.endswith("not significant, as no drop of 12 images can be: that takes 14")
    with pytest.raises(RegressionError, match=r"\[fail\] ours on few: t2i/all R@1 from ") as caught:
        start(watch, worse, WatchRule(strict=True))
    assert f"repeat the watch with `--baseline {watched(config)[-1]['run']}`" in str(caught.value)


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


def test_a_corpus_that_changed_is_reported_as_not_comparable_until_a_run_with_it_is_pinned(config: RunConfig) -> None:
    start(watch, named(config, "tiny-clip"))
    grown = ({"name": "many", "reader": "shapes", "n_scenes": 151},)
    for _ in range(2):
        done = start(watch, dataclasses.replace(named(config, "tiny-clip"), corpora=grown))
        [warning] = [finding for finding in done.findings if finding.verdict == "warn"]
        assert "not comparable: the corpus has changed since 20" in warning.message
        assert re.search(r": 0 unchanged, 0 failed, 0 warned, [1-9]\d* not comparable", "\n".join(done.summary))
    pinned = dataclasses.replace(named(config, "tiny-clip"), corpora=grown, baseline=done.run)
    assert start(watch, pinned).findings == ()


def test_the_sample_is_encoded_with_the_same_consent_to_remote_code_as_the_set(
    config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    consents = []

    def loaded(*args: Any, trust_remote_code: bool = False, **named: Any) -> Any:
        consents.append(trust_remote_code)
        return load_encoder(*args, **named)

    start(watch, named(config, "tiny-clip"))
    monkeypatch.setattr(capim.tasks.watch, "load_encoder", loaded)
    start(watch, named(config, "tiny-clip", remote_code=True))
    start(watch, named(config, "tiny-clip"))
    start(watch, dataclasses.replace(named(config, "tiny-clip"), trust_remote_code=True))
    assert consents == [True, False, True]
