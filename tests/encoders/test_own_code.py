"""Models that are not checkpoints: two plain functions in a file, and a function that loads, in a file or a module."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from capim.flows.config import run_config
from capim.store.errors import RequestError, WorkError
from capim.store.types import EncoderSpec
from capim.tasks.encoders import (
    ADAPTERS,
    Adapter,
    catalog,
    encode_captions,
    encode_images,
    entry_from,
    load_encoder,
    resolve,
)
from capim.tasks.encoders.checkpoint import digest_of
from capim.tasks.encoders.conformance import check_encoder

PLAIN = """\
import numpy as np

def encode_images(images):
    return np.stack([np.asarray(image.resize((2, 2)), dtype=np.float32).reshape(-1) + 1 for image in images])

def encode_captions(texts):
    return np.array([[1.0 + text.count(letter) for letter in "abcdefghijkl"] for text in texts])
"""
MANY = """\
import torch

def encode_images(images):
    return [torch.ones(2 + image.width % 3, 12) for image in images]

def encode_captions(texts):
    return [torch.arange(12.0).repeat(1 + len(text.split()), 1) for text in texts]
"""
LOADS = """\
class Model:
    def __init__(self, spec):
        self.scale = spec.options["scale"]

    def encode_images(self, images):
        return [[image.width, self.scale] for image in images]

    def encode_captions(self, texts):
        return [[len(text) + 1, self.scale] for text in texts]

def load(spec, *, device, trust_remote_code):
    return Model(spec)

def nothing(spec, *, device, trust_remote_code):
    return 7
"""
BODY = "import numpy as np\ndef encode_images(images): ...\ndef encode_captions(texts):\n    {}"
IMAGES = [Image.new("RGB", (n, 6), (n, 90, 40)) for n in (4, 5, 9)]


def written(folder: Path, text: str, name: str = "my_model.py") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def spec_of(adapter: str, **fields: object) -> EncoderSpec:
    return entry_from("mine", {"adapter": adapter, "dim": 12, **fields}).spec


def test_two_functions_in_a_file_are_an_encoder_that_passes_the_checks(tmp_path) -> None:
    spec = spec_of(written(tmp_path, PLAIN))
    encoder = load_encoder(spec)
    found = encode_captions(encoder, ["abba", "dada"])
    np.testing.assert_allclose(found.values[1], np.array([3, 1, 1, 3] + [1] * 8) / np.sqrt(28), rtol=1e-6)
    np.testing.assert_allclose(found.norms[1], np.sqrt(28), rtol=1e-6)
    assert encode_images(encoder, IMAGES).values.shape == (3, 12)
    failed = {each.check for each in check_encoder(spec) if each.result == "fail"}
    assert failed <= {"matching pairs"}


def test_a_list_of_matrices_makes_an_encoder_of_many_vectors(tmp_path) -> None:
    encoder = load_encoder(spec_of(written(tmp_path, MANY), vectors="multi"))
    found = encode_captions(encoder, ["a", "two words"])
    assert found.counts.tolist() == [2, 3]
    assert found.values.shape == (5, 12)
    assert encode_images(encoder, IMAGES).counts.tolist() == [3, 4, 2]
    assert encoder.spec.storage == "float16"


@pytest.mark.parametrize(
    ("vectors", "body", "message"),
    [
        ("single", "return np.ones((2, 5))", r"encode_captions of .*py returned shape \(2, 5\), expected \(2, 12\)"),
        ("single", "return np.ones((1, 12))", r"returned shape \(1, 12\), expected \(2, 12\): each row is a caption"),
        ("single", "return np.ones(12)", r"returned shape \(12,\), expected \(2, 12\)"),
        ("single", "return np.ones((len(texts), 12)) * [[1], [np.nan]]", "only zeros in 1 of 2 rows, first in row 1"),
        ("single", "return np.zeros((len(texts), 12))", "only zeros in 2 of 2 rows, first in row 0"),
        ("single", "return None", "returned NoneType, expected an array of numbers"),
        ("single", "return texts", "returned list, expected an array of numbers"),
        ("single", "return {}[texts[0]]", "failed with KeyError: one, at .*my_model.py line 4: return {}"),
        ("multi", "return [np.ones((2, 12))]", "encode_captions of .* returned 1 arrays for 2 captions"),
        ("multi", "return 3", "returned int, expected a list of arrays"),
        ("multi", "return np.ones((2, 12))",
         r"returned shape \(12,\), expected \(vectors, 12\): .* vector of caption 0"),
        ("multi", "return [np.ones((1, 12)), np.ones((0, 12))]", r"returned shape \(0, 12\).* a vector of caption 1"),
    ],
)  # fmt: skip
def test_what_a_function_must_not_return_names_the_function_and_the_item(vectors, body, message, tmp_path) -> None:
    file = written(tmp_path, BODY.format(body))
    with pytest.raises(WorkError, match=message):
        encode_captions(load_encoder(spec_of(file, vectors=vectors)), ["one", "two"])


@pytest.mark.parametrize("view", ["[::-1]", "[:, ::-1]", ".astype('>f4')", ".T.copy().T"])
def test_a_function_may_return_any_view_of_its_array(view: str, tmp_path: Path) -> None:
    body = f"return (np.arange(12.0 * len(texts)).reshape(len(texts), 12) + 1){view}"
    file = written(tmp_path, BODY.format(body))
    expected = eval(f"(np.arange(24.0).reshape(2, 12) + 1){view}")
    found = encode_captions(load_encoder(spec_of(file)), ["one", "two"]).values
    np.testing.assert_allclose(found, expected / np.linalg.norm(expected, axis=1, keepdims=True), rtol=1e-6)


def test_a_suite_names_a_function_that_loads_beside_it_or_in_a_module(tmp_path, monkeypatch) -> None:
    written(tmp_path, LOADS, "own_loader_module.py")
    row = '[[encoder]]\nname = "{}"\nadapter = "own_loader_module{}:load"\ndim = 2\noptions.scale = 3\n'
    suite = written(tmp_path, row.format("a", ".py") + row.format("b", ""), "suite.toml")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_loader_module", raising=False)
    digest = digest_of(tmp_path / "own_loader_module.py")
    rows = {
        row["name"]: entry_from(row["name"], row).spec
        for row in run_config({}, suite).encoders
        if isinstance(row, dict)
    }
    for spec, pinned in ((rows["a"], "own_loader_module.py"), (rows["b"], "own_loader_module")):
        encoder = load_encoder(spec)
        assert encoder.spec.checkpoint == encoder.spec.adapter
        assert encoder.spec.revision == f"{pinned}-{digest}"
        assert encoder.spec.options == {"scale": 3, f"revision:{pinned}": digest}
        np.testing.assert_allclose(encode_captions(encoder, ["abc"]).values, [[0.8, 0.6]])
    first = resolve(rows["a"])
    written(tmp_path, LOADS + "\n", "own_loader_module.py")
    with pytest.raises(RequestError, match=r"was made with own_loader_module\.py sha256-.* is here"):
        resolve(first)


@pytest.mark.parametrize("in_table", [False, True])
@pytest.mark.parametrize("form", ["{folder}/pack/own.py:load", "pack.own:load", "theirs", "{folder}/pack/own.py"])
def test_files_that_own_code_of_any_form_opens_count(form, in_table, tmp_path, monkeypatch) -> None:
    (tmp_path / "pack" / "weights").mkdir(parents=True)
    written(tmp_path, "", "pack/__init__.py")
    named = ["a.pt", "weights", "../c.bin"]
    written(tmp_path, LOADS if in_table else f"files = {named}\n{LOADS}", "pack/own.py")
    opened = [tmp_path / name for name in ("pack/a.pt", "pack/weights/b.pt", "c.bin")]
    for file in opened:
        file.write_text("1")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(ADAPTERS, "theirs", Adapter(title="theirs", module="pack.own", package="p", release="1.0"))
    # as an installed package, which no change of a file gives another version
    monkeypatch.setattr("capim.tasks.encoders.identity._packages", lambda: {"pack": ["p"]})
    monkeypatch.setattr("capim.tasks.encoders.identity.version", lambda _: "1.0")
    spec = spec_of(form.format(folder=tmp_path), dim=2, **{"files": named} if in_table else {})
    seen = {(first := resolve(spec)).fingerprint}
    assert resolve(first) == resolve(spec) == first
    for file in opened:
        file.write_text("2")
        seen.add(resolve(spec).fingerprint)
        with pytest.raises(RequestError, match="the files have changed"):
            resolve(first)
    assert len(seen) == 4, "each of the files counts"
    opened[0].unlink()
    with pytest.raises(RequestError, match=r"own\.py needs the file 'a\.pt', which does not exist"):
        resolve(spec)


def test_an_encoder_of_a_package_that_has_a_name_of_ours_or_a_faulty_row_is_left_out(monkeypatch, caplog) -> None:
    rows: dict[str, dict[str, object]] = {"tiny-clip": {"dim": 4}, "without-dim": {}, "theirs": {"dim": 4}}
    theirs = Adapter(title="theirs", module="json", encoders=rows, package="their-package", release="1.0")
    monkeypatch.setitem(ADAPTERS, "theirs", theirs)
    catalog.cache_clear()
    try:
        assert catalog()["theirs"].checkpoint == "theirs"
        assert catalog()["tiny-clip"].adapter == "hf_dual"
        assert "without-dim" not in catalog()
    finally:
        catalog.cache_clear()
    assert [record.getMessage() for record in caplog.records] == [
        "package their-package, adapter 'theirs': encoder 'tiny-clip': the name is taken by capim; the row is left out",
        "package their-package, adapter 'theirs': encoder 'without-dim': 'dim' is missing; the row is left out",
    ]


@pytest.mark.parametrize(
    ("adapter", "message"),
    [
        ("no_such_module:load", "there is no module 'no_such_module'; install its package, or name a file"),
        ("json:no_such_function", "json has no function 'no_such_function'"),
        ("{folder}/none.py:load", "there is no file .*none.py"),
        (
            "{folder}/own.py:nothing",
            "returned int, which is not an Encoder and has no encode_images and no encode_captions",
        ),
        ("hf_duel", "adapter 'hf_duel' is unknown; did you mean 'hf_dual'.* or name your own code: my_model.py"),
        ("hf_dual", "'checkpoint' is missing"),
    ],
)
def test_an_adapter_that_cannot_be_used_says_what_is_wrong(adapter, message, tmp_path) -> None:
    written(tmp_path, LOADS, "own.py")
    with pytest.raises(RequestError, match=message):
        load_encoder(spec_of(adapter.format(folder=tmp_path), dim=2))
