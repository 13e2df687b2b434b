"""Tasks: paired comparisons of all encoders of a corpus, by one protocol and by several; a ranking over corpora."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from capim.reports.rows.standing import chance_of, counted_once, not_counted, with_chance
from capim.store import EmbeddingStore
from capim.store.schema import Comparison, Ranking, Result, Subject
from capim.store.types import Corpus
from capim.tasks.derive import Derivation, Derived, Made, Work, derive, one_by_one
from capim.tasks.hub.progress import track
from capim.tasks.metrics import Metric
from capim.tasks.metrics.table import METRICS, RSUM, Figure, headline_of, planned_figures, version_of
from capim.tasks.prefects.task import asset, task
from capim.tasks.protocols import MAIN, Protocol
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import drawn_clusters, drawn_images, protocols_of, select_protocols
from capim.tasks.references import EvaluationRef, RunSettings, by_corpus, corpus_of, inputs_of
from capim.tasks.results.combined import SUMMARISED, Values, combined_figures, language_values, part_of, rsum_values
from capim.tasks.results.comparison import ComparedFigure, compared_figures, compared_metrics, encoder_key, figure_rows
from capim.tasks.results.stored import read_all_outcomes, read_outcomes
from capim.tasks.results.suite import (
    CorpusHeadline,
    EncoderId,
    cluster_photographs,
    contents_of,
    counted_headlines,
    figure_values,
    named_once,
    photographs_of,
    ranking_rows,
)
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.intervals import ClusteredValues
from capim.tasks.statistics.ranking import LEAST_CORPORA


@task(
    "compare",
    makes=lambda evaluations, protocols, settings: [
        asset(settings.store_uri, "comparisons", evaluations[0].sets.corpus, each) for each in protocols
    ],
    run_name="compare-{evaluations[0].sets.corpus}-{protocols[0]}",
)
def compare_corpus(
    evaluations: tuple[EvaluationRef, ...], settings: RunSettings, *, protocols: Sequence[str]
) -> Derived:
    """Store pairwise comparisons of encoders that were evaluated on one corpus, next to those of larger requests."""
    store, run = EmbeddingStore.open(settings.store_uri), settings.run
    work = comparisons(store, corpus_of(store, evaluations), evaluations, protocols, settings.resampling, run)
    with track(f"{evaluations[0].sets.corpus} · comparing", total=len(work.wanted), unit="figures") as advance:
        return derive(store, work, run=run, advance=advance)


def comparisons(
    store: EmbeddingStore,
    corpus: Corpus,
    evaluations: Sequence[EvaluationRef],
    protocols: Sequence[str],
    resampling: Resampling,
    run: str = "",
    metrics: Sequence[Metric] | None = None,
) -> Work:
    """Return the comparisons of these encoders under these protocols, by a user's ``metrics`` or by every metric."""
    chosen = {protocol.id: protocol for protocol in select_protocols(corpus, protocols)}
    headline = planned_figures(protocols_of(corpus))
    wanted = [
        Derivation(
            kind="comparison",
            subject=Subject(corpus=corpus.fingerprint, protocol=protocol, metric=metric.name),
            inputs=[
                *inputs_of(evaluations, [protocol]),
                *metric.inputs(e.evaluations[protocol] for e in evaluations if protocol in e.evaluations),
            ],
            settings=resampling.used(by_draws=callable(metric.reduce), tested=True)
            | {"margin": resampling.margin, "headline": Figure(protocol, metric.name) in headline},
            version=str(metric.version),
        )
        for protocol in chosen
        for metric in metrics or METRICS.values()
    ]

    def compute(todo: Sequence[Derivation]) -> Iterator[Made]:
        """Yield the comparisons protocol by protocol, so that the outcomes of one are in memory at a time."""
        for protocol, group in groupby(enumerate(todo), lambda each: each[1].subject.protocol):
            places = {each.subject.metric: at for at, each in group}
            ids = {
                encoder_key(e.sets.encoder, e.sets.encoder_fingerprint): e.evaluations[protocol]
                for e in evaluations
                if protocol in e.evaluations
            }
            outcomes = read_all_outcomes(store, ids, chosen[protocol])
            compared = [metric for metric in compared_metrics(outcomes.values(), metrics) if metric.name in places]
            figures = compared_figures(outcomes, compared, drawn_clusters(corpus, chosen[protocol]))
            made: dict[int, Sequence[Comparison]] = dict.fromkeys(places.values(), ())
            for each in figures:
                made[places[each.figure.metric]] = _rows([each], corpus, resampling, run)
            yield made

    return Work(table="comparisons", wanted=wanted, compute=compute)


@task("compare-combined", run_name="compare-combined-{evaluations[0].sets.corpus}")
def compare_combined(evaluations: tuple[EvaluationRef, ...], settings: RunSettings) -> Derived:
    """Store comparisons by RSUM and by means over languages, of the encoders with all protocols of such a result."""
    store, run = EmbeddingStore.open(settings.store_uri), settings.run
    return derive(store, combined(store, corpus_of(store, evaluations), evaluations, settings.resampling, run), run=run)


def combined(
    store: EmbeddingStore, corpus: Corpus, evaluations: Sequence[EvaluationRef], resampling: Resampling, run: str = ""
) -> Work:
    """Return the comparisons of these encoders by metrics over several protocols, as one derivation."""
    protocols = protocols_of(corpus)
    directions = [protocol for protocol in protocols if protocol.id in MAIN]
    languages = [protocol for protocol in protocols if protocol.is_of_language]
    comparison = Derivation(
        kind="comparison",
        subject=Subject(corpus=corpus.fingerprint, protocol="", metric=""),  # results over several of both
        inputs=inputs_of(evaluations, [protocol.id for protocol in (*directions, *languages)]),
        settings=resampling.used(tested=True)
        | {"margin": resampling.margin, "headline": sorted(map(list, planned_figures(protocols)))},
        version=", ".join(f"{name} {version_of(name)}" for name in (RSUM.metric, *SUMMARISED)),
    )

    def outcomes(evaluation: EvaluationRef, wanted: Sequence[Protocol]) -> Iterator[Outcomes]:
        """Yield the outcomes of all these protocols, one after the other; nothing unless all were evaluated."""
        if all(protocol.id in evaluation.evaluations for protocol in wanted):
            yield from (read_outcomes(store, evaluation.evaluations[protocol.id], protocol) for protocol in wanted)

    def rows_of(_: Derivation) -> list[Comparison]:
        values: dict[str, Values] = {}
        for each in evaluations:
            parts = [part_of(one, drawn=drawn_clusters(corpus, one.protocol)) for one in outcomes(each, languages)]
            values[encoder_key(each.sets.encoder, each.sets.encoder_fingerprint)] = {
                **rsum_values(outcomes(each, directions), drawn=drawn_images(corpus)),
                **language_values(parts, reference=corpus.languages_reference),
            }
        return _rows(combined_figures(values), corpus, resampling, run)

    return Work(table="comparisons", wanted=[comparison], compute=one_by_one(rows_of))


def _rows(figures: Iterable[ComparedFigure], corpus: Corpus, resampling: Resampling, run: str) -> list[Comparison]:
    """Return the rows of comparisons on a corpus."""
    of = {"corpus": corpus.name, "corpus_fingerprint": corpus.fingerprint}
    headline = planned_figures(protocols_of(corpus))
    return figure_rows(figures, **of, headline=headline, resampling=resampling, run=run)


@task("rank", makes=lambda evaluations, settings: [asset(settings.store_uri, "ranking")])
def rank_suite(evaluations: tuple[EvaluationRef, ...], settings: RunSettings) -> Derived:
    """Store the ranking of these encoders over their corpora, by the macro mean of the headlines.

    The encoders of a corpus must have been evaluated on the same queries, as for :func:`compare_corpus`. Without a
    ranking, the reference says why; but not for a single corpus, where nobody expects one.
    """
    store, n_corpora = EmbeddingStore.open(settings.store_uri), len(by_corpus(evaluations))
    ranked = derive(store, ranking(store, evaluations, settings.resampling, settings.run), run=settings.run)
    if ranked.n_rows or n_corpora == 1:
        return ranked
    if n_corpora < LEAST_CORPORA:
        return replace(ranked, lines=(f"a ranking over corpora needs {LEAST_CORPORA} of them, got {n_corpora}",))
    once = named_once(_headlines(store, evaluations, at_chance_of(store, evaluations)))
    copies = [counted_once([each.corpus, *each.copies]) for each in once if each.copies]
    copies += not_counted(counted_headlines(once)[1])
    why = "; ".join([f"no ranking: no two encoders have {LEAST_CORPORA} corpora in common", *copies])
    return replace(ranked, lines=(why,))


def ranking(store: EmbeddingStore, evaluations: Sequence[EvaluationRef], resampling: Resampling, run: str = "") -> Work:
    """Return the ranking of these encoders over their corpora; no derivation where these are too few."""
    if len(by_corpus(evaluations)) < LEAST_CORPORA:
        return Work(table="rankings", wanted=[], compute=one_by_one(lambda _: []))
    evaluated = sorted({protocol for each in evaluations for protocol in each.evaluations})
    weak = at_chance_of(store, evaluations)
    of_suite = Derivation(
        kind="ranking",
        subject=Subject(),
        inputs=inputs_of(evaluations, evaluated),
        settings=resampling.used(tested=True) | {"at_chance": weak},
        version=", ".join(["3", *(f"{metric.name} {metric.version}" for metric in METRICS.values())]),
    )

    def rows_of(_: Derivation) -> list[Ranking]:
        return ranking_rows(named_once(_headlines(store, evaluations, weak)), run=run, resampling=resampling)

    return Work(table="rankings", wanted=[of_suite], compute=one_by_one(rows_of))


def _headlines(
    store: EmbeddingStore, evaluations: Sequence[EvaluationRef], weak: Sequence[Sequence[str]]
) -> list[CorpusHeadline]:
    """Return the headlines of every corpus; ``weak`` are the results at chance (:func:`at_chance_of`)."""
    groups, found = by_corpus(evaluations), list[CorpusHeadline]()
    with track("ranking over corpora", total=len(groups), unit="corpora") as advance:
        for group in groups:
            found.append(_headline(store, group, weak))
            advance(1)
    return found


def at_chance_of(store: EmbeddingStore, evaluations: Sequence[EvaluationRef]) -> list[list[str]]:
    """Return the results of these encoders and corpora that were tested and are not shown above chance, in order.

    Each has the name and fingerprint of its encoder, the fingerprint of its corpus, its protocol and its metric.
    """
    encoders = sorted({each.sets.encoder_fingerprint for each in evaluations})
    corpora = sorted({each.sets.corpus_fingerprint for each in evaluations})
    rows = with_chance(store.current(Result, encoder_fingerprint=encoders, corpus_fingerprint=corpora))
    return sorted(
        [row.encoder, row.encoder_fingerprint, row.corpus_fingerprint, row.protocol, row.metric]
        for row in rows
        if chance_of(row)
    )


def _headline(
    store: EmbeddingStore, evaluations: Sequence[EvaluationRef], weak: Sequence[Sequence[str]]
) -> CorpusHeadline:
    """Return the headline of one corpus by every encoder, or why an encoder has none."""
    sets, corpus = evaluations[0].sets, corpus_of(store, evaluations)
    evaluated = sorted({protocol for evaluation in evaluations for protocol in evaluation.evaluations})
    protocols = {protocol.id: protocol for protocol in select_protocols(corpus, evaluated)}
    parts, planned = headline_of(protocols.values()), planned_figures(protocols_of(corpus))
    means = [Figure(protocols[part.protocol].mean_over_languages.id, part.metric) for part in parts]
    whole = parts == headline_of(protocols_of(corpus)) and planned.issuperset(means)
    of_language = Counter((protocols[part.protocol].direction, protocols[part.protocol].language) for part in parts)
    every = math.lcm(*of_language.values())

    def weight(part: Figure) -> int:
        """Return the weight of a part: translators share that of their language, and all languages weigh the same."""
        return every // of_language[protocols[part.protocol].direction, protocols[part.protocol].language]

    figures = [
        figure for part, of in zip(parts, means if whole else parts, strict=True) for figure in [of] * weight(part)
    ]

    def values(evaluation: EvaluationRef) -> list[ClusteredValues] | str:
        found: list[ClusteredValues] = []
        for figure in parts:
            if figure.protocol not in evaluation.evaluations:
                return f"not evaluated under {figure.protocol}"
            protocol = protocols[figure.protocol]
            outcomes = read_outcomes(store, evaluation.evaluations[protocol.id], protocol)
            of_figure = figure_values(outcomes, figure, drawn_clusters(corpus, protocol))
            if isinstance(of_figure, str):
                return of_figure
            found += [of_figure] * weight(figure)
        return found

    def at_chance(figure: Figure) -> set[EncoderId]:
        protocol = protocols.get(figure.protocol)
        part = protocol is not None and protocol.is_of_language
        tested = protocol.mean_over_languages.id if protocol and part else figure.protocol  # as a report does
        key = [corpus.fingerprint, tested, figure.metric]
        return {EncoderId(name, fingerprint) for name, fingerprint, *of in weak if of == key}

    photographs = photographs_of(corpus)
    return CorpusHeadline(
        corpus=sets.corpus,
        fingerprint=sets.corpus_fingerprint,
        figures=tuple(figures),
        values={EncoderId(e.sets.encoder, e.sets.encoder_fingerprint): values(e) for e in evaluations},
        at_chance={figure: at_chance(figure) for figure in figures},
        contents=contents_of(corpus, photographs),
        photographs=cluster_photographs(corpus, photographs, protocols[parts[0].protocol]) if parts else (),
    )
