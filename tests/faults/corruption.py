"""Files of the store that were damaged: named by ``store verify``, removed by ``--drop``, made again by the run.

A flipped bit may also be one that nobody reads; then all figures have to be what they were. Many damages a second, of
vectors, outcomes and figures: ``tests/store/test_damage.py``.
"""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

from tests.faults.fault import Scene, expect, faults
from tests.faults.ground import damaged, figures, findings, refuse_other_figures

TABLES = (  # or what their names begin with
    *("single-", "multi-", "corpus-captions-", "corpus-images-"),
    *("outcomes", "results", "comparisons", "slices", "derived"),
    *("sets", "encoders", "corpora", "image_index"),
)
HURTS = ("a flipped bit", "a truncated file", "an emptied file", "a deleted file")


def spoil(file: Path, hurt: str, drawn: random.Random) -> None:
    """Delete a file, or change what is in it."""
    data = file.read_bytes()
    if hurt == "a deleted file":
        file.unlink()
    elif hurt == "a flipped bit":
        place = drawn.randrange(len(data))
        file.write_bytes(data[:place] + bytes([data[place] ^ 1 << drawn.randrange(8)]) + data[place + 1 :])
    else:
        file.write_bytes(data[: drawn.randrange(1, len(data)) if hurt == "a truncated file" else 0])


def corrupt(scene: Scene, table: str, hurt: str, part: str = "data/*") -> str:
    """Damage a file of a table whose name begins so; then do what the store says."""
    scene.begin_from("whole")
    folder = scene.random.choice(sorted(Path(scene.workspace, "store").glob(f"{table}*.lance")))
    name, file = folder.name.removesuffix(".lance"), scene.random.choice(sorted(folder.glob(part)))
    spoil(file, hurt, scene.random)
    found = damaged(findings(scene.capim, scene.workspace))
    if not found:
        # the manifest of an older version may go; data of this one may not
        expect(hurt == "a flipped bit" or part != "data/*", f"{hurt} of {name} was not noticed")
        refuse_other_figures(scene.ground.figures, figures(scene.capim, scene.workspace))
        return f"{file.name} of {name}: nobody reads that"
    about = any(_is_about(what, name) or name in detail for what, detail in found.items())
    expect(about, f"{name} hurt, named: {found}")
    scene.run("store", "verify", "--drop").must(0)
    return f"{name}: {', '.join(found)} dropped"


def _is_about(what: str, name: str) -> bool:
    """Whether a finding is about a table: itself, or the corpus that it is a part of."""
    return what == name or (what.startswith("corpus ") and f"-{what.removeprefix('corpus ')}-" in name)


FAULTS = faults(
    "damaged files",
    {
        **{
            f"{hurt}: {table.removesuffix('-')}": partial(corrupt, table=table, hurt=hurt)
            for table in TABLES
            for hurt in HURTS
        },
        **{
            f"{hurt}: a manifest of a set": partial(corrupt, table="single-", hurt=hurt, part="_versions/*")
            for hurt in HURTS
        },
        "a deleted file: the tag of a set": partial(
            corrupt, table="single-", hurt="a deleted file", part="_refs/tags/*"
        ),
    },
)
