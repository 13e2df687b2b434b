"""The flows, and the command line that runs them.

Importing this package imports nothing else of capim and no library.
"""

from __future__ import annotations

if __name__ != "capim.flows":
    raise ImportError(
        f"{__name__!r} is imported as capim.flows; a package of your own with this name needs an __init__.py"
    )

import atexit
import os
import shutil
import tempfile
from multiprocessing import parent_process
from pathlib import Path
from uuid import uuid4

HEARTBEAT_SECONDS = 30  # of a run on a server; `deployments.automations` takes one that misses three for lost
_ALWAYS = {
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(HEARTBEAT_SECONDS),
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_WAIT_POLICY": "PASSIVE",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}
_QUIET = {
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "WARNING",
    "PREFECT_INTERNAL_LOGGING_LEVEL": "CRITICAL",
    "TRANSFORMERS_VERBOSITY": "error",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "DATASETS_VERBOSITY": "error",
    "LANCE_LOG": "error",
}
_quieted: set[str] = set()  # variables that this process set


def set_environment(*, verbose: bool = False) -> None:
    """Set environment variables that libraries read when they are imported; variables that are set stay as they are.

    No telemetry, and unless ``verbose`` no log lines of the libraries: ``verbose`` takes back what an earlier call set,
    such as that of ``import capim``; a spawned process has what its parent decided. Prefect makes its folder in the
    home folder when it is imported: without one there, it gets a temporary folder, which is removed at exit.
    """
    is_decided = parent_process() is not None and os.environ.keys() >= _ALWAYS.keys()
    for name, value in _ALWAYS.items():
        os.environ.setdefault(name, value)
    for name, value in () if is_decided else _QUIET.items():
        if verbose and name in _quieted:
            os.environ.pop(name, None)
        elif not verbose and name not in os.environ:
            os.environ[name] = value
            _quieted.add(name)
    usual = os.path.expanduser("~/.prefect")  # noqa: PTH111 - pathlib raises where home is unknown or forbidden
    if "PREFECT_HOME" not in os.environ and not os.path.exists(usual):  # noqa: PTH110
        folder = Path(tempfile.gettempdir()) / f"capim-prefect-{uuid4().hex}"
        os.environ["PREFECT_HOME"] = str(folder)
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
