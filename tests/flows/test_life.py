"""A model's life in a store that a team shares: it comes with its facts, is gated, has revisions, and goes again."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from starlette.testclient import TestClient

import capim
from capim.flows.searching import StoreServices
from capim.reports.app.application import create_app
from capim.store import EmbeddingStore, EncoderSpec
from capim.store.connection import explained
from capim.store.schema import Comparison, LedgerEntry, Outcome, Ranking, Result, Slice, texts
from capim.store.types import Corpus
from capim.tasks.corpora.readers.shapes import read_shapes
from tests.command import command
from tests.documents import ROOT, fenced_blocks
from tests.random_store import OTHER, SPECS, random_store

pytestmark = pytest.mark.slow

PAIR = (SPECS[0], EncoderSpec(name="two", adapter="hf_dual", checkpoint="me/two", revision="a1", dim=16))
NO_KEYS = "LanceError(IO): Generic N/A error: LanceError(IO): Failed to get AWS credentials: CredentialsNotLoaded(x)"
WRONG_KEY = (
    "LanceError(IO): Generic S3 error: GET http://h/b: 403 Forbidden: <?xml version='1.0'?> <Error>"
    "<Code>InvalidAccessKeyId</Code><Message>This key does not exist.</Message><RequestId>x</RequestId></Error>"
)
NO_REGION = "LanceError(IO): Failed to resolve region for bucket 'b'"
QUICK = "--replicates 100 --quiet"
TESTED = f"{QUICK} --permutations 1000"


def three_corpora() -> list[Corpus]:
    """Enough of them for a ranking."""
    return [replace(read_shapes(n_scenes=24, seed=seed), name=f"photos-{seed}") for seed in range(3)]


def computed(workspace: Path, specs: tuple[EncoderSpec, ...]) -> EmbeddingStore:
    """Three corpora by these encoders, evaluated, compared and analysed."""
    for corpus in three_corpora():
        random_store(workspace / "store", corpus, specs, signal=2.0)
    command(f"evaluate {QUICK} --device cpu --protocols t2i/all,i2t/any", workspace)
    return compared(workspace)


def compared(workspace: Path) -> EmbeddingStore:
    command(f"compare {TESTED}", workspace)
    command(f"analyse {TESTED} --analyses ambiguous,errors", workspace)
    return EmbeddingStore.open(workspace / "store")


def derived(store: EmbeddingStore) -> dict[str, list[dict[str, Any]]]:
    """All rows that were computed, without what differs from run to run."""
    without = {"run", "created", "seconds_per_query"}
    kinds: tuple[type[Any], ...] = (Outcome, Result, Comparison, Ranking, Slice)
    return {
        kind.__name__: sorted(
            ({name: value for name, value in vars(row).items() if name not in without} for row in store.all(kind)),
            key=repr,
        )
        for kind in kinds
    }


def test_a_dropped_encoder_with_its_results_leaves_what_a_store_without_it_has(tmp_path: Path) -> None:
    """A dropped one stayed in results, tests and rankings; nothing could remove it."""
    without, workspace = computed(tmp_path / "without", PAIR), tmp_path / "with"
    store = computed(workspace, (*PAIR, OTHER))
    before = derived(store)
    assert before["Ranking"]

    said = command("store drop --encoder other", workspace)
    assert len(said.out.split()) == 6, "the sets"
    assert "stay: results, tests and reports go on counting them; --results drops them too" in said.err
    assert derived(store) == before

    planned = command("store drop --encoder other --results", workspace).err
    assert "nothing was changed" in planned
    assert derived(store) == before
    command("store drop --encoder other --results --yes", workspace)
    left = derived(EmbeddingStore.open(store.uri))
    assert "other" not in repr(left)
    assert OTHER.fingerprint not in repr(left)
    assert left["Result"] == derived(without)["Result"], "what is not about it stays"
    assert not left["Ranking"], "ranks are those of all together"
    assert derived(compared(workspace)) == derived(without), "made again without it"
    assert [row.name for row in store.encoders()] == ["one", "two"]
    assert not [row for row in store.all(LedgerEntry) if OTHER.fingerprint in row.identity]
    command("store verify", workspace)
    assert "not in the store" in command("store drop --encoder other --results --yes", workspace, code=2).err


def test_results_of_a_dropped_corpus_can_follow_it(tmp_path: Path) -> None:
    for corpus in three_corpora()[:2]:
        store = random_store(tmp_path / "store", corpus, PAIR[:1])
    command(f"evaluate {QUICK} --device cpu --protocols t2i/all", tmp_path)
    command("store drop --corpus photos-0 --yes", tmp_path)
    assert store.counts("results", "corpus")["photos-0"]
    said = command("store drop --corpus photos-1 --modality image --results", tmp_path, code=2).err
    assert "images and captions together" in said
    command("store drop --corpus photos-0 --results --yes", tmp_path)
    assert {*EmbeddingStore.open(store.uri).counts("results", "corpus")} == {"photos-1"}


def test_what_has_no_vectors_any_more_is_named_and_not_the_whole_store(tmp_path: Path) -> None:
    """The message was "the store has no complete embedding sets", of a store with three."""
    random_store(tmp_path / "store", read_shapes(n_scenes=4), SPECS)
    command("store drop --encoder one --modality image --yes", tmp_path)
    said = command("evaluate --encoders one", tmp_path, code=2).err
    assert "no complete embeddings of the images of 'shapes' by 'one'; run `capim embed --corpora shapes" in said


def vectors_file(folder: Path, corpus: Corpus, name: str, noise: float, seed: int = 0) -> str:
    """Vectors of a corpus' images and captions, a caption's around its image's with so much noise."""
    drawn = np.random.default_rng(seed)
    images = np.random.default_rng(99).normal(size=(len(corpus.images), 16)).astype(np.float32)
    ids = texts(corpus.images["id"])
    near = images[[ids.index(of) for of in texts(corpus.captions["image_id"])]]
    captions = near + np.float32(noise) * drawn.normal(size=near.shape).astype(np.float32)
    file = folder / f"{name}.npz"
    np.savez(file, images=images, image_ids=ids, captions=captions, caption_ids=texts(corpus.captions["id"]))
    return str(file)


@pytest.fixture
def shop(tmp_path: Path) -> tuple[Path, Corpus]:
    """A workspace with a corpus of forty images."""
    corpus = replace(read_shapes(n_scenes=40), name="shop")
    EmbeddingStore.open(tmp_path / "w" / "store", create=True).write_corpus(corpus)
    return tmp_path / "w", corpus


def test_facts_of_imported_models_limit_a_choice_and_are_changed_without_an_import(
    shop: tuple[Path, Corpus], tmp_path: Path
) -> None:
    """All imported models dropped out as "licence not known", with exit code 0, and nothing could state one."""
    workspace, corpus = shop
    for name, noise in (("ours", 1.0), ("theirs", 2.0)):
        file = vectors_file(tmp_path, corpus, name, noise)
        command(f"import {file} --encoder {name} --licence {'mit' if name == 'ours' else 'cc-by-nc-4.0'}", workspace)
    command(f"evaluate {QUICK} --protocols t2i/all", workspace)
    command(f"compare {TESTED}", workspace)
    choose = "choose --weights shop:t2i/all=1 --format json --limits"
    assert [row["encoder"] for row in command(f"{choose} licence=free", workspace).rows] == ["ours"]
    said = command(f"{choose} licence=free,bytes=8", workspace, code=1)
    assert said.rows == []
    assert "not ranked: theirs: size of an image: 64 B; licence: cc-by-nc-4.0" in said.err

    facts = tmp_path / "facts.toml"
    facts.write_text('[theirs]\nlicence = "apache-2.0"\nparameters = 86\ntraining = "web"\n[ours]\nparameters = 900\n')
    command(f"import --facts {facts} --dry-run", workspace)
    assert "parameters 86" not in command("list encoders --format json", workspace).out
    said = command(f"import --facts {facts}", workspace)
    assert "theirs: licence apache-2.0, parameters 86, training web" in said.err
    command("import --encoder theirs --link https://example.org/theirs", workspace)
    listed = {row["name"]: row for row in command("list encoders --format json", workspace).rows}
    facts_of = ("licence", "millions", "training", "link", "dim", "needs")
    assert [listed["theirs"][name] for name in facts_of] == [
        *("apache-2.0", 86, "web", "https://example.org/theirs", 16, "in the store")
    ]
    assert [listed["ours"][name] for name in facts_of[:2]] == ["mit", 900]
    assert [row["encoder"] for row in command(f"{choose} parameters=100", workspace).rows] == ["theirs"]
    command(f"import {vectors_file(tmp_path, corpus, 'theirs', 2.0)} --encoder theirs", workspace)
    assert EmbeddingStore.open(workspace / "store").encoder("theirs").facts["parameters"] == 86, "kept by an import"


def test_an_import_says_that_another_model_has_the_same_vectors(shop: tuple[Path, Corpus], tmp_path: Path) -> None:
    workspace, corpus = shop
    file = vectors_file(tmp_path, corpus, "ours", 1.0)
    assert "the same vectors" not in command(f"import {file} --encoder ours --revision v1", workspace).err
    said = command(f"import {file} --encoder theirs", workspace).err
    assert "the images of shop have the same vectors as those of ours (revision v1), bit for bit" in said
    said = command(f"import {file} --encoder theirs --revision v2 --dry-run", workspace).err
    assert said.count("as those of ours (revision v1)") == said.count("as those of theirs, bit for bit") > 0


def test_two_revisions_are_compared_or_the_command_is_named_that_makes_it_possible(
    shop: tuple[Path, Corpus], tmp_path: Path
) -> None:
    """`capim evaluate` takes the newest revision, so that its advice to run itself led nowhere."""
    workspace, corpus = shop
    for revision, words in (("v1", "--licence mit --parameters 86"), ("v2", "")):
        file = vectors_file(tmp_path, corpus, revision, float(revision[1]))
        imported = command(f"import {file} --encoder ours --revision {revision} {words}", workspace).err
    assert "if those of revision v1 hold: `capim import --encoder ours --licence mit --parameters 86.0`" in imported
    command(f"evaluate {QUICK} --protocols t2i/all", workspace)
    lacking = "ours@v1: no results; run `capim evaluate --encoders ours@v1` first"
    for asked in (f"compare {TESTED}", "results", "export results --to x.csv"):
        encoders = "--encoder" if asked.startswith("export") else "--encoders"
        assert lacking in command(f"{asked} {encoders} ours@v1,ours@v2", workspace, code=2).err

    command(f"evaluate {QUICK} --protocols t2i/all --encoders ours@v1", workspace)
    recalls = "results --metrics R@1 --format json"
    both = {row["revision"]: row["value"] for row in command(f"{recalls} --encoders ours@v1,ours@v2", workspace).rows}
    [shown] = command(recalls, workspace).rows
    assert shown["value"] == both["v2"] != both["v1"], "the newest revision, whatever was evaluated last"
    said = command(f"compare {TESTED} --encoders ours@v1,ours@v2 --metrics MRR", workspace)
    assert "compared 2 encoders, pair by pair: ours@v1, ours@v2" in said.err
    assert "ours@v1" in said.out
    states = ",".join(map(EmbeddingStore.open(workspace / "store").fingerprint_of, ("ours@v1", "ours@v2")))
    for words, fault in (
        (f"watch --encoders {states} --quiet", "a watch follows one revision of an encoder"),
        ("compare --encoders ours@v1", "ours: expected two encoders or more"),
        ("results --encoders ours@v9", "encoder 'ours@v9': no revisions begin with 'v9'; it has v1, v2"),
        ("report --encoders ours@v1,ours@v2 --quiet", "a report shows one revision of an encoder"),
    ):
        assert fault in command(words, workspace, code=2).err
    for pair in (("ours@v1", "ours@v2"), ("ours@v2", "ours@v1")):
        frame = capim.open(workspace, quiet=True).compare(*pair, replicates=100, permutations=1000)
        assert ({*frame.encoder_a}, {*frame.encoder_b}) == ({pair[0]}, {pair[1]})
    assert command(f"fuse --encoders ours@v1,ours@v2 {QUICK}", workspace).out == "ours-with-ours\n"

    other = replace(corpus, name="other", captions=corpus.captions.slice(1))
    EmbeddingStore.open(workspace / "store").write_corpus(other)
    file = vectors_file(tmp_path, other, "v3", 1.0)
    command(f"import {file} --encoder ours --revision v3 --corpus other", workspace)
    command(f"evaluate {QUICK} --protocols t2i/all", workspace)
    said = command("results", workspace)
    assert "ours: results on shop by an earlier revision only; those of the newest by `capim run" in said.err
    apart = (
        f"no two of these encoders have a result in common: ours@v1 on shop ({corpus.fingerprint}), ours@v3 on other"
    )
    for words in ("", "--languages en"):
        assert apart in command(f"compare --encoders ours@v1,ours@v3 {words}", workspace, code=2).err

    changed = replace(corpus, captions=corpus.captions.slice(2))
    EmbeddingStore.open(workspace / "store").write_corpus(changed)
    command(f"import {vectors_file(tmp_path, changed, 'new', 1.0)} --encoder new --corpus shop", workspace)
    old = "captions of 'shop' by 'ours@v1'; run `capim import --corpus shop --encoder ours --revision v1"
    assert old in command(f"evaluate {QUICK} --encoders ours@v1,new", workspace, code=2).err
    command("store drop --encoder ours@v1 --results --yes", workspace)
    assert "no revisions begin with 'v1'; it has v2, v3" in command("results --encoders ours@v1", workspace, code=2).err


@pytest.mark.parametrize(
    ("text", "words", "fault"),
    [
        ("licens = 'mit'", "--encoder ours", "field 'licens' is unknown; did you mean 'licence'?"),
        ("parameters = 'many'", "--encoder ours", "parameters must be a number, of millions, got 'many'"),
        ("licence = 'mit'", "", "say which model the facts are about"),
        ("licence = 'mit'", "--encoder nobody", "encoder 'nobody' is not in the store"),
        ("[loaded]\nlicence = 'mit'", "", "facts of 'loaded' come from the catalog, or from its [[encoder]] table"),
        ("licence = ", "--encoder ours", "is not valid TOML"),
        ("[other]\nlicence = 'mit'", "--encoder ours", "facts.toml: no table [ours]; it has other"),
    ],
)
def test_wrong_facts_are_refused_by_name(
    shop: tuple[Path, Corpus], tmp_path: Path, text: str, words: str, fault: str
) -> None:
    workspace, _ = shop
    store = EmbeddingStore.open(workspace / "store")
    store.write_encoder(replace(SPECS[0], name="loaded"))
    (tmp_path / "facts.toml").write_text(text)
    assert fault in command(f"import --facts {tmp_path}/facts.toml {words}", workspace, code=2).err


def gate(workspace: Path, words: str = "", *, code: int = 0) -> Any:
    return command(f"watch --format json {TESTED} --protocols t2i/all {words}", workspace, code=code)


def test_a_gate_judges_whatever_is_stored_against_a_pinned_or_a_named_run(
    shop: tuple[Path, Corpus], tmp_path: Path
) -> None:
    """`watch --encoders A` of imported vectors knew no encoder A; nothing ended with exit code 1."""
    workspace, corpus = shop
    store = EmbeddingStore.open(workspace / "store")

    def imports(revision: str, noise: float) -> None:
        file = vectors_file(tmp_path, corpus, revision, noise)
        command(f"import {file} --encoder ours --revision {revision}", workspace)

    imports("v1", 1.0)
    for _ in range(2):  # what failed once does not pass when it is tried again
        printed = gate(workspace, "--strict", code=1)
        [unpinned] = printed.rows
        assert printed.err.startswith("capim: nothing to compare with (--strict): [unpinned] ours on shop: watched for")
        assert (unpinned["verdict"], unpinned["subject"]) == ("unpinned", "ours on shop")
    assert "--strict pins nothing: `capim watch --encoders ours` pins what is stored now" in printed.err
    assert [row["verdict"] for row in gate(workspace, "--encoders ours").rows] == ["pinned"]
    assert gate(workspace, "--strict").rows == [], "the same vectors"
    first = min(store.counts("watched", "run"))

    imports("v2", 4.0)
    said = gate(workspace, "--strict --encoders ours", code=1)
    [found] = [row for row in said.rows if row["verdict"] == "fail"]
    recalls = command("results --metrics R@1 --encoders ours@v1,ours@v2 --format json", workspace).rows
    values = {row["revision"]: pytest.approx(row["value"]) for row in recalls}
    assert (found["before"], found["now"]) == (values["v1"], values["v2"])
    assert (found["metric"], found["protocol"]) == ("R@1", "t2i/all")
    assert (found["n_queries"], found["n_images"]) == (200, 40)
    assert found["test"].startswith("paired sign flips")
    assert found["p_adjusted"] < found["level"]
    assert "regression: [fail] ours on shop, t2i/all R@1: from " in said.err
    assert "(sign flips of 40 images, 200 pairs of queries)" in said.err

    gate(workspace, "--margin 99")
    second = max(store.counts("watched", "run"))
    assert gate(workspace, f"--baseline {second}").rows == [], "the drop is intended"
    gate(workspace, f"--baseline {first}", code=1)


def test_a_gate_judges_outcomes_without_vectors(shop: tuple[Path, Corpus], tmp_path: Path) -> None:
    workspace, corpus = shop
    for revision, rank in (("v1", 1), ("v2", 5)):
        ranks = [f"{query},{rank}" for query in texts(corpus.captions["id"])]
        (tmp_path / "ranks.csv").write_text("\n".join(["query,rank", *ranks]))
        command(f"import --outcomes {tmp_path}/ranks.csv --encoder ranks --revision {revision} {QUICK}", workspace)
        gate(workspace, "--encoders ranks", code=0 if revision == "v1" else 1)
    assert "there is no store" in gate(tmp_path / "mistyped", code=2).err


def test_the_ci_file_of_the_documents_passes_an_equal_revision_and_stops_a_worse_one(
    shop: tuple[Path, Corpus], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned, corpus = shop
    command(f"import {vectors_file(tmp_path, corpus, 'first', 1.0)} --encoder ours --revision first", pinned)
    gate(pinned)
    [block] = [each for each in fenced_blocks(ROOT / "docs" / "production.md") if each.language == "yaml"]
    job = yaml.safe_load(block.text)["jobs"]["gate"]
    lines = [step["run"] for step in job["steps"] if "run" in step]
    assert sum(line.startswith("capim ") for line in lines) == 2
    program = "from capim.flows.cli import main; import sys; sys.exit(main(sys.argv[1:]))"
    for revision, noise, code in (("same", 1.0, 0), ("worse", 4.0, 1)):
        folder = tmp_path / revision
        folder.mkdir()
        Path(vectors_file(tmp_path, corpus, revision, noise)).rename(folder / "vectors.npz")
        script = "\n".join(line for line in lines if not line.startswith("pip "))
        script = f'capim() {{ "{sys.executable}" -c "{program}" "$@"; }}\nset -e\n{script}\n'
        environment = {**os.environ, **job["env"], "PINNED": str(pinned), "GITHUB_SHA": f"{revision}0000"}
        environment["PYTHONPATH"] = str(ROOT)
        words = ["bash", "-c", script]
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        found = [row["verdict"] for row in json.loads((folder / "gate.json").read_text())]
        assert ("fail" in found) == bool(code)


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shop of own data in two languages with declared columns, by two models; ``ours`` is better on shoes."""
    folder = tmp_path_factory.mktemp("catalogue")
    lines, n = ["image,caption_id,caption,language,category,price"], 90
    category = [("shoes", "bags", "hats")[i % 3] for i in range(n)]
    for i in range(n):
        for code in ("de", "en"):
            lines.append(f"p{i},p{i}-{code},{code} item {i},{code},{category[i]},{'low' if i % 2 else 'high'}")
    (folder / "catalogue.csv").write_text("\n".join(lines) + "\n")
    (folder / "shop.toml").write_text(
        'reader = "table"\nroot = "catalogue.csv"\nids_only = true\ncolumns = { objects = ["category", "price"] }\n'
    )
    drawn = np.random.default_rng(5)
    for name, of_shoes in (("ours", 0.3), ("theirs", 1.2)):
        images = drawn.normal(size=(n, 12))
        noise = np.where(np.array(category) == "shoes", of_shoes, 0.9)[:, None]
        captions = np.concatenate([images + noise * drawn.normal(size=images.shape) for _ in range(2)])
        ids = [f"p{i}-{code}" for code in ("de", "en") for i in range(n)]
        arrays = {"images": images, "image_ids": [f"p{i}" for i in range(n)], "captions": captions, "caption_ids": ids}
        np.savez(folder / f"{name}.npz", **arrays)  # type: ignore[arg-type]
        command(f"import {folder}/{name}.npz --encoder {name} --corpus {folder}/shop.toml --quiet", folder / "w")
    command(f"evaluate {QUICK}", folder / "w")
    return folder / "w"


def test_a_question_about_a_slice_in_a_language_is_one_command(catalogue: Path) -> None:
    asked = f"compare --encoders ours,theirs {TESTED} --format json"
    said = command(f"{asked} --slice category=shoes --languages de", catalogue)
    assert "looks: 2; intervals and p-values hold for all of them" in said.err
    by_protocol = {row["protocol"]: row for row in said.rows}
    assert {*by_protocol} == {"t2i/de/human", "i2t/de/human"}
    outcomes = capim.open(catalogue, quiet=True).outcomes(protocols=[*by_protocol])
    shoes = outcomes[outcomes.query_id.str.extract(r"p(\d+)", expand=False).astype(int) % 3 == 0]
    shares = (shoes.rank_worst == 1).groupby([shoes.encoder, shoes.protocol]).mean()
    for row in by_protocol.values():
        a, b = (shares[name, row["protocol"]] for name in ("ours", "theirs"))
        assert row["value_a"] == pytest.approx(a, abs=1e-12)
        assert row["difference"] == pytest.approx(a - b, abs=1e-12)
        assert (row["n_queries"], row["n_clusters"], row["n_looks"], row["state"]) == (30, 30, 2, "better")
        assert row["low"] < row["difference"] < row["high"]
    [alone] = command(f"{asked} --slice category=shoes --languages de --protocols t2i/de/human", catalogue).rows
    both = by_protocol["t2i/de/human"]
    assert (alone["difference"], alone["n_looks"]) == (both["difference"], 1)
    assert alone["p_adjusted"] <= both["p_adjusted"], "two looks share a budget"
    turned = command(f"{asked.replace('ours,theirs', 'theirs,ours')} --slice price=low,price=high", catalogue)
    assert "looks: 8;" in turned.err, "two prices, two languages, two directions"
    in_python = capim.open(catalogue, quiet=True).compare(
        "theirs", "ours", slice="category=shoes", languages="de", replicates=100, permutations=1000
    )
    assert [*in_python.difference] == [-row["difference"] for row in said.rows]


def test_wrong_slices_languages_and_metrics_name_what_there_is(catalogue: Path) -> None:
    for words, fault in (
        ("--slice category=shoe", "did you mean 'shoes'? "),
        ("--slice colour=red", "expected COLUMN=VALUE of shop; its columns: category=bags, price=high"),
        ("--slice category", "expected COLUMN=VALUE of shop"),
        ("--languages fr", "language"),
        ("--metrics R@11", "metric 'R@11' is unknown"),
        ("--metrics own.py:hit", "a metric of your own is --own-metric FILE.py:NAME"),
    ):
        assert fault in command(f"compare {TESTED} {words}", catalogue, code=2).err, words


def test_metrics_choose_the_pairs(catalogue: Path) -> None:
    rows = command(f"compare {TESTED} --metrics R@10,MRR --format json", catalogue).rows
    assert {row["metric"] for row in rows} == {"R@10", "MRR"}
    said = command("results --metrics nDCG@10 --protocols t2i/de/human", catalogue, code=2).err
    assert "nDCG@10 is left out where every query has one right item" in said


def test_a_notebook_imports_its_arrays_chooses_and_names_things_in_either_number(
    shop: tuple[Path, Corpus], capsys: pytest.CaptureFixture[str]
) -> None:
    """`.npz` and the shell each time, several lines with quiet=True, and a circle of "did you mean"."""
    workspace, corpus = shop
    opened: Any = capim.open(workspace, quiet=True)  # type checkers know one number of each name
    drawn = np.random.default_rng(1)
    images = drawn.normal(size=(40, 8))
    order = drawn.permutation(40)
    ids = texts(corpus.images["id"])
    near = images[[ids.index(of) for of in texts(corpus.captions["image_id"])]]
    for name, noise in (("one", 0.5), ("two", 1.5)):
        captions = near + noise * drawn.normal(size=near.shape)
        opened.import_(
            encoder=name, corpora="shop", images=images[order], ids=[ids[at] for at in order], captions=captions,
            caption_ids=texts(corpus.captions["id"]), licence="mit",
        )  # fmt: skip
    opened.import_(encoder="many", corpus="shop", images=[images[[at]] for at in range(40)], ids=ids)
    assert capsys.readouterr() == ("", ""), "quiet"
    opened.evaluate(encoder="one,two", replicates=100, protocol="t2i/all")
    pairs = opened.compare("one", "two", metrics="R@10", replicates=100, permutations=1000)
    assert [*pairs.metric.unique()] == ["R@10"]
    capsys.readouterr()
    assert [*opened.choose(weights="shop:t2i/all=1", limits="licence=free").encoder] == ["one", "two"]
    assert capsys.readouterr() == ("", ""), "quiet"
    unit = images / np.linalg.norm(images, axis=1, keepdims=True)
    stored = opened.vectors(encoders=["one"], corpora="shop", modality="image")
    assert np.allclose(stored.matrix, unit[[ids.index(each) for each in stored.ids]], atol=1e-6)
    assert [*opened.results(encoder="one", metric="MRR").protocol] == ["t2i/all"]
    with pytest.raises(capim.RequestError, match="encoder name 'tiny-clip' belongs to a model of the catalog"):
        opened.import_(encoder="tiny-clip", corpus="shop", images=images, ids=ids)
    with pytest.raises(capim.RequestError, match="option 'licens' is unknown"):
        opened.import_(encoder="x", corpus="shop", images=images, ids=ids, licens="mit")
    with pytest.raises(capim.RequestError, match="encoders and encoder are one argument"):
        opened.results(encoders="one", encoder="two")
    opened.drop(encoder="one", results=True, yes=True)
    assert {*opened.results().encoder} == {"two"}


def test_a_mean_over_languages_is_compared_by_its_id(catalogue: Path) -> None:
    """`compare(protocols="t2i/*/*")` was refused with "no results", though it prints this protocol."""
    pairs = capim.open(catalogue, quiet=True).compare("ours", "theirs", protocols="t2i/*/*", replicates=100)
    assert {*pairs.protocol} == {"t2i/*/*"}


# --- In production.


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("results --workspace dangling", "dangling is a link to nowhere, which is not there"),
        ("embed --corpora shapes --sample 3 --encoders tiny-clip --workspace /proc/x", "No folder can be made there"),
        ("evaluate --memory 0", "memory must be greater than 0, got '0'"),
        ("run ./folder", "./folder is a folder, not a suite file; a folder is a corpus: --corpora ./folder"),
    ],
)
def test_what_cannot_be_is_named_with_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, said: str
) -> None:
    """The messages were "File exists", "missing or truncated" and "suite file … does not exist"; 0 was accepted."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "dangling").symlink_to("nowhere")
    assert said in command(words, code=1 if "proc" in words else 2).err


@pytest.mark.parametrize(
    ("problem", "fault", "said"),
    [
        ("opening", NO_KEYS, "Failed to get AWS credentials. The storage refuses the keys"),
        ("opening", WRONG_KEY, "InvalidAccessKeyId: This key does not exist. The storage refuses the keys"),
        ("reading", "Permission denied (os error 13)", "(os error 13). It may not be read: check owner"),
        ("opening", NO_REGION, "bucket 'b'. Set AWS_REGION, or AWS_ENDPOINT_URL where"),
        ("writing", "Permission denied (os error 13)", "(os error 13). The folder is not writable"),
    ],
)
def test_a_storage_that_refuses_says_why_in_one_line(problem: str, fault: str, said: str) -> None:
    line = str(explained(f"{problem} table 'results' failed", OSError(fault)))
    assert said in line
    assert not re.search(r"LanceError|<\?xml|CredentialsNotLoaded|\n", line)
    assert ("AWS_ACCESS_KEY_ID" in line) == ("keys" in said)


def test_a_server_behind_a_prefix_needs_only_what_the_document_says(
    catalogue: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = EmbeddingStore.open(catalogue / "store")
    app = create_app(store, token="secret", services=StoreServices(store))
    [block] = [each for each in fenced_blocks(ROOT / "docs" / "production.md") if each.language == "nginx"]
    given = dict(re.findall(r"(\w+)\s+'?(.*?)'?;$", block.text, flags=re.MULTILINE))
    assert given["proxy_redirect"] == "/ /capim/"
    absolute, prefixed = given["sub_filter"].split("' '")
    client = TestClient(app, base_url="http://127.0.0.1:8080")
    assert (client.get("/health").text, client.get("/health").status_code) == ("ok\n", 200)
    assert TestClient(app, base_url="http://10.0.0.7").get("/health").status_code == 200, "asked by its address"
    assert client.get("/queries").status_code == 403, "nothing else without a token"
    moved = client.get("/?token=secret", follow_redirects=False)
    assert moved.headers["location"] == "/queries", "where one was refused; the proxy puts its prefix before it"
    for page in ("/", "/queries", "/search", "/runs"):
        shown = client.get(page)
        assert shown.status_code == 200, page
        under = shown.text.replace(absolute, prefixed)
        assert not re.findall(r"""=\s*["']/(?!capim/)[^"']*""", under), page
        assert 'href="/capim/style.css' in under
    scripts = [file.read_text() for file in (ROOT / "reports" / "app" / "static").glob("[as]*.js")]
    assert not [text for text in scripts if re.search(r"""(fetch|open|location)\S*\(?\s*["'`]/""", text)]
