"""One fact in one place: names of metrics, protocols, adapters and analyses, and when a query is missed or found.

Read from the syntax trees of the product, without docstrings. Also here: no circle of files.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import grimp

from capim.store.plugins import OWN
from capim.store.types import FUSION, IMPORTED, OF_OUTCOMES, TWO_STAGE
from capim.tasks.analyses.table import ANALYSES
from capim.tasks.encoders.adapters import ADAPTERS
from capim.tasks.metrics import METRICS
from capim.tasks.metrics.table import RSUM
from capim.tasks.protocols import ALL_QUADRUPLES
from tests.test_architecture import ROOT, product_files

PROTOCOL = re.compile(r"(t2i|i2t|i2i|t2t)/")
RANK_IN_SQL = re.compile(r"rank_(best|worst)\s*(>|=|<>)\s*1\b")


def naming(tree: ast.Module) -> list[Any]:
    """Return every node that may name something; no docstring."""
    unread = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    kinds = ast.Compare | ast.keyword | ast.Dict | ast.Subscript | ast.Constant
    return [node for node in ast.walk(tree) if isinstance(node, kinds) and node not in unread]


@cache
def nodes() -> list[tuple[str, ast.AST]]:
    """Return every such node of the product's syntax trees, with its file."""
    found = []
    for file in [ROOT / "capim" / "__init__.py", *product_files()]:
        path = file.relative_to(ROOT).as_posix()
        found += [(path, node) for node in naming(ast.parse(file.read_text(encoding="utf-8")))]
    return found


def places(applies: Callable[[ast.AST], bool], *tables: str) -> list[str]:
    """``file:line`` of every node that applies, outside the tables: files or folders that may say it."""
    return [
        f"{path}:{getattr(node, 'lineno', 0)}"
        for path, node in nodes()
        if not path.startswith(tables) and applies(node)
    ]


def _about(node: ast.AST | None, field: str) -> bool:
    """True for ``x.field``, ``field``, ``x["field"]``, ``x.get("field")`` and the text ``"field"``."""
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name == field
        case ast.Subscript(slice=ast.Constant(value=name)) | ast.Constant(value=name):
            return name == field
        case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=name), *_]):
            return name == field
    return False


def named(field: str, names: set[str], table: str) -> Callable[[ast.AST], bool]:
    """Return whether a node compares a field with one of the names, sets it to one, or looks one up in the table."""

    def said(nodes: Iterable[ast.AST]) -> bool:
        every = (each for node in nodes for each in ast.walk(node))
        return any(isinstance(each, ast.Constant) and each.value in names for each in every)

    def applies(node: ast.AST) -> bool:
        match node:
            case ast.Compare():
                sides = [node.left, *node.comparators]
                return any(_about(side, field) for side in sides) and said(sides)
            case ast.keyword(arg=name):
                return name == field and said([node.value])
            case ast.Dict():
                return said(value for key, value in zip(node.keys, node.values, strict=True) if _about(key, field))
            case ast.Subscript(value=ast.Name(id=name)):
                return name == table and said([node.slice])
        return False

    return applies


def test_names_of_metrics_stand_in_their_table_alone() -> None:
    """Other files write the object (`RECALLS[0].name`), a field of it, or the protocol's main metric."""
    names = {name for name in METRICS if METRICS.package(name) == OWN} | {RSUM.metric}
    names -= {"map", "bpref"}  # a function of Python, a column of outcomes

    def is_name(node: ast.AST) -> bool:
        return isinstance(node, ast.Constant) and node.value in names

    assert places(is_name, "tasks/metrics/", "tasks/protocols.py") == []  # a protocol's row names its own metrics


def test_ids_of_protocols_stand_in_their_table_alone() -> None:
    def is_id(node: ast.AST) -> bool:
        return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(PROTOCOL.match(node.value))

    assert places(is_id, "tasks/protocols.py") == []
    assert places(named("protocol", {ALL_QUADRUPLES}, "PROTOCOLS"), "tasks/protocols.py") == []


def test_nobody_compares_the_name_of_an_adapter() -> None:
    names = {*ADAPTERS, IMPORTED, OF_OUTCOMES, TWO_STAGE, FUSION}
    assert places(named("adapter", names, "ADAPTERS"), "tasks/encoders/adapters/__init__.py") == []


def test_names_of_analyses_stand_in_their_registry_alone() -> None:
    names = {name for analysis in ANALYSES.values() for name in (analysis.name, *analysis.tables)}
    assert places(named("analysis", names, "ANALYSES"), "tasks/analyses/") == []


def test_missed_and_found_are_defined_once() -> None:
    def spells_it(node: ast.AST) -> bool:
        match node:
            case ast.Compare(comparators=[ast.Constant(value=1)]):
                return any(_about(node.left, name) for name in ("rank_best", "rank_worst"))
            case ast.Constant(value=str() as text):
                return RANK_IN_SQL.search(text) is not None
        return False

    assert places(spells_it, "store/schema.py", "store/sql.py") == []


def test_no_files_import_each_other_in_a_circle() -> None:
    graph = grimp.build_graph("capim", exclude_type_checking_imports=True)
    circling = {
        module.removeprefix("capim.")
        for module in graph.modules
        if any(graph.chain_exists(each, module) for each in graph.find_modules_directly_imported_by(module))
    }
    assert circling == set(), "these files import each other"


def test_the_rules_find_what_they_are_about() -> None:
    wrong = ast.parse('spec.adapter == "http"; f(adapter="http"); {"adapter": "http"}; ADAPTERS["http"]; x == "http"')
    assert sum(map(named("adapter", {"http"}, "ADAPTERS"), ast.walk(wrong))) == 4
    assert Path(ROOT / "tasks/protocols.py").is_file()
    module = ast.parse('"""R@1."""\nNAME = {"R@1": 1}\ndef f(x="MRR"):\n    "R@5"\n    return f"{x} R@10"\n')
    assert [node.value for node in naming(module) if isinstance(node, ast.Constant) and node.value != 1] == [
        "R@1", "MRR", " R@10"
    ]  # fmt: skip
