"""Forms of tables: which roles their columns have, and by which names a column is recognised, as ``forms.toml`` says.

A column is read by the first of a role's usual names, or because the user names it: ``columns.caption = "title"`` in
a description, ``--columns caption=title`` in a command. A name that is not known is never guessed; an error names a
column only as one that may be meant, by its cells.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from capim.store.errors import RequestError, did_you_mean, is_number, nearest, some
from capim.store.sets.columns_read import NEGATIVE
from capim.store.tables import DELIMITED, is_image_name, suffix_of

Columns: TypeAlias = Mapping[str, str | Sequence[str]]
"""Role -> the column, or the columns, that the user names for it."""
NO_COLUMNS: Columns = {}  # never changed; plain, for Prefect to write it as JSON
_ADDRESS = re.compile(r"\w+://")
_SHOWN = 20  # columns in a message


class Form(NamedTuple):
    """Roles that make a table one of this form.

    Attributes:
        name: Its key in ``forms.toml``.
        row: What a row is.
        needs: Roles that need a column.
        may: Roles that may have one -> what a missing one means.
        called: Role -> usual names of its column, where this form has its own.
        files: Usual names of its file.
    """

    name: str
    row: str
    needs: Sequence[str]
    may: Mapping[str, str] = MappingProxyType({})
    called: Mapping[str, Sequence[str]] = MappingProxyType({})
    files: Sequence[str] = ()

    @property
    def roles(self) -> tuple[str, ...]:
        """Return every role; those that need a column first."""
        return (*self.needs, *self.may)

    def names(self, role: str) -> Sequence[str]:
        """Return the usual names of a role's column."""
        return self.called.get(role) or NAMES.get(role, (role,))

    def find(self, role: str, available: Iterable[str]) -> str | None:
        """Return the column with the first usual name of a role; None if there is none."""
        return usual_column(self.names(role), available)

    def fits(self, available: Collection[str]) -> bool:
        """True if every role that needs a column has one."""
        return all(self.find(role, available) is not None for role in self.needs)

    def columns(
        self,
        available: Sequence[str],
        given: Columns = NO_COLUMNS,
        *,
        where: object,
        first: Mapping[str, Any] | None = None,
        table: str = "",
        several: tuple[str, ...] = (),
        waived: Collection[str] = (),
        faults: Iterable[str] = (),
    ) -> dict[str, tuple[str, ...]]:
        """Return role -> its columns, for the roles that have one.

        Args:
            available: Columns of the table.
            given: What the user names.
            where: File or data set, for messages.
            first: The first row, which messages show.
            table: Name of the table in a corpus of several, as the prefix of its roles: ``queries.query``.
            several: The roles that may have several columns.
            waived: Roles that need no column here.
            faults: What else is wrong with the columns.

        Raises:
            RequestError: If a role or a column is unknown, or a role that needs a column has none; names the option.
        """
        named = {role: (each,) if isinstance(each, str) else tuple(each) for role, each in given.items()}
        taken = {name for names in named.values() for name in names}
        left = [name for name in available if name not in taken]
        found: dict[str, tuple[str, ...]] = {
            role: (name,)
            for role in self.roles
            if role not in named and (name := self._column(role, left, first or {}))
        }
        has, lines = some([f"{name:.40}" for name in available], _SHOWN), [*faults]  # without a header they are cells
        for role, names in named.items():
            if role not in self.roles:
                known = ", ".join(self.roles)
                lines.append(f"columns has the unknown role {role!r}; form {self.name!r} has {known}")
            lines += [
                f"no column {name!r} for role {role!r}; {did_you_mean(name, available)}it has {has}"
                for name in names
                if name not in available
            ]
            refuse_lower_better(where, *(names if role == "score" else ()))
            if len(names) != 1 and role not in several:
                lines.append(f"columns.{role} must name one column, got {', '.join(names) or 'none'}")
        found |= named
        used = {name for names in found.values() for name in names}
        for role in self.needs:
            if role not in found and role not in waived:
                cells = {name: (first or {}).get(name) for name in left if name not in used}
                shown = some([f"{name:.40} {cell!r:.40}" for name, cell in (first or {}).items()], _SHOWN)
                line = f"no column for {role}; it has {has}; {self._advice(role, cells, table)}"
                lines.append(f"{line}; its first row: {shown}" if first else line)
        if not found and lines and suffix_of(Path(str(where))) in DELIMITED:
            lines.append("if its first line is a row, write a line with the names of its columns above the rows")
        if lines:
            raise RequestError([f"{where}: {line}" for line in lines])
        return found

    def _column(self, role: str, available: Sequence[str], first: Mapping[str, Any]) -> str | None:
        """Return the column of a role by its name; if it has numbers of images, one with a usual name and files."""
        name = self.find(role, available)
        if name is None or VALUES.get(role) != "image" or not is_number(str(first.get(name))):
            return name
        return self.find(role, [each for each in available if looks("image", first.get(each))]) or name

    def _advice(self, role: str, cells: Mapping[str, object], table: str) -> str:
        """Return the option that names the column of a role, with the column that may be meant if only one may."""
        addresses = [name for name, cell in cells.items() if VALUES.get(role) == "image" and _ADDRESS.match(str(cell))]
        if addresses:
            return f"{option(role, table=table)}; {addresses[0]!r} holds addresses: download the images first"
        if nested := [name for name, cell in cells.items() if "{" in str(cell)[:2]]:
            return f"{option(role, table=table)}; {nested[0]!r} holds objects: write their fields as columns"
        claimed = {fold(name) for other, names in NAMES.items() if other != role for name in names}
        fits = [
            name
            for name, cell in cells.items()
            if looks(VALUES.get(role, ""), cell)
            and not _ADDRESS.match(str(cell))
            and fold(name) not in claimed
            and not NEGATIVE.search(name)
            and not (role == "score" and words_of(name) & _LOWER)
        ]
        if len(fits) != 1:
            return option(role, table=table)
        if nearest(fits[0], self.names(role), cutoff=0.75):
            return option(role, *fits, table=table)
        return f"{option(role, table=table)}; {fits[0]!r} may be meant, by its first cell"


_TOML = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
NAMES: Mapping[str, Sequence[str]] = _TOML["names"]
VALUES: Mapping[str, str] = _TOML["values"]
FORMS = {name: Form(name=name, **each) for name, each in _TOML["forms"].items()}
OUTCOMES = {kind: tuple(names) for kind, names in _TOML["outcomes"].items()}
"""Kind of outcomes -> its columns. A row is of the first kind that has all of its columns in the row."""
_LOWER = frozenset(_TOML["lower"])
IDS: Mapping[str, Sequence[str]] = _TOML["ids"]
"""Kind of item, ``any``, ``query`` or ``rows`` -> usual names of a column of its ids, in files that are matched."""
SIDES: Mapping[str, Sequence[str]] = _TOML["sides"]
"""Modality -> words in names of files and arrays of vectors that say it."""

IMPORTS: Mapping[str, str] = _TOML["imports"]
"""Kind of import -> its name in messages."""
REFUSED: Mapping[str, str] = {suffix: each["instead"] for each in _TOML["refused"] for suffix in each["suffixes"]}
"""Suffix of a file that is not read -> the way that leads here."""


def option(role: str, *names: str, table: str = "") -> str:
    """Return how to name the column of a role, in a description and in a command.

    Examples:
        >>> option("caption", "title")
        'name it with columns.caption = "title" (--columns caption=title)'
        >>> option("query", table="queries")
        'name it with columns = { "queries.query" = "…" } (--columns queries.query=…)'
    """
    names, role = names or ("…",), f"{table}.{role}" if table else role
    quoted = ", ".join(f'"{name}"' for name in names)
    value = quoted if len(names) == 1 else f"[{quoted}]"
    line = f'columns = {{ "{role}" = {value} }}' if table else f"columns.{role} = {value}"
    return f"name it with {line} (--columns {','.join(f'{role}={name}' for name in names)})"


def given_columns(words: Iterable[str]) -> dict[str, str | list[str]]:
    """Parse ``--columns role=name,…``; a repeated role has several columns.

    Raises:
        RequestError: If a word is not a role and a name.

    Examples:
        >>> given_columns(["image=file", "caption=de", "caption=en"])
        {'image': 'file', 'caption': ['de', 'en']}
    """
    found: dict[str, str | list[str]] = {}
    for word in words:
        role, equals, name = word.partition("=")
        if not (role and equals and name):
            raise RequestError(f"--columns: expected ROLE=COLUMN, such as caption=title; got {word!r}")
        before = found.get(role)
        found[role] = name if before is None else [*([before] if isinstance(before, str) else before), name]
    return found


def usual_column(names: Iterable[str], available: Iterable[str]) -> str | None:
    """Return the column with the first of some names, whatever its case and punctuation; None if there is none."""
    available = [*available]
    by_fold = {fold(name): name for name in reversed(available)}
    found = (name if name in available else by_fold.get(fold(name)) for name in names)
    return next((column for column in found if column is not None), None)


@cache
def fold(name: str) -> str:
    """Return the letters and digits of a name, in lower case."""
    return "".join(c for c in name.casefold() if c.isalnum())


def refuse_lower_better(where: object, *names: str) -> None:
    """Raise ``RequestError`` if the name of scores, of a file, column or array, says that lower values are better."""
    if wrong := next((name for name in names if words_of(name) & _LOWER), None):
        raise RequestError(
            f"{where}: {wrong!r} is the name of distances or losses, no scores; of distances lower is better: save "
            "-distances as scores.npy, or in a column score, and import that"
        )


def words_of(name: str) -> set[str]:
    """Return the words of a name, in lower case: ``img_emb_0.npy`` and ``ImgEmb`` have ``img`` and ``emb``."""
    return {*re.split(r"[^a-z]+", re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower())}


def looks(value: str, cell: object) -> bool:
    """True if a cell may be one of such values: ``number``, ``image`` (the name of a file) or ``text``."""
    if value == "number" or is_number(str(cell)):
        return value == "number" and is_number(str(cell))
    return isinstance(cell, str) and bool(value) and is_image_name(cell) == (value == "image")


def renamed(names: Iterable[str], given: Columns, form: Form, where: object) -> dict[str, str]:
    """Return the role that the user names each column for, else its own name; without columns that such roles replace.

    Raises:
        RequestError: If a role or a column is unknown.
    """
    available = [*names]
    for_role = {role: each if isinstance(each, str) else each[0] for role, each in given.items()}
    form.columns(available, for_role, where=where, waived=form.needs)
    role_of = {column: role for role, column in for_role.items()}
    return {name: role_of.get(name, name) for name in available if name in role_of or name not in for_role}
