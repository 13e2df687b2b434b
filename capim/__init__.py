"""capim from Python: the commands of the command line, on one workspace, with pandas frames for rows.

    import capim

    capim.run(corpora="shapes", encoders="tiny-clip,tiny-clip-plain")  # as `capim run`
    capim.results(protocols="t2i/all", metrics="R@1")                  # a pandas frame
    capim.compare("tiny-clip", "tiny-clip-plain")                      # differences with intervals and tests

Functions of this module use the default workspace (``$CAPIM_WORKSPACE``, else ``./workspace``); :func:`open` opens
another one. Keywords have the names, the defaults and the checks of the command line's options; names may be a list or
a comma-separated string. Progress and messages go to standard error. No server is started, and nothing is written
outside the workspace; if ``PREFECT_API_URL`` is set, steps are Prefect runs. A wrong request raises ``RequestError``,
work that fails ``WorkError``; both are a ``CapimError``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import capim.flows

capim.flows.set_environment()  # before any library reads it

from capim.store.errors import CapimError, RequestError, WorkError  # noqa: E402

if TYPE_CHECKING:  # imported on first use: pandas and Prefect take seconds
    from capim.flows.workspace import Workspace, open  # noqa: A004 - as in gzip.open
    from capim.tasks.encoders import Encoder
    from capim.tasks.metrics.custom import own_metric as Metric  # noqa: N812 - users call it like a class

    _default = Workspace()
    analyse = _default.analyse
    check = _default.check
    choose = _default.choose
    drop = _default.drop
    import_ = _default.import_
    compare = _default.compare
    embed = _default.embed
    evaluate = _default.evaluate
    multivectors = _default.multivectors
    outcomes = _default.outcomes
    relevance = _default.relevance
    report = _default.report
    results = _default.results
    run = _default.run
    search = _default.search
    sql = _default.sql
    vectors = _default.vectors
    why = _default.why

__all__ = [
    "CapimError", "Encoder", "Metric", "RequestError", "WorkError", "Workspace", "analyse", "check", "choose",
    "compare", "drop", "embed", "evaluate", "import_", "multivectors", "open", "outcomes", "relevance", "report",
    "results", "run", "search", "sql", "vectors", "why",
]  # fmt: skip


def main() -> int:
    """Run the console script `capim`."""
    import gc
    import sys

    gc.set_threshold(100_000, 20, 50)  # imports make many objects and no garbage
    from capim.tasks.prefects import leave_prefect_out

    leave_prefect_out()
    from capim.flows.cli import escape_unencodable
    from capim.flows.cli import main as run

    escape_unencodable(sys.stdout, sys.stderr)
    return run()


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("capim")
    if name not in __all__:
        raise AttributeError(f"module 'capim' has no attribute {name!r}")
    elsewhere = {"Metric": ("capim.tasks.metrics.custom", "own_metric"), "Encoder": ("capim.tasks.encoders", name)}
    if name in elsewhere:
        module, found = elsewhere[name]
        return getattr(import_module(module), found)
    workspace = import_module("capim.flows.workspace")
    return getattr(workspace.DEFAULT, name, None) or getattr(workspace, name)
