"""The reference gate: what this run got beside what is published for the same model and protocol."""

from __future__ import annotations

import json
from typing import Any

from reports import format as show
from reports.elements.cells import metric_title
from reports.elements.page import Block, Cell, Column, Mark, Notice, Section, Table
from reports.rows.report_data import Evidence, Row

ANALYSIS = "reference"
VERDICTS: dict[str, Mark] = {"reproduced": "good", "suspect": "bad", "other protocol": "warn", "no reference": "muted"}


def section(evidence: Evidence) -> Section | None:
    """Suspects first, as a notice; then every figure that has a reference."""
    rows = [r for r in evidence.slices if r["analysis"] == ANALYSIS]
    suspects = [r for r in rows if r["level_name"] == "suspect"]
    compared = [r for r in rows if r["level_name"] != "no reference"]
    if not compared:
        return None
    blocks: list[Block] = []
    if suspects:
        blocks.append(
            Notice(
                title=f"{show.count(len(suspects), 'figure')} far from what is published",
                items=tuple(_sentence(r) for r in suspects),
                mark="bad",
            )
        )
    blocks.append(_table(compared))
    without = sorted({r["encoder"] for r in rows} - {r["encoder"] for r in compared})
    return Section(
        id="gate",
        title="Against published figures",
        lead="Each figure beside the one published for the same model and protocol. A suspect is more often a fault in "
        "loading or preprocessing than a discovery."
        + (f" Nothing is published for {show.listing(without)}." if without else ""),
        blocks=tuple(blocks),
    )


def _detail(row: Row) -> dict[str, Any]:
    detail: dict[str, Any] = json.loads(row["detail"]) if row["detail"] else {}
    return detail


def _sentence(row: Row) -> str:
    detail = _detail(row)
    return (
        f"{row['encoder']} on {row['corpus']}, {row['protocol']} {metric_title(row['metric'])}: "
        f"{show.percent(row['value'])} here, {show.percent(detail.get('published'))} published "
        f"({detail.get('source') or row['feature']})" + (f"; {row['reason']}" if row["reason"] else "")
    )


def _table(rows: list[Row]) -> Table:
    order = {verdict: i for i, verdict in enumerate(("suspect", "other protocol", "reproduced"))}
    rows = sorted(
        rows, key=lambda r: (order.get(r["level_name"], 9), r["corpus"], r["encoder"], r["protocol"], r["metric"])
    )
    return Table(
        id="gate-figures",
        caption="Here and published, percent",
        columns=(
            Column(heading="Encoder"),
            Column(heading="corpus"),
            Column(heading="protocol"),
            Column(heading="metric"),
            Column(heading="here", numeric=True),
            Column(heading="published", numeric=True),
            Column(heading="difference", numeric=True, explain="Percentage points"),
            Column(heading="verdict"),
            Column(heading="source"),
        ),
        rows=tuple(_row(r) for r in rows),
        sortable=True,
        dense=True,
    )


def _row(row: Row) -> tuple[Cell, ...]:
    detail = _detail(row)
    published = detail.get("published")
    difference = None if published is None or row["value"] is None else row["value"] - published
    protocol = detail.get("published_protocol") or row["protocol"]
    return (
        Cell(text=row["encoder"]),
        Cell(text=row["corpus"]),
        Cell(text=row["protocol"] if protocol == row["protocol"] else f"{row['protocol']} (published: {protocol})"),
        Cell(text=metric_title(row["metric"])),
        Cell(
            text=show.percent(row["value"]),
            note=show.percent_range(row["ci_low"], row["ci_high"]),
            sort=show.exact(row["value"]),
        ),
        Cell(text=show.percent(published), sort=show.exact(published)),
        Cell(text=show.points(difference), sort=show.exact(difference)),
        Cell(text=row["level_name"], mark=VERDICTS.get(row["level_name"], ""), title=row["reason"] or ""),
        Cell(text=detail.get("source") or row["feature"]),
    )
