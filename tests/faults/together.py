"""Several at work on one store at once, some of them killed; and four suites beside `serve` and a watch, for long.

The last takes ``$CAPIM_FAULT_SECONDS``, by default one minute; twenty are ``CAPIM_FAULT_SECONDS=1200``.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count

from tests.faults.clicking import visit
from tests.faults.fault import Scene, expect, faults

SECONDS = float(os.environ.get("CAPIM_FAULT_SECONDS") or 60)
SUITES = {  # name of a suite -> its encoders and its corpora
    "one": ('"tiny-clip", "tiny-colpali"', 'name = "few"\nreader = "shapes"\nn_scenes = 10'),
    "two": ('"tiny-clip"', 'name = "many"\nreader = "shapes"\nn_scenes = 30'),
    "three": ('"tiny-colpali"', 'name = "many"\nreader = "shapes"\nn_scenes = 30'),
    "four": ('"tiny-clip", "tiny-colpali"', 'name = "quads"\nreader = "shapes-winoground"\nn_quadruples = 6'),
}


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


def crowd(scene: Scene) -> str:
    """Four suites, each again and again with another seed, `capim serve` and a watch; every figure is then recomputed.

    Every command ends well, every page is one, and `store verify --recompute` finds nothing.
    """
    scene.begin_from("whole")
    ends = time.monotonic() + SECONDS

    def again(*words: str) -> int:
        for number in count(1):
            seed = ("--seed", str(number)) if words[0] == "run" else ()
            scene.capim(*words, *seed, "--quiet", "--workspace", scene.workspace).must(0)
            if time.monotonic() > ends:
                return number
        raise AssertionError

    commands: list[tuple[str, ...]] = [("watch", "--corpora", "few", "--encoders", "tiny-clip", "--replicates", "200")]
    for name, (encoders, corpus) in SUITES.items():
        suite = scene.folder / f"{name}.toml"
        suite.write_text(f'name = "{name}"\nencoders = [{encoders}]\nreplicates = 200\n[[corpus]]\n{corpus}\n')
        commands.append(("run", str(suite)))
    server = scene.start("serve")
    try:
        with ThreadPoolExecutor() as pool:
            running = [pool.submit(again, *words) for words in commands]
            while not (address := (server.folder / "out").read_text()).strip():
                expect(time.monotonic() < ends + 60 and server.process.is_alive(), "`capim serve` shows no address")
                time.sleep(0.1)
            clicked = visit(address.splitlines()[0], seconds=ends - time.monotonic(), seed=0)
            rounds = [each.result() for each in running]
    finally:
        server.process.terminate()
        server.process.join(10)
    said = (server.folder / "err").read_text()[-2000:]
    expect(not clicked.faults, f"{len(clicked.faults)} of {clicked.n_pages} pages: {clicked.faults[:3]}\n{said}")
    scene.run("store", "verify", "--recompute").must(0)
    n_watches, *n_runs = rounds
    return f"{SECONDS:.0f} s: {n_runs} runs of four suites, {n_watches} watches, {clicked.n_pages} pages; recomputed"


FAULTS = faults(
    "races",
    {
        "two runs of one suite": lambda s: side_by_side(s, "run", "run"),
        "three encodes of one suite": lambda s: side_by_side(s, "embed", "embed", "embed"),
        "two scorings and a report": lambda s: side_by_side(s, "evaluate", "report", "run", base="whole"),
        "a run and two prunes": lambda s: side_by_side(s, "run", *["store prune --yes"] * 2, base="embedded"),
        "two runs, one killed": one_is_killed,
        f"four suites, serve and a watch for {SECONDS:.0f} s": crowd,
    },
)
