"""The registry of analyses: their names, requirements and tables; reports, flows and stored rows read it here.

To add one: a function from :class:`tasks.analyses.analysis.AnalysisInput` to slices in a file of this folder, and a
row here; or an :class:`Analysis` that a package of your own names in an entry point ``capim.analyses``
(``docs/own_model.md``). Functions are named by their location, and loaded when they first run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from capim.store.errors import RequestError, unknown
from capim.store.plugins import Plugin, PluginTable
from capim.store.schema import AMBIGUOUS, ERRORS
from capim.store.types import FUSION, TWO_STAGE
from capim.tasks.protocols import Direction, Kind, Protocol

if TYPE_CHECKING:
    from capim.tasks.analyses.analysis import AnalysisInput, Slice

Section: TypeAlias = Literal["slices", "ablations", "failures"]
Need: TypeAlias = Literal["vectors", "specs"]

HARDWARE = "hardware"
_RETRIEVAL: frozenset[Kind] = frozenset({"retrieval"})


@dataclass(frozen=True)
class Analysis:
    """One analysis.

    Attributes:
        name: Name by which it is requested.
        function: Returns slices of an ``AnalysisInput``, none if the corpus lacks the required data; a built-in
            function is given by its location, ``file:function``. Empty: the slices are written by another command than
            ``capim analyse``.
        tables: Name in the column ``analysis`` of its slices -> heading of their table; the first is its title.
        kinds: Kinds of the protocols that it applies to. Queries of judged documents describe no image.
        directions: Directions of these protocols; None: all.
        scope: Whether an encoder's slices depend only on this encoder or also on the others.
        needs: Data that it reads in addition to outcomes and corpus: fields of ``AnalysisInput``.
        version: Raised when the same input gets other slices; stored with each. A package's also has its version.
        of_parts: True if its slices are means over parts of the queries. It slices any metric of queries, and R@1 a
            second time without the ambiguous misses; these depend on all encoders.
        section: Section of the report.
        worst: Name of a table with slices that may be among the worst of the report -> True if those without a feature
            may be, too.
        on_request: True if it runs only when it is named.
        part_of: The analysis that includes this one when it is requested.
        measures: True if the same input may get other slices: random training, or measured times.
        of_languages: True if it runs for the captions of every language, even if it is not named.
        draws: True if its slices depend on the number of bootstrap replicates, whatever the method of intervals.
    """

    name: str
    function: Callable[[AnalysisInput], Iterable[Slice]] | str
    tables: Mapping[str, str]
    _: KW_ONLY
    kinds: frozenset[Kind] = _RETRIEVAL
    directions: frozenset[Direction] | None = None
    scope: Literal["one encoder", "all encoders"] = "one encoder"
    needs: frozenset[Need] = frozenset()
    version: int | str = 1
    of_parts: bool = False
    section: Section = "slices"
    worst: Mapping[str, bool] = field(default_factory=dict)
    on_request: bool = False
    part_of: str = ""
    measures: bool = False
    of_languages: bool = True
    draws: bool = False

    @property
    def looks_at_all(self) -> bool:
        """True if its slices of an encoder depend on the other encoders: by its scope, or by the ambiguous misses."""
        return self.of_parts or self.scope == "all encoders"

    @property
    def title(self) -> str:
        """Return its title, in a few words."""
        return next(iter(self.tables.values()))

    def applies(self, protocol: Protocol) -> bool:
        """True if it applies to outcomes of this protocol."""
        return protocol.kind in self.kinds and (self.directions is None or protocol.direction in self.directions)

    def run(self, data: AnalysisInput) -> Iterator[Slice]:
        """Yield the slices of these outcomes, with the version.

        Raises:
            ValueError: If a slice is of a table that is not among ``tables``.
        """
        function = _at(self.function) if isinstance(self.function, str) else self.function
        for each in function(data):
            if each.analysis not in self.tables:
                raise ValueError(f"analysis {self.name!r} gave a slice of {each.analysis!r}, not one of its tables")
            yield replace(each, version=str(self.version))


def _at(place: str) -> Callable[[Any], Any]:
    file, _, name = place.partition(":")
    found: Callable[[Any], Any] = getattr(import_module(f"capim.tasks.analyses.{file}"), name)
    return found


def _of_package(plugin: Plugin, found: object) -> Analysis:
    """Return the analysis of a package, with errors that name the package."""
    if not isinstance(found, Analysis):
        raise TypeError(f"expected a capim.tasks.analyses.table.Analysis, got {type(found).__name__}")
    if found.name != plugin.point.name:
        raise ValueError(f"the analysis has another name, {found.name!r}")
    if not callable(found.function):
        raise TypeError(f"the function of the analysis is {found.function!r}")
    taken = {table for analysis in _OWN for table in analysis.tables} & {*found.tables}
    if taken or not found.tables:
        raise ValueError(f"tables must be named, and not like capim's own, got {', '.join(sorted(taken)) or 'none'}")

    def function(data: AnalysisInput) -> Iterator[Slice]:
        with plugin.failures("analysis"):
            yield from found.function(data)  # type: ignore[operator]  # callable, by the check above

    return replace(found, function=function, version=f"{found.version} of {plugin.package} {plugin.version}")


_T2I: frozenset[Direction] = frozenset({"t2i"})
_LABELS: frozenset[Kind] = frozenset({"labels"})
_VECTORS: frozenset[Need] = frozenset({"vectors"})
_VECTORS_AND_SPECS: frozenset[Need] = frozenset({"vectors", "specs"})


def _own(name: str, function: str, tables: str | Mapping[str, str], **facts: Any) -> Analysis:
    """Return a built-in analysis; with a single table of its own name, the heading may be given as a string."""
    return Analysis(name, function, {name: tables} if isinstance(tables, str) else tables, **facts)


_ablation = partial(_own, section="ablations", of_languages=False)
_OF_OTHER_COMMANDS = {
    HARDWARE: "Other hardware",
    TWO_STAGE: "Retrieve with one encoder, re-rank with another",
    FUSION: "Fused scores",
}
_FORMS = {
    "precision": "Precision of the stored vectors",
    "normalisation": "Normalisation",
    "truncation": "Truncated vectors (Matryoshka)",
    "pca": "Projection onto principal components",
}
_OF_CAPTIONS = {
    "complexity": "Features of the caption",
    "length": "Length of the caption",
    "ordinal": "Position of the caption",
}
_OF_OBJECTS = {
    "supercategory": "Objects in the image",
    "category": "Objects in the image, by category",
    "category-inferred": "Objects named in the caption (inferred from words)",
}
_OWN = (
    _own(
        "complexity",
        "content:complexity",
        _OF_CAPTIONS,
        directions=_T2I,
        of_parts=True,
        worst={"complexity": True, "length": False, "ordinal": False},
        version=3,
    ),
    _own(
        "categories",
        "content:categories",
        _OF_OBJECTS,
        scope="all encoders",
        of_parts=True,
        worst={"supercategory": False, "category": False},
        version=3,
    ),
    _own(
        "judged",
        "content:judged_queries",
        "By language, kind of query, relevant documents and page",
        kinds=frozenset({"judged"}),
        directions=_T2I,
        worst={"judged": False},
    ),
    _own(ERRORS, "misses:error_kinds", "Kinds of errors", kinds=_LABELS | {"retrieval", "judged"}),
    _own(
        "tags",
        "content:tags",
        "By tag",
        kinds=frozenset({"quadruples"}),
        of_parts=True,
        worst={"tags": False},
        version=2,
    ),
    _own(
        "classes",
        "content:classes",
        {"class": "By class", "confusion": "Confused classes"},
        kinds=_LABELS,
        worst={"class": False},
    ),
    _ablation("compression", "ablations:vector_forms", _FORMS, directions=_T2I, needs=_VECTORS_AND_SPECS),
    _ablation(
        "approximate-search",
        "compression:approximate_search",
        "Compressed vectors and approximate search",
        kinds=frozenset({"retrieval", "judged"}),
        directions=_T2I,
        needs=_VECTORS_AND_SPECS,
        on_request=True,
        part_of="compression",
        measures=True,  # LanceDB trains its indexes at random
        version=2,
    ),
    _ablation(
        "forward-precision",
        "ablations:forward_precision",
        {"forward precision": "Precision of the forward pass"},
        scope="all encoders",
        needs=frozenset({"specs"}),
        version=2,
    ),
    *(_ablation(name, "", heading) for name, heading in _OF_OTHER_COMMANDS.items()),
    _ablation(
        "temperatures", "calibration:temperatures", {"temperature": "Temperature and calibration"}, needs=_VECTORS
    ),
    _ablation("thresholds", "calibration:thresholds", {"threshold": "Answering only above a threshold"}, version=2),
    _own(AMBIGUOUS, "misses:ambiguous", "Ambiguous", scope="all encoders", section="failures"),
    _ablation("resampled-gallery", "gallery:resampled_gallery", "Resampled gallery", on_request=True, draws=True),
)
ANALYSES = PluginTable("capim.analyses", {analysis.name: analysis for analysis in _OWN}, _of_package)
"""Every analysis by name, those of packages last."""


def headings(section: Section) -> dict[str, str]:
    """Return the name of each table of slices -> its heading, in the order of a section of the report."""
    return {
        table: heading
        for analysis in ANALYSES.values()
        if analysis.section == section
        for table, heading in analysis.tables.items()
    }


def worst_tables() -> dict[str, bool]:
    """Return ``Analysis.worst`` of all analyses."""
    return {table: without for analysis in ANALYSES.values() for table, without in analysis.worst.items()}


def of_parts() -> list[str]:
    """Return the names of the analyses that slice any metric of queries."""
    return [name for name, analysis in ANALYSES.items() if analysis.of_parts]


def check_analyses(names: Sequence[str]) -> None:
    """Check the names of analyses.

    Raises:
        RequestError: If a name is unknown.
    """
    known = [name for name, analysis in ANALYSES.items() if analysis.function]
    if strange := sorted({*names} - {*known}):
        raise RequestError([unknown("analysis", name, known) for name in strange])


def applying(protocol: Protocol, names: Sequence[str] = ()) -> list[Analysis]:
    """Return the named analyses that apply to a protocol; without names, all that run by default or for a language.

    Raises:
        RequestError: If a name is unknown.
    """
    check_analyses(names)

    def wanted(analysis: Analysis) -> bool:
        if names:
            return analysis.name in names or analysis.part_of in names
        return not analysis.on_request and (analysis.of_languages or not protocol.is_of_language)

    return [each for each in ANALYSES.values() if each.function and wanted(each) and each.applies(protocol)]


def slices_of(analysis: Analysis, data: AnalysisInput) -> Iterator[Slice]:
    """Yield the slices of these outcomes by one analysis; means over parts also without the ambiguous misses."""
    yield from analysis.run(data)
    without = _at("misses:without_ambiguous")(data) if analysis.of_parts else None
    if without is not None:
        yield from analysis.run(without)
