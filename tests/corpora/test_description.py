from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from capim.store.errors import RequestError
from capim.tasks.corpora import CORPORA, open_corpus
from capim.tasks.corpora.description import description_model, load_reader, reader_call
from capim.tasks.corpora.naming import list_corpora


def refusal(what: Any, **options: Any) -> str:
    with pytest.raises(RequestError) as caught:
        open_corpus(what, **options)
    return str(caught.value)


def test_a_toml_file_describes_a_corpus_with_paths_from_its_own_folder(coco_folder: Path) -> None:
    description = coco_folder.parent / "my-photos.toml"
    description.write_text('reader = "coco-captions"\nroot = "three"\nlicence = "CC0"\n')
    corpus = open_corpus(description)
    assert (corpus.name, corpus.licence, corpus.images.num_rows) == ("my-photos", "CC0", 3)
    description.write_text('reader = "coco-captions"\nroot = "three"\nname = "other"\nsample = 2\nsample_seed = 7\n')
    assert open_corpus(description).name == "other-sample2-seed7"


def test_a_corpus_of_the_field_keeps_its_name_in_a_description(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text('reader = "shapes"\nn_scenes = 3\n')
    assert open_corpus(tmp_path / "small.toml").name == "shapes"


def test_a_folder_with_a_corpus_toml_is_described_by_it(coco_folder: Path) -> None:
    (coco_folder / "corpus.toml").write_text('reader = "coco-captions"\nroot = "."\nname = "described"\n')
    assert open_corpus(coco_folder).name == "described"


def test_a_captions_file_is_opened_by_its_suffix(coco_folder: Path) -> None:
    assert open_corpus(coco_folder / "captions.json").images.num_rows == 3
    assert reader_call(coco_folder / "captions.json").reader is load_reader("coco-captions")


def test_a_mapping_takes_its_paths_from_a_base(coco_folder: Path) -> None:
    what = {"reader": "coco-captions", "root": "three"}
    assert open_corpus(what, base=coco_folder.parent).images.num_rows == 3
    assert "does not exist" in refusal(what, base=coco_folder)


def test_a_corpus_of_the_table_can_be_given_another_name() -> None:
    assert open_corpus({"reader": "shapes", "n_scenes": 3, "name": "mine"}).name == "mine"


def test_all_faults_of_a_description_are_reported_together(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(
        'reader = "coco-captions"\nname = "a b"\nsample = 0\nsample_seed = "x"\nimage = "photos"\nquux = 1\n'
    )
    message = refusal(tmp_path / "c.toml")
    for expected in (
        "name must be 1 to 120 ASCII letters, digits, '.', '_' or '-', the first a letter or digit, got 'a b'",
        "sample must be greater than or equal to 1, got 0",
        "sample_seed must be a whole number, got 'x'",
        "unknown option 'image' of reader 'coco-captions'; did you mean 'images'?",
        "unknown option 'quux' of reader 'coco-captions'; it takes name, sample, sample_seed, root, images, captions",
        "missing option 'root'; reader 'coco-captions' needs root (the folder)",
    ):
        assert expected in message


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('root = "."', "no reader is named; set reader to one of shapes"),
        ('reader = "csv"\nroot = "."', "reader 'csv' is unknown; set reader to one of shapes"),
        ("reader = ", "not TOML"),
        ('reader = "shapes"\nn_scenes = "many"', "n_scenes must be a whole number, got 'many'"),
    ],
)
def test_a_description_that_cannot_be_used_is_refused(tmp_path: Path, content: str, expected: str) -> None:
    (tmp_path / "c.toml").write_text(content)
    assert expected in refusal(tmp_path / "c.toml")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('languages = "de"', "languages must be a list of texts, got 'de'"),
        ('missing = "maybe"', "missing must be 'error' or 'skip', got 'maybe'"),
        ("images = 3", "images must be a path or a list of paths, got 3"),
        ("revision = 7", "revision must be text, got 7"),
    ],
)
def test_an_option_of_the_wrong_kind_is_named_before_anything_is_read(tmp_path: Path, line: str, expected: str) -> None:
    (tmp_path / "c.toml").write_text(f'reader = "xflickrco"\nroot = "nowhere"\n{line}\n')
    assert refusal(tmp_path / "c.toml") == f"{tmp_path / 'c.toml'}: {expected}"


@pytest.mark.parametrize("name", list(CORPORA))
def test_the_options_of_every_reader_can_be_checked_and_have_right_defaults(name: str) -> None:
    model = description_model(load_reader(name))
    assert set(inspect.signature(load_reader(name)).parameters) <= set(model.model_fields)
    for option, field in model.model_fields.items():
        if not field.is_required():
            model.__pydantic_validator__.validate_assignment(model.model_construct(), option, field.default)


def test_options_that_are_tables_and_switches_are_checked_too(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text('reader = "table"\nroot = "x.csv"\nids_only = "yes"\ncolumns = { image = 3 }\n')
    message = refusal(tmp_path / "c.toml")
    assert "ids_only must be true or false, got 'yes'" in message
    assert "columns must be a table of texts, got {'image': 3}" in message


def test_unknown_names_and_paths_are_told_apart() -> None:
    assert "did you mean 'winoground'?" in refusal("winogroud")
    assert "or give a folder of images with captions, or a TOML file" in refusal("something")
    assert refusal("./nowhere").endswith(f"no such folder or file in {Path.cwd()}; check the path")
    assert "no such folder or file" in refusal("nowhere/c.toml")


def test_files_of_other_kinds_are_refused(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("reader: shapes")
    assert "got .yaml" in refusal(tmp_path / "c.yaml")
    assert "no corpus found in it; looked for corpus.toml, captions.json" in refusal(tmp_path)


def test_the_list_names_for_every_corpus_what_it_is_and_whether_it_is_available() -> None:
    rows = {row["name"]: row for row in list_corpora()}
    assert list(rows) == list(CORPORA)
    assert rows["shapes"]["available"] == "yes"
    assert rows["sugarcrepe"]["available"] == "with root"
    assert rows["winoground"]["available"] in {
        "no: not in the hub cache, and offline; or with root",
        "from the hub, or with root",
        "yes (hub cache)",
    }
    assert "terms accepted" in rows["winoground"]["needs"]
    assert rows["coco-sm"]["languages"] == "21 languages"
    assert rows["table"]["languages"] == "any"
    assert all(all(row.values()) for row in rows.values())


def test_importing_the_table_imports_nothing_heavy() -> None:
    heavy = ("torch", "pandas", "pyarrow", "datasets", "PIL", "numpy", "huggingface_hub", "prefect", "lancedb")
    code = f"import sys, capim.tasks.corpora; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
