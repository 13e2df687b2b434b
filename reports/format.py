"""Formats numbers for display; the only module that rounds.

Fractions are 0..1 until here and percent with one decimal from here on. A missing value is an en dash, never a zero.
Intervals have an en dash between their ends, or ``to`` where an end is negative.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import TypeGuard

from capim.store.schema import UNLISTED

ABSENT = "–"
PERCENT = "\N{NO-BREAK SPACE}%"  # never at the beginning of a line
_MINUS = "−"


def _known(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)


def _signs(text: str) -> str:
    """Return a number with a true minus sign for the hyphen that Python writes, and no minus before a zero."""
    if text.startswith("-") and not text.strip("-0.,"):
        text = text[1:]
    return text.replace("-", _MINUS, 1) if text.startswith("-") else text


def number(value: float | None, decimals: int = 1) -> str:
    """Return a number with grouped thousands.

    Examples:
        >>> number(25010, 0), number(-0.04), number(None)
        ('25,010', '0.0', '–')
    """
    return _signs(f"{value:,.{decimals}f}") if _known(value) else ABSENT


def ranks(best: float, worst: float) -> str:
    """Return a rank, or the ranks that ties or tests leave open; of a query without a list none.

    Examples:
        >>> ranks(7, 7), ranks(1, 1200), ranks(UNLISTED, UNLISTED)
        ('7', '1–1,200', 'none')
    """
    return "none" if best >= UNLISTED else f"{best:,}" if best == worst else f"{best:,}–{worst:,}"


def percent(value: float | None, decimals: int = 1) -> str:
    """Return a fraction as percent, without the sign, which belongs in the heading.

    Examples:
        >>> percent(0.46349), percent(1.0), percent(0.0), percent(None), percent(float("nan"))
        ('46.3', '100.0', '0.0', '–', '–')
    """
    return number(100.0 * value, decimals) if _known(value) else ABSENT


def percent_range(low: float | None, high: float | None) -> str:
    """Return an interval in percent; empty where an end is missing.

    Examples:
        >>> percent_range(0.455, 0.471), percent_range(-0.012, 0.03), percent_range(None, 0.3)
        ('45.5–47.1', '−1.2 to 3.0', '')
    """
    return span(100.0 * low, 100.0 * high) if low is not None and high is not None else ""


def span(low: float | None, high: float | None, decimals: int = 1) -> str:
    """Return an interval of plain numbers; ``to`` instead of the dash where an end is negative.

    Examples:
        >>> span(0.8, 1.25, 2), span(-1, 1, 0), span(None, 2)
        ('0.80–1.25', '−1 to 1', '')
    """
    if not (_known(low) and _known(high)):
        return ""
    between = " to " if low < 0 or high < 0 else "–"
    return f"{number(low, decimals)}{between}{number(high, decimals)}"


def points(difference: float | None, decimals: int = 1) -> str:
    """Return a difference of two fractions in percentage points, always with its sign.

    Examples:
        >>> points(0.038), points(-0.0041), points(0.0), points(None)
        ('+3.8', '−0.4', '0.0', '–')
    """
    text = percent(difference, decimals)
    return text if text == ABSENT or text[0] == _MINUS or not text.strip("0.,") else f"+{text}"


def p_value(p: float | None) -> str:
    """Return a p-value as journals print it.

    Examples:
        >>> p_value(0.0341), p_value(0.00004), p_value(1.0), p_value(None)
        ('0.034', '<0.001', '1.000', '–')
    """
    if not _known(p):
        return ABSENT
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def significant(value: float | None) -> str:
    """Return a quantity of any size with three significant digits and no exponent.

    Examples:
        >>> significant(83.816), significant(11933.2), significant(0.01234), significant(0.0), significant(None)
        ('83.8', '11,933', '0.0123', '0', '–')
    """
    if not _known(value):
        return ABSENT
    if value == 0:
        return "0"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    return _signs(f"{value:,.{decimals}f}")


def size(n_bytes: float | None) -> str:
    """Return bytes in binary units.

    Examples:
        >>> size(512), size(2048), size(5_000_000), size(None)
        ('512 B', '2.0 KiB', '4.8 MiB', '–')
    """
    if not _known(n_bytes):
        return ABSENT
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(n_bytes) < 1024:
            return f"{n_bytes:.0f} B" if unit == "B" else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1024
    return f"{n_bytes:.1f} TiB"


def duration(seconds: float | None) -> str:
    """Return a length of time in the unit that suits it.

    Examples:
        >>> duration(0.0123), duration(3.21), duration(75), duration(11_940), duration(None)
        ('12.3 ms', '3.2 s', '1 min 15 s', '3 h 19 min', '–')
    """
    if not _known(seconds):
        return ABSENT
    if seconds < 1:
        return f"{1000 * seconds:.1f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def moment(when: datetime | None) -> str:
    """Return a time to the minute, in UTC.

    Examples:
        >>> from datetime import datetime, timezone
        >>> moment(datetime(2026, 11, 20, 21, 5, 59, tzinfo=timezone.utc))
        '2026-11-20 21:05 UTC'
    """
    return when.strftime("%Y-%m-%d %H:%M UTC") if when is not None else ABSENT


def exact(value: float | None) -> str:
    """Return every digit of a number, for sorting and tooltips; empty where there is none.

    Examples:
        >>> exact(0.1 + 0.2), exact(None), exact(float("nan"))
        ('0.30000000000000004', '', '')
    """
    return repr(float(value)) if _known(value) else ""


def bracketed(text: str, note: str) -> str:
    """Return a text with a note in brackets behind it, if there is one.

    Examples:
        >>> bracketed("46.3", "45.5–47.1"), bracketed("46.3", "")
        ('46.3 (45.5–47.1)', '46.3')
    """
    return f"{text} ({note})" if note else text


def count(n: int, one: str, many: str = "") -> str:
    """Return a number with its noun.

    Examples:
        >>> count(1, "query", "queries"), count(25010, "query", "queries"), count(2, "image")
        ('1 query', '25,010 queries', '2 images')
    """
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def some(names: list[str] | tuple[str, ...], word: str = "and", most: int = 4) -> str:
    """Return at most ``most`` names in a sentence, and the number of the others.

    Examples:
        >>> some(["a", "b"]), some(["a", "b", "c", "d", "e", "f"])
        ('a and b', 'a, b, c and 3 more')
    """
    kept = list(names) if len(names) <= most else [*names[: most - 1], f"{len(names) - most + 1} more"]
    return listing(kept, word)


def listing(names: list[str] | tuple[str, ...], word: str = "and") -> str:
    """Return names in a sentence.

    Examples:
        >>> listing(["a"]), listing(["a", "b"]), listing(["a", "b", "c"]), listing([])
        ('a', 'a and b', 'a, b and c', '')
    """
    return f" {word} ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
