"""Finds a user's metric by ``FILE.py:NAME`` or ``MODULE:NAME``."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import textwrap
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from capim.store.errors import RequestError
from capim.store.own_code import loaded_module, shown_path
from capim.store.types import digest16

FORM = "module:function or path.py:function, options in parentheses, e.g. my_metrics.py:margin, my_metrics.py:at_k(k=3)"


class Found(NamedTuple):
    """What a user named: an object of a module, with options."""

    name: str
    target: Any
    options: Mapping[str, object]
    file: str


def find(requested: str, folder: Path) -> Found:
    """The object that a user named.

    A file is executed under a private name, so that ``metrics.py`` or ``store.py`` never stands for a module of capim
    or of a library; modules beside it can be imported, unless they are called like a package of capim. The name of the
    metric is ``FILE:NAME(option=value)``, with the file's name without its folder and the options in alphabetical
    order.

    Raises:
        RequestError: No such file, module or object, a module that cannot be imported, or options that are not
            literals.
    """
    where, name, options = _parsed(requested)
    file = folder / (where if where.endswith(".py") else f"{where.replace('.', '/')}.py")
    beside = str(file.parent.resolve() if where.endswith(".py") else folder.resolve())
    sys.path.append(beside)  # at the end: a file beside the metric never stands for a library
    try:
        if where.endswith(".py") or ("." not in where and file.is_file()):
            module = _executed(requested, file.resolve())
            where = file.stem if where.endswith(".py") else where
        else:
            module = loaded_module(where, f"metric {requested!r}")
    finally:
        sys.path.remove(beside)
    if not callable(target := getattr(module, name, None)):
        raise RequestError(f"metric {requested!r}: {where!r} has no such function; it has {_callables(module)}")
    return Found(
        name=_with_options(f"{where}:{name}", options),
        target=target,
        options=options,
        file=str(getattr(module, "__file__", "") or ""),
    )


def found_object(target: Any) -> Found:
    """A Python object as if it had been named: ``MODULE:NAME``, with the options of a partial function.

    The module of a script is its file's name, as for ``FILE.py:NAME``; that of a notebook is ``notebook``.

    Raises:
        RequestError: It cannot be called, or is a lambda, which has no name.
    """
    options = dict(target.keywords) if isinstance(target, functools.partial) else {}
    inner = target.func if isinstance(target, functools.partial) else target
    name = getattr(inner, "__name__", type(inner).__name__)
    if not callable(target) or not name.isidentifier():
        raise RequestError(
            f"metric {target!r} must be {FORM}; or a function with a name: capim.Metric(name='own:NAME', function=…)"
        )
    where = str(getattr(inner, "__module__", None) or "notebook")
    if where in ("__main__", "builtins"):  # builtins: of code that was executed without a name
        where = Path(getattr(sys.modules["__main__"], "__file__", None) or "notebook").stem
    called = inner if hasattr(inner, "__code__") else getattr(type(inner), "__call__", None)  # noqa: B004
    return Found(
        name=_with_options(f"{where}:{name}", options),
        target=inner,
        options=options,
        file=getattr(getattr(called, "__code__", None), "co_filename", ""),
    )


def source_digest(target: Any, file: str) -> str:
    """A digest of a metric's file, of Python without comments; of the object's own code where it is in no file.

    Modules that the code imports are not part of it. Code of an interactive shell that keeps no source is told apart by
    its instructions.
    """
    while isinstance(target, functools.partial):
        target = target.func
    owner = target if hasattr(target, "__code__") else type(target)
    try:
        in_file = Path(file).is_file()
        text = Path(file).read_text("utf-8", "replace") if in_file else textwrap.dedent(inspect.getsource(owner))
    except (OSError, TypeError):
        code = getattr(owner, "__code__", None) or getattr(owner.__call__, "__code__", None)
        return digest16([code.co_code.hex(), *map(str, code.co_names)] if code else str(owner))
    with suppress(SyntaxError, ValueError):  # no Python: a file of judgements
        text = ast.unparse(ast.parse(text))
    return digest16(text)


def _with_options(name: str, options: Mapping[str, object]) -> str:
    given = ", ".join(f"{option}={value!r}" for option, value in sorted(options.items()))
    return name + (f"({given})" if options else "")


def _parsed(requested: str) -> tuple[str, str, dict[str, object]]:
    where, _, expression = requested.partition(":")
    try:
        named: ast.expr | None = ast.parse(expression.strip(), mode="eval").body
    except SyntaxError:
        named = None
    call = named if isinstance(named, ast.Call) else None
    function = call.func if call else named
    keywords = call.keywords if call else []
    if not where or not isinstance(function, ast.Name) or (call and call.args) or any(k.arg is None for k in keywords):
        raise RequestError(f"metric {requested!r} must be {FORM}")
    options: dict[str, object] = {}
    for keyword in keywords:
        try:
            options[str(keyword.arg)] = ast.literal_eval(keyword.value)
        except ValueError:
            raise RequestError(
                f"metric {requested!r}: option {keyword.arg} must be a literal (a number, a text in quotes, True, a "
                f"list), got {ast.unparse(keyword.value)}"
            ) from None
    return where, function.id, options


def _executed(requested: str, file: Path) -> ModuleType:
    if not file.is_file():
        raise RequestError(f"metric {requested!r}: there is no file {shown_path(str(file))}")
    return loaded_module(file, f"metric {requested!r}")


def _callables(module: ModuleType) -> str:
    own = [
        name
        for name, value in vars(module).items()
        if callable(value) and not name.startswith("_") and inspect.getmodule(value) in (module, None)
    ]
    return ", ".join(own) or "none"
