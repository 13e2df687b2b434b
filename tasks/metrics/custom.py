"""Custom metrics: ``capim evaluate --own-metric FILE.py:NAME``, any callable in a file or a module.

Its arguments are matched by name, in any combination:

- ``outcomes``: ranks, ties and best lists of the queries by column, with their texts and languages and the ids of the
  gallery items (:class:`tasks.metrics.custom.QueryOutcomes`);
- ``block``: raw scores of some queries with their relevance (:class:`tasks.ranking.evaluate.ScoreBlock`), for
  retrieval by encoders with embeddings; ``outcomes`` are then those of the block's queries;
- ``corpus``: the corpus (:class:`store.types.Corpus`).

Other arguments are options: ``my_metrics.py:at_k(k=3)``. The callable returns one number per query, in query order, and
NaN where it does not apply:

    def margin(block):
        '''How far the best relevant item is ahead of the best other one.'''
        own = np.where(block.relevant, block.scores, -np.inf).max(axis=1)
        other = np.where(block.relevant, -np.inf, block.scores).max(axis=1)
        return own - other

The mean over queries, its interval, comparisons and slices are computed as for any other metric. With an attribute
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

# --- Finding a custom metric by ``FILE.py:NAME`` or ``MODULE:NAME``.


FORM = "module:function or path.py:function, options in parentheses, e.g. my_metrics.py:margin, my_metrics.py:at_k(k=3)"


class FoundMetric(NamedTuple):
    """The callable that a user named: an object of a module, with options."""

    name: str
    target: Any
    options: Mapping[str, object]
    file: str


def find(requested: str, folder: Path) -> FoundMetric:
    """Return the object that a user named.

    A file is executed under a private name, so that ``metrics.py`` or ``store.py`` is never mistaken for a module of
    capim or of a library. Modules next to it can be imported, unless they have the name of a package of capim. The
    metric is called ``FILE:NAME(option=value)``, with the name of the file without its folder, and the options in
    alphabetical order.

    Raises:
        RequestError: If there is no such file, module or object, if the module cannot be imported, or if options are
            not literals.
    """
    where, name, options = _parsed(requested)
    file = folder / (where if where.endswith(".py") else f"{where.replace('.', '/')}.py")
    beside = str(file.parent.resolve() if where.endswith(".py") else folder.resolve())
    if is_new := beside not in sys.path:
        sys.path.append(beside)  # at the end, so that a file next to the metric never replaces a library
    try:
        if where.endswith(".py") or ("." not in where and file.is_file()):
            if not file.is_file():
                raise RequestError(f"metric {requested!r}: there is no file {shown_path(str(file.resolve()))}")
            module = loaded_module(file.resolve(), f"metric {requested!r}")
            where = file.stem if where.endswith(".py") else where
        else:
            module = loaded_module(where, f"metric {requested!r}")
    finally:
        if is_new:
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
    """Return a Python object as if it had been named: ``MODULE:NAME``, with the options of a partial function.

    For a script, the module is the name of its file, as in ``FILE.py:NAME``; for a notebook, it is ``notebook``.

    Raises:
        RequestError: If it cannot be called, or is a lambda and so has no name.
    """
    options = dict(target.keywords) if isinstance(target, functools.partial) else {}
    inner = target.func if isinstance(target, functools.partial) else target
    name = getattr(inner, "__name__", type(inner).__name__)
    if not callable(target) or not name.isidentifier():
        raise RequestError(
            f"metric {target!r} must be {FORM}; or a function with a name: capim.Metric(name='own:NAME', function=…)"
        )
    where = str(getattr(inner, "__module__", None) or "notebook")
    if where in ("__main__", "builtins"):  # builtins: code that was executed without a name
        where = Path(getattr(sys.modules["__main__"], "__file__", None) or "notebook").stem
    called = inner if hasattr(inner, "__code__") else getattr(type(inner), "__call__", None)  # noqa: B004
    return FoundMetric(
        name=_with_options(f"{where}:{name}", options),
        target=inner,
        options=options,
        file=getattr(getattr(called, "__code__", None), "co_filename", ""),
    )


def source_digest(target: Any, file: str) -> str:
    """Return a digest of a metric's file (of Python, without comments), or of the object's own code if it has no file.

    Imported modules are not included. Code from a shell that keeps no source is distinguished by its instructions.
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
    with suppress(SyntaxError, ValueError):  # not Python: a file of judgements
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
                f"metric {requested!r}: option {keyword.arg} must be a literal (a number, a quoted string, True, a "
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


# --- The data that a custom metric receives: outcomes by column, texts and languages of the queries, gallery items.


_ATTRIBUTES = {column: name for name, column in stored_attributes()}
COLUMNS = tuple(_ATTRIBUTES)
# columns with one value per relevant item instead of one per query
_OF_RELEVANT = ("relevant_rank_best", "relevant_rank_worst", "relevant_grades", "relevant_scores")


class QueryOutcomes:
    """Outcomes of one encoder under one protocol: ``outcomes["rank_worst"]`` or ``outcomes.rank_worst``.

    ``top_ords`` are positions among all images or captions of the corpus (their ids are ``items``), not in the gallery.
    Columns are named as in the stored table (``store.schema.OUTCOMES``) and have one value per query, with three
    exceptions: ``top_ords``, ``top_scores`` and ``scores`` are matrices with a row per query, padded with -1 and NaN;
    ``relevant_rank_best`` and ``relevant_rank_worst`` hold the ranks of all relevant items, query after query,
    ``n_relevant`` each, and so do ``relevant_grades`` and ``relevant_scores`` for judged documents; columns that the
    protocol does not have are None.

    Examples:
        >>> from capim.tasks.ranking.outcomes import outcomes_of
        >>> outcomes = QueryOutcomes(outcomes_of([[1], [3]]))
        >>> (outcomes.rank_worst <= 2).tolist(), outcomes["rank_worst"].tolist()
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
        return getattr(self._outcomes, _ATTRIBUTES[name])

    def __getattr__(self, name: str) -> Any:
        if name not in COLUMNS:
            more = "query_texts, languages, items, corpus, protocol"
            raise AttributeError(f"outcomes have no {name!r}; they have {', '.join(COLUMNS)}, and {more}")
        return self[name]

    @property
    def corpus(self) -> Corpus:
        """The corpus of the queries.

        Raises:
            RequestError: If the metric is computed without a corpus.
        """
        if self._corpus is None:
            raise RequestError("these outcomes have no corpus; pass it when making the metric")
        return self._corpus

    @property
    def query_texts(self) -> NDArray[Any]:
        """The text of each query: its caption (of a pair the right one, of a quadruple the first); None for images."""
        return self._of_captions("text")

    @property
    def languages(self) -> NDArray[Any]:
        """The language of each query's caption (BCP-47); for an image, the language of the protocol, or None."""
        if self.protocol.is_retrieval and self.protocol.sides[0] == "image":
            return np.full(len(self), self.protocol.language or None, dtype=object)
        return self._of_captions("language")

    @cached_property
    def items(self) -> NDArray[Any]:
        """The ids of all gallery items, by position: ``items[top_ords[:, 0]]`` are those that were found first.

        Raises:
            RequestError: If the protocol has no gallery.
        """
        if not self.protocol.is_retrieval:
            raise RequestError(f"protocol {self.protocol.id!r} searches no items")
        table = self.corpus.items(self.protocol.sides[1])
        return np.array(table["id"].to_pylist(), dtype=object)

    def at(self, rows: NDArray[np.int64]) -> QueryOutcomes:
        """Return the outcomes of some queries, by their positions, in the given order."""
        outcomes = self._outcomes
        counts = outcomes.n_relevant[rows]
        ranks = positions_within(counts) + np.repeat(outcomes.offsets[:-1][rows], counts)
        chosen: dict[str, Any] = {
            field.name: values[ranks if field.name in _OF_RELEVANT else rows]
            for field in fields(outcomes)
            if isinstance(values := getattr(outcomes, field.name), np.ndarray)
        }
        return QueryOutcomes(replace(outcomes, **chosen), self._corpus)

    def _of_captions(self, column: str) -> NDArray[Any]:
        """Return a column of the captions that are the queries; values are None for images."""
        if self.protocol.is_retrieval and self.protocol.sides[0] == "image":
            return np.full(len(self), None, dtype=object)
        captions, positions = self.corpus.captions, self._outcomes.query_ords
        if not self.protocol.is_retrieval:
            pairs = self.protocol.direction == "pairs"
            ids = self.corpus.pairs["caption_id"] if pairs else self.corpus.quadruples["caption_0"]
            position_of = {name: at for at, name in enumerate(captions["id"].to_pylist())}
            positions = np.array([position_of[name] for name in ids.take(positions).to_pylist()], dtype=np.int32)
        return np.array(captions[column].take(positions).to_pylist(), dtype=object)


AnyMetric: TypeAlias = str | Metric | Callable[..., object]
"""Identifier of a custom metric: a string, or the object."""
ARGUMENTS = ("outcomes", "block", "corpus")
_ALL_DIRECTIONS: frozenset[Direction] = RETRIEVAL | {"pairs", "quadruples"}


Blocks: TypeAlias = Callable[[Outcomes], Iterable[Any]]
"""Function from an encoder's outcomes to its score blocks (:class:`tasks.ranking.evaluate.ScoreBlock`)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class OwnValues:
    """The values of a custom metric: ``Metric.values``.

    Attributes:
        name: Name of the metric, for messages.
        function: Receives its arguments by name: ``outcomes`` or ``block``, and ``corpus``.
        several: True if a query may have several numbers.
        file: The user's file, for messages.
        corpus, blocks: As given to :func:`bound`.
    """

    name: str
    function: Callable[..., object]
    several: bool = False
    file: str = ""
    corpus: Corpus | None = None
    blocks: Blocks | None = None

    @property
    def takes(self) -> frozenset[str]:
        """The arguments, out of ``ARGUMENTS``, that the function takes."""
        return frozenset(_parameters(self.function)) & {*ARGUMENTS}

    def __call__(self, outcomes: Outcomes, ties: Ties) -> NDArray[np.float64]:
        """Return one checked row per query; score blocks have no ties that could be lost or won.

        Raises:
            RequestError: If the user's code fails, or does not return numbers per query.
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
    """Make a metric from a callable.

    Args:
        name: Name in tables and reports: ``FILE:NAME`` with its options, or another string with a colon.
        function: Receives its arguments by name: ``outcomes`` or ``block``, and ``corpus``.
        title: A short description; by default the first line of its docstring.
        aggregate: Function from the values of some queries to the result; None for a mean.
        lower_is_better: True if the lowest value is the best.
        file: The user's file, for messages.
        bounds: Lowest and highest possible value of a query, if known: intervals of a mean stay between them.

    Raises:
        RequestError: If the name has no colon, or if the function takes other arguments.
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
    """Return a custom metric with the data that its function may read."""
    if not isinstance(metric.values, OwnValues):
        raise TypeError(f"metric {metric.name!r} is not a custom metric")
    return replace(metric, values=replace(metric.values, corpus=corpus, blocks=blocks))


def load_metric(requested: AnyMetric, *, folder: str | Path = ".") -> Metric:
    """Return a custom metric by ``FILE.py:NAME`` or ``MODULE:NAME`` with options in parentheses, or by a Python object.

    A class is instantiated with the options, and its instance called; other callables get the options with every call.

    Args:
        requested: The argument of the command line, or a metric, a function, a partial function, an instance.

    Raises:
        RequestError: If there is no such file, module or object, or if it has other arguments or no name.
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
    """Refuse a callable that takes anything but outcomes or blocks, or that lacks an option."""
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
    """Return the first line of a docstring; for a partial function, that of the wrapped function."""
    text = inspect.getdoc(target.func if isinstance(target, functools.partial) else target) or ""
    return text.partition("\n")[0].strip()


def _attribute(target: Any, name: str) -> Any:
    """Return an attribute of a callable; for a partial function, possibly that of the wrapped function."""
    inner = getattr(target, "func", None) if isinstance(target, functools.partial) else None
    return getattr(target, name, getattr(inner, name, None))


def with_judgements(file: str | Path) -> Metric:
    """Return the share of queries with a first item that is relevant, in the corpus or by the file; named ``FILE:R@1``.

    A judgement holds in both directions: a caption that is right for an image makes the image right for the caption.
    Corpora without a line in the file are left out.

    Raises:
        RequestError: If the file cannot be read, or, on computation, if an id is not in the corpus.
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
        first = outcomes.items[outcomes.top_ords[:, 0]].tolist()
        queries = outcomes.query_id.tolist()
        sides = (queries, first) if outcomes.protocol.direction == "t2i" else (first, queries)
        judged = np.array([pair in pairs for pair in zip(*sides, strict=True)], dtype=bool)
        return np.asarray(is_found(outcomes.rank_worst) | judged, dtype=np.float64)

    title = f"R@1 with the judgements of {path.name}"
    return own_metric(name=f"{path.stem}:R@1", function=found_first, title=title, file=str(path))
