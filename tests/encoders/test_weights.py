"""Model and files hold the same weights, whatever loads them: a suite of mutations over all families.

A class of tensors is a name with its numbers left out. Of every class in the files of a family one tensor, or two that
are exchanged, is changed; all of them at once, so that every one must be named.
"""

from __future__ import annotations

import pickle
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from capim.store import EmbeddingStore
from capim.store.errors import WorkError
from capim.store.schema import Weights
from capim.store.types import EncoderSpec
from capim.store.upkeep.removal import drop
from capim.tasks.embed import check_weights
from capim.tasks.encoders import Encoder, load_encoder, resolve
from capim.tasks.encoders.checkpoint import weight_files
from capim.tasks.encoders.weights import MissingWeightsError, checksum_of, read_tensors, weights_of
from tests.encoders.families.table import CASES

_WHERE = tuple[int, str, str]  # a file by its number, a tower of it or nothing, a name


@dataclass
class Files:
    """The weights of a checkpoint in folders of its own, which can be changed and written."""

    spec: EncoderSpec
    remote_code: bool

    def __post_init__(self) -> None:
        self.files = weight_files(resolve(self.spec))
        self.tensors: dict[_WHERE, Tensor] = {}
        for number, file in enumerate(self.files):
            for name, contents in read_tensors(file).items():
                towers = {f"{name}": contents} if isinstance(contents, Mapping) else {"": {name: contents}}
                for tower, tensors in towers.items():
                    # of little vectors many are equal, so that to exchange them would change nothing
                    self.tensors |= {
                        (number, tower, key): _distinct(tensor.detach(), key) for key, tensor in tensors.items()
                    }

    @property
    def classes(self) -> dict[_WHERE, list[_WHERE]]:
        """The tensors of each class, in the order of the layers."""
        found: dict[Any, list[_WHERE]] = {}
        for number, tower, name in self.tensors:
            found.setdefault((number, tower, re.sub(r"\d+", "*", name)), []).append((number, tower, name))
        return found

    def write(self, tensors: Mapping[_WHERE, Tensor]) -> None:
        for number, file in enumerate(self.files):
            contents: dict[str, Any] = {}
            for (where, tower, name), tensor in tensors.items():
                if where == number:
                    (contents.setdefault(tower, {}) if tower else contents)[name] = tensor.clone().contiguous()
            if file.suffix == ".safetensors":
                save_file(contents, file, metadata={"format": "pt"})
            else:
                torch.save(contents, file)

    def load(self) -> Encoder:
        return load_encoder(self.spec, trust_remote_code=self.remote_code)

    def refused(self, tensors: Mapping[_WHERE, Tensor], fault: str) -> list[str]:
        """The names for which these tensors are refused, with this fault."""
        self.write(tensors)
        with pytest.raises(MissingWeightsError) as caught:
            self.load()
        return [name for name, said in caught.value.faults.items() if fault in said]


def _distinct(tensor: Tensor, name: str) -> Tensor:
    if tensor.ndim != 1 or not tensor.is_floating_point():
        return tensor.clone()
    noise = torch.randn(tensor.shape, generator=torch.Generator().manual_seed(len(name) + sum(map(ord, name))))
    return (tensor + 0.01 * noise).to(tensor.dtype)


Change = Callable[[dict[_WHERE, Tensor], _WHERE], None]


def removed(tensors: dict[_WHERE, Tensor], where: _WHERE) -> None:
    del tensors[where]


def renamed(tensors: dict[_WHERE, Tensor], where: _WHERE) -> None:
    number, tower, name = where
    first, _, last = name.rpartition(".")
    tensors[number, tower, f"{first}_old.{last}" if first else f"{last}_old"] = tensors.pop(where)


def reshaped(tensors: dict[_WHERE, Tensor], where: _WHERE) -> None:
    tensor = tensors[where]
    tensors[where] = tensor.expand(2) if tensor.ndim == 0 else torch.cat([tensor, tensor[:1]])


def retyped(tensors: dict[_WHERE, Tensor], where: _WHERE) -> None:
    tensors[where] = (tensors[where] * 100).to(torch.int64)


TAKEN_APART = ("tipsv2",)
"""Families whose tensors are converted: one of a file is several of the model, under other names."""
NOT_PUBLISHED = {"temperature"}
"""What the files of such a family do not hold: it is missing wherever something is."""
REFUSED: tuple[tuple[Change, str], ...] = (
    (removed, "missing"),
    (renamed, "missing"),
    (reshaped, "in the files"),
    (retyped, "int64 in the files"),
)


def ends(names: Iterator[str] | list[str]) -> Counter[str]:
    """The last part of each name: a loader puts modules before it and may rename these."""
    return Counter(name.replace(".default.weight", ".weight").rpartition(".")[2] for name in names)


def names_in_model(files: Files, changed: list[_WHERE]) -> set[str]:
    """The names of these tensors in the model; each is removed alone, which has to be noticed."""
    names = set(NOT_PUBLISHED)
    for where in changed:
        tensors = {other: tensor for other, tensor in files.tensors.items() if other != where}
        if where[2].endswith("mask_token"):  # of images in training alone
            files.write(tensors)
            lost = {name for name, (_, tensor) in weights_of(files.load()).items() if tensor.isnan().all()}
            assert any(name.endswith("mask_token") for name in lost)
        else:
            lost = {*files.refused(tensors, "missing")}
        assert lost - names, where
        names |= lost
    return names - NOT_PUBLISHED


@pytest.fixture
def files(request: pytest.FixtureRequest, copied_family) -> Files:
    name = request.param
    return Files(copied_family(name, base=True), CASES[name].remote_code)


@pytest.mark.slow  # a suite of loads for every family
@pytest.mark.parametrize("files", CASES, indirect=True)
def test_no_change_of_a_weight_in_a_file_is_silent(files: Files) -> None:
    whole, classes = files.tensors, files.classes
    files.write(whole)
    encoder, revision = files.load(), resolve(files.spec).revision
    checksum = checksum_of(encoder)
    changed = [members[0] for members in classes.values() if whole[members[0]].is_floating_point()]
    in_model = names_in_model(files, changed) if files.spec.name in TAKEN_APART else set()
    for change, fault in REFUSED:
        for part in {where[:2] for where in changed}:  # a library stops at the first file or tower that is wrong
            tensors, of_part = dict(whole), [where for where in changed if where[:2] == part]
            for where in of_part:
                change(tensors, where)
            named = files.refused(tensors, fault)
            if in_model and change is not retyped:
                assert {*named} - NOT_PUBLISHED == in_model, change
            else:
                assert ends(named) == ends([name for *_, name in of_part]), (change, part, named)
    files.write({where: tensor.half() if tensor.is_floating_point() else tensor for where, tensor in whole.items()})
    assert checksum_of(files.load()) != checksum
    tensors, pairs = dict(whole), [members[:2] for members in classes.values() if len(members) > 1]
    pairs = [[a, b] for a, b in pairs if whole[a].shape == whole[b].shape and not whole[a].equal(whole[b])]
    for one, other in pairs:
        tensors[one], tensors[other] = whole[other], whole[one]
    files.write(tensors)
    if pairs:
        assert checksum_of(files.load()) != checksum
        assert resolve(files.spec).revision != revision or any(number for (number, *_), _ in pairs)


def test_two_processes_with_different_weights_do_not_fill_one_set(family, tmp_path) -> None:
    store = EmbeddingStore.open(tmp_path / "store", create=True)
    encoder = load_encoder(family("clip"))
    store.write_encoder(encoder.spec)
    for run in ("first", "second"):
        check_weights(store, encoder, run=run)
    [row] = store.all(Weights)
    assert (row.checksum, row.run) == (checksum_of(encoder), "first")
    with torch.no_grad():
        next(iter(encoder.modules[0].parameters())).view(-1)[0] += 1e-3
    same = "with the same versions of all libraries"
    with pytest.raises(
        WorkError, match=rf"not those that encoded .* was {row.checksum} .*{same}.*--encoder clip --yes"
    ):
        check_weights(store, encoder, run="third")
    drop(store, encoder=encoder.spec.fingerprint, dry_run=False)
    check_weights(store, encoder, run="fourth")


def test_a_buffer_that_a_library_left_uninitialised_is_noticed_and_a_computed_one_may_round(family) -> None:
    encoder = load_encoder(family("colqwen2"))
    checksum = checksum_of(encoder)
    buffers = dict(encoder.modules[0].named_buffers())
    buffers[next(name for name in buffers if name.endswith("inv_freq"))].mul_(1 + 1e-7)
    assert checksum_of(encoder) == checksum
    encoder.modules[0].register_buffer("frequencies", torch.zeros(3), persistent=False)
    assert checksum_of(encoder) != checksum


def test_weights_in_the_files_that_the_model_has_no_place_for_are_named_and_may_be_allowed(copied_family) -> None:
    files = Files(copied_family("clip"), remote_code=False)
    files.write(
        files.tensors | {(0, "", "decoder.0.weight"): torch.ones(2, 2), (0, "", "x.position_ids"): torch.ones(3)}
    )
    with pytest.raises(MissingWeightsError, match=r"1 weights in .* not in the model \(decoder.0.weight\)") as caught:
        files.load()
    table = 'options = { unused_weights = "decoder.0.weight" }'
    assert f"if no vector needs them, say so in its table, with * for any text: {table}" in str(caught.value)
    allowed = replace(files.spec, options={"unused_weights": "nothing.*, decoder.*"})
    assert load_encoder(allowed).spec.fingerprint == resolve(files.spec).fingerprint


def test_a_checkpoint_of_its_training_below_the_folder_of_a_model_is_no_part_of_it(copied_family, tmp_path) -> None:
    spec = copied_family("sentence-transformers")
    file = next((tmp_path / "model").rglob("model.safetensors"))
    older = tmp_path / "model" / "checkpoint-100"
    older.mkdir()
    save_file({f"optimizer.{name}": tensor + 1 for name, tensor in read_tensors(file).items()}, older / file.name)
    assert load_encoder(spec)


def test_the_error_of_missing_weights_comes_back_from_another_process() -> None:
    error = pickle.loads(pickle.dumps(MissingWeightsError("m: 1 weight is missing", {"fc1.weight": "missing"})))
    assert (str(error), error.problem, error.faults) == (*["m: 1 weight is missing"] * 2, {"fc1.weight": "missing"})
