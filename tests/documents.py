"""Runs a Markdown page as its reader would: every block as printed, from top to bottom, in one folder.

What a block is depends on the words after its three back-quotes:

* ``bash``: every line is run, ``capim`` in this process and all else by bash; ``bash exit=2`` expects that exit code;
* ``python``: is executed with the names that earlier blocks left;
* ``text``: an excerpt of what the block before printed; its lines have to come in this order, and ``…`` is any text;
* a language and a file name (``toml products.toml``, or ``# leading.py`` in the first line of Python): is written to
  that file;
* ``sh``: is not run, because it installs something, takes minutes, or is about the reader's own files;
* ``tree``: folders and files, two spaces per level. Images are made, each of another colour; files of other kinds come
  from the blocks that hold them.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from PIL import Image

from capim.flows.cli import main

ROOT = Path(__file__).resolve().parents[1]
IMAGES = (".jpg", ".jpeg", ".png")

FENCE = re.compile(r"^```(\w+)[ ]*([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_TO_FILE = re.compile(r"^(capim [^|<>]*?)\s*>\s*(\S+)$")


class Fenced(NamedTuple):
    """One block of a page."""

    language: str
    rest: str
    text: str


def fenced_blocks(page: Path, sections: tuple[str, ...] = ()) -> Iterator[Fenced]:
    """The blocks of a page or of some of its sections, in order."""
    text = page.read_text(encoding="utf-8")
    if sections:
        text = "".join(text.split(f"\n## {title}\n")[1].split("\n## ")[0] for title in sections)
    return (Fenced(*match) for match in FENCE.findall(text))


def file_of(block: str) -> str:
    """The file that a block of Python is: ``# leading.py`` in its first line; empty for one that is run."""
    named = re.match(r"# (\w+\.py)\n", block)
    return named[1] if named else ""


def run_page(page: Path, folder: Path, *, sections: tuple[str, ...] = ()) -> str:
    """Run every block of a page, or of some of its sections, in a folder; return all that they print.

    The workspace is ``workspace/`` in the folder, unless a command names another.

    Raises:
        AssertionError: A command ends with another exit code than expected, or prints something else than the page.
    """
    names: dict[str, object] = {"__name__": "__main__"}
    printed = everything = ""
    with contextlib.chdir(folder), patch.dict(os.environ):
        os.environ.pop("CAPIM_WORKSPACE", None)
        for block in fenced_blocks(page, sections):
            file = folder / (block.rest or file_of(block.text) or ".")
            if block.language == "bash":
                printed = _run_lines(block)
                everything += printed
            elif block.language == "tree":
                make_tree(block.text, folder)
            elif file != folder:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(block.text, encoding="utf-8")
            elif block.language == "python":
                with contextlib.redirect_stdout(io.StringIO()) as out:
                    exec(compile(block.text, page.name, "exec"), names)
                printed = out.getvalue()
                everything += printed
            elif block.language == "text":
                _expect(block.text, printed, page)
    return everything


def make_tree(text: str, folder: Path) -> None:
    """Make the folders of a tree, and its images; their colours follow from their paths."""
    above: list[Path] = [folder]
    for line in text.splitlines():
        name = line.split("  #")[0].strip()
        if not name or name == "…":
            continue
        depth = (len(line) - len(line.lstrip())) // 2
        path = above[depth] / name.rstrip("/")
        del above[depth + 1 :]
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
            above.append(path)
        elif path.suffix.lower() in IMAGES:
            colour = tuple(zlib.crc32(str(path.relative_to(folder)).encode()).to_bytes(4)[:3])
            kind = "PNG" if path.suffix.lower() == ".png" else "JPEG"
            Image.new("RGB", (32, 24), colour).save(path, format=kind)


def _run_lines(block: Fenced) -> str:
    """What the lines of a block print to standard output and to standard error."""
    expected = int(block.rest.partition("exit=")[2] or 0)
    printed = io.StringIO()
    for line in block.text.replace("\\\n", " ").splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        code = _run_line(line.strip(), printed)
        assert code == expected, f"`{line}` ended with exit code {code}, expected {expected}:\n{printed.getvalue()}"
    return printed.getvalue()


def _run_line(line: str, printed: io.StringIO) -> int:
    to_file = _TO_FILE.match(line)
    words = shlex.split(to_file[1] if to_file else line, comments=True)
    if words[0].endswith("capim") and (to_file or not set("|<>") & set(line)):
        out = io.StringIO() if to_file else printed
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(printed):
            code = main(words[1:])
        if to_file:
            Path(to_file[2]).write_text(out.getvalue(), encoding="utf-8")
        return code
    command = f'capim() {{ "{sys.executable}" -m capim.flows.cli "$@"; }}\n{line}'
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True, check=False)
    printed.write(done.stdout + done.stderr)
    return done.returncode


def _expect(text: str, printed: str, page: Path) -> None:
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    place = 0
    for line in filter(None, (" ".join(line.split()) for line in text.splitlines())):
        pattern = ".*".join(map(re.escape, line.split("…")))
        found = next((n for n in range(place, len(lines)) if re.fullmatch(pattern, lines[n])), None)
        assert found is not None, f"{page.name}: no line {line!r} in what was printed:\n{printed}"
        place = found + 1
