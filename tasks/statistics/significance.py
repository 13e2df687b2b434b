"""The matrix of who differs from whom, in V29's layout, from adjusted p-values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tasks.statistics.ranks import Finding

LEGEND = "** p<0.01, * p<0.05, ns: not significant, =: same on every query (p adjusted over all pairs)"


def mark(p_adjusted: float | None) -> str:
    """The sign of one pair: ``**`` below 0.01, ``*`` below 0.05, else ``ns``; ``=`` for a pair that never differs.

    Examples:
        >>> [mark(p) for p in (0.0099, 0.01, 0.05, None)]
        ['**', '*', 'ns', '=']
    """
    if p_adjusted is None:
        return "="
    if p_adjusted < 0.01:
        return "**"
    return "*" if p_adjusted < 0.05 else "ns"


def significance_matrix(encoders: Sequence[str], findings: Iterable[Finding]) -> list[list[str]]:
    """Rows and columns in the order of ``encoders``; ``-`` on the diagonal, empty where a pair was not compared.

    Examples:
        >>> for row in significance_matrix(["x", "y"], [Finding("y", "x", -0.1, 0.002)]):
        ...     print(row)
        ['-', '**']
        ['**', '-']
    """
    marks = {frozenset((a, b)): mark(p) for a, b, _, p in findings}
    return [["-" if a == b else marks.get(frozenset((a, b)), "") for b in encoders] for a in encoders]
