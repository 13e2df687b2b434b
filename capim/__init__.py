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

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

import capim.flows

capim.flows.set_environment()  # before any library reads it

from capim.store.errors import RequestError, WorkError  # noqa: E402

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    import capim.flows.frames  # noqa: TC004 - when it is first used: pandas and Prefect take seconds
    from capim.flows.config import RunConfig
    from capim.flows.frames import ReportPath
    from capim.flows.steps import Comparison, Embedding, Evaluation, Run
    from capim.reports.app.application import Shown
    from capim.store import EmbeddingStore, Modality, Vectors
    from capim.tasks.encoders import Encoder
    from capim.tasks.metrics.custom import CustomMetric as Metric

__all__ = [
    "CapimError", "Encoder", "Metric", "RequestError", "WorkError", "Workspace", "compare", "embed", "evaluate", "open",
    "outcomes", "report", "results", "run", "search", "show", "sql", "vectors",
]  # fmt: skip
CapimError = (RequestError, WorkError)
Names = str | Sequence[Any]  # "a,b" or ["a", "b"]; an encoder or a corpus may be a dict, a table of a suite file


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
        from capim.flows.commands.workspace import open_store

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
        config = self._config("run", suite, corpora=corpora, encoders=encoders, protocols=protocols, **options)
        return capim.flows.frames.run(config, quiet=self.quiet)

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
        config = self._config("embed", suite, corpora=corpora, encoders=encoders, **options)
        return capim.flows.frames.embedded(config, only, quiet=self.quiet)

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
        config = self._config("evaluate", suite, corpora=corpora, encoders=encoders, protocols=protocols, **options)
        return capim.flows.frames.evaluated(config, metric, quiet=self.quiet)

    def compare(
        self,
        a: str | None = None,
        b: str | None = None,
        *,
        corpora: Names | None = None,
        encoders: Names | None = None,
        protocols: Names | None = None,
        metric: str | Metric | Callable[..., object] | None = None,
        **options: Unpack[Comparison],
    ) -> pd.DataFrame:
        """Compare two encoders, or every pair of several, on the same queries, and store it; one row per figure.

        ``difference`` is ``encoder_a`` minus ``encoder_b``, with its interval; ``p_adjusted`` is adjusted over the
        pairs that are compared here; ``state`` is what the tests say of ``encoder_a``: better, worse, equivalent or
        undecided. Headline figures come first. ``metric`` is one of your own, as in :meth:`evaluate`.
        """
        pair = [name for name in (a, b) if name is not None]
        if pair and (encoders is not None or len(pair) == 1):
            raise RequestError(f"compare takes two encoders, or encoders=[…]; got {', '.join(pair)} and {encoders}")
        chosen = pair or encoders
        config = self._config("compare", None, corpora=corpora, encoders=chosen, protocols=protocols, **options)
        return capim.flows.frames.compared(config, a, metric, quiet=self.quiet)

    def report(
        self,
        suite: str | Path | None = None,
        *,
        corpora: Names | None = None,
        encoders: Names | None = None,
        protocols: Names | None = None,
    ) -> ReportPath:
        """Write a report of the store, or of a part of it; returns its path."""
        config = self._config("report", suite, corpora=corpora, encoders=encoders, protocols=protocols)
        return capim.flows.frames.report(config)

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
        names = {"encoders": encoders, "corpora": corpora, "protocols": protocols, "metrics": metrics}
        return capim.flows.frames.results(self.store, names, against, wide=wide)

    def outcomes(
        self, *, encoders: Names | None = None, corpora: Names | None = None, protocols: Names | None = None
    ) -> pd.DataFrame:
        """Ranks, ties and best items of every query; one row per encoder, corpus, protocol and query."""
        return capim.flows.frames.outcomes(
            self.store, {"encoders": encoders, "corpora": corpora, "protocols": protocols}
        )

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
        part = {"language": language, "translator": translator}
        return capim.flows.frames.vectors(self.store, corpus, encoder=encoder, modality=modality, **part)

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
        query = {"text": text, "image": image, "vector": vector, "modality": modality, "k": k, "use_index": index}
        return capim.flows.frames.found(self.store, encoder=encoder, corpus=corpus, device=device, **query)

    def sql(self, statement: str) -> pd.DataFrame:
        """The answer to a SELECT (DuckDB) over all tables of the store; cannot write (``capim query --help``)."""
        return capim.flows.frames.selected(self.store, statement)

    def show(self, page: str = "/", /, **parameters: Names | int) -> Shown:
        """A page of `capim serve` inline, without a server: ``show("queries", wrong="a", right="b")``.

        An address that was copied from the browser shows the same view. ``.save(path)`` writes it as one HTML file.
        """
        return capim.flows.frames.shown(self.store, page, **parameters)

    def _config(self, step: str, suite: str | Path | None, **options: Any) -> RunConfig:
        from capim.flows.steps import step_config

        return step_config(step, {"workspace": self.workspace, **options}, suite)


def open(workspace: str | Path | None = None, *, quiet: bool = False) -> Workspace:  # noqa: A001 - as in gzip.open
    """A workspace: a folder or URI; None: ``$CAPIM_WORKSPACE``, else ``./workspace``. ``quiet``: no progress."""
    return Workspace(workspace, quiet=quiet)


def main() -> int:
    """The console script `capim`."""
    from capim.flows.cli import main as run

    return run()


def __getattr__(name: str) -> Any:
    if name == "Metric":
        from capim.tasks.metrics.custom import CustomMetric

        return CustomMetric
    if name == "Encoder":
        from capim.tasks.encoders import Encoder

        return Encoder
    if name == "__version__":
        from importlib.metadata import version

        return version("capim")
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
show = _default.show
sql = _default.sql
