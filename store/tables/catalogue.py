"""What a store knows beside embeddings, as methods of :class:`store.EmbeddingStore`: corpora, encoders, analyses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from store.query import sql as query
from store.tables import analysis_rows as results
from store.tables import corpora
from store.tables import metadata as registers
from store.tables.handle import Handle
from store.types import Corpus, EncoderSpec, IndexedImage, Modality


class Catalogue(Handle):
    """The part of a store that writes and reads rows rather than vectors."""

    # --- corpora and items ------------------------------------------------------------------------------------
    def write_corpus(self, corpus: Corpus) -> None:
        """Stores a corpus, image bytes excepted; once; from then on its name stands for it."""
        corpora.write_corpus(self.connection, corpus)

    def corpus(self, name: str, fingerprint: str | None = None) -> Corpus:
        """A stored corpus by name (the newest), by fingerprint, or both; ``source`` is None."""
        return corpora.read_corpus(self.connection, name, fingerprint)

    def corpora(self) -> pa.Table:
        """One row per stored corpus: name, fingerprint, counts, languages, licence, origin, written."""
        return registers.read(self.connection, "corpora")

    def items(self, corpus: str, modality: Modality) -> pa.Table:
        """The images or captions of a corpus in corpus order (``schema.IMAGES``, ``schema.CAPTIONS``)."""
        row = corpora.corpus_row(self.connection, corpus)
        return corpora.corpus_part(self.connection, f"{modality}s", str(row["name"]), str(row["fingerprint"]))

    def indexed_images(self, shas: Sequence[str]) -> dict[str, str | None]:
        """Of these image hashes the known ones: None where the image decodes, else the reason why not."""
        return registers.indexed_images(self.connection, shas)

    def write_image_index(self, rows: Iterable[IndexedImage]) -> None:
        """Keeps sizes and thumbnails of images by the hash of their bytes; known hashes stay as they are."""
        registers.write_image_index(self.connection, rows)

    def thumbnails(self, shas: Sequence[str]) -> dict[str, bytes]:
        """Encoded thumbnails by image hash; hashes without one are left out."""
        return registers.thumbnails(self.connection, shas)

    # --- encoders ---------------------------------------------------------------------------------------------
    def write_encoder(self, spec: EncoderSpec) -> None:
        """Registers a resolved spec; from now on its name stands for it (a change of meaning is logged)."""
        registers.write_encoder(self.connection, spec)

    def encoder(self, name_or_fingerprint: str) -> EncoderSpec:
        """The spec of a fingerprint, or the one last registered under a name."""
        return registers.encoder(self.connection, name_or_fingerprint)

    def encoders(self) -> pa.Table:
        """One row per name and fingerprint: name, fingerprint, spec (JSON), written."""
        return registers.read(self.connection, "encoders")

    # --- rows of analyses -------------------------------------------------------------------------------------
    def write_rows(self, table: str, rows: pa.Table, *, replace: str | None = None) -> int:
        """Writes rows of an analysis in one commit.

        Args:
            table: ``outcomes``, ``results``, ``comparisons``, ``slices``, ``batches`` or ``runs``.
            rows: The table's columns (``store.schema``) in any order; nullable ones may be left out.
            replace: A column: stored rows that share a value of it with these rows go, in the same commit. Without
                one, rows whose primary key is stored already are left as they are.

        Returns:
            Rows written.

        Raises:
            RequestError: A column or a value does not fit; nothing was written.
        """
        return results.write_rows(self.connection, table, rows, replace)

    def rows(self, table: str, **equals: str | Sequence[str]) -> pa.Table:
        """Rows of an analysis whose columns hold the given texts; several texts mean any of them."""
        return results.read_rows(self.connection, table, equals)

    def counts(self, table: str, column: str, **equals: str | Sequence[str]) -> dict[str, int]:
        """How many of :meth:`rows` have each text in one column, without reading the others."""
        return results.count_rows(self.connection, table, column, equals)

    def outcomes(
        self,
        *,
        encoder: str | None = None,
        corpus: str | None = None,
        protocol: str | None = None,
        evaluation: str | None = None,
    ) -> pa.Table:
        """What single queries got (``schema.OUTCOMES``), by encoder, corpus (name or fingerprint), protocol."""
        return self.rows("outcomes", **self._whose(encoder, corpus, protocol=protocol, evaluation=evaluation))

    def results(
        self,
        *,
        encoder: str | None = None,
        corpus: str | None = None,
        protocol: str | None = None,
        metric: str | None = None,
    ) -> pa.Table:
        """Metrics with intervals (``schema.RESULTS``), by encoder, corpus (name or fingerprint), protocol, metric."""
        return self.rows("results", **self._whose(encoder, corpus, protocol=protocol, metric=metric))

    def sql(self, statement: str) -> pa.Table:
        """The answer to a SELECT (DuckDB) over all tables of the store; cannot write. See ``store.query.sql``."""
        return query.select(self.connection, statement)

    def _whose(self, encoder: str | None, corpus: str | None, **columns: str | None) -> dict[str, str]:
        whose = {column: text for column, text in columns.items() if text is not None}
        if encoder is not None:
            whose["encoder_fingerprint"] = self.encoder(encoder).fingerprint
        if corpus is not None:
            whose["corpus_fingerprint"] = str(corpora.corpus_row(self.connection, corpus)["fingerprint"])
        return whose
