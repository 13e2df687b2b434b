"""``make bench``: measure capim and its peers in the same run, and write RESULTS.md and results.json.

``make bench ONLY=maxsim`` runs one group (the part of the file name after ``bench_``) and keeps the rows of the others;
``QUICK=1`` runs small versions that only show that the benchmarks still work, and writes nothing. This program alone
writes both files: every group carries the commit, the machine and the library versions that produced its rows.
``python -m tests.benchmarks --take FILE GROUP`` takes a group from the results.json of another machine, such as one
with a GPU.
"""

from __future__ import annotations

import json
import operator
import os
import platform
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from capim.tasks.encoders.device import choose_device, device_name
from capim.tasks.references import library_versions, versions_of
from tests.benchmarks.cost import write_cost
from tests.benchmarks.first_page import first_page
from tests.benchmarks.own_process import rows_alone
from tests.benchmarks.rows import Row, measured

HERE = Path(__file__).parent
TABLE = HERE / "RESULTS.md"
ROWS = HERE / "results.json"
PEERS = [
    "clip_benchmark",
    "mteb",
    "sentence-transformers",
    "maxsim-cpu",
    "eccv_caption",
    "ranx",
    "pyarrow",
    "webdataset",
]
COMPARE = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}


def verdict(row: Row) -> str:
    """Whether a figure meets its bar.

    Examples:
        >>> verdict(Row("x", 2.5, "×", "<= 3")), verdict(Row("x", 2.5, "×", ">= 3")), verdict(Row("x", 2.5, "s"))
        ('met', 'NOT MET', '')
    """
    if not row.bar or row.value is None:
        return ""
    sign, bound = row.bar.split()
    return "met" if COMPARE[sign](row.value, float(bound)) else "NOT MET"


def groups() -> list[str]:
    """Names of the benchmark groups, in alphabetical order."""
    return sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py"))


def commit() -> str:
    """The commit that is measured; marked where files differ from it."""
    git = ["git", "-C", str(HERE)]
    head = subprocess.run([*git, "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True, check=True)
    ignored = [f":(exclude,top)tests/benchmarks/{file.name}" for file in (TABLE, ROWS)]
    changed = subprocess.run(
        [*git, "status", "--porcelain", "--", ":/", *ignored], capture_output=True, text=True, check=True
    )
    return head.stdout.strip() + (" with uncommitted changes" if changed.stdout.strip() else "")


def machine() -> str:
    """Processor, with the matrix extensions that decide how fast it multiplies; cores; memory; operating system."""
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    extensions = [name for name in ("amx_bf16", "avx512_bf16", "avx512f") if f" {name} " in flags.replace("\n", " ")]
    memory = psutil.virtual_memory().total / 2**30
    device = choose_device("auto")
    return (
        f"{device_name('cpu')} ({', '.join(extensions) or 'no AVX-512'}), {os.cpu_count()} cores, {memory:.0f} GiB, "
        f"{platform.system()}" + (f", {device_name(device)}" if device.startswith("cuda") else "")
    )


def rows_of(group: str) -> list[Row]:
    """The rows of a group, measured in a new process: memory and threads of earlier groups must not show in them."""
    return rows_alone(measured, group, bool(os.environ.get("QUICK")))


def main(only: list[str]) -> int:
    """Run groups and write the table; returns 1 if a figure misses its bar or a group fails."""
    unknown = sorted(set(only) - set(groups()))
    if unknown:
        sys.stderr.write(f"no benchmark {', '.join(unknown)}; there are {', '.join(groups())}\n")
        return 2
    quick = bool(os.environ.get("QUICK"))
    kept: dict[str, dict[str, Any]] = json.loads(ROWS.read_text()) if ROWS.exists() else {}
    missed = 0
    how = {"commit": commit(), "machine": machine(), "versions": library_versions() | versions_of(PEERS)}
    for group in only or groups():
        sys.stderr.write(f"{group} …\n")
        started = time.perf_counter()
        try:
            rows = rows_of(group)
        except subprocess.CalledProcessError:  # the other groups still run; this one keeps the rows of its last run
            missed += 1
            continue
        for row in rows:
            sys.stderr.write(f"  {row.name}: {row.figure} {row.bar} {verdict(row)} {row.note}\n")
        missed += sum(verdict(row) == "NOT MET" for row in rows)
        if group in kept and all(row.value is None for row in rows):  # the figures of a machine that has the hardware
            continue
        kept[group] = {
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "seconds": round(time.perf_counter() - started),
            **how,
            "rows": [row._asdict() for row in rows],
        }
        if not quick:
            write(kept)
    return 1 if missed else 0


def take(source: Path, group: str) -> None:
    """Take a group, as another machine measured it, into the results of this checkout."""
    write(json.loads(ROWS.read_text()) | {group: json.loads(source.read_text())[group]})


def write(kept: dict[str, dict[str, Any]]) -> None:
    """Write all groups to results.json, to RESULTS.md and to the page about costs."""
    ROWS.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    TABLE.write_text(table(kept))
    write_cost(kept)


def table(kept: dict[str, dict[str, Any]]) -> str:
    """The markdown of all groups."""
    judged = [Row(**entry) for record in kept.values() for entry in record["rows"]]
    missed = [row for row in judged if verdict(row) == "NOT MET"]
    n_bars = sum(bool(verdict(row)) for row in judged)
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench`: capim and its peers, measured in the same run. Do not edit.",
        "",
        *first_page(kept),
        f"{n_bars - len(missed)} of the {n_bars} figures that have a bar meet it.",
        "",
    ]
    if missed:
        lines += ["| misses its bar | value | bar | note |", "|---|---:|---|---|"]
        lines += [f"| {row.name} | {row.figure} | {row.bar} | {row.note} |" for row in missed]
        lines.append("")
    for group, record in sorted(kept.items()):
        versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
        lines += [f"## {group}", ""]
        made = f"commit {record['commit']}, {record['seconds']} s" if "commit" in record else "commit not recorded"
        lines += [f"{record['date']}, {made}. {record['machine']}; {versions}.", ""]
        lines += ["| what | value | bar | | peer | note |", "|---|---:|---|---|---|---|"]
        for entry in record["rows"]:
            row = Row(**entry)
            lines.append(f"| {row.name} | {row.figure} | {row.bar} | {verdict(row)} | {row.peer} | {row.note} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--take"]:
        take(Path(sys.argv[2]), sys.argv[3])
    else:
        sys.exit(main(sys.argv[1:]))
