"""Files of the store that were damaged: named by ``store verify``, healed by what its message says to do.

A flipped byte may also be one that nobody reads; then all vectors and figures have to be what they were.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from capim.store.digests import RECORDS
from tests.faults.damages import spoil
from tests.faults.fault import Fault, Scene, expect, faults
from tests.faults.ground import damaged, figures, findings, refuse_other_figures
from tests.faults.process import Failed

HURTS = {"a flipped bit": "flip", "a truncated file": "cut", "an emptied file": "empty", "a deleted file": "delete"}


def corrupt(scene: Scene, table: str, hurt: str, part: str = "data/*") -> str:
    """Damage a file of a table whose name begins so; then do what the store says until it is clean."""
    scene.begin_from("whole")
    folder = scene.random.choice(sorted(Path(scene.workspace, "store").glob(f"{table}*.lance")))
    name = folder.name.removesuffix(".lance")
    files = (folder.parent / RECORDS / name).iterdir() if part == RECORDS else folder.glob(part)
    file = scene.random.choice(sorted(files))
    spoil(file, HURTS[hurt], scene.random)
    found = damaged(findings(scene.capim, scene.workspace))
    if not found:
        # the manifest of an older version may go; data of this one may not
        expect(hurt == "a flipped bit" or part != "data/*", f"{hurt} of {name} was not noticed")
        refuse_other_figures(scene.ground.figures, figures(scene.capim, scene.workspace))
        return f"{file.name} of {name}: nobody reads that"
    expect(
        any(_is_about(what, name) or name in detail for what, detail in found.items()), f"{name} hurt, named: {found}"
    )
    return f"{name}: {heal(scene, found)}"


def _is_about(what: str, name: str) -> bool:
    """Whether a finding is about a table: itself, or the corpus that it is a part of."""
    return what == name or (what.startswith("corpus ") and f"-{what.removeprefix('corpus ')}-" in name)


def heal(scene: Scene, found: dict[str, str]) -> str:
    """Do what the messages say, one thing after the other; the run that follows is the last of it."""
    said = []
    for what, detail in found.items():
        if command := re.search(r"`capim (store (?:repair|drop) [^`]+)`", detail):
            scene.run(*command[1].split()).must(0)
            said.append(command[1])
        elif "run" not in detail:
            raise Failed(f"{what} is damaged and nothing says what to do: {detail}")
    left = damaged(findings(scene.capim, scene.workspace))
    return "; ".join(said) + (f"; then {len(left)} left for the run" if left else "")


def _faults(table: str, what: str = "", hurts: Iterable[str] = HURTS, part: str = "data/*") -> list[Fault]:
    happen = {f"{hurt}: {what or table}": partial(corrupt, table=table, hurt=hurt, part=part) for hurt in hurts}
    return faults("damaged files", happen)


FAULTS = [
    *_faults("single-", "vectors"),
    *_faults("multi-", "multi-vectors"),
    *_faults("corpus-captions-", "captions"),
    *_faults("corpus-images-", "images"),
    *[
        fault
        for table in ("outcomes", "results", "comparisons", "slices", "sets", "encoders", "corpora", "image_index")
        for fault in _faults(table)
    ],
    *_faults("single-", "the tag of a set", ["a deleted file"], "_refs/tags/*"),
    *_faults("single-", "a manifest of a set", part="_versions/*"),
    *_faults("results", "the record of the digests of results", part=RECORDS),
]
