"""The table of analyses. To add one: a function from a :class:`Subject` to slices in a file of its own, and a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from store.errors import RequestError
from store.types import Direction
from tasks.diagnosis.ablations.ablation import ablations
from tasks.diagnosis.ablations.hardware import forward_precision
from tasks.diagnosis.calibration import temperatures, thresholds
from tasks.diagnosis.disagreement import disagreement
from tasks.diagnosis.errors import errors
from tasks.diagnosis.families import families
from tasks.diagnosis.gap import modality_gap
from tasks.diagnosis.hubs import hubs
from tasks.diagnosis.margins import margins
from tasks.diagnosis.resampled_gallery import resampled_galleries
from tasks.diagnosis.subject import Slice, Subject
from tasks.diagnosis.tags import baselines, tags
from tasks.diagnosis.wording.categories import categories
from tasks.diagnosis.wording.complexity import complexity

_RETRIEVAL: frozenset[Direction] = frozenset({"t2i", "i2t"})
_CHOICES: frozenset[Direction] = frozenset({"pairs", "quadruples"})


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """One analysis.

    Attributes:
        title: One line for people.
        run: Subject -> slices; none where the subject has nothing of what it looks at.
        directions: Protocols that it is for.
        on_request: Whether it runs only when it is named.
    """

    title: str
    run: Callable[[Subject], Iterable[Slice]]
    directions: frozenset[Direction] = _RETRIEVAL
    on_request: bool = False


ANALYSES: dict[str, Analysis] = {
    "complexity": Analysis(title="By what the caption asks for", run=complexity, directions=frozenset({"t2i"})),
    "categories": Analysis(title="By what the picture shows", run=categories),
    "errors": Analysis(title="Kinds of misses", run=errors),
    "hubs": Analysis(title="Items that are found for everything", run=hubs),
    "margins": Analysis(title="How narrowly queries are won and lost", run=margins),
    "disagreement": Analysis(title="Right where another encoder is wrong", run=disagreement),
    "families": Analysis(title="Images taken for one another", run=families),
    "resampled-gallery": Analysis(
        title="Recall with a resampled gallery, which is biased", run=resampled_galleries, on_request=True
    ),
    "thresholds": Analysis(title="Precision and recall at a score", run=thresholds),
    "tags": Analysis(title="Winoground by tag", run=tags, directions=frozenset({"quadruples"})),
    "baselines": Analysis(title="Captions alone", run=baselines, directions=_CHOICES),
    "gap": Analysis(title="Modality gap", run=modality_gap, directions=frozenset({"t2i"})),
    "forward-precision": Analysis(title="Precision of the forward pass", run=forward_precision),
    "temperatures": Analysis(title="Scores as probabilities", run=temperatures),
    "ablations": Analysis(
        title="Other forms of the stored vectors",
        run=ablations,
        directions=frozenset({"t2i"}),
    ),
}


def check_analyses(names: Sequence[str]) -> None:
    """Check the names of analyses.

    Raises:
        RequestError: An unknown name.
    """
    if unknown := sorted(set(names) - set(ANALYSES)):
        raise RequestError(f"unknown analyses {', '.join(unknown)}; known analyses: {', '.join(ANALYSES)}")


def diagnose(subject: Subject, names: Sequence[str] = ()) -> Iterator[Slice]:
    """The slices of the named analyses that apply to the subject's protocol.

    Args:
        subject: Encoders with their outcomes under one protocol of one corpus.
        names: Keys of ``ANALYSES``; empty: all, except those that run on request only.

    Raises:
        RequestError: An unknown name.
    """
    check_analyses(names)
    for name, analysis in ANALYSES.items():
        wanted = name in names if names else not analysis.on_request
        if wanted and subject.protocol.direction in analysis.directions:
            yield from analysis.run(subject)
