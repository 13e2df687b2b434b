"""The check of a corpus before a run: ``capim corpora check``."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from capim.store.errors import RequestError
from capim.store.types import Corpus
from capim.tasks.corpora.description import reader_call
from capim.tasks.corpora.facts import CorpusFacts, corpus_facts
from capim.tasks.corpora.images.file_names import is_image_name
from capim.tasks.corpora.images.image_index import index_images
from capim.tasks.corpora.layouts import Recognised, toml_lines

_SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class CorpusCheck:
    """The result of a check.

    Attributes:
        name: Name of the corpus; empty if it could not be read.
        fingerprint: Fingerprint of the corpus that a run would use; empty if it could not be read.
        facts: Counts; None if it could not be read.
        faults: Reasons for which a run would refuse the corpus.
        warnings: Facts that matter for the interpretation of a run's figures.
        recognised: What a folder or file was recognised as; empty for a name or a description.
        description: Lines of a ``corpus.toml`` that says the same, to which options can be added.
        next_command: What to type next; empty if the corpus cannot be read, or has no path or name.
    """

    name: str = ""
    fingerprint: str = ""
    facts: CorpusFacts | None = None
    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    recognised: str = ""
    description: tuple[str, ...] = ()
    next_command: str = ""

    @property
    def ok(self) -> bool:
        """Whether a run would accept the corpus."""
        return not self.faults

    def lines(self) -> list[str]:
        """The result as lines of text: faults, then warnings, then facts, and the command to type next."""
        lines = [f"recognised: {self.recognised}"] if self.recognised else []
        lines += [f"fault: {fault}" for fault in self.faults]
        if any(" = " in fault for fault in self.faults):  # a line to write
            lines += self.description
        lines += [f"warning: {warning}" for warning in self.warnings]
        if self.facts is not None:
            lines += [f"{label}: {value}" for label, value in self.facts.rows()]
        if self.ok:
            lines.append(f"{self.name} ({self.fingerprint}) can be run")
        if self.next_command:
            lines.append(f"next: {self.next_command}")
        return lines


def check_corpus(
    what: str | Path | Mapping[str, object],
    *,
    base: Path | None = None,
    decode: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> CorpusCheck:
    """Read a corpus as a run would, and collect its faults and warnings; stores nothing.

    Args:
        what: As for :func:`tasks.corpora.open_corpus`: usually a TOML description or a folder.
        base: Folder that relative paths in a mapping start from.
        decode: Decode every image, as a run would do; takes about as long as reading them.
        progress: Called with the number of decoded images and the total.
    """
    recognised = ""
    description: tuple[str, ...] = ()
    try:
        call = reader_call(what, base=base)
        if call.recognised is not None:
            recognised, description = call.recognised.how, _description(call.recognised, what, base)
        corpus = call.read()
        complete = corpus
        if decode:
            corpus = index_images(corpus, known={}, sink=lambda _: None, progress=progress)
    except RequestError as error:
        return CorpusCheck(faults=error.faults, recognised=recognised, description=description)
    facts = corpus_facts(corpus)
    return CorpusCheck(
        name=corpus.name,
        fingerprint=corpus.fingerprint,
        facts=facts,
        warnings=tuple(_warnings(complete, corpus, facts)),
        recognised=recognised,
        description=description,
        next_command="" if isinstance(what, Mapping) else _next_command(str(what), facts),
    )


def _description(found: Recognised, what: object, base: Path | None) -> tuple[str, ...]:
    path = ((base or Path.cwd()) / Path(str(what)).expanduser()).absolute()
    folder = path if path.is_dir() else path.parent
    lines = (f"  {line}" for line in toml_lines(found.content, folder))
    return (f"options are lines of {folder / 'corpus.toml'}, below these:", *lines)


def _next_command(what: str, facts: CorpusFacts) -> str:
    what = shlex.quote(what)
    if facts.n_without_bytes:
        return f"capim import --corpus {what} --encoder NAME --images FILE --captions FILE (docs/embeddings.md)"
    return f"capim run --corpora {what} --encoders NAME (names: capim list encoders)"


def _warnings(complete: Corpus, usable: Corpus, facts: CorpusFacts) -> list[str]:
    skipped = usable.skipped.to_pylist()
    lines = [f"{row['modality']} {row['item_id']} is left out: {row['reason']}" for row in skipped[:_SHOWN]]
    renamed = [
        (identifier, key)
        for identifier, key in zip(*(usable.images[column].to_pylist() for column in ("id", "key")), strict=True)
        if is_image_name(identifier) and not identifier.endswith(key) and not key.endswith(identifier)
    ]
    if len(skipped) > _SHOWN:
        lines.append(f"… and {len(skipped) - _SHOWN:,} more are left out")
    for count, text in (
        (complete.captions.num_rows - usable.captions.num_rows, "captions are left out with their images"),
        (facts.duplicate_images, "images have the same bytes as another image: they tie in every ranking"),
        (facts.duplicate_captions, "captions repeat another caption of the same language: they tie in every ranking"),
        (facts.empty_captions, "captions are empty"),
        (
            0 if facts.n_quadruples or facts.judged else facts.n_undescribed,
            "images have no caption: they are distractors in the gallery",
        ),
        (facts.n_without_bytes, "images are ids without files: only imported embeddings can be evaluated"),
    ):
        if count:
            lines.append(f"{count:,} {text}")
    if renamed:
        name, file = renamed[0]
        lines.append(f"{len(renamed):,} images are files with another name, the first {name!r}: {file!r}")
    if usable.languages_reference not in facts.languages and len(facts.languages) > 1:
        lines.append(f"no captions in the reference language {usable.languages_reference!r}: no cross-lingual metrics")
    return lines
