"""Every option of every command is used: read from the functions that declare them, and tried where one serves all."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import shlex
import textwrap
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

import capim.flows.execution
from capim.flows import cli, set_environment
from capim.flows.commands import COMMANDS
from capim.flows.config import FIELDS
from capim.flows.steps import IMPORTS
from capim.tasks import prefects
from tests.command import command as run_command
from tests.flows.commands import leaf_commands
from tests.test_architecture import product_files

LEAVES = leaf_commands()
FUNCTIONS = {words: where for commands in COMMANDS.values() for words, where in commands.items()}
WORDS = {
    **{name: f"{name} --corpora shapes --encoders tiny-clip" for name in ("run", "embed", "watch")},
    "import": "import --encoder theirs --corpus shapes --images x",
    "export": "export results --to x",
    "choose": "choose --weights shapes=1",
    "query": "query 'SELECT 1'",
    "search": "search red --encoder tiny-clip --corpus shapes",
    "duplicates": "duplicates --corpus shapes",
    "explain": "explain --encoder tiny-colpali --corpus shapes --query x --item x",
    "rerank": "rerank --first tiny-clip --second tiny-colpali",
    "fuse": "fuse --encoders tiny-clip,tiny-colpali",
    "check": "check tiny-clip",
}
"""Command -> its words, where it needs more than its name."""


def read_by(function: Any) -> set[str]:
    """The names that the body of a function reads."""
    [definition] = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(definition, ast.FunctionDef)
    nodes = (node for statement in definition.body for node in ast.walk(statement))
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("store prune --keep 2.5", "for --keep: expected a whole number, got '2.5'"),
        ("search red --encoder a --corpus b -k 1.5", "for -k: expected a whole number, got '1.5'"),
        ("query 'SELECT 1' --timeout -1", "--timeout must be above 0 seconds, got -1"),
    ],
)
def test_a_number_that_an_option_cannot_have_is_refused_not_rounded(words: str, message: str, tmp_path: Path) -> None:
    assert message in run_command(words, tmp_path, code=2).err


@pytest.mark.parametrize("command", sorted(FUNCTIONS))
def test_every_parameter_of_a_command_is_read_by_it_and_is_an_option_or_given_by_the_program(command: str) -> None:
    module, _, name = FUNCTIONS[command].partition(":")
    function = getattr(import_module(f"capim.flows.{module}"), name)
    by_table = {option for files, others in IMPORTS.values() for option in (*files, *others)}  # read from `given`
    parameters = inspect.signature(function).parameters.keys()
    assert parameters - read_by(function) <= (by_table if command == "import" else set())
    given = {"config", "form", "given", "quiet", "show", "workspace"}
    in_python = {"a", "b", "report"}  # of compare and run, as from Python
    assert parameters - given - in_python <= {option.dest for option in LEAVES[command]}


def test_every_field_of_a_run_is_read_somewhere() -> None:
    nodes = (node for file in product_files() for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    assert FIELDS.keys() <= {node.attr for node in nodes if isinstance(node, ast.Attribute)}


@pytest.mark.parametrize(
    "command",
    sorted(
        name for name, options in LEAVES.items() if "workspace" in {each.dest for each in options} and name != "list"
    ),
)  # `list` reads unknown names without a store
def test_every_command_works_in_the_workspace_that_is_named(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def start(_: object, config: Any, *__: object, **___: object) -> Any:
        raise RuntimeError(f"a flow in {config.workspace}")

    monkeypatch.setattr(capim.flows.execution, "start", start)
    monkeypatch.setenv("CAPIM_WORKSPACE", "/elsewhere")
    words = shlex.split(WORDS.get(command, command))
    assert cli.main([*words, "--workspace", str(tmp_path / "here")]) in (1, 2)
    message = capsys.readouterr().err
    assert str(tmp_path / "here") in message
    assert "/elsewhere" not in message


def _log_level_of_lance() -> str | None:
    return os.environ.get("LANCE_LOG")


def test_options_of_the_program_change_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Traceback" not in run_command("results", tmp_path / "none", code=2).err
    assert "Traceback" in run_command("results --debug", tmp_path / "none", code=2).err
    monkeypatch.delenv("LANCE_LOG", raising=False)
    set_environment(verbose=True)
    assert "LANCE_LOG" not in os.environ
    set_environment(verbose=False)
    assert os.environ["LANCE_LOG"] == "error"
    set_environment(verbose=True)  # as the command line does after `import capim`, which is quiet
    assert "LANCE_LOG" not in os.environ
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        assert pool.submit(_log_level_of_lance).result() is None
        set_environment(verbose=False)
    seen: list[bool] = []

    def bars(*, quiet: bool, **_: object) -> Any:
        seen.append(quiet)
        return nullcontext()

    monkeypatch.setattr("capim.flows.terminal.bars", bars)
    monkeypatch.setattr("capim.flows.steps.check_names", lambda *_: None)  # there is no store
    for quiet in ([], ["--quiet"]):
        cli.main(["compare", "--workspace", str(tmp_path / "none"), *quiet])
    assert seen == [False, True]
    assert [*tmp_path.iterdir()] == [], "a command that reads makes no store"


def test_a_home_folder_that_cannot_be_read_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """`import capim` ended with a PermissionError of the home folder, as with `sudo -u other`."""
    monkeypatch.setenv("HOME", "/" + 300 * "x")  # an error of the system for every user
    monkeypatch.setenv("PREFECT_HOME", "")
    monkeypatch.delenv("PREFECT_HOME")
    set_environment()
    assert Path(os.environ["PREFECT_HOME"]).name.startswith("capim-prefect-")
    monkeypatch.delenv("PREFECT_HOME")
    monkeypatch.setattr(prefects, "left_out", False)  # back to what it is now
    prefects.leave_prefect_out()


def test_options_of_a_group_are_refused_since_those_of_its_commands_would_overwrite_them(tmp_path: Path) -> None:
    assert cli.main(["store", "--workspace", str(tmp_path), "info"]) == 2
    assert cli.main(["store"]) == 2


@pytest.mark.parametrize("command", ["run", "embed", "evaluate", "compare", "watch", "report"])
def test_every_field_of_a_suite_is_used_by_the_command_or_named_as_without_effect(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {
        "name": "n", "workspace": "w", "corpora": ["shapes"], "encoders": ["tiny-clip"], "protocols": ["t2i/all"],
        "sample": 12, "batch_size": 7, "device": "cpu:0", "shards": 2, "precision": "bfloat16", "storage": "float16",
        "parts": 2, "memory": "3GiB", "replicates": 200,
        "seed": 1, "level": 0.9, "interval": "percentile", "permutations": 2000,
        "margin": 2.0, "keep_replicates": True, "analyses": ["complexity"], "baseline": "r", "trust_remote_code": True,
    }  # fmt: skip
    assert values.keys() == FIELDS.keys()
    suite = tmp_path / "suite.toml"
    suite.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items()))
    configs = []

    def start(_: object, config: Any, **__: object) -> Any:
        configs.append(config)
        raise RuntimeError

    monkeypatch.setattr(capim.flows.execution, "start", start)
    monkeypatch.setattr("capim.flows.steps.check_names", lambda *_: None)  # there is no store
    cli.main([command, str(suite), "--quiet"])
    [config] = configs
    assert all(getattr(config, name) != FIELDS[name].default for name in values)
    named = re.search(r"suite.toml: (.*): without effect on", capsys.readouterr().err)
    without_effect = set(named[1].split(", ")) if named else set()
    options = {option.dest for option in LEAVES[command]}
    assert without_effect == FIELDS.keys() - options - {"name", "sample", "seed"}
