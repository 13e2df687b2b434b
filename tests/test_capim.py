"""The Python face: `import capim` does what the command line does, and gives frames and arrays."""

from __future__ import annotations

import functools
import inspect
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import capim
from capim.flows.workspace import frame_of
from capim.store.types import MODALITIES, EncoderSpec
from capim.tasks.corpora.readers.shapes import read_shapes, read_shapes_multilingual
from capim.tasks.hub.progress import Progress, listening
from tests.flows.commands import help_of, leaf_commands
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


def python(
    program: str, folder: Path, *, path: tuple[Path, ...] = (ROOT,), environment: Mapping[str, str] = os.environ
) -> subprocess.CompletedProcess[str]:
    """What a program prints in a process of its own, in a folder."""
    found = {**environment, "PYTHONPATH": os.pathsep.join(map(str, path))}
    words = [sys.executable, "-c", program]
    return subprocess.run(words, env=found, cwd=folder, capture_output=True, text=True, check=False)


def test_a_quiet_workspace_chooses_in_silence(workspace: capim.Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    workspace.choose(weights="shapes=1")
    assert capsys.readouterr().err == ""


def test_results_are_a_frame_that_is_shown_short_and_keeps_its_digits(workspace: capim.Workspace) -> None:
    frame = workspace.results(metrics=["R@1", "MRR"], encoders="one,other")
    assert isinstance(frame, pd.DataFrame)
    assert list(frame.columns[:5]) == ["encoder", "corpus", "protocol", "metric", "value"]
    assert list(frame.index) == [0, 1, 2, 3]
    assert len(str(frame).splitlines()) == 5
    mrr = frame.query("metric == 'MRR'")
    assert f"{mrr.value.iloc[0]:.4f}" in str(mrr)
    assert round(mrr.value.iloc[0], 4) != mrr.value.iloc[0]
    assert f"{mrr.value.iloc[0]:.4f}</td>" in mrr._repr_html_()  # type: ignore[operator]
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
    with pytest.raises(capim.RequestError, match="compare takes two encoders, got one twice"):
        workspace.compare("one", "one")


def test_a_column_without_any_value_is_one_of_numbers() -> None:
    frame = frame_of([{"value": 0.5, "ci_low": None}, {"value": 0.25, "ci_low": None}])
    assert frame.dtypes.tolist() == [float, float]
    assert math.isnan(frame.ci_low.mean())


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
    frame = workspace.evaluate(own_metric=first_three, **QUICK)
    assert {*frame.metric} == {f"{__name__}:first_three"}
    assert frame.value.is_monotonic_decreasing
    assert (frame.ci_low < frame.ci_high).all()
    assert frame.against.tolist() == [frame.encoder[1], frame.encoder[0], frame.encoder[0]]
    assert frame.state.isin(["better", "worse", "equivalent", "undecided"]).all()
    stored = workspace.results(metrics=frame.metric[0])
    assert stored.value.tolist() == frame.value.tolist()
    pairs = workspace.compare("other", "one", own_metric=first_three, **QUICK)
    assert pairs.encoder_a.tolist() == ["other"]
    two = workspace.evaluate(own_metric=functools.partial(first_three, k=2), encoders="one", **QUICK)
    assert two.metric.tolist() == [f"{__name__}:first_three(k=2)"]


def test_a_metric_without_a_name_needs_one(workspace: capim.Workspace) -> None:
    with pytest.raises(capim.RequestError, match="function with a name"):
        workspace.evaluate(own_metric=lambda outcomes: outcomes.rank_best)
    with pytest.raises(capim.RequestError, match=r"needs a group and a colon, .*'own:rank'"):
        capim.Metric(name="rank", function=lambda outcomes: outcomes.rank_best)
    with pytest.raises(capim.RequestError, match="must take outcomes or block"):
        capim.Metric(name="own:rank", function=lambda ranks: ranks)
    metric = capim.Metric(name="own:rank", function=lambda outcomes: outcomes.rank_best, lower_is_better=True)
    frame = workspace.evaluate(own_metric=metric, **QUICK)
    assert frame.state.iloc[0] != "better" or frame.difference.iloc[0] < 0


def test_vectors_outcomes_and_sql(workspace: capim.Workspace) -> None:
    vectors = workspace.vectors(encoder="one", corpus="shapes", modality="image")
    assert vectors.matrix.shape == (N_SCENES, 8)
    assert len(vectors.ids) == N_SCENES
    assert re.fullmatch(rf"Vectors\(matrix: {N_SCENES} × 8 float32, ids: '.+', '.+' … '.+', tag: '.+'\)", repr(vectors))
    with pytest.raises(capim.RequestError, match="modality 'images' is unknown; did you mean 'image'"):
        workspace.vectors(encoder="one", corpus="shapes", modality="images")  # type: ignore[arg-type]
    ranks = workspace.outcomes(encoders=["one"], protocols="t2i/all").rank_worst
    counted = workspace.sql("SELECT rank_worst FROM outcomes WHERE encoder = 'one' AND protocol = 't2i/all'")
    np.testing.assert_array_equal(np.sort(ranks), np.sort(counted.rank_worst))


def test_multivectors_and_relevance_have_the_order_of_the_corpus(workspace: capim.Workspace) -> None:
    of_images: Any = {"corpus": "shapes", "modality": "image"}
    ids, values, offsets = workspace.multivectors(encoder="many", **of_images)
    images = workspace.vectors(encoder="one", **of_images).ids
    assert (ids, offsets[0], offsets[-1]) == (images, 0, len(values))
    [first, *_] = workspace.store.multivectors(encoder="many", **of_images)
    np.testing.assert_array_equal(values[offsets[2] : offsets[3]], first[2])
    with pytest.raises(capim.RequestError, match=r"'one' has one vector per item: read them with vectors\(\)"):
        workspace.multivectors(encoder="one", **of_images)
    belongs = workspace.sql("SELECT id, image_id FROM captions WHERE corpus = 'shapes'")
    assert workspace.relevance(corpus="shapes") == {
        caption: [images.index(image)] for caption, image in zip(belongs.id, belongs.image_id, strict=True)
    }
    captions = workspace.sql("SELECT image_id FROM items WHERE corpus = 'shapes' AND modality = 'caption' ORDER BY ord")
    of_first = workspace.relevance(corpus="shapes", protocol="i2t/any")[images[0]]
    assert {*captions.image_id[of_first]} == {images[0]}
    with pytest.raises(capim.RequestError, match=r"t2i/al' .*did you mean 't2i/all'"):
        workspace.relevance(corpus="shapes", protocol="t2i/al")


def test_the_best_items_of_a_language_are_positions_among_all_captions_of_the_corpus(tmp_path: Path) -> None:
    random_store(tmp_path / "store", read_shapes_multilingual(n_scenes=6), (SPECS[0],))
    opened = capim.open(tmp_path, quiet=True)
    opened.evaluate(replicates=100, protocols="i2t/de/plain")
    outcomes = opened.outcomes(protocols="i2t/de/plain")
    items = opened.sql("SELECT id, language, translator FROM items WHERE modality = 'caption' ORDER BY ord")
    found = items.loc[[int(ord_) for ords in outcomes.top_ords for ord_ in ords]]
    assert outcomes.top_ords.explode().max() >= outcomes.n_gallery.max()  # not positions in the gallery
    assert {*zip(found.language, found.translator, strict=True)} == {("de", "plain")}
    images, captions = (opened.vectors(encoder="one", corpus="shapes-multilingual", modality=m) for m in MODALITIES)
    german = np.flatnonzero((items.language == "de") & (items.translator == "plain"))
    nearest = [captions.ids[german[at]] for at in (images.matrix @ captions.matrix[german].T).argmax(axis=1)]
    first = dict(zip(outcomes.query_id, [items.id[ords[0]] for ords in outcomes.top_ords], strict=True))
    assert [first[image] for image in images.ids] == nearest


def test_the_options_of_every_step_are_those_of_the_command_line() -> None:
    named = ("run", "embed", "evaluate", "compare", "analyse", "report", "results", "choose", "why", "search")
    for command, name in {**dict(zip(named, named, strict=True)), "query": "sql", "store drop": "drop"}.items():
        method = getattr(capim.Workspace, name)
        on_the_command_line = {option.dest for option in leaf_commands()[command]}
        assert {*inspect.signature(method).parameters} - {"self", "a", "b"} <= on_the_command_line
        first = help_of("store" if command.startswith("store ") else "", width=200)
        assert method.__doc__.partition("\n")[0].rstrip(".") in " ".join(first.replace("│", "").split())


def test_the_functions_of_the_module_are_methods_of_the_default_workspace(
    workspace: capim.Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPIM_WORKSPACE", str(workspace.workspace))
    assert len(capim.results(metrics="R@1")) == 3
    assert set(capim.__all__) <= set(dir(capim)) | {"Metric", "Encoder"}


def test_importing_it_is_light_reading_needs_300_megabytes_and_nothing_is_written_into_the_home_folder(
    workspace: capim.Workspace, tmp_path: Path
) -> None:
    heavy = ("torch", "transformers", "lancedb", "lance", "prefect", "pandas", "scipy", "rich", "PIL", "pydantic")
    program = f"""
import sys, capim
from pathlib import Path
assert not [name for name in {heavy!r} if name in sys.modules], [name for name in {heavy!r} if name in sys.modules]
workspace = capim.open({workspace.workspace!r})
print(len(workspace.results(metrics="R@1")))
assert not {{"torch", "prefect", "scipy", "PIL"}} & sys.modules.keys()
status = Path("/proc/self/status")
print(status.read_text().partition("VmHWM:")[2].split()[0] if status.exists() else 0)
print(workspace.evaluate(protocols="t2i/all", replicates=100).shape)
"""
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("PREFECT", "DO_NOT", "CAPIM", "XDG", "HF"))}
    done = python(program, tmp_path, environment={**kept, "HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    n_rows, kilobytes, _ = done.stdout.splitlines()
    assert (n_rows, int(kilobytes) <= 300 * 1024) == ("3", True), kilobytes
    assert "server" not in done.stderr
    assert [*tmp_path.rglob("*")] == []


def test_a_search_by_a_vector_finds_the_item_that_it_belongs_to(workspace: capim.Workspace, tmp_path: Path) -> None:
    images = workspace.vectors(encoder="one", corpus="shapes", modality="image")
    where: Any = {"encoder": "one", "corpus": "shapes", "k": 3}
    found = workspace.search(vector=7 * images.matrix[4], **where)
    assert list(found["rank"]) == [1, 2, 3]
    assert found.id[0] == images.ids[4]
    assert found.score[0] == pytest.approx(1)
    np.save(tmp_path / "query.npy", images.matrix[4])
    pd.testing.assert_frame_equal(workspace.search(vector=tmp_path / "query.npy", **where), found)
    captions = workspace.search(vector=images.matrix[4], modality="caption", **where)
    assert captions.text.str.len().min() > 5
    several = workspace.store.multivectors(encoder="many", corpus="shapes", modality="image")
    of_item = next(iter(several))[2]
    assert workspace.search(vector=of_item, encoder="many", corpus="shapes", k=1).id[0] == images.ids[2]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({}, "give what to search for: a text, or image=FILE, or both, or vector=FILE.npy"),
        ({"text": " "}, "give what to search for"),
        ({"text": "a cat", "vector": np.ones(8)}, "a vector is a query on its own"),
        ({"vector": np.ones(7)}, r"a vector has shape \(1, 7\); expected shape \(dim,\), dim 8, as encoder 'one' has"),
        ({"vector": np.ones((2, 8))}, r"has shape \(2, 8\); expected"),
        ({"vector": np.zeros(8)}, "not finite, or only zeros"),
        ({"vector": np.full(8, np.nan)}, "not finite, or only zeros"),
        ({"vector": np.full(8, 1e30)}, "too large"),
        ({"vector": "no.npy"}, "no.npy cannot be read as a .npy file"),
        ({"vector": np.ones(8), "k": 0}, "k must be at least 1"),
    ],
)
def test_a_search_that_is_impossible_says_why(workspace: capim.Workspace, query: Any, message: str) -> None:
    with pytest.raises(capim.RequestError, match=message):
        workspace.search(encoder="one", corpus="shapes", **query)
    if not query:
        with pytest.raises(capim.RequestError, match="a text and an image cannot be added"):
            workspace.search("a cat", image="cat.jpg", encoder="many", corpus="shapes")


def test_wrong_arguments_of_a_question_are_a_request_error_with_their_names(workspace: capim.Workspace) -> None:
    wrong: list[Any] = [lambda: workspace.vectors("shapes", "one"), lambda: workspace.vectors(corpora="shapes")]  # type: ignore[call-arg,misc]
    for ask in wrong:
        with pytest.raises(capim.RequestError, match=r"^vectors: .*vectors\(encoder=…, corpus=…, modality=…"):
            ask()
    with pytest.raises(capim.RequestError, match=r"^search: .*search\(text=…"):
        workspace.search(*range(20))  # type: ignore[call-arg,misc]


def test_an_output_that_lacks_characters_gets_them_escaped_and_json_stays_true(workspace: capim.Workspace) -> None:
    words = [sys.executable, "-m", "capim", "query", "SELECT '中 😀 −3' AS x", "--workspace", str(workspace.workspace)]
    narrow = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"}
    tables = [
        subprocess.run([*words, "--format", form], env=narrow, capture_output=True, check=True).stdout.decode("ascii")
        for form in ("table", "json")
    ]
    assert tables[0].splitlines()[1:] == ["-" * 8, r"\u4e2d \ud83d\ude00 -3"]
    assert json.loads(tables[1]) == [{"x": "中 😀 -3"}]


def test_an_imported_encoder_is_searched_by_vectors(tmp_path: Path) -> None:
    spec = EncoderSpec(name="theirs", adapter="imported", checkpoint="theirs", revision="a1", dim=8)
    random_store(tmp_path / "store", read_shapes(n_scenes=3), (spec,))
    with pytest.raises(capim.RequestError, match="imported without its model; give the query as vector=FILE"):
        capim.open(tmp_path).search("a cat", encoder="theirs", corpus="shapes")
    assert len(capim.open(tmp_path).search(vector=np.ones(8), encoder="theirs", corpus="shapes")) == 3


def test_a_comparison_says_what_it_compared(workspace: capim.Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    workspace.compare("one", "other", margin=2, **QUICK)
    said = capsys.readouterr().err
    assert "compared 2 encoders, pair by pair: one, other\n" in said
    assert re.search(r"shapes: \d+ comparisons by 1 protocol \(t2i/all\)", said)
    assert "adjusted over the pairs of each result (step-down max-T); intervals: 95 %, Student's t" in said
    assert "equivalent: within 2 % of a metric's range\n" in said
    assert "headline results: t2i/all R@1; all others are exploratory" in said


def test_the_progress_of_scoring_moves_within_a_protocol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capim.tasks.ranking.maxsim_products._PATCHES_AT_ONCE", 30)
    for spec in SPECS:
        random_store(tmp_path / spec.name / "store", read_shapes(n_scenes=N_SCENES), (spec,))
        seen: list[Progress] = []
        with listening(seen.append):
            capim.open(tmp_path / spec.name, quiet=True).evaluate(replicates=100, protocols="t2i/all,i2t/any")
        counts = [each.done for each in seen if each.work.endswith("scoring")]
        assert counts == sorted(counts)
        assert counts[-1] == 2
        assert {*counts} - {0, 1, 2}, counts


# --- a user's own modules with the names of our packages


def test_a_folder_with_modules_that_are_called_like_our_rooms_changes_nothing(tmp_path: Path) -> None:
    for name in ("store.py", "tasks.py", "tasks/other.py", "flows/__init__.py", "reports/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("raise SystemExit('theirs was imported')\n")
    program = "import sys; from capim.flows.cli import main; sys.exit(main(['list', 'metrics']))"
    done = python(program, tmp_path, path=(tmp_path, ROOT))
    assert (done.returncode, done.stderr) == (0, "")
    assert "R@1" in done.stdout


@pytest.mark.parametrize("package", ["store", "tasks", "flows", "reports", "deployments"])
def test_a_package_is_imported_under_one_name(package: str) -> None:
    """A second copy of a module has classes of its own: nothing would be an instance of anything."""
    [last] = python(f"import {package}", ROOT).stderr.splitlines()[-1:]
    assert last.startswith(f"ImportError: '{package}' is imported as capim.{package}; a package of your own")


def test_a_metric_imports_modules_of_the_user_that_are_called_like_our_rooms(tmp_path: Path) -> None:
    for file in ("store.py", "tasks/__init__.py", "tasks/words.py", "reports/__init__.py", "reports/scores.py"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text("count = 1\n")
    imports = "import store\nfrom tasks.words import count\nimport reports.scores as scores\n"
    (tmp_path / "own.py").write_text(f"{imports}def hit(outcomes):\n    return outcomes.rank_worst == 1\n")
    program = "from capim.tasks.metrics.custom import load_metric; from pathlib import Path; "
    program += "print(load_metric('own.py:hit', folder=Path()).name)"
    done = python(program, tmp_path)
    assert (done.returncode, done.stdout) == (0, "own:hit\n"), done.stderr


def test_errors_speak_of_arguments_and_a_workspace_says_where_it_is(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CAPIM_WORKSPACE", raising=False)
    assert repr(capim.open()) == f"Workspace({str(tmp_path / 'workspace')!r})"
    assert repr(capim.open("s3://bucket/work")) == "Workspace('s3://bucket/work')"
    with pytest.raises(capim.RequestError, match="no corpora: give corpora or list them in a suite file"):
        capim.open().run()
    with pytest.raises(capim.RequestError, match=r"Give another workspace \(workspace, "):
        capim.open().results()
