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
    home = Path(os.environ.get("PREFECT_HOME") or "~/.prefect").expanduser()
    named = any(map(os.environ.get, _SETTINGS)) or (home / "profiles.toml").exists()
    named = named or any(Path(file).is_file() and said in Path(file).read_bytes() for file, said in _FILES.items())
    left_out = not named and "prefect" not in sys.modules
