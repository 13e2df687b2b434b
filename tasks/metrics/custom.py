"""Custom metrics: ``capim evaluate --metric module:function``.

A function with one argument named ``outcomes`` gets the outcomes of a protocol, one with an argument named ``block``
gets raw scores (:class:`tasks.scoring.score_blocks.ScoreBlock`). Both return one number per query, in query order:

    def margin(block):
        '''How far the best relevant item is ahead of the best other one.'''
        own = np.where(block.relevant, block.scores, -np.inf).max(axis=1)
        other = np.where(block.relevant, -np.inf, block.scores).max(axis=1)
        return own - other

Means over queries, intervals and comparisons are then computed as for every other metric.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from store.errors import RequestError
from store.types import Direction
from tasks.metrics.metric import RETRIEVAL, Metric, Ties
from tasks.scoring.outcomes import Outcomes

_ARGUMENTS: tuple[Literal["outcomes"], Literal["block"]] = ("outcomes", "block")
_ALL_DIRECTIONS: frozenset[Direction] = RETRIEVAL | {"pairs", "quadruples"}


@dataclass(frozen=True, kw_only=True)
class CustomMetric:
    """A user's function as a metric.

    Attributes:
        name: ``module:function``, the name in tables and reports.
        title: First line of its docstring.
        takes: Name of its argument: ``outcomes`` or ``block``.
        function: The function.
    """

    name: str
    title: str
    takes: Literal["outcomes", "block"]
    function: Callable[..., ArrayLike]

    def metric(self, blocks: Callable[[Outcomes], Iterable[object]] | None = None) -> Metric:
        """The function as a :class:`Metric`, for ``tasks.results``.

        Args:
            blocks: For a function of blocks: gives the blocks of the outcomes' protocol.

        Raises:
            ValueError: When computed: a result that is not one finite number per query.
        """

        def per_query(outcomes: Outcomes, _: Ties) -> NDArray[np.float64]:
            if self.takes == "outcomes":
                return self._checked(self.function(outcomes), len(outcomes))
            if blocks is None:
                raise ValueError(
                    f"metric {self.name!r} takes score blocks, which need the embeddings, not only outcomes"
                )
            values = np.full(len(outcomes), np.nan)
            for block in blocks(outcomes):
                rows: NDArray[np.int64] = block.rows  # type: ignore[attr-defined]
                values[rows] = self._checked(self.function(block), len(rows))
            return self._checked(values, len(outcomes))

        return Metric(
            name=self.name,
            title=self.title,
            directions=_ALL_DIRECTIONS if self.takes == "outcomes" else RETRIEVAL,
            values=per_query,
            reference=True,
        )

    def _checked(self, values: ArrayLike, n: int) -> NDArray[np.float64]:
        try:
            checked = np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"metric {self.name!r} returned {type(values).__name__}, expected {n} numbers") from error
        if checked.shape != (n,):
            raise ValueError(
                f"metric {self.name!r} returned shape {checked.shape}, expected one number per query, ({n},)"
            )
        if not np.isfinite(checked).all():
            raise ValueError(
                f"metric {self.name!r}: value of query {int(np.argmin(np.isfinite(checked)))} is not finite"
            )
        return checked


def load_metric(name: str, *, folder: str | Path = ".") -> CustomMetric:
    """The user's function by ``module:function``.

    Args:
        name: As given on the command line. The module is looked for in ``folder`` too.
        folder: Added to the import path while the module is imported.

    Raises:
        RequestError: No such module or function, or a function with other arguments.
    """
    module_name, _, function_name = name.partition(":")
    if not module_name or not function_name:
        raise RequestError(f"metric {name!r} must be module:function, e.g. my_metrics:margin")
    import_path = str(Path(folder).resolve())
    sys.path.insert(0, import_path)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # the user's module may raise anything
        raise RequestError(
            f"metric {name!r}: cannot import {module_name!r}: {type(error).__name__}: {error}"
        ) from error
    finally:
        sys.path.remove(import_path)
    function = getattr(module, function_name, None)
    if not inspect.isfunction(function):
        functions = [
            key for key, value in vars(module).items() if inspect.isfunction(value) and not key.startswith("_")
        ]
        raise RequestError(
            f"metric {name!r}: {module_name!r} has no such function; it has {', '.join(functions) or 'none'}"
        )
    arguments = list(inspect.signature(function).parameters)
    title = (inspect.getdoc(function) or name).splitlines()[0]
    for takes in _ARGUMENTS:
        if arguments == [takes]:
            return CustomMetric(name=name, title=title, takes=takes, function=function)
    raise RequestError(f"metric {name!r} takes ({', '.join(arguments)}); it must take (outcomes) or (block)")
