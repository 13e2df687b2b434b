"""The commands of the command line, as cyclopts has them."""

from __future__ import annotations

import io
from functools import cache
from typing import NamedTuple

from cyclopts import App
from rich.console import Console

from capim.flows.commands import COMMANDS, build_app


class Option(NamedTuple):
    """An option or an argument of a command: its parameter, and how it is spelt; an argument has no spelling."""

    dest: str
    spellings: tuple[str, ...]
    required: bool
    several: bool  # it may be repeated


@cache
def all_commands() -> dict[str, App]:
    """The program and every command, by its words; a group of commands before its own."""
    app = build_app()
    found = {"": app}
    for commands in COMMANDS.values():
        for words in commands:
            for n_words in range(1, len(words.split()) + 1):
                chain = words.split()[:n_words]
                found[" ".join(chain)] = app.parse_commands(chain)[1][-1]
    return found


@cache
def leaf_commands() -> dict[str, list[Option]]:
    """Every command that does something, by its words, with its options."""
    leaves = {words: app for words, app in all_commands().items() if app.default_command}
    return {
        words: [
            Option(
                each.field_info.name,
                tuple(name for name in each.names if name.startswith("-")),
                each.required,
                each.parameter.converter is not None,
            )
            for each in app.assemble_argument_collection()
        ]
        for words, app in leaves.items()
    }


def help_of(words: str, width: int = 80) -> str:
    """The page of help of a command."""
    page = io.StringIO()
    all_commands()[""].help_print(words.split(), console=Console(file=page, width=width))
    return page.getvalue()
