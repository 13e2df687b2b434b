"""What goes in and out by the command line: searches, SQL, exports, imports, metrics of one's own."""

from __future__ import annotations

import html
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import capim
from capim.flows.cli import main
from capim.tasks.corpora.images.decode import decode_image
from capim.tasks.encoders import encode_captions, encode_images, load_encoder

CORPUS = "shapes-sample40"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty scenes by a single-vector and a multi-vector model, evaluated and compared."""
    folder = tmp_path_factory.mktemp("exchange") / "workspace"
    run = ["run", "--corpora", "shapes", "--sample", "40", "--encoders", "tiny-clip,tiny-colpali", "--device", "cpu"]
    assert main([*run, "--replicates", "200", "--quiet", "--workspace", str(folder)]) == 0
    return folder


def _json(capsys: pytest.CaptureFixture[str], workspace: Path, *words: str) -> list[dict[str, object]]:
    capsys.readouterr()
    assert main([*words, "--format", "json", "--workspace", str(workspace), "--quiet"]) == 0
    rows: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("encoder", ["tiny-clip", "tiny-colpali"])
def test_a_caption_finds_its_own_image_first(workspace: Path, capsys: pytest.CaptureFixture[str], encoder: str) -> None:
    [caption] = _json(
        capsys, workspace, "query", f"SELECT text, image_id FROM captions WHERE corpus = '{CORPUS}' AND ord = 0"
    )
    search = ["search", str(caption["text"]), "--encoder", encoder, "--corpus", CORPUS, "-k", "3", "--device", "cpu"]
    rows = _json(capsys, workspace, *search)
    assert [row["rank"] for row in rows] == [1, 2, 3]
    assert rows[0]["id"] == caption["image_id"]


@pytest.mark.slow
def test_a_search_gallery_is_one_page_with_pictures(workspace: Path, tmp_path: Path) -> None:
    page = tmp_path / "found.html"
    search = ["search", "a red circle", "--encoder", "tiny-clip", "--corpus", CORPUS, "--device", "cpu"]
    assert main([*search, "--html", str(page), "--workspace", str(workspace)]) == 0
    assert page.read_text().count("data:image/jpeg") >= 10


@pytest.mark.slow
def test_sql_cannot_write(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = _json(capsys, workspace, "results")
    assert main(["query", "DELETE FROM results", "--workspace", str(workspace)]) == 2
    assert "read-only" in capsys.readouterr().err
    assert _json(capsys, workspace, "results") == before


@pytest.mark.slow
def test_exported_embeddings_come_back_with_equal_figures(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {}
    for modality in ("image", "caption"):
        files[modality] = str(tmp_path / f"{modality}.npz")
        export = ["export", "embeddings", "--encoder", "tiny-clip", "--corpus", CORPUS, "--modality", modality]
        assert main([*export, "--to", files[modality], "--workspace", str(workspace)]) == 0
    both = ["--images", files["image"], "--captions", files["caption"], "--workspace", str(workspace)]
    assert main(["import", "--encoder", "theirs", "--corpus", CORPUS, *both]) == 0
    evaluate = ["evaluate", "--encoders", "theirs,tiny-clip", "--corpora", CORPUS, "--replicates", "200", "--quiet"]
    assert main([*evaluate, "--workspace", str(workspace), "--device", "cpu"]) == 0
    rows = _json(capsys, workspace, "results", "--protocol", "t2i/all", "--encoder", "theirs,tiny-clip")
    figures = {(row["encoder"], row["metric"]): (row["value"], row["ci_low"], row["ci_high"]) for row in rows}
    for encoder, metric in list(figures):
        assert figures[encoder, metric] == figures["theirs", metric]


@pytest.mark.slow
def test_hit_lists_of_real_models_give_the_published_recalls_and_discordant_pairs(
    shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    description = tmp_path / "karpathy.toml"
    captions = shared_data / "coco_karpathy" / "test_5k.json"
    description.write_text(f'name = "coco-karpathy"\nreader = "coco-karpathy"\nroot = "{captions}"\n')
    folder = tmp_path / "workspace"
    hits = ["--outcomes", str(shared_data / "coco_karpathy" / "hits"), "--replicates", "200"]
    assert main(["import", "--corpus", str(description), *hits, "--workspace", str(folder)]) == 0
    assert main(["compare", "--replicates", "200", "--quiet", "--workspace", str(folder)]) == 0
    rows = _json(capsys, folder, "results")
    value = {(r["encoder"], r["protocol"], r["metric"]): round(100 * float(r["value"]), 2) for r in rows}  # type: ignore[arg-type]
    expected = {
        ("ALBEF", "t2i/all"): (60.67, 84.33, 90.51),
        ("ALBEF", "i2t/any"): (77.58, 94.26, 97.16),
        ("TCL", "t2i/all"): (58.98, 83.17, 89.87),
        ("TCL", "i2t/any"): (75.60, 92.76, 96.68),
    }
    for (encoder, protocol), recalls in expected.items():
        assert tuple(value[encoder, protocol, f"R@{k}"] for k in (1, 5, 10)) == recalls
    pairs = _json(capsys, folder, "query", "SELECT protocol, wins, losses FROM comparisons WHERE metric = 'R@1'")
    assert {(p["protocol"], p["wins"], p["losses"]) for p in pairs} == {
        ("t2i/all", 2089, 1667),
        ("i2t/any", 430, 331),
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["search", "--encoder", "tiny-clip", "--corpus", CORPUS], "a text, or --image FILE"),
        (["search", "x", "--encoder", "nobody", "--corpus", CORPUS], "'nobody' is not in the store"),
        (["export", "embeddings", "--to", "x.npy"], "needs --encoder, --corpus, --modality"),
        (["export", "results", "--to", "x.xyz"], "x.xyz: suffix '.xyz' is unknown"),
        (["import", "--corpus", CORPUS], "--images and --captions, --manifest, --folder, --outcomes"),
        (["import", "--corpus", CORPUS, "--images", "x.npy"], "--encoder NAME"),
        (["import", "--corpus", CORPUS, "--scores", "x.npy"], "an import of scores needs --encoder NAME"),
        (["import", "--corpus", CORPUS, "--encoder", "tiny-clip", "--run", "x.trec"], "no such file"),
        (["import", "--images", "x.npy", "--manifest", "m.toml"], "got embeddings and a manifest"),
        (["import", "--manifest", "m.toml", "--encoder", "x"], "--encoder has no effect on an import of a manifest"),
        (["import", "--corpus", CORPUS, "--encoder", "tiny-clip", "--images", "x.npy"], "tiny-clip-imported"),
        (["query", "SELECT nothing FROM nowhere"], "nowhere"),
        (["evaluate", "--metric", "nonsense"], "must be module:function"),
        (
            ["results", "--encoder", "tiny-clip", "--against", "nothing"],
            "--against 'nothing' is unknown; known: published",
        ),
    ],
)
def test_a_wrong_request_is_explained(
    workspace: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    try:
        code = main([*words, "--workspace", str(workspace)])
    except SystemExit as stop:  # argparse's own
        code = int(stop.code or 0)
    assert code == 2
    message = capsys.readouterr().err
    assert said in message
    assert "Traceback" not in message


@pytest.mark.slow
def test_re_ranking_the_whole_list_gives_the_second_encoder_s_figures(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = ["--first", "tiny-clip", "--second", "tiny-colpali", "--corpora", CORPUS, "--depths", "1,40"]
    assert main(["rerank", *pair, "--replicates", "200", "--quiet", "--workspace", str(workspace)]) == 0
    name = capsys.readouterr().out.strip()
    assert name == "tiny-clip-then-tiny-colpali"
    rows = _json(capsys, workspace, "results", "--protocol", "t2i/all", "--metric", "R@1,R@5,MRR")
    value = {(row["encoder"], row["metric"]): row["value"] for row in rows}
    for metric in ("R@1", "R@5", "MRR"):  # forty images: the first forty are all of them
        assert value[name, metric] == value["tiny-colpali", metric]
    curve = _json(
        capsys, workspace, "query", "SELECT level_name, value FROM slices WHERE analysis='two-stage' AND metric='R@1'"
    )
    at = {row["level_name"]: row["value"] for row in curve}
    assert at["1"] == value["tiny-clip", "R@1"]


@pytest.mark.slow
def test_a_method_that_cannot_be_built_is_a_row_with_its_reason(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fast_plaid", None)
    ann = ["ann", "--encoders", "tiny-clip,tiny-colpali", "--corpora", CORPUS, "--methods", "int8,IVF_PQ,fast-plaid"]
    rows = _json(capsys, workspace, *ann, "--replicates", "200", "--quiet")
    reasons = {(row["encoder"], row["method"]): str(row["reason"]) for row in rows}
    assert "at least 256 vectors, got 40" in reasons["tiny-clip", "IVF_PQ"]
    assert "pip install fast-plaid" in reasons["tiny-colpali", "fast-plaid"]
    assert {row["value"] is None for row in rows if row["reason"]} == {True}
    assert [row["method"] for row in rows] == ["exact", "int8", "IVF_PQ", "exact", "int8", "IVF_PQ", "fast-plaid"]


@pytest.mark.parametrize(
    "options", [["--corpus", "./nowhere", "--images", "x.npy"], ["--corpus", "shapes", "--images", "x.npy"]]
)
def test_a_wrong_import_leaves_no_store_behind(tmp_path: Path, options: list[str]) -> None:
    target = tmp_path / "new"
    assert main(["import", "--encoder", "theirs", *options, "--workspace", str(target)]) == 2
    assert not target.exists()


@pytest.mark.slow
def test_a_text_and_an_image_are_searched_for_together_as_the_sum_of_their_unit_vectors(
    workspace: Path, tmp_path: Path
) -> None:
    opened = capim.open(workspace)
    where: Any = {"encoder": "tiny-clip", "corpus": CORPUS, "device": "cpu"}
    images = opened.vectors(encoder="tiny-clip", corpus=CORPUS, modality="image")
    [sha] = opened.sql(f"SELECT sha FROM images WHERE id = '{images.ids[3]}' LIMIT 1").sha
    picture = tmp_path / "picture.jpg"
    picture.write_bytes(opened.store.thumbnails([sha])[sha])
    encoder = load_encoder(opened.store.encoder("tiny-clip"), device="cpu")
    total = encode_captions(encoder, ["a red circle"]).values[0]
    total = total + encode_images(encoder, [decode_image(picture.read_bytes())]).values[0]
    query = total / np.linalg.norm(total)
    found = opened.search("a red circle", image=picture, k=40, **where)
    np.testing.assert_allclose(found.score, np.sort(images.matrix @ query)[::-1], atol=1e-6)
    assert [*found.id] == [*opened.search(vector=query, k=40, encoder="tiny-clip", corpus=CORPUS).id]
    words = ["search", "a red circle", "--image", str(picture), "--encoder", "tiny-clip", "--corpus", CORPUS]
    assert main([*words, "--device", "cpu", "--workspace", str(workspace), "--html", str(tmp_path / "p.html")]) == 0
    assert f"a red circle + {picture}" in html.unescape((tmp_path / "p.html").read_text("utf-8"))
