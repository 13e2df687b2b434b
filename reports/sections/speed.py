"""Quality and cost: the mean against speed or size, and the throughput of every stage."""

from __future__ import annotations

from capim.reports import format as show
from capim.reports.elements.drawings import Marked, over_cost
from capim.reports.elements.page import Block, Cell, Chart, Section, Table
from capim.reports.elements.tables import ColumnOf, absent, numbers, pivot, texts, value
from capim.reports.rows.choice import overall
from capim.reports.rows.report_data import ReportData
from capim.reports.rows.speed import STAGES, Speed, bytes_per_image, image_rate, speeds


def section(data: ReportData) -> Section:
    """Return the chart, and a folded table over all corpora with timed batches."""
    measured = speeds(data)
    chart = quality_over_cost(data)
    blocks: list[Block] = [chart] if chart else []
    if measured:
        blocks.append(_stages(measured))
    return Section(id="cost", title="Cost", blocks=tuple(blocks))


def _stages(measured: list[Speed]) -> Table:
    def latency_column(i: int, percentile: str) -> ColumnOf[Speed]:
        def cell(s: Speed) -> Cell:
            seconds = s.latency[i] if s.latency else None
            return value(seconds, show.duration(seconds))

        return numbers(percentile, cell, group="latency of a forward batch")

    def stage_column(stage: str) -> ColumnOf[Speed]:
        return numbers(stage, lambda s: _rate(s, stage), group="items per second")

    def items(s: Speed) -> Cell:
        return Cell(text=f"{s.modality}s", title=f"{s.n_items:,} in {show.count(s.n_batches, 'batch', 'batches')}")

    return pivot(
        "throughput-stages",
        "Throughput of every stage",
        measured,
        texts("Encoder", lambda s: s.encoder),
        texts("items", items),
        numbers("batches", lambda s: value(s.n_batches, f"{s.n_batches:,}")),
        *(stage_column(stage) for stage in STAGES if any(stage in speed.stages for speed in measured)),
        *(latency_column(i, percentile) for i, percentile in enumerate(("p50", "p95", "p99"))),
        numbers("peak memory", lambda s: value(s.peak_memory_bytes, show.size(s.peak_memory_bytes)), group="setting"),
        numbers("batch", lambda s: value(s.batch_size, str(s.batch_size)), group="setting"),
        texts("precision", lambda s: s.precision, group="setting"),
        texts("device", lambda s: s.device, group="setting"),
        note="Items per second: the median over the batches of a corpus, without the warm-up, and over corpora the "
        "geometric mean, with the lowest and the highest corpus. Each stage is timed by itself; they run in parallel.",
        folded="Throughput of every stage",
    )


def _rate(speed: Speed, stage: str) -> Cell:
    """Return the speed of a stage with the lowest and the highest corpus; whole numbers from 100 on."""
    if stage not in speed.stages:
        return absent("not measured")
    low, high, mean = min(speed.stages[stage].values()), max(speed.stages[stage].values()), speed.rate(stage)
    span = show.span(low, high, 0 if low >= 100 else 1) if low != high else ""
    return value(mean, show.significant(mean), note=span)


def quality_over_cost(data: ReportData) -> Chart | None:
    """Return the mean over the tasks over speed, or over the size of an image if fewer than two speeds compare.

    None unless at least two encoders that are ranked have both results, and these differ in the cost.
    """
    placed = {each.encoder: each for each in overall(data).order}
    rates = {name: speed for name, speed in image_rate(data).items() if name in placed}
    fast = len(rates) > 1 and len({(of.device, of.precision) for of in rates.values()}) == 1
    costs = {name: of.rate("forward") for name, of in rates.items()} if fast else bytes_per_image(data)
    names = [name for name in placed if name in costs]
    if len({costs[name] for name in names}) < 2:
        return None

    def cost(name: str) -> str:
        return f"{show.significant(costs[name])} images/s" if fast else f"{show.size(costs[name])} per image"

    points = []
    for name in names:
        of = placed[name]
        points.append(Marked(name, of.kind, of.value, of.value, of.value, show.number(of.value), costs[name]))
    best = pareto([(costs[name] * (1 if fast else -1), placed[name].value) for name in names])
    unbeaten = show.listing([name for name, on_it in zip(names, best, strict=True) if on_it], "or")
    claim = f" No other encoder is both {'faster' if fast else 'smaller'} and better than {unbeaten}, as measured."
    devices = f" Measured on {show.listing(sorted({of.device for of in rates.values()}))}." if fast else ""
    by_point = " ".join(f"{each.name}: {each.text} at {cost(each.name)}." for each in points)
    return Chart(
        id="quality-cost",
        title=f"Mean over the tasks against {'speed' if fast else 'size'}",
        alt=f"Mean over the tasks, percent, over {'images per second' if fast else 'bytes per image'}. {by_point}",
        svg=over_cost(points, "images per second" if fast else "bytes per image", "mean, percent"),
        note=f"Up and to the {'right' if fast else 'left'} is better.{claim}{devices}",
    )


def pareto(points: list[tuple[float, float]]) -> list[bool]:
    """True if no other point is at least as high in both and higher in one.

    Examples:
        >>> pareto([(1.0, 5.0), (2.0, 3.0), (1.5, 2.0)])
        [True, True, False]
    """
    return [not any(x >= px and y >= py and (x, y) != (px, py) for x, y in points) for px, py in points]
