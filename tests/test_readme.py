"""The README's claims: its Python runs, its commands exist, its links point somewhere."""

from __future__ import annotations

import re
import shlex
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


@pytest.mark.slow
def test_the_python_of_the_readme_runs_after_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", "--corpora", "shapes", "--encoders", "tiny-clip", "--replicates", "100", "--quiet"]) == 0
    capsys.readouterr()
    [block] = blocks(README, "python")
    exec(compile(block, "README.md", "exec"), {})
    said = capsys.readouterr().out
    assert "and is first for 82.7%" in said
    assert "of the captions find their image in the first three" in said


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


def test_every_encoder_and_corpus_that_the_readme_names_is_known() -> None:
    from tasks.corpora import CORPORA
    from tasks.encoders import catalog

    for option, known in (("encoders", catalog()), ("corpora", CORPORA)):
        for names in re.findall(rf"--{option} ([a-z0-9,-]+)(?= |$|`)", README):
            assert set(names.split(",")) <= set(known), names
