"""On a terminal every table fits, a run is one line and its report a link; in a pipe all is complete and plain."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len

from capim.flows.cli import main
from capim.flows.tables import TextColumn, lay_out
from capim.flows.terminal import RESULT_COLUMNS
from tests.command import command, json_rows

RUN = "run --corpora shapes --sample 12 --replicates 100 --analyses errors --device cpu --encoders tiny-clip"
WITH_ROWS = [
    "list encoders",
    "list metrics",
    "results",
    "results --against published",
    "store info",
    "store verify",
    "query 'SELECT * FROM results'",
    "query 'SELECT * FROM runs'",
    "query 'SELECT text, id FROM captions'",
    "search circle --encoder tiny-clip --corpus shapes-sample12",
    "list ids shapes-sample12 --modality caption --quiet",
]


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return 1


def on_terminal(*words: str, columns: int = 80) -> tuple[int, str]:
    """Exit code of ``capim WORDS``, and everything that it wrote to a terminal of so many columns."""
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(Terminal()) as stream,
        contextlib.redirect_stderr(stream),
    ):
        patch.setattr("os.get_terminal_size", lambda *_: os.terminal_size((columns, 24)))
        return main(words), stream.getvalue()


def _words(command: str, workspace: Path) -> list[str]:
    words = shlex.split(command)
    return words if words[0] == "list" and words[1] != "ids" else [*words, "--workspace", str(workspace)]


@pytest.mark.parametrize("columns", [80, 40])
@pytest.mark.parametrize("command", WITH_ROWS)
def test_no_row_is_wider_than_the_terminal(command: str, columns: int, small_demo: Path) -> None:
    code, printed = on_terminal(*_words(command, small_demo), columns=columns)
    lines = [line for line in printed.splitlines() if str(small_demo) not in line]  # a path of the test machine
    assert code == 0
    assert max(cell_len(line) for line in lines) <= columns, printed
    assert any(set(line) <= {"─", " "} for line in lines), "a table was printed"


@pytest.mark.parametrize("command", ["list corpora", "results", "store info", "query 'SELECT * FROM results'"])
def test_columns_without_room_are_named_and_shown_by_wide(command: str, small_demo: Path) -> None:
    words = _words(command, small_demo)
    _, printed = on_terminal(*words)
    _, wide = on_terminal(*words, "--wide")
    note = " ".join(printed[printed.index("no room for") :].split())
    left_out = note.removeprefix("no room for ").split(":")[0].replace(" and ", ", ").split(", ")
    assert "--wide shows them" in note
    assert "no room" not in wide
    for name in left_out:
        assert name.split()[-1] == "more" or name in next(
            line for line in wide.splitlines() if "name" in line or "encoder" in line
        )


def test_a_pipe_gets_the_whole_table_whatever_the_terminal_and_json_and_csv_every_column(
    small_demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    table = command("results --metrics R@1", small_demo).out
    assert tuple(table.split("\n")[0].split()) == RESULT_COLUMNS
    rows = json_rows("results --metrics R@1", small_demo)
    listed = list(csv.DictReader(io.StringIO(command("results --metrics R@1 --format csv", small_demo).out)))
    assert len(rows) == len(listed) == len(table.splitlines()) - 2
    assert list(rows[0]) == list(listed[0])
    assert {"reason", "run", "seed", "image_tag"} <= rows[0].keys()


@pytest.mark.parametrize("form", ["table", "json", "csv"])
def test_chosen_columns_are_printed_in_their_order_in_every_form(form: str, small_demo: Path) -> None:
    printed = command(f"results --metric R@1 --columns value,run,encoder --format {form}", small_demo)
    names = [*printed.rows[0]] if form == "json" else printed.out.splitlines()[0].replace(",", " ").split()
    assert names == ["value", "run", "encoder"]


def test_a_table_wraps_texts_never_numbers_and_measures_wide_characters() -> None:
    columns = [
        TextColumn(name="id", cells=("a", "b")),
        TextColumn(name="text", cells=("自転車" * 12, "a long caption about a red bus in the street")),
        TextColumn(name="value", cells=("123456", "1"), numeric=True),
    ]
    for width in range(20, 120):
        assert max(map(cell_len, lay_out(columns, width)[0])) <= width
    lines, left_out = lay_out(columns, 34)
    assert left_out == []
    assert max(map(cell_len, lines)) <= 34
    assert [line.split()[-1] for line in lines if line[:1] in "ab"] == ["123456", "1"]
    assert [sum(line.count(character) for line in lines) for character in "自転車"] == [12, 12, 12]


def test_the_columns_to_keep_find_room_before_the_others() -> None:
    columns = [TextColumn(name=name, cells=("x" * 18,)) for name in ("first", "second", "third", "fourth")]
    assert lay_out(columns, 40, keep=("fourth", "first"))[1] == ["second", "third"]
    assert lay_out(columns, 40)[1] == ["third", "fourth"]
    assert lay_out(columns, 10)[1] == ["second", "third", "fourth"], "one column is always shown"


def test_a_run_on_a_terminal_is_one_line_with_the_time_left_and_ends_with_the_verdict_and_a_link(
    tmp_path: Path,
) -> None:
    words = f"{RUN},tiny-clip-plain --workspace {tmp_path}"
    code, printed = on_terminal(*words.split())
    assert code == 0
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", printed).splitlines()
    drawn = [line for line in lines if "━" in line]
    assert drawn, "progress was drawn"
    assert max(map(cell_len, drawn)) <= 80
    assert any(re.search(r" \d+% about \d+ s left tiny-clip", line) for line in drawn)
    ended = [line.split(" in ")[0] for line in lines if re.search(r" in \d+ s$", line)]
    assert ended[0] == "encoded 24 images, 120 captions"
    assert ended[1].startswith("scored ")
    [page] = (tmp_path / "reports").glob("*/report.html")
    [answer, *_] = json.loads(page.with_name("results.json").read_text("utf-8"))["answer"]
    [verdict] = [line for line in lines if len(line) > 20 and answer.startswith(line)]
    assert lines[-1] == f"\x1b]8;;{page.as_uri()}\x1b\\{page}\x1b]8;;\x1b\\"
    assert lines.index(verdict) < len(lines) - 1


def test_a_run_in_a_pipe_prints_the_path_alone_to_stdout_and_the_verdict_to_stderr(tmp_path: Path) -> None:
    out, error = command(RUN, tmp_path)
    [page] = (tmp_path / "reports").glob("*/report.html")
    assert out == f"{page}\n"
    verdict = r"shapes-sample12: tiny-clip \(.*\): .* R@1, mean of both directions.*"
    assert re.fullmatch(verdict, error.splitlines()[-1])
    assert "\x1b" not in out + error


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("capim re", {"report", "results", "rerank"}),
        ("capim store ver", {"verify"}),
        ("capim run --cor", {"--corpora"}),
        ("capim results --format ", {"table", "json", "csv"}),
    ],
)
def test_a_shell_completes_commands_options_and_choices(line: str, offered: set[str]) -> None:
    words = line.split(" ")
    asking = f"""
        PATH={Path(sys.executable).parent}:$PATH COMP_WORDS=({shlex.join(words)}) COMP_CWORD={len(words) - 1}
        $(complete -p capim | sed "s/.*-F \\([^ ]*\\).*/\\1/") capim
        printf "%s\\n" "${{COMPREPLY[@]}}"
    """
    script = command("completion bash").out + asking
    answers = subprocess.run(["bash"], input=script, text=True, check=True, capture_output=True).stdout.splitlines()
    assert offered <= {answer.replace("\\", "") for answer in answers}


@pytest.mark.parametrize("shell", ["zsh", "fish"])  # bash runs its script above
def test_completion_is_a_script_that_its_shell_can_read(shell: str) -> None:
    script = command(f"completion {shell}").out
    assert "capim" in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)
