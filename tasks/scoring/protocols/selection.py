"""Which protocols are asked of an encoder on a corpus."""

from __future__ import annotations

from collections.abc import Collection

from store.types import Corpus, EvalProtocol, VectorKind
from tasks.scoring.late_interaction.orientations import with_orientations
from tasks.scoring.protocols.table import select


def select_protocols(
    corpus: Corpus, ids: Collection[str] = (), *, vectors: VectorKind = "multi"
) -> tuple[EvalProtocol, ...]:
    """The protocols of these ids or patterns, all that fit where none is named, in the corpus' order.

    Args:
        corpus: What they are asked of.
        ids: Ids as of ``protocols.table.select``; an id with an orientation (``i2t/any@image-as-query``) is for
            late interaction.
        vectors: A single-vector encoder has no orientations; such ids are left out for it.

    Raises:
        RequestError: An id is unknown or does not fit the corpus.
    """
    plain = select(corpus, list(dict.fromkeys(name.partition("@")[0] for name in ids)) or None)
    if vectors == "single":
        return plain
    turned = with_orientations(plain)
    if not ids:
        return turned
    return tuple(p for p in turned if "@" not in p.id or p.id in ids)
