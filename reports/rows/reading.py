"""Reads the rows of a report from a store: of several rows for the same result, the newest."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from capim.reports import format as show
from capim.reports.rows.gallery import Explain, SelectedQuery, gallery_tasks, match_maps, select_queries
from capim.reports.rows.report_data import Before, ReportData, facts_of_metrics, of_package, redacted, without_paths
from capim.reports.rows.snapshot import results_until
from capim.reports.rows.standing import with_chance, with_one_budget
from capim.store import EmbeddingStore
from capim.store.current import (
    States,
    behind,
    compared_encoders,
    current_families,
    current_ranking,
    current_results,
    current_rows,
    figure_of,
    newest_rows,
)
from capim.store.errors import RequestError, did_you_mean
from capim.store.row_types import rows_in
from capim.store.rows import matching
from capim.store.schema import Batch, Caption, Comparison, Import, Published, Ranking, Result, Run, Slice
from capim.store.types import Corpus
from capim.tasks.analyses.table import ANALYSES
from capim.tasks.reference.published import ANALYSIS as REFERENCE

R = TypeVar("R")
APART = timedelta(hours=1)  # between two runs that are not of the same night
Families: TypeAlias = Mapping[tuple[str, str, str], tuple[list[Comparison], list[Comparison]]]
"""Corpus, protocol and metric to all comparisons of a request, and to those that are shown."""
Describe: TypeAlias = Callable[[Sequence[str]], Mapping[str, NDArray[np.bool_]]]


def read_report_data(
    source: EmbeddingStore,
    *,
    run: str | None = None,
    corpora: Sequence[str] = (),
    encoders: Sequence[str] = (),
    protocols: Sequence[str] = (),
    describe: Describe | None = None,
    explain: Explain | None = None,
    gallery: bool = True,
    serve: str = "",
) -> ReportData:
    """Return all rows that a report of this store shows.

    Args:
        source: The store.
        run: Only the results that this run wrote; by default the newest of each, from all runs.
        corpora: Only the results on these corpora, by name or fingerprint; by default on all.
        encoders: Only the results of these encoders, by name or fingerprint; by default of all.
        protocols: Only the results under these protocols, ids or shell patterns; by default under all.
        describe: Gives the features of English captions (``tasks.analyses.content.caption_features``)
            for the filter of the gallery; reports import no analyses.
        explain: Gives the maps of late-interaction encoders (``tasks.analyses.vectors.explain_pairs``).
        gallery: Whether to select queries for the gallery, which reads outcomes and thumbnails.
        serve: Where `capim serve` shows this store while it runs; empty if that is not known.

    Returns:
        Per encoder and corpus only the rows of the newest fingerprint, so that a table never mixes two states of one
        corpus, and of every metric only those by the version of its newest row. ``left_out`` lists the others.

    Raises:
        RequestError: There are no results, or none of a named corpus, encoder or protocol.
    """

    def stored(row_type: type[R]) -> list[R]:
        return source.all(row_type) if run is None else source.rows_of_run(row_type, run)

    written = source.all(Result)  # once: another process may replace rows in between
    results = written if run is None else source.rows_of_run(Result, run)
    if not results:
        fault = f"run {run!r} has no results" if run else "there are no results yet"
        with_results = ", ".join(sorted({row.run for row in written})[-5:])
        newest_runs = f"the newest runs with results: {with_results}"
        step = newest_runs if with_results else "run `capim run` (or `capim demo`) first"
        raise RequestError(f"store {source.uri}: {fault}; {step}")

    asked = (*corpora, *encoders)
    results = States.asked(results, asked)
    gone = source.dropped_corpora(row.corpus_fingerprint for row in results)
    meant = source.states_of(row for row in results if row.corpus_fingerprint not in gone)
    newest = newest_rows(filter(meant.has, results), "results", uses=meant.uses)
    metrics = facts_of_metrics(source, newest)  # without those of earlier releases that are no more
    newest = [row for row in newest if row.metric in metrics]
    current = [row for row in current_results(results, meant) if row.metric in metrics]
    results, every = (_named(rows, corpus=corpora, encoder=encoders, protocol=protocols) for rows in (results, written))
    dropped = Counter(row.corpus for row in results if row.corpus_fingerprint in gone)
    results = [row for row in results if row.corpus_fingerprint not in gone]
    left_out = [f"{n} results on corpus {name}, which was dropped" for name, n in sorted(dropped.items())]
    left_out += _left_out(results, meant)
    keys, shown = {row.result for row in results}, {row.protocol for row in results}
    current_keys = {row.result for row in current}
    newest, kept = ([row for row in rows if row.result in keys] for rows in (newest, current))
    left_out += _outdated(row for row in newest if row.result not in current_keys)
    if not kept:
        raise RequestError(
            f"store {source.uri}: no current results have these names, only {'; '.join(left_out)}; run `capim run` "
            "with them, or name these fingerprints"
        )
    states = States.of(newest, meant.uses, (), source.registered())  # by the same uses, which are read once
    compared = stored(Comparison)
    families = current_families(compared, kept, states)
    comparisons = tuple(row for _, of_figure in families.values() for row in of_figure)
    found = (row for row in _of_known_analyses(stored(Slice)) if not protocols or row.protocol in shown)
    slices = tuple(current_rows("slices", found, current, states))
    batches = [
        each
        for each in source.all(Batch)
        if each.corpus in states.corpora and states.has_encoder(each.encoder, each.encoder_fingerprint)
    ]
    # of all protocols: the headline of some of them is another one
    rankings = () if protocols else tuple(current_ranking(stored(Ranking), states))
    every_run = source.all(Run)
    named = {row.run for rows in (kept, comparisons, rankings, slices, batches) for row in rows}
    named |= {row.run for row in every_run if row.run == run and row.state == "incomplete"}
    runs = sorted((row for row in every_run if row.run in named), key=lambda row: (row.started, row.run))
    figures = {*map(figure_of, kept)}
    published = source.all(Published, metric=sorted({r.metric for r in kept}))
    contents = {name: source.corpus(name, fingerprint) for name, fingerprint in sorted(states.corpora.items())}
    queries, totals = select_queries([*gallery_tasks(source, kept, slices, contents)] if gallery else [])
    in_order = sorted(source.sealed_sets(), key=lambda one: (one.key.corpus, one.key.encoder, one.key.modality))
    specs = {name: source.encoder(fingerprint) for name, fingerprint in sorted(states.encoders.items())}
    thumbnails = _thumbnails(source, queries, contents)
    left_out += _incomplete(runs, states.encoders)
    maps = {} if explain is None else match_maps(source, queries, specs, contents, thumbnails, explain)
    return ReportData(
        uri=without_paths(source.uri),
        results=tuple(with_chance(kept)),
        comparisons=tuple(with_one_budget(comparisons)),
        larger_families=_larger_families(families, kept),
        rankings=rankings,
        slices=slices,
        batches=tuple(map(redacted, sorted(batches, key=lambda row: (row.created, row.batch_id)))),
        runs=tuple(map(redacted, runs)),
        sets=tuple(one for one in in_order if states.has(one.key)),
        specs=specs,
        corpora=contents,
        queries=tuple(queries),
        totals=tuple(totals),
        features=_features(queries, contents, describe) if describe is not None else {},
        thumbnails=thumbnails | maps,
        left_out=tuple(map(without_paths, left_out)),
        states=tuple(_asked(states, asked) or behind(every, meant)),
        metrics={name: metrics[name] for name in dict.fromkeys(row.metric for row in kept)},
        imports=tuple(row for row in source.all(Import) if states.has(row)),
        published=tuple(r for r in published if (r.dataset, r.protocol, r.metric) in figures),
        live=not gallery,
        serve=serve,
        before=_before(source, kept, written, every_run, compared),
    )


def _of_known_analyses(slices: Iterable[Slice]) -> Iterator[Slice]:
    """Yield slices without those of analyses that only earlier releases had; a package may not be installed here."""
    known = {REFERENCE, *(table for analysis in ANALYSES.values() for table in analysis.tables)}
    return (row for row in slices if row.analysis in known or of_package([row]))


def _before(
    source: EmbeddingStore,
    shown: Sequence[Result],
    written: Sequence[Result],
    runs: Iterable[Run],
    comparisons: Sequence[Comparison],
) -> Before | None:
    """Return the state before the newest results' run and those less than ``APART`` before it; None without one.

    So the same rows have the same state before them, however often they are reported.
    """
    writers = {row.run for row in written}
    done = [(run.started, run.finished) for run in runs if run.run in writers and run.state == "completed"]
    newest = max(shown, key=lambda row: row.created).run
    began = min(row.created for row in (*written, *shown) if row.run == newest)
    for started, finished in sorted(done, reverse=True):
        if finished is not None and finished < began - APART:
            return Before(ended=finished, results=results_until(source, written, finished), comparisons=comparisons)
        began = min(began, started)
    return None


def _asked(states: States, asked: Collection[str]) -> list[str]:
    known = (*states.corpora.items(), *states.encoders.items())
    return [f"Shown is the state {state} of {name}, as asked for." for name, state in known if state in asked]


def _named(rows: list[Result], **wanted: Sequence[str]) -> list[Result]:
    """Return the rows of these names or shell patterns in some columns; all where none is named.

    Raises:
        RequestError: A name has no row.
    """
    for column, names in wanted.items():
        known = sorted({getattr(row, column) for row in rows})
        states = {getattr(row, f"{column}_fingerprint", None): [getattr(row, column)] for row in rows}
        meant = {name: states.get(name) or matching(name, known) for name in names}
        if faults := [
            f"{column} {name!r} has no results; {did_you_mean(name, known)}those with results: {', '.join(known)}"
            for name, found in meant.items()
            if not found
        ]:
            raise RequestError(faults)
        rows = [row for row in rows if getattr(row, column) in set().union(*meant.values())] if names else rows
    return rows


def _features(
    queries: Sequence[SelectedQuery], corpora: Mapping[str, Corpus], describe: Describe
) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return corpus and query id -> features of the caption, for English captions."""
    captions = {}
    for query in (query for query in queries if query.direction == "t2i"):
        [caption] = rows_in(Caption, corpora[query.corpus].captions.slice(query.query, 1))
        if caption.text is not None and caption.language.lower().startswith("en"):
            captions[query.corpus, query.query_id] = caption.text
    features = describe(list(captions.values())) if captions else {}
    return {key: tuple(name for name, has in sorted(features.items()) if has[i]) for i, key in enumerate(captions)}


def _thumbnails(
    source: EmbeddingStore, queries: Iterable[SelectedQuery], corpora: Mapping[str, Corpus]
) -> dict[str, bytes]:
    """Return thumbnails of every image that the gallery shows, by hash; images without one are left out."""
    shown = (corpora[query.corpus].images["sha"][image].as_py() for query in queries for image in query.images())
    shas = {sha for sha in shown if sha is not None}
    return dict(sorted(source.thumbnails(sorted(shas)).items())) if shas else {}


def _left_out(results: Iterable[Result], states: States) -> list[str]:
    """Return one sentence per older state of a corpus or an encoder that has results in the store."""
    sentences = set()
    for row in results:
        if states.corpora[row.corpus] != (fingerprint := row.corpus_fingerprint):
            sentences.add(f"results on an earlier version of corpus {row.corpus} (fingerprint {fingerprint})")
        elif states.encoders.get(row.encoder) != (fingerprint := row.encoder_fingerprint):
            sentences.add(f"results of an earlier version of {row.encoder} (fingerprint {fingerprint})")
    return sorted(sentences)


def _outdated(results: Iterable[Result]) -> list[str]:
    """Return one sentence per encoder and metric with results by an earlier version of the metric."""
    found = {(row.metric, row.encoder, row.corpus, row.metric_version) for row in results}
    return [
        f"{metric} of {encoder} on {corpus} by another version of the metric ({version}): run `capim evaluate "
        f"--corpora {corpus} --encoders {encoder}`"
        for metric, encoder, corpus, version in sorted(found)
    ]


def _incomplete(runs: Sequence[Run], encoders: Mapping[str, str]) -> list[str]:
    """Return sentences on failed encoders: of the newest run, and of runs with encoders that still have no results."""
    sentences = []
    for row in (row for row in runs if row.message and row.state == "incomplete"):
        entries = json.loads(row.config or "{}").get("encoders", [])
        wanted = {entry if isinstance(entry, str) else entry.get("name") for entry in entries}
        if row is runs[-1] or not wanted <= encoders.keys():
            sentences.append(f"{row.message} (run {row.run})")
    return sentences


def _larger_families(families: Families, results: Iterable[Result]) -> tuple[str, ...]:
    """Return a sentence for each corpus on which encoders were compared with others that have no result here."""
    known = {(row.corpus, row.protocol, row.metric, row.encoder) for row in results}
    sizes = {
        figure[0]: (len(compared_encoders(every)), len(compared_encoders(shown)))
        for figure, (every, shown) in families.items()
        if shown and any((*figure, encoder) not in known for encoder in compared_encoders(every))
    }
    return tuple(
        f"On {corpus}, p-values are adjusted over the pairs of all {show.count(of_all, 'encoder')} that were compared; "
        f"this report shows {of_shown} of them."
        for corpus, (of_all, of_shown) in sizes.items()
    )
