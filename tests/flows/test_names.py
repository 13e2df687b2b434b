"""One name for a corpus everywhere: its path, its reader's name and its stored name mean the same in every command."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from capim.flows.cli import main
from capim.store import EmbeddingStore

COLOURS = ("red", "green", "blue", "white", "black", "orange")
EMBED = ["embed", "--encoders", "tiny-clip", "--device", "cpu", "--quiet"]


def photos(folder: Path, *, colours: tuple[str, ...] = COLOURS) -> Path:
    """A folder of images of one colour each, with two captions for every image."""
    (folder / "images").mkdir(parents=True)
    images, captions = [], []
    for i, colour in enumerate(colours):
        Image.new("RGB", (8, 8), colour).save(folder / "images" / f"{colour}.png")
        images.append({"id": i, "file_name": f"{colour}.png"})
        captions += [{"id": 10 * i + k, "image_id": i, "caption": f"{colour} {k}"} for k in range(2)]
    (folder / "captions.json").write_text(json.dumps({"images": images, "annotations": captions}))
    return folder


def run(workspace: Path, *words: str) -> int:
    return main([*words, "--workspace", str(workspace)])


def printed(capsys: pytest.CaptureFixture[str], workspace: Path, *words: str) -> Any:
    capsys.readouterr()
    assert run(workspace, *words, "--format", "json") == 0
    return json.loads(capsys.readouterr().out)


def corpora_of(workspace: Path) -> set[str]:
    return {row["name"] for row in EmbeddingStore.open(workspace / "store").corpora().to_pylist()}


@pytest.fixture
def karpathy(tmp_path: Path) -> Path:
    """A small file in Karpathy's format, whose reader names the corpus itself, without images."""
    entries = [
        {"file_name": f"COCO_val2014_{i:012d}.jpg", "captions": [f"caption {i} {k}" for k in range(5)]}
        for i in range(8)
    ]
    file = tmp_path / "data" / "test_5k.toml"
    file.parent.mkdir()
    (file.parent / "karpathy_test.json").write_text(json.dumps(entries))
    file.write_text('reader = "coco-karpathy"\nroot = "karpathy_test.json"\nground_truths = []\n')
    return file


@pytest.fixture
def imported(karpathy: Path, tmp_path: Path) -> Path:
    """A workspace with embeddings imported under the path of that file."""
    workspace = tmp_path / "workspace"
    generator = np.random.default_rng(0)
    for name, n in (("images", 8), ("captions", 40)):
        np.save(tmp_path / f"{name}.npy", generator.standard_normal((n, 4)).astype(np.float32))
    files = ["--images", str(tmp_path / "images.npy"), "--captions", str(tmp_path / "captions.npy")]
    assert run(workspace, "import", "--corpus", str(karpathy), "--encoder", "theirs", *files) == 0
    return workspace


@pytest.mark.slow
def test_a_path_that_import_took_is_found_by_every_other_command(
    imported: Path, karpathy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert corpora_of(imported) == {"coco-karpathy"}
    monkeypatch.chdir(karpathy.parent)
    for name in (str(karpathy), "./test_5k.toml", "test_5k.toml", "coco-karpathy"):
        several, one = ["--corpora", name], ["--corpus", name]
        assert run(imported, "evaluate", *several, "--replicates", "100", "--quiet") == 0
        assert run(imported, "compare", *several, "--replicates", "100", "--quiet") == 0
        assert run(imported, "report", *several) == 0
        assert run(imported, "fuse", *several, "--encoders", "theirs,theirs", "--replicates", "100", "--quiet") == 0
        assert printed(capsys, imported, "results", *one)
        for what in ("results", "outcomes"):
            assert run(imported, "export", what, *one, "--to", str(tmp_path / f"{what}.csv")) == 0
        embeddings = ["export", "embeddings", "--encoder", "theirs", "--modality", "image"]
        assert run(imported, *embeddings, *one, "--to", str(tmp_path / "e.npz")) == 0
        assert run(imported, "store", "drop", *one, "--encoder", "theirs") == 0
        assert "would drop 2 tables" in capsys.readouterr().err
    assert corpora_of(imported) == {"coco-karpathy"}


@pytest.mark.slow
def test_an_unknown_name_is_an_error_with_the_nearest_and_leaves_no_run_behind(
    imported: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(imported, "evaluate", "--replicates", "100", "--quiet") == 0
    before = EmbeddingStore.open(imported / "store").rows("runs").num_rows
    capsys.readouterr()
    to = ["--to", str(tmp_path / "out.csv")]
    several = ["--corpora", "coco-karpaty"], ["--encoders", "theris"], ["--protocols", "t2i/al"]
    wrong: list[list[str]] = [[command, *option] for command in ("compare", "report") for option in several]
    wrong += [["evaluate", *option] for option in several]
    one = ["--corpus", "coco-karpaty"], ["--encoder", "theris"], ["--protocol", "t2i/al"]
    for command in (["results"], ["export", "results", *to], ["export", "outcomes", *to]):
        wrong += [[*command, *option] for option in one]
    wrong += [["results", "--metric", "R@11"], ["search", "x", "--encoder", "theirs", "--corpus", "coco-karpaty"]]
    wrong += [["store", "drop", "--corpus", "coco-karpaty"], ["store", "drop", "--encoder", "theris"]]
    (tmp_path / "metric.py").write_text("def hit(outcomes):\n    return outcomes.rank_worst <= 2\n")
    wrong += [["evaluate", "--metric", f"{tmp_path}/metric.py:hit", *option] for option in several]
    wrong += [["ann", "--corpora", "coco-karpaty"], ["rerank", "--first", "theris", "--second", "theirs"]]
    near = {"coco-karpaty": "coco-karpathy", "theris": "theirs", "t2i/al": "t2i/all", "R@11": "R@1"}
    for words in wrong:
        assert run(imported, *words) == 2, words
        message = capsys.readouterr().err
        meant = next(right for typed, right in near.items() if typed in words)
        assert f"did you mean '{meant}'?" in message, (words, message)
    assert EmbeddingStore.open(imported / "store").rows("runs").num_rows == before
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.slow
def test_two_folders_of_the_same_name_are_told_apart_in_one_run_and_over_several(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = photos(tmp_path / "a" / "photos"), photos(tmp_path / "b" / "photos", colours=COLOURS[:4])
    together, apart = tmp_path / "together", tmp_path / "apart"
    assert run(together, *EMBED, "--corpora", f"{a},{b}") == 0
    assert "corpus b-photos: 'photos' from" in capsys.readouterr().err
    for path in (a, b, a, b):
        assert run(apart, *EMBED, "--corpora", str(path)) == 0
    for workspace in (together, apart):
        store = EmbeddingStore.open(workspace / "store")
        assert corpora_of(workspace) == {"photos", "b-photos"}
        assert {name: len(store.corpus(name).images) for name in ("photos", "b-photos")} == {"photos": 6, "b-photos": 4}
        capsys.readouterr()
        assert run(workspace, "evaluate", "--corpora", str(b), "--replicates", "100", "--quiet") == 0
        rows = printed(capsys, workspace, "results", "--corpus", str(b), "--protocol", "t2i/all", "--metric", "R@1")
        assert [(row["corpus"], row["n_queries"]) for row in rows] == [("b-photos", 8)]
        assert store.rows("results", corpus="photos").num_rows == 0
    capsys.readouterr()
    assert run(apart, *EMBED, "--corpora", "b-photos,photos") == 0, "what is printed can be typed"
    assert capsys.readouterr().err.count(": 0 items encoded") == 2


@pytest.mark.slow
def test_a_sample_of_the_second_folder_is_named_after_it_too(tmp_path: Path) -> None:
    a, b = photos(tmp_path / "a" / "photos"), photos(tmp_path / "b" / "photos", colours=COLOURS[:4])
    workspace = tmp_path / "workspace"
    for path, more in ((a, []), (b, ["--sample", "3"]), (b, [])):
        assert run(workspace, *EMBED, "--corpora", str(path), *more) == 0
    assert corpora_of(workspace) == {"photos", "b-photos-sample3", "b-photos"}
    suite = tmp_path / "suite.toml"
    suite.write_text(f'corpora = ["{b}"]\nsample = 3\nreplicates = 100\n')
    assert run(workspace, "evaluate", str(suite), "--quiet") == 0
    store = EmbeddingStore.open(workspace / "store")
    assert {*store.rows("results")["corpus"].to_pylist()} == {"b-photos-sample3"}
    assert run(workspace, *EMBED, "--corpora", "b-photos-sample3", "--sample", "2") == 2


@pytest.mark.slow
def test_a_folder_that_moved_stays_the_same_corpus_and_is_found_where_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = photos(tmp_path / "a" / "photos"), photos(tmp_path / "b" / "photos", colours=COLOURS[:4])
    workspace = tmp_path / "workspace"
    assert run(workspace, *EMBED, "--corpora", f"{a},{b}") == 0
    for old in (a, b):
        shutil.move(str(old), str(tmp_path / "new" / old.parent.name / "photos"))
    capsys.readouterr()
    moved = [str(tmp_path / "new" / side / "photos") for side in ("a", "b")]
    assert run(workspace, *EMBED, "--corpora", ",".join(moved)) == 0
    assert capsys.readouterr().err.count(": 0 items encoded") == 2
    assert corpora_of(workspace) == {"photos", "b-photos"}
    assert run(workspace, "evaluate", "--corpora", moved[1], "--replicates", "100", "--quiet") == 0
    assert {*EmbeddingStore.open(workspace / "store").rows("results")["corpus"].to_pylist()} == {"b-photos"}


@pytest.mark.slow
def test_a_folder_that_was_never_read_is_not_taken_for_another_of_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = photos(tmp_path / "a" / "photos"), photos(tmp_path / "b" / "photos", colours=COLOURS[:4])
    workspace = tmp_path / "workspace"
    assert run(workspace, *EMBED, "--corpora", str(a)) == 0
    capsys.readouterr()
    assert run(workspace, "evaluate", "--corpora", str(b)) == 2
    assert f"capim embed --corpora {b}" in capsys.readouterr().err


@pytest.mark.slow
def test_an_explicit_name_is_never_changed_and_its_newest_contents_mean_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace = tmp_path / "workspace"
    for side, colours in (("a", COLOURS), ("b", COLOURS[:4])):
        folder = photos(tmp_path / side / "photos", colours=colours)
        (folder / "corpus.toml").write_text('name = "ours"\nreader = "coco-captions"\nroot = "."\n')
        assert run(workspace, *EMBED, "--corpora", str(folder)) == 0
    assert "the name 'ours' now means" in capsys.readouterr().err
    assert corpora_of(workspace) == {"ours"}
    assert len(EmbeddingStore.open(workspace / "store").corpus("ours").images) == 4


@pytest.mark.slow
def test_a_name_that_is_also_another_folder_here_is_refused_rather_than_guessed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = photos(tmp_path / "a" / "photos"), photos(tmp_path / "b" / "photos", colours=COLOURS[:4])
    workspace = tmp_path / "workspace"
    assert run(workspace, *EMBED, "--corpora", f"{a},{b}") == 0
    monkeypatch.chdir(b.parent)
    capsys.readouterr()
    assert run(workspace, "evaluate", "--corpora", "photos", "--replicates", "100") == 2
    assert "corpus 'photos' means two" in capsys.readouterr().err
    assert run(workspace, "evaluate", "--corpora", "b-photos", "--replicates", "100", "--quiet") == 0


@pytest.mark.slow
def test_compare_export_and_report_take_only_what_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workspace = tmp_path / "workspace"
    every, quick = "tiny-clip,tiny-clip-plain,tiny-colpali", ["--replicates", "100", "--analyses", "complexity"]
    words = ["run", "--corpora", "shapes,shapes-winoground", "--sample", "12", "--encoders", every, "--device", "cpu"]
    assert run(workspace, *words, *quick, "--quiet") == 0
    pair, corpus = "tiny-clip,tiny-colpali", "shapes-sample12"
    store = EmbeddingStore.open(workspace / "store")
    comparisons = store.connection.find("comparisons")
    assert comparisons is not None
    comparisons.delete("true")
    chosen = ["--corpora", corpus, "--encoders", pair, "--protocols", "t2i/*"]
    assert run(workspace, "compare", *chosen, *quick, "--quiet") == 0
    compared = EmbeddingStore.open(workspace / "store").rows("comparisons").to_pylist()
    assert {(row["encoder_a"], row["encoder_b"], row["corpus"]) for row in compared} == {
        ("tiny-clip", "tiny-colpali", corpus)
    }
    assert {row["protocol"] for row in compared} == {"t2i/all", "t2i/first", "t2i/ordinal-mean", "t2i/scene"}
    for row in compared:
        assert row["p_adjusted"] == row["p_sign_flip"], "one pair: nothing to adjust for"
    capsys.readouterr()
    assert run(workspace, "report", *chosen) == 0
    report = json.loads(Path(capsys.readouterr().out.strip()).with_name("results.json").read_text())
    target = tmp_path / "chosen.json"
    export = ["export", "results", "--corpus", corpus, "--encoder", pair, "--protocol", "t2i/*", "--to", str(target)]
    assert run(workspace, *export) == 0
    exported = json.loads(target.read_text())
    for rows in (report["results"], exported["results"]):
        assert {row["corpus"] for row in rows} == {corpus}
        assert {row["encoder"] for row in rows} == {"tiny-clip", "tiny-colpali"}
        assert {row["protocol"] for row in rows} == {"t2i/all", "t2i/first", "t2i/ordinal-mean", "t2i/scene"}
