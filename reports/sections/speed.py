"""Speed: measured throughput of every stage, the cost of indexing a million images, and accuracy against speed."""

from __future__ import annotations

from typing import Any

import altair as alt

from capim.reports import format as show
from capim.reports.elements import charts
from capim.reports.elements.page import Block, Cell, Chart, Section, Table
from capim.reports.elements.tables import ColumnOf, absent, measures, numbers, pivot, result_column, texts, value
from capim.reports.rows.report_data import ReportData, goodness
from capim.reports.rows.speed import STAGES, Speed, Spent, bytes_per_image, image_rate, qps_v28, speeds, spent

MILLION = 1_000_000


def section(data: ReportData) -> Section:
    """Two tables per corpus with timed batches, and one of the tokens that endpoints counted."""
    blocks: list[Block] = []
    measured = speeds(data)
    for corpus in data.corpus_names():
        on_corpus = [speed for speed in measured if speed.corpus == corpus]
        if on_corpus:
            blocks += [_stages(corpus, on_corpus), _projection(data, corpus)]
        if paid := spent(data, corpus):
            blocks.append(_tokens(corpus, paid))
    return Section(
        id="throughput",
        title="Throughput by stage",
        lead="Items per second of each stage: median and interquartile range over batches, without the warm-up. "
        "Each stage is timed separately; the pipeline runs them in parallel.",
        blocks=tuple(blocks),
    )


def _stages(corpus: str, measured: list[Speed]) -> Table:
    def latency_column(i: int, percentile: str) -> ColumnOf[Speed]:
        group = "latency of a forward batch"
        return measures(percentile, lambda s: s.latency[i] if s.latency else None, show.duration, group=group)

    def stage_column(stage: str) -> ColumnOf[Speed]:
        return numbers(stage, lambda s: _rate(s, stage), group="items per second")

    def items(s: Speed) -> Cell:
        return Cell(text=f"{s.modality}s", title=f"{s.n_items:,} in {s.n_batches:,} batches")

    return pivot(
        f"throughput-{corpus}",
        f"{corpus} · encoding",
        measured,
        texts("Encoder", lambda s: s.encoder),
        texts("items", items),
        *(stage_column(stage) for stage in STAGES if any(stage in speed.stages for speed in measured)),
        *(latency_column(i, percentile) for i, percentile in enumerate(("p50", "p95", "p99"))),
        measures("peak memory", lambda s: s.peak_memory_bytes, show.size, group="setting"),
        numbers("batch", lambda s: value(s.batch_size, str(s.batch_size)), group="setting"),
        texts("precision", lambda s: s.precision, group="setting"),
        texts("device", lambda s: s.device, group="setting"),
    )


def _rate(speed: Speed, stage: str, title: str = "") -> Cell:
    """Median and interquartile range of the batches' rates; whole numbers from 100 on."""
    if (rate := speed.stages.get(stage)) is None:
        return absent("not measured")
    span = show.span(rate.lower, rate.upper, 0 if rate.lower >= 100 else 1) if rate.lower != rate.upper else ""
    return value(rate.median, show.significant(rate.median), note=span, title=title)


def rate_cell(speed: Speed | None) -> Cell:
    """Images per second with the interquartile range of the batches."""
    if speed is None:
        return absent("no batch was timed apart from the warm-up")
    setting = f"{speed.device}, {speed.precision}, batch size {speed.batch_size}"
    return _rate(speed, "forward", f"{setting}; interquartile range of {speed.n_batches} batches")


def _projection(data: ReportData, corpus: str) -> Table:
    rates, sizes, seed = image_rate(data, corpus), bytes_per_image(data, corpus), qps_v28(data, corpus)
    seconds = {name: MILLION / speed.stages["forward"].median for name, speed in rates.items()}
    stored = {name: MILLION * size for name, size in sizes.items()}
    of_seed = "As in tables of capim's predecessor, V28: images over the forward time of images and captions"
    return pivot(
        f"throughput-{corpus}-projection",
        f"{corpus} · cost of an index",
        sorted({*rates, *sizes}),
        texts("Encoder", str),
        measures("bytes/image", sizes.get, show.size, explain="As stored"),
        measures("time", seconds.get, show.duration, group="1M images, projected"),
        measures("storage", stored.get, show.size, group="1M images, projected"),
        measures("qps_v28", seed.get, show.significant, explain=of_seed),
        note="Projected: the measured forward rate and bytes per image, times a million; not measured at that size. "
        "qps_v28 divides the number of images by the forward time of images and captions together, as capim's "
        "predecessor V28 did; compare it only with tables of that script.",
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
    )


def accuracy_over_cost(data: ReportData, corpus: str, protocol: str, metric: str) -> Chart | None:
    """The chart of a corpus: over speed, or over the size of an image where fewer than two speeds are known.

    None unless at least two encoders have both figures, and these differ in the cost.
    """
    rates, of = image_rate(data, corpus), data.protocol(corpus, protocol)
    fast = len(rates) > 1
    costs = {name: speed.stages["forward"].median for name, speed in rates.items()} if fast else {}
    costs = costs or bytes_per_image(data, corpus)
    rows = [r for r in data.ranked(corpus, protocol, metric) if r["encoder"] in costs and r["value"] is not None]
    if len({costs[r["encoder"]] for r in rows}) < 2:
        return None

    def cost(name: str) -> str:
        return f"{show.significant(costs[name])} images/s" if fast else f"{show.size(costs[name])} per image"

    names, medians = [r["encoder"] for r in rows], [costs[r["encoder"]] for r in rows]
    best = pareto([(rate if fast else -rate, goodness(r)) for rate, r in zip(medians, rows, strict=True)])
    points = [
        charts.interval_point(r, rate=rate, speed=cost(r["encoder"]), frontier=on_it)
        for r, rate, on_it in zip(rows, medians, best, strict=True)
    ]
    frontier = dict(zip(names, best, strict=True))
    unbeaten = show.listing([name for name in names if frontier[name]], "or")
    by_point = " ".join(f"{p['encoder']}: {p['text']} at {p['speed']}." for p in points)
    table = pivot(
        f"speed-{corpus}-data",
        f"Accuracy and {'speed' if fast else 'size'} on {corpus}",
        names,
        texts("Encoder", str),
        result_column(data, corpus, protocol, metric, heading=f"{metric}, {of.titled}", plain=True),
        numbers("images/s", lambda name: rate_cell(rates[name]))
        if fast
        else measures("size/image", costs.get, show.size),
        texts("on the frontier", lambda name: "yes" if frontier[name] else "no"),
    )
    devices = sorted({rates[name].device for name in names}) if fast else []
    up = "down" if rows[0]["lower_is_better"] else "up"
    return charts.finish(
        _picture(points, f"{metric}, {of.titled}, percent", metric, data.encoder_names(), fast=fast),
        name=f"speed-{corpus}",
        title=f"Accuracy against {'speed' if fast else 'size'}, {corpus}",
        alt_text=f"{metric}, {of.title}, over {'images per second' if fast else 'bytes per image'} for "
        f"{show.count(len(rows), 'encoder')}. {by_point} No other encoder is both {'faster' if fast else 'smaller'} "
        f"and better than {unbeaten}.",
        data=table,
        note=f"Dashed line: Pareto frontier; {up} and to the {'right' if fast else 'left'} is better."
        + (f" Measured on {show.listing(devices)}." if fast else ""),
    )


def _picture(
    points: list[dict[str, Any]], y_title: str, metric: str, everyone: list[str], *, fast: bool
) -> alt.LayerChart:
    colour, shape = charts.by_name([p["encoder"] for p in points], everyone)
    x_title = "images per second (forward pass, logarithmic)" if fast else "bytes per image (logarithmic)"
    base = alt.Chart(alt.Data(values=points)).encode(
        x=alt.X("rate:Q", title=x_title, scale=alt.Scale(type="log", nice=False, padding=20)),
        tooltip=[alt.Tooltip("encoder:N"), alt.Tooltip("text:N", title=metric), alt.Tooltip("speed:N")],
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
