"""Words and openings that make text read like a translation; ``make check`` refuses them: ``python -m tests.words``."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("capim", "deployments", "flows", "reports", "store", "tasks")
WORDS = re.compile(r"\b(anew|likewise|of whom|strangers?|shall)\b")
OPENINGS = re.compile(r"(What|Whether|That|Of) ")
"""Of the docstring of a function or class; "Return …", "True if …" and a noun say the same."""


def python_files() -> Iterator[Path]:
    """Files of the product; ``capim`` holds links to the other packages."""
    return (file for package in PACKAGES[1:] for file in sorted((ROOT / package).rglob("*.py")))


def documented(file: Path) -> Iterator[tuple[int, str]]:
    """Line and text of the docstrings of a file."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
            yield getattr(node, "lineno", 1), text


def faults() -> list[str]:
    """Place and word, one line each."""
    found = []
    for file in python_files():
        for at, text in documented(file):
            name = f"{file.relative_to(ROOT)}:{at}"
            if opening := OPENINGS.match(text):
                found.append(f"{name}: a docstring begins with {opening[1]!r}")
            found += [f"{name}: {word[1]!r}" for word in WORDS.finditer(text)]
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    for page in [*pages, *(ROOT / "deployments").glob("*.md")]:
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            found += [f"{page.relative_to(ROOT)}:{number}: {word[1]!r}" for word in WORDS.finditer(line)]
    return found


if __name__ == "__main__":
    listed = faults()
    sys.stdout.writelines(f"{line}\n" for line in listed)
    sys.exit(bool(listed))
