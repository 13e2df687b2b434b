"""Splits an encode into shards, which are encoded by any task, process or machine and share only the store."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass
from multiprocessing import get_context

from capim.store import EmbeddingStore
from capim.store.errors import WorkError
from capim.store.types import MODALITIES, EncoderSpec, Modality
from capim.tasks.runtime.encoding import EncodedSet, EncodeSettings, SetEncoder
from capim.tasks.runtime.open_corpora import OpenCorpora
from capim.tasks.runtime.references import CorpusRef

logger = logging.getLogger(__name__)
Encoded = list[dict[Modality, EncodedSet]]  # by corpus


@dataclass(frozen=True, kw_only=True)
class EncodeWork:
    """One encode: a model, corpora, and which shard of their items.

    Attributes:
        opened: Where they are read from.
        settings: Device, batch sizes and the like; they do not change a vector.
        shard: Which of ``n_shards``, from 0: the items whose position leaves this remainder.
        n_shards: 1: all items.
        modalities: What to encode, where the corpus has files or texts for it.
    """

    spec: EncoderSpec
    corpora: tuple[CorpusRef, ...]
    opened: OpenCorpora
    store_uri: str
    settings: EncodeSettings
    run: str
    shard: int = 0
    n_shards: int = 1
    modalities: tuple[Modality, ...] = MODALITIES

    @property
    def number(self) -> int:
        """The shard, counted from 1 as on the command line."""
        return self.shard + 1


def modalities_of(corpus: CorpusRef, wanted: Sequence[Modality]) -> list[Modality]:
    """The wanted modalities of a corpus that can be encoded, images first."""
    return [modality for modality in MODALITIES if modality in wanted and modality in corpus.encodable]


def encode_work(work: EncodeWork) -> Encoded:
    """Encode what is missing of the work's shard, by corpus and modality; without shards, also seal the sets."""
    store = EmbeddingStore.open(work.store_uri, create=True)
    store.write_encoder(work.spec)
    with closing(SetEncoder(work.spec, store, work.settings, work.run)) as encoder:
        encoded: Encoded = [
            {
                side: encoder.encode(work.opened.get(store, reference), side, shard=work.shard, n_shards=work.n_shards)
                for side in modalities_of(reference, work.modalities)
            }
            for reference in work.corpora
        ]
    return _logged(work, encoded)


def _logged(work: EncodeWork, encoded: Encoded) -> Encoded:
    """What was encoded, with one line of the log for each set."""
    of_shard = f", shard {work.number} of {work.n_shards}" if work.n_shards > 1 else ""
    for corpus, sets in zip(work.corpora, encoded, strict=True):
        for side, done in sets.items():
            counts = [f"{done.n_encoded} encoded"]
            counts += [] if of_shard else [f"{done.n_items - done.n_encoded} reused"]  # others encode the others
            counts += [f"{corpus.n_skipped} skipped"] if side == "image" else []
            name = f"{work.spec.name} on {corpus.name}, {side}s{of_shard}"
            logger.info("%s: %s, %.1f s", name, ", ".join(counts), done.seconds)
    return encoded


def encode_in_processes(works: Sequence[EncodeWork]) -> list[Encoded]:
    """Encode shards in parallel on this machine, each in its own process.

    Raises:
        WorkError: A process died.
    """
    with ProcessPoolExecutor(len(works), mp_context=get_context("spawn")) as pool:
        started = [pool.submit(encode_work, work) for work in works]
        try:
            return [_logged(work, process.result()) for work, process in zip(works, started, strict=True)]
        except BrokenProcessPool as error:
            raise WorkError(
                f"a process that encoded with {works[0].spec.name!r} on one of "
                f"{', '.join(work.settings.device for work in works)} died; what was encoded is stored, run the same "
                "command to continue"
            ) from error
