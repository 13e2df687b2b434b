"""Several at work on one store at once, some of them killed."""

from __future__ import annotations

from tests.faults.fault import Scene, faults


def side_by_side(scene: Scene, *commands: str, base: str = "") -> str:
    """All end well."""
    scene.begin_from(base)
    for running in [scene.start(*words.split()) for words in commands]:
        running.wait().must(0)
    return f"{len(commands)} ended well"


def one_is_killed(scene: Scene) -> str:
    """The other does not notice."""
    scene.begin_from()
    other, n = scene.start("run"), scene.random.randint(5, 120)
    killed = scene.kill_at(n, "run")
    other.wait().must(0)
    return f"one killed at file {n}, the other ended well" if killed else "both ended well"


FAULTS = faults(
    "races",
    {
        "two runs of one suite": lambda s: side_by_side(s, "run", "run"),
        "three encodes of one suite": lambda s: side_by_side(s, "embed", "embed", "embed"),
        "two scorings and a report": lambda s: side_by_side(s, "evaluate", "report", "run", base="whole"),
        "a run and two compactions": lambda s: side_by_side(s, "run", *["store compact"] * 2, base="embedded"),
        "two runs, one killed": one_is_killed,
    },
)
