"""Random damages to any file of a small store that has every kind of table, many a second, in this process.

Each is found by what reads the file and by ``store verify``, or does not matter: then all values are what they were.
After ``repair_all`` and what a run does again, everything that is stored equals the undisturbed store.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from capim.store import EmbeddingStore, RequestError, WorkError
from capim.store.integrity import FAILED, repair_all, verify
from capim.store.types import SET_PREFIXES
from tests.faults.fault import Scene, expect, faults
from tests.faults.process import Failed
from tests.faults.small_store import Contents, contents, make, run


def flip(data: bytes, drawn: random.Random) -> bytes:
    """One bit of one byte changes."""
    place = drawn.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << drawn.randrange(8)]) + data[place + 1 :]


def zero(data: bytes, drawn: random.Random) -> bytes:
    """Up to 512 bytes in a row are zero."""
    start = drawn.randrange(len(data))
    stop = min(len(data), start + drawn.randint(1, 512))
    return data[:start] + bytes(stop - start) + data[stop:]


def cut(data: bytes, drawn: random.Random) -> bytes:
    """The end is gone."""
    return data[: drawn.randrange(1, max(2, len(data)))]


_CHANGES: dict[str, Callable[[bytes, random.Random], bytes]]
_CHANGES = {"flip": flip, "zero": zero, "cut": cut, "empty": lambda *_: b""}
OPERATIONS = (*_CHANGES, "delete", "older")


def spoil(file: Path, operation: str, drawn: random.Random) -> None:
    """Deletes a file, or changes what is in it."""
    if operation == "delete":
        file.unlink()
    elif data := file.read_bytes():
        file.write_bytes(_CHANGES[operation](data, drawn))


def damage(table: Path, drawn: random.Random) -> tuple[str, Path]:
    """Damages one file of a table or its record: any kind of file and any operation are equally likely."""
    kinds = (*table.iterdir(), table.parent / "digests" / table.stem)
    kind = drawn.choice(sorted(path for path in kinds if any(path.rglob("*"))))
    files = sorted((path for path in kind.rglob("*") if path.is_file()), key=lambda path: path.stat().st_mtime_ns)
    file, operation = drawn.choice(files), drawn.choice(OPERATIONS)
    if operation == "older":  # what a copy of yesterday puts in the place of today's file
        file.write_bytes(files[max(0, files.index(file) - 1)].read_bytes())
    else:
        spoil(file, operation, drawn)
    return operation, file


def undergo_one(ground: Path, undisturbed: Contents, copy: Path, drawn: random.Random, at_once: int = 1) -> str:
    """One damage to a copy of the store: ``found`` or ``harmless``; raises :class:`Failed` for anything else.

    With several ``at_once`` one file each of as many tables is damaged; ``found`` if any was.
    """
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(ground, copy)
    done = [damage(table, drawn) for table in drawn.sample(sorted(copy.glob("*.lance")), at_once)]
    what = " and ".join(f"{operation} of {file.relative_to(copy)}" for operation, file in done)
    panics = any(file.parent.name == "data" and file.parts[-3].startswith(SET_PREFIXES) for _, file in done)
    try:
        with _no_traceback(what, but_panics=panics):
            found = _found(copy, undisturbed, what, [file for _, file in done])
            for _ in range(at_once):  # sets are checked against their corpora, which come first
                # each table has one damage: of one without its record the rest is right
                repaired = dict(repair_all(EmbeddingStore.open(copy), accept=True))
                expect(FAILED not in str(repaired), f"{what}: {repaired}")
                run(EmbeddingStore.open(copy))
                left = [check for check in verify(EmbeddingStore.open(copy)) if check.state != "sound"]
                if not left:
                    break
            expect(not left, f"{what}: after repair ({repaired}) and a run: {left}")
            after = contents(EmbeddingStore.open(copy)) if found else undisturbed
            expect(after == undisturbed, f"{what}: after repair and a run: {_differing(after, undisturbed)}")
    except Failed:
        raise
    except BaseException as error:
        raise Failed(f"{what}: {type(error).__name__}: {error}") from error
    return "found" if found else "harmless"


def _found(copy: Path, undisturbed: Contents, what: str, files: list[Path]) -> bool:
    """Whether `store verify` finds a damage, by its file; otherwise everything is read as it was."""
    refused = None
    try:
        seen = contents(EmbeddingStore.open(copy))
    except (RequestError, WorkError) as fault:
        refused = str(fault)
    wrong = [check for check in verify(EmbeddingStore.open(copy)) if check.state in ("damaged", "lost")]
    if wrong:
        names = {file.name for file in files} | {f"digests/{file.parent.name} is missing" for file in files}
        named = any(name in check.detail for check in wrong for name in names)
        expect(named, f"{what}: the file is not named: {[check.detail for check in wrong]}")
    else:
        expect(refused is None, f"{what}: reading says {refused}, store verify nothing")
        expect(seen == undisturbed, f"{what}: nobody noticed, and values differ: {_differing(seen, undisturbed)}")
    return bool(wrong)


@contextmanager
def _no_traceback(what: str, *, but_panics: bool) -> Iterator[None]:
    """Raises :class:`Failed` if anything like a traceback was written to the standard error stream, Rust's included.

    Data files of sets are not digested before they are read, because their rows have checksums: Lance may panic there,
    and its line about that comes before our error.
    """
    saved = os.dup(2)
    with tempfile.TemporaryFile() as caught:
        os.dup2(caught.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            caught.seek(0)
            words = caught.read().decode("utf-8", "replace")
    shown = "Traceback" in words or ("panicked" in words and not but_panics)
    expect(not shown, f"{what}: on the standard error stream: {words[:500]}")


def _differing(found: Contents, expected: Contents) -> str:
    names = [name for name in expected | found if found.get(name) != expected.get(name)]
    first = next(iter(names), "")
    rows = [row for row in found.get(first, []) if row not in expected.get(first, [])][:1]
    return f"{names}: {len(found.get(first, []))} rows, {len(expected.get(first, []))} expected, other: {rows}"


def undergo(n: int, folder: Path, *, seed: int | str, first: int = 0, at_once: int = 1) -> Counter[str]:
    """``n`` trials, the numbers ``first`` and on of this seed; in how many damage was found, and was harmless."""
    folder.mkdir(parents=True, exist_ok=True)
    undisturbed = make(folder / "ground")
    counts: Counter[str] = Counter()
    for number in range(first, first + n):
        drawn = random.Random(f"{seed}/{number}")
        try:
            counts[undergo_one(folder / "ground", undisturbed, folder / "copy", drawn, at_once)] += 1
        except Failed as failure:
            raise Failed(f"damage {number} of seed {seed}: {failure}") from failure
    return counts


def _many(scene: Scene, n: int, first: int) -> str:
    """That many in a process of their own: what it shows on its standard error stream is looked at."""
    scene.begin_from("whole")
    words = [sys.executable, "-m", "tests.faults.damages", str(n), str(first), str(scene.folder / "damages")]
    environment = {**os.environ, "RUST_BACKTRACE": "0"}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    expect(done.returncode == 0, done.stderr[-2000:])
    return done.stdout.strip()


FAULTS = faults(
    "random damages", {f"{first} to {first + 99}": partial(_many, n=100, first=first) for first in range(0, 500, 100)}
)

if __name__ == "__main__":
    n, first, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    counts = undergo(n, folder, seed=0, first=first)
    print(f"{n} files damaged, {counts['found']} found and healed, {counts['harmless']} harmless")
