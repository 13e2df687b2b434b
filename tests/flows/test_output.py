"""Rows on stdout: three forms, and nothing from a corpus can drive a terminal."""

from __future__ import annotations

import io
import json
import logging
import math
import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from capim.flows.config import RunConfig
from capim.flows.execution import record_end, recorded_run
from capim.flows.terminal import Form, Rows, link
from capim.store import EmbeddingStore
from capim.store.errors import WorkError, plain
from capim.store.schema import Run
from capim.tasks.prefects.task import CONSOLE_LEVEL, hide_prefects_lines
from tests.command import command


def _printed(rows: list[dict[str, Any]], form: Any, columns: tuple[str, ...] | None = None) -> str:
    out = io.StringIO()
    Rows(rows=rows, columns=columns).print(Form(format=form), out)
    return out.getvalue()


def test_json_has_every_column_and_null_where_a_number_is_none_or_infinite() -> None:
    row = {"value": math.nan, "high": math.inf, "list": [1, -math.inf], "object": {"low": math.nan}, "sum": Decimal(3)}
    printed = _printed([row | {"when": datetime(2026, 1, 2, tzinfo=UTC)}], "json")
    found = json.loads(printed, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    numbers = {"value": None, "high": None, "list": [1, None], "object": {"low": None}, "sum": 3}
    assert found == [numbers | {"when": "2026-01-02T00:00:00+00:00"}]


def test_a_table_aligns_numbers_to_the_right_and_shows_only_the_columns_asked_for() -> None:
    rows = [{"encoder": "a", "value": 0.5, "ci_low": None}, {"encoder": "bb", "value": 0.25, "ci_low": 0.125}]
    lines = _printed(rows, "table", columns=("encoder", "value", "absent")).splitlines()
    assert lines[0] == "encoder   value"
    assert lines[2:] == ["a        0.5000", "bb       0.2500"]
    assert _printed(rows, "csv").splitlines() == ["encoder,value,ci_low", "a,0.5,", "bb,0.25,0.125"]


def test_no_rows_is_an_empty_json_list_and_a_word_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    Rows(rows=[]).print(Form(format="json"))
    Rows(rows=[]).print(Form())
    captured = capsys.readouterr()
    assert captured.out == "[]\n"
    assert captured.err == "no rows\n"


def test_escape_sequences_and_bidirectional_overrides_of_a_caption_are_shown_as_replacement_characters() -> None:
    assert plain("a\x1b]0;title\x07b") == "a�]0;title�b"
    assert plain("abc\u202egnp.exe") == "abc�gnp.exe"
    assert plain("自転車 🚲") == "自転車 🚲"


@pytest.mark.parametrize("program", ["/usr/bin/capim", "/site-packages/capim/__main__.py"])
def test_no_secret_of_an_address_is_stored_with_a_run_or_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    secret = "s3://KEY:SEC/RET@bucket/runs"
    monkeypatch.setattr(sys, "argv", [program, "run", "--workspace", secret])
    config = RunConfig(workspace=str(tmp_path), corpora=(secret,))
    with pytest.raises(OSError, match="bucket"), recorded_run(config, "benchmark"):
        raise OSError(f"{secret} does not answer")
    [row] = EmbeddingStore.open(config.store_uri).all(Run)
    assert "RET" not in str(row)
    assert row.command == "capim run --workspace s3://***@bucket/runs"
    assert "s3://***@bucket/runs" in row.config
    assert "s3://***@bucket/runs" in str(row.message)
    assert link(f"{secret}/report.html", io.StringIO()) == "s3://***@bucket/runs/report.html"
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://KEY:RET@127.0.0.1:9")
    printed = "".join(command(f"store info --workspace {secret.replace('/RET', 'RET')}", code=1))
    assert "127.0.0.1:9" in printed
    assert "RET" not in printed


def test_a_run_whose_process_died_is_interrupted_when_the_next_one_of_its_host_begins(tmp_path: Path) -> None:
    config = RunConfig(workspace=str(tmp_path))
    dead = subprocess.Popen([sys.executable, "-c", "pass"])
    dead.wait()
    with recorded_run(config, "benchmark") as first, recorded_run(config, "benchmark") as second:
        store = EmbeddingStore.open(config.store_uri)
        [row] = store.all(Run, run=first.run)
        assert (row.state, row.pid) == ("running", os.getpid()), "this process lives"
        store.write([replace(row, pid=dead.pid)], replace="run")
        with recorded_run(config, "benchmark"):
            assert store.rows("runs", run=first.run)["state"].to_pylist() == ["interrupted"]
            assert store.rows("runs", run=second.run)["state"].to_pylist() == ["running"]
    assert set(store.rows("runs")["state"].to_pylist()) == {"completed"}, "it was not dead after all"


@pytest.mark.parametrize(
    ("error", "state"), [(KeyboardInterrupt(), "interrupted"), (SystemExit(1), "interrupted"), (OSError(), "failed")]
)
def test_a_run_that_a_signal_or_a_lost_worker_ends_is_interrupted(
    error: BaseException, state: str, tmp_path: Path
) -> None:
    config = RunConfig(workspace=str(tmp_path))
    with pytest.raises(type(error)), recorded_run(config, "benchmark"):
        raise error
    assert EmbeddingStore.open(config.store_uri).rows("runs")["state"].to_pylist() == [state]


def test_a_report_that_fails_after_the_end_of_a_run_leaves_what_the_run_used(tmp_path: Path) -> None:
    config = RunConfig(workspace=str(tmp_path))
    with pytest.raises(OSError), recorded_run(config, "benchmark") as settings:
        store = EmbeddingStore.open(config.store_uri)
        record_end(store, settings.run, ())
        raise OSError
    [row] = store.all(Run)
    assert (row.state, row.uses) == ("failed", [])


def test_a_storage_that_cannot_take_the_end_of_a_run_does_not_hide_what_ended_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object, **__: object) -> None:
        raise WorkError("writing table 'runs' failed")

    with pytest.raises(KeyboardInterrupt), recorded_run(RunConfig(workspace=str(tmp_path)), "benchmark"):
        monkeypatch.setattr(EmbeddingStore, "write_rows", lost)
        raise KeyboardInterrupt


def test_what_prefect_logs_without_its_server_stays_off_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = logging.StreamHandler(io.StringIO())
    monkeypatch.setattr(logging.getLogger(), "handlers", [shown])
    monkeypatch.setattr(logging, "raiseExceptions", True)  # back to what it is now
    monkeypatch.setenv(CONSOLE_LEVEL, "WARNING")
    hide_prefects_lines()
    for name in ("EventsWorker", "APILogWorker", "prefect.flow_runs", "another"):
        logging.getLogger(name).warning("Still processing items, says %s", name)
    assert shown.stream.getvalue() == "Still processing items, says another\n"


def test_a_broken_pipe_of_the_work_is_an_error_unlike_a_reader_that_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> None:
        raise BrokenPipeError("a process of the work has died")

    monkeypatch.setattr("capim.flows.stored.open_store", broken)
    assert "unexpected BrokenPipeError: a process of the work" in command("results", tmp_path, code=1).err


@pytest.mark.slow
def test_after_an_error_the_process_ends_whatever_threads_wait(tmp_path: Path) -> None:
    code = (
        "import atexit, sys, threading, time\n"
        "from capim.flows.cli import main\n"
        "threading.Thread(target=time.sleep, args=(100,)).start()\n"
        "atexit.register(print, 'tidied')\n"
        f"sys.argv = ['capim', 'results', '--workspace', {str(tmp_path)!r}]\n"
        "sys.exit(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "tidied\n")
    assert done.stderr.startswith("capim: there is no store at ")
