"""Which modalities of a corpus can be encoded, and what to do about the other one.

A corpus may have ids in place of image files, or of caption texts, for embeddings that were made elsewhere.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from capim.store.types import MODALITIES, Corpus, Modality

_LACKS = {"image": "its images have no files", "caption": "its captions have no texts"}


def encodable(corpus: Corpus) -> tuple[Modality, ...]:
    """The modalities that can be encoded: images if all have files, captions if all have texts."""
    without = {"image": corpus.images["sha"].null_count, "caption": corpus.captions["text"].null_count}
    return tuple(modality for modality in MODALITIES if not without[modality])


def import_advice(encoder: str, corpus: str, lacking: Modality) -> str:
    """How a corpus is evaluated of which one modality cannot be encoded, in one line.

    Embeddings pair only under one encoder, so what was encoded here is exported and imported with the rest.
    """
    have: Modality = "caption" if lacking == "image" else "image"
    return (
        f"corpus {corpus!r}: {_LACKS[lacking]}, so only its {have}s can be encoded. To evaluate them with {lacking} "
        f"embeddings of the same model, import both under one name: `capim export embeddings --encoder {encoder} "
        f"--corpus {corpus} --modality {have} --to {have}s.npz`, then `capim import --encoder {encoder}-imported "
        f"--corpus {corpus} --{lacking}s FILE --{have}s {have}s.npz`"
    )


def encoding_fault(corpus: Corpus, modalities: Sequence[Modality], *, given: object = "") -> str | None:
    """Why none of these modalities of a corpus can be encoded; None if one can.

    ``given`` is what the user gave for the corpus: a name, a path or the table of a suite.
    """
    if set(modalities) & set(encodable(corpus)):
        return None
    lacks = " and ".join(_LACKS[modality] for modality in modalities)
    files = " ".join(f"--{modality}s FILE" for modality in modalities)
    source = shlex.quote(given) if given and isinstance(given, str) else corpus.name
    return (
        f"corpus {corpus.name!r}: {lacks}, so they cannot be encoded; import embeddings made elsewhere: `capim import "
        f"--corpus {source} --encoder NAME {files}`, with the ids that `capim corpora ids {source}` lists"
    )
