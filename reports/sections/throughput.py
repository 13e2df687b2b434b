"""Throughput stage by stage, measured; and what a million images would take, as the projection it is."""

from __future__ import annotations

from reports import format as show
from reports.elements.cells import heading_groups
from reports.elements.page import Block, Cell, Column, Section, Table
from reports.rows.report_data import Evidence
from reports.rows.speed import STAGES, Speed, bytes_per_image, image_rate, qps_v28, speeds
from reports.sections.frontier import middle_half

MILLION = 1_000_000


def section(evidence: Evidence) -> Section | None:
    """One table per corpus with timed batches."""
    blocks: list[Block] = []
    measured = speeds(evidence)
    for corpus in evidence.corpus_names():
        own = [speed for speed in measured if speed.corpus == corpus]
        if own:
            blocks.append(_table(corpus, own))
            blocks.append(_projection(evidence, corpus))
    if not blocks:
        return None
    return Section(
        id="throughput",
        title="Throughput by stage",
        lead="Items per second of each stage, median over batches without the warm-up, with the middle half. "
        "Stages are measured each by itself; the pipeline overlaps them.",
        blocks=tuple(blocks),
    )


def _table(corpus: str, own: list[Speed]) -> Table:
    stages = [stage for stage in STAGES if any(stage in speed.stages for speed in own)]
    columns = (
        Column(heading="Encoder"),
        Column(heading="of"),
        *(Column(heading=stage, group="items per second", numeric=True) for stage in stages),
        *(Column(heading=p, group="latency of a forward batch", numeric=True) for p in ("p50", "p95", "p99")),
        Column(heading="peak memory", group="setting", numeric=True),
        Column(heading="batch", group="setting", numeric=True),
        Column(heading="precision", group="setting"),
        Column(heading="device", group="setting"),
    )
    return Table(
        id=f"throughput-{corpus}",
        caption=f"{corpus} · encoding",
        columns=columns,
        rows=tuple(_row(speed, stages) for speed in own),
        groups=heading_groups(columns),
        sortable=True,
        dense=True,
    )


def _row(speed: Speed, stages: list[str]) -> tuple[Cell, ...]:
    def rate(stage: str) -> Cell:
        found = speed.stages.get(stage)
        if found is None:
            return Cell(text=show.ABSENT, mark="muted", title="not measured")
        return Cell(
            text=show.significant(found.median),
            note=middle_half(found),
            sort=show.exact(found.median),
        )

    return (
        Cell(text=speed.encoder),
        Cell(text=f"{speed.modality}s", title=f"{speed.n_items:,} in {speed.n_batches:,} batches"),
        *(rate(stage) for stage in stages),
        *(
            Cell(text=show.duration(seconds), sort=show.exact(seconds))
            for seconds in speed.latency or (None, None, None)
        ),
        Cell(text=show.size(speed.peak_memory_bytes), sort=show.exact(speed.peak_memory_bytes)),
        Cell(text=str(speed.batch_size), sort=str(speed.batch_size)),
        Cell(text=speed.precision),
        Cell(text=speed.device),
    )


def _projection(evidence: Evidence, corpus: str) -> Table:
    rates, sizes, seed = image_rate(evidence, corpus), bytes_per_image(evidence, corpus), qps_v28(evidence, corpus)
    columns = (
        Column(heading="Encoder"),
        Column(heading="bytes/image", numeric=True, explain="As stored, measured"),
        Column(heading="time", group="1M images, projected", numeric=True),
        Column(heading="storage", group="1M images, projected", numeric=True),
        Column(heading="qps_v28", numeric=True, explain="The V28 seed's figure: images over all forward time"),
    )
    rows = []
    for name in sorted({*rates, *sizes}):
        seconds = MILLION / rates[name].stages["forward"].median if name in rates else None
        stored = sizes.get(name)
        total = MILLION * stored if stored is not None else None
        rows.append(
            (
                Cell(text=name),
                Cell(text=show.size(stored), sort=show.exact(stored)),
                Cell(text=show.duration(seconds), sort=show.exact(seconds)),
                Cell(text=show.size(total), sort=show.exact(total)),
                Cell(text=show.significant(seed.get(name)), sort=show.exact(seed.get(name))),
            )
        )
    return Table(
        id=f"throughput-{corpus}-projection",
        caption=f"{corpus} · cost of an index",
        columns=columns,
        rows=tuple(rows),
        groups=heading_groups(columns),
        note="Projected: the measured forward rate and bytes per image, times a million; nothing of that size was run. "
        "qps_v28 divides the images by the forward time of images and captions together, as the V28 seed did: "
        "to compare with its table only.",
        sortable=True,
    )
