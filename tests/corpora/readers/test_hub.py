"""Hub data sets, made offline in the hub's layout and read through ``datasets`` itself."""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from capim.store.errors import RequestError
from capim.store.schema import texts
from capim.tasks.corpora import open_corpus
from capim.tasks.corpora.readers.hub import HubImages, load_split, read_hub
from capim.tasks.corpora.readers.karpathy import read_coco_karpathy, read_flickr30k_karpathy
from capim.tasks.corpora.readers.negatives import ARO_HUB, read_aro
from capim.tasks.corpora.readers.published import table_reader
from capim.tasks.corpora.readers.quadruples import read_bivlc, read_winoground
from capim.tasks.corpora.readers.translations import read_crossmodal3600


def jpeg(index: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (24, 16), (index * 50 % 256, 80, 90)).save(buffer, format="JPEG")
    return buffer.getvalue()


def publish(folder: Path, columns: dict[str, list[Any]], *, images: tuple[str, ...] = (), split: str = "test") -> str:
    """A data set in the hub's layout; cells of image columns are bytes."""
    content = {
        name: [{"bytes": cell, "path": None} for cell in cells] if name in images else cells
        for name, cells in columns.items()
    }
    dataset = datasets.Dataset.from_dict(content)
    for name in images:
        dataset = dataset.cast_column(name, datasets.Image())
    (folder / "data").mkdir(parents=True, exist_ok=True)
    dataset.to_parquet(folder / "data" / f"{split}-00000-of-00001.parquet")
    return str(folder)


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def test_coco_karpathy_has_one_fingerprint_from_files_and_from_the_hub(tmp_path: Path) -> None:
    names = ["COCO_val2014_000000391895.jpg", "COCO_val2014_000000060623.jpg"]
    rows: dict[str, list[Any]] = {
        "filepath": ["val2014"] * 2,
        "filename": names,
        "cocoid": [391895, 60623],
        "sentids": [[770337, 771687], [769, 784]],
        "sentences": [["one", "two"], ["three", "four"]],
        "url": ["http://images.cocodataset.org/val2014/x.jpg"] * 2,
    }
    plain = publish(tmp_path / "plain", rows)
    with_images = publish(tmp_path / "with", {**rows, "image": [jpeg(0), jpeg(1)]}, images=("image",))
    local = [
        {"file_name": f"val2014/{n}", "image_id": i, "captions": c, "annotation_ids": a}
        for n, i, c, a in zip(names, rows["cocoid"], rows["sentences"], rows["sentids"], strict=True)
    ]
    (tmp_path / "test.json").write_text(json.dumps(local))
    images = write(tmp_path / "images", {f"val2014/{name}": jpeg(i) for i, name in enumerate(names)})
    fingerprints = {
        read_coco_karpathy(tmp_path / "test.json", images=images).fingerprint,
        read_coco_karpathy(dataset=plain, images=images).fingerprint,
        read_coco_karpathy(dataset=with_images).fingerprint,
        read_coco_karpathy(dataset=plain, cache=images).fingerprint,  # as if fetched before
    }
    assert len(fingerprints) == 1


def test_flickr30k_has_one_fingerprint_from_files_and_from_the_hub(tmp_path: Path) -> None:
    captions = [[f"{k} {c}" for c in range(5)] for k in range(2)]
    hub = publish(
        tmp_path / "hub",
        {"image": [jpeg(0), jpeg(1)], "caption": captions, "filename": ["11.jpg", "12.jpg"], "sentids": [[0], [1]]},
        images=("image",),
    )
    images = write(tmp_path / "images", {"11.jpg": jpeg(0), "12.jpg": jpeg(1)})
    entries = [
        {"filename": f"{11 + k}.jpg", "split": "test", "sentences": [{"raw": t} for t in captions[k]]} for k in (0, 1)
    ]
    (tmp_path / "dataset_flickr30k.json").write_text(json.dumps({"images": entries}))
    local = read_flickr30k_karpathy(tmp_path / "dataset_flickr30k.json", images=images)
    assert local.fingerprint == read_flickr30k_karpathy(dataset=hub).fingerprint
    assert local.images["id"].to_pylist() == ["11", "12"]


def test_winoground_has_one_fingerprint_from_files_and_from_the_hub(tmp_path: Path) -> None:
    examples = [
        {"id": k, "caption_0": f"{k} a", "caption_1": f"a {k}", "tag": "Noun", "secondary_tag": "", "num_main_preds": 1,
         "collapsed_tag": "Object"}
        for k in range(2)
    ]  # fmt: skip
    columns = {key: [example[key] for example in examples] for key in examples[0]}
    hub = publish(
        tmp_path / "hub",
        {**columns, "image_0": [jpeg(0), jpeg(2)], "image_1": [jpeg(1), jpeg(3)]},
        images=("image_0", "image_1"),
    )
    files = {f"images/ex_{k}_img_{s}.png": jpeg(2 * k + s) for k in range(2) for s in range(2)}
    local = write(tmp_path / "local", files)
    lines = [{**e, "image_0": f"ex_{e['id']}_img_0", "image_1": f"ex_{e['id']}_img_1"} for e in examples]
    (local / "examples.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert read_winoground(local).fingerprint == read_winoground(dataset=hub).fingerprint


def test_bivlc_has_one_fingerprint_from_a_folder_and_from_the_hub(tmp_path: Path) -> None:
    texts = {"caption": ["a red bus"], "negative_caption": ["a blue bus"], "type": ["replace"], "subtype": ["att"]}
    pictures = {"image": [jpeg(0)], "negative_image": [jpeg(1)]}
    hub = publish(tmp_path / "hub", {**texts, **pictures}, images=("image", "negative_image"))
    assert read_bivlc(dataset=hub).fingerprint == read_bivlc(hub).fingerprint
    without = publish(tmp_path / "without", texts)
    with pytest.raises(RequestError, match="no column 'image', 'negative_image'; it has 'caption'"):
        read_bivlc(without)


def test_sugarcrepe_pp_has_one_fingerprint_from_files_and_from_the_configurations_of_the_hub(tmp_path: Path) -> None:
    item = {"id": 0, "filename": "000000000007.jpg", "caption": "a", "caption2": "b", "negative_caption": "c"}
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "swap_att.json").write_text(json.dumps([item]))
    write(tmp_path / "hub", {"swap_attribute.jsonl": json.dumps(item).encode()})
    card = "---\nconfigs:\n- config_name: swap_atribute\n  data_files: swap_attribute.jsonl\n---\n"
    (tmp_path / "hub" / "README.md").write_text(card)
    images = write(tmp_path / "val2017", {"000000000007.jpg": jpeg(0)})
    local = table_reader("sugarcrepe-pp")(tmp_path / "local", images=images, categories=["swap_att"])
    hub = table_reader("sugarcrepe-pp")(dataset=str(tmp_path / "hub"), images=images, categories=["swap_att"])
    assert local.fingerprint == hub.fingerprint


def test_xflickrco_and_crossmodal3600_have_one_fingerprint_from_files_and_from_the_hub(tmp_path: Path) -> None:
    for language in ("en", "de"):
        publish(
            tmp_path / "xf",
            {"id": ["7", "8"], "sentences": [f"['{language} 7']", f"{language} 8"], "image": [jpeg(0), jpeg(1)]},
            images=("image",),
            split=language,
        )
        publish(
            tmp_path / "xm",
            {
                "image_id": ["a", "b"],
                "captions": [[f"{language} a"], [f"{language} b", "x"]],
                "image": [jpeg(0), jpeg(1)],
            },
            images=("image",),
            split=language,
        )
        lines = [{"id": i, "sentences": [f"{language} {i}"], "img_path": f"{i}.jpg"} for i in (7, 8)]
        (tmp_path / f"{language}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    images = write(tmp_path / "images", {"7.jpg": jpeg(0), "8.jpg": jpeg(1), "a.jpg": jpeg(0), "b.jpg": jpeg(1)})
    languages = ["en", "de"]
    assert (
        table_reader("xflickrco")(tmp_path, images=images, languages=languages).fingerprint
        == table_reader("xflickrco")(dataset=str(tmp_path / "xf"), languages=languages).fingerprint
    )
    entries = [
        {
            "image/key": key,
            **{lang: {"caption": [f"{lang} {key}", *(["x"] if key == "b" else [])]} for lang in languages},
        }
        for key in ("a", "b")
    ]
    (tmp_path / "captions.jsonl").write_text("\n".join(map(json.dumps, entries)))
    assert (
        read_crossmodal3600(tmp_path, languages=languages).fingerprint
        == read_crossmodal3600(dataset=str(tmp_path / "xm"), languages=languages).fingerprint
    )


def test_aro_order_gives_four_pairs_for_each_caption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {f"hard_text_{n}": [f"wrong {n}"] for n in range(1, 5)}
    hub = publish(tmp_path, {"images": [jpeg(0)], "correct_caption": ["right"], **texts}, images=("images",))
    monkeypatch.setitem(ARO_HUB, "coco-order", hub)
    corpus = read_aro(part="coco-order")
    assert corpus.pairs["category"].to_pylist() == [
        "shuffle_nouns_and_adj",
        "shuffle_allbut_nouns_and_adj",
        "shuffle_within_trigrams",
        "shuffle_trigrams",
    ]
    assert corpus.pairs["caption_id"].unique().to_pylist() == ["0"]


def test_a_table_and_a_hub_copy_of_the_same_data_have_one_fingerprint(tmp_path: Path) -> None:
    rows = {"id": ["x", "x", "y"], "caption": ["one", "two", "three"], "language": ["en", "de", "en"]}
    hub = publish(tmp_path / "hub", {**rows, "image": [jpeg(0), jpeg(0), jpeg(1)]}, images=("image",))
    table = tmp_path / "table"
    write(table, {"a.jpg": jpeg(0), "b.jpg": jpeg(1)})
    (table / "captions.csv").write_text("id,image,caption,language\nx,a.jpg,one,en\nx,a.jpg,two,de\ny,b.jpg,three,en\n")
    with pytest.raises(RequestError, match="image ids with several files: 'x'"):
        read_hub(hub, name="mine")
    flat = publish(
        tmp_path / "flat",
        {"id": ["x", "y"], "caption": [["one"], ["three"]], "image": [jpeg(0), jpeg(1)]},
        images=("image",),
    )
    (table / "captions.csv").write_text("id,image,caption\nx,a.jpg,one\ny,b.jpg,three\n")
    assert open_corpus({"reader": "table", "root": str(table), "name": "mine"}).fingerprint == (
        open_corpus({"reader": "hub", "dataset": flat, "name": "mine"}).fingerprint
    )


def test_pairs_and_quadruples_come_from_named_columns(tmp_path: Path) -> None:
    hub = publish(
        tmp_path / "pairs",
        {"photo": [jpeg(0), jpeg(1)], "good": ["a", "b"], "bad": ["c", "d"], "kind": ["swap", "add"]},
        images=("photo",),
        split="train",
    )
    columns = {"image": "photo", "caption": "good", "negative": "bad", "category": "kind"}
    pairs = read_hub(hub, split="train", form="pairs", columns=columns)
    assert pairs.pairs["category"].to_pylist() == ["swap", "add"]
    hub = publish(
        tmp_path / "quadruples",
        {"image_0": [jpeg(0)], "image_1": [jpeg(1)], "caption_0": ["a b"], "caption_1": ["b a"], "tags": [["Object"]]},
        images=("image_0", "image_1"),
    )
    quadruples = read_hub(hub, form="quadruples").quadruples.to_pylist()
    assert quadruples == [
        {
            "id": "row1",
            "image_0": "image_0/0",
            "image_1": "image_1/0",
            "caption_0": "row1/0",
            "caption_1": "row1/1",
            "tags": ["Object"],
        }
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"split": "dev"}, 'Unknown split "dev"'),
        ({"columns": {"image": "picture"}}, "no column 'picture' for role 'image'; it has image, title"),
        (
            {"columns": {"negative": "title"}},
            "columns has the unknown role 'negative'; form 'captions' has image",
        ),
        ({}, 'no column for caption; it has image, title; name it with columns.caption = "…"'),
        ({"form": "triples"}, "form must be 'captions', 'pairs' or 'quadruples', got 'triples'"),
    ],
)
def test_wrong_splits_columns_and_forms_are_named(tmp_path: Path, options: dict[str, Any], expected: str) -> None:
    hub = publish(tmp_path, {"image": [jpeg(0)], "title": ["a"]}, images=("image",))
    with pytest.raises(RequestError) as caught:
        open_corpus({"reader": "hub", "dataset": hub, **options})
    assert expected in str(caught.value)


def test_file_names_need_their_folder_or_ids_alone(tmp_path: Path) -> None:
    hub = publish(tmp_path / "hub", {"image": ["a.jpg"], "caption": ["red"]})
    with pytest.raises(RequestError, match="column 'image' holds no images; give their folder with images"):
        read_hub(hub)
    assert read_hub(hub, ids_only=True).source is None
    write(tmp_path / "images", {"a.jpg": jpeg(0)})
    assert read_hub(hub, images=tmp_path / "images").images["sha"].null_count == 0


def test_offline_without_a_copy_says_what_to_do_and_for_a_gated_set_how_to_get_access() -> None:
    with pytest.raises(RequestError) as caught:
        open_corpus("winoground")
    message = str(caught.value)
    assert "facebook/winoground" in message
    assert "connect once, or give local files instead" in message or "accept its terms" in message


def test_a_gated_data_set_says_where_to_accept_its_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    from datasets.exceptions import DatasetNotFoundError

    def refuse(*_: object, **__: object) -> None:
        raise DatasetNotFoundError("Dataset 'facebook/winoground' is a gated dataset on the Hub.")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    with pytest.raises(RequestError) as caught:
        open_corpus("winoground")
    assert "accept its terms at https://huggingface.co/datasets/facebook/winoground and log in" in str(caught.value)


def test_a_path_in_a_cell_is_read_below_the_data_sets_own_folder_alone(tmp_path: Path) -> None:
    inside, outside = tmp_path / "set", tmp_path / "secret.jpg"
    write(inside, {"a.jpg": jpeg(0)})
    outside.write_bytes(b"secret")
    cells = [{"bytes": None, "path": str(inside / "a.jpg")}, {"bytes": None, "path": str(outside)},
             {"bytes": None, "path": f"{inside}/../secret.jpg"}, {"bytes": None, "path": None}]  # fmt: skip
    source = HubImages(datasets.Dataset.from_dict({"image": cells}), (inside,))
    assert source.read("image/0") == jpeg(0)
    for key in ("image/1", "image/2", "image/3", "image/9", "other/0", "image/x"):
        with pytest.raises(OSError, match=r"outside|no such|no image"):
            source.read(key)
    assert pickle.loads(pickle.dumps(source)).read("image/0") == jpeg(0)


@pytest.mark.parametrize(
    "path", ["{}/secret.parquet", "../secret.parquet", "../*.parquet", "http://127.0.0.1:9/a.parquet"]
)
def test_a_readme_in_the_hubs_layout_cannot_name_files_outside_its_folder(tmp_path: Path, path: str) -> None:
    datasets.Dataset.from_dict({"caption": ["secret"]}).to_parquet(tmp_path / "secret.parquet")
    files = f"data_files: [{{split: test, path: '{path.format(tmp_path)}'}}]"
    write(tmp_path / "set", {"README.md": f"---\nconfigs:\n- config_name: default\n  {files}\n---\n".encode()})
    with pytest.raises(RequestError, match=r"not in the folder|HTTP"):
        load_split(str(tmp_path / "set"), split="test")


def test_image_columns_are_found_by_type_and_as_raw_structs(tmp_path: Path) -> None:
    raw = datasets.Dataset.from_dict({"image": [{"bytes": jpeg(0), "path": "x"}], "caption": ["a"]})
    (tmp_path / "data").mkdir()
    raw.to_parquet(tmp_path / "data" / "test-00000-of-00001.parquet")
    loaded = load_split(str(tmp_path), split="test")
    assert loaded.images == ("image",)
    assert loaded.source.read("image/0") == jpeg(0)
    assert list(loaded.rows()) == [{"caption": "a"}]


TEXTS = ["a red bus", "two mugs"]


def save(folder: Path, **columns: Any) -> Path:
    """A data set of two images in the column ``pixels`` with two captions, and further columns, by ``save_to_disk``."""
    rows = {"pixels": [{"bytes": jpeg(k), "path": None} for k in (0, 1)], "words": TEXTS, **columns}
    saved = datasets.Dataset.from_dict(rows).cast_column("pixels", datasets.Image())
    saved.save_to_disk(folder)
    return folder


def test_the_only_column_of_images_is_found_by_its_type(tmp_path: Path) -> None:
    folder = save(tmp_path / "saved", image=["1.jpg", "2.jpg"])  # a text, though its name is that of an image column
    corpus = read_hub(str(folder), columns={"caption": "words"})
    assert corpus.source is not None
    assert [corpus.source.read(key) for key in texts(corpus.images["key"])] == [jpeg(0), jpeg(1)]
    assert corpus.captions["text"].to_pylist() == TEXTS
    with pytest.raises(RequestError, match="no column for caption; it has pixels, words"):
        read_hub(str(save(tmp_path / "other")))
    with pytest.raises(RequestError, match="no column 'pixel' for role 'image'; did you mean 'pixels'"):
        read_hub(str(tmp_path / "other"), columns={"image": "pixel", "caption": "words"})


def test_of_two_columns_of_images_one_has_to_be_named(tmp_path: Path) -> None:
    more = datasets.Dataset.load_from_disk(str(save(tmp_path / "saved")))
    more = more.add_column("crops", more.with_format("arrow")["pixels"].to_pylist())  # type: ignore[arg-type]
    more.save_to_disk(tmp_path / "two")
    with pytest.raises(RequestError, match="no column for image; it has pixels, words, crops"):
        read_hub(str(tmp_path / "two"), columns={"caption": "words"})
    corpus = read_hub(str(tmp_path / "two"), columns={"caption": "words", "image": "crops"})
    assert corpus.images["key"].to_pylist() == ["crops/0", "crops/1"]


def test_no_cell_is_decoded_that_is_not_needed(tmp_path: Path) -> None:
    """Sound and video would need torchcodec, which is not installed."""
    folder = save(tmp_path / "saved", sound=[{"bytes": b"RIFF", "path": None}] * 2)
    loaded = datasets.load_from_disk(str(folder)).cast_column("sound", datasets.Audio())
    loaded.save_to_disk(tmp_path / "sound")
    corpus = read_hub(str(tmp_path / "sound"), columns={"caption": "words"})
    assert corpus.captions["text"].to_pylist() == TEXTS


@pytest.mark.parametrize("kind", ["bytes", "struct", "bytes alone in a struct", "paths in a struct", "paths"])
def test_any_parquet_with_images_is_a_corpus(tmp_path: Path, kind: str) -> None:
    (tmp_path / "photos").mkdir()
    for k in (0, 1):
        (tmp_path / "photos" / f"{k}.jpg").write_bytes(jpeg(k))
    cells: dict[str, list[Any]] = {
        "bytes": [jpeg(0), jpeg(1)],
        "struct": [{"bytes": jpeg(k), "path": f"elsewhere/{k}.jpg"} for k in (0, 1)],
        "bytes alone in a struct": [{"bytes": jpeg(k)} for k in (0, 1)],
        "paths in a struct": [{"bytes": None, "path": f"photos/{k}.jpg"} for k in (0, 1)],
        "paths": [f"photos/{k}.jpg" for k in (0, 1)],
    }
    types = {"paths in a struct": pa.struct([("bytes", pa.binary()), ("path", pa.string())])}
    table = pa.table({"image": pa.array(cells[kind], types.get(kind)), "caption": TEXTS})
    pq.write_table(table, tmp_path / "any.parquet")
    corpus = open_corpus(str(tmp_path / "any.parquet"))
    assert corpus.source is not None
    assert [corpus.source.read(key) for key in texts(corpus.images["key"])] == [jpeg(0), jpeg(1)]


def test_a_path_in_a_cell_cannot_leave_the_folder_of_its_table(tmp_path: Path) -> None:
    (tmp_path / "secret.jpg").write_bytes(jpeg(0))
    folder = tmp_path / "inside"
    folder.mkdir()
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    for path in ("../secret.jpg", str(tmp_path / "secret.jpg")):
        pq.write_table(
            pa.table({"image": pa.array([{"bytes": None, "path": path}], kind), "caption": ["x"]}), folder / "t.parquet"
        )
        with pytest.raises(RequestError, match="outside the data set's folders"):
            open_corpus(str(folder / "t.parquet"))
