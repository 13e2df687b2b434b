"""What a fault is and where it happens."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tests.faults.ground import Ground
    from tests.faults.process import Capim, Done, Running


class Failed(AssertionError):
    """What was promised did not hold; the message says what was seen."""


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

    def begin_from(self, workspace: Path | None) -> None:
        """Make the workspace a copy of this one, or nothing."""
        shutil.rmtree(self.workspace, ignore_errors=True)
        if workspace is not None:
            shutil.copytree(workspace, self.workspace)

    def start(self, *words: str) -> Running:
        """A command on the workspace."""
        return self.capim.start(*self._complete(words))

    def run(self, *words: str) -> Done:
        """A command on the workspace, to its end."""
        return self.capim(*self._complete(words))

    def _complete(self, words: tuple[str, ...]) -> tuple[str, ...]:
        suite = [str(self.ground.suite)] if words in {("run",), ("embed",), ("evaluate",), ("compare",)} else []
        quiet = ["--quiet"] if words[0] in {"run", "embed", "evaluate", "compare", "report"} else []
        return (*words, *suite, *quiet, "--workspace", self.workspace)


class Fault(NamedTuple):
    """One thing that goes wrong; ``happen`` returns what was seen, and raises :class:`Failed`."""

    kind: str
    name: str
    happen: Callable[[Scene], str]


def expect(holds: object, otherwise: str) -> None:
    """Raise :class:`Failed` unless this holds."""
    if not holds:
        raise Failed(otherwise)
