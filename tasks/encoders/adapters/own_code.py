"""Code that a user names himself: a Python file, or a function of an installed package; and what its identity is."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from functools import cache
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

from capim.store.errors import RequestError
from capim.store.plugins import loaded_module
from capim.tasks.encoders.checkpoints.checkpoint import digest_of

FORM = "my_model.py, my_adapter.py:load or my_package:load"
_NAMED = re.compile(r"(?P<where>.+\.py|[\w.]+):(?P<function>\w+)", re.ASCII)


_packages = cache(packages_distributions)  # reads the lists of files of all packages, half a second


def is_own_code(adapter: str) -> bool:
    """Whether the adapter of a spec is a function that the user names, ``FILE.py:FUNCTION`` or ``MODULE:FUNCTION``.

    Examples:
        >>> [is_own_code(name) for name in ("my_package.models:load", "models/mine.py:load", "hf_dual", "mine.py")]
        [True, True, False, False]
    """
    return _NAMED.fullmatch(adapter) is not None


def function_of(adapter: str) -> Callable[..., Any]:
    """The function that the user names.

    Raises:
        RequestError: The file or module does not exist or fails, or has no such function.
    """
    where, _, name = adapter.rpartition(":")
    module = loaded_module(Path(where) if where.endswith(".py") else where, f"adapter {adapter!r}")
    function = getattr(module, name, None)
    if not callable(function):
        raise RequestError(f"adapter {adapter!r}: {where} has no function {name!r}")
    return function  # type: ignore[no-any-return]


def state_of(adapter: str) -> tuple[str, str]:
    """Name and state of the code that the user names: a package and its version, or a file (folder) and its digest.

    Raises:
        RequestError: There is no such file or module.
    """
    where = adapter.rpartition(":")[0]
    if where.endswith(".py"):
        file = Path(where)
        if not file.is_file():
            raise RequestError(f"adapter {adapter!r}: there is no file {where}")
        return file.name, digest_of(file)
    top = where.partition(".")[0]
    if packages := _packages().get(top):
        return packages[0], version(packages[0])
    source = importlib.util.find_spec(top)
    if source is None or source.origin is None:
        raise RequestError(
            f"adapter {adapter!r}: there is no module {top!r}; install its package, or name a file: {FORM}"
        )
    # installed as a link to its source, or found by PYTHONPATH: a version says nothing about the code
    return top, digest_of(Path(source.origin).parent if source.submodule_search_locations else Path(source.origin))
