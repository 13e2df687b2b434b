"""The table of analyses. A new analysis is a function from :class:`AnalysisInput` to slices, and a row here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from capim.store.errors import RequestError, unknown
from capim.tasks.analyses.ablations.forms import vector_forms
from capim.tasks.analyses.ablations.forward_precision import forward_precision
from capim.tasks.analyses.analysis_input import AnalysisInput
from capim.tasks.analyses.calibration import score_margins, temperatures, thresholds
from capim.tasks.analyses.compositional import caption_baselines, tags
from capim.tasks.analyses.content.queries import categories, complexity, judged_queries, truncated_captions
from capim.tasks.analyses.hubs import hubs, modality_gap
from capim.tasks.analyses.misses import ambiguous, confusable_images, disagreement, error_kinds, without_ambiguous
from capim.tasks.analyses.resampled_gallery import resampled_gallery
from capim.tasks.analyses.slices import Slice
from capim.tasks.protocols import Direction

_RETRIEVAL: frozenset[Direction] = frozenset({"t2i", "i2t"})
_TEXT_TO_IMAGE: frozenset[Direction] = frozenset({"t2i"})


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """One analysis.

    Attributes:
        run: Yields the slices; none where the corpus lacks what the analysis needs.
        directions: Directions of the protocols that it applies to.
        on_request: Whether it runs only when it is named.
        judged: Whether it applies to judged documents only (True), to all protocols (None), or not to these (False):
            their queries describe no image.
    """

    run: Callable[[AnalysisInput], Iterable[Slice]]
    directions: frozenset[Direction] = _RETRIEVAL
    on_request: bool = False
    judged: bool | None = False


ANALYSES: dict[str, Analysis] = {
    "complexity": Analysis(run=complexity, directions=_TEXT_TO_IMAGE),
    "categories": Analysis(run=categories),
    "truncated-captions": Analysis(run=truncated_captions),
    "errors": Analysis(run=error_kinds, judged=None),
    "ambiguous": Analysis(run=ambiguous),
    "hubs": Analysis(run=hubs),
    "margins": Analysis(run=score_margins),
    "disagreement": Analysis(run=disagreement),
    "families": Analysis(run=confusable_images),
    "resampled-gallery": Analysis(run=resampled_gallery, on_request=True),
    "thresholds": Analysis(run=thresholds),
    "tags": Analysis(run=tags, directions=frozenset({"quadruples"})),
    "judged": Analysis(run=judged_queries, directions=_TEXT_TO_IMAGE, judged=True),
    "baselines": Analysis(run=caption_baselines, directions=frozenset({"pairs", "quadruples"})),
    "gap": Analysis(run=modality_gap, directions=_TEXT_TO_IMAGE),
    "forward-precision": Analysis(run=forward_precision),
    "temperatures": Analysis(run=temperatures),
    "ablations": Analysis(run=vector_forms, directions=_TEXT_TO_IMAGE),
}

BY_PART = ("complexity", "categories", "tags")
"""Analyses whose slices are means over parts of the queries: they slice any metric of queries, and R@1 a second time
without the ambiguous misses."""


def check_analyses(names: Sequence[str]) -> None:
    """Check the names of analyses.

    Raises:
        RequestError: An unknown name.
    """
    if faults := [unknown("analysis", name, ANALYSES) for name in sorted({*names} - {*ANALYSES})]:
        raise RequestError(faults)


def diagnose(data: AnalysisInput, names: Sequence[str] = ()) -> Iterator[Slice]:
    """The slices of the named analyses that apply to the protocol of the input.

    No names: all analyses, except those that run on request only.

    Raises:
        RequestError: An unknown name.
    """
    check_analyses(names)
    for name, analysis in ANALYSES.items():
        wanted = name in names if names else not analysis.on_request
        fits = analysis.judged in (None, data.protocol.kind == "judged")
        if wanted and fits and data.protocol.direction in analysis.directions:
            yield from analysis.run(data)
            without = without_ambiguous(data) if name in BY_PART else None
            if without is not None:
                yield from analysis.run(without)
