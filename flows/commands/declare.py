"""How a command is declared: its help is its function's docstring, with an example at the end."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING

from flows.commands.output import FORMATS
from tasks.statistics.resampling import METHODS

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - argparse gives it no public name

Command = Callable[[argparse.Namespace], int | None]


def declare(
    commands: Commands,
    common: argparse.ArgumentParser,
    name: str,
    function: Command,
    *,
    rows: bool = False,
) -> argparse.ArgumentParser:
    """Add one command; ``rows`` gives it ``--format``."""
    text = inspect.getdoc(function) or ""
    parser = commands.add_parser(
        name,
        parents=[common],
        help=text.splitlines()[0].rstrip("."),
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if rows:
        parser.add_argument("--format", choices=FORMATS, default="table", help="how rows come out (default: table)")
    parser.set_defaults(run=function)
    return parser


def names(text: str) -> tuple[str, ...]:
    """``"a,b"`` as a tuple, blanks left out."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def interval_options(parser: argparse.ArgumentParser) -> None:
    """Add how intervals are computed; what is not given stays as the suite or ``RunConfig`` has it."""
    parser.add_argument("--replicates", type=int, metavar="N", help="bootstrap replicates (default: 10000)")
    parser.add_argument("--level", type=float, metavar="P", help="of the intervals (default: 0.95)")
    parser.add_argument("--interval", choices=METHODS, help="of every figure (default: percentile)")
    parser.add_argument("--seed", type=int, help="of everything random (default: 0)")
