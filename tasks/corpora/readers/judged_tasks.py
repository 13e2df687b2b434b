"""The published corpora of document pages, each under its task's name: ViDoRe, JinaVDR, MIRACL-Vision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from capim.store.errors import RequestError
from capim.store.types import Corpus
from capim.tasks.corpora.files import require_folder
from capim.tasks.corpora.images.image_files import Missing
from capim.tasks.corpora.judged_tasks import JUDGED_TASKS
from capim.tasks.corpora.readers.judged import read_and_count
from capim.tasks.corpora.readers.judged_files import JudgedFiles, folders_on_hub

# What the fields of SubsetCounts count, in words.
_WORDS = (
    "pages and queries",
    "queries with different texts",
    "judgements",
    "judgements at least",
    "judgements at most",
)


def __getattr__(name: str) -> Callable[..., Corpus]:
    """The reader of a task, as ``tasks.corpora.description`` looks it up: ``read_Vidore3FinanceEnRetrieval``."""
    task = name.removeprefix("read_").replace("_", "-")
    if task not in JUDGED_TASKS:
        raise AttributeError(f"module {__name__!r} has no {name!r}")
    known = JUDGED_TASKS[task]

    def read(
        root: str | Path | None = None,
        *,
        images: str | Path | Sequence[str | Path] | None = None,
        subsets: Sequence[str] | None = None,
        revision: str | None = None,
        ids_only: bool = False,
        missing: Missing = "error",
    ) -> Corpus:
        """The corpus of a task, under its name, with as many rows as mteb counted.

        Args:
            root: The data set as a folder; from the hub unless given.
            subsets: Languages of ViDoRe 2 or 3 to read; all by default.
            revision: Branch, tag or commit on the hub; the pinned one unless given.

        Raises:
            RequestError: A count is another one than expected, and as :func:`tasks.corpora.readers.judged.read_judged`.
        """
        files = JudgedFiles(
            known.dataset if root is None else str(require_folder(root, f"{task} folder")),
            known.split,
            revision=revision or known.revision or None,
            configs=tuple(folders_on_hub(known.layout, list(known.subsets))),
        )
        corpus, found = read_and_count(
            files,
            images=images,
            subsets=subsets or [subset for subset in known.subsets if subset],
            language=known.language,
            main_metric=known.main_metric,
            ids_only=ids_only,
            missing=missing,
            name=task,
            licence="the data set's",
        )
        faults = [
            f"{task}{subset and f' ({subset})'}: expected {expected:,} {what}, got {count:,}"
            for subset, counts in found.items()
            if (published := known.subsets.get(subset)) is not None
            for what, expected, count in zip(_WORDS, published, counts, strict=True)
            if expected != count
        ]
        if faults:
            raise RequestError([*faults, f"{task}: read revision {known.revision} of {known.dataset}, whole"])
        return corpus

    read.__name__ = name
    return read
