"""The examples of docstrings, a test for each: they are found without an import, so that collecting them is quick."""

from __future__ import annotations

import ast
import doctest
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("deployments", "flows", "reports", "store", "tasks", "tests")


def docstrings(node: ast.Module | ast.ClassDef | ast.FunctionDef, name: str) -> Iterator[tuple[str, str]]:
    """The name and the docstring of a module, class or function with an example, and of all inside it."""
    if ">>>" in (text := ast.get_docstring(node) or ""):
        yield name, text
    for child in node.body:
        if isinstance(child, ast.ClassDef | ast.FunctionDef):
            yield from docstrings(child, f"{name}.{child.name}")


def examples() -> Iterator[doctest.DocTest]:
    """Every docstring with an example; its name begins with that of its module."""
    for file in sorted(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py")):
        path = file.relative_to(ROOT)
        if ">>>" in (source := file.read_text("utf-8")) and "benchmarks" not in path.parts and file != Path(__file__):
            module = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
            module = module if module.startswith("tests.") else f"capim.{module}"
            for name, text in docstrings(ast.parse(source), module):
                yield doctest.DocTestParser().get_doctest(text, {"__name__": module}, name, str(path), 0)


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.name)
def test_an_example_prints_what_its_docstring_says(example: doctest.DocTest) -> None:
    example.globs = dict(vars(import_module(example.globs["__name__"])))
    printed: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(example, out=printed.append)
    assert not printed, "".join(printed)
