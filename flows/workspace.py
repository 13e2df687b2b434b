"""capim from Python: the methods of a workspace are the steps and the questions of the command line.

Rows are pandas frames, which keep their digits and are shown as the command line shows rows.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stderr
from dataclasses import fields
from functools import wraps
from html import escape
from inspect import Parameter, cleandoc, signature
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from capim.flows import inspection, steps, stored
from capim.flows.config import (
    FIELDS,
    OTHER_NUMBER,
    PLURALS,
    AnalyseOptions,
    CompareOptions,
    EmbedOptions,
    EvaluateOptions,
    ReportOptions,
    RunOptions,
    Texts,
    default_workspace,
    described,
    listed,
    run_config,
    step_config,
)
from capim.flows.terminal import TABLE, Row, Rows, cell, say
from capim.store import EmbeddingStore, Modality, Vectors
from capim.store.errors import RequestError, WorkError
from capim.store.schema import texts
from capim.store.vectors import Ragged

if TYPE_CHECKING:  # reading needs no torch and no Prefect: what runs flows and makes pages is imported where it is used
    from capim.flows.benchmark import Benchmarked
    from capim.tasks.references import EmbedRef

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")
_SHOWN = ("display.float_format", cell, "display.expand_frame_repr", False, "display.max_columns", 30)


class Frame(pd.DataFrame):
    """A pandas frame that is shown as the command line shows rows, one line each; its values are not rounded."""

    @property
    def _constructor(self) -> Callable[..., Frame]:
        return Frame

    def __repr__(self) -> str:
        with pd.option_context(*_SHOWN):
            return super().__repr__()

    def _repr_html_(self) -> str | None:
        with pd.option_context(*_SHOWN):
            return super()._repr_html_()  # type: ignore[misc,no-any-return]


def frame_of(rows: pa.Table | Sequence[Row], columns: Sequence[str] | None = None) -> Frame:
    """Return rows as a frame with the index 0, 1, …; with ``columns``, in their order, or with all.

    A column without any value has NaN, for numbers that are not known. Without rows, the frame has the
    columns of the table, or ``columns``.
    """
    table = rows.to_pandas() if isinstance(rows, pa.Table) else pd.DataFrame([dict(row) for row in rows])
    if not isinstance(rows, pa.Table) and len(table):
        table = table.astype(dict.fromkeys(table.columns[table.isna().all()], float))
    chosen = [name for name in columns or () if name in table.columns or not len(table)]
    return Frame(table.reindex(columns=chosen) if chosen else table)


class ReportPath(str):
    """The path or URI of a report; a notebook shows its first screen, and a link."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        from capim.reports.rows.snapshot import first_screen

        style, shown = "width:100%;height:640px;border:1px solid #8884", escape(first_screen(self, html=True))
        frame = f'<iframe sandbox srcdoc="{shown}" style="{style}" title="capim"></iframe>' if shown else ""
        return f'{frame}<p><a href="{escape(self)}" target="_blank">{escape(self)}</a></p>'


def _framed(rows: Rows) -> Frame:
    """Return rows as a frame, with their main columns; if there are none, print the reason."""
    read = rows.read()
    if not len(read) and rows.none:
        say(*rows.none().splitlines())
    return frame_of(read, rows.columns)


_OPTION = re.compile(r"(?<![\w/-])--([a-z]+(?:-[a-z]+)*)(?: (?=[A-Z]{2,}|\d)|(?![\w-]))(\S*)")


def in_python(message: str) -> str:
    """Return the message of an error with arguments for options; commands stay as they are typed.

    Examples:
        >>> in_python("--encoder: give names; or --vector FILE.npy, or --batch-size 8 (`capim run --corpora x`)")
        'encoder: give names; or vector=FILE.npy, or batch_size=8 (`capim run --corpora x`)'
        >>> in_python("try --precision float32, or run: capim check x --corpora y")
        'try precision float32, or run: capim check x --corpora y'
    """

    def argument(option: re.Match[str]) -> str:
        name, given = option[1].replace("-", "_"), option[0].startswith(f"--{option[1]} ")
        return f"{name}={option[2]}" if given else f"{name}{option[2]}"

    parts = re.split(r"(`[^`]*`|\b(?:capim|hf) .*)", message)
    parts[::2] = [_OPTION.sub(argument, text) for text in parts[::2]]
    return "".join(parts)


def _checked(method: Callable[P, R]) -> Callable[P, R]:
    """Return the method with errors that speak of arguments, also where they are not those of its signature."""
    name, taken = method.__name__, signature(method)

    @wraps(method)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        renamed = renamed_keywords(kwargs, taken.parameters)
        kwargs.clear()
        kwargs.update(renamed)
        try:
            taken.bind(*args, **kwargs)
        except TypeError as error:
            names = ", ".join(f"{each}=…" for each in taken.parameters if each not in ("self", "store"))
            raise RequestError(f"{name}: {error}; give arguments by name: {name}({names})") from None
        try:
            return method(*args, **kwargs)
        except (RequestError, WorkError) as error:
            error.args = tuple(in_python(text) if isinstance(text, str) else text for text in error.args)
            raise

    return checked


def renamed_keywords(given: Mapping[str, Any], taken: Collection[str]) -> dict[str, Any]:
    """Return keywords under the names that are taken: ``encoder`` for ``encoders``, and the other way round.

    Raises:
        RequestError: A keyword is given under both names.

    Examples:
        >>> renamed_keywords(dict(corpora=["a"], encoder="b"), {"corpus", "encoders"})
        {'corpus': 'a', 'encoders': 'b'}
    """
    found: dict[str, Any] = {}
    for name, value in given.items():
        other = OTHER_NUMBER.get(name, name)
        if other != name and other in given:
            raise RequestError(f"{name} and {other} are one argument; give one of them")
        if name in taken or other not in taken:
            found[name] = value
        else:
            one = listed(value) or () if other in PLURALS else ()
            found[other] = one[0] if len(one) == 1 else value
    return found


def _step(
    options: Callable[P, object], function: Callable[..., T], give: Callable[[T], R]
) -> Callable[Concatenate[Workspace, P], R]:
    """Return a step as a method with the options of its class; ``give`` makes its return value in Python."""
    known: Any = {each.name: each for each in fields(options)}  # type: ignore[arg-type]
    taken = signature(options)

    def step(self: Workspace, /, *args: P.args, **kwargs: P.kwargs) -> R:
        given: dict[str, Any] = {**taken.bind(*args).arguments, **renamed_keywords(kwargs, known)}
        suite = given.pop("suite", None)
        config = step_config(function.__name__, known, {"workspace": self.workspace, **given}, suite)
        own = {name: value for name, value in given.items() if name not in FIELDS}
        quiet = {"quiet": self.quiet} if "quiet" in signature(function).parameters else {}
        return give(function(config, **own, **quiet))

    return _documented(_checked(step), function, options, give)


def _question(
    function: Callable[Concatenate[str | None, P], T], give: Callable[[T], R], *, explains: bool = False
) -> Callable[Concatenate[Workspace, P], R]:
    """Return a command that reads or drops as a method; its first parameter is the workspace.

    ``explains``: the command explains its rows on standard error, which a quiet workspace suppresses.
    """

    def question(self: Workspace, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with _messages(self) if explains else nullcontext():
            return give(function(self.workspace, *args, **kwargs))

    return _checked(_documented(question, function, function, give))


def _documented(
    method: Callable[P, R], function: Callable[..., object], options: Callable[..., object], give: Callable[..., object]
) -> Callable[P, R]:
    """Return the method with the name and docstring of a command, and the types that a caller gives and gets.

    A list of names may be one string with commas.
    """
    taken, hints = signature(options), get_type_hints(options)
    for name, hint in hints.items():
        if any(get_origin(each) is tuple for each in (hint, *get_args(hint))):
            hints[name] = str | Sequence[str] | None if type(None) in get_args(hint) else str | Sequence[str]
    itself = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    given = [each.replace(annotation=hints[name]) for name, each in taken.parameters.items() if name != "workspace"]
    returns = give if isinstance(give, type) else signature(give).return_annotation
    done = wraps(function)(method)
    done.__doc__ = _help(function, options)
    vars(done)["__signature__"] = taken.replace(parameters=[itself, *given], return_annotation=returns)
    return done


def _help(function: Callable[..., object], options: Callable[..., object]) -> str:
    """Return the docstring of a command in Python: its first line, its arguments, and its return value."""
    text = cleandoc(function.__doc__ or "")
    lines = [f"    {name}: {about}" for name, about in described(options).items()]
    _, found, returns = text.partition("Returns:\n")
    parts = [text.partition("\n")[0], "Args:\n" + "\n".join(lines), *[f"Returns:\n{returns}" for _ in [found] if found]]
    return "\n\n".join(parts)


def _messages(workspace: Workspace) -> AbstractContextManager[object]:
    """Suppress a command's messages, but not its rows, where the workspace is quiet; errors stay."""
    return redirect_stderr(io.StringIO()) if workspace.quiet else nullcontext()


def _ran(done: Rows | Benchmarked) -> Any:  # a path; with ``dry_run`` a frame
    return frame_of(done.read()) if isinstance(done, Rows) else ReportPath(done.report)


def _embedded(done: tuple[EmbedRef, ...]) -> Frame:
    """Return a row per encoder and corpus: number of items, of those encoded now, and of captions truncated."""
    counts = ("n_items", "n_encoded", "n_truncated")
    values = attrgetter("sets.encoder", "sets.corpus", *counts)
    return Frame([values(each) for each in done], columns=["encoder", "corpus", *counts])


def _saved(file: Path, vectors: Any, ids: Sequence[str] | None) -> str:
    """Write vectors and ids as an import reads them; return the path."""
    arrays: dict[str, Any] = {} if ids is None else {"ids": np.asarray([str(each) for each in ids])}
    if isinstance(vectors, list | tuple) and vectors and np.ndim(vectors[0]) == 2:
        counts = [len(each) for each in vectors]
        arrays |= {"embeddings": np.concatenate(vectors), "offsets": np.cumsum([0, *counts])}
    else:
        arrays["embeddings"] = np.asarray(vectors)
    np.savez(file, **arrays)
    return str(file)


class Workspace:
    """A folder or URI that holds ``store/`` and ``reports/``; made by the first step that encodes.

    Args:
        workspace: None: ``$CAPIM_WORKSPACE``, else ``./workspace``.
        quiet: Show no progress.
    """

    def __init__(self, workspace: str | Path | None = None, *, quiet: bool = False) -> None:
        self.workspace = None if workspace is None else str(workspace)
        self.quiet = quiet

    def __repr__(self) -> str:
        place = self.workspace or default_workspace()
        return f"Workspace({place if '://' in place else str(Path(place).absolute())!r})"

    @property
    def store(self) -> EmbeddingStore:
        """Return the store, for everything that has no method here: items, multi-vectors, maintenance."""
        return stored.open_store(self.workspace)

    run = _step(RunOptions, steps.run, _ran)
    embed = _step(EmbedOptions, steps.embed, _embedded)
    evaluate = _step(EvaluateOptions, steps.evaluate, _framed)
    report = _step(ReportOptions, steps.report, ReportPath)
    analyse = _step(AnalyseOptions, steps.analyse, _framed)
    compare = _step(CompareOptions, steps.compare, _framed)

    results = _question(stored.results, _framed)
    choose = _question(stored.choose, _framed, explains=True)
    why = _question(stored.why, _framed)
    sql = _question(stored.query, _framed)
    search = _question(stored.search, _framed)
    drop = _question(inspection.drop, lambda _: None)

    @_checked
    def import_(
        self,
        *paths: str | Path,
        images: Any = None,
        captions: Any = None,
        ids: Sequence[str] | None = None,
        caption_ids: Sequence[str] | None = None,
        **options: Any,
    ) -> None:
        """Import what another program computed: files, or arrays of this one; ``capim import --help`` has the options.

            capim.import_(encoder="centred", corpus="shop", images=matrix, ids=image_ids)

        Args:
            paths: Files or folders; their contents are recognised.
            images: A file, an array ``(n, dim)``, or of several vectors a list of arrays ``(n_vectors, dim)``.
            captions: The same of captions.
            ids: Ids of the images of an array, or of its captions where no images are given; None: in corpus order.
            caption_ids: Ids of the captions of an array.
            options: As on the command line: ``encoder``, ``corpus``, ``revision``, ``replace``, ``licence`` …
        """
        known = {*signature(steps.import_).parameters} - {"config", "paths", "given"}
        words = {name: str(value) if isinstance(value, Path) else value for name, value in options.items()}
        given = renamed_keywords({name: value for name, value in words.items() if value is not None}, known)
        config = step_config("import", {*known, "storage", "replicates"}, {"workspace": self.workspace, **given})
        with TemporaryDirectory() as folder, _messages(self):
            of_captions = caption_ids if caption_ids is not None or images is not None else ids
            for name, vectors, names in (("images", images, ids), ("captions", captions, of_captions)):
                if vectors is not None:
                    is_file = isinstance(vectors, str | Path)
                    given[name] = str(vectors) if is_file else _saved(Path(folder) / f"{name}.npz", vectors, names)
            several = ("run", "protocol", "columns")
            lists: dict[str, Any] = {name: listed(given[name]) for name in several if name in given}
            own: dict[str, Any] = {**given, **lists}
            steps.import_(config, tuple(map(str, paths)), given=own, **{n: v for n, v in own.items() if n in known})

    @_checked
    def check(self, name: str, suite: str | Path | None = None, **options: Any) -> bool:
        """Print the errors of a model or a corpus, as ``capim check`` does; True if there are none."""
        fields = {key: value for key, value in options.items() if key in FIELDS and key != "device"}
        own = {key: value for key, value in options.items() if key not in fields}
        config = run_config({"workspace": self.workspace, **fields}, suite)
        given = None if suite is None else str(suite)
        return inspection.check(str(name), given, config=config, form=TABLE, quiet=self.quiet, **own) == 0

    @_checked
    def outcomes(
        self, *, encoders: Texts | None = None, corpora: Texts | None = None, protocols: Texts | None = None
    ) -> Frame:
        """Return ranks, ties and best items of every query; one row per encoder, corpus, protocol and query.

        ``top_ords`` are the best items, best first, as positions among all images or all captions of the corpus, also
        where a protocol searches a part of them, such as the captions of one language. Their ids:
        ``sql("SELECT id FROM items WHERE corpus = 'shapes' AND modality = 'image' ORDER BY ord").id``.

        A name means its current state; earlier states of an encoder or a corpus are named by fingerprint.
        """
        store = self.store
        wanted = stored.wanted_rows(store, "outcomes", encoder=encoders, corpus=corpora, protocol=protocols)
        return frame_of(store.current_outcomes(**wanted))

    @_checked
    def vectors(self, *, encoder: str, corpus: str, modality: Modality) -> Vectors:
        """Return stored embeddings: ``.matrix`` (n, dim) float32 of unit norm, ``.ids`` n texts in their order.

        Several vectors per item are read with :func:`multivectors`.
        """
        fingerprint = stored.corpus_in(self.store, corpus).fingerprint
        return self.store.vectors(encoder=encoder, corpus=fingerprint, modality=modality)

    @_checked
    def multivectors(
        self, *, encoder: str, corpus: str, modality: Modality
    ) -> tuple[list[str], NDArray[np.floating], NDArray[np.int64]]:
        """Return stored embeddings with several vectors per item, in their stored type; all are in memory.

        Args:
            encoder: Name or fingerprint.
            corpus: Name, fingerprint or path.
            modality: ``image`` or ``caption``.

        Returns:
            The ids of the n items in the order of the corpus; all their vectors of unit norm, one item after the other,
            shape (n_vectors, dim); and n + 1 offsets: item ``i`` has ``vectors[offsets[i] : offsets[i + 1]]``.
        """
        store = self.store
        key = store.key(encoder=encoder, corpus=stored.corpus_in(store, corpus).fingerprint, modality=modality)
        blocks = store.multivectors(encoder=encoder, corpus=key.corpus_fingerprint, modality=modality)
        every = Ragged.concatenate(blocks)
        ids = texts(store.item_index(key).ids)
        return ids, every.values, every.offsets

    @_checked
    def relevance(self, *, corpus: str, protocol: str | None = None) -> dict[str, list[int]]:
        """Return the relevant items of each query of a stored corpus.

        Args:
            corpus: Name, fingerprint or path.
            protocol: A protocol with queries and galleries (``i2t/any``, ``i2t/class`` …). None: ``t2i/all``, or
                ``t2i/judged`` where the documents of the corpus are judged.

        Returns:
            The id of each query, and the positions of its right items among the ids that :func:`vectors` gives of all
            images, or of all captions where images are queries.
        """
        from capim.tasks.protocols import JUDGED_QUERIES, T2I_ALL
        from capim.tasks.ranking.protocols import build_tasks, protocols_of, select_protocols
        from capim.tasks.ranking.tasks import RetrievalTask

        row = stored.corpus_in(self.store, corpus)
        found = self.store.corpus(row.name, row.fingerprint)
        judged = any(each.id == JUDGED_QUERIES for each in protocols_of(found))
        usual = JUDGED_QUERIES if judged else T2I_ALL
        [task] = build_tasks(found, select_protocols(found, [protocol or usual]))
        if not isinstance(task, RetrievalTask):
            raise RequestError(f"--protocol {protocol}: its queries choose between two items; name one with a gallery")
        right = np.split(task.relevant_ords, task.offsets[1:-1])
        return {query: items.tolist() for query, items in zip(task.query_ids.tolist(), right, strict=True)}


def open(workspace: str | Path | None = None, *, quiet: bool = False) -> Workspace:  # noqa: A001 - as in gzip.open
    """Return a workspace, a folder or URI; None: ``$CAPIM_WORKSPACE``, else ``./workspace``. ``quiet``: no progress."""
    return Workspace(workspace, quiet=quiet)


DEFAULT = Workspace()
"""Its methods are the functions of the module `capim`."""
