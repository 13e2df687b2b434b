"""Reading a corpus's own files, with errors that name the file, the position, and the expected content."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any

from capim.store.errors import RequestError
from capim.store.files import existing_file
from capim.store.tables import SUFFIXES, uncompressed

_LISTED = re.compile(r"""\s*\[\s*["'].*["']\s*\]\s*""", re.DOTALL)
_SUFFIXES = {".toml", ".tar", *SUFFIXES}


def require_folder(path: str | Path, what: str) -> Path:
    """Return the folder, made absolute; raise ``RequestError`` if it does not exist."""
    folder = Path(path).expanduser().absolute()
    if not folder.is_dir():
        if folder.exists():
            raise RequestError(f"{what} {folder} is a file; give the folder that holds it")
        raise RequestError(f"{what} {folder} does not exist; check the path")
    return folder


def folder_in(folder: Path, name: str) -> Path | None:
    """Return a folder within a folder; None if there is none of this name."""
    return folder / name if (folder / name).is_dir() else None


def require_file(path: str | Path, what: str) -> Path:
    """Return the file, made absolute; raise ``RequestError`` if it does not exist."""
    return existing_file(Path(path).expanduser().absolute(), what)


def require_known(where: object, what: str, names: Collection[str], known: Collection[str]) -> None:
    """Raise ``RequestError`` with all names that are not among the known ones."""
    if unknown := sorted(set(names) - set(known)):
        raise RequestError(f"{where}: unknown {what} {', '.join(unknown)}; known: {', '.join(known)}")


def first_match(folder: Path, *patterns: str) -> Path | None:
    """Return the file that matches the first pattern with a match; None if there is none.

    Raises:
        RequestError: Several files match this pattern.
    """
    for pattern in patterns:
        files = sorted(folder.glob(pattern))
        if len(files) > 1:
            raise RequestError(
                f"{folder}: several files match {pattern} ({files[0].name}, {files[1].name} …); name one of them"
            )
        if files:
            return files[0]
    return None


def require_match(folder: Path, *patterns: str, hint: str = "") -> Path:
    """As :func:`first_match`; raises ``RequestError`` with the patterns and the hint if there is no match."""
    return require_files(folder, {"": patterns}, hint=hint)[""]


def require_files(folder: Path, patterns: Mapping[str, Sequence[str]], *, hint: str) -> dict[str, Path]:
    """Return the first match of the patterns of each file, by its name; raise ``RequestError`` with all without one."""
    found = {name: first_match(folder, *each) for name, each in patterns.items()}
    if absent := [" or ".join(patterns[name]) for name, file in found.items() if file is None]:
        raise RequestError(f"{folder}: no {', '.join(absent)} in it{hint and f'; {hint}'}")
    return {name: file for name, file in found.items() if file is not None}


def choose_split(where: object, splits: Sequence[str], given: str | None = None) -> str:
    """Return the given split, else the only one, else ``test``.

    Raises:
        RequestError: There is no such split, or several and none is called ``test``.
    """
    chosen = given or (splits[0] if len(splits) == 1 else "test")
    if chosen in splits:
        return chosen
    has = ", ".join(splits) or "none"
    if given is None:
        raise RequestError(f'{where}: it has several splits; name one of {has}, as in split = "{splits[0]}"')
    raise RequestError(f"{where}: no split {given!r}; it has {has}")


def corpus_name(path: Path) -> str:
    """Return a corpus name from a file's or folder's name: anything but ASCII letters, digits, ``._-`` becomes ``-``.

    Examples:
        >>> corpus_name(Path("data/my photos (2024).toml"))
        'my-photos-2024'
    """
    plain = uncompressed(path)
    stem = plain.stem if plain.suffix.lower() in _SUFFIXES else path.name
    return "-".join(re.findall(r"[A-Za-z0-9._]+", stem)).lstrip("._-") or "corpus"


def field(entry: object, key: str, kind: type | UnionType, where: object) -> Any:
    """Return the value of a key; raise ``RequestError`` with the place and the value if it is not of the given type."""
    if not isinstance(entry, dict):
        raise RequestError(f"{where}: expected an object with {key!r}, got {type(entry).__name__}")
    if key not in entry:
        raise RequestError(f"{where}: no {key!r}; it has {', '.join(sorted(map(repr, entry))[:8]) or 'nothing'}")
    value = entry[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        expected = getattr(kind, "__name__", str(kind))
        raise RequestError(f"{where}: {key!r} is {value!r:.60}, expected {expected}")
    return value


def texts_in(entry: object, key: str, where: object, *, single: bool = True) -> list[str]:
    """Return the texts under a key: of a list, of a list that is written as one text, or (if ``single``) of one text.

    Raises:
        RequestError: There is no such key, or something else under it; names the place and the value.
    """
    value = unlisted(field(entry, key, object, where))
    texts = [value] if single and isinstance(value, str) else value
    if isinstance(texts, str) or not isinstance(texts, Sequence) or not all(isinstance(each, str) for each in texts):
        expected = "a text or a list of texts" if single else "a list of texts"
        raise RequestError(f"{where}: {key!r} is {value!r:.60}, expected {expected}")
    return list(texts)


def said(cell: object, where: object) -> list[str]:
    """Return the texts of a cell: one, those of a list, or none of an empty cell; a number as text.

    Raises:
        RequestError: It holds something else; names the place and the value.
    """
    inner = unlisted(cell)
    each = inner if isinstance(inner, list | tuple) else [] if inner is None else [inner]
    if not all(isinstance(one, str | int | float) and not isinstance(one, bool) for one in each):
        raise RequestError(f"{where}: expected a text, a number or a list of texts, got {cell!r:.60}")
    return list(map(str, each))


def unlisted(cell: object) -> object:
    """Return a list of texts that is written as one text, by Python, JSON or NumPy, as a list; any other cell as it is.

    Examples:
        >>> unlisted("['one', 'two']"), unlisted("['one' 'two']"), unlisted("one")
        (['one', 'two'], ['one', 'two'], 'one')
    """
    if isinstance(cell, str) and _LISTED.fullmatch(cell):
        try:
            listed = ast.literal_eval(cell.strip())
            tokens = tokenize.generate_tokens(io.StringIO(cell.strip()).readline)  # NumPy writes no commas
            texts = [ast.literal_eval(token.string) for token in tokens if token.type == tokenize.STRING]
        except (ValueError, SyntaxError, MemoryError, RecursionError, tokenize.TokenError):
            return cell
        return texts if all(isinstance(one, str) for one in listed) else listed
    return cell
