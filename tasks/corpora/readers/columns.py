"""Which column of a table holds what: the roles of the three forms, and the column names by which they are recognised.

Names are compared by their letters and digits alone: ``File Name`` and ``fileName`` are ``file_name``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from capim.store.errors import RequestError, did_you_mean, nearest

FormName: TypeAlias = Literal["captions", "pairs", "quadruples"]
Columns: TypeAlias = Mapping[str, str | Sequence[str]]


class Form(NamedTuple):
    """The roles of columns in a form."""

    required: tuple[str, ...]
    optional: tuple[str, ...]


FORMS: dict[FormName, Form] = {
    "captions": Form(
        ("image", "caption"), ("id", "caption_id", "language", "translator", "ordinal", "objects", "annotation_id")
    ),
    "pairs": Form(("image", "caption", "negative"), ("id", "category", "language")),
    "quadruples": Form(("image_0", "image_1", "caption_0", "caption_1"), ("id", "tags", "language")),
}

# Column names by which a role is recognised if the description does not name its column; the first that is there is
# used. Any other role is recognised by its own name.
USUAL_NAMES: dict[str, tuple[str, ...]] = {
    "image": (
        "image", "file_name", "image_path", "img_path", "file_path", "path", "file", "image_name", "image_file",
        "image_file_name", "img_name", "img", "photo", "picture", "jpg", "png", "webp", "image_id",
    ),
    "caption": ("caption", "captions", "text", "sentence", "sentences", "comment", "description"),
    "negative": ("negative", "negative_caption", "hard_negative", "false_caption"),
    "ordinal": ("ordinal", "comment_number", "caption_number"),
}  # fmt: skip


def columns_of_roles(
    form: FormName, columns: Columns, available: Sequence[str], *, where: str, ids_only: bool
) -> dict[str, tuple[str, ...]]:
    """Role -> columns, for the roles of a form that have one; only captions can have several columns.

    ``caption_1``, ``caption_2``, … are the captions of one image in this order.

    Args:
        form: Its roles are looked for.
        columns: Role -> column, or for captions a list of columns, as the description names them.
        available: Columns of the table.
        where: File or data set, for messages.
        ids_only: Accept caption ids in place of captions.

    Raises:
        RequestError: A role or a column is unknown, a required role has no column, or captions are in columns of
            several kinds; names the column that was probably meant.
    """
    roles = (*FORMS[form].required, *FORMS[form].optional)
    given: dict[str, tuple[str, ...]] = {
        role: (names,) if isinstance(names, str) else tuple(names) for role, names in columns.items()
    }
    left = [name for name in available if not any(name in names for names in given.values())]
    faults: list[str] = []
    column_of = {role: names for role in roles if role not in given and (names := _usual(role, left))}
    if form == "captions" and "caption" not in given:
        found = _caption_columns(left)
        if len(found) == 1:
            column_of["caption"] = found[0]
        elif found:
            faults.append(f"captions may be in {' or in '.join(map(', '.join, found))}; {_line('caption', found[0])}")
    named = {*column_of, *given, *(("caption",) if faults else ())}
    column_of |= given
    known, has = ", ".join(roles), ", ".join(available) or "none"
    faults += [f"columns has the unknown role {r!r}; form {form!r} has {known}" for r in given if r not in roles]
    for role, names in given.items():
        for name in names:
            if name not in available:
                hint = did_you_mean(name, available)
                faults.append(f"no column {name!r} for role {role!r}; {hint}it has {has}")
        if len(names) != 1 and role != "caption":
            faults.append(f"columns.{role} must name one column, got {', '.join(names) or 'none'}")
    if ids_only and "caption_id" in column_of:
        named.add("caption")
    unused = [name for name in left if not any(name in names for names in column_of.values())]
    for role in FORMS[form].required:
        if role not in named:
            addresses = [name for name in left if role.startswith("image") and _fold(name) in _ADDRESSES]
            hint = f"; {addresses[0]!r} holds addresses: download the images first" if addresses else ""
            faults.append(f"no column for {role}; it has {has}; {_line(role, _near(role, unused)[:1] or ['…'])}{hint}")
    if faults:
        raise RequestError([f"{where}: {fault}" for fault in faults])
    return column_of


def form_of(stem: str, available: Sequence[str]) -> FormName | None:
    """The form of a table whose file has the name of one, else by its columns; None if these are of no form."""
    for form in FORMS:
        if stem == form:
            return form
    if all(_usual(role, available) for role in FORMS["quadruples"].required):
        return "quadruples"
    if _usual("image", available) and _caption_columns(available):
        return "pairs" if _usual("negative", available) else "captions"
    return None


_ADDRESSES = ("url", "urls", "imageurl", "link")
_NUMBERED = re.compile(r"^(.*?\D)[ _-]?(\d+)$")


def _usual(role: str, available: Sequence[str]) -> tuple[str, ...]:
    """The column with the first of a role's usual names; empty if there is none."""
    column = usual_column(USUAL_NAMES.get(role, (role,)), available)
    return () if column is None else (column,)


def usual_column(names: Sequence[str], available: Sequence[str]) -> str | None:
    """The column with the first of some names, however it is capitalised or hyphenated; None if there is none."""
    by_fold = {_fold(name): name for name in reversed(available)}
    found = (name if name in available else by_fold.get(_fold(name)) for name in names)
    return next((column for column in found if column is not None), None)


def _caption_columns(available: Sequence[str]) -> list[tuple[str, ...]]:
    """The columns that hold captions; several tuples if it is not clear which of them do."""
    plain = _usual("caption", available)
    usual = {_fold(name) for name in USUAL_NAMES["caption"]}
    numbered: defaultdict[str, dict[int, str]] = defaultdict(dict)
    for name in available:
        match = _NUMBERED.match(name.strip())
        if match and _fold(match[1]) in usual:
            numbered[_fold(match[1])].setdefault(int(match[2]), name)
    series = {base: tuple(by_number[n] for n in sorted(by_number)) for base, by_number in numbered.items()}
    if not plain:
        return list(series.values())
    base = _fold(plain[0])
    more = series.pop(base, ())
    if more and min(numbered[base]) < 2:  # caption and caption_1: the first may be one of the others, or all of them
        return [(*plain, *more), plain, more]
    return [(*plain, *more), *series.values()]


def _near(role: str, available: Sequence[str]) -> list[str]:
    """Columns whose name is nearly one of the usual names of a role, the likeliest first."""
    names = [name for name in available if (fold := _fold(name)) and fold not in _ADDRESSES]
    close = (nearest(name, names, cutoff=0.75) for name in USUAL_NAMES.get(role, (role,)))
    return [name for name in close if name is not None]


def _line(role: str, names: Sequence[str]) -> str:
    """The line of a description that names the columns of a role."""
    value = f'"{names[0]}"' if len(names) == 1 else "[" + ", ".join(f'"{name}"' for name in names) + "]"
    return f"name it with columns.{role} = {value}"


def _fold(name: str) -> str:
    return "".join(c for c in name.casefold() if c.isalnum())
