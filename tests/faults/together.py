"""Several at work on one store at once, some of them killed."""

from __future__ import annotations

from tests.faults.fault import Fault, Scene
from tests.faults.kills import Watch


def side_by_side(scene: Scene, *commands: tuple[str, ...], base: str | None = None) -> str:
    """All end well."""
    scene.begin_from(None if base is None else getattr(scene.ground, base))
    for running in [scene.start(*words) for words in commands]:
        running.wait().must(0)
    return f"{len(commands)} ended well"


def one_is_killed(scene: Scene) -> str:
    """The other does not notice."""
    scene.begin_from(None)
    other, victim = scene.start("run"), scene.start("run")
    watch, n = Watch(scene.workspace), scene.random.randint(5, 120)
    killed = victim.kill_when(lambda: watch.new() >= n)
    other.wait().must(0)
    return f"one killed at file {n}, the other ended well" if killed else "both ended well"


FAULTS = [
    Fault("races", "two runs of one suite", lambda s: side_by_side(s, ("run",), ("run",))),
    Fault("races", "three encodes of one suite", lambda s: side_by_side(s, ("embed",), ("embed",), ("embed",))),
    Fault(
        "races",
        "two scorings and a report",
        lambda s: side_by_side(s, ("evaluate",), ("report",), ("run",), base="whole"),
    ),
    Fault(
        "races",
        "a run and two compactions",
        lambda s: side_by_side(s, ("run",), ("store", "compact"), ("store", "compact"), base="embedded"),
    ),
    Fault("races", "two runs, one killed", one_is_killed),
]
