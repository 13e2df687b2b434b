"""What a fault is and where it happens."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.faults.process import Capim, Done, Failed, Running, Watch

if TYPE_CHECKING:
    from tests.faults.ground import Ground


class NotTried(Exception):
    """This machine cannot make the fault; the message says why."""


@dataclass
class Scene:
    """Where one fault happens.

    Attributes:
        ground: The undisturbed workspaces.
        folder: Of this fault's own.
        random: Draws its moments and places.
        workspace: Folder or address of the workspace that is checked afterwards.
        capim: Starts commands.
        stack: What is undone after the check.
    """

    ground: Ground
    folder: Path
    random: random.Random
    workspace: str
    capim: Capim
    stack: ExitStack = field(default_factory=ExitStack)

    def begin_from(self, base: str = "") -> None:
        """Make the workspace a copy of ``embedded`` or ``whole``, or nothing."""
        shutil.rmtree(self.workspace, ignore_errors=True)
        if base:
            shutil.copytree(self.ground.folder / base, self.workspace)

    def start(self, *words: str) -> Running:
        """A command on the workspace."""
        return self.capim.start(*self.complete(words))

    def run(self, *words: str) -> Done:
        """A command on the workspace, to its end."""
        return self.capim(*self.complete(words))

    def kill_at(self, n: int, *words: str) -> bool:
        """``kill -9`` a command after so many of its files; whether it was at work until then."""
        watch = Watch(self.workspace)
        return self.start(*words).kill_when(partial(watch.reached, n))

    def complete(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """The words of a command with the suite and the workspace."""
        suite = [str(self.ground.suite)] if words in {("run",), ("embed",), ("evaluate",), ("compare",)} else []
        quiet = ["--quiet"] if words[0] in {"run", "embed", "evaluate", "compare", "report"} else []
        return (*words, *suite, *quiet, "--workspace", self.workspace)


class Fault(NamedTuple):
    """One thing that goes wrong; ``happen`` returns what was seen, and raises :class:`Failed`."""

    kind: str
    name: str
    happen: Callable[[Scene], str]


def faults(kind: str, happen: Mapping[str, Callable[[Scene], str]]) -> list[Fault]:
    """Faults of one kind, by name."""
    return [Fault(kind, name, each) for name, each in happen.items()]


def expect(holds: object, otherwise: str) -> None:
    """Raise :class:`Failed` unless this holds."""
    if not holds:
        raise Failed(otherwise)
