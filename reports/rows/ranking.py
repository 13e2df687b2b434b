"""Who is tied with whom, from the stored pairwise tests.

Two encoders are told apart when the adjusted p of their paired test is below 5 % (``protocols.md`` §6). Since
the p-values are adjusted over all pairs of a metric, the ranks read off them hold together: an encoder's
lowest possible place counts those significantly better, its highest those significantly worse.
"""

from __future__ import annotations

from dataclasses import dataclass

from reports.rows.report_data import SMALLER_IS_BETTER, Evidence, Row

ALPHA = 0.05


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where one encoder stands among those compared.

    Attributes:
        first: The best place that the tests leave open, 1-based.
        last: The worst place that they leave open.
        tied_with_best: No test tells it from the encoder with the highest value.
    """

    first: int
    last: int
    tied_with_best: bool


def pair_of(evidence: Evidence, corpus: str, protocol: str, metric: str, a: str, b: str) -> tuple[Row, int] | None:
    """The comparison of two encoders and +1 if it is stored as ``a`` minus ``b``, -1 the other way round."""
    as_asked = evidence.pairs.get((corpus, protocol, metric, a, b))
    if as_asked is not None:
        return as_asked, 1
    other_way = evidence.pairs.get((corpus, protocol, metric, b, a))
    return None if other_way is None else (other_way, -1)


def standings(evidence: Evidence, corpus: str, protocol: str, metric: str) -> dict[str, Standing]:
    """Encoder to its standing; empty unless there are two at least and every pair has been compared.

    A pair whose test has no p-value (its row says why: identical outcomes, too few clusters) is not told apart.
    """
    names = [r["encoder"] for r in evidence.ranked(corpus, protocol, metric) if r["value"] is not None]
    if len(names) < 2:
        return {}
    better: dict[str, set[str]] = {name: set() for name in names}
    worse: dict[str, set[str]] = {name: set() for name in names}
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            found = pair_of(evidence, corpus, protocol, metric, a, b)
            if found is None:
                return {}
            row, sign = found
            if row["p_adjusted"] is None or row["p_adjusted"] >= ALPHA or not row["difference"]:
                continue
            ahead = (sign * row["difference"] > 0) != (metric in SMALLER_IS_BETTER)
            winner, loser = (a, b) if ahead else (b, a)
            better[loser].add(winner)
            worse[winner].add(loser)
    return {
        name: Standing(
            first=1 + len(better[name]),
            last=len(names) - len(worse[name]),
            tied_with_best=names[0] not in better[name],
        )
        for name in names
    }
