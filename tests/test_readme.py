"""The README's claims: its Python runs, its commands exist, its links point somewhere."""

from __future__ import annotations

import re
import runpy
import shlex
import subprocess
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from capim.flows.commands import parse
from tests.command import command
from tests.documents import ROOT, fenced_blocks, run_page

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "deployments" / "README.md",
    *(ROOT / "docs").glob("*.md"),
]
OF_A_STORE = ("get_started.md", "report.md", "scale.md", "statistics.md", "exports.md", "tables.md", "python.md")
README = PAGES[0].read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def after_a_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which two encoders were run on one corpus."""
    folder = tmp_path_factory.mktemp("pages")
    run = "run --corpora shapes --encoders tiny-clip,tiny-clip-plain --replicates 100 --quiet"
    command(f"{run} --analyses complexity,ambiguous", folder / "workspace")
    return folder


@pytest.mark.slow
def test_the_readmes_python_runs_after_a_run(after_a_run: Path) -> None:
    printed = run_page(ROOT / "README.md", after_a_run, sections=("Python",))
    assert re.search(r"^9\d\.\d% of the captions find their image in the first three", printed, re.MULTILINE)
    assert re.search(r"tiny-clip +tiny-clip-plain +0\.\d+ +0\.\d+ +0\.\d+ .*better", printed)
    assert re.search(r"tiny-clip +0\.8267 +0\.\d+ +0\.\d+", printed)


@pytest.mark.slow
def test_the_example_needs_nothing_but_capim_and_25_lines(
    after_a_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(after_a_run)
    script = ROOT / "docs" / "example.py"
    lines = script.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 25
    assert [line for line in lines if re.match(r"\s*(from|import)\b", line)] == ["import capim"]
    runpy.run_path(str(script), run_name="__main__")
    printed = capsys.readouterr().out
    assert re.search(
        r"tiny-clip +shapes +t2i/all +\S+:first_three +0\.9\d+ .* tiny-clip-plain +0\.\d+ +\S+ +better", printed
    )
    assert re.search(r"R@1 +tiny-clip +tiny-clip-plain +0\.1713 +0\.\d+ +0\.\d+ +\S+ +better", printed)
    assert "large-" in printed  # the files that the search found


@pytest.mark.slow
def test_the_page_about_your_own_metric_does_what_it_says(after_a_run: Path) -> None:
    printed = run_page(ROOT / "docs" / "own_metric.md", after_a_run)
    for name in ("words:first_of_short ", "words:first_of_short(n=8)", "hubs:HubSize", "tau:words_and_ranks"):
        assert name in printed, name
    assert "report.html" in printed


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_A_STORE)
def test_a_page_about_a_store_shows_what_its_blocks_print(name: str, after_a_run: Path) -> None:
    assert run_page(ROOT / "docs" / name, after_a_run)


@pytest.mark.slow  # starts a kernel, which imports capim
@pytest.mark.parametrize(
    ("name", "shown", "folder"),
    [
        ("new_metric", ["0.0719", "0.0482", "better"], "docs"),
        ("two_models", ["0.1713", "927", "difference"], "elsewhere, as $CAPIM_WORKSPACE says"),
    ],
)
def test_a_notebook_runs_from_its_first_cell_to_its_last(
    name: str, shown: list[str], folder: str, after_a_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = after_a_run / "docs" if folder == "docs" else tmp_path / folder
    beside.mkdir()
    if folder != "docs":
        monkeypatch.setenv("CAPIM_WORKSPACE", str(after_a_run / "workspace"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))  # else in the home folder
    notebook = nbformat.read(ROOT / "docs" / f"{name}.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "is kept without outputs"
    NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(beside)}}).execute()
    printed = str([cell["outputs"] for cell in notebook.cells if cell["cell_type"] == "code"])
    assert [text for text in shown if text not in printed] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_capim_command_that_a_page_shows_is_one(page: Path) -> None:
    shown = [block for block in fenced_blocks(page) if block.language in ("bash", "sh") and not block.rest]
    for block in shown:
        for line in block.text.splitlines():
            words = shlex.split(line.partition(" > ")[0], comments=True)
            if words and words[0].endswith("capim"):
                parse(words[1:])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_into_the_repository_points_at_something(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("build", ["", "cpu"])
def test_the_demo_installs_what_a_user_needs_with_the_build_of_pytorch_that_is_named(build: str) -> None:
    recipe = subprocess.check_output(["make", "-n", "-B", "demo", f"TORCH={build}"], cwd=ROOT, text=True)
    (line,) = (line for line in recipe.replace("\\\n", "").splitlines() if "-e " in line)
    assert line.split()[-2:] == ["-e", "'.[all]'"]
    # as constraints: the CUDA libraries that requirements.txt lists are installed where PyTorch's build needs them
    assert ("--constraint requirements.txt" in line, "--torch-backend cpu" in line) == (True, bool(build))


def test_every_encoder_and_corpus_that_the_readme_names_is_known() -> None:
    from capim.tasks.corpora import CORPORA
    from capim.tasks.encoders import catalog

    for option, known in (("encoders", catalog()), ("corpora", CORPORA)):
        for names in re.findall(rf"--{option} ([a-z0-9,-]+)(?= |$|`)", README):
            assert set(names.split(",")) <= set(known), names
