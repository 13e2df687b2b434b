"""`list`, `check`, `corpora check`, `corpora ids`: what is available, and whether a model or a corpus can be used."""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capim.flows.commands.workspace import open_store
from capim.flows.terminal.output import show_rows
from capim.flows.terminal.parser import Commands, config_options, declare, declare_group, spelt
from capim.store.errors import RequestError, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from capim.store.types import Corpus


KINDS = ("image", "caption", "pair", "quadruple")


def add_commands(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Add the commands that list and check."""
    parser = declare(commands, common, "list", list_known, rows=True, workspace=False)
    parser.add_argument("what", type=spelt(tuple(LISTS)), choices=tuple(LISTS), help="what to list")
    parser.add_argument(
        "--pin", metavar="FILE", help="with encoders: write a suite file with every model at its current commit"
    )
    parser = declare(commands, common, "check", check, rows=True, workspace=False)
    parser.add_argument("encoder", help="encoder from `capim list encoders` or from the suite file")
    parser.add_argument("--suite", metavar="FILE", help="suite file (TOML) that describes the encoder")
    parser.add_argument("--device", default="cpu", metavar="D", help="device that runs the model (default: cpu)")
    config_options(parser, "precision", "compile", "trust_remote_code")
    group = declare_group(commands, "corpora", corpora)
    parser = declare(group, common, "check", check_corpora, workspace=False)
    parser.add_argument("what", help="a folder, a captions file, a TOML file or a name (capim list corpora)")
    parser = declare(group, common, "ids", ids_of_corpus, rows=True)
    parser.add_argument("what", help="a stored corpus, or what `capim corpora check` takes")
    parser.add_argument("--modality", choices=KINDS, default="image", help="kind of items (default: image)")


def _encoders() -> Iterator[dict[str, Any]]:
    from capim.tasks.encoders import ADAPTERS, catalog

    for name, entry in catalog().items():
        spec = entry.spec
        roles = ADAPTERS[spec.adapter].roles
        yield {
            "name": name,
            "adapter": spec.adapter,
            "checkpoint": spec.checkpoint,
            "vectors": spec.vectors,
            "dim": spec.dim,
            "precision": spec.precision,
            "storage": spec.storage,
            "roles": "query, document" if roles else "",
            "prompt": spec.options.get("caption_template", "the checkpoint's own" if roles else ""),
            "millions": entry.parameters,
            "licence": entry.licence,
            "extra": ADAPTERS[spec.adapter].extra,
            "needs": entry.needs,
            "package": ADAPTERS.package(spec.adapter),
        }


def _adapters() -> Iterator[dict[str, Any]]:
    from capim.tasks.encoders import ADAPTERS

    for name, adapter in ADAPTERS.items():
        missing = adapter.missing
        yield {
            "name": name,
            "loads": adapter.title,
            "installed": f"no: {adapter.install}" if missing else "yes",
            "needs": [library.replace("_", "-") for library in adapter.requires],
            "extra": adapter.extra,
            "options": list(adapter.options) if adapter.options is not None else "any",
            "package": ADAPTERS.package(name),
        }


def _corpora() -> Iterator[dict[str, Any]]:
    from capim.tasks.corpora.naming import list_corpora

    return iter(list_corpora())


def _protocols() -> Iterator[dict[str, Any]]:
    from capim.tasks.ranking.protocols import PROTOCOLS

    for rule in PROTOCOLS.values():
        yield {"id": rule.protocol.id, "direction": rule.protocol.direction, "title": rule.protocol.title}


def _metrics() -> Iterator[dict[str, Any]]:
    from capim.tasks.metrics import METRICS

    for metric in METRICS.values():
        yield {
            "name": metric.name,
            "directions": sorted(metric.directions),
            "reduce": metric.reduce,
            "lower_is_better": not metric.higher_is_better,
            "version": str(metric.version),
            "package": METRICS.package(metric.name),
        }


LISTS: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {
    "encoders": _encoders,
    "corpora": _corpora,
    "protocols": _protocols,
    "metrics": _metrics,
    "adapters": _adapters,
}
KEEP = {
    "encoders": ("name", "licence", "millions", "needs"),
    "corpora": ("name", "title", "licence", "available"),
    "adapters": ("name", "loads", "installed"),
}
"""The columns of a list that find room first on a terminal."""


def list_known(args: argparse.Namespace) -> None:
    """List encoders, corpora, protocols, metrics, or adapters, which load the encoders.

    Each row names the package that it comes from: capim, or an installed package that adds rows (docs/own_model.md).
    With --pin, also write a suite file in which the revision of every encoder is the current commit of its branch.

    Example: capim list encoders --format json
    """
    if args.pin:
        _pin(args)
    show_rows(args, LISTS[args.what](), keep=KEEP.get(args.what, ()))


def _pin(args: argparse.Namespace) -> None:
    if args.what != "encoders":
        raise RequestError("--pin works with encoders only: `capim list encoders --pin FILE`")
    from capim.tasks.encoders.identity import pin, pinned_toml

    pins = list(pin())
    Path(args.pin).write_text(pinned_toml(pins), encoding="utf-8")
    pinned = sum(entry.spec is not None for entry in pins)
    sys.stderr.write(
        f"{pinned} of {len(pins)} encoders pinned in {args.pin}; the others are comments that give the reason\n"
    )


def check(args: argparse.Namespace) -> int:
    """Load one model and run the conformance suite on it, before a long encode.

    Checks identity, weights, norms, independence of the batch, truncation, unusual images and captions, precision, a
    known answer and speed; what cannot be verified is skipped with the reason. Exit code 1 if a check fails.

    Example: capim check tiny-clip
    """
    from capim.flows.config import run_config
    from capim.flows.request import entry_named
    from capim.tasks.encoders.conformance import check_encoder
    from capim.tasks.encoders.device import choose_device

    config = run_config({"trust_remote_code": args.trust_remote_code}, args.suite)
    spec = entry_named(args.encoder, config.encoders).spec
    verdicts = []
    checks = check_encoder(
        replace(spec, precision=args.precision or spec.precision),
        device=choose_device(args.device),
        trust_remote_code=config.trusts(args.encoder),
        compiled=bool(args.compile),
    )
    for verdict in checks:
        verdicts.append(verdict._asdict())
        if not args.quiet and args.format == "table":
            sys.stderr.write(f"{verdict.result:5}{verdict.check}\n")
    show_rows(args, verdicts)
    return 1 if any(verdict["result"] == "fail" for verdict in verdicts) else 0


def corpora(args: argparse.Namespace) -> int:
    """Check a corpus before a run (check), or list the ids of its items (ids).

    Example: capim corpora check ./photos
    """
    sys.stderr.write("capim: give a command: capim corpora check ./photos, or capim corpora ids ./photos\n")
    return 2


def check_corpora(args: argparse.Namespace) -> int:
    """Read a corpus as a run would and print everything that is wrong with it; nothing is stored.

    Says how a folder was recognised, and ends with the command to type next. Exit code 2 if a run would refuse the
    corpus. The layouts that are recognised: docs/own_data.md.

    Example: capim corpora check ./photos
    """
    from capim.tasks.corpora.check import check_corpus

    checked = check_corpus(args.what)
    sys.stdout.writelines(f"{plain(line)}\n" for line in checked.lines())
    return 0 if checked.ok else 2


def ids_of_corpus(args: argparse.Namespace) -> int:
    """List the ids of a corpus in its order, with what they stand for; nothing is stored.

    `capim import` needs these ids beside the vectors, or the vectors in this order. A corpus that is not stored is read
    as a run would read it, without the images that cannot be decoded. For a corpus of ids and texts without image
    files, set ids_only = true in its TOML file (docs/embeddings.md).

    Example: capim corpora ids shapes --modality caption --format csv
    """
    from capim.tasks.corpora import open_corpus
    from capim.tasks.corpora.naming import corpus_items
    from capim.tasks.corpora.subset import index_images

    stored = _stored_corpus(args.what, args.workspace)
    corpus = stored or index_images(open_corpus(args.what), known={}, sink=lambda _: None)
    rows = corpus_items(corpus, args.modality)
    code = show_rows(args, rows)
    others = ", ".join(f"--modality {k}" for k in KINDS if k != args.modality and corpus_items(corpus, k))
    if not args.quiet and others:
        sys.stderr.write(f"{len(rows):,} ids of {args.modality}s of {plain(corpus.name)}; others: {others}\n")
    return code


def _stored_corpus(what: str, workspace: str | None) -> Corpus | None:
    """The corpus of this name or fingerprint in the store; None if there is no such corpus, or no store."""
    with suppress(RequestError):
        return open_store(workspace).corpus(what)
    return None
