"""Declares commands and their options: help texts are docstrings of functions and descriptions of ``RunConfig``."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable
from typing import Any, TypeAlias, get_args

from capim.flows.config import FIELDS
from capim.flows.terminal.output import FORMATS
from capim.flows.terminal.parser import DocstringFormatter, names
from capim.store.errors import RequestError
from capim.store.types import Precision, Storage
from capim.tasks.statistics.resampling import ADJUSTMENTS, METHODS

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001 - it has no public name
Command: TypeAlias = Callable[[argparse.Namespace], int | None]

ENCODING = ("sample", "batch_size", "device", "shards", "precision", "storage", "compile", "trust_remote_code")
STATISTICS = ("replicates", "level", "interval", "seed")
TESTS = ("adjustment", "permutations", "margin")
SCORING = ("protocols", "memory", "parts", "distractors")
_EVERYTHING = (*ENCODING, *SCORING, *STATISTICS, "keep_replicates", *TESTS)
STEP_FIELDS: dict[str, tuple[str, ...]] = {
    "run": (*_EVERYTHING, "analyses"),
    "embed": (*ENCODING, "seed"),
    "evaluate": ("device", *SCORING, *STATISTICS, "keep_replicates"),
    "compare": ("protocols", *STATISTICS, *TESTS, "analyses"),
    # a watch adjusts over its own findings
    "watch": (*(field for field in _EVERYTHING if field not in {"adjustment", "margin"}), "baseline"),
    "report": ("protocols",),
}
"""The fields of ``RunConfig`` that each step uses, beside corpora and encoders."""
ALIASES = {"device": ("--devices",), "replicates": ("--bootstrap-iterations",)}


ARGUMENTS: dict[str, dict[str, Any]] = {
    "corpora": {"type": names, "metavar": "A,B"},
    "encoders": {"type": names, "metavar": "X,Y"},
    "protocols": {"type": names, "metavar": "P,Q"},
    "analyses": {"type": names, "metavar": "A,B"},
    "device": {"metavar": "D"},
    "memory": {"metavar": "SIZE"},
    "distractors": {"type": names, "metavar": "A,B"},
    "precision": {"choices": get_args(Precision)},
    "storage": {"choices": get_args(Storage)},
    "compile": {"action": "store_true", "default": None},
    "level": {"metavar": "P"},
    "interval": {"choices": METHODS},
    "adjustment": {"choices": ADJUSTMENTS},
    "margin": {"metavar": "POINTS"},
    "keep_replicates": {"action": "store_true", "default": None},
    "baseline": {"metavar": "RUN"},
    "trust_remote_code": {"action": "store_true", "default": None},
}


def declare(
    commands: Commands,
    common: argparse.ArgumentParser,
    name: str,
    function: Command,
    *,
    rows: bool = False,
    workspace: bool = True,
) -> argparse.ArgumentParser:
    """Add one command; its help is the docstring of ``function``, and ``rows`` gives it ``--format``.

    ``workspace`` is whether it reads or writes one.
    """
    text = inspect.getdoc(function) or ""
    parser = commands.add_parser(
        name,
        parents=[common],
        help=text.splitlines()[0].rstrip("."),
        description=text,
        formatter_class=DocstringFormatter,
    )
    if rows:
        parser.add_argument(
            "--format", choices=FORMATS, default="table", help="output format of the rows (default: table)"
        )
        parser.add_argument("--columns", type=names, metavar="A,B", help="only these columns, in this order")
        parser.add_argument(
            "--wide", action="store_true", help="tables: every column, wider than the terminal if need be"
        )
    if workspace:
        parser.add_argument(
            "--workspace",
            metavar="DIR",
            help="folder or URI that holds store/ and reports/ (default: the suite file's, else $CAPIM_WORKSPACE, else "
            "./workspace)",
        )
    parser.set_defaults(run=function)
    return parser


def declare_group(commands: Commands, name: str, function: Command) -> Commands:
    """Add a command that only has commands of its own; it has no options, which theirs would overwrite."""
    nothing = argparse.ArgumentParser(add_help=False)
    parser = declare(commands, nothing, name, function, workspace=False)
    return parser.add_subparsers(dest="part", metavar="PART")


def config_options(parser: argparse.ArgumentParser, *fields: str, required: bool = False) -> None:
    """Add fields of ``RunConfig`` as options, with their descriptions as help; their values are checked there."""
    for field in fields:
        default = FIELDS[field].default
        given = "" if default is None or default is False or default == () else f" (default: {default})"
        parser.add_argument(
            f"--{field.replace('_', '-')}",
            *ALIASES.get(field, ()),
            help=f"{FIELDS[field].description}{given}",
            required=required,
            **ARGUMENTS.get(field, {"metavar": "N"}),
        )


def refuse_unused(args: argparse.Namespace, where: str, **options: str) -> None:
    """Raise for options that were given and have no effect here; ``options``: their attributes, and how they are given.

    Raises:
        RequestError: Names them all.
    """
    given = [option for name, option in options.items() if getattr(args, name) not in (None, False, ())]
    if given:
        raise RequestError([f"{option} has no effect {where}; leave it out" for option in given])


def given_options(args: argparse.Namespace) -> dict[str, Any]:
    """The fields of ``RunConfig`` among the parsed options; None where an option was not given."""
    return {field: value for field, value in vars(args).items() if field in FIELDS}
