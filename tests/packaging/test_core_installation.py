"""Without the libraries of the extras, everything works that needs no model of theirs."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from capim.flows.config import RunConfig
from capim.store import EmbeddingStore
from tests.command import command

MODEL_LIBRARIES = (
    "colpali_engine", "open_clip", "uform", "einops", "sentence_transformers", "timm", "peft", "torchvision",
)  # fmt: skip

# Runs commands in one process in which none of these libraries can be imported.
SCRIPT = f"""\
import contextlib, io, json, sys
sys.modules.update(dict.fromkeys({MODEL_LIBRARIES}))
from capim.flows.cli import main
for command in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(command)
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
RUN = PROJECT["optional-dependencies"]["run"]
OF_RUN = [re.split(r"[^\w-]", each)[0].replace("-", "_") for each in RUN]  # as their modules are named
# Runs commands where nothing of the extra `run` can be imported.
READS = SCRIPT.replace(str(MODEL_LIBRARIES), str((*MODEL_LIBRARIES, *OF_RUN, "google.protobuf", "yaml")))

EMBED = "embed --quiet --device cpu --corpora shapes --sample 12 --encoders"
CHOSEN = "--corpora shapes-sample12 --encoders tiny-clip,tiny-clip-plain --quiet"

EVALUATE = f"evaluate {CHOSEN} --replicates 100"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def run_without_extras(
    *commands: str, workspace: Path | None = None, script: str = SCRIPT
) -> list[tuple[int, str, str]]:
    """Exit code, output and errors of each command, all in one process; in the workspace, if they have one."""
    place = f" --workspace {workspace}" if workspace else ""
    words = [shlex.split(each if each.startswith(("list", "check")) else f"{each}{place}") for each in commands]
    done = subprocess.run(
        [sys.executable, "-c", script], input=json.dumps(words), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


def needs(name: str, libraries: str, extra: str) -> str:
    return f"encoder '{name}' needs {libraries}; install it with: pip install 'capim[{extra}]'"


REFUSED = {
    "tiny-colpali": needs("tiny-colpali", "colpali-engine", "colpali"),
    "dfn5b-h": needs("dfn5b-h", "open-clip", "openclip"),
    "jina-clip-v1": needs("jina-clip-v1", "einops, timm", "jina"),
    "uform-multilingual-v2": needs("uform-multilingual-v2", "uform, torchvision", "uform"),
}


class Made(NamedTuple):
    """A workspace that was filled without the extras, and how commands there ended."""

    workspace: Path
    query: NDArray[np.float32]
    done: list[tuple[int, str, str]]
    refused: list[tuple[int, str, str]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """All commands in one process: it takes seconds to import what they need."""
    folder = tmp_path_factory.mktemp("core")
    query = np.random.default_rng(0).normal(size=64).astype(np.float32)
    np.save(folder / "query.npy", query)
    done = [
        f"{EMBED} tiny-clip,tiny-clip-plain",
        EVALUATE,
        f"compare {CHOSEN} --replicates 100",
        f"report {CHOSEN}",
        "results",
        "query 'SELECT count(*) AS n FROM outcomes'",
        "store verify",
        f"search --vector {folder}/query.npy --encoder tiny-clip --corpus shapes-sample12 -k 1 --format json",
        "list encoders",
    ]
    refused = [*(f"check {name} --quiet" for name in REFUSED), f"{EMBED} tiny-colpali"]
    ended = run_without_extras(*done, *refused, workspace=folder / "workspace")
    return Made(folder / "workspace", query, ended[: len(done)], ended[len(done) :])


@pytest.fixture
def workspace(made: Made) -> Path:
    return made.workspace


def test_vectors_are_stored_evaluated_compared_queried_searched_and_reported(made: Made) -> None:
    assert [error for code, _, error in made.done if code] == []
    images = EmbeddingStore.open(made.workspace / "store").vectors(
        encoder="tiny-clip", corpus="shapes-sample12", modality="image"
    )
    *_, results, _, _, found, listed = (out for _, out, _ in made.done)
    assert "tiny-clip-plain" in results
    assert [row["id"] for row in json.loads(found)] == [images.ids[int(np.argmax(images.matrix @ made.query))]]
    assert "colpali-v1.3" in listed


def test_what_reads_a_store_needs_nothing_of_the_extra_run(workspace: Path, tmp_path: Path) -> None:
    reads = ["results", "query 'SELECT count(*) AS n FROM outcomes'", "store verify", "store info"]
    reads += [f"export results --to {tmp_path}/r.csv", "list encoders", "list corpora", "list metrics"]
    *results, (code, _, said) = run_without_extras(*reads, EVALUATE, workspace=workspace, script=READS)
    assert [said for code, _, said in results if code] == []
    assert code == 2
    assert re.fullmatch(
        r"capim: \w+ is missing: this installation only reads stores; pip install 'capim\[run\]'\n", said
    )


def test_an_encoder_that_needs_an_extra_names_it(made: Made) -> None:
    for (code, _, message), text in zip(made.refused, [*REFUSED.values(), REFUSED["tiny-colpali"]], strict=True):
        assert code == 2
        assert text in message


def test_the_demo_without_extras_leaves_out_the_models_that_need_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "colpali_engine", None)
    ran: list[RunConfig] = []
    monkeypatch.setattr("capim.flows.steps.run", lambda config, **_: ran.append(config))
    said = command("demo --quiet").err
    assert [config.encoders for config in ran] == [("tiny-clip", "tiny-clip-plain")] * 2
    message = "left out: encoder 'tiny-colpali' needs colpali-engine; install it with: pip install 'capim[colpali]'"
    assert message in said
