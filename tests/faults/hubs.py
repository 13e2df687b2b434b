"""The first hour on a connected machine, with a double of the hub: every model and corpus by its name, from nothing.

Models are miniatures in their true formats under their true names, data sets have the published numbers of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial

from capim.tasks.corpora import JUDGED_TASKS
from capim.tasks.encoders import entry_of
from tests.faults.fault import Scene, expect, faults
from tests.hub.double import HubDouble
from tests.hub.first_hour import CORPORA_ON_HUB, FirstHour
from tests.hub.models import ROWS

_IMAGES_ELSEWHERE = {"sugarcrepe-pp": "val2017"}  # corpora whose images the hub does not have
_AT_ONCE = 20


@contextmanager
def first_hour(scene: Scene, **published: Iterable[str]) -> Iterator[FirstHour]:
    """A hub with these rows, and a home with nothing in it."""
    scene.begin_from()
    with HubDouble() as hub:
        hour = FirstHour(hub, scene.folder / "hour")
        hour.publish(**published)
        yield hour


def models(scene: Scene, adapter: str) -> str:
    """Every row of the catalog with this adapter encodes a few scenes."""
    names = [name for name in ROWS if entry_of(name).adapter == adapter]
    with first_hour(scene, encoders=names) as hour:
        words = ("--corpora", "shapes", "--sample", "4", "--device", "cpu", "--trust-remote-code")
        done = hour.capim("embed", *words, "--encoders", ",".join(names))
        expect(done.code == 0, done.err[-900:])
        lines = [name for name in names if f"{name} on shapes-sample4: " in done.out + done.err]
        expect(lines == names, f"not encoded: {set(names) - set(lines)}")
        again = hour.capim("check", names[-1], "--trust-remote-code", HF_HUB_OFFLINE="1")
        expect("loads offline" in again.out and "pass" in again.out, again.out[-400:] + again.err[-400:])
    return f"{len(names)} rows encoded: {', '.join(names)}"


def corpora(scene: Scene) -> str:
    """Every corpus of the hub that is not one of judged pages is read, registered and evaluated."""
    names = [name for name in CORPORA_ON_HUB if name not in JUDGED_TASKS]
    with first_hour(scene, corpora=names) as hour:
        plain = [name for name in names if name not in _IMAGES_ELSEWHERE]
        for name, images in _IMAGES_ELSEWHERE.items():
            description = hour.place / f"{name}.toml"
            description.write_text(f'reader = "{name}"\nimages = "{hour.place / "copies" / name / images}"\n')
            plain.append(str(description))
        words = ("--encoders", "tiny-clip", "--device", "cpu", "--replicates", "100")
        done = hour.capim("run", "--corpora", ",".join(plain), *words)
        expect(done.code == 0, done.err[-900:])
    return f"{len(names)} corpora: {', '.join(names)}"


def pages(scene: Scene) -> str:
    """Published corpora of document pages, with as many rows as were counted; one with fewer would be refused."""
    names = [name for name in CORPORA_ON_HUB if name in JUDGED_TASKS]
    with first_hour(scene, corpora=names) as hour:
        for first in range(0, len(names), _AT_ONCE):
            some = names[first : first + _AT_ONCE]
            words = ("--wide", "--corpora", ",".join(some), "--encoders", "tiny-clip")
            done = hour.capim("run", "--dry-run", *words)
            expect(done.code == 0, done.err[-900:])
            expect(not (left := [name for name in some if name not in done.out]), f"not planned: {left}")
    return f"{len(names)} corpora of pages"


FAULTS = faults(
    "hub",
    {
        **{
            f"every model of adapter {adapter}": partial(models, adapter=adapter)
            for adapter in dict.fromkeys(entry_of(name).adapter for name in ROWS)
        },
        "every corpus": corpora,
        "every corpus of pages": pages,
    },
)
