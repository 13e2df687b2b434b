"""What survives when things go wrong: the faults of ``tests/faults``, by kind.

Run alone, with a line for each fault: ``python -m tests.faults``.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks.rows import Row
from tests.faults.course import Verdict, summary, undergo
from tests.faults.faults import chosen
from tests.faults.process import import_libraries


def run(quick: bool = False) -> list[Row]:
    """The share of faults of each kind after which the store was clean and every figure that of an undisturbed run."""
    begun = time.monotonic()
    import_libraries()
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        verdicts = [v for v in undergo(chosen(quick=quick), Path(folder), seed=0, show=sys.stderr) if v.tried]
    seconds = time.monotonic() - begun
    rows = [Row("share of faults survived", _share(verdicts), "", ">= 1", "an undisturbed run", summary(verdicts))]
    for kind in dict.fromkeys(verdict.fault.kind for verdict in verdicts):
        of_kind = [verdict for verdict in verdicts if verdict.fault.kind == kind]
        lost = ", ".join(verdict.fault.name for verdict in of_kind if not verdict.survived)
        counts = kind == "hostile inputs"
        seen = "; ".join(verdict.detail for verdict in of_kind) if counts else f"{len(of_kind)} tried"
        rows.append(Row(f"share of faults survived: {kind}", _share(of_kind), "", ">= 1", "", lost or seen))
    return [*rows, Row("faults: time of all", seconds, "s")]


def _share(verdicts: list[Verdict]) -> float:
    return sum(verdict.survived for verdict in verdicts) / len(verdicts)
