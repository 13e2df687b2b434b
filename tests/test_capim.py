"""The Python face: `import capim` does what the command line does, and gives frames and arrays."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import capim
from flows.commands.declare import STEP_FIELDS
from tasks.corpora.readers.shapes import read_shapes
from tests.random_store import OTHER, SPECS, random_store

ROOT = Path(__file__).resolve().parents[1]
N_SCENES = 20
QUICK: Any = {"replicates": 100, "protocols": "t2i/all"}


def first_three(outcomes, k=3):  # type: ignore[no-untyped-def]
    """Found among the first three."""
    return outcomes.rank_worst <= k


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> capim.Workspace:
    """Three encoders of random vectors, evaluated."""
    folder = tmp_path_factory.mktemp("capim") / "workspace"
    random_store(folder / "store", read_shapes(n_scenes=N_SCENES), (*SPECS, OTHER))
    opened = capim.open(folder, quiet=True)
    opened.evaluate(**QUICK)
    return opened


def test_results_are_a_frame_that_is_shown_short_and_keeps_its_digits(workspace: capim.Workspace) -> None:
    frame = workspace.results(metrics=["R@1", "MRR"], encoders="one,other")
    assert isinstance(frame, pd.DataFrame)
    assert list(frame.columns[:5]) == ["encoder", "corpus", "protocol", "metric", "value"]
    assert list(frame.index) == [0, 1, 2, 3]
    assert len(str(frame).splitlines()) == 5
    mrr = frame.query("metric == 'MRR'")
    assert f"{mrr.value.iloc[0]:.4f}" in str(mrr)
    assert round(mrr.value.iloc[0], 4) != mrr.value.iloc[0]
    assert {"interval_method", "seed"} <= {*workspace.results(wide=True).columns}


def test_names_that_the_store_does_not_have_are_errors_with_the_nearest_and_no_rows_say_why(
    workspace: capim.Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(capim.RequestError, match="did you mean 'other'"):
        workspace.results(encoders="othe")
    assert workspace.sql("SELECT * FROM results WHERE encoder = 'oter'").empty
    assert "did you mean 'other'" in capsys.readouterr().err
    with pytest.raises(capim.CapimError, match="option 'replicate' is unknown; did you mean 'replicates'"):
        workspace.evaluate(replicate=3)  # type: ignore[call-arg]
    with pytest.raises(capim.RequestError, match="option 'margin' is unknown"):
        workspace.evaluate(margin=3)  # type: ignore[call-arg]
    with pytest.raises(capim.RequestError, match="no corpora"):
        workspace.run()
    with pytest.raises(ValueError, match="compare takes two encoders"):
        workspace.compare("one")


def test_two_encoders_are_compared_in_the_order_given(workspace: capim.Workspace) -> None:
    for a, b, sign in (("one", "other", 1), ("other", "one", -1)):
        frame = workspace.compare(a, b, **QUICK)
        assert {*frame.encoder_a} == {a}
        assert frame.family.iloc[0] == "headline"
        values = workspace.results(protocols="t2i/all", metrics="R@1").set_index("encoder").value
        row = frame[frame.metric == "R@1"].iloc[0]
        assert row.difference == pytest.approx(sign * (values["one"] - values["other"]))
        assert row.ci_low <= row.difference <= row.ci_high
        assert {*frame.state.dropna()} <= {"better", "worse", "equivalent", "undecided"}


def test_a_function_is_a_metric_with_interval_and_test(workspace: capim.Workspace) -> None:
    frame = workspace.evaluate(metric=first_three, **QUICK)
    assert {*frame.metric} == {f"{__name__}:first_three"}
    assert frame.value.is_monotonic_decreasing
    assert (frame.ci_low < frame.ci_high).all()
    assert frame.against.tolist() == [frame.encoder[1], frame.encoder[0], frame.encoder[0]]
    assert frame.state.isin(["better", "worse", "equivalent", "undecided"]).all()
    stored = workspace.results(metrics=frame.metric[0])
    assert stored.value.tolist() == frame.value.tolist()
    pairs = workspace.compare("other", "one", metric=first_three, **QUICK)
    assert pairs.encoder_a.tolist() == ["other"]
    two = workspace.evaluate(metric=functools.partial(first_three, k=2), encoders="one", **QUICK)
    assert two.metric.tolist() == [f"{__name__}:first_three(k=2)"]


def test_a_metric_without_a_name_needs_one(workspace: capim.Workspace) -> None:
    with pytest.raises(capim.RequestError, match="function with a name"):
        workspace.evaluate(metric=lambda outcomes: outcomes.rank_best)
    with pytest.raises(capim.RequestError, match=r"needs a group and a colon, .*'own:rank'"):
        capim.Metric(name="rank", function=lambda outcomes: outcomes.rank_best)
    with pytest.raises(capim.RequestError, match="must take outcomes or block"):
        capim.Metric(name="own:rank", function=lambda ranks: ranks)
    metric = capim.Metric(name="own:rank", function=lambda outcomes: outcomes.rank_best, lower_is_better=True)
    frame = workspace.evaluate(metric=metric, **QUICK)
    assert frame.state.iloc[0] != "better" or frame.difference.iloc[0] < 0


def test_vectors_outcomes_and_sql(workspace: capim.Workspace) -> None:
    vectors = workspace.vectors(encoder="one", corpus="shapes", modality="image")
    assert vectors.matrix.shape == (N_SCENES, 8)
    assert len(vectors.ids) == N_SCENES
    ranks = workspace.outcomes(encoders=["one"], protocols="t2i/all").rank_worst
    counted = workspace.sql("SELECT rank_worst FROM outcomes WHERE encoder = 'one' AND protocol = 't2i/all'")
    np.testing.assert_array_equal(np.sort(ranks), np.sort(counted.rank_worst))


def test_the_options_of_every_step_are_those_of_the_command_line() -> None:
    options = {"run": capim.Run, "embed": capim.Embedding, "evaluate": capim.Evaluation, "compare": capim.Tests}
    for step, typed in options.items():
        assert {*typed.__annotations__} == {*STEP_FIELDS[step]} - {"protocols"}, step


def test_the_functions_of_the_module_are_methods_of_the_default_workspace(
    workspace: capim.Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPIM_WORKSPACE", str(workspace.workspace))
    assert len(capim.results(metrics="R@1")) == 3
    assert set(capim.__all__) <= set(dir(capim)) | {"Metric", "Encoder"}


def test_importing_it_is_light_and_nothing_is_written_into_the_home_folder(
    workspace: capim.Workspace, tmp_path: Path
) -> None:
    heavy = ("torch", "transformers", "lancedb", "lance", "prefect", "pandas", "scipy", "rich", "PIL", "pydantic")
    program = f"""
import sys, capim
assert not [name for name in {heavy!r} if name in sys.modules], [name for name in {heavy!r} if name in sys.modules]
workspace = capim.open({workspace.workspace!r})
print(len(workspace.results(metrics="R@1")))
print(workspace.evaluate(protocols="t2i/all", replicates=100).shape)
"""
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("PREFECT", "DO_NOT", "CAPIM", "XDG", "HF"))}
    environment = {**kept, "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("3\n")
    assert "server" not in done.stderr
    assert [*tmp_path.rglob("*")] == []
