"""`completion`: the line that makes a shell complete commands, options and names; and the names themselves."""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from capim.flows.terminal.parser import Commands, declare
from capim.store.errors import RequestError, WorkError

if TYPE_CHECKING:
    from capim.flows.terminal.parser import Kind

SHELLS = ("bash", "zsh", "fish")


def add_commands(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Add the command."""
    parser = declare(commands, common, "completion", completion, workspace=False)
    parser.add_argument("shell", choices=SHELLS, help="the shell that completes")


def completion(args: argparse.Namespace) -> None:
    """Print the completion of commands, options, encoders, corpora, protocols and metrics for a shell.

    For bash, add to ~/.bashrc: eval "$(capim completion bash)". For zsh, to ~/.zshrc, after compinit:
    eval "$(capim completion zsh)". For fish: capim completion fish > ~/.config/fish/completions/capim.fish

    Example: capim completion bash
    """
    from argcomplete.shell_integration import shellcode

    sys.stdout.write(shellcode(["capim"], shell=args.shell))


def complete_names(kind: Kind, typed: str, workspace: str | None) -> list[str]:
    """What a list of names (``a,b``) may become: its last is the beginning of a known or stored name."""
    done, comma, last = typed.rpartition(",")
    names = {*_known(kind), *_stored(kind, workspace)}
    return sorted(done + comma + name for name in names if name.startswith(last) and name not in done.split(","))


def _known(kind: Kind) -> list[str]:
    if kind == "encoders":
        from capim.tasks.encoders.catalog import catalog

        return list(catalog())
    if kind == "corpora":
        from capim.tasks.corpora import CORPORA

        return list(CORPORA)
    if kind == "protocols":
        from capim.tasks.ranking.protocols import PROTOCOLS

        return list(PROTOCOLS)
    from capim.tasks.metrics import METRICS

    return list(METRICS)


def _stored(kind: Kind, workspace: str | None) -> list[str]:
    """The names of a workspace's store; none where there is no store."""
    from capim.flows.commands.workspace import open_store

    with suppress(RequestError, WorkError):
        store = open_store(workspace)
        if kind == "encoders":
            return [str(name) for name in store.encoders()["name"].to_pylist()]
        if kind == "corpora":
            return [str(name) for name in store.corpora()["name"].to_pylist()]
        return list(store.counts("results", kind.removesuffix("s")))
    return []
