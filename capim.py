"""capim from Python: what the command line does, on one workspace, with pandas frames for rows.

    import capim

    capim.run(corpora="shapes", encoders="tiny-clip,tiny-clip-plain")  # as `capim run`
    capim.results(protocols="t2i/all", metrics="R@1")                  # a pandas frame
    capim.compare("tiny-clip", "tiny-clip-plain")                      # differences with intervals and tests

Functions of this module work on the default workspace (``$CAPIM_WORKSPACE``, else ``./workspace``); :func:`open` gives
another one. Keywords have the names, the defaults and the checks of the command line's options; names may be a list, or
one text with commas. Progress and messages go to standard error. No server is started, and nothing is written outside
the workspace; where ``PREFECT_API_URL`` is set, steps are Prefect runs. A wrong request raises ``RequestError``, work
that fails ``WorkError``; ``CapimError`` is both.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack


def _refuse_shadows() -> None:
    """Stop where Python would import a file of the user's in the place of a package of capim."""
    for name in ("flows", "tasks", "store", "reports"):
        package = Path(__file__).parent / name
        spec = find_spec(name)
        found = Path((spec and (spec.origin or next(iter(spec.submodule_search_locations or ()), ""))) or "nothing")
        if found.resolve().parent == package.resolve():
            continue
        message = (
            f"Python finds {found} as {name!r}, the name of a package of capim ({package}); rename it, or start Python "
            "in another folder and without it on the PYTHONPATH"
        )
        if Path(sys.argv[0]).stem == "capim":  # the console script: one line, no traceback
            sys.stderr.write(f"capim: {message}\n")
            sys.exit(2)
        raise ImportError(message, name=name, path=str(found))


_refuse_shadows()

import flows  # noqa: E402 - after the check

flows.set_environment()  # before any library reads it

from store.errors import RequestError, WorkError  # noqa: E402

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from flows.config import RunConfig
    from store import EmbeddingStore, Modality, Vectors
    from tasks.encoders import Encoder
    from tasks.metrics.custom import CustomMetric as Metric

__all__ = [
    "CapimError", "Encoder", "Metric", "RequestError", "WorkError", "Workspace", "compare", "embed", "evaluate", "open",
    "outcomes", "report", "results", "run", "search", "sql", "vectors",
]  # fmt: skip
__version__ = version("capim")
CapimError = (RequestError, WorkError)
Names = str | Sequence[Any]  # "a,b" or ["a", "b"]; an encoder or a corpus may be a dict, a table of a suite file


class Statistics(TypedDict, total=False):
    """Options of everything that computes figures."""

    replicates: int
    level: float
    interval: Literal["wilson", "percentile", "bca"]
    seed: int


class Tests(Statistics, total=False):
    """Options of comparisons."""

    adjustment: Literal["max-t", "holm", "benjamini-hochberg"]
    permutations: int
    margin: float
    analyses: Names


class Encoding(TypedDict, total=False):
    """Options of everything that encodes."""

    sample: int
    batch_size: int | Literal["auto"]
    device: str
    shards: int
    precision: Literal["float32", "bfloat16", "float16"]
    storage: Literal["float32", "float16"]
    compile: bool
    trust_remote_code: bool


class Embedding(Encoding, total=False):
    """Options of `embed`."""

    seed: int


class Evaluation(Statistics, total=False):
    """Options of `evaluate`."""

    device: str
    keep_replicates: bool


class Run(Encoding, Tests, total=False):
    """Options of `run`."""

    keep_replicates: bool


class ReportPath(str):
    """The path or URI of a report; a notebook shows what it recommends, and a link."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        from html import escape

        from reports.rows.snapshot import answer_lines

        lines = "<br>".join(escape(line) for line in answer_lines(self))
        return f'<p>{lines}</p><a href="{escape(self)}" target="_blank">{escape(self)}</a>'


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
        return f"Workspace({self.workspace!r})"

    @property
    def store(self) -> EmbeddingStore:
        """The store, for everything that has no method here: items, multi-vectors, maintenance."""
        from flows.commands.workspace import open_store

        return open_store(self.workspace)

    def run(
        self,
        suite: str | Path | None = None,
        *,
        corpora: Names | None = None,
        encoders: Names | None = None,
        protocols: Names | None = None,
        **options: Unpack[Run],
    ) -> ReportPath:
        """Encode, evaluate, compare and report; returns the path of the report. What is stored is not encoded again."""
        from flows.commands.output import print_answer
        from flows.steps import run_benchmark

        config = self._config("run", suite, corpora, encoders, protocols, **options)
        return ReportPath(run_benchmark(config, quiet=self.quiet, show=print_answer))

    def embed(
        self,
        suite: str | Path | None = None,
        *,
        corpora: Names | None = None,
        encoders: Names | None = None,
        only: Literal["images", "captions"] | None = None,
        **options: Unpack[Embedding],
    ) -> pd.DataFrame:
        """Encode what the store lacks; one row per encoder and corpus."""
        from flows.steps import run_embed
        from store.query.frames import frame_of

        config = self._config("embed", suite, corpora, encoders, None, **options)
        done = run_embed(config, quiet=self.quiet, only=only)
        counts = ("n_items", "n_encoded", "n_truncated")
        return frame_of(
            [
                {"encoder": each.sets.encoder, "corpus": each.sets.corpus, **{n: getattr(each, n) for n in counts}}
                for each in done
            ]
        )

    def evaluate(
        self,
        suite: str | Path | None = None,
        *,
        corpora: Names | None = None,
        encoders: Names | None = None,
        protocols: Names | None = None,
        metric: str | Metric | Callable[..., object] | None = None,
        **options: Unpack[Evaluation],
    ) -> pd.DataFrame:
        """Compute figures from stored embeddings, without a model; returns their rows as :meth:`results`.

        ``metric`` is one of your own instead: a function or a :class:`Metric` (``docs/own_metric.md``), or
        ``"FILE.py:NAME"``. Its figures, comparisons and slices are stored like those of any other metric, and its rows
        have the test of each against the best other encoder.
        """
        from flows.commands.output import RESULT_COLUMNS
        from flows.commands.workspace import in_order
        from flows.steps import run_evaluate, run_metric
        from reports.rows.pairs import AGAINST_BEST
        from store.query.frames import frame_of

        config = self._config("evaluate", suite, corpora, encoders, protocols, **options)
        if metric is not None:
            rows = run_metric(config, metric, quiet=self.quiet, results=True)
            return frame_of(rows, (*RESULT_COLUMNS, *AGAINST_BEST))
        done = run_evaluate(config, quiet=self.quiet)
        evaluations = [each for reference in done for each in reference.evaluations.values()]
        return frame_of(in_order(self.store.rows("results", evaluation=evaluations)), RESULT_COLUMNS)

    def compare(
        self,
        a: str | None = None,
        b: str | None = None,
        *,
        corpora: Names | None = None,
        encoders: Names | None = None,
        protocols: Names | None = None,
        metric: str | Metric | Callable[..., object] | None = None,
        **options: Unpack[Tests],
    ) -> pd.DataFrame:
        """Compare two encoders, or every pair of several, on the same queries, and store it; one row per figure.

        ``difference`` is ``encoder_a`` minus ``encoder_b``, with its interval; ``p_adjusted`` is adjusted over the
        pairs that are compared here; ``state`` is what the tests say of ``encoder_a``: better, worse, equivalent or
        undecided. Headline figures come first. ``metric`` is one of your own, as in :meth:`evaluate`.
        """
        from flows.steps import run_compare, run_metric
        from reports.rows.pairs import PAIR_COLUMNS, pair_rows, smaller_is_better
        from store.query.frames import frame_of

        pair = [name for name in (a, b) if name is not None]
        if pair and (encoders is not None or len(pair) == 1):
            raise RequestError(f"compare takes two encoders, or encoders=[…]; got {', '.join(pair)} and {encoders}")
        config = self._config("compare", None, corpora, pair or encoders, protocols, **options)
        if metric is not None:
            rows = run_metric(config, metric, quiet=self.quiet, results=False, first=a)
        else:
            done, store = run_compare(config, quiet=self.quiet), self.store
            stored = store.rows("comparisons", run=done.run).to_pylist()
            rows = pair_rows(stored, smaller_is_better(store), a)
        return frame_of(rows, PAIR_COLUMNS)

    def report(
        self,
        suite: str | Path | None = None,
        *,
        corpora: Names | None = None,
        encoders: Names | None = None,
        protocols: Names | None = None,
    ) -> ReportPath:
        """Write a report of the store, or of a part of it; returns its path."""
        from flows.execution import start
        from flows.publish import publish

        return ReportPath(start(publish, self._config("report", suite, corpora, encoders, protocols)))

    def results(
        self,
        *,
        encoders: Names | None = None,
        corpora: Names | None = None,
        protocols: Names | None = None,
        metrics: Names | None = None,
        against: Literal["published"] | None = None,
        wide: bool = False,
    ) -> pd.DataFrame:
        """Stored figures with their intervals; names may be shell patterns. ``wide``: every column."""
        from flows.commands.output import RESULT_COLUMNS
        from flows.commands.workspace import found_results
        from store.query.frames import frame_of

        rows, why = found_results(
            self.store,
            encoder=_listed(encoders),
            corpus=_listed(corpora),
            protocol=_listed(protocols),
            metric=_listed(metrics),
            against=against,
        )
        if not rows:
            _say(why())
        return frame_of(rows, None if against or wide else RESULT_COLUMNS)

    def outcomes(
        self, *, encoders: Names | None = None, corpora: Names | None = None, protocols: Names | None = None
    ) -> pd.DataFrame:
        """Ranks, ties and best items of every query; one row per encoder, corpus, protocol and query."""
        from flows.commands.workspace import wanted_rows
        from store.query.frames import frame_of

        names = {"encoder": _listed(encoders), "corpus": _listed(corpora), "protocol": _listed(protocols)}
        store = self.store
        return frame_of(store.rows("outcomes", **wanted_rows(store, "outcomes", **names)))

    def vectors(
        self,
        *,
        encoder: str,
        corpus: str,
        modality: Modality,
        language: str | None = None,
        translator: str | None = None,
    ) -> Vectors:
        """Stored embeddings: ``.matrix`` (n, dim) float32 of unit norm, ``.ids`` in the same order.

        Several vectors per item are read with ``.store.multivectors(…)``.
        """
        from flows.commands.workspace import corpus_in

        store = self.store
        fingerprint = str(corpus_in(store, corpus)["fingerprint"])
        return store.vectors(
            encoder=encoder, corpus=fingerprint, modality=modality, language=language, translator=translator
        )

    def search(
        self,
        text: str | None = None,
        *,
        image: str | Path | None = None,
        vector: NDArray[np.floating] | str | Path | None = None,
        encoder: str,
        corpus: str,
        modality: Modality | None = None,
        k: int = 10,
        index: bool = False,
        device: str = "auto",
    ) -> pd.DataFrame:
        """The items nearest to a text, an image, both or a vector, best first; ``score``: cosine or MaxSim.

        A text and an image together are the normalised sum of their unit vectors. ``modality`` is what is searched:
        captions for an image alone, else images.
        """
        from flows.commands.searching import FOUND_COLUMNS, find
        from store.query.frames import frame_of

        found = find(
            self.store,
            text=text,
            image=image,
            vector=vector,
            encoder=encoder,
            corpus=corpus,
            modality=modality,
            k=k,
            use_index=index,
            device=device,
        )
        return frame_of(found.rows, FOUND_COLUMNS)

    def sql(self, statement: str) -> pd.DataFrame:
        """The answer to a SELECT (DuckDB) over all tables of the store; cannot write (``capim query --help``)."""
        from flows.commands.workspace import unknown_texts
        from store.query.frames import frame_of

        store = self.store
        rows = store.sql(statement)
        if not rows.num_rows:
            _say(unknown_texts(store, statement))
        return frame_of(rows)

    def _config(
        self,
        step: str,
        suite: str | Path | None,
        corpora: Names | None,
        encoders: Names | None,
        protocols: Names | None,
        **options: Any,
    ) -> RunConfig:
        from flows.steps import step_config

        given = {"corpora": corpora, "encoders": encoders, "protocols": protocols, **options}
        names = {n: _listed(given[n]) for n in ("corpora", "encoders", "protocols", "analyses") if given.get(n)}
        rest = {name: value for name, value in given.items() if value is not None and name not in names}
        return step_config(step, {"workspace": self.workspace, **rest, **names}, suite)


def open(workspace: str | Path | None = None, *, quiet: bool = False) -> Workspace:  # noqa: A001 - as in gzip.open
    """A workspace: a folder or URI; None: ``$CAPIM_WORKSPACE``, else ``./workspace``. ``quiet``: no progress."""
    return Workspace(workspace, quiet=quiet)


def _listed(names: Names | None) -> tuple[Any, ...] | None:
    """Names as the command line takes them: a text is split at its commas; paths become texts."""
    from flows.commands.parser import names as split

    if names is None:
        return None
    if isinstance(names, str | Path | dict):
        return split(names) if isinstance(names, str) else _listed([names])
    return tuple(str(name) if isinstance(name, Path) else name for name in names)


def main() -> int:
    """The console script `capim`."""
    from flows.cli import main as run

    return run()


def _say(message: str) -> None:
    from flows.commands.output import plain

    sys.stderr.write("".join(f"{plain(line)}\n" for line in message.splitlines()))


def __getattr__(name: str) -> Any:
    if name == "Metric":
        from tasks.metrics.custom import CustomMetric

        return CustomMetric
    if name == "Encoder":
        from tasks.encoders import Encoder

        return Encoder
    raise AttributeError(f"module 'capim' has no attribute {name!r}")


_default = Workspace()
run = _default.run
embed = _default.embed
evaluate = _default.evaluate
compare = _default.compare
report = _default.report
results = _default.results
outcomes = _default.outcomes
vectors = _default.vectors
search = _default.search
sql = _default.sql
