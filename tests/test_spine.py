"""From nothing to a report, through the command line, as a user would."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from capim.flows.cli import main
from capim.store import EmbeddingStore

EVERY = "tiny-clip,tiny-clip-plain,tiny-colpali"
RUN = ["run", "--encoders", EVERY, "--replicates", "500", "--device", "cpu", "--quiet"]
WHOLE = ["--corpora", "shapes,shapes-winoground"]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace after one run over the embedded corpora and models."""
    folder = tmp_path_factory.mktemp("spine") / "workspace"
    assert main([*RUN, *WHOLE, "--workspace", str(folder)]) == 0
    return folder


@pytest.fixture
def copy(workspace: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    return shutil.copytree(workspace, tmp_path / "workspace")


def _results(workspace: Path, capsys: pytest.CaptureFixture[str], *options: str) -> list[dict[str, object]]:
    capsys.readouterr()
    assert main(["results", "--format", "json", "--workspace", str(workspace), *options]) == 0
    rows: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return rows


def _figures(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """Result rows without which run they belong to."""
    return [{key: value for key, value in row.items() if key not in ("run", "created")} for row in rows]


@pytest.mark.slow
def test_every_encoder_has_every_protocol_with_its_interval_around_the_value(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = _results(workspace, capsys, "--metric", "R@1,R@5,R@10")
    on_shapes = [row for row in rows if row["corpus"] == "shapes"]
    protocols = {"t2i/all", "t2i/first", "i2t/any", "i2t/symmetric-first"}
    for encoder in ("tiny-clip", "tiny-clip-plain", "tiny-colpali"):
        assert protocols <= {row["protocol"] for row in on_shapes if row["encoder"] == encoder}
    for row in rows:
        assert row["ci_low"] <= row["value"] <= row["ci_high"], row  # type: ignore[operator]


@pytest.mark.slow
def test_the_stronger_clip_is_far_above_chance_and_above_the_weaker_one(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = _results(workspace, capsys, "--corpus", "shapes", "--protocol", "t2i/all", "--metric", "R@1")
    value = {row["encoder"]: float(row["value"]) for row in rows}  # type: ignore[arg-type]
    assert value["tiny-clip"] > 10 / 300
    assert value["tiny-clip"] > value["tiny-clip-plain"]
    assert value["tiny-colpali"] > 10 / 300


@pytest.mark.slow
def test_a_second_run_encodes_nothing_says_so_and_gives_the_same_results(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = _results(workspace, capsys)
    assert main([*RUN, *WHOLE, "--workspace", str(workspace)]) == 0
    said = capsys.readouterr().err
    assert said.count(": 0 items encoded, ") == 6
    assert _figures(_results(workspace, capsys)) == _figures(before)


@pytest.mark.slow
def test_results_computed_anew_from_stored_outcomes_are_the_same_to_the_last_digit(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = _results(copy, capsys)
    evaluate = ["evaluate", "--workspace", str(copy), "--device", "cpu", "--quiet"]
    assert main([*evaluate, "--replicates", "400"]) == 0
    assert main([*evaluate, "--replicates", "500"]) == 0
    assert _figures(_results(copy, capsys)) == _figures(before)


@pytest.mark.slow
def test_outcomes_of_which_some_were_lost_are_scored_again(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = _results(copy, capsys)
    outcomes = EmbeddingStore.open(copy / "store").connection.find("outcomes")
    assert outcomes is not None
    n_rows = outcomes.count_rows()
    outcomes.delete("query_ord = 7 AND encoder = 'tiny-clip' AND protocol LIKE 't2i/%'")
    assert outcomes.count_rows() < n_rows
    assert main(["evaluate", "--workspace", str(copy), "--device", "cpu", "--quiet", "--replicates", "500"]) == 0
    assert outcomes.checkout_latest() is None
    assert outcomes.count_rows() == n_rows
    assert _figures(_results(copy, capsys)) == _figures(before)


@pytest.mark.slow
def test_another_interval_and_another_adjustment_can_be_asked_for_and_taken_back(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = _results(copy, capsys)
    same = ["--workspace", str(copy), "--corpora", "shapes-winoground", "--replicates", "500", "--quiet"]
    for method in ("bca", "percentile"):
        assert main(["evaluate", *same, "--device", "cpu", "--interval", method]) == 0
        shares = _results(copy, capsys, "--corpus", "shapes-winoground", "--protocol", "winoground")
        assert method in {row["interval_method"] for row in shares}
    assert main(["compare", *same, "--adjustment", "benjamini-hochberg"]) == 0
    capsys.readouterr()
    query = "SELECT DISTINCT adjustment FROM comparisons WHERE corpus = 'shapes-winoground'"
    assert main(["query", query, "--format", "json", "--workspace", str(copy)]) == 0
    assert json.loads(capsys.readouterr().out) == [{"adjustment": "benjamini-hochberg"}]
    assert main(["evaluate", *same, "--device", "cpu"]) == 0
    assert _figures(_results(copy, capsys)) == _figures(before)


@pytest.mark.slow
def test_the_report_is_one_page_with_markdown_and_numbers_beside_it(workspace: Path) -> None:
    [report] = sorted((workspace / "reports").glob("*/report.html"))[:1]
    html = report.read_text()
    assert "tiny-colpali" in html
    assert "t2i/all" in html
    assert report.with_name("report.md").is_file()
    document = json.loads(report.with_name("results.json").read_text())
    assert document["schema"]
    [own] = [run for run in document["runs"] if run["run"] == report.parent.name]
    assert own["state"] == "completed" and own["finished"], "the report shows its own run as it ended"


@pytest.mark.slow
def test_real_photographs_go_the_same_way_and_score_near_chance(
    shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "workspace"
    photos = ["--corpora", str(shared_data / "coco_photos"), "--workspace", str(folder)]
    assert main([*RUN, *photos]) == 0
    assert "tiny-clip on coco_photos: 546 items encoded" in capsys.readouterr().err
    rows = _results(folder, capsys, "--protocol", "t2i/all", "--metric", "R@1")
    assert {(row["n_queries"], row["n_clusters"]) for row in rows} == {(455, 91)}
    for row in rows:
        assert float(row["value"]) < 0.1  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_corrupt_photograph_is_skipped_and_counted_in_the_report(
    shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photos = tmp_path / "photos"
    shutil.copytree(shared_data / "coco_photos", photos)
    victim = next((photos / "images").glob("*.jpg"))
    victim.chmod(0o644)
    victim.write_bytes(victim.read_bytes()[:500])
    folder = tmp_path / "workspace"
    run = ["run", "--encoders", "tiny-clip", "--replicates", "200", "--device", "cpu", "--quiet"]
    assert main([*run, "--corpora", str(photos), "--workspace", str(folder)]) == 0
    assert victim.stem.lstrip("0") in capsys.readouterr().err
    [report] = (folder / "reports").glob("*/report.md")
    assert victim.stem.lstrip("0") in report.read_text()
    rows = _results(folder, capsys, "--protocol", "t2i/all", "--metric", "R@1")
    assert rows[0]["n_clusters"] == 90


def _broken(tmp_path: Path, shared_data: Path, kind: str) -> Path:
    photos = tmp_path / "photos"
    (photos / "images").mkdir(parents=True)
    captions = json.loads((shared_data / "coco_photos" / "captions.json").read_text())
    if kind == "empty":
        captions = {**captions, "images": [], "annotations": []}
    (photos / "captions.json").write_text(json.dumps(captions))
    return photos


@pytest.mark.parametrize(
    ("kind", "said"),
    [("empty", "no image"), ("images missing", "000000000285.jpg")],
)
def test_a_faulty_corpus_is_named_with_its_fault_and_leaves_nothing_behind(
    shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, said: str
) -> None:
    photos = _broken(tmp_path, shared_data, kind)
    folder = tmp_path / "workspace"
    assert main([*RUN, "--corpora", str(photos), "--workspace", str(folder)]) == 2
    message = capsys.readouterr().err
    assert said in message
    assert "Traceback" not in message
    assert not (folder / "store").exists()


def test_a_missing_folder_is_named_and_nothing_is_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "workspace"
    wrong = ["run", "--corpora", str(tmp_path / "nowhere"), "--encoders", "tiny-clip", "--workspace", str(folder)]
    assert main(wrong) == 2
    assert str(tmp_path / "nowhere") in capsys.readouterr().err
    assert not (folder / "store").exists()
