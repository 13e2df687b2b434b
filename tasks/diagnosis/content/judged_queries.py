"""Slices of judged corpora: by language, kind of query, number of relevant documents, and where in a document."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from capim.tasks.diagnosis.analysis_input import AnalysisInput
from capim.tasks.diagnosis.slice_means import part_slices
from capim.tasks.diagnosis.slices import Slice
from capim.tasks.metrics.headline import headline_of

_COUNTS = {"1": (1, 1), "2-3": (2, 3), "4-9": (4, 9), "10 or more": (10, None)}
_PAGES = {"page 1": (0, 1), "pages 2-5": (2, 5), "pages 6-20": (6, 20), "from page 21": (21, None)}


def judged_queries(data: AnalysisInput) -> Iterator[Slice]:
    """The corpus' main metric over parts of the queries; none that holds all of them.

    Where in a document is the first of the pages with the highest grade, of corpora that number their pages.
    """
    [figure] = headline_of([data.protocol])
    captions = data.corpus.captions.take(data.queries.query_ords)
    parts: dict[tuple[str, str], NDArray[np.bool_]] = {}
    languages = np.asarray(captions["language"].to_pylist(), dtype=object)
    parts |= {("language", name): languages == name for name in sorted(set(languages.tolist()))}
    types: list[list[str]] = [kinds or [] for kinds in captions["query_types"].to_pylist()]
    for name in sorted({kind for kinds in types for kind in kinds}):
        parts["kind of query", name] = np.array([name in kinds for kinds in types])
    parts |= _ranges("relevant documents", data.queries.n_relevant.astype(np.float64), _COUNTS)
    parts |= _ranges("where in the document", _best_page(data), _PAGES)
    yield from part_slices(
        data, "judged", {name: inside for name, inside in parts.items() if not inside.all()}, metric=figure.metric
    )


def _ranges(
    feature: str, numbers: NDArray[np.float64], ranges: dict[str, tuple[int, int | None]]
) -> dict[tuple[str, str], NDArray[np.bool_]]:
    """The queries whose number is in each range, ends included; a number that is not known is in none."""
    return {
        (feature, name): (numbers >= low) & (numbers <= (np.inf if high is None else high))
        for name, (low, high) in ranges.items()
    }


def _best_page(data: AnalysisInput) -> NDArray[np.float64]:
    """The lowest page number among each query's documents with the highest grade; NaN where it is not known."""
    numbers = np.array([np.nan if page is None else page for page in data.corpus.images["page"].to_pylist()], float)
    task, grades = data.task, data.task.grades
    if grades is None:
        return np.full(len(task.queries), np.nan)
    starts = task.offsets[:-1]
    best = grades == np.repeat(np.maximum.reduceat(grades, starts), task.n_relevant)
    pages = np.where(best, numbers[task.relevant], np.inf)
    first = np.fmin.reduceat(pages, starts)
    return np.where(np.isfinite(first), first, np.nan)
