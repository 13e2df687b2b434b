"""``capim corpora check``: everything that is wrong with a corpus, and what is worth knowing, before a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from store.errors import RequestError
from store.types import Corpus
from tasks.corpora.description import reader_call
from tasks.corpora.facts import CorpusFacts, corpus_facts
from tasks.corpora.images.image_index import index_images

_SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class CorpusCheck:
    """What a check found.

    Attributes:
        name: Of the corpus; empty where it could not be read.
        fingerprint: Of what would be run; empty where it could not be read.
        facts: Counts; None where it could not be read.
        faults: A run would refuse the corpus for these.
        warnings: A run would go ahead; its figures should be read with these in mind.
    """

    name: str = ""
    fingerprint: str = ""
    facts: CorpusFacts | None = None
    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether a run would take the corpus."""
        return not self.faults

    def lines(self) -> list[str]:
        """The findings for people: faults first, then warnings, then facts."""
        lines = [f"fault: {fault}" for fault in self.faults]
        lines += [f"warning: {warning}" for warning in self.warnings]
        if self.facts is not None:
            lines += [f"{label}: {value}" for label, value in self.facts.rows()]
        if self.ok:
            lines.append(f"{self.name} ({self.fingerprint}) can be run")
        return lines


def check_corpus(
    what: str | Path | Mapping[str, object],
    *,
    base: Path | None = None,
    decode: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> CorpusCheck:
    """Read a corpus as a run would and say all that is wrong with it; stores nothing and raises nothing.

    Args:
        what: As for :func:`tasks.corpora.open_corpus`: usually a TOML description or a folder.
        base: Folder that relative paths in a mapping start from.
        decode: Decode every image too, which a run would do; takes about as long as reading them.
        progress: Called with the number of images decoded and to decode.
    """
    try:
        corpus = reader_call(what, base=base).read()
        whole = corpus
        if decode:
            corpus = index_images(corpus, known={}, sink=lambda _: None, progress=progress)
    except RequestError as error:
        return CorpusCheck(faults=error.faults)
    facts = corpus_facts(corpus)
    return CorpusCheck(
        name=corpus.name,
        fingerprint=corpus.fingerprint,
        facts=facts,
        warnings=tuple(_warnings(whole, corpus, facts)),
    )


def _warnings(whole: Corpus, usable: Corpus, facts: CorpusFacts) -> list[str]:
    found = [f"image {row['image_id']} is left out: {row['reason']}" for row in usable.skipped.to_pylist()[:_SHOWN]]
    if usable.skipped.num_rows > _SHOWN:
        found.append(f"… and {usable.skipped.num_rows - _SHOWN:,} more images are left out")
    lost = whole.captions.num_rows - usable.captions.num_rows
    if lost:
        found.append(f"{lost:,} captions are left out with their images")
    if facts.duplicate_images:
        found.append(f"{facts.duplicate_images:,} images have the same bytes as another: they tie in every ranking")
    if facts.duplicate_captions:
        found.append(f"{facts.duplicate_captions:,} captions repeat another of the same language: they tie")
    if facts.empty_captions:
        found.append(f"{facts.empty_captions:,} captions are empty")
    if facts.n_undescribed and not facts.n_quadruples:
        found.append(f"{facts.n_undescribed:,} images have no caption: they are distractors in the gallery")
    if facts.n_without_bytes:
        found.append(f"{facts.n_without_bytes:,} images are ids alone: only imported embeddings can be evaluated")
    if usable.languages_reference not in facts.languages and len(facts.languages) > 1:
        found.append(f"no captions in the reference language {usable.languages_reference!r}: no cross-lingual metrics")
    return found
