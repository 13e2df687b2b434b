"""Identities: which table holds which embedding set or part of a corpus, and the forms in which a key is stored."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from capim.store.types import EncoderSpec, Modality, SetKey, canonical_json

SET_PREFIXES = ("single-", "multi-")  # tables that hold an embedding set
CORPUS_PREFIX = "corpus-"  # tables that hold a part of a corpus


def set_key(spec: EncoderSpec, corpus: str, corpus_fingerprint: str, modality: Modality) -> SetKey:
    """The identity of the set that an encoder makes of one modality of a corpus."""
    return SetKey(
        corpus=corpus,
        corpus_fingerprint=corpus_fingerprint,
        modality=modality,
        encoder=spec.name,
        encoder_fingerprint=spec.fingerprint,
        vectors=spec.vectors,
    )


def table_of(key: SetKey) -> str:
    """The table of an embedding set. The encoder's name is not part of it: renaming an encoder encodes nothing again.

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
    return f"{CORPUS_PREFIX}{part}-{name}-{fingerprint}"


def key_columns(key: SetKey) -> dict[str, str]:
    """A set's identity as columns of a row: the name of its table, and every field of the key."""
    return {"set_name": table_of(key), **asdict(key)}


def key_of_row(row: Mapping[str, Any]) -> SetKey:
    """The identity in the columns that :func:`key_columns` gives."""
    return SetKey(**{field.name: row[field.name] for field in fields(SetKey)})


def spec_to_json(spec: EncoderSpec) -> str:
    """An encoder spec as canonical JSON."""
    return canonical_json({**asdict(spec), "options": dict(spec.options)})


def spec_from_json(text: str) -> EncoderSpec:
    """The encoder spec that :func:`spec_to_json` wrote."""
    columns: dict[str, Any] = json.loads(text)
    return EncoderSpec(**columns)


def is_fingerprint(text: str) -> bool:
    """Whether a name has the form of a fingerprint: 16 lower-case hexadecimal digits.

    Examples:
        >>> is_fingerprint("0011223344556677"), is_fingerprint("clip-vit-b-32")
        (True, False)
    """
    return re.fullmatch("[0-9a-f]{16}", text) is not None
