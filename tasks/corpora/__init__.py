"""The table of corpora: how each is read, and the facts known before it is read."""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from capim.store.plugins import Plugin, PluginTable


@dataclass(frozen=True, kw_only=True)
class CorpusEntry:
    """One row of the table of corpora, ``corpora.toml``, or of a package (entry point ``capim.corpora``).

    The reader of corpus ``a-b`` is the function ``read_a_b`` in ``readers/a_b.py``; it takes keyword options and
    returns a checked :class:`~store.types.Corpus`. Its module is imported only when the corpus is read. A corpus with a
    table needs no reader.

    Attributes:
        title: One line that describes the corpus.
        size: Number of images and captions, in words.
        languages: BCP-47 codes of the captions; empty if the user's files decide.
        domain: What the images show.
        citation: Address of the paper, or of the page that asks to be cited.
        licence: Licence of the captions and images.
        origin: Address of a published corpus that is read from files.
        needs: What the user has to provide before the corpus can be read.
        hub: Id of the data set on the Hugging Face hub; empty if it cannot be read from there.
        revisions: Commit of each data set on the hub that the corpus is read from, where a source states one.
        pinned_by: This source.
        known_as: Its names in mteb, CLIP_benchmark and on the hub.
        differs: What those hold that this does not, or the other way round; empty if they are the same.
        module: Name of the reader's module in ``readers/`` where it is not that of the corpus; of a package's corpus
            the full name, by default the module that the entry point names.
        files: Of a published corpus, files and patterns by which its folder is recognised.
        table: For files that are tables, where the rows are and what their columns mean: the fields
            of :class:`tasks.corpora.readers.published.PublishedTable`.
        counts: Number of published quadruples, or of hard negatives by category (of a corpus without categories: ""),
            by which files of the user's own in the same form are reported from the published ones.
    """

    title: str
    size: str = "any"
    languages: Sequence[str] = ("en",)
    domain: str = "the user's"
    citation: str = "none"
    licence: str = "the user's"
    origin: str = ""
    needs: str = "nothing"
    hub: str = ""
    revisions: Mapping[str, str] = field(default_factory=dict)
    pinned_by: str = "nobody"
    known_as: Sequence[str] = ()
    differs: str = ""
    module: str = ""
    files: Sequence[str] = ()
    table: Mapping[str, Any] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)


# Corpora of queries, document pages and judgements: the rows of ``judged_tasks.csv``, which are mteb's tasks and their
# subsets, with the counts of mteb's descriptive statistics. A row has no counts if nobody has published them; its
# corpus is read unchecked. The subsets of ViDoRe share their documents and are one corpus; those of JinaVDR and
# MIRACL-Vision have their own, and each is a corpus: ``MIRACLVisionRetrieval-ar``.

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
    with Path(__file__).with_name("judged_tasks.csv").open(encoding="utf-8", newline="") as lines:
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


def _entry(task: JudgedTask) -> CorpusEntry:
    """Return the entry of a published corpus of queries, pages and judgements."""
    known = next((counts for counts in task.subsets.values() if counts is not None), None)
    size = "no published counts"
    if known is not None and task.n_documents is not None:
        n_subsets = f", each of {len(task.subsets)} languages" if len(task.subsets) > 1 else ""
        size = f"{task.n_documents:,} pages, {known.queries:,} queries{n_subsets}"
    return CorpusEntry(
        title=f"Judged pages: {task.domain}",
        size=size,
        languages=(),
        domain=f"documents: {task.domain}",
        citation=task.citation,
        licence=task.licence,
        needs="the hub; or root (the data set as a folder)",
        hub=task.dataset,
        revisions={task.dataset: task.revision} if task.revision else {},
        pinned_by="mteb" if task.revision else CorpusEntry.pinned_by,
        known_as=[task.dataset.removesuffix("_beir").replace("mteb/", "vidore/")],
    )


_TABLE = tomllib.loads(Path(__file__).with_name("corpora.toml").read_text(encoding="utf-8"))
OWN_CORPORA = {name: CorpusEntry(**row) for name, row in _TABLE.items()}


def _of_package(plugin: Plugin, found: object) -> CorpusEntry:
    if not isinstance(found, CorpusEntry):
        raise TypeError(f"expected a capim.tasks.corpora.CorpusEntry, got {type(found).__name__}")
    return replace(found, module=found.module or plugin.point.module)


_JUDGED = {name: _entry(task) for name, task in JUDGED_TASKS.items()}
CORPORA = PluginTable("capim.corpora", OWN_CORPORA | _JUDGED, _of_package)


def pinned(dataset: str) -> str | None:
    """Return the commit at which a published corpus reads a data set of the hub; None if no source states one."""
    return next((entry.revisions[dataset] for entry in CORPORA.values() if dataset in entry.revisions), None)


def named_elsewhere(text: str) -> str:
    """Return the corpus here for a name of mteb, CLIP_benchmark, ViDoRe or the hub, with the option; empty if none."""
    for name, entry in CORPORA.items():
        if text in (*entry.known_as, *filter(None, [entry.hub])):
            return f"{text} is {name} here{entry.differs and f' ({entry.differs})'}: --corpora {name}"
    return ""
