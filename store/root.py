"""The root of a store: the newest version of every table, in one place beside the records of their files.

A record says what the files of a table are; the root says which record there has to be. So a table that is gone
together with its record, an older copy of both, and the table of another name are damage. An entry is changed before a
table is made, after each commit, and before a table is dropped: a process that is killed in between leaves a table that
is newer than its entry, which is no damage.

Several processes change it at once, in folders and in object storage, without a lock: each writes all that it has read
with its own change as a new file, and then removes the files that it has read. Where two did so at the same time both
files stay, and whoever reads them takes the later entry of each table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

import xxhash

if TYPE_CHECKING:
    from capim.store.digests import TableFiles

RECORDS = "digests"  # a folder beside those of the tables, with a folder for each: it outlives a removed table
ROOT = "root"  # among these folders
_REMEMBERED = timedelta(days=3)  # that a table was dropped: no process is that late with what it read before


class Entry(NamedTuple):
    """What the root says of a table; of two entries the greater is the later.

    Attributes:
        change: How many times the entry was changed.
        version: The newest version of the table; 0 while it is made, and after it was dropped.
        digest: Of the manifest of this version; of version 0 the day.
    """

    change: int
    version: int
    digest: str


ABSENT = Entry(0, 0, "")


class Root:
    """The root of one database, read again only when something seems to be behind it."""

    def __init__(self, files: TableFiles) -> None:
        self._files = files
        self._heads: dict[str, dict[str, Entry] | None] = {}

    def entries(self, *, fresh: bool = False) -> dict[str, Entry]:
        """Table -> its entry; ``fresh``: as of now, not as this object last read it."""
        heads = self._read() if fresh or not self._heads else self._heads
        return _merged(heads)

    def enter(self, name: str, version: int, digest: str = "", *, anew: bool = False) -> None:
        """Changes the entry of a table.

        Without a root only the first table gets an entry, or any with ``anew``: else nobody could see that it is gone.
        """
        heads = self._read()
        if not heads and not anew and self._files.sizes("", RECORDS):
            return
        entries, today = _merged(heads), datetime.now(UTC).date()
        entry = entries.get(name, ABSENT)
        if version and entry[1:] == (version, digest):
            return
        entries[name] = Entry(entry.change + 1, version, digest if version else str(today))
        kept = {name: each for name, each in sorted(entries.items()) if each.version or _is_recent(each, today)}
        text = json.dumps(kept, separators=(",", ":")).encode()
        path = f"{RECORDS}/{xxhash.xxh3_64_hexdigest(text)}.json"
        self._files.write(ROOT, path, text)
        for other, head in heads.items():
            if other != path and head is not None:
                with suppress(OSError):  # another process has removed it
                    self._files.remove(ROOT, other)
        self._heads = {path: kept}

    def problems(self) -> list[str]:
        """What is wrong with the root itself, in words."""
        heads = self._read()
        damaged = [
            f"{self._files.whole(ROOT, path)} was changed on disk" for path, head in heads.items() if head is None
        ]
        missing = not heads and self._files.names()
        return [f"{self._files.whole(ROOT, RECORDS)} is missing"] if missing else damaged

    def remove_damaged(self) -> None:
        """Removes the files that were changed on disk."""
        for path, head in self._read().items():
            if head is None:
                self._files.remove(ROOT, path)

    def _read(self) -> dict[str, dict[str, Entry] | None]:
        """Path -> the entries in this file; None if it was changed on disk."""
        heads: dict[str, dict[str, Entry] | None] = {}
        for path in self._files.sizes(ROOT, RECORDS):
            if self._heads.get(path) is not None:
                heads[path] = self._heads[path]
                continue
            text = self._files.read(ROOT, path)
            if text is None:  # another process has just written a newer one
                return self._read()
            whole = path.endswith(f"/{xxhash.xxh3_64_hexdigest(text)}.json")
            heads[path] = {name: Entry(*entry) for name, entry in json.loads(text).items()} if whole else None
        self._heads = heads
        return heads


def _merged(heads: Mapping[str, Mapping[str, Entry] | None]) -> dict[str, Entry]:
    entries: dict[str, Entry] = {}
    for head in heads.values():
        for name, entry in (head or {}).items():
            entries[name] = max(entries.get(name, entry), entry)
    return entries


def _is_recent(dropped: Entry, today: date) -> bool:
    return today - date.fromisoformat(dropped.digest) < _REMEMBERED
