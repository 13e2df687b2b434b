"""The published corpora of queries, document pages and judgements: the rows of ``judged_tasks.csv``.

Its rows are mteb's tasks and their subsets, with the counts of mteb's descriptive statistics. A row has no
counts if nobody has published them; its corpus is read unchecked. The subsets of ViDoRe share their documents and are
one corpus; those of JinaVDR and MIRACL-Vision have their own, and each is a corpus: ``MIRACLVisionRetrieval-ar``.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

# Subsets and languages as ViDoRe and JinaVDR write them, where that is no BCP-47 -> BCP-47.
LANGUAGES = {
    "english": "en", "french": "fr", "german": "de", "italian": "it", "portuguese": "pt", "spanish": "es", "jp": "ja",
}  # fmt: skip


class SubsetCounts(NamedTuple):
    """Counts of one subset. Judgements cover all queries in its table, including those in other languages.

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
# Columns that are fields of JudgedTask.
_AS_THEY_ARE = ("task", "dataset", "revision", "split", "layout", "language", "licence", "domain", "citation")


@dataclass(frozen=True, kw_only=True)
class JudgedTask:
    """One published corpus.

    Attributes:
        task: Name in mteb.
        dataset: Hub id.
        revision: Commit that mteb pins; empty where none is known.
        split: Of every table.
        main_metric: Headline.
        layout: Name of a table, as in ``LAYOUTS`` of ``tasks.corpora.readers.judged``.
        n_documents: Pages of a subset; None where nobody has published it.
        language: Of the queries, where neither their subset nor their table says it.
        licence: By mteb, as ``domain`` and ``citation``, the address of its reference; ``unknown`` if it has none.
        subsets: Name (empty without subsets) -> its counts; None where nobody has published them.
    """

    task: str
    dataset: str
    revision: str
    split: str
    main_metric: str
    layout: str
    n_documents: int | None
    language: str
    licence: str
    domain: str
    citation: str
    subsets: Mapping[str, SubsetCounts | None]


def _tasks() -> dict[str, JudgedTask]:
    tasks: dict[str, JudgedTask] = {}
    with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            counts = SubsetCounts(*(int(row[column]) for column in _COUNTED)) if row["num_samples"] else None
            known = tasks.get(row["corpus"])
            tasks[row["corpus"]] = JudgedTask(
                **{name: row[name] for name in _AS_THEY_ARE},
                main_metric=row["main_score"].replace("ndcg_at_", "nDCG@").replace("recall_at_", "recall@"),
                n_documents=int(row["num_documents"]) if row["num_documents"] else None,
                subsets={**(known.subsets if known else {}), row["subset"]: counts},
            )
    return tasks


JUDGED_TASKS = _tasks()
