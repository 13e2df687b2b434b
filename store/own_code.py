"""Python code of a user, in a file or an installed module: load it, and say which of its lines failed."""

from __future__ import annotations

import importlib
import sys
import traceback
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

from capim.store.errors import RequestError
from capim.store.types import digest16


def loaded_module(where: str | Path, what: str) -> ModuleType:
    """The module of this name, or a file as a module, from its source as it is now; ``what`` begins messages.

    A file gets a private name, so that ``metrics.py`` or ``store.py`` never stands for a module of capim or of a
    library.

    Raises:
        RequestError: There is no such module or file, or its code fails.
    """
    try:
        return _run(where) if isinstance(where, Path) else importlib.import_module(where)
    except Exception as error:
        if isinstance(where, Path):
            reason = f"{shown_path(str(where))} failed: {what_failed(error, str(where.resolve()))}"
        else:
            reason = (
                f"cannot import {where!r}: {type(error).__name__}: {error}; a file is named with its suffix: "
                f"{where.replace('.', '/')}.py:NAME"
            )
        raise RequestError(f"{what}: {reason}") from error


def _run(file: Path) -> ModuleType:
    file = file.resolve()
    name = f"_capim_own_{digest16(str(file))}"
    module = ModuleType(name)
    module.__file__ = str(file)
    loader = SourceFileLoader(name, str(file))
    code = loader.source_to_code(loader.get_data(str(file)), str(file))
    sys.modules[name] = module  # dataclasses look their module up
    try:
        exec(code, module.__dict__)  # noqa: S102 - the user's own code
    except SystemExit as left:
        raise RuntimeError(f"the file leaves Python (SystemExit: {left.code}) when it is run") from left
    return module


def what_failed(error: BaseException, file: str) -> str:
    """The error with the innermost line of the user's file that led to it, as ``TypeError: …, at FILE line N: …``."""
    kind = type(error).__name__
    if isinstance(error, SyntaxError):
        return (
            f"{kind}: {error.msg}, at {shown_path(str(error.filename))} line {error.lineno}: "
            f"{(error.text or '').strip()}"
        )
    message = error.args[0] if isinstance(error, KeyError) and error.args else error
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    at = f", at {shown_path(file)} line {lines[-1].lineno}: {lines[-1].line}" if lines else ""
    return f"{kind}: {message}{at}"


def shown_path(file: str) -> str:
    """A path as it is shown: relative to the current folder where it lies in it."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file
