"""Tasks: the analyses of a corpus' outcomes and vectors, and the report of a store, also as artifacts."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

from capim.reports.destination import PAGES, has_file, point, version_of_pages
from capim.reports.rows.snapshot import answer_of, first_screen
from capim.store import EmbeddingStore
from capim.store.current import newest_rows
from capim.store.schema import FIGURE, Batch, Result, Slice, Subject
from capim.store.types import Corpus, EncoderSpec, canonical_json, digest16
from capim.tasks.analyses.analysis import R1, AnalysisInput, slice_rows
from capim.tasks.analyses.table import ANALYSES, HARDWARE, Analysis, applying, slices_of
from capim.tasks.analyses.vectors import StoredVectors, explain_pairs
from capim.tasks.derive import Derivation, Derived, Work, derive, one_by_one, page_key
from capim.tasks.hub.progress import track
from capim.tasks.metrics import Metric
from capim.tasks.metrics.table import on_leaderboard, version_of
from capim.tasks.prefects.names import create_markdown_artifact
from capim.tasks.prefects.task import artifact_key, asset, in_a_run, task
from capim.tasks.protocols import BALANCED, Protocol, by_language
from capim.tasks.ranking.protocols import select_protocols
from capim.tasks.reference.published import ANALYSIS, gate_rows, gated, judge_results, published
from capim.tasks.references import EvaluationRef, RunSettings, by_revision, corpus_of, inputs_of
from capim.tasks.results.stored import read_all_outcomes
from capim.tasks.statistics.draws import Resampling

log = logging.getLogger(__name__)


@task(
    "diagnose",
    makes=lambda evaluations, settings: [asset(settings.store_uri, "slices", evaluations[0].sets.corpus)],
    run_name="diagnose-{evaluations[0].sets.corpus}",
)
def diagnose_corpus(evaluations: tuple[EvaluationRef, ...], settings: RunSettings) -> Derived:
    """Store the slices of encoders that were evaluated on one corpus."""
    store, resampling, run = EmbeddingStore.open(settings.store_uri), settings.resampling, settings.run
    corpus = corpus_of(store, evaluations)
    specs = [store.encoder(each.sets.encoder_fingerprint) for each in evaluations]
    works = [
        *(analyses_of(store, corpus, each, settings.analyses, resampling, run) for each in by_revision(evaluations)),
        gate_of(store, corpus, evaluations, specs, resampling, run),
        devices_of(store, corpus, run),
    ]
    n_analyses = sum(len(work.wanted) for work in works)
    with track(f"{corpus.name} · diagnosing", total=n_analyses, unit="analyses") as advance:
        return derive(store, *works, run=run, advance=advance)


def analyses_of(
    store: EmbeddingStore,
    corpus: Corpus,
    evaluations: Sequence[EvaluationRef],
    analyses: Sequence[str],
    resampling: Resampling,
    run: str = "",
    metric: Metric | None = None,
) -> Work:
    """Return the analyses of these evaluations: those that are named, else all that do not run on request only.

    The evaluations are of one revision of each encoder. By a ``metric`` that a user gave, those over parts of the
    queries of each protocol that is analysed.
    """

    def versions(protocol: Protocol) -> list[str]:
        return [f"{name} {version_of(name)}" for name in on_leaderboard(protocol.kind)]

    fingerprints = {e.sets.encoder: e.sets.encoder_fingerprint for e in evaluations}
    protocols = {protocol.id: protocol for protocol in diagnosed(corpus, evaluations)}
    tags = defaultdict[str, list[str]](list)
    for sealed in store.sealed_sets():
        if sealed.key.corpus_fingerprint == corpus.fingerprint:
            tags[sealed.key.encoder_fingerprint].append(sealed.tag)
    wanted = [
        Derivation(
            kind="measurement" if analysis.measures else "analysis",
            subject=Subject(
                analysis=analysis.name,
                corpus=corpus.fingerprint,
                protocol=protocol.id,
                encoder="" if analysis.looks_at_all else group[0].sets.encoder,
                metric=None if metric is None else metric.name,
            ),
            inputs=[
                *inputs_of(group, [protocol.id]),
                *(metric.inputs(e.evaluations[protocol.id] for e in group) if metric else ()),
                *(tag for each in group for tag in tags[each.sets.encoder_fingerprint] if "vectors" in analysis.needs),
            ],
            settings=resampling.used(by_draws=analysis.draws, tested=True),
            version="; ".join(
                [str(analysis.version), *(versions(protocol) if metric is None else [str(metric.version)])]
            ),
        )
        for protocol in protocols.values()
        for analysis in applying(protocol, analyses)
        for group in _groups([e for e in evaluations if protocol.id in e.evaluations], analysis)
    ]

    stored = StoredVectors(store, fingerprints, corpus)

    @lru_cache(maxsize=1)  # outcomes of one protocol are in memory at a time
    def whole(protocol: str) -> AnalysisInput:
        ids = {e.sets.encoder: e.evaluations[protocol] for e in evaluations if protocol in e.evaluations}
        outcomes = read_all_outcomes(store, ids, protocols[protocol])
        return AnalysisInput(
            corpus=corpus,
            protocol=protocols[protocol],
            outcomes=outcomes,
            specs={name: store.encoder(fingerprint) for name, fingerprint in fingerprints.items()},
            resampling=resampling,
            vectors=stored.single,
            items=stored.items,
            metric=metric or R1,
        )

    def rows_of(each: Derivation) -> list[Slice]:
        data, encoder = whole(each.subject.protocol or ""), each.subject.encoder
        if encoder:
            data = replace(data, outcomes={encoder: data.outcomes[encoder]})
        slices = slices_of(ANALYSES[each.subject.analysis or ""], data)
        rows = slice_rows(slices, corpus=corpus, protocol=data.protocol.id, fingerprints=fingerprints, run=run)
        return rows if metric is None else [replace(row, metric_version=str(metric.version)) for row in rows]

    compute = one_by_one(rows_of, by=lambda each: each.subject.protocol)
    return Work(table="slices", wanted=wanted, compute=compute)


def diagnosed(corpus: Corpus, evaluations: Sequence[EvaluationRef]) -> list[Protocol]:
    """Return the protocols of these evaluations that are analysed; those of many languages only where few are named."""
    return analysed(corpus, select_protocols(corpus, sorted({p for each in evaluations for p in each.evaluations})))


def analysed(corpus: Corpus, protocols: Sequence[Protocol]) -> list[Protocol]:
    """Return the protocols of a corpus, among these, that are analysed, as in :func:`diagnosed`."""
    spoken = [protocol.id for protocol in by_language(protocols, corpus) if protocol.is_of_language]
    return [p for p in protocols if _is_diagnosed(p) or (p.id in spoken and len(spoken) <= MOST_SPOKEN)]


MOST_SPOKEN = 40  # protocols of languages and translators that are analysed unnamed: COCO-SM has 126


def gate_of(
    store: EmbeddingStore,
    corpus: Corpus,
    evaluations: Sequence[EvaluationRef],
    specs: Iterable[EncoderSpec],
    resampling: Resampling,
    run: str = "",
) -> Work:
    """Return the comparison of these evaluations' results, with these settings, with published results."""
    references = published()
    of_evaluations = store.all(Result, evaluation=[i for e in evaluations for i in e.evaluations.values()])
    drawn = resampling.replicates, resampling.seed
    alike = [row for row in of_evaluations if row.level == resampling.level]
    alike = [row for row in alike if row.replicates is None or (row.replicates, row.seed) == drawn]
    results = newest_rows(alike, "results", by=("evaluation", *FIGURE), uses=store.uses())

    def rows(_: Derivation) -> list[Slice]:
        judged = judge_results(
            results,
            specs={spec.fingerprint: spec for spec in specs},
            n_images={corpus.fingerprint: len(corpus.images)},
            references=references,
        )
        return gate_rows(judged, run=run)

    figures = [canonical_json(gated(row)) for row in results]
    inputs = [digest16(figures), digest16([canonical_json(each._asdict()) for each in references])]
    subject = Subject(analysis=ANALYSIS, corpus=corpus.fingerprint)
    gate = Derivation(kind="gate", subject=subject, inputs=inputs, settings={}, version="1")
    return Work(table="slices", wanted=[gate], compute=one_by_one(rows))


def devices_of(store: EmbeddingStore, corpus: Corpus, run: str = "") -> Work:
    """Return the comparison of how fast encoders were on several devices."""
    batches = store.all(Batch, corpus=corpus.name)
    inputs = [digest16(sorted(batch.batch_id for batch in batches))]
    subject = Subject(analysis=HARDWARE, corpus=corpus.fingerprint)
    devices = Derivation(kind="devices", subject=subject, inputs=inputs, settings={}, version="1")

    def rows(_: Derivation) -> list[Slice]:
        from capim.tasks.analyses.ablations import device_rows

        return device_rows(batches, corpus=corpus, run=run)

    return Work(table="slices", wanted=[devices], compute=one_by_one(rows))


def _groups(evaluations: list[EvaluationRef], analysis: Analysis) -> list[list[EvaluationRef]]:
    """Return the evaluations that an analysis looks at together."""
    return [evaluations] if analysis.looks_at_all else [[each] for each in evaluations]


def _is_diagnosed(protocol: Protocol) -> bool:
    """True if a protocol is analysed: the headline of either direction, pairs, and all quadruples or judged queries."""
    all_judged = protocol.kind == "judged" and not protocol.language and not protocol.orientation
    if protocol.kind == "labels":
        return protocol.name != BALANCED
    return protocol.is_main or protocol.kind in ("pairs", "images") or protocol.is_all_quadruples or all_judged


EVERY: Mapping[str, Sequence[str]] = {"corpora": (), "encoders": (), "protocols": ()}
"""The names that a report is limited to: none."""


@task("publish", makes=lambda store_uri, run, **_: [asset(store_uri, "reports", run)], run_name="publish-{run}")
def publish_report(
    *,
    store_uri: str,
    reports_uri: str,
    run: str,
    of_run: bool = False,
    chosen: Mapping[str, Sequence[str]] = EVERY,
    markdown: Literal["short", "whole"] = "short",
    reports_url: str | None = None,
) -> str:
    """Write the report of chosen corpora, encoders and protocols (all where none is named); return its path or URI.

    A report that was written before is not written again: the run's folder points to it. An artifact of the
    task shows what the report begins with.

    Args:
        of_run: Only what this run used.
        markdown: ``report.md`` of a hundred lines at most, or with every table.
        reports_url: Where browsers find the folder of the reports. None: the artifact has no link.
    """
    store, shown = EmbeddingStore.open(store_uri), run if of_run else None
    of_page = chosen if markdown == "short" else {**chosen, "markdown": (markdown,)}
    page = page_of(store, store.keys_of(run) if of_run else None, of_page)
    if has_file(f"{reports_uri}/{page}/report.html"):
        log.info("the report was written before")
    else:
        from capim.reports.app.server import Address
        from capim.reports.write import write_report  # with templates and charts
        from capim.tasks.analyses.content import caption_features

        folder = None if "://" in store.uri else Path(store.uri).parent
        how: dict[str, Any] = {"describe": caption_features, "explain": partial(explain_pairs, store), **chosen}
        how["serve"] = Address.of(folder).url
        write_report(store, f"{reports_uri}/{page}", markdown=markdown, run=shown, **how)
    path = f"{point(reports_uri, run, page)}/report.html"
    if in_a_run():
        _show_report(path, store, run, reports_url)
    return path


def page_of(store: EmbeddingStore, keys: Collection[str] | None, chosen: Mapping[str, Sequence[str]] = EVERY) -> str:
    """Return the folder, below the reports, of the report on these keys' rows; without keys, on all current rows."""
    return f"{PAGES}/{page_key(store, keys, chosen, version_of_pages())}"


def _show_report(page: str, store: EmbeddingStore, run: str, reports_url: str | None) -> None:
    """Show the first screen of the report, with a link, as an artifact."""
    place = f"reports/{run}/report.html"
    link = f"[{run}]({reports_url.rstrip('/')}/{run}/report.html)" if reports_url else f"The whole page is `{place}`"
    answer = next(iter(answer_of(page)), "")
    begins = f"{first_screen(page)}\n\n{link}"
    create_markdown_artifact(markdown=begins, key=artifact_key("report", store.uri), description=answer)
