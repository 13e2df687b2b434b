"""``kill -9`` at random moments, a hundred times: of every command that writes."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.faults.fault import Scene, expect, faults
from tests.faults.ground import refuse_damage
from tests.faults.process import Failed, Watch

GOLDEN = Path(__file__).parents[1] / "golden" / "stores" / "release-0.3.0.tar.xz"
IMPORTED = ("--encoder", "theirs", "--corpus", "few")


class Command(NamedTuple):
    """What is killed: its words, the workspace that it begins from, and how many files it makes at the most."""

    words: tuple[str, ...]
    base: str
    most: int
    prepare: Callable[[Scene], object] = lambda _: None


def stale(scene: Scene) -> None:
    """Rows of other settings, by a run that is not the newest: what `capim store prune` removes."""
    scene.run("evaluate", "--replicates", "100", "--corpora", "few").must(0)
    scene.run("evaluate").must(0)


def exported(scene: Scene) -> None:
    """The vectors of a model in files in the workspace, to be imported under another name."""
    for side in ("image", "caption"):
        to = ("--modality", side, "--to", f"{scene.workspace}/{side}s.npz")
        scene.run("export", "embeddings", "--encoder", "tiny-clip", "--corpus", "few", *to).must(0)


def older(scene: Scene) -> None:
    """A store of an earlier format in the place of this one."""
    shutil.rmtree(scene.workspace, ignore_errors=True)
    shutil.unpack_archive(GOLDEN, scene.workspace)


COMMANDS = {
    "embed": Command(("embed",), "", 80),
    "run": Command(("run",), "", 200),
    "run what was encoded": Command(("run",), "embedded", 120),
    "evaluate": Command(("evaluate",), "embedded", 60),
    "compare": Command(("compare",), "whole", 10),
    "report": Command(("report",), "whole", 12),
    "store prune": Command(("store", "prune", "--keep", "1", "--yes"), "whole", 12, stale),
    "import": Command(("import", "{}/images.npz", "{}/captions.npz", *IMPORTED), "whole", 24, exported),
    "store upgrade": Command(("store", "upgrade"), "", 12, older),
}


def kill(scene: Scene, name: str, times: int) -> str:
    """Kills of a command after some of its files; the same command then ends well, and leaves what it always leaves.

    Every other time what a kill left is not mended before the next one.
    """
    words, base, most, prepare = COMMANDS[name]
    told = tuple(word.format(scene.workspace) for word in words)
    killed: list[str] = []
    left = False  # whether what a kill left is in the workspace
    for _ in range(20 * times):
        if not left:
            scene.begin_from(base)
            prepare(scene)
            before = _reports(scene.workspace)
        n = scene.random.randint(1, most)
        if not scene.kill_at(n, *told):
            most, left = max(2, n), False  # it has fewer files
            continue
        killed.append(str(n))
        left = not left and len(killed) < times
        if not left:
            _refuse_changed_reports(before, scene.workspace, may_go=name == "store prune")
            scene.run(*told).must(0)
            if name == "store upgrade":
                refuse_damage(scene.capim, scene.workspace)
            else:
                scene.ground.refuse_difference(scene.workspace, scene.capim)
        if len(killed) == times:
            scene.begin_from("whole")
            return f"{times} kills, at files {', '.join(killed)}"
    raise Failed(f"`capim {' '.join(told)}` was at work for {len(killed)} of {times} kills")


def _refuse_changed_reports(before: Mapping[str, bytes], workspace: str, *, may_go: bool) -> None:
    """Reports that were there stay as they were, and a page of a killed one is whole or not there."""
    after = _reports(workspace)
    changed = [path for path, page in before.items() if after.get(path, page if may_go else b"") != page]
    expect(not changed, f"reports that were there were changed: {changed[:3]}")
    half = [path for path in after if path.endswith(".html") and not after[path].rstrip().endswith(b"</html>")]
    expect(not half, f"half a page: {half}")


def _reports(workspace: str) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path(workspace, "reports").rglob("*") if path.is_file()}


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


TIMES = 11  # so that there are about a hundred kills

FAULTS = faults(
    "kills",
    {
        **{f"{TIMES} times: {name}": partial(kill, name=name, times=TIMES) for name in COMMANDS},
        "interrupted from the keyboard": partial(interrupt, number=signal.SIGINT, code=130),
        "told to end (SIGTERM)": partial(interrupt, number=signal.SIGTERM, code=143),
    },
)
