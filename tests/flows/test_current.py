"""Of earlier runs, revisions of an encoder, states of a corpus and versions of a metric nothing is shown by default.

Where a folder changed since it was stored, and where encoders have results on an earlier state only, it is said.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import capim
from capim.reports.rows.reading import read_report_data
from capim.reports.rows.snapshot import state_after
from capim.store import EmbeddingStore
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


# --- A folder that changed since it was stored.

EVALUATE = "evaluate --replicates 100 --protocols t2i/all"


def vectors(encoder: str, corpus: str = "") -> str:
    """Import random vectors of an encoder."""
    seed = np.random.default_rng(ord(encoder[0]))
    for side in ("images", "captions"):
        np.save(f"{side}.npy", seed.normal(size=(8, 4)).astype(np.float32))
    given = f"{corpus and f'--corpus {corpus}'} --encoder {encoder} --images images.npy --captions captions.npy"
    return command(f"import {given} --by-position").err


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working folder, with two models on a folder of photographs, one of them also on two that changed."""
    folder = tmp_path_factory.mktemp("work")
    here = Path.cwd()
    os.chdir(folder)
    try:
        (folder / "shop").mkdir()
        for n in range(8):
            Image.new("RGB", (8, 8), (20 * n, 9, 9)).save(folder / "shop" / f"{n}.png")
        (folder / "shop" / "captions.csv").write_text("image,caption\n" + "".join(f"{n}.png,n {n}\n" for n in range(8)))
        for encoder in "ab":
            vectors(encoder, "./shop")
        command(EVALUATE)
        for n in (2, 5):
            Image.new("RGB", (8, 8), (9, 9, 20 * n)).save(folder / "shop" / f"{n}.png")
    finally:
        os.chdir(here)
    return folder


@pytest.fixture
def changed(shop: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(shop)
    return shop


def test_a_folder_that_changed_since_it_was_stored_is_said_to_have(changed: Path) -> None:
    said = command("report --corpora ./shop").err
    assert "corpus shop changed since it was stored (images with other contents: '2.png', '5.png')" in said
    [state] = fingerprints(changed)
    assert f"used is the stored state {state} of 2" in said
    assert "`capim embed --corpora shop --encoders …` encodes what changed" in said


def fingerprints(folder: Path) -> list[str]:
    return [corpus.fingerprint for corpus in EmbeddingStore.open(folder / "workspace" / "store").corpora()]


def test_the_only_corpus_of_the_store_is_the_stored_one(changed: Path) -> None:
    before = fingerprints(changed)
    assert "corpus: shop, the only one of the store" in vectors("only")
    assert fingerprints(changed) == before


def test_encoders_with_an_earlier_state_only_are_named_and_a_fingerprint_that_is_asked_for_is_shown(
    changed: Path,
) -> None:
    store = EmbeddingStore.open(changed / "workspace" / "store")
    [earlier] = (corpus.fingerprint for corpus in store.corpora())
    vectors("b", "./shop")
    command(EVALUATE)
    newer = store.states().corpora["shop"]
    assert newer != earlier
    why = f"a: results on another state of shop only; on {newer}, the one shown, by `capim run --corpora shop --enc"
    page = command("report")
    assert why in page.page.with_name("report.md").read_text().partition("\n## ")[0].replace("\\", "")
    assert why in command("results").err
    assert why in command("choose --weights shop:t2i/all=1", code=1).err
    for asked in (f"--corpora {earlier}", f"--corpora {earlier} --encoders a,b"):
        text = command(f"report {asked}").page.with_name("report.md").read_text()
        assert f"Shown is the state {earlier} of shop, as asked for." in text
        assert "Only" not in text.partition("\n")[0]
    encoder = store.encoder("a").fingerprint
    assert {row["corpus_fingerprint"] for row in json_rows(f"results --corpora {earlier}")} == {earlier}
    text = command(f"report --corpora {earlier} --encoders {encoder}").page.with_name("report.md").read_text()
    assert f"Shown is the state {encoder} of a" in text
