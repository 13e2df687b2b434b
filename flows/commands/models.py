"""`list`: the encoders, corpora, protocols and metrics that there are."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from flows.commands.declare import declare
from flows.output import print_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flows.commands import Commands


def add_commands(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Add the commands about what there is."""
    parser = declare(commands, common, "list", list_known, rows=True)
    parser.add_argument("what", choices=tuple(LISTS), help="what to list")


def _encoders() -> Iterator[dict[str, Any]]:
    from tasks.encoders import catalog

    for name, entry in catalog().items():
        spec = entry.spec
        yield {
            "name": name,
            "adapter": spec.adapter,
            "checkpoint": spec.checkpoint,
            "vectors": spec.vectors,
            "dim": spec.dim,
            "precision": spec.precision,
            "licence": entry.licence,
        }


def _corpora() -> Iterator[dict[str, Any]]:
    from tasks.corpora import CORPORA

    for name, entry in CORPORA.items():
        yield {
            "name": name,
            "title": entry.title,
            "size": entry.size,
            "languages": entry.languages,
            "licence": entry.licence,
            "needs": entry.needs,
        }


def _protocols() -> Iterator[dict[str, Any]]:
    from tasks.scoring.protocols import PROTOCOLS

    for rule in PROTOCOLS.values():
        yield {"id": rule.protocol.id, "direction": rule.protocol.direction, "title": rule.protocol.title}


def _metrics() -> Iterator[dict[str, Any]]:
    from tasks.metrics import METRICS

    for metric in METRICS.values():
        yield {"name": metric.name, "directions": metric.directions, "reduce": metric.reduce}


LISTS: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {
    "encoders": _encoders,
    "corpora": _corpora,
    "protocols": _protocols,
    "metrics": _metrics,
}


def list_known(args: argparse.Namespace) -> None:
    """List encoders, corpora, protocols or metrics.

    Example: capim list encoders --format json
    """
    print_rows(LISTS[args.what](), form=args.format)
