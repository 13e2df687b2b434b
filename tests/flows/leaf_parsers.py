"""The commands of the command line that do something, as the parser has them."""

from __future__ import annotations

import argparse

from capim.flows.cli import build_parser


def leaf_parsers() -> dict[str, argparse.ArgumentParser]:
    """Every command that does something, by its words."""
    found = {}
    left: list[tuple[str, argparse.ArgumentParser]] = [("", build_parser())]
    while left:
        words, parser = left.pop()
        inner = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
        if not inner:
            found[words] = parser
        left += [(f"{words} {name}".strip(), choice) for action in inner for name, choice in action.choices.items()]
    return found
