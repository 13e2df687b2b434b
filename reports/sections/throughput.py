"""Measured throughput of every stage, and the projected cost of indexing a million images."""

from __future__ import annotations

from capim.reports import format as show
from capim.reports.elements.page import Block, Cell, Section, Table
from capim.reports.elements.tables import ColumnOf, absent, measures, numbers, pivot, texts, value
from capim.reports.rows.report_data import ReportData
from capim.reports.rows.speed import STAGES, Speed, Spent, bytes_per_image, image_rate, qps_v28, speeds, spent
from capim.reports.sections.frontier import interquartile

MILLION = 1_000_000


def section(data: ReportData) -> Section:
    """Two tables per corpus with timed batches."""
    blocks: list[Block] = []
    measured = speeds(data)
    for corpus in data.corpus_names():
        on_corpus = [speed for speed in measured if speed.corpus == corpus]
        if on_corpus:
            blocks += [_table(corpus, on_corpus), _projection(data, corpus)]
        if paid := spent(data, corpus):
            blocks.append(_tokens(corpus, paid))
    return Section(
        id="throughput",
        title="Throughput by stage",
        lead="Items per second of each stage: median and interquartile range over batches, without the warm-up. "
        "Each stage is timed separately; the pipeline runs them in parallel.",
        blocks=tuple(blocks),
    )


def _table(corpus: str, measured: list[Speed]) -> Table:
    def stage_column(stage: str) -> ColumnOf[Speed]:
        def cell(speed: Speed) -> Cell:
            rate = speed.stages.get(stage)
            if rate is None:
                return absent("not measured")
            return value(rate.median, show.significant(rate.median), note=interquartile(rate))

        return numbers(stage, cell, group="items per second")

    def latency_column(i: int, percentile: str) -> ColumnOf[Speed]:
        group = "latency of a forward batch"
        return measures(percentile, lambda s: s.latency[i] if s.latency else None, show.duration, group=group)

    return pivot(
        f"throughput-{corpus}",
        f"{corpus} · encoding",
        measured,
        texts("Encoder", lambda s: s.encoder),
        texts(
            "items",
            lambda s: Cell(text=f"{s.modality}s", title=f"{s.n_items:,} in {s.n_batches:,} batches"),
        ),
        *(stage_column(stage) for stage in STAGES if any(stage in speed.stages for speed in measured)),
        *(latency_column(i, percentile) for i, percentile in enumerate(("p50", "p95", "p99"))),
        measures("peak memory", lambda s: s.peak_memory_bytes, show.size, group="setting"),
        numbers("batch", lambda s: value(s.batch_size, str(s.batch_size)), group="setting"),
        texts("precision", lambda s: s.precision, group="setting"),
        texts("device", lambda s: s.device, group="setting"),
        sortable=True,
        dense=True,
    )


def _tokens(corpus: str, paid: list[Spent]) -> Table:
    def million(each: Spent) -> float | None:
        return None if each.cost is None else each.cost / each.n_items * MILLION

    return pivot(
        f"throughput-{corpus}-tokens",
        f"{corpus} · tokens of endpoints",
        paid,
        texts("Encoder", lambda s: s.encoder),
        texts("items", lambda s: Cell(text=f"{s.modality}s", title=f"{s.n_items:,} distinct items")),
        numbers("tokens", lambda s: value(s.n_tokens, f"{s.n_tokens:,}")),
        measures("per item", lambda s: s.n_tokens / s.n_items, show.significant),
        measures("cost", lambda s: s.cost, show.significant),
        measures("1M items, projected", million, show.significant),
        note="Tokens as the service counts them, request by request, without probes and without requests that were "
        "lost with a process that died. Cost at the price of the encoder's table, in its currency.",
        sortable=True,
    )


def _projection(data: ReportData, corpus: str) -> Table:
    rates, sizes, seed = image_rate(data, corpus), bytes_per_image(data, corpus), qps_v28(data, corpus)
    seconds = {name: MILLION / speed.stages["forward"].median for name, speed in rates.items()}
    stored = {name: MILLION * size for name, size in sizes.items()}
    return pivot(
        f"throughput-{corpus}-projection",
        f"{corpus} · cost of an index",
        sorted({*rates, *sizes}),
        texts("Encoder", str),
        measures("bytes/image", sizes.get, show.size, explain="As stored"),
        measures("time", seconds.get, show.duration, group="1M images, projected"),
        measures("storage", stored.get, show.size, group="1M images, projected"),
        measures(
            "qps_v28",
            seed.get,
            show.significant,
            explain="As in the V28 seed: images over the forward time of images and captions",
        ),
        note="Projected: the measured forward rate and bytes per image, times a million; not measured at that size. "
        "qps_v28 divides the number of images by the forward time of images and captions together, as the V28 seed "
        "did; compare it only with the table of the seed.",
        sortable=True,
    )
