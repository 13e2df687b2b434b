"""``kill -9`` at random moments: of encodes, of scoring, of reports, of the store's own housekeeping."""

from __future__ import annotations

import hashlib
import os
import signal
from functools import partial
from pathlib import Path

from tests.faults.fault import Scene, expect, faults
from tests.faults.process import Failed, Watch


def kill(scene: Scene, *words: str, base: str = "", more: int = 0) -> str:
    """Kill a command after some of its files, and ``more`` of its successors on what it left."""
    most = {"embed": 80, "run": 200, "evaluate": 60, "compare": 10, "report": 12, "store": 12}[words[0]]
    while most:
        scene.begin_from(base)
        killed = []
        for n in (scene.random.randint(1, most) for _ in range(1 + more)):
            if scene.kill_at(n, *words):
                killed.append(str(n))
        if killed:
            return f"killed at file {', '.join(killed)}"
        most //= 2
    raise Failed(f"`capim {' '.join(words)}` was never at work when it was killed")


def kill_report(scene: Scene) -> str:
    """Reports that were there stay as they were, and a page of the killed one is whole or not there."""
    scene.begin_from("whole")
    before, n = _digests(scene.workspace), scene.random.randint(1, 12)
    expect(scene.kill_at(n, "report"), f"the report was written before its file {n}")
    after = _digests(scene.workspace)
    expect(before.items() <= after.items(), "a report that was there was changed")
    for path in after.keys() - before.keys():
        whole = Path(path).read_text("utf-8").rstrip().endswith("</html>")
        expect(whole or not path.endswith(".html"), f"{path} is half a page")
    return f"killed at file {n}"


def _digests(workspace: str) -> dict[str, str]:
    reports = Path(workspace, "reports").rglob("*")
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in reports if path.is_file()}


def interrupt(scene: Scene, *, number: int, code: int) -> str:
    """A polite end: said in one line."""
    for n in (30, 15, 7, 3, 1):
        scene.begin_from()
        watch = Watch(scene.workspace)
        running = scene.start("run")
        if running.works_until(partial(watch.reached, n)) and running.process.pid is not None:
            os.kill(running.process.pid, number)
            done = running.wait()
            if done.code:
                done.must(code)
                return f"stopped at file {n}: {done.said}"
    raise Failed("the run ended before it could be stopped")


FAULTS = faults(
    "kills",
    {
        **{f"three encodes in a row, {n}": lambda s: kill(s, "embed", more=2) for n in "abcd"},
        **{f"scoring, {n}": lambda s: kill(s, "evaluate", base="embedded", more=1) for n in "abc"},
        **{f"a whole run, {n}": lambda s: kill(s, "run") for n in "ab"},
        "a run on what an encode left": lambda s: kill(s, "run", base="embedded"),
        "comparing": lambda s: kill(s, "compare", base="whole"),
        **{f"reporting, {n}": kill_report for n in "ab"},
        "compacting": lambda s: kill(s, "store", "compact", base="whole"),
        "interrupted from the keyboard": partial(interrupt, number=signal.SIGINT, code=130),
        "told to end (SIGTERM)": partial(interrupt, number=signal.SIGTERM, code=143),
    },
)
