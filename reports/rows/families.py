"""What is shown together of stored comparisons and rankings.

P-values are adjusted over the pairs of one request, so that only these are shown beside each other; and one ranking.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from operator import itemgetter
from typing import Any

from capim.reports.format import count, listing
from capim.reports.rows.report_data import Row, grouped

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
