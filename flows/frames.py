"""The steps of a run and the rows of a store as pandas frames: what the methods of ``capim.Workspace`` return."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pandas as pd
import pyarrow as pa

from capim.flows.benchmark import publish
from capim.flows.commands.searching import FOUND_COLUMNS, find
from capim.flows.commands.workspace import corpus_in, found_results, in_order, unknown_texts, wanted_rows
from capim.flows.config import RunConfig
from capim.flows.execution import start
from capim.flows.steps import listed, run_benchmark, run_compare, run_embed, run_evaluate, run_metric
from capim.flows.terminal.output import RESULT_COLUMNS, cell, print_answer
from capim.flows.terminal.parser import PLURALS
from capim.reports.rows.snapshot import answer_lines
from capim.reports.rows.standing import AGAINST_BEST, PAIR_COLUMNS, pair_rows
from capim.store import EmbeddingStore, Vectors
from capim.store.errors import plain
from capim.tasks.compare import compared_rows
from capim.tasks.metrics.custom import CustomMetric

if TYPE_CHECKING:
    from capim.reports.app.application import Shown

AnyMetric: TypeAlias = str | CustomMetric | Callable[..., object]
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

    def chart(self, *, title: str = "") -> Any:
        """An Altair chart of the values or differences with their intervals; ``.save("figure.svg")`` writes it."""
        from capim.reports.elements.charts import interval_chart

        return interval_chart(self.to_dict("records"), title=title)


def frame_of(rows: pa.Table | Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> Frame:
    """Rows as a frame with the index 0, 1, …; of ``columns``, in their order, or with all.

    Without rows, the frame has the columns of the table, or ``columns``.
    """
    table = rows.to_pandas() if isinstance(rows, pa.Table) else pd.DataFrame([dict(row) for row in rows])
    chosen = [name for name in columns or () if name in table.columns or not len(table)]
    return Frame(table.reindex(columns=chosen) if chosen else table)


class ReportPath(str):
    """The path or URI of a report; a notebook shows what it recommends, and a link."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        lines = "<br>".join(escape(line) for line in answer_lines(self))
        return f'<p>{lines}</p><a href="{escape(self)}" target="_blank">{escape(self)}</a>'


def run(config: RunConfig, *, quiet: bool) -> ReportPath:
    """Run the whole pipeline; returns the path of the report."""
    return ReportPath(run_benchmark(config, quiet=quiet, show=print_answer).report)


def report(config: RunConfig) -> ReportPath:
    """Write a report; returns its path."""
    return ReportPath(start(publish, config))


def embedded(config: RunConfig, only: Literal["images", "captions"] | None, *, quiet: bool) -> Frame:
    """One row per encoder and corpus that was encoded."""
    columns = ("n_items", "n_encoded", "n_truncated")
    rows = [
        {"encoder": each.sets.encoder, "corpus": each.sets.corpus} | {name: getattr(each, name) for name in columns}
        for each in run_embed(config, quiet=quiet, only=only)
    ]
    return frame_of(rows, ("encoder", "corpus", *columns))


def evaluated(config: RunConfig, metric: AnyMetric | None, *, quiet: bool) -> Frame:
    """The results of an evaluation; those of a user's metric have the test of each against the best other encoder."""
    if metric is not None:
        rows = run_metric(config, metric, quiet=quiet, results=True)
        return frame_of(rows, (*RESULT_COLUMNS, *AGAINST_BEST))
    evaluations = [each for done in run_evaluate(config, quiet=quiet) for each in done.evaluations.values()]
    store = EmbeddingStore.open(config.store_uri)
    return frame_of(in_order(store.rows("results", evaluation=evaluations)), RESULT_COLUMNS)


def compared(config: RunConfig, first: str | None, metric: AnyMetric | None, *, quiet: bool) -> Frame:
    """The comparisons of a run, with ``first`` as the first encoder of its pairs."""
    if metric is not None:
        return frame_of(run_metric(config, metric, quiet=quiet, results=False, first=first), PAIR_COLUMNS)
    done, store = run_compare(config, quiet=quiet), EmbeddingStore.open(config.store_uri)
    rows = compared_rows(store, done.comparisons)
    return frame_of(pair_rows(rows, first), PAIR_COLUMNS)


def results(store: EmbeddingStore, names: Mapping[str, Any], against: str | None, *, wide: bool) -> Frame:
    """Stored results of these names, or why there are none on standard error."""
    rows, why = found_results(store, against=against, **_filters(names))
    if not rows:
        _explain(why())
    return frame_of(rows, None if against or wide else RESULT_COLUMNS)


def outcomes(store: EmbeddingStore, names: Mapping[str, Any]) -> Frame:
    """Stored outcomes of these names."""
    return frame_of(store.rows("outcomes", **wanted_rows(store, "outcomes", **_filters(names))))


def vectors(store: EmbeddingStore, corpus: str, **which: Any) -> Vectors:
    """The embeddings of a corpus, which may be named as on the command line."""
    return store.vectors(corpus=str(corpus_in(store, corpus)["fingerprint"]), **which)


def found(store: EmbeddingStore, **query: Any) -> Frame:
    """The nearest items of a query, as :func:`flows.commands.searching.find`."""
    return frame_of(find(store, **query).rows, FOUND_COLUMNS)


def selected(store: EmbeddingStore, statement: str) -> Frame:
    """The answer to a SELECT, or why it may have no rows on standard error."""
    rows = store.sql(statement)
    if not rows.num_rows:
        _explain(unknown_texts(store, statement))
    return frame_of(rows)


def shown(store: EmbeddingStore, page: str, /, **parameters: object) -> Shown:
    """One view of `capim serve`, as :func:`reports.app.application.show`."""
    from capim.flows.commands.services import StoreServices
    from capim.reports.app.application import show

    return show(store, StoreServices(store), page, **parameters)


def _filters(names: Mapping[str, Any]) -> dict[str, tuple[str, ...] | None]:
    """Names by the columns that they are in."""
    return {one: listed(names.get(several)) for one, several in PLURALS.items() if several in names}


def _explain(message: str) -> None:
    sys.stderr.write("".join(f"{plain(line)}\n" for line in message.splitlines()))
