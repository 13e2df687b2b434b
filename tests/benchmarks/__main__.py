"""``make bench``: every figure beside its peer in the same run, into RESULTS.md and results.json.

``make bench ONLY=maxsim`` runs one group (the part of the file name after ``bench_``) and keeps the others' rows;
``QUICK=1`` runs small versions that only show that the benchmarks still work, and writes nothing.
"""

from __future__ import annotations

import importlib
import json
import operator
import os
import platform
import sys
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from tasks.encoders.device import device_name
from tasks.runtime.versions import library_versions, versions_of
from tests.benchmarks.rows import Row

HERE = Path(__file__).parent
TABLE = HERE / "RESULTS.md"
ROWS = HERE / "results.json"
PEERS = (
    "clip_benchmark",
    "mteb",
    "sentence-transformers",
    "maxsim-cpu",
    "eccv_caption",
    "ranx",
    "pyarrow",
    "webdataset",
)
COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}


def verdict(row: Row) -> str:
    """Whether a figure meets its bar.

    Examples:
        >>> verdict(Row("x", 2.5, "×", "<= 3")), verdict(Row("x", 2.5, "×", ">= 3")), verdict(Row("x", 2.5, "s"))
        ('met', 'NOT MET', '')
    """
    if not row.bar:
        return ""
    sign, bound = row.bar.split()
    return "met" if COMPARE[sign](row.value, float(bound)) else "NOT MET"


def groups() -> list[str]:
    """Names of the benchmark groups, in the order of their files."""
    return sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py"))


def main(only: list[str]) -> int:
    """Run groups and write the table; returns 1 if a bar was missed or a group broke down."""
    unknown = sorted(set(only) - set(groups()))
    if unknown:
        sys.stderr.write(f"no benchmark {', '.join(unknown)}; there are {', '.join(groups())}\n")
        return 2
    quick = bool(os.environ.get("QUICK"))
    kept: dict[str, dict[str, object]] = json.loads(ROWS.read_text()) if ROWS.exists() else {}
    missed = 0
    for group in only or groups():
        sys.stderr.write(f"{group} …\n")
        try:
            rows = importlib.import_module(f"tests.benchmarks.bench_{group}").run(quick=quick)
        except Exception:  # noqa: BLE001 - the other groups' hours are not lost; this one keeps the rows of its last run
            traceback.print_exc()
            missed += 1
            continue
        for row in rows:
            sys.stderr.write(f"  {row.name}: {row.value:.4g} {row.unit} {row.bar} {verdict(row)}\n")
        missed += sum(verdict(row) == "NOT MET" for row in rows)
        kept[group] = {
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "machine": f"{device_name('cpu')}, {os.cpu_count()} cores, {platform.system()}",
            "versions": library_versions() | versions_of(PEERS),
            "rows": [row._asdict() for row in rows],
        }
        if not quick:
            ROWS.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
            TABLE.write_text(table(kept))
    return 1 if missed else 0


def table(kept: dict[str, dict[str, object]]) -> str:
    """The markdown of all groups."""
    judged = [Row(**entry) for record in kept.values() for entry in record["rows"]]  # type: ignore[attr-defined]
    missed = [row for row in judged if verdict(row) == "NOT MET"]
    n_bars = sum(bool(row.bar) for row in judged)
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench`: figures beside their peers, measured in the same run.",
        f"Of {n_bars} figures with a bar {n_bars - len(missed)} meet it.",
        "",
    ]
    if missed:
        lines += ["| misses its bar | value | bar | note |", "|---|---:|---|---|"]
        lines += [f"| {row.name} | {row.value:.4g} {row.unit} | {row.bar} | {row.note} |" for row in missed]
        lines.append("")
    for group, record in sorted(kept.items()):
        versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())  # type: ignore[attr-defined]
        lines += [f"## {group}", "", f"{record['date']}, {record['machine']}; {versions}.", ""]
        lines += ["| what | value | bar | | peer | note |", "|---|---:|---|---|---|---|"]
        for entry in record["rows"]:  # type: ignore[attr-defined]
            row = Row(**entry)
            lines.append(
                f"| {row.name} | {row.value:.4g} {row.unit} | {row.bar} | {verdict(row)} | {row.peer} | {row.note} |"
            )
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
