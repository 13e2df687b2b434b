"""Details: results next to published ones; corpora, encoders, runs and commands to reproduce them; definitions."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path

from capim.reports import format as show
from capim.reports.elements import words
from capim.reports.elements.page import Block, Cell, Evidence, Mark, Section, Table
from capim.reports.elements.tables import metrics, numbers, pivot, texts
from capim.reports.rows.report_data import R1, ReportData, goodness, without_paths
from capim.store.current import figure_of, grouped
from capim.store.row_types import rows_in
from capim.store.schema import Published, Run, Skipped, Slice
from capim.store.sets.importing import matched_text
from capim.store.types import MODALITIES, EncoderSpec
from capim.tasks.reference.published import ANALYSIS as REFERENCE

VERDICTS: dict[str, Mark] = {"suspect": "bad", "other protocol": "warn", "reproduced": "good"}  # in this order
TERMS: dict[str, str] = tomllib.loads(Path(__file__).with_name("terms.toml").read_text("utf-8"))
"""A term as displayed to its explanation, once in a report."""
MOST_SKIPPED = 200  # images listed by name


def section(data: ReportData) -> Section:
    """Return corpora, encoders, imports, runs with their commands, libraries, and omissions."""
    optional = (_imports(data), _runs(data), _versions(data))
    blocks: list[Block] = [corpora(data), encoders(data), *(table for table in optional if table.rows)]
    if data.left_out:
        blocks.append(Evidence(lines=(f"Left out of this report: {'; '.join(data.left_out)}.",)))
    return Section(
        id="provenance",
        title="Provenance",
        lead=f"All results come from the store {data.uri}; digest of the rows {data.digest[:16]}.",
        blocks=tuple(blocks),
        folded=True,
    )


def skipped_section(data: ReportData) -> Section:
    """Return the images and queries that could not be used, with the reason."""
    skipped = [
        (name, "query" if row.modality == "caption" else "image", row.item_id, without_paths(row.reason))
        for name, corpus in sorted(data.corpora.items())
        for row in rows_in(Skipped, corpus.skipped)
    ]
    table = pivot(
        "skipped-images",
        "Skipped items and reasons" + (f" (first {MOST_SKIPPED:,} shown)" if len(skipped) > MOST_SKIPPED else ""),
        skipped[:MOST_SKIPPED],
        texts("Corpus", lambda r: r[0]),
        texts("Item", lambda r: f"{r[1]} {r[2]}"),
        texts("Reason", lambda r: r[3]),
    )
    per_corpus = sorted(Counter((name, kind) for name, kind, *_ in skipped).items())
    lead = "; ".join(
        f"{show.count(n, kind, 'queries' * (kind == 'query'))} of {name} could not be used"
        for (name, kind), n in per_corpus
    )
    return Section(
        id="skipped",
        title="Skipped images and queries",
        lead=f"{lead}; no result includes them.",
        blocks=(table,) if skipped else (),
        folded=True,
    )


def corpora(data: ReportData) -> Table:
    """Return the table of searched corpora."""
    return pivot(
        "corpora",
        "Corpora",
        [corpus for _, corpus in sorted(data.corpora.items())],
        texts("Corpus", lambda c: c.name),
        numbers("Images", lambda c: show.number(c.images.num_rows, 0)),
        numbers("Captions", lambda c: show.number(c.captions.num_rows, 0)),
        texts("Languages", lambda c: ", ".join(sorted({str(code) for code in c.captions["language"].to_pylist()}))),
        numbers("Skipped", lambda c: show.number(c.skipped.num_rows, 0)),
        texts("Licence", lambda c: c.licence),
        texts("Origin", lambda c: without_paths(c.origin or show.ABSENT)),
        texts("Fingerprint", lambda c: c.fingerprint),
    )


def encoders(data: ReportData) -> Table:
    """Return the table of encoders, with their exact revisions."""
    with_vectors = {sealed.key.encoder for sealed in data.sets}

    def of_vectors(text: Callable[[EncoderSpec], str | Cell]) -> Callable[[EncoderSpec], str | Cell]:
        """Return a cell about vectors; absent for encoders that have outcomes only."""
        return lambda spec: text(spec) if spec.name in with_vectors else show.ABSENT

    return pivot(
        "encoders",
        "Encoders",
        [spec for _, spec in sorted(data.specs.items())],
        texts("Encoder", lambda s: s.name),
        texts("Checkpoint", lambda s: without_paths(s.checkpoint)),
        texts("Revision", lambda s: Cell(text=s.revision[:16], title=s.revision)),
        texts("Adapter", lambda s: without_paths(f"{s.adapter} v{s.adapter_version}")),
        texts("Vectors", of_vectors(lambda s: s.vectors)),
        numbers("Dim", of_vectors(lambda s: str(s.dim))),
        texts("Precision", of_vectors(lambda s: s.precision if s.has_weights else show.ABSENT)),
        texts("Stored as", of_vectors(lambda s: s.storage)),
        texts("Options", lambda s: ", ".join(f"{k}={v}" for k, v in sorted(s.options.items())) or show.ABSENT),
        texts("Licence", lambda s: s.licence),
        texts("Fingerprint", lambda s: s.fingerprint),
    )


def _imports(data: ReportData) -> Table:
    """Return how imported rows were matched: a set that was only taken in order is marked."""
    rows = sorted(data.imports, key=lambda row: (row.corpus, row.encoder, row.what))
    return pivot(
        "imports",
        "Imported",
        rows,
        texts("Encoder", lambda r: r.encoder),
        texts("Corpus", lambda r: r.corpus),
        texts("What", lambda r: f"{r.what}s" if r.what in MODALITIES else r.what),
        texts("Matched", lambda r: matched_text([r.matched])),
        texts("Source", lambda r: Cell(text=r.source.rpartition("/")[2], title=without_paths(r.source))),
    )


def _runs(data: ReportData) -> Table:
    def duration(r: Run) -> str:
        return show.duration((r.finished - r.started).total_seconds() if r.finished else None)

    return pivot(
        "runs",
        "Runs",
        data.runs,
        texts("Run", lambda r: Cell(text=r.name, title=r.run)),
        texts("Started", lambda r: show.moment(r.started)),
        texts("Duration", duration),
        texts("State", lambda r: Cell(text=r.state, title=r.message or "")),
        texts("Command", lambda r: r.command),
        note="The commands make the results again. Paths in the command of an import start from its folder.",
    )


def _versions(data: ReportData) -> Table:
    """Library versions of the batches and runs, and the machines of the runs."""
    of_runs = (text for run in data.runs for text in (run.versions, run.machine))
    stored = (json.loads(text or "{}") for text in {*of_runs, *(batch.versions for batch in data.batches)})
    pairs = {(name, str(value)) for of in stored for name, value in of.items()}
    return pivot(
        "versions",
        "Libraries and machines",
        sorted(grouped(sorted(pairs), itemgetter(0)).items()),
        texts("Name", lambda of: of[0]),
        texts("Version or size", lambda of: ", ".join(value for _, value in of[1])),
    )


def published_section(data: ReportData) -> Section:
    """Return results of this store next to published results for the same model and protocol."""
    rows = [r for r in data.slices if r.analysis == REFERENCE]
    parts = sorted({f"{r.corpus} is a {r.reason}" for r in rows if r.level_name == "not compared"})
    compared = [r for r in rows if r.level_name not in ("no reference", "not compared")]
    unpublished = {r.encoder for r in rows if r.level_name == "no reference"}
    without = sorted(unpublished - {r.encoder for r in compared})
    blocks: list[Block] = []
    if compared:
        blocks.append(_published(data, compared))
    if data.published:
        blocks.append(_of_others(data))
    return Section(
        id="gate",
        title="Published results",
        lead="Each result next to the published value for the same model and protocol. A suspect result is more often "
        "caused by an error in loading or preprocessing than by a real difference."
        + (f" No published results for {show.listing(without)}." if without else "")
        + "".join(f" {part}: published results are about all images." for part in parts),
        blocks=tuple(blocks),
    )


def _of_others(data: ReportData) -> Table:
    """Return imported results of others, next to the highest value here: none of them is tested."""
    own = grouped(data.results, figure_of)

    def best(row: Published) -> Cell:
        first = max(own[row.dataset, row.protocol, row.metric], key=goodness)
        return Cell(text=words.value(data.metric(row.metric), first.value), note=first.encoder)

    return pivot(
        "published-figures",
        "Published results (not tested)",
        sorted(data.published, key=lambda r: (r.dataset, r.protocol, r.metric, r.model)),
        texts("Model", lambda r: r.model),
        texts("corpus", lambda r: r.dataset),
        texts("task", lambda r: data.titled(r.dataset, r.protocol)),
        metrics(lambda r: data.metric(r.metric)),
        numbers("published", lambda r: words.value(data.metric(r.metric), r.value)),
        numbers("best here", best),
        texts("protocol there", lambda r: r.difference),
        texts("source", lambda r: without_paths(r.source)),
    )


def _published(data: ReportData, rows: list[Slice]) -> Table:
    def place(row: Slice) -> tuple[object, ...]:
        place = (*VERDICTS, row.level_name).index(row.level_name)
        return place, row.corpus, row.encoder, row.protocol, row.metric

    def compared(row: Slice) -> Cell:
        return Cell(text=words.against_published(row), mark=VERDICTS.get(row.level_name, ""))

    return pivot(
        "gate-figures",
        "Results here and published results",
        sorted(rows, key=place),
        texts("Encoder", lambda r: r.encoder),
        texts("corpus", lambda r: r.corpus),
        texts("task", lambda r: data.titled(r.corpus, r.protocol)),
        metrics(lambda r: data.metric(r.metric)),
        texts("compared", compared),
    )


def definitions_section(data: ReportData) -> Section:
    """Return the terms, with the level of the intervals and the margin of this report."""
    level = next((r.level for r in data.results if r.ci_low is not None), 0.95)
    tested = [r for r in data.comparisons if r.p_equivalent is not None]
    own = next((r for r in tested if r.metric == R1), next(iter(tested), None))
    margin = words.margin(data.metric(own.metric), own.margin) if own is not None else ""
    found = {"level": show.percent(level, 0), "margin": margin or "the margin"}
    about = [(term, f"{text.format(**found)}.") for term, text in TERMS.items()]
    table = pivot("terms", "Terms", about, texts("Term", lambda of: of[0]), texts("is", lambda of: of[1]))
    return Section(id="definitions", title="Definitions", blocks=(table,), folded=True)
