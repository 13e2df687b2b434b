"""A user's metric: ``capim evaluate --own-metric FILE.py:NAME``, any callable of a file or a module.

Its arguments are matched by name, any combination of

- ``outcomes``: ranks, ties and best lists of the queries by column, their texts, languages and the ids of the searched
  items (:class:`tasks.metrics.custom.QueryOutcomes`);
- ``block``: raw scores of some queries with their relevance (:class:`tasks.ranking.evaluate.ScoreBlock`), for
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
``aggregate`` the result is ``aggregate(values)`` instead of the mean; a query may then have several numbers. With
``lower_is_better = True`` the lowest result is the best. See ``docs/own_metric.md``.
"""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from capim.store.errors import RequestError, did_you_mean
from capim.store.plugins import loaded_module, shown_path, what_failed
from capim.store.schema import is_found, texts
from capim.store.types import Corpus, digest16
from capim.store.vectors import positions_within
from capim.tasks.metrics.judgements import read_judgements
from capim.tasks.metrics.metric import RETRIEVAL, Metric, Ties, checked_values, decided
from capim.tasks.protocols import Direction, Protocol
from capim.tasks.ranking.outcomes import Outcomes, stored_attributes

# --- Finds a user's metric by ``FILE.py:NAME`` or ``MODULE:NAME``.


FORM = "module:function or path.py:function, options in parentheses, e.g. my_metrics.py:margin, my_metrics.py:at_k(k=3)"


class FoundMetric(NamedTuple):
    """What a user named: an object of a module, with options."""

    name: str
    target: Any
    options: Mapping[str, object]
    file: str


def find(requested: str, folder: Path) -> FoundMetric:
    """The object that a user named.

    A file is executed under a private name, so that ``metrics.py`` or ``store.py`` is never taken for a module of capim
    or of a library; modules next to it can be imported, unless they are called like a package of capim. The name of the
    metric is ``FILE:NAME(option=value)``, with the file's name without its folder and the options in alphabetical
    order.

    Raises:
        RequestError: No such file, module or object, a module that cannot be imported, or options that are not
            literals.
    """
    where, name, options = _parsed(requested)
    file = folder / (where if where.endswith(".py") else f"{where.replace('.', '/')}.py")
    beside = str(file.parent.resolve() if where.endswith(".py") else folder.resolve())
    sys.path.append(beside)  # at the end: a file next to the metric is never taken for a library
    try:
        if where.endswith(".py") or ("." not in where and file.is_file()):
            if not file.is_file():
                raise RequestError(f"metric {requested!r}: there is no file {shown_path(str(file.resolve()))}")
            module = loaded_module(file.resolve(), f"metric {requested!r}")
            where = file.stem if where.endswith(".py") else where
        else:
            module = loaded_module(where, f"metric {requested!r}")
    finally:
        sys.path.remove(beside)
    if not callable(target := getattr(module, name, None)):
        raise RequestError(f"metric {requested!r}: {where!r} has no such function; it has {_callables(module)}")
    return FoundMetric(
        name=_with_options(f"{where}:{name}", options),
        target=target,
        options=options,
        file=str(getattr(module, "__file__", "") or ""),
    )


def found_object(target: Any) -> FoundMetric:
    """A Python object as if it had been named: ``MODULE:NAME``, with the options of a partial function.

    The module of a script is its file's name, as for ``FILE.py:NAME``; that of a notebook is ``notebook``.

    Raises:
        RequestError: It cannot be called, or is a lambda, which has no name.
    """
    options = dict(target.keywords) if isinstance(target, functools.partial) else {}
    inner = target.func if isinstance(target, functools.partial) else target
    name = getattr(inner, "__name__", type(inner).__name__)
    if not callable(target) or not name.isidentifier():
        raise RequestError(
            f"metric {target!r} must be {FORM}; or a function with a name: capim.Metric(name='own:NAME', function=…)"
        )
    where = str(getattr(inner, "__module__", None) or "notebook")
    if where in ("__main__", "builtins"):  # builtins: of code that was executed without a name
        where = Path(getattr(sys.modules["__main__"], "__file__", None) or "notebook").stem
    called = inner if hasattr(inner, "__code__") else getattr(type(inner), "__call__", None)  # noqa: B004
    return FoundMetric(
        name=_with_options(f"{where}:{name}", options),
        target=inner,
        options=options,
        file=getattr(getattr(called, "__code__", None), "co_filename", ""),
    )


def source_digest(target: Any, file: str) -> str:
    """A digest of a metric's file, of Python without comments; of the object's own code where it is in no file.

    Modules that the code imports are not part of it. Code of a shell that keeps no source is distinguished by
    its instructions.
    """
    while isinstance(target, functools.partial):
        target = target.func
    owner = target if hasattr(target, "__code__") else type(target)
    try:
        in_file = Path(file).is_file()
        text = Path(file).read_text("utf-8", "replace") if in_file else textwrap.dedent(inspect.getsource(owner))
    except (OSError, TypeError):
        code = getattr(owner, "__code__", None) or getattr(owner.__call__, "__code__", None)
        return digest16([code.co_code.hex(), *map(str, code.co_names)] if code else str(owner))
    with suppress(SyntaxError, ValueError):  # no Python: a file of judgements
        text = ast.unparse(ast.parse(text))
    return digest16(text)


def _with_options(name: str, options: Mapping[str, object]) -> str:
    given = ", ".join(f"{option}={value!r}" for option, value in sorted(options.items()))
    return name + (f"({given})" if options else "")


def _parsed(requested: str) -> tuple[str, str, dict[str, object]]:
    where, _, expression = requested.partition(":")
    try:
        named: ast.expr | None = ast.parse(expression.strip(), mode="eval").body
    except SyntaxError:
        named = None
    call = named if isinstance(named, ast.Call) else None
    function = call.func if call else named
    keywords = call.keywords if call else []
    if not where or not isinstance(function, ast.Name) or (call and call.args) or any(k.arg is None for k in keywords):
        raise RequestError(f"metric {requested!r} must be {FORM}")
    options: dict[str, object] = {}
    for keyword in keywords:
        try:
            options[str(keyword.arg)] = ast.literal_eval(keyword.value)
        except ValueError:
            raise RequestError(
                f"metric {requested!r}: option {keyword.arg} must be a literal (a number, a text in quotes, True, a "
                f"list), got {ast.unparse(keyword.value)}"
            ) from None
    return where, function.id, options


def _callables(module: ModuleType) -> str:
    own = [
        name
        for name, value in vars(module).items()
        if callable(value) and not name.startswith("_") and inspect.getmodule(value) in (module, None)
    ]
    return ", ".join(own) or "none"


# --- What a user's metric sees of the queries: their outcomes by column, their texts and languages, the searched items.


_ATTRIBUTES = {column: name for name, column in stored_attributes()}
COLUMNS = tuple(_ATTRIBUTES)
# one value per relevant item instead of one per query
_OF_RELEVANT = ("relevant_rank_best", "relevant_rank_worst", "relevant_grades", "relevant_scores")


class QueryColumn(np.ndarray[Any, np.dtype[Any]]):
    """A NumPy array that also answers ``to_numpy()`` and ``to_pylist()``, as a column of an Arrow table does."""

    def to_numpy(self) -> NDArray[Any]:
        """The values as a plain array."""
        return np.asarray(self)

    def to_pylist(self) -> list[Any]:
        """The values as a list."""
        values: list[Any] = self.tolist()
        return values


class QueryOutcomes:
    """Outcomes of one encoder under one protocol: ``outcomes["rank_worst"]`` or ``outcomes.rank_worst``.

    ``top_ords`` are positions among all images or captions of the corpus, whose ids are ``items``, not in the gallery.
    Columns are named as in the stored table (``store.schema.OUTCOMES``) and have one value per query, with three
    exceptions: ``top_ords``, ``top_scores`` and ``scores`` are matrices with a row per query, padded with -1 and NaN;
    ``relevant_rank_best`` and ``relevant_rank_worst`` hold the ranks of all relevant items, query after query,
    ``n_relevant`` each, and where documents were judged ``relevant_grades`` and ``relevant_scores`` likewise; columns
    that the protocol does not have are None.

    Examples:
        >>> from capim.tasks.ranking.outcomes import outcomes_of
        >>> outcomes = QueryOutcomes(outcomes_of([[1], [3]]))
        >>> (outcomes.rank_worst <= 2).tolist(), outcomes["rank_worst"].to_numpy().tolist()
        ([True, False], [1, 3])
    """

    def __init__(self, outcomes: Outcomes, corpus: Corpus | None = None) -> None:
        self._outcomes = outcomes
        self._corpus = corpus
        self.protocol: Protocol = outcomes.protocol

    def __len__(self) -> int:
        return len(self._outcomes)

    def __getitem__(self, name: str) -> Any:
        if name not in COLUMNS:
            raise KeyError(f"outcomes have no column {name!r}; they have {', '.join(COLUMNS)}")
        values = getattr(self._outcomes, _ATTRIBUTES[name])
        return None if values is None else values.view(QueryColumn)

    def __getattr__(self, name: str) -> Any:
        if name not in COLUMNS:
            more = "query_texts, languages, items, corpus, protocol"
            raise AttributeError(f"outcomes have no {name!r}; they have {', '.join(COLUMNS)}, and {more}")
        return self[name]

    @property
    def corpus(self) -> Corpus:
        """The corpus of the queries.

        Raises:
            RequestError: The metric is computed without one.
        """
        if self._corpus is None:
            raise RequestError("these outcomes come without their corpus: give it when the metric is made")
        return self._corpus

    @property
    def query_texts(self) -> QueryColumn:
        """The text of each query: a caption, of a pair the right one, of a quadruple the first; None for an image."""
        return self._of_captions("text")

    @property
    def languages(self) -> QueryColumn:
        """The language of each query's caption (BCP-47); for an image that of the protocol, or None."""
        if self.protocol.is_retrieval and self.protocol.sides[0] == "image":
            return np.full(len(self), self.protocol.language or None, dtype=object).view(QueryColumn)
        return self._of_captions("language")

    @cached_property
    def items(self) -> QueryColumn:
        """The ids of all items that the queries search, by position: ``items[top_ords[:, 0]]`` are those found first.

        Raises:
            RequestError: The protocol has no gallery.
        """
        if not self.protocol.is_retrieval:
            raise RequestError(f"protocol {self.protocol.id!r} searches no items")
        table = self.corpus.items(self.protocol.sides[1])
        return np.array(table["id"].to_pylist(), dtype=object).view(QueryColumn)

    def at(self, rows: NDArray[np.int64]) -> QueryOutcomes:
        """The outcomes of some queries, by their positions, in the order given."""
        outcomes = self._outcomes
        counts = outcomes.n_relevant[rows]
        ranks = positions_within(counts) + np.repeat(outcomes.offsets[:-1][rows], counts)
        chosen: dict[str, Any] = {
            field.name: values[ranks if field.name in _OF_RELEVANT else rows]
            for field in fields(outcomes)
            if isinstance(values := getattr(outcomes, field.name), np.ndarray)
        }
        return QueryOutcomes(replace(outcomes, **chosen), self._corpus)

    def _of_captions(self, column: str) -> QueryColumn:
        """A column of the captions that the queries are; None for images."""
        if self.protocol.is_retrieval and self.protocol.sides[0] == "image":
            return np.full(len(self), None, dtype=object).view(QueryColumn)
        captions, positions = self.corpus.captions, self._outcomes.query_ords
        if not self.protocol.is_retrieval:
            pairs = self.protocol.direction == "pairs"
            ids = self.corpus.pairs["caption_id"] if pairs else self.corpus.quadruples["caption_0"]
            position_of = {name: at for at, name in enumerate(captions["id"].to_pylist())}
            positions = np.array([position_of[name] for name in ids.take(positions).to_pylist()], dtype=np.int32)
        return np.array(captions[column].take(positions).to_pylist(), dtype=object).view(QueryColumn)


AnyMetric: TypeAlias = str | Metric | Callable[..., object]
"""What names a user's metric: a text, or the object."""
ARGUMENTS = ("outcomes", "block", "corpus")
_ALL_DIRECTIONS: frozenset[Direction] = RETRIEVAL | {"pairs", "quadruples"}


Blocks: TypeAlias = Callable[[Outcomes], Iterable[Any]]
"""Gives the score blocks of an encoder by its outcomes (:class:`tasks.ranking.evaluate.ScoreBlock`)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class OwnValues:
    """Computes the values of a user's metric: ``Metric.values``.

    Attributes:
        name: The name of the metric, for messages.
        function: Gets its arguments by name: ``outcomes`` or ``block``, and ``corpus``.
        several: A query may have several numbers.
        file: The user's file, for messages.
        corpus, blocks: Whatever :func:`bound` gave.
    """

    name: str
    function: Callable[..., object]
    several: bool = False
    file: str = ""
    corpus: Corpus | None = None
    blocks: Blocks | None = None

    @property
    def takes(self) -> frozenset[str]:
        """Those of ``ARGUMENTS`` that the function gets."""
        return frozenset(_parameters(self.function)) & {*ARGUMENTS}

    def __call__(self, outcomes: Outcomes, ties: Ties) -> NDArray[np.float64]:
        """One row per query, checked; score blocks have no ties that could be lost or won.

        Raises:
            RequestError: The user's code fails, or returns something else than numbers of queries.
        """
        if "block" not in self.takes:
            return self._called(QueryOutcomes(decided(outcomes, ties), self.corpus))
        if self.blocks is None:
            raise RequestError(f"metric {self.name!r} takes score blocks, which need the embeddings, not only outcomes")
        view, values = QueryOutcomes(outcomes, self.corpus), np.full(len(outcomes), np.nan)
        for number, block in enumerate(self.blocks(outcomes)):
            part = self._called(view.at(block.rows), block=block)
            if number == 0:
                values = np.full((len(outcomes), *part.shape[1:]), np.nan)
            if part.shape[1:] != values.shape[1:]:
                raise RequestError(
                    f"metric {self.name!r} returned {part.shape[1:]} numbers per query for one block and "
                    f"{values.shape[1:]} for another"
                )
            values[block.rows] = part
        return values

    def _called(self, outcomes: QueryOutcomes, **more: object) -> NDArray[np.float64]:
        more |= {"outcomes": outcomes, "corpus": self.corpus}
        try:
            returned = self.function(**{name: more[name] for name in self.takes})
        except Exception as error:
            raise RequestError(f"metric {self.name!r}: {what_failed(error, self.file)}") from error
        return checked_values(self.name, returned, outcomes.query_id, several=self.several)


def own_metric(
    *,
    name: str,
    function: Callable[..., object],
    title: str = "",
    aggregate: Callable[[NDArray[np.float64]], object] | None = None,
    lower_is_better: bool = False,
    file: str = "",
    bounds: tuple[float, float] | None = None,
) -> Metric:
    """Make a metric of a callable.

    Args:
        name: The name in tables and reports: ``FILE:NAME`` with its options, or another text with a colon.
        function: Gets its arguments by name: ``outcomes`` or ``block``, and ``corpus``.
        title: What it measures, in a few words; the first line of its docstring.
        aggregate: Values of some queries -> the value of all; None for a mean.
        lower_is_better: The lowest value is the best.
        file: The user's file, for messages.
        bounds: The lowest and the highest value of a query, if they are known: intervals of a mean stay between them.

    Raises:
        RequestError: The name has no colon, or the function takes something else.
    """
    if ":" not in name.strip(":"):
        raise RequestError(f"metric {name!r}: the name needs a group and a colon, e.g. {f'own:{name}'!r}")
    _check_arguments(name, function)

    def aggregated(values: NDArray[np.float64]) -> float:
        try:
            found = float(aggregate(values))  # type: ignore[misc, arg-type]  # anything but a number fails here
        except Exception as error:
            raise RequestError(f"metric {name!r}, aggregate: {what_failed(error, file)}") from error
        return found if np.isfinite(found) else float("nan")

    values = OwnValues(name=name, function=function, several=aggregate is not None, file=file)
    return Metric(
        name=name,
        title=title,
        directions=RETRIEVAL if "block" in values.takes else _ALL_DIRECTIONS,
        values=values,
        reduce="mean" if aggregate is None else aggregated,
        higher_is_better=not lower_is_better,
        version=source_digest(function, file),
        guess=None,
        of_user=True,
        bounds=bounds,
    )


def bound(metric: Metric, corpus: Corpus | None = None, blocks: Blocks | None = None) -> Metric:
    """Return a user's metric with what its function may read; the function is called once for the same outcomes."""
    if not isinstance(metric.values, OwnValues):
        raise TypeError(f"metric {metric.name!r} is not of a user's function")
    own = replace(metric.values, corpus=corpus, blocks=blocks)
    known: WeakKeyDictionary[Outcomes, dict[Ties, NDArray[np.float64]]] = WeakKeyDictionary()

    def values(outcomes: Outcomes, ties: Ties) -> NDArray[np.float64]:
        found = known.setdefault(outcomes, {})
        ties = "expected" if "block" in own.takes else ties
        if ties not in found:
            found[ties] = own(outcomes, ties)
        return found[ties]

    return replace(metric, values=values)


def load_metric(requested: AnyMetric, *, folder: str | Path = ".") -> Metric:
    """The user's metric by ``FILE.py:NAME`` or ``MODULE:NAME``, with options in parentheses; or of a Python object.

    A class is made with the options, and its instance called; other callables get the options with every call.

    Args:
        requested: As given on the command line, or the object: a metric, a function, a partial function, an instance.

    Raises:
        RequestError: No such file, module or object, one with other arguments, or an object without a name.
    """
    if isinstance(requested, Metric):
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
    return own_metric(
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


def with_judgements(file: str | Path) -> Metric:
    """The share of queries whose first item is relevant, or is right by a line of the file; called ``FILE:R@1``.

    A judgement holds in both directions: a caption that is right for an image makes the image right for the caption.
    Corpora without a line in the file are left out.

    Raises:
        RequestError: The file cannot be read, or when computed: an id is not in the corpus.
    """
    path = Path(file)
    judgements = read_judgements(path)

    def found_first(outcomes: QueryOutcomes, corpus: Corpus) -> NDArray[np.float64]:
        pairs = {
            (each.query_id, each.item_id) if each.direction == "t2i" else (each.item_id, each.query_id)
            for each in judgements
            if each.corpus == corpus.name
        }
        if not pairs or outcomes.protocol.direction not in ("t2i", "i2t") or outcomes.top_ords is None:
            return np.full(len(outcomes), np.nan)
        captions, images = set(texts(corpus.captions["id"])), set(texts(corpus.images["id"]))
        for known, ids in ((captions, {caption for caption, _ in pairs}), (images, {image for _, image in pairs})):
            if strange := sorted(ids - known):
                hint = did_you_mean(strange[0], known)
                raise RequestError(f"{path}: {strange[0]!r} is not in corpus {corpus.name!r}. {hint}".rstrip())
        first = outcomes.items[outcomes.top_ords[:, 0]].to_pylist()
        queries = outcomes.query_id.to_pylist()
        sides = (queries, first) if outcomes.protocol.direction == "t2i" else (first, queries)
        judged = np.array([pair in pairs for pair in zip(*sides, strict=True)], dtype=bool)
        return np.asarray(is_found(outcomes.rank_worst) | judged, dtype=np.float64)

    title = f"R@1 with the judgements of {path.name}"
    return own_metric(name=f"{path.stem}:R@1", function=found_first, title=title, file=str(path))
