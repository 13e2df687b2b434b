"""Speed: measured throughput of every stage, the cost of indexing a million images, and accuracy against speed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import altair as alt

from capim.reports import format as show
from capim.reports.elements import charts, words
from capim.reports.elements.page import Cell, Chart, Section, Table
from capim.reports.elements.tables import ColumnOf, absent, measures, numbers, pivot, result_column, texts, value
from capim.reports.rows.report_data import ReportData, goodness
from capim.reports.rows.speed import STAGES, Speed, bytes_per_image, image_rate, speed_ratio, speeds
from capim.reports.rows.standing import contenders
from capim.store.schema import Result

MILLION = 1_000_000
SIZE = "The vectors of an image: their mean number, times components, times bytes of a stored component"


def section(data: ReportData) -> Section:
    """Two tables over all corpora with timed batches."""
    measured = speeds(data)
    return Section(
        id="throughput",
        title="Throughput by stage",
        lead="Items per second of each stage: the median over the batches of a corpus, without the warm-up, and over "
        "corpora the geometric mean, with the lowest and the highest corpus. Each stage is timed separately; the "
        "pipeline runs them in parallel.",
        blocks=(_stages(measured), _projection(data)) if measured else (),
    )


def _stages(measured: list[Speed]) -> Table:
    def latency_column(i: int, percentile: str) -> ColumnOf[Speed]:
        group = "latency of a forward batch"
        return measures(percentile, lambda s: s.latency[i] if s.latency else None, show.duration, group=group)

    def stage_column(stage: str) -> ColumnOf[Speed]:
        return numbers(stage, lambda s: _rate(s, stage), group="items per second")

    def items(s: Speed) -> Cell:
        return Cell(text=f"{s.modality}s", title=f"{s.n_items:,} in {show.count(s.n_batches, 'batch', 'batches')}")

    return pivot(
        "throughput-stages",
        "Encoding",
        measured,
        texts("Encoder", lambda s: s.encoder),
        texts("items", items),
        numbers("batches", lambda s: value(s.n_batches, f"{s.n_batches:,}")),
        *(stage_column(stage) for stage in STAGES if any(stage in speed.stages for speed in measured)),
        *(latency_column(i, percentile) for i, percentile in enumerate(("p50", "p95", "p99"))),
        measures("peak memory", lambda s: s.peak_memory_bytes, show.size, group="setting"),
        numbers("batch", lambda s: value(s.batch_size, str(s.batch_size)), group="setting"),
        texts("precision", lambda s: s.precision, group="setting"),
        texts("device", lambda s: s.device, group="setting"),
    )


def _rate(speed: Speed, stage: str) -> Cell:
    """The speed of a stage with the lowest and the highest corpus; whole numbers from 100 on."""
    if (rate := speed.stages.get(stage)) is None:
        return absent("not measured")
    low, high = min(rate.by_corpus.values()), max(rate.by_corpus.values())
    span = show.span(low, high, 0 if low >= 100 else 1) if low != high else ""
    return value(rate.mean, show.significant(rate.mean), note=span)


def rate_cell(speed: Speed | None) -> Cell:
    """Images per second with the number of batches."""
    if speed is None:
        return absent("no batch was timed apart from the warm-up")
    rate, batches = speed.stages["forward"], show.count(speed.n_batches, "batch", "batches")
    setting = f"{speed.device}, {speed.precision}, batch size {speed.batch_size}"
    corpora = show.corpora(len(rate.by_corpus))
    return value(rate.mean, show.significant(rate.mean), note=batches, title=f"{setting}; {batches} of {corpora}")


def _projection(data: ReportData) -> Table:
    rates, sizes = image_rate(data), bytes_per_image(data)
    seconds = {name: MILLION / speed.stages["forward"].mean for name, speed in rates.items()}
    stored = {name: MILLION * size for name, size in sizes.items()}
    return pivot(
        "throughput-projection",
        "Cost of an index",
        sorted({*rates, *sizes}),
        texts("Encoder", str),
        measures("bytes/image", sizes.get, show.size, explain=SIZE),
        measures("time", seconds.get, show.duration, group="1M images, projected"),
        measures("storage", stored.get, show.size, group="1M images, projected"),
        note="Projected: the measured forward rate and bytes per image, times a million; not measured at that size.",
    )


def accuracy_over_cost(data: ReportData, corpus: str, protocol: str, metric: str) -> Chart | None:
    """The chart of a corpus: over speed, or over the size of an image where fewer than two speeds are known.

    None unless at least two encoders that are not at chance have both figures, and these differ in the cost.
    """
    rates, of = image_rate(data), data.protocol(corpus, protocol)
    known = contenders(data, corpus, protocol, metric)
    fast = sum(r.encoder in rates for r in known) > 1
    costs = {n: s.stages["forward"].mean for n, s in rates.items()} if fast else bytes_per_image(data)
    rows = [r for r in known if r.encoder in costs]
    if len({costs[r.encoder] for r in rows}) < 2:
        return None

    def cost(name: str) -> str:
        return f"{show.significant(costs[name])} images/s" if fast else f"{show.size(costs[name])} per image"

    names = [r.encoder for r in rows]
    best = pareto([(costs[r.encoder] * (1 if fast else -1), goodness(r)) for r in rows])
    alike = not fast or len({(rates[name].device, rates[name].precision) for name in names}) == 1
    frontier = {name: alike and on_it for name, on_it in zip(names, best, strict=True)}
    shown = not fast or _is_shown(rates, rows, best)
    points = [
        charts.interval_point(r, rate=costs[name], speed=cost(name), frontier=frontier[name])
        for name, r in zip(names, rows, strict=True)
    ]
    unbeaten = show.listing([name for name in names if frontier[name]], "or")
    claim = f" No other encoder is both {'faster' if fast else 'smaller'} and better than {unbeaten}." * shown
    by_point = " ".join(f"{name}: {p['text']} at {p['speed']}." for name, p in zip(names, points, strict=True))
    table = pivot(
        f"speed-{corpus}-data",
        f"Accuracy and {'speed' if fast else 'size'} on {corpus}",
        names,
        texts("Encoder", str),
        result_column(data, corpus, protocol, metric, heading=f"{metric}, {of.titled}", plain=True),
        numbers("images/s", lambda name: rate_cell(rates[name]))
        if fast
        else measures("size/image", costs.get, show.size),
        *([texts("on the frontier", lambda name: "yes" if frontier[str(name)] else "no")] if alike else []),
    )
    devices = sorted({rates[name].device for name in names}) if fast else []
    line = "Dashed line: Pareto frontier" if alike else "No frontier: not all measured on one device in one precision"
    line += " of the measured values, not all of which are shown to differ in speed" if alike and not shown else ""
    up = "down" if rows[0].lower_is_better else "up"
    return charts.finish(
        _picture(points, names, f"{metric}, {of.titled}, percent", metric, data.encoder_names(), fast=fast),
        name=f"speed-{corpus}",
        title=f"Accuracy against {'speed' if fast else 'size'}, {corpus}",
        alt_text=f"{metric}, {of.title}, over {'images per second' if fast else 'bytes per image'} for "
        f"{show.encoders(len(rows))}. {by_point}{claim}",
        data=table,
        note=f"{line}; {up} and to the {'right' if fast else 'left'} is better."
        + (f" Measured on {show.listing(devices)}." if fast else "")
        + f" {words.not_drawn(data, corpus, protocol, metric)}".rstrip(),
    )


def _is_shown(rates: dict[str, Speed], rows: Sequence[Result], best: list[bool]) -> bool:
    """True if every pair of speeds can be compared, and each encoder off the frontier is shown to be slower."""
    pairs = [(a, b, speed_ratio(rates[a.encoder], rates[b.encoder])) for a, b in permutations(rows, 2)]
    slower = {b.encoder for a, b, ratio in pairs if ratio and ratio.low > 1 and goodness(a) >= goodness(b)}
    off = {r.encoder for r, on_it in zip(rows, best, strict=True) if not on_it}
    return all(ratio for *_, ratio in pairs) and slower == off


def _picture(
    points: list[charts.Point], names: list[str], y_title: str, metric: str, everyone: list[str], *, fast: bool
) -> alt.LayerChart:
    colour, shape = charts.by_name(names, everyone)
    cost = alt.Tooltip("speed:N", title="speed" if fast else "size")
    x_title = "images per second (forward pass, logarithmic)" if fast else "bytes per image (logarithmic)"
    base = alt.Chart(alt.Data(values=points)).encode(
        x=alt.X("rate:Q", title=x_title, scale=alt.Scale(type="log", nice=False, padding=20)),
        tooltip=[alt.Tooltip("encoder:N"), alt.Tooltip("text:N", title=metric), cost],
    )
    y = alt.Y("ci_low:Q", title=y_title, scale=alt.Scale(zero=False))
    step = "step-before" if fast else "step-after"
    frontier = base.transform_filter("datum.frontier").encode(y="value:Q")
    dashed = frontier.mark_line(interpolate=step, strokeDash=[4, 4], color="currentColor", opacity=0.5)
    intervals = charts.intervals(base.encode(color=colour), y, size=110, shape=shape)
    return alt.layer(dashed, *intervals).properties(width=charts.WIDTH, height=320)


def pareto(points: list[tuple[float, float]]) -> list[bool]:
    """Whether no other point is at least as high in both and higher in one.

    Examples:
        >>> pareto([(1.0, 5.0), (2.0, 3.0), (1.5, 2.0)])
        [True, True, False]
    """
    return [not any(x >= px and y >= py and (x, y) != (px, py) for x, y in points) for px, py in points]
