"""A user's metric: ``capim evaluate --metric FILE.py:NAME``, any callable of a file or a module.

Its arguments are matched by name, any combination of

- ``outcomes``: ranks, ties and best lists of the queries by column, their texts, languages and the ids of the searched
  items (:class:`tasks.metrics.custom_views.QueryOutcomes`);
- ``block``: raw scores of some queries with their relevance (:class:`tasks.scoring.score_blocks.ScoreBlock`), for
  retrieval by encoders with embeddings; ``outcomes`` are then those of the block's queries;
- ``corpus``: the corpus (:class:`store.types.Corpus`).

Further arguments are options: ``my_metrics.py:at_k(k=3)``. It returns one number per query, in query order, NaN where
it does not apply:

    def margin(block):
        '''How far the best relevant item is ahead of the best other one.'''
        own = np.where(block.relevant, block.scores, -np.inf).max(axis=1)
        other = np.where(block.relevant, -np.inf, block.scores).max(axis=1)
        return own - other

The mean over queries, its interval, comparisons and slices follow as for every other metric. With an attribute
``aggregate`` the figure is ``aggregate(values)`` instead of the mean; a query may then have several numbers. With
``lower_is_better = True`` the lowest figure is the best. See ``docs/own_metric.md``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from capim.store.errors import RequestError
from capim.store.own_code import what_failed
from capim.store.types import Corpus, Direction
from capim.tasks.metrics.custom_source import find, found_object, source_digest
from capim.tasks.metrics.custom_views import QueryOutcomes
from capim.tasks.metrics.metric import RETRIEVAL, Metric, Ties, decided
from capim.tasks.scoring.outcomes import Outcomes

ARGUMENTS = ("outcomes", "block", "corpus")
_ALL_DIRECTIONS: frozenset[Direction] = RETRIEVAL | {"pairs", "quadruples"}


@dataclass(frozen=True, kw_only=True, eq=False)
class CustomMetric:
    """A user's callable as a metric.

    Attributes:
        name: The name in tables and reports: ``FILE:NAME`` with its options, or another text with a colon.
        function: Gets its arguments by name: ``outcomes`` or ``block``, and ``corpus``.
        title: What it measures, in a few words; the first line of its docstring.
        aggregate: Values of some queries -> the figure; None for a mean.
        file: The user's file, for messages.

    Raises:
        RequestError: The name has no colon, or the function takes something else.
    """

    name: str
    function: Callable[..., object]
    title: str = ""
    aggregate: Callable[[NDArray[np.float64]], object] | None = None
    lower_is_better: bool = False
    file: str = ""

    def __post_init__(self) -> None:
        if ":" not in self.name.strip(":"):
            raise RequestError(f"metric {self.name!r}: the name needs a group and a colon, e.g. {f'own:{self.name}'!r}")
        _check_arguments(self.name, self.function)

    def __str__(self) -> str:
        return self.name

    @property
    def version(self) -> str:
        """A digest of the code: figures by other code under the same name are not comparable."""
        return source_digest(self.function, self.file)

    @property
    def takes(self) -> frozenset[str]:
        """Those of ``ARGUMENTS`` that the function gets."""
        return frozenset(_parameters(self.function)) & {*ARGUMENTS}

    def metric(self, blocks: Callable[[Outcomes], Iterable[Any]] | None = None, corpus: Corpus | None = None) -> Metric:
        """The callable as a :class:`Metric`; it is called once for the same outcomes.

        A function of ``outcomes`` is also called with all ties lost and all ties won.

        Args:
            blocks: For a function of blocks: gives those of an encoder by its outcomes.

        Raises:
            RequestError: When computed: the user's code fails, or returns something else than numbers of queries.
        """
        known: WeakKeyDictionary[Outcomes, dict[Ties, NDArray[np.float64]]] = WeakKeyDictionary()

        def per_query(outcomes: Outcomes, ties: Ties) -> NDArray[np.float64]:
            found = known.setdefault(outcomes, {})
            ties = "expected" if "block" in self.takes else ties
            if ties not in found:
                found[ties] = self._values(decided(outcomes, ties), corpus, blocks)
            return found[ties]

        return Metric(
            name=self.name,
            title=self.title,
            directions=RETRIEVAL if "block" in self.takes else _ALL_DIRECTIONS,
            values=per_query,
            reduce="mean" if self.aggregate is None else self._aggregated,
            higher_is_better=not self.lower_is_better,
            version=self.version,
            reference=True,
        )

    def _values(
        self, outcomes: Outcomes, corpus: Corpus | None, blocks: Callable[[Outcomes], Iterable[Any]] | None
    ) -> NDArray[np.float64]:
        """One row per query, checked."""
        view = QueryOutcomes(outcomes, corpus)
        if "block" not in self.takes:
            return self._checked(self._called(outcomes=view, corpus=corpus), view)
        if blocks is None:
            raise RequestError(f"metric {self.name!r} takes score blocks, which need the embeddings, not only outcomes")
        values: NDArray[np.float64] | None = None
        for block in blocks(outcomes):
            queries = view.at(block.rows)
            part = self._checked(self._called(block=block, outcomes=queries, corpus=corpus), queries)
            if values is None:
                values = np.full((len(outcomes), *part.shape[1:]), np.nan)
            if part.shape[1:] != values.shape[1:]:
                raise RequestError(
                    f"metric {self.name!r} returned {part.shape[1:]} numbers per query for one block and "
                    f"{values.shape[1:]} for another"
                )
            values[block.rows] = part
        return np.full(len(outcomes), np.nan) if values is None else values

    def _called(self, **available: object) -> object:
        try:
            return self.function(**{name: available[name] for name in self.takes})
        except Exception as error:
            raise RequestError(f"metric {self.name!r}: {what_failed(error, self.file)}") from error

    def _aggregated(self, values: NDArray[np.float64]) -> float:
        """The user's aggregate; NaN where it is not a finite number."""
        if self.aggregate is None:
            raise TypeError(f"metric {self.name!r} has no aggregate")
        try:
            figure = float(self.aggregate(values))  # type: ignore[arg-type]  # anything else than a number fails here
        except Exception as error:
            raise RequestError(f"metric {self.name!r}, aggregate: {what_failed(error, self.file)}") from error
        return figure if np.isfinite(figure) else float("nan")

    def _checked(self, returned: object, queries: QueryOutcomes) -> NDArray[np.float64]:
        n = len(queries)
        try:
            values = np.asarray(returned, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise RequestError(
                f"metric {self.name!r} returned {type(returned).__name__}, expected {n} numbers"
            ) from error
        if values.shape[:1] != (n,) or (values.ndim > 1 and self.aggregate is None):
            more = "" if self.aggregate is None else " or one row per query"
            raise RequestError(
                f"metric {self.name!r} returned shape {values.shape}, expected one number per query, ({n},){more}"
            )
        if (infinite := np.isinf(values.reshape(n, -1)).any(axis=1)).any():
            raise RequestError(
                f"metric {self.name!r}: the value of query {queries.query_id[int(np.argmax(infinite))]!r} is infinite; "
                "return NaN where the metric does not apply"
            )
        return values


def load_metric(requested: str | CustomMetric | Callable[..., object], *, folder: str | Path = ".") -> CustomMetric:
    """The user's metric by ``FILE.py:NAME`` or ``MODULE:NAME``, with options in parentheses; or of a Python object.

    A class is made with the options, and its instance called; other callables get the options with every call.

    Args:
        requested: As given on the command line, or the object: a metric, a function, a partial function, an instance.

    Raises:
        RequestError: No such file, module or object, one with other arguments, or an object without a name.
    """
    if isinstance(requested, CustomMetric):
        return requested
    found = find(requested, Path(folder)) if isinstance(requested, str) else found_object(requested)
    target = found.target
    options = dict(found.options)
    try:
        if isinstance(target, type):
            inspect.signature(target).bind(**options)
            target, options = target(**options), {}
        _check_arguments(str(requested) if isinstance(requested, str) else found.name, target, options)
    except RequestError:
        raise
    except Exception as error:
        raise RequestError(f"metric {requested!r}: {what_failed(error, found.file)}") from error
    return CustomMetric(
        name=found.name,
        function=functools.partial(target, **options),
        title=_title(target) or found.name,
        aggregate=_attribute(target, "aggregate"),
        lower_is_better=bool(_attribute(target, "lower_is_better")),
        file=found.file,
    )


def _parameters(function: Callable[..., object]) -> dict[str, inspect.Parameter]:
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {name: p for name, p in inspect.signature(function).parameters.items() if p.kind not in several}


def _check_arguments(requested: str, function: Callable[..., object], options: Collection[str] = ()) -> None:
    """Refuse a callable that takes something else than outcomes or blocks, or that lacks an option."""
    parameters = _parameters(function)
    optional = [name for name in parameters if name not in ARGUMENTS]
    missing = [n for n in optional if n not in options and parameters[n].default is inspect.Parameter.empty]
    if unknown := sorted(set(options) - set(optional)):
        raise RequestError(
            f"metric {requested!r} has no option {', '.join(unknown)}; its options: {', '.join(optional) or 'none'}"
        )
    if missing or not {"outcomes", "block"} & set(parameters):
        raise RequestError(
            f"metric {requested!r} takes ({', '.join(parameters)}); it must take outcomes or block, may take corpus; "
            f"other arguments need a default or a value: {requested.partition('(')[0]}(option=value)"
        )


def _title(target: Any) -> str:
    """The first line of a docstring; of a partial function, that of the function."""
    text = inspect.getdoc(target.func if isinstance(target, functools.partial) else target) or ""
    return text.partition("\n")[0].strip()


def _attribute(target: Any, name: str) -> Any:
    """An attribute of a callable; of a partial function, also that of the function."""
    inner = getattr(target, "func", None) if isinstance(target, functools.partial) else None
    return getattr(target, name, getattr(inner, name, None))
