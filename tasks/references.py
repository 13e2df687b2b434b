"""References that tasks hand to each other, never arrays; and what a run records of libraries and machine."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from capim.store.schema import OfStates
from capim.store.types import Modality, SetKey, digest16
from capim.tasks.statistics.draws import Resampling

if TYPE_CHECKING:
    from capim.store import EmbeddingStore
    from capim.store.types import Corpus, EncoderSpec
    from capim.tasks.corpora.opened import OpenCorpora
    from capim.tasks.derive import Derived
    from capim.tasks.ranking.resources import Resources

T = TypeVar("T")
Named: TypeAlias = str | dict[str, Any]
LIBRARIES = (
    "capim", "torch", "transformers", "tokenizers", "open_clip_torch", "timm", "colpali-engine", "peft",
    "sentence-transformers", "uform", "mteb", "pillow", "datasets", "lancedb", "numpy", "scipy", "prefect",
)  # fmt: skip
"""Libraries that can change a result; a run records their versions."""


@dataclass(frozen=True, kw_only=True)
class CorpusRef:
    """A registered corpus, and how to read it again for its image bytes."""

    what: str | dict[str, Any]
    sample: int | None
    seed: int
    name: str
    fingerprint: str
    n_images: int
    n_captions: int
    n_skipped: int
    skipped: tuple[str, ...]  # the first few as "id: reason"
    changes: tuple[str, ...]  # since the store last had this name
    encodable: tuple[Modality, ...]  # with a file or a text for every item
    note: str = ""  # why it has another name than its folder or file

    def read(self, opened: OpenCorpora, store: EmbeddingStore) -> Corpus:
        """Return the corpus, with a source for its image bytes."""
        from capim.tasks.corpora.naming import CorpusToRead  # with readers, and what decodes images

        return opened.get(store, CorpusToRead(self.what, self.sample, self.seed), self.name, self.fingerprint)

    @property
    def facts(self) -> dict[str, int | str]:
        """Return numbers for the log of a run."""
        return {"images": self.n_images, "captions": self.n_captions, "skipped": self.n_skipped}


@dataclass(frozen=True, kw_only=True)
class SetsRef(OfStates):
    """The two sealed embedding sets of one encoder on one corpus."""

    @classmethod
    def of(cls, row: OfStates | SetKey) -> SetsRef:
        """Return the sets that a row is about."""
        return cls(**{each.name: getattr(row, each.name) for each in fields(cls)})

    @classmethod
    def between(cls, spec: EncoderSpec, corpus: Corpus | CorpusRef) -> SetsRef:
        """Return the sets that an encoder has, or may have, on a corpus."""
        return cls.of(SetKey.of(spec, corpus.name, corpus.fingerprint, "image"))

    def vectors(self, store: EmbeddingStore) -> tuple[Any, Any]:
        """Return the vectors of images and captions, read from the store as they are requested.

        They are ``ranking.vectors.VectorRows``; of an encoder with several vectors per item, ``Blocks``.
        """
        of = {"encoder": self.encoder_fingerprint, "corpus": self.corpus_fingerprint}
        return store.windows(**of, modality="image"), store.windows(**of, modality="caption")


@dataclass(frozen=True, kw_only=True)
class EmbedRef:
    """One corpus was encoded with one encoder."""

    corpus: CorpusRef
    sets: SetsRef
    n_items: int
    n_encoded: int
    n_truncated: int
    rounding: str  # a sentence on the changes by the storage type; empty if there are none
    batches: dict[str, int]  # modality -> items per forward pass
    lacking: tuple[Modality, ...] = ()  # cannot be encoded and are not stored
    notes: tuple[str, ...] = ()  # what the user has to know, one line each

    @property
    def facts(self) -> dict[str, int | str]:
        """Return numbers for the log and the assets of a run."""
        return {"rows": self.n_items, "encoded": self.n_encoded, "truncated": self.n_truncated}


@dataclass(frozen=True, kw_only=True)
class EvaluationRef:
    """Outcomes and results of one encoder on one corpus are in the store."""

    sets: SetsRef
    evaluations: dict[str, str]  # protocol id -> id of its evaluation
    n_scored: int
    n_added: int = 0  # results that stored evaluations did not have yet
    uses: tuple[str, ...] = ()

    @property
    def facts(self) -> dict[str, int | str]:
        """Return numbers for the log and the assets of a run."""
        digest = digest16(sorted(self.evaluations.values()))
        return {"protocols": len(self.evaluations), "scored": self.n_scored, "added": self.n_added, "digest": digest}


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Corpora, or samples of them, encoders and protocols in a store, as they were named; empty: all."""

    store_uri: str
    corpora: Sequence[Named] = ()
    encoders: Sequence[Named] = ()
    protocols: Sequence[str] = ()
    sample: int | None = None
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Settings that the tasks of a run share.

    Attributes:
        run: Id of the run.
        protocols: Those that are evaluated; empty: all that fit.
        analyses: Those that run; empty: all but those that run on request only.
        device: Where scores are computed.
        memory_bytes: For the vectors and scores of a part; None: the default.
        keep_replicates: Store every bootstrap replicate.
    """

    store_uri: str
    run: str
    resampling: Resampling
    protocols: Sequence[str] = ()
    analyses: Sequence[str] = ()
    device: str = "cpu"
    memory_bytes: int | None = None
    keep_replicates: bool = False

    @property
    def resources(self) -> Resources:
        """Return the device and the memory for scoring."""
        from capim.tasks.ranking.resources import Resources  # torch

        return Resources(self.device, self.memory_bytes)

    @property
    def of_results(self) -> dict[str, Any]:
        """Return the arguments of what makes results."""
        return {"resampling": self.resampling, "run": self.run, "keep_replicates": self.keep_replicates}


@dataclass(frozen=True, kw_only=True)
class Missing:
    """An encoder of a run that has no vectors, or no results on a corpus, because it failed."""

    subject: str
    reason: str


def rows_of(store: EmbeddingStore, row_type: type[T], references: Iterable[EvaluationRef | Derived]) -> list[T]:
    """Return the rows of a type that the references name."""
    keys = sorted({key for reference in references for key in reference.uses})
    return store.all(row_type, derived=keys) if keys else []


def inputs_of(evaluations: Iterable[EvaluationRef], protocols: Sequence[str]) -> list[str]:
    """Return the names of encoders' outcomes under some protocols, in this order; empty ids where there are none."""
    return [
        f"{each.sets.encoder}@{each.sets.encoder_fingerprint} {each.evaluations.get(protocol, '')}"
        for each in evaluations
        for protocol in protocols
    ]


def corpus_of(store: EmbeddingStore, evaluations: Sequence[EvaluationRef]) -> Corpus:
    """Return the corpus of evaluations that are all of the same one."""
    sets = evaluations[0].sets
    return store.corpus(sets.corpus, sets.corpus_fingerprint)


def by_corpus(evaluations: Sequence[EvaluationRef]) -> list[tuple[EvaluationRef, ...]]:
    """Return the evaluations of each corpus together, in the order given."""
    groups: dict[str, list[EvaluationRef]] = {}
    for evaluation in evaluations:
        groups.setdefault(evaluation.sets.corpus_fingerprint, []).append(evaluation)
    return [tuple(members) for members in groups.values()]


def by_revision(evaluations: Iterable[EvaluationRef]) -> list[list[EvaluationRef]]:
    """Return evaluations on one corpus in groups without two revisions of an encoder: one group if all names differ.

    Examples:
        >>> sets = [SetsRef(encoder=name[0], encoder_fingerprint=name, corpus="", corpus_fingerprint="")
        ...         for name in ("a1", "b1", "a2")]
        >>> groups = by_revision(EvaluationRef(sets=each, evaluations={}, n_scored=0) for each in sets)
        >>> [[each.sets.encoder_fingerprint for each in group] for group in groups]
        [['a1', 'b1'], ['a2']]
    """
    groups: list[list[EvaluationRef]] = []
    seen = Counter[str]()
    for each in evaluations:
        place = seen[each.sets.encoder]
        seen[each.sets.encoder] += 1
        if place == len(groups):
            groups.append([])
        groups[place].append(each)
    return groups


def encoder_name(entry: str | Mapping[str, Any]) -> str:
    """Return the stored name of an entry of ``RunConfig.encoders``."""
    if not isinstance(entry, str):
        return str(entry.get("name", ""))
    if "/" not in entry:
        return entry
    from capim.tasks.encoders.catalog import stored_name  # pydantic

    return stored_name(entry)


@cache
def this_host() -> str:
    """Return what rows call this machine, such as ``host-3f9a1c``: the same in all of its runs, and not its name."""
    return f"host-{digest16(socket.gethostname())[:6]}"


@cache
def this_machine() -> dict[str, str]:
    """Return the system, cores and memory of this machine, and its NVIDIA GPUs with their memory and driver."""
    from capim.tasks.encoders.device import usable_cores

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    found = {"system": platform.platform(), "cores": str(usable_cores()), "memory": f"{memory:.0f} GiB"}
    command = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    with suppress(OSError, subprocess.SubprocessError):  # without such a GPU, or with one that does not answer
        listed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout
        gpus = Counter(line.rpartition(", ") for line in listed.splitlines())
        found["GPU"] = "; ".join(f"{n} x {gpu}, driver {driver}" for (gpu, _, driver), n in gpus.items())
    return found


@cache
def library_versions() -> dict[str, str]:
    """Return library -> version, of those that are installed and of Python."""
    return {"python": ".".join(map(str, sys.version_info[:3])), **versions_of(LIBRARIES)}


def versions_of(names: Iterable[str]) -> dict[str, str]:
    """Return library -> version, of those that are installed, in this order."""
    found = {}
    for name in names:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
