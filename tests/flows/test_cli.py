"""The command line as a contract: help with an example, exit codes, one message instead of a traceback."""

from __future__ import annotations

import ast
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from capim.flows import cli, terminal
from capim.flows.commands import COMMANDS
from capim.flows.config import GONE
from capim.store import EmbeddingStore
from capim.store.errors import RequestError, WorkError
from capim.tasks.hub.progress import track
from tests.command import command
from tests.flows.commands import all_commands, help_of, leaf_commands

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", sorted(all_commands().keys() - {""}))
def test_every_command_explains_itself_with_an_example_and_fits_the_terminal(name: str) -> None:
    said = help_of(name)
    assert f"Example: capim {name}" in said
    assert [line for line in said.splitlines() if len(line) > 80 and not line.startswith("Example: ")] == []


def test_no_command_prints_the_help_of_all_and_is_a_wrong_request() -> None:
    said = command("", code=2).out
    assert "capim demo" in said
    assert len(names := [words for words in all_commands() if words and " " not in words]) == 24
    assert all(f"│ {name} " in said for name in names)
    for title, commands in COMMANDS.items():
        panel = said.partition(f"─ {title} ─")[2].partition("╰")[0]
        assert all(f"│ {name.partition(' ')[0]} " in panel for name in commands)


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (RequestError(["corpus 'x' is unknown", "device 'y' is unknown"]), 2, "2 errors:\n  - corpus 'x'"),
        (WorkError("the hub did not answer"), 1, "capim: the hub did not answer\n"),
        (ZeroDivisionError("division by zero"), 1, "unexpected ZeroDivisionError: division by zero"),
        (RecursionError("maximum recursion depth exceeded"), 2, "nested too deeply"),
        (MemoryError(), 1, "Cannot allocate memory. Free memory, or allow the process more (`ulimit -v unlimited`)"),
        (ImportError("libtorch_cpu.so: failed to map segment from shared object"), 1, "Free memory, or allow"),
        (Exception("Failed to launch worker thread: Resource temporarily unavailable"), 1, "Free memory, or allow"),
        (KeyboardInterrupt(), 130, "run the same command to continue"),
        (KeyboardInterrupt(signal.SIGTERM), 143, "run the same command to continue"),
    ],
)
def test_what_breaks_becomes_a_message_and_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, said: str
) -> None:
    def broken(_: list[str]) -> None:
        raise error

    monkeypatch.setattr(cli, "parse", broken)
    printed = command("", code=code)
    assert said in printed.err
    assert "Traceback" not in printed.err
    assert printed.out == ""


def test_nothing_asked_for_lists_both_faults_and_makes_no_workspace(tmp_path: Path) -> None:
    said = command("run", tmp_path / "workspace", code=2).err
    assert "no corpora" in said
    assert "no encoders" in said
    assert not (tmp_path / "workspace").exists()


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("certify", "certify"),
        ("store repair", "store repair"),
        ("--compile", "--compile"),
        ("evaluate --metric f.py:f", "evaluate --metric"),
        ("list encoders --pin f.toml", "list --pin"),
    ],
)
def test_a_command_or_option_of_an_earlier_release_is_answered_with_what_to_type_now(words: str, name: str) -> None:
    said = command(words, code=2).err
    assert said.startswith(f"capim: {name} is no longer there; instead: ")
    assert said.count("\n") == 2


OF_OTHER_PROGRAMS = {
    "hf": {"--force-download", "--include", "--local-dir", "--repo-type"},
    "prefect, kubectl, docker": {
        *("--background", "--base-job-template", "--build-arg", "--file", "--from-literal", "--limit", "--network"),
        *("--no-prompt", "--overwrite", "--param", "--pool", "--set", "--type", "--wait", "--watch"),
    },
    "uv, dask": {"--constraint", "--find-links", "--from", "--torch-backend", "--nthreads", "--nworkers"},
    "capim.deployments": {"--private", "--webhook"},
    "mteb, clip_benchmark": {"--task", "--pretrained"},
    "nvidia-smi": {"--query-gpu"},
    "embedding-atlas and others": {"--model", "--neighbors", "--text"},
    "capim": {"--help", "--version"},
    "style sheets": {"--bg"},
}


def test_every_option_that_a_page_or_a_message_names_exists() -> None:
    known = {spelling for options in leaf_commands().values() for option in options for spelling in option.spellings}
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("*.ipynb"), *(ROOT / "deployments").glob("*.md")]
    texts = {page: page.read_text(encoding="utf-8") for page in [*pages, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]}
    others = ROOT / "docs" / "coming_from.md"
    texts[others] = re.sub(r"(?m)^\|[^|]*\|", "", texts[others])  # options of other programs
    old = {*GONE, *GONE.values()}
    for package in ("capim", "deployments", "flows", "reports", "store", "tasks"):
        for file in (ROOT / package).rglob("*.py"):
            nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
            strings = [node.value for node in nodes if isinstance(node, ast.Constant)]
            texts[file] = "\n".join(each for each in strings if isinstance(each, str) and each not in old)
    for about_old_names in ("docs/upgrading.md", "docs/corrected_values.md"):
        texts.pop(ROOT / about_old_names)
    named = {(file, option) for file, text in texts.items() for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)}
    known |= {option for options in OF_OTHER_PROGRAMS.values() for option in options}
    assert {(str(file), option) for file, option in named if option not in known} == set()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("check shapes --device cpu", "--device has no effect on a corpus"),
        ("check tiny-clip --missing skip", "--missing has no effect on a model"),
        ("check {folder}/model", "model': no adapter recognises its files (config.json, modules.json"),
        ("check {folder}/weights.pt", "weights.pt' has weights and no architecture: describe it as an [[encoder]]"),
        ("check tiny", "models: did you mean 'tiny-clip'? `capim list encoders`; corpora: `capim list corpora`"),
        ("check {folder}/nowhere", "is neither a model nor a corpus, and there is no such folder or file"),
        ("list encoders --modality image", "--modality works with ids only"),
        ("list ids", "name the corpus: capim list ids CORPUS"),
        ("fuse --encoders a,b --weights a=1", "--weights must name each encoder once, such as a=1,b=1; got a=1"),
        ("fuse --encoders a,b --weights a=1,a=2,b=3", "--weights must name each encoder once"),
        ("fuse --encoders a,b --weights a=0,b=0", "--weights must be finite, at least 0 and not all 0, got a=0, b=0"),
        ("fuse --encoders a,b --weights a=nan,b=1", "--weights must be finite"),
        ("fuse --encoders a,b --weights a=x,b=1", "--weights must be numbers, got x, 1"),
        ("rerank --first a --second b --depths 5,101", "--depths must be between 1 and 100"),
        ("search --encoder tiny-clip --corpus shapes-sample12", "a text, or --image FILE"),
        ("search x --encoder nobody --corpus shapes-sample12", "'nobody' is not in the store"),
        ("export embeddings --to x.npy", "needs --encoder, --corpus, --modality"),
        ("import --corpus shapes-sample12", "--images and --captions, --outcomes"),
        ("import --corpus shapes-sample12 --images x.npy", "an import of embeddings needs --encoder NAME"),
        ("import --corpus shapes-sample12 --scores x.npy", "an import of scores needs --encoder NAME"),
        ("import --images x.npy --published m.csv", "got embeddings and published results"),
        ("import --published m.csv --encoder x", "--encoder has no effect on an import of published results"),
        ("results --encoder tiny-clip --against nothing", '"nothing" for --against. Choose from: "published"'),
        ("store verify --imports", "--imports goes with --drop"),
        ("run nowhere.toml", "suite file nowhere.toml does not exist"),
    ],
)
def test_a_wrong_request_is_explained(words: str, said: str, small_demo: Path, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "weights.pt").write_bytes(b"")
    workspace = None if words.startswith("check") else small_demo
    assert said in command(words.format(folder=tmp_path), workspace, code=2).err


def test_a_known_name_is_checked_whatever_folder_has_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "siglip2-base").mkdir()
    (tmp_path / "siglip2-base" / "config.json").write_text("{}")
    monkeypatch.setattr(
        "capim.tasks.encoders.conformance.check_encoder", lambda spec, **_: pytest.fail(spec.checkpoint)
    )
    with pytest.raises(pytest.fail.Exception, match="google/siglip2-base"):
        command("check siglip2-base")


MISTYPED = {
    "run --corpora shapes-sample12 --encoders tiny-clib": "did you mean 'tiny-clip'?",
    "watch --corpora shapes --encoders tiny-clip --device cuda:99": "device 'cuda:99' does not exist",
    "evaluate --encoders tiny-clib": "did you mean 'tiny-clip'?",
    "evaluate --device mps,gpu": "device 'gpu' is unknown",
    "evaluate --own-metric nofile.py:f": "there is no file nofile.py",
    "compare --corpora shapes-sample1": "did you mean 'shapes-sample12'?",
    "analyse --analyses erors": "did you mean 'errors'?",
    "report --encoders tiny-clib": "did you mean 'tiny-clip'?",
    "fuse --encoders tiny-clib,tiny-clip": "did you mean 'tiny-clip'?",
    "search a --encoder tiny-clip --corpus shapes-sample12 --device cuda:99": "device 'cuda:99' does not exist",
    "check tiny-clib": "did you mean 'tiny-clip'?",
    **{
        f"{words} tiny-clib": "did you mean 'tiny-clip'?"
        for words in ("compare --encoders", "results --encoder", "export outcomes --to x.csv --encoder",
                      "store drop --encoder", "rerank --second tiny-clip --first")
    },
}  # fmt: skip


@pytest.mark.slow
def test_help_and_a_mistyped_name_are_answered_before_anything_that_takes_seconds_is_imported(small_demo: Path) -> None:
    heavy = ("torch", "transformers", "prefect", "scipy", "duckdb")
    no_help = (*heavy, "lancedb", "lance", "pandas", "pyarrow", "pydantic", "PIL")
    program = f"""import sys; from capim.flows.cli import main
code = main(["--help"])
sys.stderr.write(f"{{[m for m in {no_help!r} if m in sys.modules]}}\\0")
for words in {[*MISTYPED]!r}:
    place = [] if words.startswith("check") else ["--workspace", {str(small_demo)!r}]
    code = main([*words.split(), *place])
    sys.stderr.write(f"{{(code, [m for m in {heavy!r} if m in sys.modules])}}\\0")"""
    runs = EmbeddingStore.open(small_demo / "store").rows("runs")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert EmbeddingStore.open(small_demo / "store").rows("runs").equals(runs), "no run is left behind"
    of_help, *answers = done.stderr.split("\0")
    assert of_help == "[]"
    for (words, said), answer in zip(MISTYPED.items(), answers, strict=False):
        assert said in answer, words
        assert answer.endswith("\n(2, [])"), words


def test_a_redirected_run_says_at_once_that_it_has_begun_and_every_minute_how_long_it_takes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "EVERY_SECONDS", 0.2)
    with terminal.bars(flow="evaluate", title="evaluate run"):
        assert capsys.readouterr().err == "starting evaluate run\n"
        with track("score", total=4, unit="tasks", step=True) as step:
            step(1)
            with track("tiny-clip · shapes", total=10, unit="protocols") as advance:
                for _ in range(9):
                    time.sleep(0.06)
                    advance(1)
    lines = capsys.readouterr().err.splitlines()
    assert 1 <= len(lines) < 9, "not one for each piece of work"
    assert all(re.fullmatch(r"\d+% in \d+ s, about \d+ s left: tiny-clip · shapes", line) for line in lines)
