"""Every option of every command changes what the command does, or is refused: ``CASES`` has a row for each.

A case runs a command twice, without the option and with it, on one small evaluated store. What the command prints, the
files that it writes and the arguments that its steps get must differ; or the second call must be refused with a reason.
A new option needs a row.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import shutil
import webbrowser
from collections import defaultdict
from collections.abc import Callable, Iterator
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
import capim.flows.stored
import capim.tasks.encoders.conformance
from capim.flows import cli, set_environment
from capim.flows.config import FIELDS
from capim.store import EmbeddingStore
from capim.store.schema import texts
from capim.tasks.combine import approximate, fuse, rerank, score_distractors
from capim.tasks.compare import compare_combined, compare_corpus
from capim.tasks.custom_metric import custom_metric
from capim.tasks.embed import embed_corpora, embed_on_devices, embed_shard
from capim.tasks.evaluate import score
from capim.tasks.report import diagnose_corpus, publish_report
from capim.tasks.runtime.references import AnalysisRef, CombinedRef, CompareRef, Derived, MetricRef
from capim.tasks.watch import WatchedFigures, watch_libraries, watch_metrics, watch_vectors
from tests.flows.leaf_parsers import leaf_parsers

SHAPES, PAIRS = "shapes-sample12", "shapes-winoground-sample12"
RUN = "--corpora shapes --sample 12 --encoders tiny-clip --replicates 100 --device cpu"
STORED = f"--corpora {SHAPES} --replicates 100"
PROGRAM = {"help", "debug", "verbose", "quiet"}  # of the program, whatever the command; tested below


@dataclass(frozen=True)
class Case:
    """A command, the option with its value, what stands in its place without it, and why it may be refused."""

    words: str
    option: str
    without: str = ""
    refused: str = ""
    writes: bool = False  # it changes the store: each call gets a copy


def _configured(words: str, **options: str) -> dict[str, Case]:
    """Cases of a command for several options that take one value."""
    return {name: Case(words, f"--{name.replace('_', '-')} {value}".strip()) for name, value in options.items()}


RESAMPLED = {"replicates": "200", "level": "0.9", "interval": "bca", "seed": "1"}
ENCODED = {
    "sample": "8",
    "batch_size": "7",
    "device": "cpu:0",
    "shards": "2",
    "precision": "bfloat16",
    "storage": "float16",
    "compile": "",
    "trust_remote_code": "",
}
SCORED = {"memory": "1GiB", "parts": "2", "distractors": "shapes-winoground-sample12"}
TESTED = {"adjustment": "benjamini-hochberg", "permutations": "2000", "margin": "2"}
SELECTED = {"corpora": "shapes-winoground", "encoders": "tiny-clip-plain"}
SUITE = "{suite}"
THEIRS = f"import --corpus {SHAPES} --encoder theirs --images {{images}}"  # "earlier" is stored with other images
SEARCH = f"search 'a red circle' --encoder tiny-clip --corpus {SHAPES}"
EXPLAIN = f"explain --encoder tiny-colpali --corpus {SHAPES} --query {{caption}} --item {{item}}"
CASES: dict[str, dict[str, Case]] = {
    "demo": {},
    "run": {
        **_configured(f"run {RUN}", **SELECTED, **ENCODED, **RESAMPLED, protocols="t2i/all", keep_replicates=""),
        **_configured(f"run {RUN}", **SCORED, **TESTED, analyses="complexity"),
        "suite": Case(f"run {RUN}", SUITE),
    },
    "embed": {
        **_configured(f"embed {RUN}".replace("--replicates 100 ", ""), **SELECTED, **ENCODED, seed="1"),
        "only": Case(f"embed {RUN}".replace("--replicates 100 ", ""), "--only images"),
        "shard": Case("embed --corpora shapes --sample 12 --encoders tiny-clip --device cpu --shards 2", "--shard 1"),
        "submit": Case(f"embed {RUN}".replace("--replicates 100 ", ""), "--submit", refused="--submit needs a server"),
        "suite": Case("embed --corpora shapes --sample 12 --device cpu", SUITE, without="--encoders tiny-clip"),
    },
    "evaluate": {
        **_configured(f"evaluate {STORED}", corpora=PAIRS, encoders="tiny-clip", device="cpu:0", protocols="t2i/all"),
        **_configured(f"evaluate {STORED}", **RESAMPLED, **SCORED, keep_replicates="", metric="{metric}:hit"),
        "judgements": Case(f"evaluate {STORED}", "--judgements {judgements}"),
        "format": Case(f"evaluate {STORED}", "--format json", refused="--format has no effect without --metric"),
        "suite": Case(f"evaluate {STORED}", SUITE),
    },
    "compare": {
        **_configured(f"compare {STORED}", corpora=PAIRS, encoders="tiny-clip,tiny-colpali", protocols="t2i/all"),
        **_configured(f"compare {STORED}", **RESAMPLED, **TESTED, analyses="complexity"),
        **_configured(f"compare {STORED}", metric="{metric}:hit", format="json"),
        "suite": Case(f"compare {STORED}", SUITE),
    },
    "analyse": {
        **_configured(f"analyse {STORED}", corpora=PAIRS, encoders="tiny-clip", protocols="t2i/all"),
        **_configured(f"analyse {STORED}", **RESAMPLED, permutations="2000", analyses="complexity"),
        **_configured(f"analyse {STORED}", format="json", columns="corpus"),
        "wide": Case(f"analyse {STORED} --format csv", "--wide", refused="--wide has no effect with --format csv"),
        "suite": Case(f"analyse {STORED}", SUITE),
    },
    "watch": {
        **_configured(f"watch {RUN}", **SELECTED, **ENCODED, **RESAMPLED, protocols="t2i/all", keep_replicates=""),
        **_configured(f"watch {RUN}", **SCORED, format="json", permutations="2000", baseline="{run}"),
        "suite": Case(f"watch {RUN}", SUITE),
    },
    "report": {
        **_configured("report", corpora=PAIRS, encoders="tiny-clip", protocols="t2i/all"),
        "compare": Case("report", "--compare {report} {report}"),
        "suite": Case("report", SUITE),
    },
    "serve": _configured("serve", port="1", open=""),
    "results": {
        **_configured("results", encoders="tiny-clip", corpora=PAIRS, protocols="t2i/all", metrics="R@1"),
        **_configured("results", against="published", format="csv"),
    },
    "import": {
        "corpus": Case(
            "import --encoder theirs --images {images}", f"--corpus {SHAPES}", without=f"--corpus {PAIRS}", writes=True
        ),
        "encoder": Case(
            f"import --corpus {SHAPES} --images {{images}}", "--encoder theirs", without="--encoder ours", writes=True
        ),
        "images": Case(
            f"import --corpus {SHAPES} --encoder theirs --captions {{captions}}", "--images {images}", writes=True
        ),
        "captions": Case(
            f"import --corpus {SHAPES} --encoder theirs --images {{images}}", "--captions {captions}", writes=True
        ),
        "revision": Case(THEIRS, "--revision r2", writes=True),
        "note": Case(THEIRS, "--note 'a remark'", writes=True),
        "storage": Case(THEIRS, "--storage float16", writes=True),
        "manifest": Case("import", "--manifest {manifest}", without="--manifest {other_manifest}", writes=True),
        "folder": Case("import", "--folder {imports}", without="--manifest {manifest}", writes=True),
        "replace": Case(THEIRS.replace("theirs", "earlier"), "--replace", writes=True),
        "outcomes": Case(f"import --corpus {SHAPES} --encoder theirs", "--outcomes {tmp}/none.csv", refused="none.csv"),
        "run": Case(f"import --corpus {SHAPES} --encoder theirs", "--run {tmp}/none.trec", refused="none.trec"),
        "scores": Case(f"import --corpus {SHAPES} --encoder theirs", "--scores {scores}", writes=True),
        "protocol": Case(
            f"import --corpus {SHAPES} --encoder theirs --scores {{scores}}", "--protocol t2i/all", writes=True
        ),
        "replicates": Case(THEIRS, "--replicates 200", refused="--replicates has no effect"),
    },
    "export": {
        "what": Case(f"export --to {{tmp}}/f.csv --corpus {SHAPES}", "results", without="outcomes"),
        "to": Case("export results", "--to {tmp}/f.csv", without="--to {tmp}/g.json"),
        "kind": Case("export results --to {tmp}/f.csv", "--as clip-benchmark"),
        **_configured("export results --to {tmp}/f.csv", encoder="tiny-clip", corpus=PAIRS, protocol="t2i/all"),
        "modality": Case(
            f"export embeddings --to {{tmp}}/f.npz --encoder tiny-clip --corpus {SHAPES}",
            "--modality image",
            without="--modality caption",
        ),
        "projection": Case(
            f"export embedding-atlas --to {{tmp}}/f.parquet --encoder tiny-clip --corpus {SHAPES} --modality image",
            "--projection umap",
            refused="umap is not installed: pip install umap-learn",
        ),
    },
    "query": {
        "sql": Case("query", "'SELECT 1 AS one, 2 AS two'", without="'SELECT 2 AS one, 1 AS two'"),
        "format": Case("query 'SELECT 1 AS one, 2 AS two'", "--format json"),
    },
    "search": {
        "text": Case(SEARCH.replace("'a red circle'", ""), "'a blue square'", without="'a red circle'"),
        "image": Case(SEARCH, "--image {picture}"),
        "vector": Case(SEARCH.replace("'a red circle'", ""), "--vector {vector}", without="'a red circle'"),
        "modality": Case(SEARCH, "--modality caption"),
        "encoder": Case(
            SEARCH.replace("--encoder tiny-clip", ""), "--encoder tiny-clip-plain", without="--encoder tiny-clip"
        ),
        "corpus": Case(SEARCH.replace(f"--corpus {SHAPES}", ""), f"--corpus {PAIRS}", without=f"--corpus {SHAPES}"),
        "k": Case(SEARCH, "-k 3"),
        "index": Case(SEARCH, "--index", refused="has 12 rows; below 256 exact search is faster"),
        **_configured(SEARCH, html="{tmp}/f.html", open="", device="cpu:0", format="json"),
    },
    "explain": {
        "encoder": Case(EXPLAIN.replace("tiny-colpali", "tiny-clip"), "", refused="one vector per item"),
        "corpus": Case(EXPLAIN.replace(f"--corpus {SHAPES}", ""), "--corpus other", refused="'other'"),
        "query": Case(EXPLAIN, "--query nobody", refused="caption 'nobody' is not in corpus"),
        "item": Case(EXPLAIN, "--item nothing", refused="image 'nothing' is not in corpus"),
        "to": Case(EXPLAIN, "--to {tmp}/f.json"),
        "format": Case(EXPLAIN, "--format json"),
    },
    "rerank": {
        "first": Case(f"rerank {STORED} --second tiny-colpali", "--first tiny-clip", without="--first tiny-clip-plain"),
        "second": Case(
            f"rerank {STORED} --first tiny-colpali", "--second tiny-clip", without="--second tiny-clip-plain"
        ),
        **_configured(
            "rerank --replicates 100 --first tiny-clip --second tiny-colpali", depths="5", corpora=SHAPES, **RESAMPLED
        ),
    },
    "fuse": {
        "encoders": Case(
            f"fuse {STORED}", "--encoders tiny-clip,tiny-colpali", without="--encoders tiny-clip,tiny-clip-plain"
        ),
        **_configured(
            "fuse --replicates 100 --encoders tiny-clip,tiny-colpali", weights="1,2", corpora=SHAPES, **RESAMPLED
        ),
    },
    "ann": {
        **_configured(f"ann {STORED} --methods int8", encoders="tiny-clip", corpora=PAIRS, **RESAMPLED),
        **_configured(f"ann {STORED} --methods int8", methods="binary", format="json"),
    },
    "list": {
        "what": Case("list", "metrics", without="protocols"),
        "pin": Case("list corpora", "--pin {tmp}/pinned.toml", refused="--pin works with encoders only"),
        "format": Case("list metrics", "--format csv"),
    },
    "check": {
        "encoder": Case("check", "tiny-clip", without="tiny-clip-plain"),
        "suite": Case("check own", "--suite {own}"),
        **_configured("check tiny-clip", device="cpu:0", precision="bfloat16", compile="", trust_remote_code=""),
        "format": Case("check tiny-clip", "--format json"),
    },
    "completion": {"shell": Case("completion", "bash", without="fish")},
    "corpora check": {"what": Case("corpora check", "{small}", without="{smaller}")},
    "corpora ids": {
        "what": Case("corpora ids", "{small}", without="{smaller}"),
        **_configured(f"corpora ids {SHAPES}", modality="caption", format="csv"),
    },
    "store info": _configured("store info", format="csv"),
    "store verify": _configured("store verify", format="csv"),
    "store compact": {"format": Case("store compact", "--format json", writes=True)},
    "store prune": {
        "keep": Case("store prune", "--keep 1"),
        "yes": Case("store prune --keep 1", "--yes", writes=True),
        "format": Case("store prune --keep 1", "--format json"),
    },
    "store diff": {
        "a": Case("store diff", "{set} {set}", without="{other} {set}"),
        "b": Case("store diff {set}", "{other}", without="{set}"),
        "other": Case("store diff {set} {set}", "--other {tmp}"),
        "format": Case("store diff {set} {set}", "--format csv"),
    },
    "store repair": {
        "name": Case("store repair", "results", without="outcomes", writes=True),
        "all": Case("store repair", "--all", without="outcomes", writes=True),
        "accept": Case("store repair results", "--accept", writes=True),
    },
    "store drop": {
        "encoder": Case("store drop --corpus " + SHAPES, "--encoder tiny-clip"),
        "corpus": Case("store drop --encoder tiny-clip", f"--corpus {SHAPES}"),
        "modality": Case("store drop --encoder tiny-clip", "--modality image"),
        "yes": Case("store drop --encoder tiny-clip", "--yes", writes=True),
    },
}  # fmt: skip
for command, column in {
    "compare": "encoder",
    "watch": "verdict",
    "ann": "change",
    "results": "value",
    "query": "two",
    "search": "score",
    "explain": "share",
    "list": "name",
    "check": "check",
    "corpora ids": "id",
    "store info": "state",
    "store verify": "state",
    "store compact": "bytes_freed",
    "store prune": "what",
    "store diff": "equal",
}.items():
    case = CASES[command]["format"]
    words = f"{case.words} {case.without}"
    CASES[command] |= {
        "columns": Case(f"{words} --format csv", f"--columns {column}", writes=case.writes),
        # on a terminal: tests/flows/test_terminal.py
        "wide": Case(f"{words} --format csv", "--wide", refused="--wide has no effect with --format csv"),
    }
CASES["evaluate"] |= {
    option: Case(f"evaluate {STORED}", f"--{option}{value}", refused=f"--{option} has no effect without --metric")
    for option, value in {"columns": " value", "wide": ""}.items()
}
for command in ("results", "store info"):
    CASES[command]["wide"] = Case(command, "--wide")


LEAVES = leaf_parsers()
WITH_WORKSPACE = {command for command, parser in LEAVES.items() if "workspace" in {a.dest for a in parser._actions}}


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two corpora of twelve images, three encoders; and a report."""
    folder = tmp_path_factory.mktemp("options") / "workspace"
    run = "run --corpora shapes,shapes-winoground --sample 12 --encoders tiny-clip,tiny-clip-plain,tiny-colpali"
    words = [*shlex.split(run), "--replicates", "100", "--device", "cpu", "--quiet", "--workspace", str(folder)]
    assert cli.main(words) == 0
    words = ["ann", "--corpora", f"{SHAPES},{PAIRS}", "--encoders", "tiny-clip", "--methods", "int8", "--quiet"]
    assert cli.main([*words, "--replicates", "100", "--workspace", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def files(evaluated: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the placeholders of the cases stand for."""
    folder = tmp_path_factory.mktemp("files")
    store = EmbeddingStore.open(evaluated / "store")
    named = {}
    for modality in ("image", "caption"):
        named[f"{modality}s"] = str(folder / f"{modality}.npz")
        export = ["export", "embeddings", "--encoder", "tiny-clip", "--corpus", SHAPES, "--modality", modality]
        assert cli.main([*export, "--to", named[f"{modality}s"], "--workspace", str(evaluated)]) == 0
    earlier = ["export", "embeddings", "--encoder", "tiny-clip-plain", "--corpus", SHAPES, "--modality", "image"]
    assert cli.main([*earlier, "--to", str(folder / "earlier.npz"), "--workspace", str(evaluated)]) == 0
    words = ["import", "--corpus", SHAPES, "--encoder", "earlier", "--images", str(folder / "earlier.npz")]
    assert cli.main([*words, "--workspace", str(evaluated)]) == 0
    for name, encoder in (("manifest", "one"), ("other_manifest", "two")):
        fields = {"encoder": encoder, "corpus": SHAPES, "images": named["images"]}
        table = "[[set]]\n" + "".join(f'{field} = "{value}"\n' for field, value in fields.items())
        (folder / f"{name}.toml").write_text(table)
        named[name] = str(folder / f"{name}.toml")
    inside = folder / "imports" / "three" / SHAPES
    inside.mkdir(parents=True)
    shutil.copy(named["images"], inside / "images.npz")
    named["imports"] = str(folder / "imports")
    for name, n_scenes in (("small", 4), ("smaller", 3)):
        (folder / f"{name}.toml").write_text(f'reader = "shapes"\nn_scenes = {n_scenes}\n')
        named[name] = str(folder / f"{name}.toml")
    (folder / "suite.toml").write_text('name = "other"\nencoders = ["tiny-clip-plain"]\nprotocols = ["t2i/all"]\n')
    (folder / "own.toml").write_text(
        '[[encoder]]\nname = "own"\nadapter = "hf_dual"\ncheckpoint = "nowhere"\ndim = 4\n'
    )
    ids = [texts(table["id"])[0] for table in (store.corpus(SHAPES).captions, store.corpus(SHAPES).images)]
    (folder / "judgements.csv").write_text(f"corpus,direction,query_id,item_id\n{SHAPES},t2i,{ids[0]},{ids[1]}\n")
    named["judgements"] = str(folder / "judgements.csv")
    named["scores"] = str(folder / "scores.npy")
    scores = np.random.default_rng(0).standard_normal((store.corpus(SHAPES).captions.num_rows, 12))
    np.save(named["scores"], scores.astype(np.float32))
    (folder / "metric.py").write_text("def hit(outcomes):\n    return outcomes.rank_worst <= 2\n")
    picture = next(iter(store.thumbnails(texts(store.corpus(SHAPES).images["sha"])).values()))
    (folder / "picture.jpg").write_bytes(picture)
    vector = store.vectors(encoder="tiny-clip", corpus=SHAPES, modality="image").matrix[0]
    np.save(folder / "vector.npy", vector)
    first, second = (
        store.key(encoder=encoder, corpus=SHAPES, modality="image").table
        for encoder in ("tiny-clip", "tiny-clip-plain")
    )
    assert cli.main(["watch", *RUN.split(), "--workspace", str(evaluated)]) == 0
    [report] = [page.parent for page in (evaluated / "reports").glob("*/report.html")]
    return {
        **named,
        "metric": str(folder / "metric.py"),
        "suite": str(folder / "suite.toml"),
        "own": str(folder / "own.toml"),
        "picture": str(folder / "picture.jpg"),
        "vector": str(folder / "vector.npy"),
        "set": first,
        "other": second,
        "report": str(report),
        "run": texts(store.rows("watched")["run"])[0],
        "caption": texts(store.corpus(SHAPES).captions["id"])[0],
        "item": texts(store.corpus(SHAPES).images["id"])[0],
    }


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The arguments of every step; steps that would take long return at once."""
    seen: list[str] = []
    monkeypatch.delenv("PREFECT_API_URL", raising=False)

    def watched(holder: Any, name: str, instead: Callable[..., Any] | None = None) -> None:
        original = getattr(holder, name)

        def step(*args: object, **kwargs: object) -> Any:
            seen.append(f"{getattr(holder, 'name', '')}.{name}: {args} {sorted(kwargs.items())}")
            return (instead or original)(*args, **kwargs)

        monkeypatch.setattr(holder, name, step)

    for task in (embed_corpora, embed_shard, embed_on_devices, score, score_distractors):
        watched(task, "fn")
    none = Derived(uses="", n_rows=0, n_made=0)
    nothing: dict[Any, Any] = {
        compare_corpus: CompareRef(corpus="", corpus_fingerprint="", protocols=(), comparisons=none),
        compare_combined: CompareRef(corpus="", corpus_fingerprint="", protocols=(), comparisons=none),
        custom_metric: MetricRef(results=(), comparisons=(), left_out=(), uses=()),
        diagnose_corpus: AnalysisRef(corpus="", n_slices=0, uses=()),
        publish_report: "report.html",
        watch_libraries: [],
        watch_vectors: [],
        watch_metrics: WatchedFigures(findings=(), summary=(), baselines=()),
        rerank: CombinedRef(encoder="reranked", uses=()),
        fuse: CombinedRef(encoder="fused", uses=()),
        approximate: 1,
    }
    for task, returned in nothing.items():
        watched(task, "fn", lambda *_, returned=returned, **__: returned)
    watched(capim.tasks.encoders.conformance, "check_encoder", lambda *_, **__: [])
    watched(webbrowser, "open", lambda *_: True)
    watched(uvicorn.Server, "run", lambda *_, **__: None)
    here = SimpleNamespace(getsockname=lambda: ("127.0.0.1", 0))
    watched(capim.flows.stored, "_listening", lambda _: nullcontext(here))
    monkeypatch.setattr(secrets, "token_urlsafe", lambda _: "token")
    watched(capim.flows.searching, "choose_device")
    return seen


Observed = tuple[int, str, tuple[object, ...]]


@pytest.fixture(scope="module")
def without_option() -> dict[str, Observed]:
    """What commands did without the option of a case, by their words."""
    return {}


def _observed(
    words: str, workspace: Path | None, files: dict[str, str], tmp: Path, calls: list[str], capsys: Any
) -> Observed:
    """Exit code, the error text, and everything that a command did: output, files, arguments of its steps."""
    tmp.mkdir(parents=True)
    calls.clear()
    capsys.readouterr()
    rest = [] if workspace is None else ["--workspace", str(workspace)]
    try:
        code = cli.main([*shlex.split(words.format(**files, tmp=tmp)), *rest])
    except SystemExit as stop:
        code = int(stop.code or 0)
    printed = capsys.readouterr()
    written = {path.relative_to(tmp).as_posix(): path.read_bytes() for path in tmp.rglob("*") if path.is_file()}
    # what compacting frees: compressed times do not always have as many bytes
    freed = r"|(?m:^\w+ +\d+$)" if words.startswith("store compact") else ""
    passing = re.compile(rf"\d{{8}}T\d{{6}}-[a-z-]+-[0-9a-f]{{4}}|0x[0-9a-f]+|{re.escape(str(tmp.parent))}/\w+{freed}")
    shown = tuple(passing.sub("", text) for text in (printed.out, printed.err, *calls))
    return code, printed.err, (code, shown, written)


def _cases() -> Iterator[Any]:
    for command, options in CASES.items():
        for option, case in options.items():
            yield pytest.param(case, id=f"{command} {option}")


def test_every_option_has_a_case() -> None:
    declared = {(command, action.dest) for command, parser in LEAVES.items() for action in parser._actions}
    known = {(command, option) for command, options in CASES.items() for option in options}
    everywhere = {(command, option) for command in LEAVES for option in (*PROGRAM, "workspace")}
    assert declared - everywhere == known


@pytest.mark.slow
@pytest.mark.parametrize("case", _cases())
def test_an_option_changes_what_the_command_does_or_is_refused(
    case: Case,
    evaluated: Path,
    files: dict[str, str],
    calls: list[str],
    without_option: dict[str, Observed],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def observed(name: str, option: str) -> Observed:
        workspace: Path | None = evaluated
        if case.writes:
            workspace = tmp_path / f"workspace-{name}"
            shutil.copytree(evaluated, workspace)
        if _command(case.words) not in WITH_WORKSPACE:
            workspace = None
        return _observed(f"{case.words} {option}", workspace, files, tmp_path / name, calls, capsys)

    code, error, after = observed("with", case.option)
    if case.refused:
        assert code == 2
        assert case.refused in error
        return
    words = f"{case.words} {case.without}"
    if words not in without_option:  # the same for all options of a command that change nothing in the store
        without_option[words] = observed("without", case.without)
    _, _, before = without_option[words]
    assert before != after
    if case.option != "--other {tmp}":  # names a workspace without a store
        assert code == 0 or case.words == "check own", error


@pytest.mark.slow
@pytest.mark.parametrize("command", sorted(command for command, options in CASES.items() if options))
def test_the_same_command_again_does_the_same_so_that_a_difference_means_the_option(
    command: str,
    evaluated: Path,
    files: dict[str, str],
    calls: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    case = next(case for case in CASES[command].values() if not case.refused)
    seen = []
    for name in ("before", "first", "second"):
        workspace: Path | None = evaluated
        if case.writes:
            workspace = tmp_path / f"workspace-{name}"
            shutil.copytree(evaluated, workspace)
        if command not in WITH_WORKSPACE:
            workspace = None
        seen.append(_observed(f"{case.words} {case.without}", workspace, files, tmp_path / name, calls, capsys)[2])
    assert seen[1] == seen[2]


def _command(words: str) -> str:
    return next(name for name in sorted(LEAVES, key=len, reverse=True) if f"{words} ".startswith(f"{name} "))


@pytest.mark.parametrize("command", sorted(WITH_WORKSPACE - {"corpora ids"}))  # reads unknown names without a store
def test_every_command_works_in_the_workspace_that_is_named(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def start(_: object, config: Any, *__: object, **___: object) -> Any:
        raise RuntimeError(f"a flow in {config.workspace}")

    monkeypatch.setattr(capim.flows.execution, "start", start)
    monkeypatch.setenv("CAPIM_WORKSPACE", "/elsewhere")
    given: dict[str, str] = defaultdict(lambda: "x")
    cases = [*CASES[command].values()] or [Case(command, "")]
    case = next((each for each in cases if not each.refused and "{suite}" not in each.option), cases[0])
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
    for quiet in ([], ["--quiet"]):
        cli.main(["compare", "--workspace", str(tmp_path / "none"), *quiet])
    assert seen == [False, True]


def test_options_of_a_group_are_refused_since_those_of_its_commands_would_overwrite_them(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["store", "--workspace", str(tmp_path), "info"])
    assert stop.value.code == 2
    assert cli.main(["store"]) == 2


@pytest.mark.parametrize("command", ["run", "embed", "evaluate", "compare", "watch", "report"])
def test_every_field_of_a_suite_is_used_by_the_command_or_named_as_without_effect(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {
        "name": '"n"',
        "workspace": '"w"',
        "corpora": '["shapes"]',
        "encoders": '["tiny-clip"]',
        "protocols": '["t2i/all"]',
        "sample": "12",
        "batch_size": "7",
        "device": '"cpu:0"',
        "shards": "2",
        "precision": '"bfloat16"',
        "storage": '"float16"',
        "compile": "true",
        "parts": "2",
        "memory": '"3GiB"',
        "distractors": '["shapes-winoground"]',
        "replicates": "200",
        "seed": "1",
        "level": "0.9",
        "interval": '"bca"',
        "adjustment": '"benjamini-hochberg"',
        "permutations": "2000",
        "margin": "2.0",
        "keep_replicates": "true",
        "analyses": '["complexity"]',
        "baseline": '"r"',
        "trust_remote_code": "true",
    }
    assert values.keys() == FIELDS.keys()
    suite = tmp_path / "suite.toml"
    suite.write_text("".join(f"{name} = {value}\n" for name, value in values.items()))
    configs = []

    def start(_: object, config: Any, **__: object) -> Any:
        configs.append(config)
        raise RuntimeError

    monkeypatch.setattr(capim.flows.execution, "start", start)
    cli.main([command, str(suite), "--quiet"])
    [config] = configs
    assert all(getattr(config, name) != FIELDS[name].default for name in values)
    named = re.search(r"suite.toml: (.*): without effect on", capsys.readouterr().err)
    without_effect = set(named[1].split(", ")) if named else set()
    options = {action.dest for action in LEAVES[command]._actions}
    assert without_effect == FIELDS.keys() - options - {"name", "sample", "seed"}
