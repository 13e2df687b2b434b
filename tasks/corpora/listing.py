"""``capim list corpora``: what there is, what it needs, and whether it is available here."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tasks.corpora import CORPORA, CorpusEntry


class CorpusListing(NamedTuple):
    """One row of the list."""

    name: str
    title: str
    size: str
    languages: str
    licence: str
    needs: str
    available: str


def list_corpora() -> list[CorpusListing]:
    """All rows of ``CORPORA`` in their order; looks into the hub's cache but never at the network."""
    return [
        CorpusListing(
            name,
            entry.title,
            entry.size,
            _languages(entry),
            entry.licence,
            entry.needs,
            _available(entry),
        )
        for name, entry in CORPORA.items()
    ]


def _languages(entry: CorpusEntry) -> str:
    if not entry.languages:
        return "any"
    return ", ".join(entry.languages) if len(entry.languages) <= 8 else f"{len(entry.languages)} languages"


def _available(entry: CorpusEntry) -> str:
    """``yes``, or what stands between the user and this corpus on this machine."""
    if entry.required:
        return f"with {', '.join(entry.required)}"
    if entry.hub is None:
        return "yes"
    from huggingface_hub.constants import HF_HUB_CACHE, is_offline_mode

    if (Path(HF_HUB_CACHE) / f"datasets--{entry.hub.replace('/', '--')}").is_dir():
        return "yes (hub cache)"
    return "no: not in the hub cache, and offline; or with root" if is_offline_mode() else "from the hub, or with root"
