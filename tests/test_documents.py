"""The pages of docs/: those that lead through something run as printed in an empty folder; the site is built of all."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from capim.store.sql import ALL
from tests.documents import ROOT, run_page

PAGES = ("own_data.md", "own_model.md", "embeddings.md", "judged.md", "recipes.md", "coming_from.md")


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_every_block_of_a_page_runs_as_printed(tmp_path: Path, name: str) -> None:
    run_page(ROOT / "docs" / name, tmp_path)


def test_documents_and_help_ask_for_what_is_current() -> None:
    """Of ``all_`` tables every run, revision and state is counted; the history of a watch is meant to be whole."""
    pages = [each for kind in ("md", "ipynb", "py") for each in (ROOT / "docs").rglob(f"*.{kind}")]
    pages += [ROOT / "README.md", *(ROOT / "deployments").glob("*.md"), *(ROOT / "flows").glob("*.py")]
    asked = {
        (file.name, name) for file in pages for name in re.findall(r"\b(?:FROM|JOIN) (\w+)", file.read_text("utf-8"))
    }
    assert {"captions", "results", "all_watched"} <= {name for _, name in asked}
    assert not sorted((file, name) for file, name in asked if name in {*ALL} - {"all_watched"})
    assert not sorted((file, name) for file, name in asked if name.startswith("current_"))


def run(folder: Path, text: str) -> None:
    (folder / "page.md").write_text(text)
    run_page(folder / "page.md", folder)


def test_a_command_that_ends_otherwise_than_the_page_says_is_an_error(tmp_path: Path) -> None:
    run(tmp_path, "```bash\ntrue\n```\n```bash exit=3\nexit 3\n```\n")
    with pytest.raises(AssertionError, match="`exit 3` ended with exit code 3, expected 0"):
        run(tmp_path, "```bash\nexit 3\n```\n")


def test_what_a_page_shows_has_to_be_printed_in_its_order(tmp_path: Path) -> None:
    block = "```python\nprint('one\\ntwo  2\\nthree')\n```\n"
    run(tmp_path, f"{block}```text\none\nt… 2\n```\n")
    for wrong in ("two 2\none", "four", "one two"):
        with pytest.raises(AssertionError, match="no line"):
            run(tmp_path, f"{block}```text\n{wrong}\n```\n")


@pytest.mark.slow  # starts MkDocs, which takes six seconds
def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    recipe = subprocess.check_output(["make", "-n", "docs"], cwd=ROOT, text=True)
    command = next(line for line in recipe.splitlines() if "mkdocs" in line)
    command = command.replace(".venv/bin", str(Path(sys.executable).parent))
    done = subprocess.run(
        ["bash", "-c", f"{command} --site-dir {tmp_path}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "--strict" in command
    assert "--quiet" not in command  # with it, --strict sees no warning
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    pages = {str(file.relative_to(tmp_path)): file.read_text(encoding="utf-8") for file in tmp_path.rglob("*.html")}
    assert len(pages) > len([*(ROOT / "docs").glob("*.md")])
    for name, text in pages.items():
        loaded = re.findall(r"<(?:script|img|iframe|source)[^>]+src=[\"']?([^\"'> ]+)", text)
        loaded += re.findall(
            r"<link[^>]+rel=[\"']?(?:stylesheet|icon|preconnect|preload)[^>]+href=[\"']?([^\"'> ]+)", text
        )
        assert loaded, name
        assert not [url for url in loaded if re.match(r"(https?:)?//", url)], name
    if chromium := shutil.which("chromium"):  # the search works from the disk
        home = f"{(tmp_path / 'index.html').as_uri()}?q=recall@1"
        shown = [chromium, "--headless", "--no-sandbox", "--virtual-time-budget=15000", "--dump-dom", home]
        assert "1 matching document" in subprocess.check_output(shown, text=True, stderr=subprocess.DEVNULL)
    for command in ("capim store verify", "capim run"):
        assert f">{command}<" in pages["reference/cli.html"], command
    assert ":meth:" not in pages["reference/python.html"]
    for column, comment in (
        ("rank_best", "1 + items strictly above the best relevant one"),
        ("digest", "SHA-256 of the"),
    ):
        assert re.search(
            rf"<code>{column}</code></td>.{{0,120}}{re.escape(comment)}", pages["reference/schema.html"], re.DOTALL
        )
