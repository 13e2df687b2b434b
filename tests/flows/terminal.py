"""Runs a command in this process on a pseudo-terminal, and gives what the terminal got."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import termios
import threading

from capim.flows.cli import main


def on_terminal(*words: str, columns: int = 80) -> tuple[int, str]:
    """Exit code of ``capim WORDS``, and everything that it wrote to a terminal of so many columns."""
    controller, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    received: list[bytes] = []

    def read() -> None:
        with contextlib.suppress(OSError):  # what a terminal without writers gives on Linux
            while block := os.read(controller, 65536):
                received.append(block)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        with (
            os.fdopen(terminal, "w", encoding="utf-8") as stream,
            contextlib.redirect_stdout(stream),
            contextlib.redirect_stderr(stream),
        ):
            code = main(words)
    finally:
        reader.join()
        os.close(controller)
    return code, b"".join(received).decode().replace("\r\n", "\n")
