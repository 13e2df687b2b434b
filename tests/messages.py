"""Lists every text that a user can meet, to be read through as a whole: ``python -m tests.messages > messages.txt``.

Three parts: every ``--help`` page; every error, warning and progress text of the product; every label of the report.
Replacement fields of f-strings stand as ``{expression}``.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.flows.commands import all_commands, help_of

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("flows", "tasks", "store", "reports", "deployments")
LOGGERS = re.compile(r"^logg(er|ing)\.|(faults|problems)\.(append|extend)$|stderr\.write$|warnings\.warn$")


def help_pages() -> Iterator[tuple[str, str]]:
    """Every command with its help page, subcommands included."""
    for words in all_commands():
        yield f"capim {words}".strip(), help_of(words, width=120)


def messages(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of everything that a module raises, collects as a fault, logs or writes to standard error."""
    for node in ast.walk(tree):
        value: ast.expr
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            kind, value = ast.unparse(node.exc.func), node.exc
        elif isinstance(node, ast.Call) and LOGGERS.search(ast.unparse(node.func)):
            kind, value = ast.unparse(node.func), node
        elif isinstance(node, ast.Assign | ast.AugAssign) and "faults" in ast.unparse(node)[:20]:
            kind, value = "fault", node.value
        else:
            continue
        for text in texts(value):
            yield node.lineno, f"{kind}: {text}"


def labels(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of every string of a module that is not a docstring and reads like words."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):  # a docstring, or a call without a value
            continue
        for child in ast.iter_child_nodes(node):
            if isinstance(node, ast.JoinedStr):
                continue
            if isinstance(child, ast.JoinedStr | ast.Constant):
                for text in texts(child):
                    yield child.lineno, text


def texts(node: ast.AST) -> Iterator[str]:
    """The strings of an expression that hold more than one word."""
    if isinstance(node, ast.JoinedStr):
        yield "".join(
            "{" + ast.unparse(part.value) + "}" if isinstance(part, ast.FormattedValue) else str(ast.literal_eval(part))
            for part in node.values
        )
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, str) and " " in node.value.strip():
            yield node.value
    else:
        for child in ast.iter_child_nodes(node):
            yield from texts(child)


def write_texts(package: str, find: Callable[[ast.Module], Iterator[tuple[int, str]]]) -> None:
    """Write the texts of every module of a package, by file and line."""
    for path in sorted((ROOT / package).rglob("*.py")):
        lines = sorted(set(find(ast.parse(path.read_text(encoding="utf-8")))))
        if lines:
            sys.stdout.write(f"\n=== {path.relative_to(ROOT)}\n")
            sys.stdout.writelines(f"{line:4}  {' '.join(text.split())}\n" for line, text in lines)


def main() -> None:
    """Write all three parts to standard output."""
    for words, page in help_pages():
        sys.stdout.write(f"\n=== {words} --help\n{page}")
    sys.stdout.write("\n\n##### Messages\n")
    for package in PRODUCT:
        write_texts(package, messages)
    sys.stdout.write("\n\n##### Labels of the report\n")
    write_texts("reports", labels)


if __name__ == "__main__":
    main()
