"""The table of corpora: how each is read, and the facts known before it is read."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from capim.store.plugins import Plugin, PluginTable
from capim.tasks.corpora.judged_tasks import JUDGED_TASKS, JudgedTask


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
