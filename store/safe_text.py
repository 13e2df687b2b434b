"""Text of strangers on its way out: to a terminal, which obeys control characters, and to a spreadsheet's formulas."""

from __future__ import annotations

import re
import unicodedata

MOST_SHOWN = 400  # characters of a cell or of a line of an error; files and JSON have the whole text
_FORMULA = re.compile(r"[\t\r\n]|\s*[=+\-@\uff1d\uff0b\uff0d\uff20]")  # and what a spreadsheet makes these of


def plain(text: str) -> str:
    r"""Text that cannot drive a terminal: control and escape characters replaced, the rest as it is.

    Examples:
        >>> plain("red\x1b[31m bus")
        'red�[31m bus'
    """
    return "".join("�" if unicodedata.category(c) in ("Cc", "Cf") and c not in "\u200c\u200d" else c for c in text)


def shortened(text: str, most: int = MOST_SHOWN) -> str:
    """The beginning of a text that is too long to be shown, with the number of characters that are left out.

    Examples:
        >>> shortened("a" * 10, most=4), shortened("abc", most=4)
        ('aaaa… (6 more characters)', 'abc')
    """
    return text if len(text) <= most else f"{text[:most]}… ({len(text) - most:,} more characters)"


def csv_text(text: str) -> str:
    r"""A text as a cell of CSV that no spreadsheet runs as a formula: with ``'`` before it where one could begin.

    Numbers stay as they are. :func:`text_of_csv` takes the ``'`` off again.

    Examples:
        >>> [csv_text(text) for text in ("=HYPERLINK(x)", "a=b", "-0.5", "+1e3", "'=x", "\tx")]
        ["'=HYPERLINK(x)", 'a=b', '-0.5', '+1e3', "''=x", "'\tx"]
    """
    if not _FORMULA.match(text.lstrip("'")):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


def text_of_csv(cell: str) -> str:
    """The text of a cell that :func:`csv_text` wrote.

    Examples:
        >>> [text_of_csv(csv_text(text)) for text in ("=x", "'=x", "'quoted'", "-1")]
        ['=x', "'=x", "'quoted'", '-1']
    """
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell.lstrip("'")) else cell
