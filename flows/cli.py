"""The console script `capim`: parse, run one command, turn an error into one message and an exit code.

Exit codes: 0 done, 1 the work failed, 2 the request was wrong. Results go to stdout, everything else to stderr.
Heavy libraries are imported by the commands that need them, so that ``capim --help`` answers at once.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
import traceback
from collections.abc import Callable, Sequence

from capim.flows import set_environment
from capim.flows.commands import add_commands
from capim.flows.terminal.parser import WRONG_REQUEST, Parser
from capim.store.errors import RequestError, WorkError, plain, shortened, without_credentials

DONE, FAILED, INTERRUPTED = 0, 1, 130


def build_parser() -> argparse.ArgumentParser:
    """Every command with its options."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--debug", action="store_true", help="show a traceback on errors")
    common.add_argument("--verbose", action="store_true", help="show log lines of the libraries")
    common.add_argument("--quiet", action="store_true", help="show no progress")
    parser: argparse.ArgumentParser = Parser(
        prog="capim",
        description="Evaluate image-text embedding models: encode images and captions once, compute the rest from "
        "the stored embeddings.",
        epilog="Start with `capim demo`: the whole pipeline on rendered scenes and tiny models, offline. "
        "--encoder and --encoders, --corpus and --corpora are one option everywhere: names separated by commas.",
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    parser.set_defaults(debug=False, verbose=False, quiet=False)
    add_commands(parser.add_subparsers(dest="command", metavar="COMMAND"), common)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    parser = build_parser()
    if "_ARGCOMPLETE" in os.environ:  # the shell wants completions of a half-typed command
        import argcomplete

        argcomplete.autocomplete(parser)
    args = parser.parse_args(argv)
    if args.version:
        from importlib.metadata import version

        sys.stdout.write(f"capim {version('capim')}\n")
        return DONE
    if args.command is None:
        parser.print_help()
        return WRONG_REQUEST
    set_environment(verbose=args.verbose)
    run: Callable[[argparse.Namespace], int | None] = args.run
    try:
        return run(args) or DONE
    except KeyboardInterrupt:
        _print_error("interrupted; what was encoded is stored, run the same command to continue")
        return INTERRUPTED
    except BrokenPipeError:
        # the program that reads our output (head, less) has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except Exception as error:  # noqa: BLE001 - no traceback unless --debug asks for it
        if args.debug:
            traceback.print_exception(error)
        code, message = _explain(error)
        _print_error(message)
        return code


def _explain(error: Exception) -> tuple[int, str]:
    """Exit code and message of an error."""
    if isinstance(error, RequestError):
        return WRONG_REQUEST, str(error)
    if isinstance(error, WorkError):
        return FAILED, str(error)
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return WRONG_REQUEST, f"a name is too long for a file: {error.filename}"
    return FAILED, f"unexpected {type(error).__name__}: {error}\nrun the command again with --debug for the traceback"


def _print_error(message: str) -> None:
    lines = without_credentials(message).split("\n")
    sys.stderr.write("capim: " + "".join(f"{plain(shortened(line, 2000))}\n" for line in lines))


if __name__ == "__main__":
    sys.exit(main())
