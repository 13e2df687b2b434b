"""Versions of the libraries that can change a figure."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, version

LIBRARIES = (
    "capim",
    "torch",
    "transformers",
    "open_clip_torch",
    "colpali-engine",
    "lancedb",
    "numpy",
    "scipy",
    "prefect",
)


@cache
def library_versions() -> dict[str, str]:
    """Library -> version of the installed ones, and of Python."""
    return {"python": ".".join(map(str, sys.version_info[:3])), **versions_of(LIBRARIES)}


def versions_of(names: Iterable[str]) -> dict[str, str]:
    """Library -> version of the installed ones, in this order."""
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
