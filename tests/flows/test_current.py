"""Of earlier runs, revisions of an encoder, states of a corpus and versions of a metric nothing is shown by default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import capim
from capim.reports.rows.reading import read_report_data
from capim.reports.rows.snapshot import state_after
from capim.store.errors import RequestError
from capim.store.schema import Result
from capim.tasks.corpora.readers.shapes import read_shapes
from capim.tasks.metrics import METRICS
from tests.command import command, json_rows
from tests.random_store import OTHER, SPECS, random_store

pytestmark = pytest.mark.slow  # whole suites of commands

ONE, SECOND = SPECS[0], replace(SPECS[0], revision="a2")
EARLIER, CORPUS = read_shapes(n_scenes=4), read_shapes(n_scenes=5)
QUICK: Any = {"replicates": 100, "protocols": "t2i/all"}
STATES = {ONE.name: SECOND.fingerprint, OTHER.name: OTHER.fingerprint, "shapes": CORPUS.fingerprint}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> capim.Workspace:
    """Two states of a corpus, two revisions of an encoder, figures of two runs, and a metric of two versions."""
    folder = tmp_path_factory.mktemp("states")
    opened = capim.open(folder, quiet=True)
    for corpus, specs in ((EARLIER, (ONE, OTHER)), (CORPUS, (ONE, OTHER)), (CORPUS, (SECOND,))):
        random_store(folder / "store", corpus, specs, signal=5.0)
        opened.evaluate(**QUICK)
    for seed in (0, 1):
        opened.compare(seed=seed, **QUICK)
    opened.evaluate(seed=1, **QUICK)
    with pytest.MonkeyPatch.context() as changed:
        changed.setitem(METRICS, "MRR", replace(METRICS["MRR"], version=99))
        opened.evaluate(encoders=OTHER.name, seed=1, **QUICK)
    return opened


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]


def exported(workspace: capim.Workspace, what: str, folder: Path) -> list[dict[str, Any]]:
    file = folder / f"{what}.csv"
    command(f"export {what} --to {file}", Path(str(workspace.workspace)))
    return records(pd.read_csv(file))


def each_once(rows: Sequence[Mapping[str, Any]], *columns: str) -> set[tuple[Any, ...]]:
    """The values of some columns, which no two rows share; all rows are of the current states."""
    found = [tuple(row[name] for name in columns) for row in rows]
    assert found
    assert len({*found}) == len(found)
    for name in ("encoder", "corpus"):
        assert all(STATES[row[name]] == row[f"{name}_fingerprint"] for row in rows if f"{name}_fingerprint" in row)
    return {*found}


def test_a_figure_has_one_row_in_whatever_shows_figures(workspace: capim.Workspace, tmp_path: Path) -> None:
    folder = Path(str(workspace.workspace))
    figure = ("encoder", "metric", "protocol", "corpus")
    shown = each_once(json_rows("results", folder), *figure)
    assert {(encoder, metric) for encoder, metric, *_ in shown if metric in ("R@1", "MRR")} == {
        ("one", "R@1"), ("other", "R@1"), ("other", "MRR"),
    }  # fmt: skip
    run = workspace.sql("SELECT run FROM runs ORDER BY started DESC LIMIT 1").run[0]
    shows: list[Sequence[Mapping[str, Any]]] = [
        records(workspace.results(wide=True)),
        records(workspace.sql("SELECT * FROM results")),
        exported(workspace, "results", tmp_path),
        [vars(row) for row in read_report_data(workspace.store).results],
        [vars(row) for row in state_after(workspace.store, run).results.values()],
    ]
    for rows in shows:
        assert each_once(rows, *figure) == shown
    assert each_once(records(workspace.results()), *figure) == shown
    assert [row["encoder"] for row in json_rows("choose --weights shapes:t2i/all=1", folder)] == ["one", "other"]


def test_what_is_current_does_not_depend_on_what_is_asked_for(
    workspace: capim.Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert workspace.results(encoders="one", metrics="MRR").empty
    assert "`capim evaluate` makes those of a newer metric" in capsys.readouterr().err
    assert not workspace.store.current(Result, encoder="one", metric="MRR")
    assert "MRR" not in {row.metric for row in read_report_data(workspace.store, encoders=["one"]).results}


def test_a_query_has_one_outcome_of_each_encoder(workspace: capim.Workspace, tmp_path: Path) -> None:
    n_captions = CORPUS.captions.num_rows
    for rows in (
        records(workspace.outcomes()),
        records(workspace.sql("SELECT * FROM outcomes")),
        exported(workspace, "outcomes", tmp_path),
    ):
        assert len(each_once(rows, "encoder", "corpus", "protocol", "query_id")) == 2 * n_captions
    command(f"export trec --to {tmp_path / 'trec'}", Path(str(workspace.workspace)))
    listed = (tmp_path / "trec" / "shapes" / "t2i-all" / "one.run").read_text().splitlines()
    assert len({line.split()[0] for line in listed}) == n_captions


def test_a_report_of_what_has_earlier_states_only_says_so(workspace: capim.Workspace, tmp_path: Path) -> None:
    late = replace(ONE, name="late")
    random_store(tmp_path / "store", EARLIER, (late, OTHER))
    opened = capim.open(tmp_path, quiet=True)
    opened.evaluate(**QUICK)
    random_store(tmp_path / "store", CORPUS, (OTHER,))
    opened.evaluate(encoders="other", **QUICK)
    assert {*opened.results().encoder} == {"other"}
    with pytest.raises(RequestError, match="only results on an earlier version of corpus shapes"):
        read_report_data(opened.store, encoders=["late"])
