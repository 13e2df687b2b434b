"""The options of a description, held against the types that the reader declares."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

_WORDS = {str: "a text", Path: "a path", int: "a whole number", bool: "true or false", float: "a number"}


def option_fault(reader: Callable[..., object], option: str, value: object) -> str | None:
    """What is wrong with the value of an option, None if nothing is.

    Examples:
        >>> def reader(*, split: str = "test", languages: Sequence[str] = ()): ...
        >>> option_fault(reader, "languages", "de")
        "languages must be a list of texts, got 'de'"
        >>> option_fault(reader, "split", "val") is None
        True
    """
    hint = get_type_hints(reader)[option]
    return None if _fits(value, hint) else f"{option} must be {_said(hint)}, got {value!r}"


def takes_paths(reader: Callable[..., object], option: str) -> bool:
    """Whether an option is a path, or holds paths."""
    return "Path" in str(get_type_hints(reader)[option])


def _fits(value: object, hint: Any) -> bool:
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in inner)
    if origin is Literal:
        return value in inner
    if origin is not None and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(
            _fits(key, inner[0]) and _fits(each, inner[1]) for key, each in value.items()
        )
    if origin is not None and issubclass(origin, Sequence):
        return isinstance(value, list | tuple) and all(_fits(each, inner[0]) for each in value)
    kinds = (str, Path) if hint is Path else hint
    return isinstance(value, kinds) and not (hint is int and isinstance(value, bool))


def _said(hint: Any) -> str:
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        parts = [each for each in inner if each is not NoneType and not (each is str and Path in inner)]
        return " or ".join(_said(each) for each in parts)
    if origin is Literal:
        return " or ".join(repr(each) for each in inner)
    if origin is not None and issubclass(origin, Mapping):
        return f"a table of {_plural(inner[1])}"
    if origin is not None and issubclass(origin, Sequence):
        return f"a list of {_plural(inner[0])}"
    return _WORDS.get(hint, getattr(hint, "__name__", str(hint)))


def _plural(hint: Any) -> str:
    return _said(hint).removeprefix("a ") + "s"
