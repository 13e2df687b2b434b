"""The commands of `capim`, by what they are about; each module adds its own."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from capim.flows.terminal.parser import Commands


def add_commands(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Add every command to the parser."""
    from capim.flows.commands import (
        combine,
        completion,
        exchange,
        exports,
        maintenance,
        models,
        runs,
        serving,
        workspace,
    )

    for module in (runs, workspace, serving, exchange, exports, combine, models, maintenance, completion):
        module.add_commands(commands, common)
