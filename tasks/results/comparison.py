"""Comparisons of every pair of encoders: under one protocol by every metric, and on parts of the queries.

The former are rows of table ``comparisons``. The parts are given by what a corpus declares of its items, and by
language; nothing is stored of them: a slice is a question, and the tests of all questions of one request share one
budget of errors.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capim.store import EmbeddingStore
from capim.store.errors import RequestError, unknown
from capim.store.schema import Comparison, SlicedComparison
from capim.store.types import MODALITIES, Corpus, digest16
from capim.tasks.metrics import METRICS, Metric, metrics_of
from capim.tasks.metrics.table import Figure, headline_of
from capim.tasks.protocols import Protocol, by_language
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import drawn_clusters, select_protocols
from capim.tasks.references import EvaluationRef, corpus_of
from capim.tasks.results.stored import read_all_outcomes
from capim.tasks.statistics import VERSION
from capim.tasks.statistics.clusters import Clusters, SamplingFrame, known_queries
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.pairs import Scale, compare_encoders

PAIR = ("fingerprint_a", "fingerprint_b")  # the columns of a comparison with the two encoders


def encoder_key(name: str, fingerprint: str) -> str:
    """Return the name of an encoder at one revision in a comparison; ids of comparisons are made from it."""
    return f"{name}@{fingerprint}"


@dataclass(frozen=True, kw_only=True, eq=False)
class ComparedFigure:
    """The values of several encoders from which one result is computed.

    Attributes:
        version: Of the metric.
        values: :func:`encoder_key` -> per-query values, shape ``(n_queries, ...)``.
    """

    figure: Figure
    version: str
    values: Mapping[str, NDArray[np.float64]]
    clusters: Clusters
    scale: Scale


def compared_figures(
    encoders: Mapping[str, Outcomes], metrics: Sequence[Metric], drawn: SamplingFrame
) -> list[ComparedFigure]:
    """Return the values of encoders by each metric; no results for fewer than two encoders.

    A query counts where a metric has a value of both encoders; an encoder without any value of a metric, or with
    imported outcomes that do not determine it, is not compared by it.

    Args:
        encoders: :func:`encoder_key` -> outcomes under one protocol.
        drawn: Clusters of the corpus, so that the draws are those of the results.

    Raises:
        RequestError: Encoders under different protocols, or with different queries.
    """
    if len(encoders) < 2:
        return []
    _check_same_queries(encoders)
    first = next(iter(encoders.values()))
    clusters = Clusters.of(first.clusters, drawn, first.weights)
    known = {key: metrics_of(outcomes, metrics) for key, outcomes in encoders.items()}
    figures = []
    for metric in metrics:
        having = {key: each for key, each in encoders.items() if metric in known[key]}
        values = {key: metric.per_query(outcomes) for key, outcomes in having.items()}
        figures.append(
            ComparedFigure(
                figure=Figure(first.protocol.id, metric.name),
                version=str(metric.version),
                values={key: of_encoder for key, of_encoder in values.items() if known_queries(of_encoder).any()},
                clusters=clusters,
                scale=Scale(
                    reduce=metric.reduce,
                    lower_is_better=not metric.higher_is_better,
                    share=_is_share(metric, having.values()),
                    span=None if metric.bounds is None else metric.bounds[1] - metric.bounds[0],
                ),
            )
        )
    return figures


def figure_rows(
    figures: Iterable[ComparedFigure],
    *,
    corpus: str,
    corpus_fingerprint: str,
    run: str,
    resampling: Resampling,
    headline: Collection[Figure] = (),
) -> list[Comparison]:
    """Return one comparison per result and pair of encoders.

    p-values are adjusted over all pairs of one result. Comparisons by a planned result, of ``headline``, are marked as
    such, all others as exploratory.
    """
    planned = {figure.metric for figure in headline}
    rows = []
    for each in figures:
        for pair in compare_encoders(each.values, each.clusters, resampling, each.scale):
            (a, fingerprint_a), (b, fingerprint_b) = (key.rpartition("@")[::2] for key in (pair.a, pair.b))
            low, high = pair.simultaneous or (None, None)
            shared = pair.shared if each.figure.metric in planned else None
            row = Comparison(
                comparison=digest16([corpus_fingerprint, *each.figure, pair.a, pair.b]),
                corpus=corpus,
                corpus_fingerprint=corpus_fingerprint,
                protocol=each.figure.protocol,
                metric=each.figure.metric,
                metric_version=each.version,
                lower_is_better=each.scale.lower_is_better,
                statistics_version=VERSION,
                encoder_a=a,
                fingerprint_a=fingerprint_a,
                encoder_b=b,
                fingerprint_b=fingerprint_b,
                difference=pair.difference.value if np.isfinite(pair.difference.value) else None,
                ci_low=pair.difference.low,
                ci_high=pair.difference.high,
                interval_method=pair.difference.method,
                simultaneous_low=low,
                simultaneous_high=high,
                shared_low=None if shared is None else [ends[0] for ends in shared],
                shared_high=None if shared is None else [ends[1] for ends in shared],
                p_sign_flip=pair.flip_test.p,
                p_exact=pair.flip_test.exact,
                p_adjusted=pair.p_adjusted,
                family="headline" if each.figure in headline else "exploratory",
                p_equivalent=pair.p_equivalent,
                margin=each.scale.margin(resampling),
                wins=pair.wins,
                ties=pair.ties,
                losses=pair.losses,
                cohen_dz=pair.cohen_dz,
                detectable_effect=pair.detectable_effect,
                n_queries=pair.n_queries,
                n_clusters=pair.n_clusters,
                n_effective=pair.n_effective,
                level=resampling.level,
                replicates=resampling.replicates if pair.difference.is_drawn else None,
                permutations=pair.flip_test.flips,
                seed=resampling.seed,
                reason=pair.reason,
                run=run,
                created=datetime.now(UTC),
            )
            rows.append(row)
    return rows


def compared_metrics(encoders: Iterable[Outcomes], metrics: Iterable[Metric] | None = None) -> list[Metric]:
    """Return those of some metrics, or of the table, that the outcomes of at least two encoders determine."""
    metrics = [*(metrics or METRICS.values())]
    counts = Counter(metric.name for outcomes in encoders for metric in metrics_of(outcomes, metrics))
    return [metric for metric in metrics if counts[metric.name] > 1]


def _check_same_queries(encoders: Mapping[str, Outcomes]) -> None:
    (name, first), *others = ((key.rpartition("@")[0], outcomes) for key, outcomes in encoders.items())
    faults = [
        f"{name!r} and {other_name!r} have different query sets under {first.protocol.id!r} ({len(first)} and "
        f"{len(other)} queries); only outcomes on the same queries can be compared: evaluate both on the same corpus"
        for other_name, other in others
        if not np.array_equal(first.query_ids, other.query_ids)
    ]
    if faults:
        raise RequestError(faults)


def _is_share(metric: Metric, encoders: Iterable[Outcomes]) -> bool:
    """True if a metric of the table is a share of hits: with every tie lost, each query is 0 or 1."""
    return not metric.of_user and all(
        bool(np.isin(metric.per_query(outcomes, "lost"), (0.0, 1.0)).all()) for outcomes in encoders
    )


# --- Parts of the queries.


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """The items of a corpus that have a value in a declared column: of images, captions, quadruples or pairs."""

    side: str
    rows: list[int]
    n_items: int

    @property
    def has(self) -> NDArray[np.bool_]:
        """Return which items have the value."""
        has = np.zeros(self.n_items, dtype=np.bool_)
        has[self.rows] = True
        return has

    def queries(self, outcomes: Outcomes) -> NDArray[np.bool_] | None:
        """Return which queries are about these items; None if no query is about items of this kind."""
        protocol = outcomes.protocol
        if self.side == "image" and protocol.queries in MODALITIES and protocol.kind != "judged":
            return self.has[outcomes.clusters]
        return self.has[outcomes.query_ords] if self.side == protocol.queries else None


def declared(corpus: Corpus) -> dict[str, dict[str, Part]]:
    """Return the columns that a corpus declares of its items, and the items with each of their values.

    An object of an image, ``category=shoes``, is a value of the column that it names, any other one of ``objects``.
    """
    columns = (
        ("image", "objects", corpus.images["objects"]),
        ("caption", "query_types", corpus.captions["query_types"]),
        ("quadruples", "tags", corpus.quadruples["tags"]),
        ("pairs", "category", corpus.pairs["category"]),
    )
    found: dict[str, dict[str, Part]] = defaultdict(dict)
    for side, column, cells in columns:
        rows: dict[str, list[int]] = defaultdict(list)
        for row, cell in enumerate(cells.to_pylist()):
            for value in [cell] if isinstance(cell, str) else cell or []:
                rows[value].append(row)
        for value in sorted(rows):
            name, _, own = value.rpartition("=") if "=" in value.strip("=") else (column, "", value)
            found[name][own] = Part(side=side, rows=rows[value], n_items=len(cells))
    return dict(found)


def slice_named(corpus: Corpus, text: str) -> Part:
    """Return the part that ``column=value`` names.

    Raises:
        RequestError: The corpus declares no such column or value; names those that it does.
    """
    columns = declared(corpus)
    parts = {f"{column}={value}": part for column, values in columns.items() for value, part in values.items()}
    if text in parts:
        return parts[text]
    column, sign, value = text.partition("=")
    if not sign or column not in columns:
        some = ", ".join(f"{name}={next(iter(values))}" for name, values in columns.items())
        has = f"its columns: {some}" if some else "it declares none (docs/own_data.md)"
        raise RequestError(f"--slice {text}: expected COLUMN=VALUE of {corpus.name}; {has}")
    raise RequestError(f"--slice: {unknown(column, value, [*columns[column]])}")


def sliced_comparisons(
    store: EmbeddingStore,
    evaluations: Sequence[EvaluationRef],
    *,
    slices: Sequence[str],
    languages: Sequence[str],
    protocols: Sequence[str],
    metrics: Sequence[Metric],
    resampling: Resampling,
) -> list[SlicedComparison]:
    """Compare encoders on one corpus, pair by pair, on the queries of each slice.

    Args:
        store: The store.
        evaluations: Of the encoders, all on the same corpus.
        slices: ``column=value``, each a question of its own; none: all queries.
        languages: Only captions of these languages, each a question; none: those that the corpus is shown by.
        protocols: Only these; none: both directions.
        metrics: By which they are compared; none: the main metric of each protocol.
        resampling: How intervals and random flips are drawn.

    Raises:
        RequestError: A slice or language that the corpus does not have, or no query is about.
    """
    corpus = corpus_of(store, evaluations)
    parts: Mapping[str, Part | None] = {text: slice_named(corpus, text) for text in slices} or {"": None}
    rows: list[SlicedComparison] = []
    for protocol in _protocols(corpus, evaluations, protocols, languages):
        ids = {
            encoder_key(each.sets.encoder, each.sets.encoder_fingerprint): each.evaluations[protocol.id]
            for each in evaluations
            if protocol.id in each.evaluations
        }
        outcomes = read_all_outcomes(store, ids, protocol)
        wanted = metrics or [METRICS[figure.metric] for figure in headline_of([protocol])]
        figures = compared_figures(
            outcomes, compared_metrics(outcomes.values(), wanted), drawn_clusters(corpus, protocol)
        )
        of = {"corpus": corpus.name, "corpus_fingerprint": corpus.fingerprint, "run": "", "resampling": resampling}
        for text, part in parts.items():
            inside = None if part is None else part.queries(next(iter(outcomes.values())))
            if inside is not None or part is None:
                rows += [row for figure in figures for row in _compared(figure, text, inside, of)]
    if not rows:
        raise RequestError(f"no query of {corpus.name} under these protocols is about {', '.join(slices) or 'these'}")
    return rows


def _compared(
    figure: ComparedFigure, text: str, inside: NDArray[np.bool_] | None, of: Mapping[str, Any]
) -> Iterator[SlicedComparison]:
    """Yield the pairs of encoders on some queries (None: all), each with the values of both on the queries of both."""
    values = {key: each.copy() for key, each in figure.values.items()}
    if inside is not None:
        for each in values.values():
            each[~inside] = np.nan
    named = Figure(f"{figure.figure.protocol} {text}".strip(), figure.figure.metric)
    for row in figure_rows([replace(figure, figure=named, values=values)], **of, headline={named}):
        ends = (row.encoder_a, row.fingerprint_a), (row.encoder_b, row.fingerprint_b)
        pair = [values[encoder_key(*end)] for end in ends]
        common = known_queries(pair[0]) & known_queries(pair[1])
        a, b = (_value(figure, each, common) for each in pair)
        yield SlicedComparison(**vars(row), slice=text, value_a=a, value_b=b)


def _value(figure: ComparedFigure, values: NDArray[np.float64], among: NDArray[np.bool_]) -> float | None:
    reduce = figure.scale.reduce
    if not among.any():
        return None
    if reduce == "mean":
        return figure.clusters.only(among).mean(values[among])
    return float(np.median(values[among]) if reduce == "median" else reduce(values[among]))


def _protocols(
    corpus: Corpus, evaluations: Sequence[EvaluationRef], given: Sequence[str], languages: Sequence[str]
) -> Iterator[Protocol]:
    """Yield the protocols that are compared: of several languages those of each.

    Raises:
        RequestError: No protocol is of one of the languages.
    """
    evaluated = sorted({protocol for each in evaluations for protocol in each.evaluations})
    known = select_protocols(corpus, [each for each in given or evaluated if each in evaluated])
    main = {figure.protocol for figure in headline_of(known)}
    shown = known if given else by_language(known, corpus) or [each for each in known if each.id in main]

    def language(protocol: Protocol) -> str:
        return protocol.language or (corpus.main_part[0] if protocol.is_main and corpus.main_part else "")

    spoken = {language(protocol) for protocol in shown} - {""}
    if strange := [each for each in languages if each not in spoken]:
        raise RequestError([f"--languages: {unknown('language', each, sorted(spoken))}" for each in strange])
    return (protocol for protocol in shown if not languages or language(protocol) in languages)
