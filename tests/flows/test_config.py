"""A run's configuration: what is wrong is found before anything is done, all of it at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from capim.flows.config import RunConfig, listed, read_suite, run_config
from capim.flows.embed import check_request
from capim.flows.workspace import Workspace
from capim.store.errors import RequestError, WorkError
from capim.tasks.corpora.opened import OpenCorpora
from capim.tasks.corpora.readers.shapes import read_shapes
from tests.command import command
from tests.random_store import SPECS, random_store


def test_all_faults_of_a_configuration_come_together() -> None:
    with pytest.raises(RequestError) as raised:
        run_config({"sample": 0, "replicates": 3, "level": 1.5, "precision": "int8"})
    assert len(raised.value.faults) == 4
    assert "sample must be at least 1, got 0" in str(raised.value)


def test_a_suite_file_becomes_a_run_and_options_win_over_it(tmp_path: Path) -> None:
    suite = tmp_path / "suite.toml"
    suite.write_text('name = "mine"\ncorpora = ["shapes"]\nencoders = ["tiny-clip"]\nreplicates = 500\n')
    config = run_config({"replicates": 900, "seed": None}, suite)
    assert (config.name, config.corpora, config.encoders) == ("mine", ("shapes",), ("tiny-clip",))
    assert (config.replicates, config.seed) == (900, 0)


def test_paths_of_a_suite_count_from_the_suite_file(tmp_path: Path) -> None:
    for folder in ("photos", "model", "shapes"):  # the last has the name of a corpus of capim's
        (tmp_path / folder).mkdir()
    suite = tmp_path / "suite.toml"
    training = 100 * "web "  # too long for the name of a file
    suite.write_text(
        'corpora = ["photos", "shapes", "./shapes"]\n'
        f'[[encoder]]\nname = "own"\nadapter = "hf_dual"\ncheckpoint = "model"\ndim = 4\ntraining = "{training}"\n'
    )
    fields = read_suite(suite)
    assert fields["corpora"] == (str(tmp_path / "photos"), "shapes", str(tmp_path / "shapes"))
    assert fields["encoders"][0]["checkpoint"] == str(tmp_path / "model")
    assert fields["encoders"][0]["training"] == training
    suite.write_text('encoders = ["./model", "open/model"]\n')
    assert read_suite(suite)["encoders"] == (str(tmp_path / "model"), "open/model")


@pytest.mark.parametrize(
    ("table", "names", "paths"),
    [
        ("encoder", {"adapter": "hf_dual", "training": "data", "licence": "MIT", "precision": "float32"},
         {"checkpoint": "model"}),
        ("corpus", {"reader": "labels", "prompts": "photo", "licence": "MIT"}, {"root": "data", "images": "gone"}),
        ("corpus", {"reader": "table", "form": "pairs", "missing": "skip"},
         {"root": "data", "images": ["photo", "gone"]}),
    ],
)  # fmt: skip
def test_the_field_of_a_suite_decides_what_is_a_path_not_the_folders_beside_it(
    tmp_path: Path, table: str, names: dict[str, str], paths: dict[str, object]
) -> None:
    """``training = "data"`` became a path of the machine where a folder had that name."""
    for folder in ("model", *names.values()):
        (tmp_path / folder).mkdir()
    lines = [f"{name} = {json.dumps(value)}" for name, value in {**names, **paths}.items()]
    (tmp_path / "suite.toml").write_text(f'[[{table}]]\nname = "own"\n' + "\n".join(lines))
    [found] = read_suite(tmp_path / "suite.toml")["encoders" if table == "encoder" else "corpora"]
    absolute = {name: [str(tmp_path / each) for each in listed(path) or ()] for name, path in paths.items()}
    expected = {name: path if isinstance(paths[name], list) else path[0] for name, path in absolute.items()}
    assert found == {"name": "own", **names, **expected}


def test_a_name_means_the_table_of_the_suite_that_describes_it(tmp_path: Path) -> None:
    suite = tmp_path / "suite.toml"
    suite.write_text(
        'encoders = ["tiny-clip", "own"]\n[[encoder]]\nname = "own"\nadapter = "hf_dual"\ncheckpoint = "x"\ndim = 4\n'
        '[[corpus]]\nname = "few"\nreader = "shapes"\nn_scenes = 20\n[[corpus]]\nname = "pairs"\nreader = "shapes"\n'
    )
    described = run_config({}, suite)
    assert [entry if isinstance(entry, str) else entry["name"] for entry in described.encoders] == ["tiny-clip", "own"]
    chosen = run_config({"encoders": ("own",), "corpora": ("few", "shapes")}, suite)
    assert chosen.encoders == described.encoders[1:]
    assert chosen.corpora == (described.corpora[0], "shapes")
    for folder in ("own", "tiny-clip", "few"):  # beside the suite, and of the same name
        (tmp_path / folder).mkdir()
    assert run_config({}, suite).encoders == described.encoders
    suite.write_text(suite.read_text().replace("encoders", 'corpora = ["few"]\nencoders'))
    assert run_config({}, suite).corpora == described.corpora


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = ", "not valid TOML"),
        ('nmae = "x"', "field 'nmae' is unknown; did you mean 'name'?"),
        ("replicates = 3", "replicates must be at least 100, got 3"),
        ('corpora = "shapes"', "corpora must be a list, got 'shapes'"),
    ],
)
def test_a_wrong_suite_file_is_named_with_its_fault(tmp_path: Path, text: str, message: str) -> None:
    suite = tmp_path / "suite.toml"
    suite.write_text(text)
    with pytest.raises(RequestError, match=message) as raised:
        run_config({}, suite)
    assert str(suite) in str(raised.value)


def test_consent_to_remote_code_is_for_all_or_for_the_encoder_whose_table_says_so() -> None:
    own = {"name": "own", "adapter": "jina", "checkpoint": "x/y", "dim": 8, "remote_code": True}
    config = RunConfig(encoders=(own, "jina-clip-v1"))
    assert config.trusts("own")
    assert not config.trusts("jina-clip-v1")
    assert RunConfig(encoders=("jina-clip-v1",), trust_remote_code=True).trusts("jina-clip-v1")


FLAGS, COUNTS = ("trust_remote_code", "keep_replicates"), ("sample", "seed", "replicates", "permutations")
WRONG = [
    *((field, value, "true or false") for field in FLAGS for value in ("false", "yes", 1)),
    *((field, value, ".*") for field in (*COUNTS, "shards", "batch_size") for value in (True, "x", -1, 2.5)),
    ("memory", "much", "a size such as 2GiB"),
    *((field, value, "a number") for field in ("level", "margin") for value in (True, "x")),
]


@pytest.mark.parametrize(("field", "value", "expected"), WRONG)
def test_a_value_of_another_kind_is_refused(field: str, value: object, expected: str) -> None:
    """``sample = true`` was a sample of one image, and ``"false"`` a consent."""
    with pytest.raises(RequestError, match=f"{field} must be {expected}, got {value!r}"):
        run_config({field: value})


def test_a_run_is_called_after_what_it_runs() -> None:
    asked = RunConfig(name="nightly", encoders=("tiny-clip", {"name": "mine"}), corpora=("../data/coco_photos",))
    assert asked.title == "nightly: tiny-clip +1 on coco_photos"
    assert RunConfig(name="after-encode").title == "after-encode"


def test_what_is_wrong_with_a_request_comes_before_a_hub_that_does_not_answer() -> None:
    far = {"name": "far", "adapter": "hf_dual", "checkpoint": "nobody/nothing", "dim": 4}
    with pytest.raises(RequestError, match="adapter 'nope' is unknown"):
        check_request(RunConfig(encoders=(far, far | {"name": "wrong", "adapter": "nope"})), OpenCorpora())
    with pytest.raises(WorkError, match="nobody/nothing"):
        check_request(RunConfig(encoders=(far,)), OpenCorpora())


def test_the_workspace_is_that_of_the_option_else_of_the_suite_else_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = tmp_path / "suite.toml"
    suite.write_text('workspace = "results"\n')
    monkeypatch.setenv("CAPIM_WORKSPACE", "/from/environment")
    assert run_config({"workspace": "/from/option"}, suite).workspace == "/from/option"
    assert run_config({"workspace": None}, suite).workspace == str(tmp_path / "results")
    assert run_config({"workspace": None}).workspace == "/from/environment"
    monkeypatch.delenv("CAPIM_WORKSPACE")
    assert run_config({}).workspace == "workspace"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("", "a folder, or a URI"),
        ("s3:/team/x", "two slashes, s3://team/x"),
        ("s3://", "with its bucket"),
        ("http://host/x", "a URI of s3://"),
        ("file://host/x", "a folder of this machine"),
    ],
)
def test_an_address_that_is_no_workspace_is_refused_before_anything_is_done(
    given: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in ("embed --corpora shapes --encoders tiny-clip", "results", "watch --strict", "store info"):
        assert expected in command(f"{words} --workspace '{given}'", code=2).err
    (tmp_path / "suite.toml").write_text(f'workspace = "{given}"\n')
    with pytest.raises(RequestError, match=f"suite.toml: workspace must be .*{expected}"):
        run_config({}, tmp_path / "suite.toml")
    monkeypatch.setenv("CAPIM_WORKSPACE", given)
    if given:  # an empty variable counts as unset
        with pytest.raises(RequestError, match=expected):
            run_config({})
    assert [each.name for each in tmp_path.iterdir()] == ["suite.toml"]


def test_one_folder_has_many_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    random_store(tmp_path / "run:1" / "x" / "store", read_shapes(n_scenes=4), SPECS[:1])
    command("evaluate --protocols t2i/all --replicates 100 --workspace run:1/x")
    assert command("report --workspace run:1/x").page.is_file()
    up = "../" * (len(tmp_path.parts) + 3)
    for address in (f"file://{tmp_path}/run:1/x", f"file:{tmp_path}/run:1/x", f"{up}{tmp_path}/run:1/x"):
        assert "t2i/all" in command(f"results --workspace {address}").out


def test_an_argument_of_an_earlier_release_is_answered_with_its_name_now(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="metric is no longer there; instead: own_metric"):
        Workspace(tmp_path).evaluate(metric="x")  # type: ignore[call-arg]
    assert not [*tmp_path.iterdir()]
