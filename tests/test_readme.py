"""The README's claims: its Python runs, its commands exist, its links point somewhere."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from flows.cli import build_parser, main

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "deployments" / "README.md",
    *(ROOT / "docs").glob("*.md"),
]
README = PAGES[0].read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of a page in one language, in order."""
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def file_of(block: str) -> str:
    """The file that a block of Python is: ``# leading.py`` in its first line; empty for one that is run."""
    named = re.match(r"# (\w+\.py)\n", block)
    return named[1] if named else ""


def follow(text: str) -> None:
    """Does what a page says, in its order: writes its files, runs its Python and its commands of capim."""
    for language, block in re.findall(r"```(python|bash)\n(.*?)```", text, re.DOTALL):
        if file := file_of(block):
            Path(file).write_text(block)
        elif language == "python":
            exec(compile(block, "page", "exec"), {})
        else:
            for line in block.splitlines():
                words = shlex.split(line, comments=True)
                assert not words or words[0].endswith("capim")
                assert not words or main(words[1:]) == 0, line


@pytest.fixture(scope="module")
def after_a_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which two encoders were run on one corpus."""
    folder = tmp_path_factory.mktemp("pages")
    run = ["run", "--corpora", "shapes", "--encoders", "tiny-clip,tiny-clip-plain", "--replicates", "100", "--quiet"]
    assert main([*run, "--analyses", "complexity", "--workspace", str(folder / "workspace")]) == 0
    return folder


@pytest.mark.slow
def test_the_readmes_questions_are_answered_after_a_run(
    after_a_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(after_a_run)
    capsys.readouterr()
    for title in ("Three questions", "Ask stored embeddings new questions"):
        follow(README.split(f"\n## {title}\n")[1].split("\n## ")[0])
    printed, answers = capsys.readouterr()
    assert len(set(re.findall(r"\S+report\.html", printed))) == 2  # one for each of the first two questions
    assert re.search(r"^Choose tiny-clip: .*tiny-clip-plain", answers, re.MULTILINE)
    assert "and is first for 82.7%" in printed
    assert "of the captions find their image in the first three" in printed
    lead = re.findall(r"tiny-clip +shapes +t2i/all +leading:ahead +([0-9.]+)", printed)
    assert [f"{float(value):.3f}" for value in lead] == re.findall(r"leads by ([0-9.]+)", printed)
    assert re.search(r"tiny-clip +tiny-clip-plain +0\.\d+ +0\.\d+ +0\.\d+ +\d", printed)


@pytest.mark.slow
def test_the_page_about_your_own_metric_does_what_it_says(
    after_a_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(after_a_run)
    capsys.readouterr()
    follow((ROOT / "docs" / "own_metric.md").read_text(encoding="utf-8"))
    printed = capsys.readouterr().out
    for name in ("words:first_of_short ", "words:first_of_short(n=8)", "hubs:HubSize", "tau:words_and_ranks"):
        assert name in printed, name
    assert "report.html" in printed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_capim_command_that_a_page_shows_is_one(page: Path) -> None:
    parser = build_parser()
    for block in blocks(page.read_text(encoding="utf-8"), "bash"):
        for line in block.splitlines():
            words = shlex.split(line.partition(" > ")[0], comments=True)
            if words and words[0].endswith("capim"):
                parser.parse_args(words[1:])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_into_the_repository_points_at_something(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("build", ["", "cpu"])
def test_an_installation_without_cuda_leaves_its_libraries_out(build: str) -> None:
    recipe = subprocess.check_output(["make", "-n", "-B", "demo", f"TORCH={build}"], cwd=ROOT, text=True)
    line = next(line for line in recipe.splitlines() if "requirements.txt |" in line)
    kept = subprocess.check_output(["sh", "-c", line.rpartition(" | ")[0]], cwd=ROOT, text=True)
    assert ("--torch-backend cpu" in line, "\nnvidia-" in kept, "\ntorch==" in kept) == (bool(build), not build, True)


def test_every_encoder_and_corpus_that_the_readme_names_is_known() -> None:
    from tasks.corpora import CORPORA
    from tasks.encoders import catalog

    for option, known in (("encoders", catalog()), ("corpora", CORPORA)):
        for names in re.findall(rf"--{option} ([a-z0-9,-]+)(?= |$|`)", README):
            assert set(names.split(",")) <= set(known), names
