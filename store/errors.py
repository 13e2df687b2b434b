"""The two kinds of failure that the command line distinguishes.

Exception
├── ValueError
│   └── RequestError     the request was wrong (exit code 2); nothing was done
│       └── MissingStoreError
└── RuntimeError
    └── WorkError        the request was right, the work failed (exit code 1); stored data are kept

Every other exception is a defect of capim and is shown unchanged.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches

LISTED = 12  # known names that a message about an unknown one lists
_WORD = re.compile(r"(?<![A-Za-z0-9])[A-Za-z0-9]|(?<=[a-z])[A-Z0-9]|(?<=[0-9])[A-Za-z]")
_CREDENTIALS = re.compile(r"(?<=://)(?:[^\s/@:]*:[^\s@\"]*|[^\s/@]+)(?=@)")


def without_credentials(text: str) -> str:
    """Return a text, for instance a command, with ``***`` for the user and the password in URLs.

    Examples:
        >>> without_credentials("cannot write to s3://KEY:SEC/RET@bucket/runs, see https://host:9000/a")
        'cannot write to s3://***@bucket/runs, see https://host:9000/a'
    """
    return _CREDENTIALS.sub("***", text)


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the known name most similar to another, by its letters and digits without case; None if none is near.

    ``cutoff`` is the least fraction of characters in common, 0..1.

    Examples:
        >>> nearest("hit_11", ["hit_1", "hit_10"]), nearest("Tiny_Clip", ["tiny-clip"]), nearest("x", ["tiny-clip"])
        ('hit_1', 'tiny-clip', None)
    """
    by_letters: dict[str, str] = {}
    for each in known:
        by_letters.setdefault(_letters(each), each)
    near = get_close_matches(_letters(name), by_letters, n=1, cutoff=cutoff)
    return by_letters[near[0]] if near else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the nearest known name as the beginning of a remark; empty if none is near.

    If no spelling is similar, the shortest name with a word that begins so is near.

    Examples:
        >>> did_you_mean("tiny-clap", ["tiny-clip", "tiny-colpali"]), did_you_mean("x", ["tiny-clip"])
        ("did you mean 'tiny-clip'? ", '')
        >>> did_you_mean("karpathy", ["flickr30k-karpathy", "coco-karpathy"])
        "did you mean 'coco-karpathy'? "
        >>> did_you_mean("csv", ["JinaVDRArabicInfographicsVQARetrieval"])
        ''
    """
    names = list(known)
    part = _letters(name)
    near = nearest(name, names) or min((one for one in names if _begins_word(part, one)), key=len, default=None)
    return f"did you mean {near!r}? " if near and len(part) > 1 else ""


def _begins_word(part: str, name: str) -> bool:
    """True if a word of a name begins with these letters: after another sign or at a change of case."""
    return any(_letters(name[start.start() :]).startswith(part) for start in _WORD.finditer(name))


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """Return the message about an unknown name: the nearest known name, and the first twelve known names.

    Examples:
        >>> unknown("index", "IVF_PC", ["IVF_PQ", "IVF_RQ"])
        "index 'IVF_PC' is unknown; did you mean 'IVF_PQ'? known: IVF_PQ, IVF_RQ"
    """
    names = list(known)
    rest = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return f"{what} {name!r} is unknown; {did_you_mean(name, names)}known: {', '.join(names[:LISTED])}{rest}"


def _letters(name: str) -> str:
    return "".join(character for character in name.casefold() if character.isalnum())


class CapimError(Exception):
    """An error of capim: a wrong request, or work that failed."""


class RequestError(CapimError, ValueError):
    """The request cannot be carried out; the message lists all errors that were found.

    Examples:
        >>> print(RequestError(["corpus 'x' is unknown", "device 'gpu' is unknown"]))
        2 errors:
          - corpus 'x' is unknown
          - device 'gpu' is unknown
    """

    def __init__(self, faults: str | Sequence[str]) -> None:
        given = (faults,) if isinstance(faults, str) else faults
        self.faults: tuple[str, ...] = tuple(map(without_credentials, given))
        if len(self.faults) == 1:
            message = self.faults[0]
        else:
            message = "\n".join([f"{len(self.faults)} errors:", *(f"  - {f}" for f in self.faults)])
        super().__init__(message)

    def __reduce__(self) -> tuple[type[RequestError], tuple[tuple[str, ...]]]:
        return (type(self), (self.faults,))


@contextmanager
def noted(faults: list[str]) -> Iterator[None]:
    """Collect the errors of a request that fails in this block, to be raised together.

    Examples:
        >>> faults = ["corpus 'x' is unknown"]
        >>> with noted(faults):
        ...     raise RequestError("device 'gpu' is unknown")
        >>> faults
        ["corpus 'x' is unknown", "device 'gpu' is unknown"]
    """
    try:
        yield
    except RequestError as fault:
        faults += fault.faults


class MissingStoreError(RequestError):
    """There is no store at a valid location."""


class WorkError(CapimError, RuntimeError):
    """The work failed; the message says which part failed, which data were kept, and the next step.

    Attributes:
        problem: The failure.
        remedy: The next step, as one sentence; empty if it is part of ``problem``.

    Examples:
        >>> print(WorkError("table 'runs' cannot be read", remedy="Run `capim store verify`"))
        table 'runs' cannot be read. Run `capim store verify`
    """

    def __init__(self, problem: str, *, remedy: str = "") -> None:
        problem = without_credentials(problem)
        super().__init__(f"{problem}. {remedy}" if remedy else problem)
        self.problem = problem
        self.remedy = remedy

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.problem,), {"args": self.args, "remedy": self.remedy})


# --- Escaping untrusted text for terminals, which obey control characters, and for spreadsheets with formulas.


MOST_SHOWN = 400  # characters of a cell or of a line of an error; files and JSON have the whole text
_FORMULA = re.compile(r"[\t\r\n]|\s*[=+\-@\uff1d\uff0b\uff0d\uff20]")  # and their full-width forms


def with_notes(error: BaseException) -> str:
    """Return the message of an error, with the notes that were added to it."""
    return ", ".join([str(error), *getattr(error, "__notes__", ())])


def plain(text: str) -> str:
    r"""Return text that cannot control a terminal: control and escape characters are replaced, the rest is unchanged.

    Examples:
        >>> plain("red\x1b[31m bus")
        'red�[31m bus'
    """
    return "".join("�" if unicodedata.category(c) in ("Cc", "Cf") and c not in "\u200c\u200d" else c for c in text)


def shortened(text: str, most: int = MOST_SHOWN) -> str:
    """Return the beginning of a text that is too long to show, with the number of omitted characters.

    Examples:
        >>> shortened("a" * 10, most=4), shortened("abc", most=4)
        ('aaaa… (6 more characters)', 'abc')
    """
    return text if len(text) <= most else f"{text[:most]}… ({len(text) - most:,} more characters)"


def some(items: Sequence[str], most: int = 5) -> str:
    """Return the first of some items as text, and how many more there are.

    Examples:
        >>> some(["a", "b", "c"], 2), some(["a", "b", "c"]), some([])
        ('a, b and 1 more', 'a, b, c', 'none')
    """
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more or "none"


def is_number(text: str) -> bool:
    """True if a text is a number in Python's syntax.

    Examples:
        >>> [is_number(text) for text in ("-0.5", "1e3", "nan", "1,5", "")]
        [True, True, True, False, False]
    """
    try:
        float(text)
    except ValueError:
        return False
    return True


def csv_text(text: str) -> str:
    r"""Return a text as a CSV cell that no spreadsheet runs as a formula: with ``'`` before it if one could begin.

    Numbers do not change. :func:`text_of_csv` removes the ``'`` again.

    Examples:
        >>> [csv_text(text) for text in ("=HYPERLINK(x)", "a=b", "-0.5", "+1e3", "'=x", "\tx")]
        ["'=HYPERLINK(x)", 'a=b', '-0.5', '+1e3', "''=x", "'\tx"]
    """
    return f"'{text}" if _FORMULA.match(text.lstrip("'")) and not is_number(text) else text


def text_of_csv(cell: str) -> str:
    """Return the text of a cell that :func:`csv_text` wrote.

    Examples:
        >>> [text_of_csv(csv_text(text)) for text in ("=x", "'=x", "'quoted'", "-1")]
        ['=x', "'=x", "'quoted'", '-1']
    """
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell.lstrip("'")) else cell
