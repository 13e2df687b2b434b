"""What keeps a store in order, as methods of :class:`store.EmbeddingStore`: info, verify, diff, drop, compact."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from store.errors import RequestError
from store.maintenance import compaction, difference, health, inventory, removal, repair
from store.maintenance import disk_space as room
from store.maintenance.difference import SetDifference
from store.maintenance.health import Finding
from store.maintenance.inventory import StoreInfo
from store.maintenance.removal import Removal
from store.maintenance.repair import Removed
from store.sets import seal
from store.tables import corpora
from store.tables import metadata as registers
from store.tables.handle import Handle
from store.tables.schemas import ANALYSES, REGISTERS
from store.types import EncoderSpec, Modality, SetKey


class Maintenance(Handle):
    """The part of a store that looks after it; nothing here reads or makes embeddings."""

    def info(self) -> StoreInfo:
        """Sets, tables, rows, bytes, versions and who wrote them."""
        return inventory.info(self.connection)

    def verify(self) -> Iterator[Finding]:
        """Reads everything and gives one finding per corpus, set and table, as it goes; changes nothing."""
        return health.verify(self.connection)

    def find_set(self, reference: str) -> SetKey:
        """The set that a table name, its beginning, a tag or the beginning of a digest stands for.

        Raises:
            RequestError: None or several; lists what there is.
        """
        return inventory.find_set(self.connection, reference)

    def diff(self, a: SetKey, b: SetKey, *, other: Handle | None = None) -> SetDifference:
        """Compares two sets item by item; the second may be in another store."""
        return difference.diff(self.connection, a, other.connection if other else self.connection, b)

    def drop(
        self,
        *,
        encoder: str | None = None,
        corpus: str | None = None,
        modality: Modality | None = None,
        dry_run: bool = True,
    ) -> Removal:
        """Drops the embedding sets of an encoder, of a corpus, or of both; by default only says what would go.

        With nothing but a corpus the corpus goes too, with nothing but an encoder its registration. Results computed
        from what goes are kept: they name the sets that they came from.

        Raises:
            RequestError: The encoder or corpus is not in the store, or none was named.
        """
        row = None if corpus is None else corpora.corpus_row(self.connection, corpus)
        return removal.drop(
            self.connection,
            encoder_fingerprint=None if encoder is None else registers.encoder(self.connection, encoder).fingerprint,
            corpus=None if row is None else (str(row["name"]), str(row["fingerprint"])),
            modality=modality,
            dry_run=dry_run,
        )

    def intact(self, key: SetKey) -> bool:
        """Whether a set is sealed and the state that was sealed is still there; reads no row."""
        return seal.is_intact(self.connection, key)

    def repair(self, key: SetKey) -> int:
        """Removes a set's damaged rows, so that the next embed encodes these again; returns how many are missing now.

        Rows that are sound stay as they are. A sealed set must be sealed again afterwards, which the embed does.
        """
        items = corpora.item_index(self.connection, key.corpus, key.corpus_fingerprint, key.modality)
        return repair.repair(self.connection, key, items)

    def repair_table(self, name: str) -> Removed:
        """Removes the files of an analysis or register that cannot be read, and rows that were changed on disk.

        The next run makes again what they held; of ``runs`` and ``batches`` that history is lost.

        Raises:
            RequestError: There is no analysis or register of this name.
        """
        known = sorted({*ANALYSES, *REGISTERS})
        if name not in known:
            raise RequestError(f"there is no table {name!r} to repair; known are {', '.join(known)}")
        return repair.repair_table(self.connection, name)

    def compact(
        self, *, history: timedelta = compaction.HISTORY_AGE, leftover_age: timedelta = compaction.LEFTOVER_AGE
    ) -> dict[str, int]:
        """Puts small files together and collects garbage; sealed states stay readable.

        Args:
            history: Versions without a tag that are younger than this stay.
            leftover_age: Temporary files younger than this stay: their writer may be at work.

        Returns:
            Bytes freed by table.
        """
        return removal.tidy(self.connection, history=history, leftover_age=leftover_age)

    def check_room(self, spec: EncoderSpec, n_items: int, *, vectors_per_item: float = 1.0) -> int:
        """Bytes that a set will take while it is made (rows × bytes × 1.3).

        Raises:
            WorkError: The disk has less free; says how much it needs and has.
        """
        needed = room.bytes_needed(spec, n_items, vectors_per_item)
        room.refuse_lack_of_room(self.connection, needed, f"{n_items} items by {spec.name!r}")
        return needed
