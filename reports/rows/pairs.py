"""Stored comparisons as rows for a shell or a notebook: in one direction, with what their tests allow to say."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from operator import itemgetter
from typing import Any

from capim.reports.format import count, listing
from capim.reports.rows.report_data import Row, goodness, grouped, reversed_comparison
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


# --- What is shown together of stored comparisons and rankings.
#
# P-values are adjusted over the pairs of one request, so that only these are shown beside each other; and one ranking.


Figure = tuple[str, str, str]  # corpus, protocol, metric


def one_family(
    comparisons: Iterable[Row], current: Callable[[Row], bool], shown: Mapping[Figure, Set[str]]
) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """For each figure the comparisons of one run, and a sentence about families of which only a part is shown.

    Of the runs that compared encoders by a figure, the one with most pairs of the shown encoders counts; of these the
    one with fewest others, then the newest. So a request for some encoders takes no pair out of the comparison of all.

    Args:
        comparisons: Rows of ``schema.COMPARISONS``.
        current: Whether a row is about the states of corpora and encoders that the report shows.
        shown: Figure to the encoders with a result by it.
    """
    kept: list[Row] = []
    larger: dict[str, tuple[int, int]] = {}
    for figure, of_figure in sorted(grouped(comparisons, itemgetter("corpus", "protocol", "metric")).items()):
        if figure not in shown:
            continue
        families = grouped(of_figure, itemgetter("run"))
        fitting = {run: list(filter(current, rows)) for run, rows in families.items()}
        others = {run: len(_encoders(rows) - shown[figure]) for run, rows in families.items()}
        newest = {run: max(row["created"] for row in rows) for run, rows in families.items()}
        best = max(families, key=lambda run: (len(fitting[run]), -others[run], newest[run], run))
        kept += sorted(fitting[best], key=lambda row: (row["encoder_a"], row["encoder_b"]))
        if fitting[best] and others[best]:
            larger[figure[0]] = (len(_encoders(families[best])), len(_encoders(fitting[best])))
    return tuple(kept), tuple(
        f"On {corpus}, p-values are adjusted over the pairs of all {count(of_all, 'encoder')} that were compared, of "
        f"which this report shows {of_shown}."
        for corpus, (of_all, of_shown) in larger.items()
    )


def _encoders(rows: Iterable[Row]) -> set[str]:
    return {row[side] for row in rows for side in ("encoder_a", "encoder_b")}


def shown_ranking(rows: Iterable[Row], encoders: Mapping[str, str], corpora: Mapping[str, str]) -> tuple[Row, ...]:
    """The rows of the ranking of most encoders and corpora, then the newest, of those about what the report shows.

    Args:
        rows: Of ``schema.RANKINGS``.
        encoders: Name of each encoder in the report to its fingerprint.
        corpora: The same of the corpora.
    """
    fitting = [
        group
        for group in grouped(rows, itemgetter("ranking")).values()
        if all(encoders.get(row["encoder"]) == row["encoder_fingerprint"] for row in group)
        and all(corpora.get(c["corpus"]) == c["fingerprint"] for c in json.loads(group[0]["corpora"]))
    ]
    chosen = max(fitting, key=_size_and_age, default=[])
    return tuple(sorted(chosen, key=lambda row: (row["estimand"], row["statistic"], row["encoder"])))


def counted_once(names: list[str]) -> str:
    """That one corpus has several names, as a clause."""
    return f"{listing(names)} hold the same photographs and captions: they count once"


def same_photographs(corpora: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Which corpora of a ranking are one under several names, and which have photographs in common, as sentences."""
    for corpus in corpora:
        if corpus["copies"]:
            yield f"{counted_once([corpus['corpus'], *corpus['copies']])}."
    common = [
        f"{n:,} of the {a['photographs']:,} photographs of {a['corpus']} are in {b['corpus']}"
        for at, a in enumerate(corpora)
        for b in corpora[at + 1 :]
        if (n := a["shared"].get(b["corpus"]))
    ]
    if common:
        yield f"{listing(common)}: a photograph is one unit in all corpora that have it."


def _size_and_age(group: list[Row]) -> tuple[object, ...]:
    first = group[0]
    return first["n_encoders"] * first["n_corpora"], len(group), first["created"], first["ranking"]
