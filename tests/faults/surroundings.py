"""Processes that may do little, in odd places: few open files, little memory, other locales, clocks."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.faults.fault import NotTried, Scene, faults
from tests.faults.process import Done, Failed

FAKETIME = Path(os.environ.get("LIBFAKETIME") or "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")  # Debian's
LAST_SECONDS = 5.0  # of a process that has printed its error


def run(scene: Scene, *words: str, limit: str = ":", **environment: str) -> Done:
    """A command in a process that a shell starts; after its error it ends within five seconds.

    Args:
        limit: What the shell does first, such as ``ulimit -n 40``.
        environment: Of the command, beside the fixed one.
    """
    given = scene.complete(words)
    begun = ["bash", "-c", f'{limit}; exec "$@"', "bash", sys.executable, "-m", "capim.flows.cli", *given]
    told, complained = [], 0.0
    with subprocess.Popen(
        ["env", *(f"{name}={value}" for name, value in environment.items()), *begun],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            told.append(line)
            complained = complained or (time.monotonic() if line.startswith("capim: ") else 0.0)
        process.wait(60)
    late = time.monotonic() - complained if complained else 0.0
    done = Done(given, process.returncode, "", "".join(told))
    if late > LAST_SECONDS:
        raise Failed(f"`capim {' '.join(given)}` ended {late:.0f} s after its error: {done.err[-500:]}")
    return done


def limited(scene: Scene, *limits: str, command: str = "evaluate") -> str:
    """With less than it needs a command fails in words, and what it stored is whole."""
    scene.begin_from("embedded" if command == "evaluate" else "whole")
    said = [run(scene, command, limit=limit).must(0, 1).said for limit in limits]
    return "; ".join(said)


def elsewhere(scene: Scene, locale: str = "", **environment: str) -> str:
    """Where letters have other cases, and the encoding is not UTF-8, figures and names are the same.

    ``locale`` is made here: a machine need not have it.
    """
    scene.begin_from()
    if locale:
        made = ["localedef", "-i", locale, "-f", "UTF-8", str(scene.folder / f"{locale}.UTF-8")]
        if subprocess.run(made, capture_output=True, check=False).returncode > 1:  # 1: with warnings
            raise NotTried(f"localedef cannot make {locale} (apt-get install locales)")
        environment |= {"LOCPATH": str(scene.folder), "LC_ALL": f"{locale}.UTF-8", "LANG": f"{locale}.UTF-8"}
    return run(scene, "run", **environment).must(0).said


def clock(scene: Scene, *times: str) -> str:
    """A clock that jumps between and during commands changes no figure and damages nothing."""
    if not FAKETIME.exists():
        raise NotTried(f"{FAKETIME} is not installed (apt-get install faketime)")
    scene.begin_from()
    for command, moment in zip(("embed", "evaluate", "run"), times, strict=True):
        run(scene, command, LD_PRELOAD=str(FAKETIME), FAKETIME=moment, FAKETIME_DONT_FAKE_MONOTONIC="1").must(0)
    return f"{len(times)} commands at {', '.join(times)}"


FAULTS = faults(
    "surroundings",
    {
        "few open files (ulimit -n)": lambda s: limited(s, "ulimit -n 24", "ulimit -n 40"),
        # PyTorch with CUDA needs 6 GB of addresses; less than 1 GB, and Rust ends the process in its own words
        "little memory (ulimit -v)": lambda s: limited(s, "ulimit -v 4000000", "ulimit -v 6200000"),
        "little memory, no model": lambda s: limited(s, "ulimit -v 1200000", "ulimit -v 2500000", command="report"),
        "LC_ALL=C": lambda s: elsewhere(s, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"),
        "LC_ALL=tr_TR": lambda s: elsewhere(s, "tr_TR"),
        "clocks that jump": lambda s: clock(s, "+2d", "-1d", "+1h"),
    },
)
