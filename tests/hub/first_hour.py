"""The first hour on a connected machine: commands in processes of their own, which take the double for the hub."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from capim.tasks.corpora import CORPORA, JUDGED_TASKS, pinned
from capim.tasks.corpora.description import open_corpus
from tests.corpora import hub_copies, local_copies
from tests.corpora.own_data import contents
from tests.hub import models
from tests.hub.double import HubDouble

CORPORA_ON_HUB = [name for name, entry in CORPORA.items() if entry.hub]
COCO_IMAGES = "images.cocodataset.org"
LONGEST_SECONDS = 900


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


class FirstHour:
    """A home folder with nothing in it, a hub with some models and corpora, and commands."""

    def __init__(self, hub: HubDouble, place: Path) -> None:
        self.hub, self.place, self.home = hub, place, place / "home"
        self.home.mkdir(parents=True)

    def publish(self, *, encoders: Iterable[str] = (), corpora: Iterable[str] = ()) -> None:
        """Put these rows of the catalog and of the corpora on the hub."""
        for name in encoders:
            for repository, folder, commit in models.repositories(name, self.place / "models"):
                self.hub.push("models", repository, folder, commit=commit)
        for name in corpora:
            self._publish_corpus(name)

    def _publish_corpus(self, name: str) -> None:
        folder, copy = self.place / "data" / name, self.place / "copies" / name
        if name in JUDGED_TASKS:
            task = JUDGED_TASKS[name]
            folder = self.place / "data" / task.dataset  # several corpora may share one
            hub_copies.judged(folder, task)
        else:
            found = local_copies.copy_of(name, copy)
            if found is None:
                raise LookupError(f"no copy of {name}")
            hub_copies.write(name, folder, copy, contents(open_corpus(found.description)))
        if name == "coco-karpathy":
            self.hub.sites[COCO_IMAGES] = copy
        self.hub.push("datasets", CORPORA[name].hub, folder, commit=pinned(CORPORA[name].hub) or "")

    def capim(self, *words: str, **variables: str) -> Done:
        """A command to its end."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "CAPIM_", "PREFECT_"))}
        environment = {**kept, "OMP_NUM_THREADS": "1", **self.hub.environment(self.home), **variables}
        architectures = self.place / "models" / "architectures"
        architectures.mkdir(parents=True, exist_ok=True)
        place = () if words[0] == "check" else ("--workspace", str(self.place / "ws"))
        command = [sys.executable, "-m", "tests.hub.models", str(architectures), *words, *place]
        how: Any = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": LONGEST_SECONDS}
        done = subprocess.run(command, env=environment, check=False, **how)
        return Done(done.returncode, done.stdout, done.stderr)
