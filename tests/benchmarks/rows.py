"""One measured figure, its bar and its peer."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """One line of RESULTS.md.

    ``bar`` is the claim as a comparison, e.g. ``"<= 3"`` or ``">= 1.2"``, judged against ``value``; empty for a
    figure without a bar.
    """

    name: str
    value: float
    unit: str
    bar: str = ""
    peer: str = ""
    note: str = ""
