"""One fact, one place: a name of a table stands as text in its own table, and nowhere else in the product."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from capim.store.plugins import OWN, PluginTable
from capim.tasks.metrics import METRICS
from capim.tasks.metrics.table import RSUM

ROOT = Path(__file__).parents[1]
PACKAGES = ("capim", "deployments", "flows", "reports", "store", "tasks")


class Names(NamedTuple):
    """The names of a table.

    Attributes:
        names: What is looked for.
        homes: Files and folders that may name them: the table, and what is made of its rows.
        instead: What other files write.
        words: Names that are also other words, so that their text says nothing.
    """

    names: Collection[str]
    homes: tuple[str, ...]
    instead: str
    words: Collection[str] = ()


def own(table: PluginTable[Any]) -> list[str]:
    """The rows of capim; those of installed packages are named in their own code."""
    return [name for name in table if table.package(name) == OWN]


TABLES = {
    "metric": Names(
        names=[*own(METRICS), RSUM.metric],
        homes=("tasks/metrics", "tasks/protocols.py"),  # a protocol's row names the metrics that only it has
        instead="the object (`RECALLS[0].name`), a field of it (`on_leaderboard`), or the protocol's main metric",
        words=("map", "bpref"),  # a function of Python, a column of outcomes,
    )
}
"""Another table is one more row."""


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The lines and values of the strings of a module, but for docstrings and other texts that nobody reads."""
    unread = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in unread:
            yield node.lineno, node.value


def places(of: Names) -> list[str]:
    """Where a name stands as text outside of its homes, as ``FILE:LINE NAME``."""
    names = {*of.names} - {*of.words}
    files = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    found = []
    for path in sorted(path for path in files if not path.is_symlink()):
        file = path.relative_to(ROOT).as_posix()
        if not any(file == home or file.startswith(f"{home}/") for home in of.homes):
            found += [f"{file}:{line} {text}" for line, text in texts(ast.parse(path.read_bytes())) if text in names]
    return found


@pytest.mark.parametrize("table", TABLES)
def test_a_name_stands_as_text_in_its_own_table_alone(table: str) -> None:
    found = places(TABLES[table])
    assert not found, f"names of a {table} as text: {', '.join(found)}; write {TABLES[table].instead}"


def test_texts_are_found_in_code_and_not_in_docstrings() -> None:
    module = ast.parse('"""R@1."""\nNAME = {"R@1": 1}\ndef f(x="MRR"):\n    "R@5"\n    return f"{x} R@10"\n')
    assert [text for _, text in texts(module)] == ["R@1", "MRR", " R@10"]
