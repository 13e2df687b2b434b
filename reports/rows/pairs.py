"""Stored comparisons as rows for a shell or a notebook: in one direction, with what their tests allow to say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from capim.reports.rows.report_data import Row, goodness, reversed_comparison
from capim.reports.rows.standing import decision_of

PAIR_COLUMNS = (
    "corpus", "protocol", "metric", "encoder_a", "encoder_b", "difference", "ci_low", "ci_high", "p_adjusted", "state",
    "n_queries", "family",
)  # fmt: skip
_SHOWN = 6  # names in one line
AGAINST_BEST = ("against", "difference", "p_adjusted", "state")


def pair_rows(comparisons: Iterable[Row], first: str | None = None) -> list[dict[str, Any]]:
    """Comparisons with a column ``state``, those by headline figures first.

    Args:
        comparisons: Rows of ``schema.COMPARISONS``.
        first: Name or fingerprint of the encoder that is ``encoder_a`` of its pairs.

    Returns:
        ``state`` is what is known of ``encoder_a`` against ``encoder_b``: better, worse, equivalent, undecided, or
        None where there is no test.
    """
    turned = [
        reversed_comparison(row) if first in (row["encoder_b"], row["fingerprint_b"]) else row for row in comparisons
    ]
    rows = [{**row, "state": _state(row)} for row in turned]
    return sorted(rows, key=lambda row: (row["family"] != "headline", *(row[name] for name in PAIR_COLUMNS[:5])))


def against_best(results: Sequence[Row], comparisons: Iterable[Row]) -> list[dict[str, Any]]:
    """Results with the test of each against the best other encoder under its protocol, in ``AGAINST_BEST``."""
    pairs: dict[tuple[str, ...], Row] = {}
    for row in comparisons:
        for each in (row, reversed_comparison(row)):
            pairs[*_task(each), each["fingerprint_a"], each["fingerprint_b"]] = each
    rows = []
    for row in results:
        same = [r for r in results if _task(r) == _task(row) and r["value"] is not None and r is not row]
        best = max(same, key=goodness, default=None)
        pair = best and pairs.get((*_task(row), row["encoder_fingerprint"], best["encoder_fingerprint"]))
        found = {"against": best["encoder"], **pair, "state": _state(pair)} if best and pair else {}
        rows.append({**row, **{name: found.get(name) for name in AGAINST_BEST}})
    return rows


def _task(row: Row) -> tuple[str, str, str]:
    return row["corpus_fingerprint"], row["protocol"], row["metric"]


def _state(row: Row) -> str | None:
    decision = decision_of(row)
    return None if decision is None else decision.state


def summary(comparisons: Sequence[Row]) -> list[str]:
    """What one request compared, as lines: encoders, corpora and protocols, tests and margin, headline figures."""
    if not comparisons:
        return ["nothing was compared: no figure is known of two encoders"]
    first = comparisons[0]
    encoders = sorted({row[side] for row in comparisons for side in ("encoder_a", "encoder_b")})
    lines = [f"compared {len(encoders)} encoders, pair by pair: {', '.join(encoders)}"]
    for corpus in sorted({row["corpus"] for row in comparisons}):
        of_corpus = [row for row in comparisons if row["corpus"] == corpus]
        protocols = sorted({row["protocol"] for row in of_corpus})
        shown = ", ".join(protocols[:_SHOWN]) + (" …" if len(protocols) > _SHOWN else "")
        plural = "s" if len(protocols) > 1 else ""
        lines.append(f"{corpus}: {len(of_corpus)} comparisons by {len(protocols)} protocol{plural} ({shown})")
    headline = sorted({f"{row['protocol']} {row['metric']}" for row in comparisons if row["family"] == "headline"})
    adjusted = f"p-values of sign-flip tests, adjusted over the pairs of each figure ({first['adjustment']})"
    margins = sorted({row["margin"] for row in comparisons if row["margin"] is not None})
    within = f"; equivalent: within {100 * margins[0]:g} % of a metric's range" if margins else ""
    intervals = f"{100 * first['level']:g} % intervals from {first['replicates']:,} replicates"
    lines.append(f"{adjusted}; {intervals}{within}")
    lines.append(f"headline figures: {', '.join(headline[:_SHOWN]) or 'none'}; all others are exploratory")
    return lines
