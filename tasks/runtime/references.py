"""What tasks hand to each other and write down of a run: references, never arrays; library versions, the machine."""

from __future__ import annotations

import socket
import sys
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, TypeVar

from capim.store.schema import OfStates
from capim.store.types import Modality, SetKey, digest16

if TYPE_CHECKING:
    from capim.store import EmbeddingStore

T = TypeVar("T")
LIBRARIES = (
    "capim",
    "torch",
    "transformers",
    "open_clip_torch",
    "colpali-engine",
    "lancedb",
    "numpy",
    "scipy",
    "prefect",
)  # that can change a figure


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
    encodable: tuple[Modality, ...]  # of which every item has a file or a text
    note: str = ""  # why it has another name than its folder or file


@dataclass(frozen=True, kw_only=True)
class SetsRef:
    """The two sealed embedding sets of one encoder on one corpus."""

    encoder: str
    encoder_fingerprint: str
    corpus: str
    corpus_fingerprint: str

    @classmethod
    def of(cls, row: OfStates | SetKey) -> SetsRef:
        """Return the sets that a row is about."""
        return cls(**{each.name: getattr(row, each.name) for each in fields(cls)})


@dataclass(frozen=True, kw_only=True)
class EmbedRef:
    """One corpus was encoded with one encoder."""

    corpus: CorpusRef
    sets: SetsRef
    n_items: int
    n_encoded: int
    n_truncated: int
    rounding: str  # what the storage type changed of what was encoded, in words; empty if nothing
    batches: dict[str, int]  # modality -> items per forward pass, of what was encoded
    lacking: tuple[Modality, ...] = ()  # cannot be encoded and are not stored
    notes: tuple[str, ...] = ()  # what the user has to know, one line each


@dataclass(frozen=True, kw_only=True)
class ShardRef:
    """One shard of all corpora of a run was encoded with one encoder; ``shard`` is counted from 0."""

    encoder_fingerprint: str
    shard: int


@dataclass(frozen=True, kw_only=True)
class EvaluationRef:
    """Outcomes and results of one encoder on one corpus are in the store."""

    sets: SetsRef
    evaluations: dict[str, str]  # protocol id -> id of its evaluation
    n_scored: int
    n_added: int = 0  # figures that stored evaluations did not have yet
    uses: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ImportRef:
    """Imported outcomes and their figures are in the store.

    Attributes:
        lines: How rows were matched with queries and what was left out, then one line per protocol.
    """

    lines: tuple[str, ...]
    uses: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class CombinedRef:
    """The encoder of this name, made of others, has outcomes and figures in the store."""

    encoder: str
    uses: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class MetricRef:
    """The rows of a user's metric for the encoders of one corpus are in the store."""

    left_out: tuple[str, ...]  # encoders and protocols without a figure, with the reason
    uses: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Missing:
    """An encoder of a run that has no vectors, or no figures on a corpus, because it failed."""

    subject: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class CompareRef:
    """Comparisons of one corpus' encoders are in the store."""

    uses: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class AnalysisRef:
    """The slices of one corpus' encoders are in the store."""

    corpus: str
    n_slices: int
    uses: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class RankingRef:
    """The ranking of the run's encoders over its corpora is in the store; or why there is none (empty: one corpus)."""

    ranking: str = ""
    reason: str = ""
    uses: tuple[str, ...] = ()


def named(value: object) -> Iterator[Hashable]:
    """What tells which task made a value, or a part of it: embedding sets, shards, corpora, other references."""
    if isinstance(value, SetsRef | ShardRef | CompareRef | AnalysisRef | RankingRef):
        yield value
    elif isinstance(value, CorpusRef):
        yield value.fingerprint
    elif isinstance(value, EmbedRef | EvaluationRef):
        yield value.sets
    elif isinstance(value, Mapping):
        yield from named(list(value.values()))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from named(each)
    elif is_dataclass(value):
        yield from named([getattr(value, each.name) for each in fields(value)])


def rows_of(
    store: EmbeddingStore, row_type: type[T], references: Iterable[EvaluationRef | CompareRef | MetricRef]
) -> list[T]:
    """Return the rows of a type whose keys the references name."""
    keys = sorted({key for reference in references for key in reference.uses})
    return store.all(row_type, derived=keys)


def inputs_of(evaluations: Iterable[EvaluationRef], protocols: Sequence[str]) -> list[str]:
    """What names the outcomes of encoders under some protocols, in this order; empty ids where there are none."""
    return [
        f"{each.sets.encoder}@{each.sets.encoder_fingerprint} {each.evaluations.get(protocol, '')}"
        for each in evaluations
        for protocol in protocols
    ]


def by_corpus(evaluations: Sequence[EvaluationRef]) -> list[tuple[EvaluationRef, ...]]:
    """The evaluations of each corpus together, in the order given."""
    groups: dict[str, list[EvaluationRef]] = {}
    for evaluation in evaluations:
        groups.setdefault(evaluation.sets.corpus_fingerprint, []).append(evaluation)
    return [tuple(members) for members in groups.values()]


def encoder_name(entry: str | Mapping[str, Any]) -> str:
    """The stored name of an entry of ``RunConfig.encoders``."""
    return entry if isinstance(entry, str) else str(entry.get("name", ""))


@cache
def this_host() -> str:
    """What rows call this machine, as ``host-3f9a1c``: the same for all of its runs, and not its name."""
    return f"host-{digest16(socket.gethostname())[:6]}"


@cache
def library_versions() -> dict[str, str]:
    """Library -> version of the installed ones, and of Python."""
    return {"python": ".".join(map(str, sys.version_info[:3])), **versions_of(LIBRARIES)}


def versions_of(names: Iterable[str]) -> dict[str, str]:
    """Library -> version of the installed ones, in this order."""
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
