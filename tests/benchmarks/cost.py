"""What 100 million images cost, from the rows of results.json: the table of docs/scale.md."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

PAGE = Path(__file__).resolve().parents[2] / "docs" / "scale.md"
START, END = "<!-- cost: written by make bench -->\n", "<!-- end of cost -->\n"
MILLIONS, DIM = 100, 512
DOLLARS_PER_HOUR = {"one H100, 16 cores": 3.0, "2 cores": 0.1}
DOLLARS_PER_GB_MONTH = 0.023
FROM_FILES = "images per second from files, as a share of the slower of preparing and forward pass alone"


class Step(NamedTuple):
    """One kind of work, and the row of the benchmarks that tells what a million images take.

    ``number`` is searched for in the row's note; without it, the row's value counts. Seconds of a million images are
    ``factor`` times that number, or divided by it where the row is a rate.
    """

    what: str
    group: str
    row: str
    factor: float
    machine: str
    number: str = ""
    is_rate: bool = False


CARD, CORES = "one H100, 16 cores", "2 cores"
FLOW = r"flow (\d+)/s"
WRITTEN = "CPU time per row, last tenth relative to the same rows in a new set, 1,500,000 captions × 768 float16"
STEPS = (
    Step("encode, ViT-B/32", "gpu", f"ViT-B/32, float16: {FROM_FILES}", 1e6, CARD, FLOW, True),
    Step("encode, ViT-L/14-336", "gpu", f"ViT-L/14-336, float16: {FROM_FILES}", 1e6, CARD, FLOW, True),
    Step("write 512 × float16", "store_scale", WRITTEN, 2 * DIM, CORES, r"(\d+) MB/s", True),
    Step("seal", "store_scale", "time to seal, 1,000,000 × 768 float16", DIM / 768, CORES),
    Step("read, checksums compared", "store_scale", "time to read, 1,000,000 × 768 float16", DIM / 768, CORES),
    Step("score 25,010 captions, 512 numbers", "gpu", "dense, 1,000,000 images: time", 1, CARD),
    Step("score 25,000 queries, 1,030 vectors a page", "gpu", "MaxSim, 5,000 pages: time", 200, CARD),
)


def cost_table(kept: Mapping[str, Any]) -> str:
    """The markdown table, from the records of results.json by group."""
    lines = [
        f"| step | row of the benchmarks | a million | {MILLIONS} million | machine | dollars |",
        "|---|---|---:|---:|---|---:|",
    ]
    for step in STEPS:
        row = _row(kept, step.group, step.row)
        found = re.search(step.number, row["note"]) if step.number else None
        number = float(found[1]) if found else float(row["value"])
        seconds = step.factor / number if step.is_rate else step.factor * number
        hours = seconds * MILLIONS / 3600
        dollars = max(0.01, hours * DOLLARS_PER_HOUR[step.machine])
        figures = f"{seconds:,.{2 * (seconds < 100)}f} s | {hours:,.2f} h | {step.machine} | {dollars:,.2f}"
        lines.append(f"| {step.what} | {step.group}: {step.row} | {figures} |")
    name = "bytes on disk per byte of vectors, 25,010 × 1024 float16"
    gigabytes = _row(kept, "store", name)["value"] * 2 * DIM * MILLIONS / 1000
    dollars = gigabytes * DOLLARS_PER_GB_MONTH
    lines.append(
        f"| keep 512 × float16, a month | store: {name} | {gigabytes / MILLIONS:.3g} GB | {gigabytes:,.3g} GB | "
        f"object storage | {dollars:,.2f} |"
    )
    return "".join(f"{line}\n" for line in lines)


def write_cost(kept: Mapping[str, Any]) -> None:
    """Put the table of these records into docs/scale.md."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
    PAGE.write_text(before + START + cost_table(kept) + END + rest.partition(END)[2], encoding="utf-8")


def _row(kept: Mapping[str, Any], group: str, name: str) -> dict[str, Any]:
    for row in kept[group]["rows"]:
        if row["name"] == name:
            return row
    raise ValueError(f"results.json has no row {name!r}; measure it: make bench ONLY={group}")
