"""The console script `capim`: parse, run one command, turn an error into one message and an exit code.

Exit codes: 0 done, 1 the work failed, 2 the request was wrong, 130 and 143 ended by a signal. Results go to stdout,
everything else to stderr.
Heavy libraries are imported by the commands that need them, so that ``capim --help`` answers at once.
"""

from __future__ import annotations

import atexit
import codecs
import errno
import io
import json
import os
import re
import select
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn, TextIO

from capim.flows import set_environment
from capim.flows.commands import parse
from capim.store.errors import RequestError, WorkError, plain, shortened, with_notes, without_credentials

DONE, FAILED, WRONG_REQUEST = 0, 1, 2
_LAST_SECONDS = 4.0  # of a process that has printed its error
_NO_MEMORY = ("failed to map segment", "Failed to launch worker thread")  # of a library, or of Arrow
_OF_THE_MACHINE = {
    *(errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.EIO),
    errno.ENOMEM,
}
_ASCII = {"─": "-", "−": "-", "–": "-", "…": "...", "×": "x", "’": "'"}  # of what our own words use


def escape_unencodable(*streams: TextIO) -> None:
    """Have these streams replace what their encoding lacks: dashes by ASCII, all else by the escapes of JSON."""

    def escaped(error: UnicodeError) -> tuple[str, int]:
        if not isinstance(error, UnicodeEncodeError):
            raise error
        lost = error.object[error.start : error.end]
        return "".join(_ASCII.get(each) or json.dumps(each)[1:-1] for each in lost), error.end

    codecs.register_error("capim-escaped", escaped)
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="capim-escaped")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code."""
    words = [*(sys.argv[1:] if argv is None else argv)]
    set_environment(verbose="--verbose" in words)
    try:
        if argv is None:  # the process is only ours
            signal.signal(signal.SIGTERM, _stop)  # as Ctrl-C does
        call = parse(words)
        done = call.function(*call.arguments.args, **call.arguments.kwargs)
        return WRONG_REQUEST if call.is_help else done if isinstance(done, int) else DONE
    except KeyboardInterrupt as stopped:
        code = 128 + int((stopped.args or (signal.SIGINT,))[0])
        message = "interrupted; stored rows are kept, run the same command to continue"
    except Exception as error:  # noqa: BLE001 - no traceback unless --debug asks for it
        if isinstance(error, BrokenPipeError) and _is_output_closed():
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return DONE
        if "--debug" in words:
            traceback.print_exception(error)
        code, message = _explain(error)
    _print_error(message)
    if argv is None:  # a thread may wait for an answer of the storage
        _end(code)
    return code


def _is_output_closed() -> bool:
    """True if the program that reads our output (head, less) has ended; else a pipe of the work itself broke."""
    output = select.poll()
    for descriptor in (1, 2):
        output.register(descriptor, 0)  # errors only
    return bool(output.poll(0))


def _stop(number: int, _: object) -> NoReturn:
    raise KeyboardInterrupt(number)


def _end(code: int) -> NoReturn:
    """End the process, whatever its threads wait for, after the functions that are registered for its end."""
    timer = threading.Timer(_LAST_SECONDS, os._exit, [code])
    timer.daemon = True
    with suppress(RuntimeError):  # no more threads: nothing can wait for them either
        timer.start()
    atexit._run_exitfuncs()  # noqa: SLF001 - the interpreter's own end waits for threads first
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _explain(error: Exception) -> tuple[int, str]:
    """Return the exit code and the message of an error."""
    if isinstance(error, RequestError | WorkError):
        return WRONG_REQUEST if isinstance(error, RequestError) else FAILED, with_notes(error)
    if isinstance(error, ModuleNotFoundError) and (package := _of_run(error.name or "")):
        return WRONG_REQUEST, f"{package} is missing: this installation only reads stores; pip install 'capim[run]'"
    if isinstance(error, RecursionError):
        return WRONG_REQUEST, "a file of this request is nested too deeply to be read (JSON or TOML)"
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
    """Return the package of a missing module if the extra ``run`` installs it, else an empty text.

    Examples:
        >>> _of_run("prefect.client"), _of_run("numpy"), _of_run("huggingface_hub")
        ('prefect', '', 'huggingface-hub')
    """
    from importlib.metadata import requires

    package = module.partition(".")[0].replace("_", "-")
    of_package = re.compile(rf"{re.escape(package)}[^\w-].*extra *== *['\"]run['\"]", re.IGNORECASE)
    return package if any(of_package.match(each.replace("_", "-")) for each in requires("capim") or ()) else ""


def _print_error(message: str) -> None:
    lines = without_credentials(message).split("\n")
    sys.stderr.write("capim: " + "".join(f"{plain(shortened(line, 2000))}\n" for line in lines))


if __name__ == "__main__":
    sys.exit(main())
