"""How time and memory grow with the corpus: the same commands on a store of 1, 2, 4 and 8 times the items.

An exponent is the least-squares slope of the logarithm of CPU time or peak memory over the logarithm of the number of
images. Scoring compares every caption with every image, so its exponent is 2; all other steps should be linear (1).
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from tests.benchmarks.commands import capim
from tests.benchmarks.own_process import alone
from tests.benchmarks.planted import plant
from tests.benchmarks.rows import Row
from tests.reports.large import MODELS

SIZES = (625, 1250, 2500, 5000)
ENCODERS = [name for name in MODELS if name.startswith(("dfn5b", "jina", "xlm"))]
BAR = "<= 1.15"
# step -> its command; the steps that should be linear
LINEAR = {
    "writing embeddings": "plant",
    "reading vectors": "evaluate",
    "intervals": "evaluate",
    "writing rows": "evaluate",
    "comparisons": "compare",
    "diagnosis": "analyse",
    "report": "report",
}
COMMANDS = ("evaluate", "compare", "analyse", "report")


def run(quick: bool = False) -> list[Row]:
    """Rows of RESULTS.md; ``quick`` takes two sizes of a hundred images or two."""
    sizes = (100, 200) if quick else SIZES
    found = [measured(n) for n in sizes]
    rows = [
        _row(f"growth exponent of CPU time: {step}", sizes, [one[step] for one in found], "s", "" if quick else BAR)
        for step in LINEAR
    ]
    scoring = [one["scoring"] for one in found]
    rows.append(
        _row("growth exponent of CPU time: scoring", sizes, scoring, "s", "", "2 is expected: queries x gallery")
    )
    for command in ("plant", *COMMANDS):
        # memory of the program itself: the line through the sizes, extrapolated to no images
        held = [one[f"{command}, GiB"] for one in found]
        start = max(0.0, float(np.polyfit(sizes, held, 1)[1]))
        name, more = f"growth exponent of peak memory: {command}", f"{start:.2f} GiB extrapolated to no images"
        rows.append(_row(name, sizes, held, "GiB", "" if quick else BAR, more))
    return rows


def measured(n_images: int) -> dict[str, float]:
    """Processor seconds by step, and GiB by command."""
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder)
        how = {"n_images": n_images, "encoders": ENCODERS, "n_patches": 0, "pictures": True}
        planted = alone(plant, workspace / "store", **how)
        found = {"writing embeddings": planted["processor"], "plant, GiB": planted["peak_gib"]}
        for command in COMMANDS:
            done = capim(command, "--workspace", workspace)
            found[f"{command}, GiB"] = done.taken.peak_gib
            found |= {step: done.processor[step] for step, where in LINEAR.items() if where == command}
            if command == "evaluate":
                found["scoring"] = done.processor["scoring"]
    return found


def exponent(sizes: tuple[int, ...], values: list[float]) -> float:
    """Slope of the logarithms.

    Examples:
        >>> round(exponent((1, 2, 4), [3.0, 12.0, 48.0]), 6)
        2.0
    """
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def _row(name: str, sizes: tuple[int, ...], values: list[float], unit: str, bar: str, more: str = "") -> Row:
    listed = ", ".join(f"{value:.2f}" for value in values)
    note = f"{listed} {unit} at {', '.join(map(str, sizes))} images with 5 captions each, {len(ENCODERS)} encoders"
    return Row(name, exponent(sizes, values), "", bar, note=f"{note}; {more}" if more else note)
