"""`store`: what the store holds, and whether it is whole."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flows.commands import Commands


def add_commands(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Add the commands that look after the store."""
