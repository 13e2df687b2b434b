"""The console script `capim`: parse, run one command, turn an error into one message and an exit code.

Exit codes: 0 done, 1 the work failed, 2 the request was wrong, 130 and 143 ended by a signal. Results go to stdout,
everything else to stderr.
Heavy libraries are imported by the commands that need them, so that ``capim --help`` answers at once.
"""

from __future__ import annotations

import argparse
import atexit
import errno
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Literal, NoReturn

from capim.flows import inspection, set_environment, steps, stored
from capim.flows.parser import WRONG_REQUEST, Command, Parser, add_command, add_group
from capim.store.errors import RequestError, WorkError, plain, shortened, with_notes, without_credentials

DONE, FAILED = 0, 1
_LAST_SECONDS = 4.0  # of a process that has printed its error
_NO_MEMORY = ("failed to map segment", "Failed to launch worker thread")  # of a library, or of Arrow
_OF_THE_MACHINE = {
    *(errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.EIO),
    errno.ENOMEM,
}


def completion(shell: Literal["bash", "zsh", "fish"]) -> None:
    """Print the script with which a shell completes commands, options and the names that they take.

    For bash, add to ~/.bashrc: eval "$(capim completion bash)". For zsh, to ~/.zshrc, after compinit:
    eval "$(capim completion zsh)". For fish: capim completion fish > ~/.config/fish/completions/capim.fish

    Example: capim completion bash

    Args:
        shell: the shell that completes
    """
    from argcomplete.shell_integration import shellcode

    sys.stdout.write(shellcode(["capim"], shell=shell))


COMMANDS: dict[str, Command] = {
    "demo": steps.demo,
    "run": steps.run_command,
    "embed": steps.embed,
    "evaluate": steps.evaluate,
    "compare": steps.compare_command,
    "analyse": steps.analyse,
    "watch": steps.watch,
    "report": steps.report_command,
    "results": stored.results,
    "choose": stored.choose,
    "serve": stored.serve,
    "import": steps.import_,
    "query": stored.query,
    "why": stored.why,
    "search": stored.search,
    "duplicates": stored.duplicates,
    "explain": stored.explain,
    "export": stored.export,
    "rerank": steps.rerank,
    "fuse": steps.fuse,
    "list": inspection.list_known,
    "check": inspection.check,
    "completion": completion,
}
GROUPS: dict[str, dict[str, Command]] = {
    "store": {
        "info": inspection.info,
        "verify": inspection.verify,
        "upgrade": inspection.upgrade,
        "prune": inspection.prune,
        "drop": inspection.drop,
    }
}
ABOUT = {
    "store": """Inspect and maintain the store: info, verify, upgrade, prune, drop.

Example: capim store info"""
}

GONE = {
    "corpora": "`capim check ./photos`, or `capim list ids ./photos`",
    "corpora check": "`capim check ./photos`",
    "corpora ids": "`capim list ids ./photos`",
    "certify": "docs/statistics.md has the table of what intervals and tests keep",
    "certify-model": "`capim results --against published`",
    "ann": "`capim analyse --analyses compression`",
    "store repair": "`capim store verify --drop`, then the same run again",
    "store compact": "`capim store prune --yes`",
    "store diff": "`capim why RUN` says what a run changed; docs/recipes.md compares two embedding sets",
    "--isolated": "run models and metrics of strangers in a container (docs/own_model.md)",
    "export --projection": "`capim export embeddings`, and a projection of your own; the atlas has two main directions",
    "import --manifest": "one `capim import` for each set; importing the same file again changes nothing",
    "import --folder": "one `capim import` for each set; importing the same file again changes nothing",
    "search --index": "`capim search`: it is exact",
    "search --html": '`capim serve`, and there "Save as one HTML file"',
}
"""Commands and options of earlier releases -> what to type now; what is still a command is not looked up here."""


class _Parser(Parser):
    """The parser of `capim` and of its commands."""

    gone = GONE


def build_parser(words: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """Every command with its options; with the words of a command line, the options of no other command."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--debug", action="store_true", help="show a traceback on errors")
    common.add_argument("--verbose", action="store_true", help="show log lines of the libraries")
    common.add_argument("--quiet", action="store_true", help="show no progress")
    parser: argparse.ArgumentParser = _Parser(
        prog="capim",
        description="Evaluate image-text embedding models: encode images and captions once, compute the rest from "
        "the stored embeddings.",
        epilog="Start with `capim demo`: the whole pipeline on rendered scenes and tiny models, offline. "
        "--encoder and --encoders are one option, and so are --corpus and --corpora; names are separated by commas.",
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    parser.set_defaults(debug=False, verbose=False, quiet=False)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, command in COMMANDS.items():
        add_command(commands, common, name, command, called=words is None or name in words)
    for name, parts in GROUPS.items():
        group = add_group(commands, name, ABOUT[name], parts)
        for part, command in parts.items():
            add_command(group, common, part, command, called=words is None or name in words)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    completes = "_ARGCOMPLETE" in os.environ  # the shell wants completions of a half-typed command
    parser = build_parser(None if completes else sys.argv[1:] if argv is None else argv)
    if completes:
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

    try:
        with _ended_by(signal.SIGTERM):
            return int(args.call(args))
    except KeyboardInterrupt as stopped:
        _print_error("interrupted; what was stored is kept, run the same command to continue")
        code = 128 + int((stopped.args or (signal.SIGINT,))[0])
        if argv is None:  # a thread may wait for an answer of the storage
            _end(code)
        return code
    except BrokenPipeError:
        # the program that reads our output (head, less) has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except Exception as error:  # noqa: BLE001 - no traceback unless --debug asks for it
        if args.debug:
            traceback.print_exception(error)
        code, message = _explain(error)
        _print_error(message)
        if argv is None:  # the process is ours alone
            _end(code)
        return code


@contextmanager
def _ended_by(number: signal.Signals) -> Iterator[None]:
    """A signal ends what is done in here as Ctrl-C does; in threads, signals are nobody's."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise KeyboardInterrupt(number)

    before = signal.signal(number, stop)
    try:
        yield
    finally:
        signal.signal(number, before)


def _end(code: int) -> NoReturn:
    """End the process, whatever threads wait for after a failure; what is to be done at the end is done."""
    timer = threading.Timer(_LAST_SECONDS, os._exit, [code])
    timer.daemon = True
    with suppress(RuntimeError):  # no more threads: nothing can wait for them either
        timer.start()
    atexit._run_exitfuncs()  # noqa: SLF001 - the interpreter's own end waits for threads first
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _explain(error: Exception) -> tuple[int, str]:
    """Exit code and message of an error."""
    if isinstance(error, RequestError | WorkError):
        return WRONG_REQUEST if isinstance(error, RequestError) else FAILED, with_notes(error)
    if isinstance(error, ModuleNotFoundError) and (package := _of_run(error.name or "")):
        return WRONG_REQUEST, f"{package} is missing: this installation reads stores alone; pip install 'capim[run]'"
    if isinstance(error, RecursionError):
        return (
            WRONG_REQUEST,
            "a file of this request is nested too deeply to be read (JSON or TOML, some thousand levels)",
        )
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return WRONG_REQUEST, f"a name is too long for a file: {error.filename}"
    no_memory = isinstance(error, MemoryError) or any(words in str(error) for words in _NO_MEMORY)
    if no_memory or (isinstance(error, OSError) and error.errno in _OF_THE_MACHINE):
        from capim.store.connection import explained

        said = error if str(error) else OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        return FAILED, str(explained("the work failed", said))
    message = with_notes(error)
    return FAILED, f"unexpected {type(error).__name__}: {message}\nrun the command again with --debug for the traceback"


def _of_run(module: str) -> str:
    """The package of a module that is missing, if the extra ``run`` would install it; else nothing.

    Examples:
        >>> _of_run("prefect.client"), _of_run("numpy"), _of_run("huggingface_hub")
        ('prefect', '', 'huggingface-hub')
    """
    from importlib.metadata import requires

    package = module.partition(".")[0].replace("_", "-")
    named = [each for each in requires("capim") or () if re.search(r"extra *== *['\"]run['\"]", each)]
    found = {re.split(r"[^\w-]", each.replace("_", "-"))[0].lower() for each in named}
    return package if package.lower() in found else ""


def _print_error(message: str) -> None:
    lines = without_credentials(message).split("\n")
    sys.stderr.write("capim: " + "".join(f"{plain(shortened(line, 2000))}\n" for line in lines))


if __name__ == "__main__":
    sys.exit(main())
