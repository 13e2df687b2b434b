"""The pages of docs/ that lead through something: every block runs as printed, in an empty folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documents import ROOT, fenced_blocks, make_tree, run_page

PAGES = ("own_data.md", "embeddings.md")


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_every_block_of_a_page_runs_as_printed(tmp_path: Path, name: str) -> None:
    run_page(ROOT / "docs" / name, tmp_path)


def page(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "page.md"
    file.write_text(text)
    return file


def test_a_command_that_ends_otherwise_than_the_page_says_is_an_error(tmp_path: Path) -> None:
    run_page(page(tmp_path, "```bash\ntrue\n```\n```bash exit=3\nexit 3\n```\n"), tmp_path)
    with pytest.raises(AssertionError, match="`exit 3` ended with exit code 3, expected 0"):
        run_page(page(tmp_path, "```bash\nexit 3\n```\n"), tmp_path)


def test_what_a_page_shows_has_to_be_printed_in_its_order(tmp_path: Path) -> None:
    block = "```python\nprint('one\\ntwo  2\\nthree')\n```\n"
    run_page(page(tmp_path, f"{block}```text\none\nt… 2\n```\n"), tmp_path)
    for wrong in ("two 2\none", "four", "one two"):
        with pytest.raises(AssertionError, match="no line"):
            run_page(page(tmp_path, f"{block}```text\n{wrong}\n```\n"), tmp_path)


def test_files_and_trees_of_a_page_are_made(tmp_path: Path) -> None:
    run_page(page(tmp_path, "```toml deep/a.toml\nx = 1\n```\n"), tmp_path)
    assert (tmp_path / "deep" / "a.toml").read_text() == "x = 1\n"
    make_tree("a/\n  b/\n    1.jpg\n  2.PNG  # a remark\nc.jpg\n", tmp_path)
    found = sorted(str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file())
    assert found == ["a/2.PNG", "a/b/1.jpg", "c.jpg", "deep/a.toml", "page.md"]
    assert [block.language for block in fenced_blocks(ROOT / "docs" / "own_data.md")][:4] == [
        "tree", "csv", "bash", "text",
    ]  # fmt: skip
