"""``kill -9`` at random moments: of encodes, of scoring, of reports, of the store's own housekeeping."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from functools import partial
from pathlib import Path

from tests.faults.fault import Failed, Fault, Scene, expect


class Watch:
    """Counts files as they come into being; moments told by it do not depend on how fast a machine is."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = str(folder)
        self.before = files(self.folder)
        self.seen: set[str] = set()

    def new(self) -> int:
        """Files that have come since the beginning, those that went again among them."""
        self.seen |= files(self.folder) - self.before
        return len(self.seen)


def files(folder: str | Path) -> set[str]:
    """Paths of all files below a folder, while others write there."""
    return {f"{where}/{name}" for where, _, names in os.walk(folder) for name in names}


def _has_written(watch: Watch, n: int) -> bool:
    return watch.new() >= n


def kill(scene: Scene, *words: str, base: str | None, more: int = 0) -> str:
    """Kill a command after some of its files, and ``more`` of its successors on what it left."""
    most = {"embed": 80, "run": 200, "evaluate": 60, "compare": 10, "report": 12, "store": 12}[words[0]]
    moments: list[int] = []
    while not moments:
        scene.begin_from(None if base is None else getattr(scene.ground, base))
        for _ in range(1 + more):
            n = scene.random.randint(1, most)
            watch = Watch(scene.workspace)
            if scene.start(*words).kill_when(partial(_has_written, watch, n)):
                moments.append(n)
        most //= 2
        if not most and not moments:
            raise Failed(f"`capim {' '.join(words)}` was never at work when it was killed")
    return f"killed at file {', '.join(map(str, moments))}"


def kill_report(scene: Scene) -> str:
    """Reports that were there stay as they were, and a page of the killed one is whole or not there."""
    scene.begin_from(scene.ground.whole)
    before = _digests(scene.workspace)
    most, watch = 12, Watch(scene.workspace)
    n = scene.random.randint(1, most)
    if not scene.start("report").kill_when(lambda: watch.new() >= n):
        raise Failed(f"the report was written before its file {n}")
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
        scene.begin_from(None)
        running, watch = scene.start("run"), Watch(scene.workspace)
        while running.process.exitcode is None and watch.new() < n:
            time.sleep(0.001)
        if running.process.exitcode is None and running.process.pid is not None:
            os.kill(running.process.pid, number)
            done = running.wait()
            if done.code:
                expect(done.code == code, f"ended with {done.code}, expected {code}: {done.err[-500:]}")
                expect("Traceback" not in done.err, f"a traceback: {done.err[-900:]}")
                return (
                    f"stopped at file {n}: {done.err.strip().splitlines()[-1][:80] if done.err.strip() else 'silent'}"
                )
    raise Failed("the run ended before it could be stopped")


FAULTS = [
    *[Fault("kills", f"three encodes in a row, {n}", lambda s: kill(s, "embed", base=None, more=2)) for n in "abcd"],
    *[Fault("kills", f"scoring, {n}", lambda s: kill(s, "evaluate", base="embedded", more=1)) for n in "abc"],
    *[Fault("kills", f"a whole run, {n}", lambda s: kill(s, "run", base=None)) for n in "ab"],
    Fault("kills", "a run on what an encode left", lambda s: kill(s, "run", base="embedded")),
    Fault("kills", "comparing", lambda s: kill(s, "compare", base="whole")),
    *[Fault("kills", f"reporting, {n}", kill_report) for n in "ab"],
    Fault("kills", "compacting", lambda s: kill(s, "store", "compact", base="whole")),
    Fault("kills", "interrupted from the keyboard", partial(interrupt, number=signal.SIGINT, code=130)),
    Fault("kills", "told to end (SIGTERM)", partial(interrupt, number=signal.SIGTERM, code=-signal.SIGTERM)),
]
