"""Names and fingerprints: which table holds an embedding set, and which fingerprint a name stands for."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from store.types import EncoderSpec, SetKey, canonical_json

SET_PREFIXES = ("single-", "multi-")  # of tables that hold an embedding set


def table_of(key: SetKey) -> str:
    """The table of an embedding set. The encoder's name is not part of it: renaming a model encodes nothing again.

    Examples:
        >>> table_of(SetKey(corpus="shapes", corpus_fingerprint="0011223344556677", modality="image",
        ...     encoder="tiny", encoder_fingerprint="8899aabbccddeeff", vectors="single"))
        'single-shapes-image-0011223344556677-8899aabbccddeeff'
    """
    return f"{key.vectors}-{key.corpus}-{key.modality}-{key.corpus_fingerprint}-{key.encoder_fingerprint}"


def corpus_table(part: str, name: str, fingerprint: str) -> str:
    """The table of one part (images, captions, pairs …) of one corpus.

    Examples:
        >>> corpus_table("captions", "shapes", "0011223344556677")
        'corpus-captions-shapes-0011223344556677'
    """
    return f"corpus-{part}-{name}-{fingerprint}"


def spec_to_json(spec: EncoderSpec) -> str:
    """An encoder spec as canonical JSON."""
    return canonical_json({**asdict(spec), "options": dict(spec.options)})


def spec_from_json(text: str) -> EncoderSpec:
    """The encoder spec that :func:`spec_to_json` wrote."""
    fields: dict[str, Any] = json.loads(text)
    return EncoderSpec(**fields)


def key_to_json(key: SetKey) -> str:
    """A set's identity as canonical JSON, as kept in its table's metadata."""
    return canonical_json(asdict(key))


def key_from_json(text: str) -> SetKey:
    """The identity that :func:`key_to_json` wrote."""
    fields: dict[str, Any] = json.loads(text)
    return SetKey(**fields)


def is_fingerprint(text: str) -> bool:
    """Whether a name given by a caller has the form of a fingerprint: 16 lower-case hexadecimal digits.

    Examples:
        >>> is_fingerprint("0011223344556677"), is_fingerprint("clip-vit-b-32")
        (True, False)
    """
    return len(text) == 16 and all(c in "0123456789abcdef" for c in text)
