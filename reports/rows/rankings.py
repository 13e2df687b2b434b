"""Which of the stored rankings over corpora a report shows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from reports.rows.report_data import Row


def shown_ranking(rows: Iterable[Row], encoders: Mapping[str, str], corpora: Mapping[str, str]) -> tuple[Row, ...]:
    """The rows of the ranking of most encoders and corpora, then the newest, of those about what the report shows.

    Args:
        rows: Of ``schema.RANKINGS``.
        encoders: Name of each encoder in the report to its fingerprint.
        corpora: The same of the corpora.
    """
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["ranking"], []).append(row)
    fitting = [
        group
        for group in groups.values()
        if all(encoders.get(row["encoder"]) == row["encoder_fingerprint"] for row in group)
        and all(corpora.get(c["corpus"]) == c["fingerprint"] for c in json.loads(group[0]["corpora"]))
    ]
    chosen = max(fitting, key=_size_and_age, default=[])
    return tuple(sorted(chosen, key=lambda row: (row["estimand"], row["statistic"], row["encoder"])))


def _size_and_age(group: list[Row]) -> tuple[object, ...]:
    first = group[0]
    return first["n_encoders"] * first["n_corpora"], len(group), first["created"], first["ranking"]
