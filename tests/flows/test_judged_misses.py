"""Misses that a person judges: the sample that is written, and R@1 corrected by what is written back."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import capim
from capim.store import EmbeddingStore
from capim.store.schema import Outcome
from capim.tasks.corpora.readers.shapes import read_shapes
from tests.benchmarks.simulations.judged import JudgedCell, judged_coverage
from tests.command import command, json_rows
from tests.random_store import OTHER, SPECS, random_store

MISSES = "export misses --encoders one,other --corpus shapes --to"
Rows = list[dict[str, str]]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two encoders that find some of their captions' images, and one that is known by its hits alone."""
    folder = tmp_path_factory.mktemp("misses") / "workspace"
    corpus = read_shapes(n_scenes=40)
    random_store(folder / "store", corpus, (SPECS[0], OTHER), signal=0.8)
    command("evaluate --device cpu --quiet --protocols t2i/all", folder)
    hits = folder.parent / "hits.csv"
    lines = [f"t2i/all,{id_},1,{at % 2}" for at, id_ in enumerate(corpus.captions["id"].to_pylist())]
    hits.write_text("\n".join(["protocol,query,k,correct", *lines]) + "\n")
    command(f"import --corpus shapes --encoder counted --outcomes {hits}", folder)
    return folder


@pytest.fixture(scope="module")
def outcomes(workspace: Path) -> dict[str, dict[str, Any]]:
    """Encoder -> query -> rank, and the item in first place."""
    found: dict[str, dict[str, Any]] = {}
    store = EmbeddingStore.open(workspace / "store")
    images = store.corpus("shapes").images["id"].to_pylist()
    for row in store.all(Outcome, protocol="t2i/all"):
        first = images[row.top_ords[0]] if row.top_ords else None
        found.setdefault(row.encoder, {})[row.query_id] = row.rank_best, first
    return found


def exported(workspace: Path, file: Path, more: str = "") -> Rows:
    command(f"{MISSES} {file} {more}", workspace)
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def judged(file: Path, rows: Rows, answer: Callable[[dict[str, str]], str]) -> Path:
    """The table with its answers filled in."""
    with file.open("w", encoding="utf-8", newline="") as lines:
        writer = csv.DictWriter(lines, list(rows[0]))
        writer.writeheader()
        writer.writerows({**row, "right": answer(row)} for row in rows)
    return file


def is_right(row: dict[str, str]) -> bool:
    return (int(row["item_id"][-5:]) + int(row["query_id"][-1])) % 3 == 0


def test_the_table_holds_what_the_encoders_put_first_in_random_order(
    workspace: Path, outcomes: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    rows = exported(workspace, tmp_path / "all.csv")
    missed: dict[tuple[str, str], list[str]] = {}
    for encoder in ("one", "other"):
        for query, (rank, first) in outcomes[encoder].items():
            if rank > 1:
                missed.setdefault((query, first), []).append(encoder)
    assert {(row["query_id"], row["item_id"]): row["encoders"].split(", ") for row in rows} == missed
    assert {row["right"] for row in rows} == {""}
    texts = dict(zip(*(read_shapes(n_scenes=40).captions[name].to_pylist() for name in ("id", "text")), strict=True))
    assert all(row["query"] == texts[row["query_id"]] and row["item"].endswith(".png") for row in rows)
    order = list(dict.fromkeys(row["query_id"] for row in rows))
    assert order != sorted(order)
    few = exported(workspace, tmp_path / "few.csv", "--sample 30")
    assert list(dict.fromkeys(row["query_id"] for row in few)) == order[:30]


def test_all_misses_judged_give_the_share_that_is_right(
    workspace: Path, outcomes: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    rows = exported(workspace, tmp_path / "every.csv")
    file = judged(tmp_path / "every.csv", rows, lambda row: "yes" if is_right(row) else "no")
    right = {(row["query_id"], row["item_id"]) for row in rows if is_right(row)}
    copy = Path(shutil.copytree(workspace, tmp_path / "workspace"))
    found = json_rows(f"evaluate --judgements {file}", copy)
    assert {row["metric"] for row in found} == {"every:R@1 corrected"}
    in_python = capim.open(copy, quiet=True).evaluate(judgements=str(file))
    assert {*in_python.value} == {row["value"] for row in found}
    for row in found:
        of = outcomes[row["encoder"]]
        share = np.mean([rank == 1 or (query, first) in right for query, (rank, first) in of.items()])
        assert row["value"] == pytest.approx(share)
        assert row["ci_low"] < row["value"] < row["ci_high"]
    assert {row["encoder"] for row in found} == {"one", "other"}
    assert {row["against"] for row in found} == {"one", "other"}
    assert sum(row["difference"] for row in found) == pytest.approx(0)
    page = command("report --markdown whole", copy).page
    assert "every:R@1 corrected" in page.with_name("report.md").read_text()


def test_some_misses_judged_stand_for_all_with_a_wider_interval(
    workspace: Path, outcomes: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    rows = exported(workspace, tmp_path / "some.csv")
    queries = list(dict.fromkeys(row["query_id"] for row in rows))
    judged_queries = {*queries[:60]}

    def answer(row: dict[str, str]) -> str:
        return ("y" if is_right(row) else "0") if row["query_id"] in judged_queries else ""

    file = judged(tmp_path / "some.csv", rows, answer)
    copy = Path(shutil.copytree(workspace, tmp_path / "workspace"))
    found = {row["encoder"]: row for row in json_rows(f"evaluate --judgements {file}", copy)}
    right = {(row["query_id"], row["item_id"]) for row in rows if is_right(row)}
    for encoder, of in outcomes.items():
        if encoder in found:
            missed = {query: first for query, (rank, first) in of.items() if rank > 1}
            share = np.mean([(query, missed[query]) in right for query in missed if query in judged_queries])
            assert found[encoder]["value"] == pytest.approx(1 - len(missed) / len(of) * (1 - share))
    plain = json_rows("results --protocol t2i/all --metric R@1 --encoder one", copy)[0]
    assert found["one"]["ci_high"] - found["one"]["ci_low"] > 1.2 * (plain["ci_high"] - plain["ci_low"])
    alone = json_rows(f"evaluate --encoders one --judgements {file}", copy)
    assert [row["value"] for row in alone] == [found["one"]["value"]]


@pytest.mark.parametrize(
    ("answer", "words", "message"),
    [
        (lambda at: "no" if at < 10 else "", "", "misses of one are judged, at least 20 have to be"),
        (lambda at: "" if at == 3 else "no", "", "line 6: judged, but line 5 is not; judge the lines from the top"),
        (lambda at: "perhaps" if at == 2 else "no", "", "line 4: right is 'perhaps', expected yes or no"),
        (lambda at: "no", "--encoders counted", "not of counted"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_in_one_line(
    workspace: Path, tmp_path: Path, answer: Callable[[int], str], words: str, message: str
) -> None:
    rows = exported(workspace, tmp_path / "m.csv")
    places = {id(row): at for at, row in enumerate(rows)}
    file = judged(tmp_path / "m.csv", rows, lambda row: answer(places[id(row)]))
    refused = command(f"evaluate --judgements {file} {words}", workspace, code=2)
    assert message in " ".join(refused.err.split())


def test_a_miss_that_is_judged_yes_and_no_is_refused(workspace: Path, tmp_path: Path) -> None:
    rows = exported(workspace, tmp_path / "m.csv")
    answers = iter(["no"] * len(rows) + ["yes"])
    file = judged(tmp_path / "m.csv", [*rows, rows[0]], lambda _: next(answers))
    said = f"right is 'no' in line 2 and 'yes' in line {len(rows) + 2}; leave one of them"
    assert said in command(f"evaluate --judgements {file}", workspace, code=2).err


def test_other_results_than_those_that_were_judged_and_encoders_without_lists_are_refused(
    workspace: Path, tmp_path: Path
) -> None:
    rows = exported(workspace, tmp_path / "stale.csv")
    rows[0]["item_id"] = next(row["item_id"] for row in rows if row["item_id"] != rows[0]["item_id"])
    file = judged(tmp_path / "stale.csv", rows, lambda _: "no")
    assert "has other results now" in command(f"evaluate --judgements {file}", workspace, code=2).err
    words = f"export misses --encoders one,counted --corpus shapes --to {tmp_path}/none.csv"
    assert "counted has no result lists under t2i/all on shapes" in command(words, workspace, code=2).err
    assert not (tmp_path / "none.csv").exists()
    for wrong in ("export misses --corpus shapes", "export misses --encoders one", f"{MISSES.removesuffix(' --to')}"):
        command(f"{wrong} --to {tmp_path}/none.txt", workspace, code=2)
    for n in (0, -5):
        assert "--sample must be" in command(f"{MISSES} {tmp_path}/none.csv --sample {n}", workspace, code=2).err


@pytest.mark.parametrize("captions", [1, 5])
def test_intervals_of_corrected_figures_hold_the_truth_where_the_uncorrected_do_not(captions: int) -> None:
    """More in ``make bench ONLY=validity``."""
    cell = JudgedCell(hits=0.6, right=0.35, judged=100, n_images=300, captions=captions)
    rates = judged_coverage(cell, 300, seed=1)
    assert rates["uncorrected"].rate < 0.2
    for kind in ("one encoder", "difference"):
        assert rates[kind].rate > 0.95 - 3.5 * np.sqrt(0.95 * 0.05 / 300), kind
