"""How sharp the tests are: ``python -m tests.mutation`` draws small faults and lists those that no test notices.

A mutant is the product with one operator, number, condition, argument or statement changed. Each package gives the same
number of mutants, drawn at random from all its places. A mutant is killed if one of the tests that run its line fails;
only tests in ``TESTS`` that ``make test`` runs are asked, and of them at most ``--seconds`` worth per mutant, those of
its own package first. A mutant that lives is a missing test, or a change that makes no difference: look at each.

The first step runs all these tests once to record the lines of each; ``--covered FOLDER`` keeps that record.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from coverage import CoverageData

from tests.timing import FOLDER

ROOT = Path(__file__).parents[1]
PACKAGES = {
    "ranking": "tasks/ranking",
    "statistics": "tasks/statistics",
    "metrics": "tasks/metrics",
    "derive": "tasks/derive.py",
    "store": "store",
    "corpora": "tasks/corpora",
    "reports": "reports",
}
ROOMS = ("deployments", "flows", "reports", "store", "tasks")
ASKED = ("analyses", "corpora", "metrics", "ranking", "reports", "results", "statistics", "store", "tasks")
TESTS = (*(f"tests/{folder}" for folder in ASKED), "tests/test_doctests.py")
"""The tests that are asked: those of these packages and of what is computed with them, not of the command line."""
READS_SOURCE = "tests/metrics/test_versions.py"  # fails for every change of a line, and proves nothing about it
SWAPPED: dict[type, type] = {
    ast.Lt: ast.LtE,
    ast.Gt: ast.GtE,
    ast.Eq: ast.NotEq,
    ast.Is: ast.IsNot,
    ast.In: ast.NotIn,
    ast.And: ast.Or,
    ast.Add: ast.Sub,
    ast.Mult: ast.Div,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.MatMult: ast.Mult,
    ast.BitAnd: ast.BitOr,
}
SWAPPED = {other: operator for operator, other in SWAPPED.items()} | SWAPPED  # and the other way round
FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(["hypothesis", "pandas", "prefect", "pyarrow.dataset", "pytest", "scipy.stats", "torch"])
OPPOSITE = {"min": "max", "any": "all", "argmin": "argmax", "minimum": "maximum", "floor": "ceil"}
OPPOSITE |= {other: name for name, other in OPPOSITE.items()}


@dataclass(frozen=True)
class Mutant:
    """A change of the bytes from ``start`` to ``end`` of a file."""

    package: str
    file: str
    lines: tuple[int, int]
    kind: str
    start: int
    end: int
    before: str
    after: str

    def __str__(self) -> str:
        before, after = (" ".join(text.split()) for text in (self.before, self.after))
        return f"{self.file}:{self.lines[0]}  {self.kind}: {before}  ->  {after}"


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST, str]]:
    """Every change of a node: its kind, the node that is replaced, and the text that takes its place."""
    changed: Any = copy.copy(node)
    match node:
        case ast.Compare(ops=operators):
            for place, operator in enumerate(operators):
                changed.ops = [*operators[:place], SWAPPED[type(operator)](), *operators[place + 1 :]]
                yield "comparison", node, f"({ast.unparse(changed)})"
        case ast.BinOp(op=operator) | ast.BoolOp(op=operator) if type(operator) in SWAPPED:
            changed.op = SWAPPED[type(operator)]()
            yield "operator", node, f"({ast.unparse(changed)})"
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield "operator", node, f"({ast.unparse(operand)})"
        case ast.Constant(value=bool() | int() | float() as value):
            yield "constant", node, str(not value) if isinstance(value, bool) else repr(value + 1)
        case ast.Name(id=name) | ast.Attribute(attr=name) if name in OPPOSITE:
            yield "function", node, ast.unparse(node).removesuffix(name) + OPPOSITE[name]
        case ast.Call(keywords=keywords):
            for place, keyword in enumerate(keywords):
                changed.keywords = [*keywords[:place], *keywords[place + 1 :]]
                yield f"without {keyword.arg or '**'}", node, ast.unparse(changed)
    if isinstance(node, ast.AugAssign | ast.Raise | ast.Continue | ast.Break) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ):
        yield "statement", node, "pass"
    if isinstance(node, ast.If | ast.IfExp | ast.While) and not isinstance(node.test, ast.Compare | ast.UnaryOp):
        yield "condition", node.test, f"(not ({ast.unparse(node.test)}))"


def places(node: ast.AST, statement: ast.stmt | None = None) -> Iterator[tuple[ast.AST, ast.stmt]]:
    """Every node that runs, with the statement that it is part of: no annotation, decorator, text or import."""
    if isinstance(node, ast.JoinedStr | ast.Assert | ast.Import | ast.ImportFrom):
        return
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    statement = node if isinstance(node, ast.stmt) else statement
    if statement is not None:
        yield node, statement
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from places(child, statement)


def mutants_of(package: str, file: str, source: bytes) -> Iterator[Mutant]:
    """Every mutant of a file of the checkout, in the order of its lines."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node, statement in places(ast.parse(source)):
        for kind, replaced, after in changes(node):
            start = starts[replaced.lineno - 1] + replaced.col_offset  # type: ignore[attr-defined]
            end = starts[replaced.end_lineno - 1] + replaced.end_col_offset  # type: ignore[attr-defined]
            simple = not hasattr(statement, "body")
            last = (statement.end_lineno if simple else replaced.end_lineno) or statement.lineno  # type: ignore[attr-defined]
            first = statement.lineno if simple else replaced.lineno  # type: ignore[attr-defined]
            yield Mutant(package, file, (first, last), kind, start, end, source[start:end].decode(), after)


def drawn(number: int, seed: int) -> list[Mutant]:
    """The sample: from each package in turn the next of its mutants, which are in random order."""
    shuffled = []
    for package, place in PACKAGES.items():
        files = sorted((ROOT / place).rglob("*.py")) or [ROOT / place]
        named = [(file.relative_to(ROOT).as_posix(), file.read_bytes()) for file in files]
        every = [mutant for name, source in named for mutant in mutants_of(package, name, source)]
        random.Random(f"{seed} {package}").shuffle(every)
        shuffled.append(every)
    rounds = ([every[n] for every in shuffled if n < len(every)] for n in range(max(map(len, shuffled))))
    return [mutant for each in rounds for mutant in each][:number]


@dataclass
class Covered:
    """What the tests run: of each file the tests of every line, and the seconds that each test takes."""

    data: CoverageData
    seconds: dict[str, float]

    def tests(self, mutant: Mutant, most: float) -> list[str]:
        """The tests to ask, those of the mutant's own package first, then the fastest; together ``most`` seconds."""
        by_line = self.data.contexts_by_lineno(str(ROOT / mutant.file))
        first, last = mutant.lines
        found = {each for line in range(first, last + 1) for each in by_line.get(line, ())} - {""}
        if not found and any(line in by_line for line in range(first, last + 1)):  # runs at import
            found = {each for tests in by_line.values() for each in tests} - {""}
        names = {each.rpartition("|")[0] for each in found if not each.startswith(READS_SOURCE)}
        own = f"tests/{mutant.package}/"
        ordered = sorted(names, key=lambda name: (not name.startswith(own), self.seconds.get(name, 0.0)))
        chosen: list[str] = []
        total = 0.0
        for name in ordered:
            if chosen and total + self.seconds.get(name, 0.0) > most:
                break
            total += self.seconds.get(name, 0.0)
            chosen.append(name)
        return chosen


def covered(folder: Path, processes: int) -> Covered:
    """Run ``TESTS`` once under coverage, unless the folder has its record."""
    data, times = folder / "coverage", folder / "timing"
    if not data.exists():
        times.mkdir(parents=True)
        words = f"-m pytest -q -p tests.timing -n {processes} --dist loadfile".split()
        recorded = [*TESTS, "-m", "not slow", "--cov-branch", "--cov-context=test", "--cov-report=term:skip-covered"]
        recorded += [f"--cov={room}" for room in ROOMS]
        environment = {**os.environ, FOLDER: str(times), "COVERAGE_FILE": str(data)}
        subprocess.run([sys.executable, *words, *recorded], cwd=ROOT, env=environment, check=True)
    seconds: dict[str, float] = defaultdict(float)
    for file in times.glob("*.jsonl"):
        for row in map(json.loads, file.read_text("utf-8").splitlines()):
            seconds[row["test"]] += row["wall"]
    read = CoverageData(str(data))
    read.read()
    return Covered(read, seconds)


def run_tests(tree: Path, tests: list[str]) -> None:
    """End this process with the exit code of pytest for some tests of a copy of the checkout."""
    os.chdir(tree)
    os.environ |= {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    sys.path[:] = [str(tree), *(place for place in sys.path if place not in ("", str(ROOT)))]
    sys.dont_write_bytecode = True
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    os._exit(int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", *tests])))


def ask(mutant: Mutant, tests: list[str], tree: Path, most: float) -> str:
    """How a mutant ended in a copy of the checkout: "killed", "lived", or "not run" if no test runs its line."""
    if not tests:
        return "not run"
    file = tree / mutant.file
    source, times = file.read_bytes(), file.stat()
    file.write_bytes(source[: mutant.start] + mutant.after.encode() + source[mutant.end :])
    process = FORKED.Process(target=run_tests, args=(tree, tests))
    try:
        process.start()
        process.join(120 + 5 * most)
        return "lived" if process.exitcode == 0 else "killed"  # None: it runs for ever
    finally:
        process.kill()
        process.join()
        file.write_bytes(source)
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))  # what Python compiled before counts again


def copied(folder: Path) -> Path:
    """A copy of the checkout's files, with ``shared`` as its neighbour."""
    tree = folder / "main"
    listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True).split("\0")
    for name in filter(None, listed):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tree / name, follow_symlinks=False)
    if (shared := ROOT.parent / "shared").exists():
        (folder / "shared").symlink_to(shared)
    return tree


def main() -> None:
    """Print how many mutants of each package the tests kill, and those that live."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=300)
    parser.add_argument("--seed", type=int, default=62)
    parser.add_argument("--seconds", type=float, default=20.0, help="of tests for one mutant")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--covered", type=Path, help="the folder for the record of what each test runs")
    given = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        run = covered(given.covered or Path(temporary, "covered"), given.processes)
        trees: SimpleQueue[Path] = SimpleQueue()
        for number in range(given.processes):
            trees.put(copied(Path(temporary, str(number))))

        def ended(mutant: Mutant) -> tuple[Mutant, str]:
            tree = trees.get()
            try:
                state = ask(mutant, run.tests(mutant, given.seconds), tree, given.seconds)
            finally:
                trees.put(tree)
            print(f"{state:8} {mutant}", flush=True)
            return mutant, state

        with ThreadPoolExecutor(given.processes) as pool:
            found = [*pool.map(ended, drawn(given.mutants, given.seed))]
    counts = Counter((mutant.package, state) for mutant, state in found)
    print(f"\n{'package':12} {'mutants':>8} {'killed':>8} {'lived':>8} {'not run':>8}   seed {given.seed}")
    for package in (*PACKAGES, None):
        states = [
            sum(n for (name, s), n in counts.items() if package in (name, None) and s == state)
            for state in ("killed", "lived", "not run")
        ]
        print(f"{package or 'all':12} {sum(states):8} " + " ".join(f"{n:8}" for n in states))
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
