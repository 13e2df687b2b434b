"""The ambiguous misses of a report, from the slices that the diagnosis stored (``docs/protocols.md`` §5b)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

LEADING = "R@1"
WITHOUT = "R@1 without ambiguous misses"
SHARE = "share of misses"
CAUSES = ("annotation", "agreement")

Marks: TypeAlias = Mapping[tuple[str, str, str, str], Mapping[str, str]]
"""Corpus, protocol, encoder and query id to cause to the source that says so (empty for ``agreement``)."""


def marks_of(slices: Iterable[Mapping[str, Any]]) -> Marks:
    """The causes of every ambiguous miss."""
    marks: dict[tuple[str, str, str, str], dict[str, str]] = {}
    for row in slices:
        if row["analysis"] == "ambiguous" and row["metric"] == SHARE and row["feature"] in CAUSES and row["detail"]:
            detail = json.loads(row["detail"])
            for at, query in enumerate(detail["queries"]):
                key = row["corpus"], row["protocol"], row["encoder"], query
                marks.setdefault(key, {})[row["feature"]] = detail["sources"][at] if "sources" in detail else ""
    return marks
