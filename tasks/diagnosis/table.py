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
        reads_vectors: Whether it needs stored vectors (and time for them), not only outcomes.
    """

    title: str
    run: Callable[[Subject], Iterable[Slice]]
    directions: frozenset[Direction] = _RETRIEVAL
    reads_vectors: bool = False


ANALYSES: dict[str, Analysis] = {
    "complexity": Analysis(title="By what the caption asks for", run=complexity, directions=frozenset({"t2i"})),
    "categories": Analysis(title="By what the picture shows", run=categories),
    "errors": Analysis(title="Kinds of misses", run=errors),
    "hubs": Analysis(title="Items that are found for everything", run=hubs),
    "margins": Analysis(title="How narrowly queries are won and lost", run=margins),
    "disagreement": Analysis(title="Right where another encoder is wrong", run=disagreement),
    "families": Analysis(title="Images taken for one another", run=families),
    "resampled-gallery": Analysis(title="V29's resampled gallery, which is biased", run=resampled_galleries),
    "thresholds": Analysis(title="Precision and recall at a score", run=thresholds),
    "tags": Analysis(title="Winoground by tag", run=tags, directions=frozenset({"quadruples"})),
    "baselines": Analysis(title="Captions alone", run=baselines, directions=_CHOICES),
    "gap": Analysis(title="Modality gap", run=modality_gap, directions=frozenset({"t2i"}), reads_vectors=True),
    "forward-precision": Analysis(title="Precision of the forward pass", run=forward_precision, reads_vectors=True),
    "temperatures": Analysis(title="Scores as probabilities", run=temperatures, reads_vectors=True),
    "ablations": Analysis(
        title="Other forms of the stored vectors",
        run=ablations,
        directions=frozenset({"t2i"}),
        reads_vectors=True,
    ),
}


def diagnose(subject: Subject, names: Sequence[str] | None = None) -> Iterator[Slice]:
    """The slices of the named analyses that fit the subject's protocol; of all, where none are named.

    Raises:
        RequestError: An unknown name.
    """
    unknown = sorted(set(names or ()) - set(ANALYSES))
    if unknown:
        raise RequestError(f"unknown analyses {', '.join(unknown)}; there are {', '.join(ANALYSES)}")
    for name, analysis in ANALYSES.items():
        if (names is None or name in names) and subject.protocol.direction in analysis.directions:
            yield from analysis.run(subject)
