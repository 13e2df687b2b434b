"""Every option of every command changes what the command does, or is refused: each has a case.

A case runs a command twice, without the option and with it, on one small evaluated store. What the command prints, the
files that it writes and the arguments that its steps get must differ; or the second call must be refused with a reason.
A new option needs a value in ``VALUES``, or a case in ``SPECIAL``.
"""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import shlex
import shutil
import webbrowser
from collections import defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import uvicorn

import capim.flows.execution
import capim.flows.searching
import capim.reports.app.server
import capim.store.upkeep.integrity
import capim.tasks.encoders.conformance
import capim.tasks.encoders.of_mteb
import capim.tasks.recompute
from capim.flows import cli, set_environment
from capim.flows.config import FIELDS
from capim.flows.execution import Pruned
from capim.store import EmbeddingStore
from capim.store.schema import texts
from capim.store.upkeep.integrity import StoreCheck
from capim.tasks.combine import fuse, rerank, score_distractors
from capim.tasks.compare import compare_combined, compare_corpus
from capim.tasks.custom_metric import custom_metric
from capim.tasks.derive import Derived
from capim.tasks.embed import embed_corpora, embed_on_devices, embed_shard
from capim.tasks.evaluate import complete_figures, score
from capim.tasks.reference.changes import WatchedFigures
from capim.tasks.report import diagnose_corpus, publish_report
from capim.tasks.watch import watch_libraries, watch_metrics, watch_vectors
from tests.command import command
from tests.flows.commands import Option, leaf_commands

SHAPES, PAIRS = "shapes-sample12", "shapes-winoground-sample12"
RUN = "--corpora shapes --sample 12 --encoders tiny-clip --replicates 100 --device cpu"
STORED = f"--corpora {SHAPES} --replicates 100"
FEW = "--protocols t2i/all,i2t/any"
PROGRAM = {"help", "debug", "verbose", "quiet"}  # of the program; tested below


@dataclass(frozen=True)
class Case:
    """A command, the option with its value, what stands in its place without it, and why it may be refused."""

    words: str
    option: str
    without: str = ""
    refused: str = ""
    writes: bool = False  # it changes the store: each call gets a copy


EMBED = "embed --corpora shapes --sample 12 --encoders tiny-clip --device cpu"
IMPORT = f"import --corpus {SHAPES} --encoder theirs"
SEARCH = f"--encoder tiny-clip --corpus {SHAPES}"
EXPLAIN = f"explain --encoder tiny-colpali --corpus {SHAPES} --query {{caption}} --item {{item}}"
DUPLICATES = f"duplicates --corpus {SHAPES},{PAIRS}"
BASES = {
    "run": f"run {RUN} {FEW}",
    "embed": EMBED,
    "evaluate": f"evaluate {STORED} {FEW}",
    "compare": f"compare {STORED}",
    "analyse": f"analyse {STORED}",
    "watch": f"watch {RUN} {FEW}",
    "import": f"{IMPORT} --images {{images}}",
    "export": "export results --to {tmp}/f.csv",
    "choose": f"choose --weights {SHAPES}=1",
    "query": "query 'SELECT 1 AS one, 2 AS two'",
    "search": f"search 'a red circle' {SEARCH}",
    "explain": EXPLAIN,
    "duplicates": DUPLICATES,
    "rerank": "rerank --replicates 100 --first tiny-clip --second tiny-colpali",
    "fuse": "fuse --replicates 100 --encoders tiny-clip,tiny-colpali",
    "list": "list metrics",
    "check": "check tiny-clip",
    "store prune": "store prune --keep 1",
    "store drop": "store drop --encoder tiny-clip",
}
"""Command -> its words without the option of a case, where they are more than its name."""
WRITE = ("import",)
COLUMNS = {
    "analyse": "corpus", "check": "check", "choose": "encoder",
    "compare": "state", "duplicates": "image", "evaluate": "value", "explain": "share",
    "list": "name", "query": "two", "results": "value", "search": "score",
    "store info": "state", "store prune": "what",
    "store verify": "state", "watch": "verdict", "why": "reason",
}  # fmt: skip
VALUES = {
    "against": "published", "analyses": "complexity",
    "baseline": "{run}", "batch_size": "7", "captions": "{captions}", "compile": "", "corpora": PAIRS, "corpus": PAIRS,
    "depths": "5", "device": "cpu:0", "distractors": PAIRS, "encoder": "tiny-clip",
    "encoders": "tiny-clip,tiny-colpali", "format": "json", "image": "{picture}",
    "interval": "percentile", "judgements": "{judgements}", "k": "3", "keep_replicates": "",

    "level": "0.9", "limits": "bytes=9999", "markdown": "whole", "margin": "2", "memory": "1GiB",
    "own_metric": "{metric}:hit", "metrics": "R@1",
    "modality": "caption", "note": "'a remark'", "only": "images", "open": "", "parts": "2", "permutations": "2000",
    "bits": "30",
    "port": "1", "precision": "bfloat16", "protocol": "t2i/all", "protocols": "t2i/all", "recompute": "",
    "replicates": "200", "results": "", "strict": "",
    "revision": "r2", "sample": "8", "seed": "1", "shards": "2", "storage": "float16", "suite": "{suite}",
    "to": "{tmp}/f.json", "trust_remote_code": "", "weights": "tiny-clip=1,tiny-colpali=2", "yes": "",
}  # fmt: skip
"""Option -> a value that is neither its default nor that of the words without it."""
SPECIAL = {
    **{f"{name} corpora": Case(BASES[name], "--corpora shapes-winoground") for name in ("run", "embed", "watch")},
    **{f"{name} encoders": Case(BASES[name], "--encoders tiny-clip-plain") for name in ("run", "embed", "watch")},
    **{
        f"{name} protocols": Case(BASES[name].replace(FEW, ""), "--protocols t2i/all", without=FEW)
        for name in ("run", "evaluate", "watch")
    },
    "embed shard": Case(f"{EMBED} --shards 2", "--shard 1"),
    "embed submit": Case(EMBED, "--submit", refused="--submit needs a server"),
    "embed suite": Case("embed --corpora shapes --sample 12 --device cpu", "{suite}", without="--encoders tiny-clip"),
    **{
        f"run {name}": Case(BASES["run"], f"--{words}", refused=f"--{name} has no effect without --dry-run")
        for name, words in {"format": "format json", "columns": "columns value", "wide": "wide"}.items()
    },
    "run dry_run": Case(BASES["run"], "--dry-run"),
    "list everything": Case("list encoders", "--all"),
    "why run": Case("why", "{run}", without="lost"),
    "report compare": Case("report", "--compare {report} {report}"),
    "report everything": Case(
        "report --compare {report} {report}", "--all", refused="--all has no effect with --compare"
    ),
    "results wide": Case("results", "--wide"),
    "choose weights": Case("choose", f"--weights {PAIRS}=1", without=f"--weights {SHAPES}=1"),
    "choose limits": Case(BASES["choose"], "--limits dim=64"),
    "evaluate wide": Case(BASES["evaluate"], "--wide"),
    "compare slice": Case(f"compare {STORED}", "--slice objects=circle"),
    "compare languages": Case(f"compare {STORED}", "--languages en"),
    "compare wide": Case(BASES["compare"], "--wide", without="--format json"),
    "import corpus": Case(
        "import --encoder theirs --images {images}", f"--corpus {SHAPES}", without=f"--corpus {PAIRS}", writes=True
    ),
    "import encoder": Case(
        f"import --corpus {SHAPES} --images {{images}}", "--encoder theirs", without="--encoder ours", writes=True
    ),
    "import images": Case(f"{IMPORT} --captions {{captions}}", "--images {images}", writes=True),
    # "earlier" is stored with other images
    "import replace": Case(BASES["import"].replace("theirs", "earlier"), "--replace", writes=True),
    "import outcomes": Case(IMPORT, "--outcomes {tmp}/none.csv", refused="none.csv"),
    "import run": Case(IMPORT, "--run {tmp}/none.trec", refused="none.trec"),
    "import scores": Case(IMPORT, "--scores {scores}", writes=True),
    "import paths": Case(IMPORT, "{images}", without="--captions {captions}", writes=True),
    "import qrels": Case("import --run {tmp}/none.trec", "--qrels {tmp}/none.txt", refused="none"),
    "import published": Case(
        "import", "--published {tmp}/none.csv", without="{images}", refused="none.csv", writes=True
    ),
    "import same_as": Case(
        f"import --corpus {PAIRS} --images {{images}}", "--same-as nobody", without="--encoder ours", refused="nobody"
    ),
    "import facts": Case(
        "import --encoder earlier", "--facts {tmp}/none.toml", without="--licence mit", refused="none.toml"
    ),
    **{
        f"import {name}": Case(
            "import --encoder earlier", f"--{name} {value}", without=f"--{name} {value}0", writes=True
        )
        for name, value in {"licence": "mit", "parameters": "1", "training": "web", "link": "x"}.items()
    },
    "import by_position": Case(BASES["import"], "--by-position", writes=True),
    "import columns": Case(BASES["import"], "--columns id=nothing", refused="no column 'nothing' for role 'id'"),
    "import skip_bad_rows": Case(f"{IMPORT} --outcomes {{tmp}}/none.csv", "--skip-bad-rows", refused="none.csv"),
    "import dry_run": Case(BASES["import"], "--dry-run", writes=True),
    "import protocol": Case(f"{IMPORT} --scores {{scores}}", "--protocol t2i/all", writes=True),
    "import replicates": Case(BASES["import"], "--replicates 200", refused="--replicates has no effect"),
    "export sample": Case(
        f"export misses --to {{tmp}}/f.csv --encoders tiny-clip-plain --corpus {SHAPES}", "--sample 2"
    ),
    "export format": Case("export results --to {tmp}/f.csv", "--format clip-benchmark"),
    "export what": Case(f"export --to {{tmp}}/f.csv --corpus {SHAPES}", "results", without="outcomes"),
    "export to": Case("export results", "--to {tmp}/f.csv", without="--to {tmp}/g.json"),
    "export modality": Case(
        f"export embeddings --to {{tmp}}/f.npz --encoder tiny-clip --corpus {SHAPES}",
        "--modality image",
        without="--modality caption",
    ),
    "query timeout": Case(
        "query 'SELECT count(*) FROM range(30000) a, range(30000) b WHERE a.range % 7 = b.range % 11'",
        "--timeout 0.02",
        refused="the query took longer than 0.02 seconds",
    ),
    "query memory": Case(
        "query 'SELECT range(20000) FROM range(1000)'", "--memory 50MB", refused="needs more memory than 48 MiB"
    ),
    "query sql": Case("query", "'SELECT 1 AS one, 2 AS two'", without="'SELECT 2 AS one, 1 AS two'"),
    "search text": Case(f"search {SEARCH}", "'a blue square'", without="'a red circle'"),
    "search vector": Case(f"search {SEARCH}", "--vector {vector}", without="'a red circle'"),
    "search encoder": Case(
        f"search 'a red circle' --corpus {SHAPES}", "--encoder tiny-clip-plain", without="--encoder tiny-clip"
    ),
    "search corpus": Case(
        "search 'a red circle' --encoder tiny-clip", f"--corpus {PAIRS}", without=f"--corpus {SHAPES}"
    ),
    "duplicates corpus": Case("duplicates", f"--corpus {PAIRS}", without=f"--corpus {SHAPES},{PAIRS}"),
    "duplicates encoder": Case(f"{DUPLICATES} --threshold 0.5", "--encoder tiny-clip"),
    "duplicates threshold": Case(f"{DUPLICATES} --encoder tiny-clip", "--threshold 0.5"),
    "explain encoder": Case(EXPLAIN.replace("tiny-colpali", "tiny-clip"), "", refused="one vector per item"),
    "explain corpus": Case(EXPLAIN.replace(f"--corpus {SHAPES}", ""), "--corpus other", refused="'other'"),
    "explain query": Case(EXPLAIN, "--query nobody", refused="caption 'nobody' is unknown"),
    "explain item": Case(EXPLAIN, "--item nothing", refused="image 'nothing' is unknown"),
    "rerank first": Case(
        f"rerank {STORED} --second tiny-colpali", "--first tiny-clip", without="--first tiny-clip-plain"
    ),
    "rerank second": Case(
        f"rerank {STORED} --first tiny-colpali", "--second tiny-clip", without="--second tiny-clip-plain"
    ),
    **{f"{name} corpora": Case(BASES[name], f"--corpora {SHAPES}") for name in ("rerank", "fuse")},
    "fuse encoders": Case(
        f"fuse {STORED}", "--encoders tiny-clip,tiny-colpali", without="--encoders tiny-clip,tiny-clip-plain"
    ),
    "list what": Case("list", "metrics", without="protocols"),
    "list to": Case("list corpora", "--to {tmp}/pinned.toml", refused="--to works with encoders only"),
    "check name": Case("check", "tiny-clip", without="tiny-clip-plain"),
    "check suite": Case("check own", "{own}"),
    "completion shell": Case("completion", "bash", without="fish"),
    "list corpus": Case("list ids", "{small}", without="{smaller}"),
    "list modality": Case("list ids {small}", "--modality caption"),
    "check missing": Case("check {gone}", "--missing skip"),
    "store verify drop": Case("store verify", "--drop", writes=True),
    "store verify imports": Case("store verify --drop", "--imports", writes=True),
    "store info wide": Case("store info", "--wide"),
    "store prune keep": Case("store prune", "--keep 1"),
    "store drop encoder": Case(f"store drop --corpus {SHAPES}", "--encoder tiny-clip"),
    "store drop corpus": Case("store drop --encoder tiny-clip", f"--corpus {SHAPES}"),
}
"""Command and option -> its case, where that is more than a value."""


def case_of(command: str, declared: Option) -> Case:
    """The case of an option of a command."""
    option, words = declared.dest, BASES.get(command, command)
    if special := SPECIAL.get(f"{command} {option}"):
        return special
    if option == "wide":  # on a terminal: tests/flows/test_terminal.py
        return Case(f"{words} --format csv", "--wide", refused="--wide has no effect with --format csv")
    writes = command in WRITE or f"{command} {option}" == "store drop yes"
    if option == "columns":
        return Case(f"{words} --format csv", f"--columns {COLUMNS[command]}", writes=writes)
    flag = next(iter(declared.spellings), "")
    return Case(words, f"{flag} {VALUES[option]}".strip(), writes=writes)


LEAVES = leaf_commands()
CASES = {
    name: {option.dest: case_of(name, option) for option in options if option.dest not in {*PROGRAM, "workspace"}}
    for name, options in LEAVES.items()
}
WITH_WORKSPACE = {command for command, options in LEAVES.items() if "workspace" in {each.dest for each in options}}


@pytest.fixture(scope="module")
def evaluated(three_encoders: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two corpora of twelve images, three encoders; and a report."""
    return Path(shutil.copytree(three_encoders, tmp_path_factory.mktemp("options") / "workspace", symlinks=True))


@pytest.fixture(scope="module")
def files(evaluated: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the placeholders of the cases stand for: files by their names, and parts of the store."""
    folder = tmp_path_factory.mktemp("files")
    store = EmbeddingStore.open(evaluated / "store")
    for name, encoder, modality in (
        ("images", "tiny-clip", "image"),
        ("captions", "tiny-clip", "caption"),
        ("earlier", "tiny-clip-plain", "image"),
    ):
        subject = f"--encoder {encoder} --corpus {SHAPES} --modality {modality}"
        command(f"export embeddings {subject} --to {folder}/{name}.npz", evaluated)
    command(f"import --corpus {SHAPES} --encoder earlier --images {folder}/earlier.npz", evaluated)
    for name, n_scenes in (("small", 4), ("smaller", 3)):
        (folder / f"{name}.toml").write_text(f'reader = "shapes"\nn_scenes = {n_scenes}\n')
    (folder / "suite.toml").write_text('name = "other"\nencoders = ["tiny-clip-plain"]\nprotocols = ["t2i/all"]\n')
    (folder / "own.toml").write_text(
        '[[encoder]]\nname = "own"\nadapter = "hf_dual"\ncheckpoint = "nowhere"\ndim = 4\n'
    )
    ids = [texts(table["id"])[0] for table in (store.corpus(SHAPES).captions, store.corpus(SHAPES).images)]
    (folder / "judgements.csv").write_text(f"corpus,direction,query_id,item_id\n{SHAPES},t2i,{ids[0]},{ids[1]}\n")
    scores = np.random.default_rng(0).standard_normal((store.corpus(SHAPES).captions.num_rows, 12))
    np.save(folder / "scores.npy", scores.astype(np.float32))
    (folder / "metric.py").write_text("def hit(outcomes):\n    return outcomes.rank_worst <= 2\n")
    picture = next(iter(store.thumbnails(texts(store.corpus(SHAPES).images["sha"])).values()))
    (folder / "picture.jpg").write_bytes(picture)
    (folder / "gone.csv").write_text("image,caption\npicture.jpg,there\nvanished.jpg,not there\n")
    vector = store.vectors(encoder="tiny-clip", corpus=SHAPES, modality="image").matrix[0]
    np.save(folder / "vector.npy", vector)
    first, second = (
        store.key(encoder=encoder, corpus=SHAPES, modality="image").table
        for encoder in ("tiny-clip", "tiny-clip-plain")
    )
    command(f"watch {RUN} {FEW}", evaluated)
    [report] = [page.parent for page in (evaluated / "reports").glob("*/report.html")]
    return {
        **{file.stem: str(file) for file in folder.iterdir()},
        "set": first,
        "other": second,
        "report": str(report),
        "run": texts(store.rows("watched")["run"])[0],
        "caption": ids[0],
        "item": ids[1],
    }


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The arguments of every step; steps that would take long return at once."""
    seen: list[str] = []
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    for module in ("capim.flows.terminal", "capim.tasks.hub.progress"):  # no line says how long something took
        monkeypatch.setattr(f"{module}.QUIET_SECONDS", math.inf)

    def watched(holder: Any, name: str, instead: Callable[..., Any] | None = None) -> None:
        original = getattr(holder, name)

        def step(*args: object, **kwargs: object) -> Any:
            seen.append(f"{getattr(holder, 'name', '')}.{name}: {args} {sorted(kwargs.items())}")
            return (instead or original)(*args, **kwargs)

        monkeypatch.setattr(holder, name, step)

    for task in (embed_corpora, embed_shard, embed_on_devices, score, score_distractors):
        watched(task, "fn")
    nothing: dict[Any, Any] = {
        compare_corpus: Derived(),
        compare_combined: Derived(),
        custom_metric: Derived(),
        diagnose_corpus: Derived(),
        publish_report: "report.html",
        watch_libraries: [],
        watch_vectors: [],
        watch_metrics: WatchedFigures(run="", findings=(), summary=(), baselines=()),
        rerank: Derived(lines=("reranked",)),
        fuse: Derived(lines=("fused",)),
    }
    for task, returned in nothing.items():
        watched(task, "fn", lambda *_, returned=returned, **__: returned)
    watched(complete_figures, "fn", lambda evaluation, **_: evaluation)
    pruned = Pruned(rows={"runs": 1}, tables=("old",), reports=(), freed=0, running=())
    watched(capim.flows.execution.prune, "fn", lambda *_, **__: pruned)
    watched(
        capim.store.upkeep.integrity,
        "verify",
        lambda *_, **__: [StoreCheck(what="runs", state="sound", detail="2 rows")],
    )
    watched(capim.tasks.recompute, "recompute", lambda *_: [])
    watched(capim.tasks.encoders.of_mteb, "rows", lambda: [{"name": "a model of mteb"}])
    watched(capim.tasks.encoders.conformance, "check_encoder", lambda *_, **__: [])
    watched(webbrowser, "open", lambda *_: True)
    watched(uvicorn.Server, "run", lambda *_, **__: None)
    here = SimpleNamespace(getsockname=lambda: ("127.0.0.1", 0))
    watched(capim.reports.app.server, "listening", lambda *_, **__: nullcontext(here))
    monkeypatch.setattr(secrets, "token_urlsafe", lambda _: "token")
    watched(capim.flows.searching, "choose_device")
    return seen


Observed = tuple[int, str, tuple[object, ...]]


@pytest.fixture(scope="module")
def without_option() -> dict[str, Observed]:
    """What commands did without the option of a case, by their words."""
    return {}


Observe = Callable[[Case, str, str], Observed]


@pytest.fixture
def observe(
    evaluated: Path, files: dict[str, str], calls: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Observe:
    """Runs the command of a case with some option; gives everything that it did: output, files, arguments of steps."""

    def observed(case: Case, name: str, option: str) -> Observed:
        workspace, folder = evaluated, tmp_path / name
        folder.mkdir()
        if case.writes:
            workspace = tmp_path / f"workspace-{name}"
            shutil.copytree(evaluated / "store", workspace / "store")
        words = shlex.split(f"{case.words} {option}".format(**files, tmp=folder))
        rest = ["--workspace", str(workspace)] if _command(case.words) in WITH_WORKSPACE else []
        calls.clear()
        capsys.readouterr()
        try:
            code = cli.main([*words, *rest])
        except SystemExit as stop:
            code = int(stop.code or 0)
        printed = capsys.readouterr()
        found = [file for file in folder.rglob("*") if file.is_file()]
        written = {file.relative_to(folder).as_posix(): file.read_bytes() for file in found}
        run = r"\d{8}T\d{6}-[a-z-]+-[0-9a-f]{4}"
        passing = re.compile(rf"{run}|and \d+ more|0x[0-9a-f]+|{re.escape(str(tmp_path))}/\w+")
        shown = tuple(passing.sub("", text) for text in (printed.out, printed.err, *calls))
        return code, printed.err, (code, shown, written)

    return observed


def test_every_special_case_is_of_an_option() -> None:
    assert SPECIAL.keys() <= {f"{command} {option}" for command, options in CASES.items() for option in options}


@pytest.mark.slow  # a suite of hundreds of commands
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=f"{command} {option}")
        for command, options in CASES.items()
        for option, case in options.items()
    ],
)
def test_an_option_changes_what_the_command_does_or_is_refused(
    case: Case, observe: Observe, without_option: dict[str, Observed]
) -> None:
    code, error, after = observe(case, "with", case.option)
    if case.refused:
        assert code == 2
        assert case.refused in error
        return
    words = f"{case.words} {case.without}"
    if words not in without_option:  # the same for all options of a command that change nothing in the store
        without_option[words] = observe(case, "without", case.without)
    assert without_option[words][2] != after
    assert code == 0 or case.words == "check own", error


@pytest.mark.slow  # a suite of hundreds of commands
@pytest.mark.parametrize(
    "command", sorted(name for name, options in CASES.items() if not all(case.refused for case in options.values()))
)
def test_the_same_command_again_does_the_same_so_that_a_difference_means_the_option(
    command: str, observe: Observe, without_option: dict[str, Observed]
) -> None:
    case = next(case for case in CASES[command].values() if not case.refused)
    words = f"{case.words} {case.without}"
    if words not in without_option:  # the first time it may compute what it then finds stored
        observe(case, "before", case.without)
        without_option[words] = observe(case, "without", case.without)
    assert observe(case, "again", case.without)[2] == without_option[words][2]


def _command(words: str) -> str:
    return next(name for name in sorted(LEAVES, key=len, reverse=True) if f"{words} ".startswith(f"{name} "))


@pytest.mark.parametrize("command", sorted(WITH_WORKSPACE - {"list"}))  # reads unknown names without a store
def test_every_command_works_in_the_workspace_that_is_named(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def start(_: object, config: Any, *__: object, **___: object) -> Any:
        raise RuntimeError(f"a flow in {config.workspace}")

    monkeypatch.setattr(capim.flows.execution, "start", start)
    monkeypatch.setenv("CAPIM_WORKSPACE", "/elsewhere")
    given: dict[str, str] = defaultdict(lambda: "x")
    cases = [*CASES[command].values()] or [Case(command, "")]
    files = {"{suite}", "{images}"}  # arguments that the command reads first
    case = next((each for each in cases if not each.refused and each.option not in files), cases[0])
    words = shlex.split(f"{case.words} {case.option}".format_map(given))
    assert cli.main([*words, "--workspace", str(tmp_path / "here")]) in (1, 2)
    message = capsys.readouterr().err
    assert str(tmp_path / "here") in message
    assert "/elsewhere" not in message


def test_options_of_the_program_change_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results = ["results", "--workspace", str(tmp_path / "none")]
    assert cli.main(results) == 2
    assert "Traceback" not in capsys.readouterr().err
    assert cli.main([*results, "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err
    monkeypatch.delenv("LANCE_LOG", raising=False)
    set_environment(verbose=True)
    assert "LANCE_LOG" not in os.environ
    set_environment(verbose=False)
    assert os.environ["LANCE_LOG"] == "error"
    seen: list[bool] = []

    def bars(*, quiet: bool, **_: object) -> Any:
        seen.append(quiet)
        return nullcontext()

    monkeypatch.setattr("capim.flows.terminal.bars", bars)
    monkeypatch.setattr("capim.flows.steps.check_names", lambda *_: None)  # there is no store
    for quiet in ([], ["--quiet"]):
        cli.main(["compare", "--workspace", str(tmp_path / "none"), *quiet])
    assert seen == [False, True]


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
        "compile": True, "parts": 2, "memory": "3GiB", "distractors": ["shapes-winoground"], "replicates": 200,
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
