"""Tasks: register corpora, resolve encoders, and encode what the store does not have, whole or in shards.

Shards are encoded by any task, process or machine, and share only the store. The checksum of the weights, as they were
loaded, tells whether a model is the one that encoded the stored vectors; for an endpoint, probes do: a few items with
stored vectors.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import blake2b
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from capim.store import Block, EmbeddingStore
from capim.store.errors import RequestError, WorkError
from capim.store.schema import Batch, Probe, StoredCorpus, Weights, texts
from capim.store.types import MODALITIES, Corpus, EncoderSpec, Modality, SetKey
from capim.store.upkeep.inventory import check_disk_space
from capim.store.vectors import rounding_of, rounding_text
from capim.tasks.corpora.check import describe_change, encodable, encoding_fault, import_advice
from capim.tasks.corpora.images.decode import decode_image, unchanged
from capim.tasks.corpora.naming import corpus_to_read
from capim.tasks.corpora.opened import OpenCorpora, store_at
from capim.tasks.encoders import Encoder, adapter_named, identity_gap, load_encoder, resolve
from capim.tasks.encoders.device import choose_device, device_identity, device_name
from capim.tasks.encoders.encoder import service_of
from capim.tasks.hub.progress import track
from capim.tasks.prefects.task import asset, may_pass, task
from capim.tasks.ranking.protocols import select_protocols
from capim.tasks.reference.changes import cosines
from capim.tasks.references import CorpusRef, EmbedRef, Named, Selection, SetsRef, library_versions, this_host

if TYPE_CHECKING:
    from capim.tasks.encoders.pipeline import CaptionWork, EncodedBatch, ImageWork


logger = logging.getLogger(__name__)
BATCH_ROWS = 64  # rows of timings in one commit


@dataclass(frozen=True, kw_only=True)
class EncodeSettings:
    """Settings of an encode that do not change a vector.

    Attributes:
        device: One device: ``auto``, ``cpu``, ``cuda``, ``cuda:1``, ``mps``.
        image_batch: Images per forward pass; None: measured once the model is loaded.
        caption_batch: Captions per forward pass; None: measured.
        trust_remote_code: Allow code from the checkpoint's repository to run.
    """

    device: str = "auto"
    image_batch: int | None = 32
    caption_batch: int | None = 256
    trust_remote_code: bool = False


@dataclass(frozen=True, kw_only=True)
class EncodedSet:
    """Counts of one encoded set.

    Attributes:
        n_encoded: Items that were missing and are stored now.
        n_truncated: Encoded captions that were longer than the model's maximum length.
        batch_size: Items per forward pass at the end, after any halving; 0 where nothing was encoded.
        rounding: The length of the largest change of an encoded vector by the storage type.
        seconds: How long it took, with loading the model if this was its first set.
    """

    n_items: int
    n_encoded: int = 0
    n_truncated: int = 0
    batch_size: int = 0
    rounding: float = 0.0
    seconds: float = 0.0


class SetEncoder:
    """Holds the model, and a lock on its device, from the first missing item until it is closed."""

    def __init__(self, spec: EncoderSpec, store: EmbeddingStore, settings: EncodeSettings, run: str) -> None:
        self.spec = spec
        self._store = store
        self._settings = settings
        self._run = run
        self._loaded: Encoder | None = None
        self._found: dict[Modality, int] = {}
        self._held = ExitStack()

    def close(self) -> None:
        """Release the model and the lock on its device."""
        self._loaded = None
        self._held.close()

    def encode(self, corpus: Corpus, modality: Modality, *, shard: int = 0, n_shards: int = 1) -> EncodedSet:
        """Bring the set of one modality of a corpus up to date and seal it.

        With ``n_shards`` above one, encode only every n-th item (with the remainder ``shard``)
        and leave the seal to whoever started the shards.
        """
        begun = time.perf_counter()
        table = corpus.items(modality)
        key = SetKey.of(self.spec, corpus.name, corpus.fingerprint, modality)
        if self._store.intact(key):
            return EncodedSet(n_items=len(table))
        missing = self._store.missing(key)
        missing = missing[missing % n_shards == shard]
        done = self._encode(key, corpus, table, missing) if len(missing) else EncodedSet(n_items=len(table))
        if n_shards == 1:
            self._store.seal(key)
        return replace(done, seconds=time.perf_counter() - begun)

    def _encode(self, key: SetKey, corpus: Corpus, table: pa.Table, missing: NDArray[np.int32]) -> EncodedSet:
        from capim.tasks.encoders.pipeline import encode_stream, plan_batches

        encoder = self._encoder()
        ids = texts(table["id"])
        work, shas = _work(corpus, key.modality, missing)
        sha_of = dict(zip(missing.tolist(), shas, strict=True))
        n_truncated, batch_size, rounding = 0, self._batch_size(key.modality), 0.0
        batches: list[Batch] = []
        unit = f"{key.modality}s"
        stream = encode_stream(encoder, work, batch_size=batch_size)
        plan = [work.ords[np.concatenate(each)] for each in plan_batches(encoder, work, batch_size)]
        with (
            track(f"{self.spec.name} · {corpus.name} · {unit}", total=len(missing), unit=unit) as advance,
            closing(stream),
            naming_batch(plan, ids) as stored,
        ):
            for batch in stream:
                batch_id = f"{self._run}-{secrets.token_hex(4)}"
                if batch.index == 0:  # how many vectors an item has is known from now on
                    per_item = float(batch.embeddings.counts.mean())
                    check_disk_space(self._store, self.spec, len(missing), vectors_per_item=per_item)
                begun = time.perf_counter()
                block = Block(
                    ords=batch.ords,
                    embeddings=batch.embeddings,
                    input_shas=[sha_of[int(i)] for i in batch.ords],
                    batch_id=batch_id,
                )
                self._store.put(key, self.spec, block)
                batches.append(self._batch_row(key, batch, batch_id, time.perf_counter() - begun))
                if len(batches) == BATCH_ROWS:
                    self._write_batches(batches)
                n_truncated += int(batch.embeddings.truncated.sum())
                rounding = max(rounding, rounding_of(batch.embeddings.values, self.spec.storage))
                batch_size = min(batch_size, batch.batch_size)
                stored.append(len(batch.ords))
                advance(len(batch.ords))
        self._write_batches(batches)
        check_probes(self._store, encoder, run=self._run)  # before a seal: an endpoint may have changed meanwhile
        return EncodedSet(
            n_items=len(table),
            n_encoded=len(missing),
            n_truncated=n_truncated,
            batch_size=batch_size,
            rounding=rounding,
        )

    def _encoder(self) -> Encoder:
        if self._loaded is None:
            device = device_for(self.spec, self._settings.device)
            self._held.enter_context(held(device_identity(device)))
            loaded = load_encoder(self.spec, device=device, trust_remote_code=self._settings.trust_remote_code)
            check_weights(self._store, loaded, run=self._run)
            check_probes(self._store, loaded, run=self._run)
            self._loaded = loaded
        return self._loaded

    def _batch_size(self, modality: Modality) -> int:
        from capim.tasks.encoders.pipeline import find_batch_size

        given: int | None = getattr(self._settings, f"{modality}_batch")
        if given is None and service_of(self._encoder()) is not None:  # to try sizes would be paid for
            given = getattr(EncodeSettings, f"{modality}_batch")
        if given is None and modality not in self._found:
            self._found[modality] = find_batch_size(self._encoder(), modality)
        return self._found[modality] if given is None else given

    def _batch_row(self, key: SetKey, batch: EncodedBatch, batch_id: str, write_seconds: float) -> Batch:
        encoder = self._encoder()
        service = service_of(encoder)
        return Batch(
            batch_id=batch_id,
            set_name=key.table,
            encoder=key.encoder,
            encoder_fingerprint=key.encoder_fingerprint,
            corpus=key.corpus,
            modality=key.modality,
            n_items=batch.n_encoded,
            warmup=batch.index == 0,
            decode_seconds=batch.decode_seconds,
            preprocess_seconds=batch.preprocess_seconds,
            forward_seconds=batch.forward_seconds,
            write_seconds=write_seconds,
            peak_memory_bytes=batch.peak_memory_bytes,
            batch_size=batch.batch_size,
            forward_precision=self.spec.precision if service is None else "of the service",
            device=hardware_of(encoder),
            host=this_host(),
            versions=json.dumps(library_versions()),
            run=self._run,
            created=datetime.now(UTC),
        )

    def _write_batches(self, rows: list[Batch]) -> None:
        """Write and clear these rows: few commits for many batches."""
        self._store.write(rows)
        rows.clear()


def device_for(spec: EncoderSpec, device: str) -> str:
    """Return the device on which a model is loaded; of an endpoint, which needs none, the CPU."""
    return choose_device("cpu" if adapter_named(spec.adapter).is_remote else device)


def hardware_of(encoder: Encoder) -> str:
    """Return the name of the hardware that a model runs on, or the address of its service."""
    service = service_of(encoder)
    return device_name(encoder.device) if service is None else service.address


@contextmanager
def naming_batch(plan: Sequence[NDArray[np.int32]], ids: Sequence[str]) -> Iterator[list[int]]:
    """Add to an error which batch it was in, and how many items were stored before: the sum of the list.

    ``plan`` has the positions of each batch; they are encoded in this order.
    """
    stored: list[int] = []
    try:
        yield stored
    except Exception as error:
        if len(stored) < len(plan):
            first, last = (ids[plan[len(stored)][at]] for at in (0, -1))
            n_stored = f"{sum(stored)} of {sum(map(len, plan))} are stored"
            error.add_note(f"in the batch from {first!r} to {last!r}; {n_stored}")
        raise


def _work(corpus: Corpus, modality: Modality, ords: NDArray[np.int32]) -> tuple[ImageWork | CaptionWork, list[str]]:
    """Return the items to encode, and the hash of each input."""
    from capim.tasks.encoders.pipeline import CaptionWork, ImageWork

    if fault := encoding_fault(corpus, [modality]):
        raise RequestError(fault)
    if modality == "caption":
        captions = texts(corpus.captions["text"].take(ords))
        shas = [blake2b(text.encode(), digest_size=16).hexdigest() for text in captions]
        return CaptionWork(ords=ords, texts=captions), shas
    if corpus.source is None:
        raise RequestError(f"corpus {corpus.name!r} was read without its image files")
    source, chosen = corpus.source, corpus.images.take(ords)
    shas, keys = texts(chosen["sha"]), texts(chosen["key"])
    sha_of = dict(zip(keys, shas, strict=True))

    def read(key: str) -> bytes:
        return unchanged(source.read(key), sha_of[key], key)

    return ImageWork(ords=ords, keys=keys, shas=shas, read=read, decode=decode_image), shas


Encoded = list[dict[Modality, EncodedSet]]  # by corpus


@dataclass(frozen=True, kw_only=True)
class EncodeWork:
    """One encode: a model, corpora, and which shard of their items.

    Attributes:
        opened: Where they are read from.
        settings: Device, batch sizes and the like; they do not change a vector.
        shard: Which of ``n_shards``, from 0: items at positions with this remainder.
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
        """Return the shard, counted from 1 as on the command line."""
        return self.shard + 1


def modalities_of(corpus: CorpusRef, wanted: Sequence[Modality]) -> list[Modality]:
    """Return the wanted modalities of a corpus that can be encoded, images first."""
    return [modality for modality in MODALITIES if modality in wanted and modality in corpus.encodable]


def encode_work(work: EncodeWork) -> Encoded:
    """Encode the missing items of the work's shard, by corpus and modality; without shards, also seal the sets."""
    store = EmbeddingStore.open(work.store_uri, create=True)
    store.write_encoder(work.spec)
    with closing(SetEncoder(work.spec, store, work.settings, work.run)) as encoder:
        encoded: Encoded = [
            {
                side: encoder.encode(reference.read(work.opened, store), side, shard=work.shard, n_shards=work.n_shards)
                for side in modalities_of(reference, work.modalities)
            }
            for reference in work.corpora
        ]
    return logged(work, encoded)


def logged(work: EncodeWork, encoded: Encoded) -> Encoded:
    """Log one line for each set; return the sets."""
    of_shard = f", shard {work.number} of {work.n_shards}" if work.n_shards > 1 else ""
    for corpus, sets in zip(work.corpora, encoded, strict=True):
        for side, done in sets.items():
            counts = [f"{done.n_encoded} encoded"]
            counts += [] if of_shard else [f"{done.n_items - done.n_encoded} reused"]  # others encode the others
            counts += [f"{corpus.n_skipped} skipped"] if side == "image" else []
            name = f"{work.spec.name} on {corpus.name}, {side}s{of_shard}"
            logger.info("%s: %s, %.1f s", name, ", ".join(counts), done.seconds)
    return encoded


@contextmanager
def held(identity: str) -> Iterator[None]:
    """Hold an accelerator for the block; waits while another process of this host holds it.

    The operating system gives the lock back when a process dies, however it dies. The CPU is shared and not locked.

    Args:
        identity: As of ``tasks.encoders.device.device_identity``.

    Examples:
        >>> with held("cpu"), held("cpu"):
        ...     pass
    """
    if identity == "cpu":
        yield
        return
    lock = FileLock(lock_file(identity), mode=0o666, thread_local=False)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        logger.warning("%s is encoding for another process; waiting until it is free (%s)", identity, lock.lock_file)
        begun = time.monotonic()
        lock.acquire()
        logger.info("%s is free after %.0f s", identity, time.monotonic() - begun)
    try:
        yield
    finally:
        lock.release()


def lock_file(identity: str) -> Path:
    """Return the path of the lock of a device, the same for every user and workspace of a host."""
    return Path(tempfile.gettempdir()) / f"capim-{re.sub('[^A-Za-z0-9-]', '-', identity)}.lock"


def check_weights(store: EmbeddingStore, encoder: Encoder, *, run: str) -> None:
    """Raise unless the weights are those that encoded the stored vectors; the first call keeps their checksum.

    A fingerprint names files, and two processes could make different models of them: a library that fills in, casts or
    converts something, or another of its versions. Nothing is checked where an adapter does not know the weights.

    Raises:
        WorkError: The checksum is another one.
    """
    from capim.tasks.encoders.weights import checksum_of

    spec, checksum, now = encoder.spec, checksum_of(encoder), library_versions()
    if not checksum:
        return
    rows = store.all(Weights, encoder_fingerprint=spec.fingerprint)
    if not rows:
        first = Weights(
            encoder_fingerprint=spec.fingerprint,
            checksum=checksum,
            versions=json.dumps(now),
            run=run,
            created=datetime.now(UTC),
        )
        store.write([first])
        rows = store.all(Weights, encoder_fingerprint=spec.fingerprint)  # another process may have been faster
    for kept in rows:
        if kept.checksum != checksum:
            then = json.loads(kept.versions)
            differ = [name for name in now if then.get(name) != now[name]]
            changed = [f"{name} {then.get(name)}, now {now[name]}" for name in differ]
            raise WorkError(
                f"encoder {spec.name!r}: the weights of {spec.checkpoint}, as loaded now, are not those that encoded "
                f"the stored vectors: their checksum is {checksum}, and was {kept.checksum} on "
                f"{kept.created:%Y-%m-%d} ({'; '.join(changed) or 'with the same versions of all libraries'}). "
                "Vectors of two models are not mixed in one set; to encode all with these weights, run: "
                f"capim store drop --encoder {spec.name} --yes"
            )


def probe_cosines(store: EmbeddingStore, encoder: Encoder, *, run: str) -> dict[str, float]:
    """Return probe -> cosine of its vector now with the stored one; store the vectors of probes that are not stored.

    None for a model that runs here.
    """
    service = service_of(encoder)
    if service is None:
        return {}
    from capim.tasks.encoders.adapters.endpoint import probe_vectors  # torch

    vectors = probe_vectors(encoder, image=service.takes_images)
    fingerprint = encoder.spec.fingerprint
    kept = {row.item: row.vector for row in store.all(Probe, encoder_fingerprint=fingerprint)}
    created = datetime.now(UTC)
    new = [
        Probe(encoder_fingerprint=fingerprint, item=item, vector=vector.tolist(), run=run, created=created)
        for item, vector in vectors.items()
        if item not in kept
    ]
    store.write(new)
    again = [item for item in vectors if item in kept]
    then = [np.asarray([kept[item]], dtype=np.float32) for item in again]
    same = cosines(then, [vectors[item][None] for item in again])
    return dict(zip(again, same.tolist(), strict=True))


def check_probes(store: EmbeddingStore, encoder: Encoder, *, run: str) -> None:
    """Raise unless an endpoint is still the model that encoded the stored vectors; the first call keeps its vectors.

    Raises:
        WorkError: The vector of a probe has changed.
    """
    found = probe_cosines(store, encoder, run=run)
    if not found:
        return
    from capim.tasks.encoders.adapters.endpoint import LOWEST_COSINE  # torch

    lowest = min(found, key=found.__getitem__)
    if found[lowest] >= LOWEST_COSINE:
        return
    kept = store.all(Probe, encoder_fingerprint=encoder.spec.fingerprint)
    since, today = min(row.created for row in kept), datetime.now(UTC)
    spec, address = encoder.spec, encoder.spec.options.get("url", "its address")
    raise WorkError(
        f"encoder {spec.name!r}: {spec.checkpoint} at {address} is another model than on {since:%Y-%m-%d}: "
        f"the vector of {lowest!r} has a cosine of {found[lowest]:.4f} with that of then, expected {LOWEST_COSINE} or "
        "more. Vectors of two models are not mixed in one set; to encode with the new one, give the table of "
        f'{spec.name} a revision of your choice, such as revision = "{today:%Y-%m-%d}"'
    )


# --- The tasks.

SHOWN = 5  # images that were skipped


def _sets(work: EncodeWork, **_: object) -> list[str]:
    return [asset(work.store_uri, "sets", work.spec.name, corpus.name) for corpus in work.corpora]


@task("embed", encodes=True, makes=_sets, run_name="embed-{work.spec.name}")
def embed_corpora(work: EncodeWork, shards: Sequence[Encoded] = ()) -> tuple[EmbedRef, ...]:
    """Encode images and captions of corpora block by block into the store, and seal the sets.

    The model is loaded once for all corpora, when the first missing item is reached. An interrupted encode continues
    with the next call. ``shards`` is what :func:`embed_shard` encoded before.
    """
    parts = [encode_work(work), *shards]
    store = EmbeddingStore.open(work.store_uri)
    return tuple(
        _reference(work.spec, corpus, [part[at] for part in parts], _lacking(store, work.spec, corpus))
        for at, corpus in enumerate(work.corpora)
    )


@task("embed-shard", encodes=True, run_name="embed-{work.spec.name}-shard-{work.number}-of-{work.n_shards}")
def embed_shard(work: EncodeWork) -> Encoded:
    """Encode one shard wherever the task runner puts it; seals nothing."""
    return encode_work(work)


@task("embed-on-devices", encodes=True, run_name="embed-{works[0].spec.name}-on-devices")
def embed_on_devices(works: Sequence[EncodeWork]) -> list[Encoded]:
    """Encode the shards of one model in parallel on this machine, each in a process and on a device of its own.

    Seals nothing.

    Raises:
        WorkError: A process died.
    """
    with ProcessPoolExecutor(len(works), mp_context=get_context("spawn")) as pool:
        started = [pool.submit(encode_work, work) for work in works]
        try:
            return [logged(work, process.result()) for work, process in zip(works, started, strict=True)]
        except BrokenProcessPool as error:
            raise WorkError(
                f"a process that encoded with {works[0].spec.name!r} on one of "
                f"{', '.join(work.settings.device for work in works)} died; the encoded vectors are stored, run the "
                "same command to continue"
            ) from error


@task("is-complete")
def is_complete(
    specs: Sequence[EncoderSpec], corpora: Sequence[CorpusRef], modalities: Sequence[Modality], *, store_uri: str
) -> bool:
    """True if every item of these sets that can be encoded is stored, sealed or not."""
    store = EmbeddingStore.open(store_uri)
    return not any(
        len(store.missing(SetKey.of(spec, corpus.name, corpus.fingerprint, modality)))
        for spec in specs
        for corpus in corpora
        for modality in modalities_of(corpus, modalities)
    )


def _lacking(store: EmbeddingStore, spec: EncoderSpec, corpus: CorpusRef) -> tuple[Modality, ...]:
    """Return the modalities of a corpus that cannot be encoded and were not imported for this encoder either."""
    keys = {m: SetKey.of(spec, corpus.name, corpus.fingerprint, m) for m in MODALITIES if m not in corpus.encodable}
    return tuple(modality for modality, key in keys.items() if store.sealed(key) is None)


def _reference(
    spec: EncoderSpec, corpus: CorpusRef, parts: Sequence[Mapping[Modality, EncodedSet]], lacking: tuple[Modality, ...]
) -> EmbedRef:
    """Return the sum of all parts' work on one corpus."""
    gap = identity_gap(spec)
    encoded = [each for part in parts for each in part.values()]
    return EmbedRef(
        corpus=corpus,
        sets=SetsRef.between(spec, corpus),
        n_items=sum(each.n_items for each in parts[0].values()),
        n_encoded=sum(each.n_encoded for each in encoded),
        n_truncated=sum(each.n_truncated for each in encoded),
        rounding=rounding_text(max((each.rounding for each in encoded), default=0.0), spec.storage),
        batches={side: each.batch_size for part in parts for side, each in part.items() if each.n_encoded},
        lacking=lacking,
        notes=(*([gap] if gap else []), *(import_advice(spec.name, corpus.name, each) for each in lacking)),
    )


@task("check-corpora", timeout_hours=12)
def check_corpora(selection: Selection, opened: OpenCorpora, *, modalities: Sequence[Modality]) -> list[str]:
    """Read corpora into ``opened`` before anything is written; returns all faults, also of protocols.

    A corpus without a file or text for any of ``modalities`` is a fault.

    Raises:
        RequestError: The same faults, if one of them may pass (a hub that did not answer), so that the task is retried.
    """
    faults: list[str] = []
    passing, store = None, store_at(selection.store_uri)
    register = [] if store is None else store.corpora()
    for what in selection.corpora:
        try:
            request = corpus_to_read(what, register, sample=selection.sample, seed=selection.seed)
            corpus = opened.read(request, store)
            faults += filter(None, [encoding_fault(corpus, modalities, given=what)])
            select_protocols(corpus, selection.protocols)
        except RequestError as error:
            faults.extend(error.faults)
            passing = error if may_pass(error) else passing
    if passing is not None:
        raise RequestError(faults) from passing
    return faults


@task("register-corpus", timeout_hours=24)
def register_corpus(what: Named, opened: OpenCorpora, selection: Selection) -> CorpusRef:
    """Read a corpus, decode every image that the store has not seen, and store its items and thumbnails.

    Raises:
        RequestError: The corpus is unknown, missing, empty or contradicts itself.
    """
    store = EmbeddingStore.open(selection.store_uri, create=True)
    register = store.corpora()
    request = corpus_to_read(what, register, sample=selection.sample, seed=selection.seed)
    usual = opened.read(request, store).name
    corpus = opened.index(store, request)
    changes = _changes(store, corpus, register)
    store.write_corpus(corpus)
    return CorpusRef(
        **request._asdict(),
        name=corpus.name,
        fingerprint=corpus.fingerprint,
        n_images=len(corpus.images),
        n_captions=len(corpus.captions),
        n_skipped=len(corpus.skipped),
        changes=changes,
        skipped=tuple(f"{row['item_id']}: {row['reason']}" for row in corpus.skipped.slice(0, SHOWN).to_pylist()),
        encodable=encodable(corpus),
        note="" if corpus.name == usual else f"{usual!r} from {corpus.location} is stored under this name",
    )


def _changes(store: EmbeddingStore, corpus: Corpus, register: Sequence[StoredCorpus]) -> tuple[str, ...]:
    """Return the differences from the newest stored corpus of the same name; empty if there are none."""
    newest = max((row for row in register if row.name == corpus.name), key=lambda row: row.written, default=None)
    if newest is None or newest.fingerprint == corpus.fingerprint:
        return ()
    lines = describe_change(store.corpus(corpus.name, newest.fingerprint), corpus)
    if newest.locations and corpus.location not in newest.locations:
        lines.insert(0, f"the name {corpus.name!r} now means {corpus.location}; it meant {newest.locations[-1]}")
    return tuple(lines)


@task("resolve", run_name="resolve-{spec.name}", timeout_hours=1)
def resolve_encoder(spec: EncoderSpec) -> EncoderSpec:
    """Return the spec with every revision fixed; see :func:`tasks.encoders.resolve`."""
    return resolve(spec)
