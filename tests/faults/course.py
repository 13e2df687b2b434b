"""Undergoing faults two at a time, and what came of each."""

from __future__ import annotations

import random
import shutil
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TextIO

from tests.faults.fault import Fault, NotTried, Scene
from tests.faults.ground import Ground, prepare
from tests.faults.process import Capim, Failed

AT_ONCE = 2


class Verdict(NamedTuple):
    """What came of a fault."""

    fault: Fault
    survived: bool
    tried: bool
    seconds: float
    detail: str


def undergo(faults: Sequence[Fault], folder: Path, *, seed: int, show: TextIO) -> list[Verdict]:
    """Every fault on a workspace of its own, in a folder that has to be empty; a line on ``show`` for each."""
    folder.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    ground = prepare(folder)
    show.write(f"an undisturbed run gave {len(ground.figures)} rows of results ({time.monotonic() - begun:.0f} s)\n")

    def one(number: int, fault: Fault) -> Verdict:
        drawn = random.Random(f"{seed}/{fault.kind}/{fault.name}")
        verdict = _undergo(fault, ground, folder / f"fault-{number}", drawn)
        word = "survived" if verdict.survived and verdict.tried else "LOST" if verdict.tried else "not tried"
        show.write(f"{word:<9} {verdict.seconds:5.1f} s  {fault.kind}: {fault.name}\n          {verdict.detail}\n")
        show.flush()
        return verdict

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(one, range(len(faults)), faults))


def _undergo(fault: Fault, ground: Ground, folder: Path, drawn: random.Random) -> Verdict:
    begun = time.monotonic()
    folder.mkdir()
    scene = Scene(ground, folder, drawn, str(folder / "workspace"), Capim(folder / "said"))
    survived, tried = True, True
    with scene.stack:
        try:
            detail = fault.happen(scene)
            ground.refuse_difference(scene.workspace, scene.capim)
        except NotTried as reason:
            tried, detail = False, f"not tried: {reason}"
        except Failed as failure:
            survived, detail = False, str(failure)
        except Exception:  # noqa: BLE001 - the script's own mistakes are shown beside what it finds
            survived, detail = False, traceback.format_exc()
    if survived and tried:
        shutil.rmtree(folder, ignore_errors=True)
    return Verdict(fault, survived, tried, time.monotonic() - begun, detail)


def summary(verdicts: Sequence[Verdict]) -> str:
    """All in one line."""
    tried = [verdict for verdict in verdicts if verdict.tried]
    survived = sum(verdict.survived for verdict in tried)
    kinds = Counter(verdict.fault.kind for verdict in tried)
    left = len(verdicts) - len(tried)
    end = "stores clean, results equal" if survived == len(tried) else f"{len(tried) - survived} LOST"
    said = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    return f"faults: {survived} of {len(tried)} survived: {said}; {end}" + (f" ({left} not tried)" if left else "")
