"""Disks that are full: a small file system in memory, on which the workspace lies."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from tests.faults.fault import NotTried, Scene, expect, faults
from tests.faults.process import Failed, files

PAGE = 4096
AMPLE = 400_000_000
SAID = re.compile(r"No space left|free space", re.IGNORECASE)


def disk(scene: Scene, size: int) -> None:
    """A file system of so many bytes at the workspace."""
    if os.geteuid() != 0:
        raise NotTried("a small file system needs root")
    Path(scene.workspace).mkdir(parents=True)
    _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", scene.workspace)
    scene.stack.callback(subprocess.run, ["umount", "-l", scene.workspace], check=False)


def _mount(*words: str) -> None:
    done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotTried(f"mount {' '.join(words)}: {done.stderr.strip()}")


def _bytes(folder: Path) -> int:
    return sum(-(-Path(path).stat().st_size // PAGE) * PAGE for path in files(folder))


def fill(scene: Scene, *words: str, base: str = "", room: int = 0) -> str:
    """A command for which there is not enough room says so; what was stored before is whole.

    ``room``: bytes that are free; drawn by default.
    """
    whole, begun = (_bytes(scene.ground.folder / name) if name else 0 for name in ("whole", base))
    needs = whole - begun if words[0] == "run" else whole // 4
    disk(scene, AMPLE)
    room = room or scene.random.randint(needs // 4, needs)
    while room:
        subprocess.run(f"rm -rf {scene.workspace}/*", shell=True, check=True)
        _mount("-o", f"remount,size={AMPLE}", scene.workspace)
        if base:
            subprocess.run(["cp", "-r", f"{scene.ground.folder}/{base}/.", scene.workspace], check=True)
        _mount("-o", f"remount,size={begun + room}", scene.workspace)
        done = scene.run(*words)
        if done.code:
            done.must(1)
            expect(SAID.search(done.err), f"the message does not name the disk: {done.err[-500:]}")
            _mount("-o", f"remount,size={AMPLE}", scene.workspace)
            return f"{room // 1000} kB free: {done.said}"
        room //= 2
    raise Failed(f"`capim {' '.join(words)}` needs no room")


def no_inodes(scene: Scene) -> str:
    """A disk with room for bytes, and none for files, is a full disk."""
    disk(scene, AMPLE)
    subprocess.run(["cp", "-r", f"{scene.ground.folder}/embedded/.", scene.workspace], check=True)
    used = sum(len(folders) + len(names) for _, folders, names in os.walk(scene.workspace)) + 1
    _mount("-o", f"remount,nr_inodes={used + scene.random.randint(1, 40)}", scene.workspace)
    done = scene.run("run").must(1)
    expect(SAID.search(done.err), f"the message does not name the disk: {done.err[-500:]}")
    _mount("-o", "remount,nr_inodes=0", scene.workspace)
    return done.said


FAULTS = faults(
    "full disks",
    {
        **{f"encoding, {n}": lambda s: fill(s, "embed") for n in "ab"},
        **{f"scoring, {n}": lambda s: fill(s, "evaluate", base="embedded") for n in "ab"},
        "a whole run": lambda s: fill(s, "run"),
        "reporting": lambda s: fill(s, "report", base="whole"),
        "a whole run, 900 kB free": lambda s: fill(s, "run", room=900_000),
        "a whole run, 1.8 MB free": lambda s: fill(s, "run", room=1_800_000),
        "no inodes": no_inodes,
    },
)
