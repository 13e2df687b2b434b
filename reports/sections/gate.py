"""The reference gate: results of this store beside published figures for the same model and protocol."""

from __future__ import annotations

from capim.reports import format as show
from capim.reports.elements.page import Block, Cell, Mark, Notice, Section, Table
from capim.reports.elements.tables import measures, metric_title, numbers, pivot, texts, value
from capim.reports.rows.names import named
from capim.reports.rows.report_data import ReportData, Row, detail_of

ANALYSIS = "reference"
VERDICTS: dict[str, Mark] = {"suspect": "bad", "other protocol": "warn", "reproduced": "good"}  # in this order


def section(data: ReportData) -> Section:
    """Suspect results first, as a notice; then every result with a reference."""
    rows = [r for r in data.slices if r["analysis"] == ANALYSIS]
    suspects = [r for r in rows if r["level_name"] == "suspect"]
    parts = sorted({f"{r['corpus']} is a {r['reason']}" for r in rows if r["level_name"] == "not compared"})
    compared = [r for r in rows if r["level_name"] not in ("no reference", "not compared")]
    unpublished = {r["encoder"] for r in rows if r["level_name"] == "no reference"}
    without = sorted(unpublished - {r["encoder"] for r in compared})
    blocks: list[Block] = []
    if suspects:
        title = f"{show.count(len(suspects), 'result')} far from the published figure"
        blocks.append(Notice(title=title, items=tuple(map(_sentence, suspects)), mark="bad"))
    if compared:
        blocks.append(_table(compared))
    return Section(
        id="gate",
        title="Comparison with published figures",
        lead="Each result beside the figure published for the same model and protocol. A suspect result is more often "
        "caused by an error in loading or preprocessing than by a real difference."
        + (f" No published figures for {show.listing(without)}." if without else "")
        + "".join(f" {part}: published figures are of all images." for part in parts),
        blocks=tuple(blocks),
    )


def _source(row: Row) -> str:
    return str(detail_of(row).get("source") or row["feature"])


def _sentence(row: Row) -> str:
    return (
        f"{row['encoder']} on {row['corpus']}, {named(row['protocol'])}, {metric_title(row['metric'])}: "
        f"{show.percent(row['value'])} here, {show.percent(detail_of(row).get('published'))} published "
        f"({_source(row)})" + (f"; {row['reason']}" if row["reason"] else "")
    )


def _table(rows: list[Row]) -> Table:
    order = {verdict: i for i, verdict in enumerate(VERDICTS)}

    def protocol(row: Row) -> str:
        published = detail_of(row).get("published_protocol") or row["protocol"]
        return named(row["protocol"]) + (f"; published: {named(published)}" if published != row["protocol"] else "")

    def here(row: Row) -> Cell:
        return value(row["value"], show.percent(row["value"]), note=show.percent_range(row["ci_low"], row["ci_high"]))

    def difference(row: Row) -> float | None:
        figure = detail_of(row).get("published")
        return None if figure is None or row["value"] is None else row["value"] - figure

    def verdict(row: Row) -> Cell:
        return Cell(text=row["level_name"], mark=VERDICTS.get(row["level_name"], ""), title=row["reason"] or "")

    return pivot(
        "gate-figures",
        "Results here and published figures, percent",
        sorted(
            rows, key=lambda r: (order.get(r["level_name"], 9), r["corpus"], r["encoder"], r["protocol"], r["metric"])
        ),
        texts("Encoder", lambda r: r["encoder"]),
        texts("corpus", lambda r: r["corpus"]),
        texts("task", protocol),
        texts("metric", lambda r: metric_title(r["metric"])),
        numbers("here", here),
        measures("published", lambda r: detail_of(r).get("published"), show.percent),
        measures("difference", difference, show.points, explain="Percentage points"),
        texts("verdict", verdict),
        texts("source", _source),
        sortable=True,
        dense=True,
    )
