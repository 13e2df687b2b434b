"""Everything that capim uses of Prefect: its `names`, and the decorator of all `task`s.

This module decides whether a command runs without Prefect; the names follow the decision when they are imported.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

_FILES = {".env": b"PREFECT_", "prefect.toml": b"", "pyproject.toml": b"[tool.prefect"}
_SETTINGS = ("PREFECT_API_URL", "PREFECT_PROFILE", "PREFECT_PROFILES_PATH")
left_out = False


def leave_prefect_out() -> None:
    """Run this process without Prefect, unless a server is configured or Prefect is imported already.

    A server may be configured by an environment variable, a profile, or a file in the working folder that Prefect
    reads. Called by the command line before flows are imported; otherwise flows are Prefect's.
    """
    global left_out  # noqa: PLW0603 - the choice of imports is a state of the process
    home = os.path.expanduser(os.environ.get("PREFECT_HOME") or "~/.prefect")  # noqa: PTH111 - as in flows/__init__.py
    named = any(map(os.environ.get, _SETTINGS)) or os.path.exists(f"{home}/profiles.toml")  # noqa: PTH110
    named = named or any(_says(Path(file), text) for file, text in _FILES.items())
    left_out = not named and "prefect" not in sys.modules


def _says(file: Path, text: bytes) -> bool:
    """True if a file has this text; False without such a file, or if it cannot be read."""
    try:
        return file.is_file() and text in file.read_bytes()
    except OSError:
        return False
