"""Files of the store that were damaged: named by ``store verify``, healed by what its message says to do.

A flipped byte may also be one that nobody reads; then all vectors and figures have to be what they were.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

from capim.store.root import RECORDS
from tests.faults.fault import Failed, Fault, Scene, expect
from tests.faults.ground import damaged, figures, findings, refuse_other_figures


def flip(file: Path, scene: Scene) -> None:
    """One bit of one byte changes."""
    data = bytearray(file.read_bytes())
    data[scene.random.randrange(len(data))] ^= 1 << scene.random.randrange(8)
    file.write_bytes(data)


def truncate(file: Path, scene: Scene) -> None:
    """The end is gone."""
    data = file.read_bytes()
    file.write_bytes(data[: scene.random.randrange(1, len(data))])


def empty(file: Path, scene: Scene) -> None:
    """The file is there, its contents are not."""
    file.write_bytes(b"")


def delete(file: Path, scene: Scene) -> None:
    """The file is gone."""
    file.unlink()


HURTS = {"a flipped bit": flip, "a truncated file": truncate, "an emptied file": empty, "a deleted file": delete}


def corrupt(scene: Scene, table: str, hurt: str, part: str = "data/*") -> str:
    """Damage a file of a table whose name begins so; then do what the store says until it is clean."""
    scene.begin_from(scene.ground.whole)
    folder = scene.random.choice(sorted(Path(scene.workspace, "store").glob(f"{table}*.lance")))
    name = folder.name.removesuffix(".lance")
    files = (folder.parent / RECORDS / name).iterdir() if part == RECORDS else folder.glob(part)
    file = scene.random.choice(sorted(files))
    HURTS[hurt](file, scene)
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


def _faults(table: str, hurts: tuple[str, ...] = tuple(HURTS), part: str = "data/*", what: str = "") -> list[Fault]:
    return [
        Fault("damaged files", f"{hurt}: {what or table}", partial(corrupt, table=table, hurt=hurt, part=part))
        for hurt in hurts
    ]


FAULTS = [
    *_faults("single-", what="vectors"),
    *_faults("multi-", what="multi-vectors"),
    *_faults("corpus-captions-", what="captions"),
    *_faults("corpus-images-", what="images"),
    *_faults("outcomes"),
    *_faults("results"),
    *_faults("comparisons"),
    *_faults("slices"),
    *_faults("sets"),
    *_faults("encoders"),
    *_faults("corpora"),
    *_faults("image_index"),
    *_faults("single-", ("a deleted file",), "_refs/tags/*", "the tag of a set"),
    *_faults("single-", tuple(HURTS), "_versions/*", "a manifest of a set"),
    *_faults("results", tuple(HURTS), RECORDS, "the record of the digests of results"),
]
