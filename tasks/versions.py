"""Versions of what can change a figure."""

from __future__ import annotations

import sys
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
    """Library -> version, of those that are installed, and Python's own."""
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
