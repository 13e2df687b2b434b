"""Runs every command of the pages as written, in a fresh clone with an empty home.

``python -m tests.newcomer`` clones this repository's last commit, follows README.md, deployments/README.md and
CONTRIBUTING.md from top to bottom, and prints a line for each command. There are no caches, no home and no virtual
environment; certificates, proxies and package indexes that the environment names are kept. ``--with-tests`` runs
``make test`` too, ``--only README.md`` one page.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.documents import FENCE, ROOT, file_of
from tests.test_readme import PAGES

LONGEST_SECONDS = 3600
KEPT = re.compile(
    r"PATH|LANG|TERM|SHELL|.*_proxy|.*_PROXY|.*CERT.*|.*CA_BUNDLE|.*CAINFO|PIP_(?!CACHE).*|UV_(?!CACHE).*|PYENV_ROOT"
)
INLINE = re.compile(r"`(capim [^`]+)`")
# In running text the pages shorten `.venv/bin/capim` to `capim`.
SHORTENED = re.compile(r"^capim\b")


class Excuse(NamedTuple):
    """Why a command may fail on this machine."""

    output: str  # a pattern that its output must match then
    needs: str


# Commands that need the hub, a GPU or the reader's own files: they succeed, or fail with the error that says so.
MAY_FAIL = {
    r"--encoders laion-clip-h,siglip-so400m": Excuse(
        r"(?s)hub cannot be reached (\(|for laion/.*hf download laion/)|device '?cuda'? does not exist",
        "COCO's images, the hub and a GPU",
    ),
    r"(check|--corpora) \./photos": Excuse(
        r"no such folder or file|hub cannot be reached for unum-cloud/.*hf download unum-cloud/",
        "the photographs are the reader's own, and the hub",
    ),
    r"capim embed suite\.toml": Excuse(r"suite\.toml does not exist", "the suite is the reader's own"),
    r"capim watch --strict": Excuse(
        "watched for the first time, so nothing was compared",
        "a baseline of all that is stored; the night's sample has none yet",
    ),
    r"capim run products\.toml": Excuse(
        r"path/to/folder|hub cannot be reached for laion/", "its corpus and its checkpoint are the reader's own"
    ),
}
# Commands that run until they are stopped, and what they print once they are ready.
STAYS = {
    r"capim serve --open": r"http://127\.0\.0\.1",
    r"prefect worker start": r"(?i)worker .*started|polling|Discovered",
    r"deployments\.serve": r"(?i)serv|deployment",
}
ONLY_WITH_TESTS = re.compile(r"^make test")
PLACEHOLDER = re.compile(r"…|\b(NAME|OLD|NEW|RUN|N|FILE)\b|:function")


class Step(NamedTuple):
    """A command or a file of a page."""

    page: str
    language: str
    text: str


class Outcome(NamedTuple):
    """How a step ended."""

    verdict: str  # done, excused, "left out", FAILED
    seconds: float
    detail: str


def steps(page: Path) -> Iterator[Step]:
    """The steps of a page in its order: lines of commands, Python, TOML, and the commands within its text."""
    text, name = page.read_text(encoding="utf-8"), str(page.relative_to(ROOT))
    place = 0
    for match in FENCE.finditer(text):
        language, rest, block = match.groups()
        if language in ("bash", "python", "toml") and not rest:
            yield from _in_text(text[place : match.start()], name)
            place = match.end()
            lines = [line for line in block.splitlines() if line.strip()] if language == "bash" else [block]
            yield from (Step(name, language, line) for line in lines)
    yield from _in_text(text[place:], name)


def _in_text(text: str, page: str) -> Iterator[Step]:
    """Commands within sentences and tables, which may go over the end of a line; a bare name is run with --help."""
    for command in dict.fromkeys(" ".join(found.split()) for found in INLINE.findall(text)):
        yield Step(page, "text", f"{command} --help" if len(command.split()) == 2 else command)


class Newcomer:
    """A shell in an empty home that keeps exported variables, those of a file that `set -a` reads too."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clone = folder, folder / "capim"
        self.environment = {name: value for name, value in os.environ.items() if KEPT.fullmatch(name)}
        self.environment |= {"HOME": str(folder / "home"), "UV_CACHE_DIR": str(folder / "home" / "uv")}
        (folder / "home").mkdir(parents=True)
        self.exports: list[str] = []
        self.running: list[subprocess.Popen[bytes]] = []

    def carry_out(self, step: Step, *, with_tests: bool) -> Outcome:
        """Carries out a step."""
        if step.language == "text" and PLACEHOLDER.search(step.text):
            return Outcome("left out", 0.0, "the reader fills in a name")
        if ONLY_WITH_TESTS.match(step.text) and not with_tests:
            return Outcome("left out", 0.0, "takes minutes; run with --with-tests")
        if step.language == "toml":
            (self.clone / "products.toml").write_text(step.text)
            return Outcome("done", 0.0, "written as products.toml")
        if (file := file_of(step.text)) and step.language == "python":
            (self.clone / file).write_text(step.text)
            return Outcome("done", 0.0, f"written as {file}")
        if step.language == "python":
            (self.clone / "question.py").write_text(step.text)
            return self._run(".venv/bin/python question.py", step.text)
        if step.text.startswith(("export ", "set -a;")):
            self.exports.append(step.text)
        return self._run(SHORTENED.sub(".venv/bin/capim", step.text), step.text)

    def _run(self, command: str, written: str) -> Outcome:
        begun = time.monotonic()
        output = self.folder / "output"
        with output.open("wb") as stream:
            words = ["bash", "-c", "\n".join([*self.exports, command])]
            process = subprocess.Popen(
                words, cwd=self.clone, env=self.environment, stdout=stream, stderr=stream, start_new_session=True
            )
        ready = next((ready for pattern, ready in STAYS.items() if re.search(pattern, written)), None)
        if ready is not None:
            self.running.append(process)
            return self._ready(process, output, ready, begun)
        try:
            code = process.wait(LONGEST_SECONDS)
        except subprocess.TimeoutExpired:
            _stop(process)
            return Outcome("FAILED", time.monotonic() - begun, f"not done within {LONGEST_SECONDS} s: {_tail(output)}")
        seconds = time.monotonic() - begun
        if code == 0:
            return Outcome("done", seconds, _tail(output))
        text = output.read_text("utf-8", "replace")
        for pattern, excuse in MAY_FAIL.items():
            if re.search(pattern, written) and re.search(excuse.output, text) and "Traceback" not in text:
                return Outcome("excused", seconds, f"needs {excuse.needs}; exit {code}: {_tail(output)}")
        return Outcome("FAILED", seconds, f"exit {code}: {_tail(output, 1500)}")

    def _ready(self, process: subprocess.Popen[bytes], output: Path, ready: str, begun: float) -> Outcome:
        """Waits until a command that runs until it is stopped is ready."""
        while time.monotonic() - begun < 180:
            text = output.read_text("utf-8", "replace")
            if re.search(ready, text):
                output.rename(self.folder / f"output-{process.pid}")
                return Outcome("done", time.monotonic() - begun, "ready, still running")
            if process.poll() is not None:
                break
            time.sleep(0.5)
        return Outcome("FAILED", time.monotonic() - begun, f"not ready: {_tail(output, 1500)}")

    def leave(self) -> None:
        """Ends the page: stops what is running, in the background too, and forgets exported variables."""
        for process in reversed(self.running):
            _stop(process)
        self.running.clear()
        for left in psutil.process_iter(["cmdline"]):  # a server, a run that a worker had begun
            if str(self.folder) in " ".join(left.info["cmdline"] or ()):
                with suppress(psutil.NoSuchProcess):
                    left.kill()
        self.exports.clear()


def _stop(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGINT, signal.SIGKILL):
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, number)
            process.wait(20)
            return


def _tail(output: Path, n: int = 110) -> str:
    """The end of the output, in one line."""
    return " ".join(output.read_text("utf-8", "replace").split())[-n:]


def main(argv: list[str] | None = None) -> int:
    """Follows the pages; returns 1 if a step failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.newcomer", description=__doc__)
    parser.add_argument("--with-tests", action="store_true", help="run `make test` too")
    parser.add_argument("--only", help="one page, e.g. README.md")
    args = parser.parse_args(argv)
    counts = Counter[str]()
    order = [PAGES[0], PAGES[2], PAGES[1]]  # deployments/README.md goes on where the README ends
    with tempfile.TemporaryDirectory(prefix="newcomer-", ignore_cleanup_errors=True) as folder:
        newcomer = Newcomer(Path(folder))
        subprocess.run(["git", "clone", "--quiet", "--depth", "1", ROOT.as_uri(), newcomer.clone], check=True)
        for page in order:
            try:
                for step in steps(page):
                    if args.only not in (None, step.page):
                        continue
                    outcome = newcomer.carry_out(step, with_tests=args.with_tests)
                    counts[outcome.verdict] += 1
                    head = step.text.strip().splitlines()[0]
                    print(f"{outcome.verdict:<12} {outcome.seconds:6.1f} s  {step.page}: {head}", flush=True)
                    if outcome.verdict != "done":
                        print(f"{'':22}{outcome.detail}", flush=True)
            finally:
                newcomer.leave()
    summary = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    print(f"newcomer: {counts.total()} steps: {summary}")
    return 1 if counts["FAILED"] else 0


if __name__ == "__main__":
    sys.exit(main())
