"""What travels between tasks: names and fingerprints, never arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class CorpusRef:
    """A registered corpus, and how to open it again for its image bytes."""

    what: str | dict[str, Any]
    sample: int | None
    seed: int
    name: str
    fingerprint: str
    n_images: int
    n_captions: int
    n_skipped: int
    skipped: tuple[str, ...]  # the first few as "id: reason"
    changes: tuple[str, ...]  # against what the store had under this name before; empty if nothing


@dataclass(frozen=True, kw_only=True)
class SetsRef:
    """The two sealed embedding sets of one encoder on one corpus."""

    encoder: str
    encoder_fingerprint: str
    corpus: str
    corpus_fingerprint: str


@dataclass(frozen=True, kw_only=True)
class EmbedRef:
    """What encoding one corpus with one encoder came to."""

    corpus: CorpusRef
    sets: SetsRef
    n_items: int
    n_encoded: int
    n_truncated: int
    batches: dict[str, int]  # items of one forward pass by modality, of what was encoded
    seconds: float


@dataclass(frozen=True, kw_only=True)
class EvaluationRef:
    """Outcomes and results of one encoder on one corpus are in the store."""

    sets: SetsRef
    evaluations: dict[str, str]  # protocol id -> id of its evaluation
    n_scored: int


@dataclass(frozen=True, kw_only=True)
class CompareRef:
    """Comparisons of one corpus' encoders are in the store."""

    corpus: str
    corpus_fingerprint: str
    n_comparisons: int


def encoder_name(entry: str | Mapping[str, Any]) -> str:
    """The name that an entry of a run's encoders goes by in the store."""
    return entry if isinstance(entry, str) else str(entry.get("name", ""))


def corpus_name(entry: str | Mapping[str, Any]) -> str:
    """The name that an entry of a run's corpora goes by in the store: its own, or that of its folder or file.

    Examples:
        >>> corpus_name("../shared/data/coco_photos"), corpus_name({"name": "mine", "root": "x"})
        ('coco_photos', 'mine')
    """
    if isinstance(entry, str):
        return Path(entry).stem
    return str(entry.get("name") or entry.get("reader", ""))
