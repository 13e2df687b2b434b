"""The commands of the command line, as the parser has them."""

from __future__ import annotations

import argparse

from capim.flows.cli import build_parser


def all_parsers() -> dict[str, argparse.ArgumentParser]:
    """The program and every command, by its words; a group of commands before its own."""
    found = {"": build_parser()}
    for words in (left := [""]):
        for action in found[words]._actions:
            if isinstance(action, argparse._SubParsersAction):
                inner = {f"{words} {name}".strip(): choice for name, choice in action.choices.items()}
                found |= inner
                left += inner
    return found


def leaf_parsers() -> dict[str, argparse.ArgumentParser]:
    """Every command that does something, by its words."""
    return {words: parser for words, parser in all_parsers().items() if parser._subparsers is None}
