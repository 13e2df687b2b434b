"""The rows of ``capim list corpora`` and ``capim corpora ids``."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pyarrow as pa

from capim.store.errors import RequestError
from capim.store.types import Corpus
from capim.tasks.corpora import CORPORA, CorpusEntry
from capim.tasks.corpora.description import load_reader

# Columns that identify an item and say what it is.
_ITEM_COLUMNS = {
    "image": ["id", "key"],
    "caption": ["id", "image_id", "language", "text"],
    "pair": ["id", "image_id", "caption_id", "negative_id", "category"],
    "quadruple": ["id", "image_0", "image_1", "caption_0", "caption_1"],
}


def corpus_items(corpus: Corpus, kind: str) -> list[dict[str, Any]]:
    """The items of one kind (``image``, ``caption``, ``pair``, ``quadruple``) in the order of the corpus.

    Examples:
        >>> from capim.tasks.corpora.build import CaptionRow, ImageRow, build_corpus
        >>> corpus = build_corpus("c", [ImageRow("a", "a.jpg")], [CaptionRow("a0", "a", "red")], source=None)
        >>> corpus_items(corpus, "image")
        [{'id': 'a', 'file': 'a.jpg'}]
    """
    table: pa.Table = getattr(corpus, f"{kind}s")
    rows = table.select(_ITEM_COLUMNS[kind]).to_pylist()
    return rows if kind != "image" else [{"id": row["id"], "file": row["key"]} for row in rows]


def list_corpora() -> list[dict[str, str]]:
    """All rows of ``CORPORA`` in their order; looks into the hub's cache but never at the network."""
    return [
        {
            "name": name,
            "title": row.title,
            "size": row.size,
            "languages": _languages(row),
            "licence": row.licence,
            "needs": row.needs,
            "available": _availability(name, row),
            "package": CORPORA.package(name),
        }
        for name, row in CORPORA.items()
    ]


def _languages(entry: CorpusEntry) -> str:
    if not entry.languages:
        return "any"
    return ", ".join(entry.languages) if len(entry.languages) <= 8 else f"{len(entry.languages)} languages"


def _availability(name: str, entry: CorpusEntry) -> str:
    """``yes``, or what the user has to do before this corpus can be read on this machine."""
    try:
        parameters = inspect.signature(load_reader(name)).parameters.values()
    except RequestError as error:
        return f"no: {error}"
    if required := [parameter.name for parameter in parameters if parameter.default is parameter.empty]:
        return f"with {', '.join(required)}"
    if not entry.hub:
        return "yes"
    from huggingface_hub.constants import HF_HUB_CACHE, is_offline_mode

    if (Path(HF_HUB_CACHE) / f"datasets--{entry.hub.replace('/', '--')}").is_dir():
        return "yes (hub cache)"
    return "no: not in the hub cache, and offline; or with root" if is_offline_mode() else "from the hub, or with root"
