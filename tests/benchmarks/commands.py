"""Runs commands as separate processes and measures their time by step and their memory, children included.

As a program it runs one ``capim`` command and times its steps:
``python -m tests.benchmarks.commands RESULT.json evaluate --workspace …``.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from tests.benchmarks.own_process import REPOSITORY

EVERY_SECONDS = 0.05

# function -> step; the time of a step excludes the steps inside it
STEPS = {
    "capim.tasks.corpora.opened:open_corpus": "reading the corpus",
    "capim.tasks.corpora.opened:index_images": "reading the corpus",
    "capim.tasks.embed:load_encoder": "loading the model",
    "capim.tasks.embed:SetEncoder.encode": "encoding",
    "capim.tasks.ranking.evaluate:evaluate": "scoring",
    "capim.tasks.results.figures:result_rows": "intervals",
    "capim.tasks.results.figures:rsum_row": "intervals",
    "capim.tasks.compare:figure_rows": "comparisons",
    "capim.tasks.report:slices_of": "diagnosis",
    "capim.tasks.report:judge_results": "diagnosis",
    "capim.reports.write:write_report": "report",
    "capim.store.embedding_store:EmbeddingStore.seal": "sealing",
    "capim.store.embedding_store:EmbeddingStore.vectors": "reading vectors",
    "capim.store.sets.reading:VectorWindows.__getitem__": "reading vectors",
    "capim.store.embedding_store:EmbeddingStore.multivectors": "reading vectors",
    "capim.store.embedding_store:EmbeddingStore.rows": "reading rows",
    "capim.store.embedding_store:EmbeddingStore.corpus": "reading rows",
    "capim.store.embedding_store:EmbeddingStore.write_rows": "writing rows",
}


# command -> modules of its steps, so that timing imports no others; a command that is not listed uses all
STEPS_OF = {
    "evaluate": ("capim.tasks.ranking.evaluate", "capim.tasks.results.figures", "capim.store."),
    "compare": ("capim.tasks.compare", "capim.tasks.report", "capim.store."),
    "analyse": ("capim.tasks.report", "capim.store."),
    "report": ("capim.reports.write", "capim.tasks.report", "capim.store."),
    "import": ("capim.store.",),
    "store": ("capim.store.",),
}


class Taken(NamedTuple):
    """Cost of a command: wall-clock seconds, CPU seconds, and peak memory, children included."""

    seconds: float
    processor: float
    peak_bytes: int
    output: str

    @property
    def peak_gib(self) -> float:
        return self.peak_bytes / 2**30


def as_a_user() -> dict[str, str]:
    """The environment of this process, but that modules stay compiled from run to run, as they do for a user."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def watched(command: Sequence[str | Path]) -> Taken:
    """Runs a command to its end and returns its cost.

    Raises:
        RuntimeError: The command failed; the message holds the last lines of its standard error.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        begun = time.perf_counter()
        process = psutil.Popen([str(word) for word in command], stdout=out, stderr=err, cwd=REPOSITORY, env=as_a_user())
        highest, busy = 0, 0.0
        while process.poll() is None:
            held, used = _held_and_used(process)
            highest, busy = max(highest, held), max(busy, used)
            time.sleep(EVERY_SECONDS)
        seconds = time.perf_counter() - begun
        for stream in (out, err):
            stream.seek(0)
        if process.returncode:
            raise RuntimeError(f"{command} ended with {process.returncode}: {err.read()[-3000:]}")
        return Taken(seconds, busy, highest, out.read())


def _held_and_used(process: psutil.Process) -> tuple[int, float]:
    """Bytes and processor seconds of a process and its children; what they share is counted once."""
    try:
        family = [process, *process.children(recursive=True)]
        # reading PSS walks all pages: only where memory can be shared
        held = sum(one.memory_full_info().pss if len(family) > 1 else one.memory_info().rss for one in family)
        own = process.cpu_times()
        living = sum(sum(one.cpu_times()[:2]) for one in family[1:])
        return held, own.user + own.system + own.children_user + own.children_system + living
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return 0, 0.0


class Stepwise(NamedTuple):
    """Cost of a command by step: wall-clock and CPU seconds; time outside all steps is ``the rest``."""

    taken: Taken
    seconds: dict[str, float]
    processor: dict[str, float]


def capim(*words: str | Path) -> Stepwise:
    """Runs a ``capim`` command with the steps of ``STEPS`` timed."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "steps.json"
        taken = watched([sys.executable, "-m", "tests.benchmarks.commands", found, *words, "--quiet"])
        seconds, processor = json.loads(found.read_text())
    seconds["the rest"] = taken.seconds - sum(seconds.values())
    processor["the rest"] = taken.processor - sum(processor.values())
    return Stepwise(taken, seconds, processor)


class Stopwatch:
    """Wall-clock and CPU seconds by step, counted for the innermost running step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.processor: dict[str, float] = defaultdict(float)
        self._on: list[str] = []
        self._since = (time.perf_counter(), time.process_time())

    def _turn(self) -> None:
        now = (time.perf_counter(), time.process_time())
        if self._on:
            self.seconds[self._on[-1]] += now[0] - self._since[0]
            self.processor[self._on[-1]] += now[1] - self._since[1]
        self._since = now

    def __call__(self, step: str, work: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(work)
        def timed(*args: Any, **kwargs: Any) -> Any:
            name = f"{step}, MaxSim" if step == "scoring" and callable(kwargs["images"]) else step
            self._turn()
            self._on.append(name)
            try:
                found = work(*args, **kwargs)
                return self._each(name, found) if isinstance(found, Iterator) else found
            finally:
                self._turn()
                self._on.pop()

        return timed

    def _each(self, step: str, items: Iterator[Any]) -> Iterator[Any]:
        following = self(step, functools.partial(next, items, None))
        while (item := following()) is not None:
            yield item


def where(place: str) -> tuple[Any, str]:
    """The module or class that has a function of ``STEPS``, and its name there."""
    module, _, path = place.partition(":")
    *owners, name = path.split(".")
    return functools.reduce(getattr, owners, importlib.import_module(module)), name


def main(target: str, words: Sequence[str]) -> int:
    """Runs the command with its steps timed; writes their seconds to a file."""
    watch = Stopwatch()
    from capim.flows.cli import main as command

    for place, step in STEPS.items():
        if not place.startswith(STEPS_OF.get(words[0], "")):
            continue
        owner, name = where(place)
        setattr(owner, name, watch(step, getattr(owner, name)))
    code = command(words)
    Path(target).write_text(json.dumps([watch.seconds, watch.processor]))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
