"""The published corpora of queries, document pages and judgements: the rows of ``judged_tasks.csv``.

Its rows are mteb's tasks and their subsets, with the counts of mteb's descriptive statistics. A row without counts is
one whose counts nobody has published; its corpus is read unchecked.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

# Subsets and languages as ViDoRe writes them -> BCP-47.
LANGUAGES = {
    "english": "en", "french": "fr", "german": "de", "italian": "it", "portuguese": "pt", "spanish": "es",
}  # fmt: skip


class SubsetCounts(NamedTuple):
    """What one subset holds. Judgements are of all queries in its table, those of other languages included.

    Attributes:
        samples: Documents and queries together.
        queries: Queries with different texts.
        judgements: With another grade than 0.
        fewest: Of these, the fewest of a judged query.
        most: And the most.
    """

    samples: int
    queries: int
    judgements: int
    fewest: int
    most: int


# Columns of the file, in the order of SubsetCounts.
_COUNTED = ("num_samples", "unique_queries", "num_relevant", "min_relevant_per_query", "max_relevant_per_query")


@dataclass(frozen=True, kw_only=True)
class JudgedTask:
    """One published corpus.

    Attributes:
        dataset: Hub id.
        revision: Commit that mteb pins; empty where none is known.
        split: Of every table.
        main_metric: Headline.
        subsets: Name (empty without subsets) -> what it holds; None where nobody has published it.
    """

    dataset: str
    revision: str
    split: str
    main_metric: str
    subsets: Mapping[str, SubsetCounts | None]


def _tasks() -> dict[str, JudgedTask]:
    tasks: dict[str, JudgedTask] = {}
    with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            counts = SubsetCounts(*(int(row[column]) for column in _COUNTED)) if row["num_samples"] else None
            known = tasks.get(row["task"])
            tasks[row["task"]] = JudgedTask(
                dataset=row["dataset"],
                revision=row["revision"],
                split=row["split"],
                main_metric=row["main_score"].replace("ndcg_at_", "nDCG@"),
                subsets={**(known.subsets if known else {}), row["subset"]: counts},
            )
    return tasks


JUDGED_TASKS = _tasks()
