"""Hub data sets, made offline in the hub's layout and read through ``datasets`` itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from capim.store.errors import RequestError
from capim.store.types import Corpus
from capim.tasks.corpora.description import open_corpus
from capim.tasks.corpora.readers import karpathy
from capim.tasks.corpora.readers.hub import load_split, read_hub
from capim.tasks.corpora.readers.published_files import ARO_HUB, read_aro
from tests.corpora import hub_copies, local_copies
from tests.corpora.own_data import contents, jpeg, publish, refusal, write

Local = Callable[..., tuple[Corpus, Path, list[bytes]]]


@pytest.fixture
def local(tmp_path: Path) -> Local:
    """The corpus read from the local copy of its published files, their folder, and its images."""

    def read_copy(name: str, **options: Any) -> tuple[Corpus, Path, list[bytes]]:
        copy = local_copies.copy_of(name, tmp_path / "copy")
        assert copy is not None
        corpus = open_corpus({**copy.description, **options})
        return corpus, tmp_path / "copy", contents(corpus)

    return read_copy


def same(corpus: Corpus, **description: Any) -> bool:
    """True if a description opens the same; small files are no published set, so that its name may be another."""
    return open_corpus({"name": corpus.name, **description}).fingerprint == corpus.fingerprint


# Of every corpus that is read from files and from the hub: one fingerprint.


PLACES = {"coco-karpathy": ".", "sugarcrepe-pp": "val2017"}  # of images that the hub does not have
OPTIONS: dict[str, dict[str, Any]] = {"crossmodal3600": {"languages": ["en", "quz", "zh"]}}


@pytest.mark.parametrize("name", ["flickr30k-karpathy", "winoground", "xflickrco", "crossmodal3600", *PLACES])
def test_a_corpus_is_the_same_from_the_hub(name: str, tmp_path: Path, local: Local) -> None:
    options = OPTIONS.get(name, {})
    corpus, root, pictures = local(name, **options)
    hub_copies.write(name, tmp_path / "hub", root, pictures)
    if name == "winoground":
        options = {"tags": str(root / "tags.json")}
    if name in PLACES:
        options = {"images": str(root / PLACES[name])}
    assert same(corpus, reader=name, dataset=str(tmp_path / "hub"), **options)


def test_images_of_coco_karpathy_come_from_the_cache_or_the_data_set(
    tmp_path: Path, local: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    from datasets import load_dataset

    corpus, root, pictures = local("coco-karpathy")
    hub_copies.write("coco-karpathy", tmp_path / "plain", root, pictures)
    plain = str(tmp_path / "plain")
    monkeypatch.setattr(karpathy, "CACHE", root)
    assert same(corpus, reader="coco-karpathy", dataset=plain), "as if fetched before"
    columns = load_dataset(plain, split="test").to_dict()
    with_images = publish(tmp_path / "with", {**columns, "image": pictures})
    assert same(corpus, reader="coco-karpathy", dataset=with_images)


def test_bivlc_without_images_is_refused(tmp_path: Path, local: Local) -> None:
    corpus, root, _ = local("bivlc")
    assert same(corpus, reader="bivlc", dataset=str(root))
    row = {"caption": ["x"], "negative_caption": ["y"], "type": ["add"], "subtype": ["obj"]}
    without = publish(tmp_path / "without", row)
    with pytest.raises(RequestError, match="no column 'image', 'negative_image'; it has 'caption'"):
        open_corpus({"reader": "bivlc", "root": without})


def test_aro_order_gives_four_pairs_for_each_caption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {f"hard_text_{n}": [f"wrong {n}"] for n in range(1, 5)}
    hub = publish(tmp_path, {"images": [jpeg(0)], "correct_caption": ["right"], **wrong})
    monkeypatch.setitem(ARO_HUB, "coco-order", hub)
    corpus = read_aro(part="coco-order")
    kinds = ("nouns_and_adj", "allbut_nouns_and_adj", "within_trigrams", "trigrams")
    assert corpus.pairs["category"].to_pylist() == [f"shuffle_{kind}" for kind in kinds]
    assert corpus.pairs["caption_id"].unique().to_pylist() == ["0"]


def test_pairs_and_quadruples_come_from_named_columns(tmp_path: Path) -> None:
    rows = {"photo": [jpeg(0), jpeg(1)], "good": ["a", "b"], "bad": ["c", "d"], "kind": ["swap", "add"]}
    columns = {"image": "photo", "caption": "good", "negative": "bad", "category": "kind"}
    pairs = read_hub(publish(tmp_path / "pairs", rows, split="train"), split="train", form="pairs", columns=columns)
    assert pairs.pairs["category"].to_pylist() == ["swap", "add"]
    texts = {"caption_0": ["a b"], "caption_1": ["b a"], "tags": [["Object"]]}
    rows = {"image_0": [jpeg(0)], "image_1": [jpeg(1)], **texts}
    (row,) = read_hub(publish(tmp_path / "quadruples", rows), form="quadruples").quadruples.to_pylist()
    ids = {"image_0": "image_0/0", "image_1": "image_1/0", "caption_0": "row1/0", "caption_1": "row1/1"}
    assert row == {"id": "row1", **ids, "tags": ["Object"]}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"split": "dev"}, 'Unknown split "dev"'),
        ({"columns": {"negative": "title"}}, "columns has the unknown role 'negative'; form 'captions' has image"),
        ({}, 'no column for caption; it has image, title; name it with columns.caption = "…"'),
    ],
)
def test_wrong_splits_columns_and_forms_are_named(tmp_path: Path, options: dict[str, Any], expected: str) -> None:
    hub = publish(tmp_path, {"image": [jpeg(0)], "title": ["a"]})
    assert expected in refusal({"reader": "hub", "dataset": hub, **options})


def test_images_with_labels_in_parquet_are_refused_with_the_way(tmp_path: Path) -> None:
    folder = publish(tmp_path, {"image": [jpeg(0), jpeg(1)], "label": [0, 1]})
    file = f"{folder}/data/test-00000-of-00001.parquet"
    for what in (folder, file, {"reader": "labels", "root": file}):
        assert "write each to a file in a folder of its class (docs/labels.md)" in refusal(what)


def test_file_names_need_their_folder_or_ids_alone(tmp_path: Path) -> None:
    hub = publish(tmp_path / "hub", {"image": ["a.jpg"], "caption": ["red"]})
    with pytest.raises(RequestError, match="column 'image' holds no images; give their folder with images"):
        read_hub(hub)
    assert read_hub(hub, ids_only=True).source is None
    write(tmp_path / "images", {"a.jpg": jpeg(0)})
    assert read_hub(hub, images=tmp_path / "images").images["sha"].null_count == 0


def test_offline_without_a_copy_says_what_to_do_and_for_a_gated_set_how_to_get_access() -> None:
    message = refusal("winoground")
    assert "facebook/winoground" in message
    assert "connect once, or give local files instead" in message or "accept its terms" in message


def test_a_gated_data_set_says_where_to_accept_its_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets
    from datasets.exceptions import DatasetNotFoundError

    def refuse(*_: object, **__: object) -> None:
        raise DatasetNotFoundError("Dataset 'facebook/winoground' is a gated dataset on the Hub.")

    monkeypatch.setattr(datasets, "load_dataset_builder", refuse)
    assert "accept its terms at https://huggingface.co/datasets/facebook/winoground and log in" in refusal("winoground")


@pytest.mark.parametrize(
    "path", ["{}/secret.parquet", "../secret.parquet", "../*.parquet", "http://127.0.0.1:9/a.parquet"]
)
def test_a_readme_in_the_hubs_layout_cannot_name_files_outside_its_folder(tmp_path: Path, path: str) -> None:
    from datasets import Dataset

    Dataset.from_dict({"caption": ["secret"]}).to_parquet(tmp_path / "secret.parquet")
    files = f"data_files: [{{split: test, path: '{path.format(tmp_path)}'}}]"
    write(tmp_path / "set", {"README.md": f"---\nconfigs:\n- config_name: default\n  {files}\n---\n".encode()})
    with pytest.raises(RequestError, match=r"not in the folder|HTTP"):
        load_split(str(tmp_path / "set"), split="test")


TEXTS = ["a red bus", "two mugs"]


def save(folder: Path, **columns: Any) -> Path:
    """A data set of two images in the column ``pixels`` with two captions, and further columns, by ``save_to_disk``."""
    from datasets import Dataset, Image

    rows = {"pixels": [{"bytes": jpeg(k), "path": None} for k in (0, 1)], "words": TEXTS, **columns}
    saved = Dataset.from_dict(rows).cast_column("pixels", Image())
    saved.save_to_disk(folder)
    return folder


def test_the_only_column_of_images_is_found_by_its_type(tmp_path: Path) -> None:
    folder = save(tmp_path / "saved", image=["1.jpg", "2.jpg"])  # a text, though its name is that of an image column
    corpus = read_hub(str(folder), columns={"caption": "words"})
    assert contents(corpus) == [jpeg(0), jpeg(1)]
    assert corpus.captions["text"].to_pylist() == TEXTS
    with pytest.raises(RequestError, match="no column 'pixel' for role 'image'; did you mean 'pixels'"):
        read_hub(str(folder), columns={"image": "pixel", "caption": "words"})


def test_of_two_columns_of_images_one_has_to_be_named(tmp_path: Path) -> None:
    from datasets import Dataset

    more = Dataset.load_from_disk(str(save(tmp_path / "saved")))
    more = more.add_column("crops", more.with_format("arrow")["pixels"].to_pylist())  # type: ignore[arg-type]
    more.save_to_disk(tmp_path / "two")
    with pytest.raises(RequestError, match="no column for image; it has pixels, words, crops"):
        read_hub(str(tmp_path / "two"), columns={"caption": "words"})
    corpus = read_hub(str(tmp_path / "two"), columns={"caption": "words", "image": "crops"})
    assert corpus.images["key"].to_pylist() == ["crops/0", "crops/1"]


def test_no_cell_is_decoded_that_is_not_needed(tmp_path: Path) -> None:
    """Sound and video would need torchcodec, which is not installed."""
    from datasets import Audio, load_from_disk

    folder = save(tmp_path / "saved", sound=[{"bytes": b"RIFF", "path": None}] * 2)
    loaded = load_from_disk(str(folder)).cast_column("sound", Audio())
    loaded.save_to_disk(tmp_path / "sound")
    corpus = read_hub(str(tmp_path / "sound"), columns={"caption": "words"})
    assert corpus.captions["text"].to_pylist() == TEXTS


@pytest.mark.parametrize("kind", ["bytes", "struct", "bytes alone in a struct", "paths in a struct", "paths"])
def test_any_parquet_with_images_is_a_corpus(tmp_path: Path, kind: str) -> None:
    write(tmp_path, {f"photos/{k}.jpg": jpeg(k) for k in (0, 1)})
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
    assert contents(corpus) == contents(open_corpus(str(tmp_path))) == [jpeg(0), jpeg(1)]


def test_a_split_of_a_parquet_file_is_that_of_its_column(tmp_path: Path) -> None:
    table = pa.table({"image": [jpeg(0), jpeg(1)], "caption": TEXTS, "split": ["train", "test"]})
    pq.write_table(table, tmp_path / "parted.parquet")
    pq.write_table(table.drop_columns("split"), tmp_path / "whole.parquet")
    corpus = read_hub(str(tmp_path / "parted.parquet"), split="train")
    assert corpus.captions["text"].to_pylist() == TEXTS[:1]
    with pytest.raises(RequestError, match="no column 'split' for split = 'train'; it has image, caption"):
        read_hub(str(tmp_path / "whole.parquet"), split="train")


def test_a_damaged_parquet_file_is_named_with_what_to_do_here(tmp_path: Path) -> None:
    pq.write_table(pa.table({"image": [jpeg(0), jpeg(1)], "caption": TEXTS}), tmp_path / "00000.parquet")
    write(tmp_path, {"00001.parquet": "PAR1 cut short"})
    message = refusal({"reader": "hub", "dataset": str(tmp_path)})
    assert "copy" in message
    assert "hf download" not in message


def test_a_path_in_a_cell_cannot_leave_the_folder_of_its_table(tmp_path: Path) -> None:
    write(tmp_path, {"secret.jpg": jpeg(0), "inside/a.jpg": jpeg(1)})
    file = tmp_path / "inside" / "t.parquet"
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    for path in ("../secret.jpg", f"{tmp_path}/secret.jpg", f"{tmp_path}/inside/../secret.jpg"):
        pq.write_table(pa.table({"image": pa.array([{"bytes": None, "path": path}], kind), "caption": ["x"]}), file)
        assert "outside the data set's folders" in refusal(str(file))
    cells = [{"bytes": None, "path": f"{tmp_path}/inside/a.jpg"}, {"bytes": None, "path": None}]
    pq.write_table(pa.table({"image": pa.array(cells, kind), "caption": ["x", "y"]}), file)
    source = load_split(str(file), split=None)
    assert source.read("image/0") == jpeg(1)
    for key in ("image/1", "image/2", "image/x", "other/0"):
        with pytest.raises(OSError, match=r"no such|no image"):
            source.read(key)
