"""A package beside capim adds an encoder, corpus, protocol, metric and section; a broken one breaks nothing else."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from capim.store import EmbeddingStore
from capim.store.errors import RequestError, WorkError
from capim.store.schema import Result, Slice
from capim.tasks.analyses.table import ANALYSES
from capim.tasks.corpora import CORPORA, open_corpus
from capim.tasks.encoders import ADAPTERS, resolve, spec_of
from capim.tasks.metrics import METRICS
from capim.tasks.ranking.outcomes import outcomes_of
from tests.command import command, json_rows
from tests.packaging.conftest import Packages, forget
from tests.reports.pages import readable

ROOT = Path(__file__).parents[2]
# A package that nobody can use: its module fails, one name is ours, one object is none.
BROKEN = {
    "capim.adapters": "hf_dual = broken_rows:ADAPTER",
    "capim.corpora": "none = json:dumps",
    "capim.metrics": "failing = broken_rows:METRIC\ncrashing = broken_metric:METRIC",
    "capim.analyses": "failing = broken_analysis:ANALYSIS",
    "capim.sections": "failing = broken_section:section",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example package as its installer leaves it."""
    source = shutil.copytree(Path(__file__).with_name("example_package"), tmp_path_factory.mktemp("source") / "package")
    folder = tmp_path_factory.mktemp("site")
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    offline = ["--offline", "--no-deps", "--no-build-isolation", "--python", sys.executable]
    subprocess.run([uv, "pip", "install", "--quiet", *offline, "--target", str(folder), str(source)], check=True)
    return folder


@pytest.fixture
def installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The example package on the path of this process."""
    monkeypatch.syspath_prepend(str(site))
    forget()
    yield site
    monkeypatch.undo()
    forget("capim_swatches")


@pytest.fixture
def broken(packages: Packages) -> None:
    """A package whose every entry point is at fault."""
    packages(
        "capim-broken",
        "2.0",
        BROKEN,
        broken_rows="raise OSError('no licence')\n",
        broken_metric="from capim.tasks.metrics import METRICS, Metric\n"
        "both = METRICS['R@1'].directions\n"
        "METRIC = Metric(name='crashing', title='t', directions=both, values=lambda o, t: o.nothing)\n",
        broken_analysis="from capim.tasks.analyses.table import Analysis\n"
        "ANALYSIS = Analysis('failing', lambda data: data.nothing, {'failing': 'Failing'}, on_request=True)\n",
        broken_section="def section(data):\n    return data['nothing']\n",
    )


def listed(what: str) -> dict[str, dict[str, object]]:
    return {row["name"]: row for row in json_rows(f"list {what}")}


def test_the_lists_show_the_rows_of_a_package_with_its_name(installed) -> None:
    for what, name in (
        ("adapters", "swatches"), ("encoders", "swatch"), ("corpora", "swatches"), ("metrics", "left_behind"),
    ):  # fmt: skip
        rows = listed(what)
        assert rows[name]["package"] == "capim-swatches 0.1.0"
        assert {row["package"] for row in rows.values()} == {"capim", "capim-swatches 0.1.0"}


def test_names_are_known_without_importing_the_package(installed) -> None:
    assert "left_behind" in METRICS
    assert "swatches" in [*ADAPTERS, *CORPORA]
    assert spec_of("tiny-clip").adapter == "hf_dual"
    assert "capim_swatches" not in sys.modules
    assert METRICS["left_behind"].title
    assert "capim_swatches" in sys.modules


def test_the_version_of_the_package_is_part_of_the_identity_of_its_encoders(installed, monkeypatch) -> None:
    first = resolve(spec_of("swatch"))
    assert (first.revision, first.options) == ("capim-swatches-0.1.0", {"revision:capim-swatches": "0.1.0"})
    info = installed / "capim_swatches-0.1.0.dist-info" / "METADATA"
    before = info.read_text()
    try:
        info.write_text(before.replace("0.1.0", "0.2.0"))
        forget()
        assert resolve(spec_of("swatch")).fingerprint != first.fingerprint
        with pytest.raises(RequestError, match=r"was made with capim-swatches 0\.1\.0, but 0\.2\.0 is here"):
            resolve(first)
    finally:
        info.write_text(before)


def test_a_run_with_a_package_evaluates_its_metric_runs_its_analysis_and_reports_its_section(
    installed, tmp_path
) -> None:
    printed = command("run --corpora swatches --encoders swatch --replicates 100 --device cpu --quiet", tmp_path)
    store = EmbeddingStore.open(tmp_path / "store")
    rows = store.all(Result, metric="left_behind")
    assert {(row.encoder, row.protocol): row.value for row in rows} == {
        ("swatch", "t2i/all"): 1.0, ("swatch", "i2t/any"): 1.0, ("swatch", "t2i/warm"): 1.0,
    }  # fmt: skip
    assert {row.n_queries for row in rows if row.protocol == "t2i/warm"} == {2}
    slices = store.all(Slice, analysis="warmth")
    assert {(row.protocol, row.feature, row.value, row.analysis_version) for row in slices} == {
        ("t2i/all", part, 1.0, "1 of capim-swatches 0.1.0") for part in ("warm", "cold")
    }  # fmt: skip
    page = readable(printed.page.read_text())
    assert "text to image, warm" in page
    assert "Warm and cold colours · swatches" in page
    assert "Items left behind" in page
    assert "swatch on swatches, t2i/all: 1.00" in page


def call_tests(file: str, rows: tuple[str, ...], tmp_path: Path, **case: object) -> int:
    """Call the tests of a file that are parametrised with one of these rows, or take ``case``; returns how many."""
    source = importlib.util.spec_from_file_location(f"again_{Path(file).stem}", ROOT / "tests" / file)
    assert source is not None
    assert source.loader is not None
    module = importlib.util.module_from_spec(source)  # tests are parametrised when their file is read
    source.loader.exec_module(module)
    called = 0
    for test in [value for name, value in vars(module).items() if name.startswith("test_")]:
        marks = [*getattr(test, "pytestmark", []), *getattr(module, "pytestmark", [])]
        names = [row for mark in marks if mark.name == "parametrize" for row in rows if row in mark.args[1]]
        takes = inspect.signature(test).parameters
        for given in [{"name": row} for row in names] + [case] * ("case" in takes):
            available = {**given, "tmp_path": tmp_path}
            with contextlib.suppress(pytest.skip.Exception):
                test(**{argument: available[argument] for argument in takes})
                called += 1
    return called


def test_the_contract_tests_find_the_rows_of_a_package_by_themselves(installed, tmp_path) -> None:
    local_copies = importlib.import_module("tests.corpora.local_copies")
    copy = local_copies.copy_of("swatches", tmp_path / "root")
    case = copy, open_corpus(copy.description), tmp_path / "root"
    assert call_tests("encoders/test_families.py", ("swatch", "swatches"), tmp_path) == 2
    assert call_tests("corpora/test_contract.py", ("swatches",), tmp_path, case=case) >= 8
    assert call_tests("metrics/test_contract.py", ("left_behind",), tmp_path) >= 5


def test_a_broken_package_is_one_line_that_names_it_and_all_else_works(broken, caplog) -> None:
    for what in ("adapters", "corpora"):
        assert {row["package"] for row in listed(what).values()} == {"capim"}
    assert "failing" not in listed("metrics")
    lines = [record.getMessage() for record in caplog.records]
    package = "package capim-broken 2.0, entry point"
    remedy = "update the package, or remove it with: pip uninstall capim-broken"
    wanted = "TypeError: expected a capim.tasks.corpora.CorpusEntry, got function"
    assert tuple(lines) == (
        f"{package} 'hf_dual' of capim.adapters: this name belongs to capim; the row is left out",
        f"{package} 'none' of capim.corpora: json:dumps cannot be used ({wanted}); {remedy}",
        f"{package} 'failing' of capim.metrics: broken_rows:METRIC cannot be used (OSError: no licence); {remedy}",
    )
    assert f"{package} 'none'" in command("check none", code=2).out


def test_a_metric_and_an_analysis_that_fail_name_their_package(broken) -> None:
    package = r"package capim-broken 2.0, entry point"
    with pytest.raises(WorkError, match=rf"{package} 'crashing' .*: the metric failed \(Attr"):
        METRICS["crashing"].per_query(outcomes_of([[1], [3]]))
    with pytest.raises(WorkError, match=rf"{package} 'failing' .*: the analysis failed \(Attr"):
        list(ANALYSES["failing"].run(None))


def test_packages_are_looked_for_only_when_a_name_is_not_one_of_capims(monkeypatch) -> None:
    def refuse(**_: str) -> None:
        raise AssertionError("looked for packages")

    forget()
    monkeypatch.setattr("capim.store.plugins.entry_points", refuse)
    for words in ("--help", "list --help", "run --help"):
        command(words)
    assert METRICS["R@1"].title
    assert CORPORA["shapes"].title
    assert resolve(spec_of("tiny-clip")).resolved
    with pytest.raises(AssertionError, match="looked for packages"):
        spec_of("tiny-clap")


def test_a_section_that_fails_is_left_out_of_the_report(broken, caplog) -> None:
    from capim.reports.rows.reading import read_report_data
    from capim.reports.write import report_of
    from tests.reports.stand_in import demo

    assert len(report_of(read_report_data(demo())).sections) > 5
    [line] = [record.getMessage() for record in caplog.records]
    assert "'failing' of capim.sections: the report is made without this section (TypeError:" in line
