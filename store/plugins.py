"""Tables that installed packages add rows to, by entry points: adapters, corpora, metrics, sections of the report."""

from __future__ import annotations

import importlib
import logging
import sys
import traceback
from collections.abc import Callable, ItemsView, Iterator, Mapping, MutableMapping, ValuesView
from contextlib import contextmanager
from functools import cached_property
from importlib.machinery import SourceFileLoader
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from capim.store.errors import RequestError, WorkError

log = logging.getLogger(__name__)
OWN = "capim"
T = TypeVar("T")


class Plugin(NamedTuple):
    """A row that a package adds: the entry point, and the name and version of the package."""

    point: EntryPoint
    package: str
    version: str

    @contextmanager
    def failures(self, what: str) -> Iterator[None]:
        """Turn an error of the package's code into a ``WorkError`` that names the package; ``what`` failed."""
        try:
            yield
        except Exception as error:
            raise WorkError(f"{self}: the {what} failed ({type(error).__name__}: {error})") from error

    def __str__(self) -> str:
        return f"package {self.package} {self.version}, entry point {self.point.name!r} of {self.point.group}"


class PluginTable(MutableMapping[str, T]):
    """Rows by name: those of capim, and after them those of installed packages.

    A package names its row in an entry point of the table's group, ``swatch = "my_package:ADAPTER"``. Packages are
    searched when a name is not one of capim's or all names are listed, and a package is imported when its row is read.
    A row that cannot be used does not affect the others: ``values()`` and ``items()`` leave it out and log one line;
    ``table[name]`` raises ``RequestError`` with that line.

    Args:
        group: Group of the entry points, e.g. ``capim.metrics``.
        rows: Rows of capim.
        row: Function that makes a row of the target of an entry point; raises ``TypeError`` or ``ValueError`` if it is
            none.
    """

    def __init__(self, group: str, rows: Mapping[str, T], row: Callable[[Plugin, Any], T]) -> None:
        self.group = group
        self._own = dict(rows)
        self._row = row
        self._added: dict[str, T | RequestError] = {}
        self._usable: dict[str, T] | None = None  # kept, because a run asks a thousand times

    @cached_property
    def plugins(self) -> Mapping[str, Plugin]:
        """Return the rows of packages by name, not imported; duplicate names are refused and logged."""
        found: dict[str, Plugin] = {}
        points = [Plugin(p, p.dist.name, p.dist.version) for p in entry_points(group=self.group) if p.dist]
        for plugin in sorted(points, key=lambda plugin: (plugin.package, plugin.point.name)):
            name = plugin.point.name
            if name in self._own or name in found:
                other = OWN if name in self._own else f"package {found[name].package}"
                log.error("%s: the name is taken by %s; the row is left out", plugin, other)
            else:
                found[name] = plugin
        return found

    def package(self, name: str) -> str:
        """Return the package that a row comes from, with its version; ``capim`` for a row of capim."""
        if name in self._own or name not in self.plugins:
            return OWN
        return f"{self.plugins[name].package} {self.plugins[name].version}"

    def __getitem__(self, name: str) -> T:
        if name in self._own:
            return self._own[name]
        if name not in self._added:
            self._added[name] = self._read(self.plugins[name])
        found = self._added[name]
        if isinstance(found, RequestError):
            raise found
        return found

    def __setitem__(self, name: str, row: T) -> None:
        self._own[name] = row
        self._usable = None

    def __delitem__(self, name: str) -> None:
        del self._own[name]
        self._usable = None

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in self.plugins

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from (name for name in self.plugins if name not in self._own)

    def __len__(self) -> int:
        return len(list(iter(self)))

    def values(self) -> ValuesView[T]:
        """Return the usable rows."""
        return self._rows().values()

    def items(self) -> ItemsView[str, T]:
        """Return the usable rows, by name."""
        return self._rows().items()

    def _rows(self) -> dict[str, T]:
        if self._usable is not None:
            return self._usable
        rows: dict[str, T] = {}
        for name in self:
            known = name in self._added
            try:
                rows[name] = self[name]
            except RequestError as error:
                if not known:
                    log.error("%s", error)
        self._usable = rows
        return rows

    def _read(self, plugin: Plugin) -> T | RequestError:
        try:
            return self._row(plugin, plugin.point.load())
        except Exception as error:  # noqa: BLE001 - code of another package
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            return RequestError(
                f"{plugin}: {plugin.point.value} cannot be used ({reason}); update the package, or remove it with: "
                f"pip uninstall {plugin.package}"
            )


def loaded_module(where: str | Path, what: str) -> ModuleType:
    """Return a module by name, or a file as a module, from its current source; ``what`` begins messages.

    A file gets a private name, so that ``metrics.py`` or ``store.py`` is never mistaken for a module of capim or of a
    library.

    Raises:
        RequestError: If there is no such module or file, or if its code fails.
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
    from capim.store.types import digest16  # which needs pyarrow; a table of rows does not

    name = f"_capim_own_{digest16(str(file))}"
    module = ModuleType(name)
    module.__file__ = str(file)
    loader = SourceFileLoader(name, str(file))
    code = loader.source_to_code(loader.get_data(str(file)), str(file))
    sys.modules[name] = module  # dataclasses look their module up
    try:
        exec(code, module.__dict__)  # noqa: S102 - the user's own code
    except SystemExit as left:
        raise RuntimeError(f"the file exits Python (SystemExit: {left.code}) when it is run") from left
    return module


def what_failed(error: BaseException, file: str) -> str:
    """Return the error with the innermost line of the user's file in it: ``TypeError: …, at FILE line N: …``."""
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
    """Return a path for display: relative to the current folder if it is inside."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file
