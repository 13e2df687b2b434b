"""Versions of the libraries that can change a figure, and the machine."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from capim.store.types import digest16

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
def this_host() -> str:
    """What rows call this machine, as ``host-3f9a1c``: the same for all of its runs, and not its name."""
    return f"host-{digest16(socket.gethostname())[:6]}"


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
