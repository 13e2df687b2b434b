"""What all parts of :class:`store.EmbeddingStore` hold: the database."""

from __future__ import annotations

from store.tables.connection import Connection


class Handle:
    """A store's database; ``connection`` is for this package only."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    @property
    def uri(self) -> str:
        """Where the store is, as an absolute path or an address."""
        return self.connection.uri
