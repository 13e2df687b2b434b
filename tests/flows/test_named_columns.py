# ruff: noqa: E501 - a table of one line a case
"""`--columns role=name` reads every form whose columns have names of their own; bad rows are left out on request."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from capim.store import EmbeddingStore
from capim.store.schema import Result
from tests.command import command

N = 4
IMAGES = [f"{n}.jpg" for n in range(N)]
ROWS = [f"row{n + 1}" for n in range(N)]
TEXTS = ("two red mugs on a table", "a brown dog on a sofa", "the old town at night", "a bus in the rain")
IMPORT = "--corpus photos/captions.csv --encoder theirs --quiet"


def csv(header: str, *columns: Any) -> str:
    return "\n".join([header, *(",".join(map(str, row)) for row in zip(*columns, strict=True))])


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four images with captions, in the working folder."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "photos"
    folder.mkdir()
    for n, name in enumerate(IMAGES):
        Image.new("RGB", (8, 6), (60 * n, 9, 9)).save(folder / name)
    (folder / "captions.csv").write_text(csv("image,caption", IMAGES, TEXTS))
    return folder


CORPORA: dict[str, tuple[str, str, str]] = {
    "captions": (csv("bild,titel", IMAGES, TEXTS), "image=bild,caption=titel", "captions: 4"),
    "captions by language": (csv("image,titel_de,titel_en", IMAGES, TEXTS, TEXTS[::-1]), "caption_de=titel_de,caption_en=titel_en", "languages: de: 4, en: 4"),
    "captions in two columns": (csv("image,a,b", IMAGES, TEXTS, TEXTS[::-1]), "caption=a,caption=b", "captions per image: 2: 4"),
    "pairs": (csv("image,caption,foil", IMAGES, TEXTS, TEXTS[::-1]), "negative=foil", "pairs"),
    "labels": (csv("image,dx", IMAGES, "abab"), "label=dx", "classes: 2"),
    "ratings": (csv("image1,image2,agg_score", IMAGES, IMAGES[::-1], (1, 2.5, 3, 4)), "score=agg_score", "similarity i2i: 4"),
    "composed": (csv("candidate,caption,goal", IMAGES, TEXTS, IMAGES[::-1]), "reference=candidate,target=goal", "composed"),
}  # fmt: skip


@pytest.mark.parametrize("name", CORPORA)
def test_a_corpus_of_every_form_is_read_by_columns_that_the_command_names(photos: Path, name: str) -> None:
    content, columns, expected = CORPORA[name]
    (photos / "captions.csv").unlink()
    (photos / "t.csv").write_text(content)
    said = command(f"check photos/t.csv --columns {columns}").out
    assert expected in said
    assert "can be run" in said
    for word in columns.split(","):  # and the same as lines of a description
        assert f"columns.{word.split('=')[0]} = " in said


def test_tables_of_a_judged_corpus_have_roles_with_their_name(photos: Path) -> None:
    (photos / "captions.csv").unlink()
    (photos / "queries.csv").write_text(csv("id,frage", ("a", "b"), TEXTS[:2]))
    (photos / "qrels.csv").write_text(csv("query-id,seite,score", ("a", "b"), ("0", "1"), (1, 2)))
    said = command("check photos", code=2).out
    assert "name it with columns = { \"judgements.document\" = \"…\" } (--columns judgements.document=…)" in said  # fmt: skip
    said = command("check photos --columns queries.query=frage,judgements.document=seite").out
    assert "judgements: 2" in said


UNIT = np.eye(N, 8, dtype=np.float32)
LISTS = [[float(x) for x in row] for row in UNIT]


def run_of(folder: Path) -> str:
    (folder / "run.csv").write_text(csv("frage,bild,punkte", ROWS, IMAGES, (0.9, 0.8, 0.7, 0.6)))
    return "run.csv --columns query=frage,item=bild,score=punkte"


def outcomes(folder: Path) -> str:
    (folder / "o.csv").write_text(csv("frage,platz", ROWS, (1, 1, 2, 1)))
    return "o.csv --columns query=frage,rank=platz"


def scores(folder: Path) -> str:
    header = ",".join([IMAGES[0], "frage", *IMAGES[1:]])
    (folder / "s.csv").write_text(csv(header, UNIT[0][:4], ROWS, *UNIT[1:4, :4]))
    return "--scores s.csv --columns queries=frage"


def arrays(folder: Path) -> str:
    np.savez(folder / "v.npz", a=UNIT, b=-UNIT, foto=IMAGES)
    np.savez(folder / "c.npz", vector=UNIT, id=ROWS)
    return "--images v.npz --captions c.npz --columns vector=a,id=foto"


def parquet(folder: Path) -> str:
    pq.write_table(pa.table({"foto": IMAGES, "a": LISTS, "b": LISTS[::-1]}), folder / "v.parquet")
    np.savez(folder / "c.npz", vector=UNIT, id=ROWS)
    return "--images v.parquet --captions c.npz --columns vector=a,id=foto"


@pytest.mark.parametrize("form", [run_of, outcomes, scores, arrays, parquet])
def test_an_import_of_every_form_is_read_by_columns_that_the_command_names(
    photos: Path, tmp_path: Path, form: Callable[[Path], str]
) -> None:
    words = form(tmp_path)
    command(f"import {words} {IMPORT}", tmp_path / "w")
    store = EmbeddingStore.open(tmp_path / "w" / "store")
    if store.sealed_sets():
        command("evaluate --protocols t2i/all --replicates 100 --quiet", tmp_path / "w")
    [value] = [row.value for row in store.all(Result) if (row.protocol, row.metric) == ("t2i/all", "R@1")]
    assert value == (0.75 if form is outcomes else 1.0)


def test_a_column_that_no_file_has_and_a_role_that_is_none_are_refused(photos: Path, tmp_path: Path) -> None:
    arrays(tmp_path)
    for columns, fault in (("id=fota", "no column 'fota' for role 'id'"), ("ide=foto", "unknown role 'ide'")):
        said = command(f"import --images v.npz {IMPORT} --columns {columns}", tmp_path / "w", code=2).err
        assert fault in said
    run_of(tmp_path)
    said = command(f"import --run run.csv {IMPORT}", tmp_path / "w", code=2).err
    assert "no column for query; it has frage, bild, punkte; name it with columns.query" in said
    assert "(--columns query=" in said


def test_rows_that_cannot_be_read_are_left_out_and_counted_on_request(photos: Path, tmp_path: Path) -> None:
    (photos / "captions.csv").write_text(csv("image,caption", IMAGES, [*TEXTS[:3], "a bus, red"]))
    assert "row 4: expected 2 cells as in the header, got 3" in command("check photos", code=2).out
    said = command("check photos --missing skip").out
    assert "1 rows cannot be read and are left out" in said
    assert "captions: 3" in said
    (photos / "captions.csv").write_text(csv("image,caption", IMAGES, TEXTS))
    (tmp_path / "run.trec").write_text(
        "".join(f"{q} Q0 {i} 1 0.5 x\n" for q, i in zip(ROWS, IMAGES, strict=True)) + "half a line\n"
    )
    assert "line 5: expected `query Q0 item" in command(f"import run.trec {IMPORT}", tmp_path / "w", code=2).err
    said = command(f"import run.trec {IMPORT} --skip-bad-rows", tmp_path / "w").err
    assert "1 rows cannot be read and are left out" in said


def test_vectors_of_more_items_than_the_corpus_has_are_left_out_and_counted_on_request(
    photos: Path, tmp_path: Path
) -> None:
    np.savez(tmp_path / "v.npz", embeddings=np.eye(6, 8), ids=[*IMAGES, "x.jpg", "y.jpg"])
    said = command(f"import --images v.npz {IMPORT}", tmp_path / "w", code=2).err
    assert "2 of 6 ids are none of" in said
    assert "--skip-bad-rows leaves these rows out" in said
    said = command(f"import --images v.npz {IMPORT} --skip-bad-rows", tmp_path / "w").err
    assert "4 of 6 rows matched" in said
    assert "2 are of images that the corpus does not have, first 'x.jpg'" in said


def test_equal_vectors_of_one_item_are_one_and_others_are_refused(photos: Path, tmp_path: Path) -> None:
    twice, vectors = [*IMAGES, *IMAGES], np.concatenate([np.eye(4, 8), np.eye(4, 8)])
    np.savez(tmp_path / "v.npz", embeddings=vectors, ids=twice)
    assert "4 repeat a row with the same vector" in command(f"import --images v.npz {IMPORT}", tmp_path / "w").err
    vectors[7] = vectors[0]
    np.savez(tmp_path / "v.npz", embeddings=vectors, ids=twice)
    said = command(f"import --images v.npz {IMPORT.replace('theirs', 'x')}", tmp_path / "w", code=2).err
    assert "4 images have more than one row, first '3.jpg' in rows 4 and 8, which have different vectors" in said


def test_forms_of_others_are_read_as_they_are(photos: Path) -> None:
    """Chinese-CLIP's texts, COCO-CN's numbered names without a header, a table beside images/ in data/."""
    (photos / "captions.csv").unlink()
    texts = [{"text_id": n, "text": text, "image_ids": [n]} for n, text in enumerate(TEXTS)]
    (photos / "texts.jsonl").write_text("\n".join(map(json.dumps, texts)))
    assert "captions: 4" in command("check photos").out
    (photos / "texts.jsonl").write_text(json.dumps({**texts[0], "image_ids": [0, 1]}))
    assert 'judgements: read them with reader = "judged"' in command("check photos", code=2).out
    (photos / "texts.jsonl").unlink()
    (photos / "cn.txt").write_text("\n".join(f"{n}#0\t{text}" for n, text in enumerate(TEXTS)))
    assert "columns read: image, caption, ordinal" in command("check photos").out
    (photos / "cn.txt").unlink()
    (photos / "data").mkdir()
    (photos / "images").mkdir()
    for name in IMAGES:
        shutil.move(photos / name, photos / "images")
    (photos / "data" / "train.csv").write_text(csv("img,txt", IMAGES, TEXTS))
    assert "captions: 4" in command("check photos").out


def test_images_in_a_folder_beside_are_named_with_the_option(photos: Path, tmp_path: Path) -> None:
    """Flickr8k as it is unpacked: texts in one folder, images in another."""
    (tmp_path / "texts").mkdir()
    shutil.move(photos / "captions.csv", tmp_path / "texts")
    assert f'they may be in {photos}: images = "{photos}"' in command("check texts", code=2).out


def test_rated_pairs_without_texts_and_images_are_evaluated_by_vectors_of_the_images_alone(
    photos: Path, tmp_path: Path
) -> None:
    (tmp_path / "rated.csv").write_text(csv("image1,image2,agg_score", ("a", "a", "a"), ("b", "c", "d"), (3, 2, 1)))
    words = 'reader = "image-queries"\nroot = "rated.csv"\nids_only = true\ncolumns.score = "agg_score"\n'
    (tmp_path / "sits.toml").write_text(words)
    vectors = np.array([[1, 0], [0.9, 0.1], [0.5, 0.5], [0.0, 1]])
    np.savez(tmp_path / "v.npz", embeddings=vectors, ids=["a", "b", "c", "d"])
    said = command("import v.npz --corpus sits.toml --encoder theirs --quiet", tmp_path / "w").err
    assert "run `capim evaluate --corpora sits --encoders theirs`" in said
    command("evaluate --corpora sits --encoders theirs --replicates 100 --quiet", tmp_path / "w")
    [row] = [row for row in EmbeddingStore.open(tmp_path / "w" / "store").all(Result) if row.metric == "Spearman"]
    assert row.value == pytest.approx(1.0)


def test_captions_in_columns_of_several_languages_are_a_warning_that_names_the_roles(photos: Path) -> None:
    (photos / "captions.csv").write_text(csv("image,titel_de,titel_en", IMAGES, TEXTS, TEXTS[::-1]))
    said = command("check photos/captions.csv --columns caption=titel_de,caption=titel_en").out
    assert 'columns.caption_de = "titel_de", columns.caption_en = "titel_en"' in said


def test_titles_beside_labels_are_named_as_captions(photos: Path) -> None:
    (photos / "captions.csv").unlink()
    (photos / "shop.csv").write_text(csv("image,title_en,category", IMAGES, TEXTS, "abab"))
    assert "'title_en' is not read, but looks like texts" in (said := command("check photos").out)
    assert "(--columns caption=title_en)" in said


def test_what_is_given_for_another_thing_says_where_it_belongs(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "suite.toml").write_text('corpora = ["shapes"]\nencoders = ["tiny-clip"]\n')
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "model" / "model.safetensors").write_text("")
    for words, expected in (
        ("--corpora suite.toml --encoders tiny-clip", "is a suite, which names corpora: run it with `capim run"),
        ("--corpora model --encoders tiny-clip", "holds a model, not a corpus: give it as --encoders"),
        ("--corpora photos --encoders photos", "images are a corpus: --corpora photos"),
        ("photos --encoders tiny-clip", "a folder is a corpus: --corpora photos"),
    ):
        assert expected in command(f"run {words} --dry-run --quiet", tmp_path / "w", code=2).err
