"""The three ways to score captions for an image by late interaction (``docs/protocols.md`` §2).

A plain ``i2t`` id means ``transposed``: the scores of text to image read by column. The two others have their name in
the id: ``i2t/any@transposed-per-token``, ``i2t/any@image-as-query``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from capim.store.types import EvalProtocol

ORIENTATIONS = {
    "transposed-per-token": "scores divided by the caption's number of tokens, so that length does not win",
    "image-as-query": "sum over patches of the best token",
}


def with_orientations(protocols: Sequence[EvalProtocol]) -> tuple[EvalProtocol, ...]:
    """The protocols of a multi-vector encoder: ``i2t/any`` also in the two other orientations (§2).

    ``i2t/any`` itself is ``transposed``: the scores of ``t2i/all`` read by column.
    """
    extra = [
        replace(protocol, id=f"{protocol.id}@{name}", title=f"{protocol.title}; {meaning}")
        for protocol in protocols
        if protocol.id == "i2t/any"
        for name, meaning in ORIENTATIONS.items()
    ]
    return (*protocols, *extra)


def orientation_of(protocol: EvalProtocol) -> str:
    """How a multi-vector encoder's image to caption scores are made; ``transposed`` unless the id says otherwise."""
    return protocol.id.partition("@")[2] or "transposed"
