"""Digests of the code behind stored figures: of each metric of the table, and of the statistics.

``python -m tests.metrics.code_digests`` records today's, for ``test_versions``.
"""

from __future__ import annotations

import ast
import functools
import inspect
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from capim.store.plugins import OWN
from capim.store.types import digest16
from capim.tasks.metrics import METRICS, Metric
from capim.tasks.statistics import VERSION

RECORD = Path(__file__).with_name("code_digests.json")
ROOT = Path(__file__).parents[2]
STATISTICS = (
    "tasks/statistics/**/*.py",
    "tasks/results/*.py",
    "tasks/metrics/metric.py",
    "tasks/metrics/crosslingual.py",
)
FIELDS = ("reduce", "several", "share", "judged", "needs", "higher_is_better", "bounds", "guess")


def today() -> dict[str, dict[str, Any]]:
    """Metric, or ``statistics``, to its version and the digest of its code."""
    own = {name: metric for name, metric in METRICS.items() if METRICS.package(name) == OWN}
    found = {name: {"version": metric.version, "code": of_metric(metric)} for name, metric in own.items()}
    return {**found, "statistics": {"version": VERSION, "code": of_statistics()}}


def of_metric(metric: Metric) -> str:
    """A digest of the functions of a metric, those that they call, and how values become a figure.

    Examples:
        >>> from dataclasses import replace
        >>> of_metric(METRICS["MRR"]) == of_metric(replace(METRICS["MRR"], reduce="median"))
        False
    """
    parts = [metric.values, metric.guess, metric.reduce]
    sources: dict[str, object] = {}
    for function in filter(callable, parts):
        collect(function, sources)
    fields = {name: str(getattr(metric, name)) for name in FIELDS if not callable(getattr(metric, name))}
    return digest16([sorted(sources.items()), sorted(fields.items())])


def of_statistics() -> str:
    """A digest of the modules that make intervals, tests and ranks of values of queries."""
    files = {path for pattern in STATISTICS for path in ROOT.glob(pattern)} - {ROOT / "tasks/statistics/__init__.py"}
    return digest16([[str(path.relative_to(ROOT)), shape(ast.parse(path.read_bytes()))] for path in sorted(files)])


def collect(function: Callable[..., object], sources: dict[str, object]) -> None:
    """Add the code of a function of ours, and of all that it names, to ``sources``."""
    if isinstance(function, functools.partial):
        sources[f"partial {function.func.__name__}"] = repr((function.args, sorted(function.keywords.items())))
        function = function.func
    module = function.__module__
    key = f"{module}.{function.__qualname__}"
    if key in sources or module.partition(".")[0] != "capim":
        return
    definition = definition_of(function)
    sources[key] = shape(definition)
    used = {name: getattr(sys.modules[module], name, None) for name in names(definition)}
    for name, value in {**used, **inspect.getclosurevars(function).nonlocals}.items():
        if inspect.isfunction(value):
            collect(value, sources)
        elif isinstance(value, int | float | str | tuple):
            sources[f"{key}, {name}"] = repr(value)


def definition_of(function: Callable[..., object]) -> list[ast.AST]:
    """The function or class of the module that holds a function; the lambdas of its line for one outside of these."""
    tree = ast.parse(inspect.getsource(sys.modules[function.__module__]))
    name, line = function.__qualname__.partition(".")[0], function.__code__.co_firstlineno
    if name == "<lambda>":
        return [node for node in ast.walk(tree) if isinstance(node, ast.Lambda) and node.lineno == line]
    return [node for node in tree.body if getattr(node, "name", "") == name]


def names(node: object) -> Iterator[str]:
    """The names that code uses, those of annotations left out."""
    if isinstance(node, list):
        for each in node:
            yield from names(each)
    if not isinstance(node, ast.AST):
        return
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns"):
            continue
        yield from names(value)
    if isinstance(node, ast.Name):
        yield node.id


def shape(node: object) -> object:
    """Code without comments, docstrings and empty fields: the same under every version of Python.

    Examples:
        >>> one, other = "def f(x):\\n    'Twice.'\\n    return 2 * x", "def f(x):  # twice\\n    return 2 * x"
        >>> shape(ast.parse(one)) == shape(ast.parse(other))
        True
    """
    if isinstance(node, list):
        return [shape(each) for each in node]
    if not isinstance(node, ast.AST):
        return repr(node)
    fields: dict[str, Any] = dict(ast.iter_fields(node))
    if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
        fields["body"] = fields["body"][1:]
    return [type(node).__name__, {name: shape(each) for name, each in fields.items() if each not in (None, [])}]


if __name__ == "__main__":
    RECORD.write_text(json.dumps(today(), indent=1) + "\n")
