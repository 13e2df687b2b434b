"""Whatever changes a vector is part of a model's identity: files of a folder or a module, the form of a query."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from capim.store.errors import RequestError
from capim.store.types import EncoderSpec
from capim.tasks.encoders import (
    ADAPTERS,
    catalog,
    encode_captions,
    encode_images,
    entry_from,
    identity_gap,
    load_encoder,
    resolve,
)
from capim.tasks.encoders.checkpoint import digest_of, folder_of
from capim.tasks.encoders.conformance import check_encoder, six_scenes
from capim.tasks.encoders.identity import prompts_of
from tests.encoders.families.hub import commit
from tests.encoders.families.sentence import PROMPTS
from tests.encoders.families.table import CASES
from tests.encoders.own_module import write_module

PLAIN_PROMPT = "<|vision_start|><|image_pad|><|vision_end|>"
NAMED = 'files = ["weights.npy"]\n'
_opened: list[Path] | None = None  # by Python, while it is recorded


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if _opened is not None and event == "open" and isinstance(arguments[0], str):
        _opened.append(Path(arguments[0]).absolute())


sys.addaudithook(_note)  # stays until the process ends


def module(file: Path, **fields: object) -> EncoderSpec:
    return entry_from("own", {"adapter": "module", "checkpoint": str(file), "dim": 8, **fields}).spec


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (
            'files = ["*.npy"]\n',
            r"needs the file '\*\.npy', which does not exist .*; name files or folders, .* no patterns",
        ),
        ("files = [__file__]\n", r"files must be a literal list of file names.*got \[__file__\]"),
        ('files = "weights.npy"\n', "files must be a literal list of file names"),
        ("def (:\n", r"model\.py is not valid Python"),
    ],
)
def test_files_that_a_module_cannot_mean_are_refused(head, message, tmp_path) -> None:
    with pytest.raises(RequestError, match=message):
        resolve(module(write_module(tmp_path, head)))


def test_files_are_a_list_and_belong_to_modules(tmp_path) -> None:
    with pytest.raises(RequestError, match="files must be a list of file names"):
        module(tmp_path / "model.py", files="weights.npy")
    with pytest.raises(RequestError, match="files are only for your own code"):
        entry_from("x", {"adapter": "hf_dual", "checkpoint": "a/b", "dim": 8, "files": ["weights.npy"]})


def test_a_module_that_names_no_files_has_a_gap_in_its_identity(tmp_path) -> None:
    unnamed = module(write_module(tmp_path))
    assert "its identity is only model.py" in str(identity_gap(resolve(unnamed)))
    assert identity_gap(resolve(replace(unnamed, options={"revision:weights.npy": "main"}))) is None
    assert identity_gap(module(write_module(tmp_path, NAMED))) is None
    assert identity_gap(module(write_module(tmp_path, "files: list[str] = []\n"))) is None
    assert identity_gap(EncoderSpec(name="x", adapter="hf_dual", checkpoint="a/b", dim=8)) is None
    function = entry_from("own", {"adapter": f"{write_module(tmp_path)}:load", "dim": 8}).spec
    assert "its identity is only model.py" in str(identity_gap(resolve(function)))


def test_a_repository_that_was_pinned_is_no_file_of_the_code(tmp_path) -> None:
    spec = entry_from("own", {"adapter": f"{write_module(tmp_path)}:load", "dim": 8}).spec
    pinned = resolve(replace(spec, options={"revision:a/base": "0" * 40}))
    assert pinned.options["revision:a/base"] == "0" * 40
    assert resolve(pinned) == pinned


def test_a_revision_that_the_user_gives_a_module_is_part_of_its_identity(tmp_path) -> None:
    file = write_module(tmp_path, NAMED)
    digest = digest_of(file)
    given = resolve(module(file, revision="second try"))
    assert given.revision == f"second try+{digest}"
    assert resolve(given) == given
    assert len({resolve(module(file, revision=r)).fingerprint for r in ("second try", "third", "latest", "main")}) == 4
    assert resolve(module(file, revision=digest)) == resolve(module(file))
    file.write_text(file.read_text() + "# changed\n")
    with pytest.raises(RequestError, match=f"has digest {digest_of(file)}, but the spec names {digest}"):
        resolve(given)


def test_check_says_what_it_cannot_know_of_a_module(tmp_path) -> None:
    results = {row.check: row for row in islice(check_encoder(module(write_module(tmp_path))), 4)}
    for check, reason in (
        ("no missing weights", "a module loads its own weights"),
        ("identity", "its identity is only model.py"),
        ("loads offline", "a module may fetch files in any way"),
    ):
        assert results[check].result == "skip"
        assert results[check].detail.startswith("not verified: ")
        assert reason in results[check].detail
    named = next(row for row in check_encoder(module(write_module(tmp_path, NAMED))) if row.check == "identity")
    assert named.result == "pass"
    assert "revision:weights.npy = sha256-" in named.detail


@pytest.mark.parametrize("name", CASES)
def test_a_model_in_a_folder_is_loaded_from_files_that_its_identity_covers(
    name, copied_family, hub_cache, tmp_path, monkeypatch
) -> None:
    folder, spec, opened = tmp_path / "model", resolve(copied_family(name)), list[Path]()
    monkeypatch.setattr(sys.modules[__name__], "_opened", opened)
    load_encoder(spec, trust_remote_code=CASES[name].remote_code)
    monkeypatch.undo()
    own = {path for path in opened if path.is_relative_to(folder)}
    assert own
    pinned = [key.removeprefix("revision:") for key in spec.options if key.startswith("revision:")]
    for path in opened:
        if path.is_relative_to(hub_cache):  # only what lies under a pinned commit, never under a branch
            name_of = {f"models--{name.replace('/', '--')}": commit(name) for name in pinned}
            repository, *where = path.relative_to(hub_cache).parts
            assert {name_of.get(repository, ""), f"{name_of.get(repository)}.json"} & set(where), path
    for path in (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        contents = path.read_bytes()
        path.write_bytes(contents + b" ")
        assert digest_of(folder) != spec.revision, path
        path.write_bytes(contents)
    assert digest_of(folder) == spec.revision


def test_a_folder_is_its_files_and_those_of_linked_folders_whatever_these_link_to(tmp_path) -> None:
    model, shared, hidden = (tmp_path / name for name in ("model", "shared", "model/.cache"))
    for folder in (model, shared, hidden):
        folder.mkdir()
        (folder / "config.json").write_text("1")
    (model / "1_Pooling").symlink_to(shared)
    (model / "above").symlink_to(model)
    first = digest_of(model)
    (hidden / "config.json").write_text("2")
    assert digest_of(model) == first
    (shared / "config.json").write_text("2")
    fixed = EncoderSpec(name="x", adapter="hf_dual", checkpoint=str(model), revision=first, dim=8)
    with pytest.raises(RequestError, match=f"has digest {digest_of(model)}, but the spec names {first}"):
        resolve(fixed)


def test_a_local_base_model_that_changes_after_resolving_is_refused(copied_family, tmp_path) -> None:
    spec, base = resolve(copied_family("colpali-lora", base=True)), tmp_path / "base"
    assert spec.options[f"revision:{base}"] == digest_of(base)
    (base / "config.json").write_text((base / "config.json").read_text() + " ")
    with pytest.raises(RequestError, match="the files have changed since the spec was resolved"):
        load_encoder(spec)


def test_a_spec_that_was_stored_loads_its_code_at_the_commit_of_that_code(family) -> None:
    """Before, the first pin was taken for that of the code: in a stored spec, or a pinned suite, they are sorted."""
    resolved = resolve(family("jina"))
    stored = EncoderSpec.from_json(resolved.to_json())
    assert [*stored.options] != [*resolved.options]
    assert load_encoder(stored, trust_remote_code=True).spec == resolved


@pytest.mark.parametrize("consent", ["false", "true", 1])
def test_only_true_is_a_consent_to_remote_code(consent, family) -> None:
    with pytest.raises(RequestError, match=f"trust_remote_code must be true or false, got {consent!r}"):
        load_encoder(family("jina"), trust_remote_code=consent)
    with pytest.raises(RequestError, match=f"remote_code must be true or false, got {consent!r}"):
        entry_from("x", {"adapter": "jina", "checkpoint": "a/b", "dim": 8, "remote_code": consent})


@pytest.mark.parametrize("name", ["colpali-lora", "colqwen2", "colsmol"])
def test_a_query_has_ten_tokens_after_it_unless_the_spec_says_otherwise(name, family) -> None:
    """That these are the processor's own: test_late_interaction_equals_colpali_engine_one_by_one."""
    assert not family(name).options
    own, plain = resolve(family(name)), resolve(replace(family(name), options={"caption_template": "{caption}"}))
    assert resolve(own) == own
    assert own.fingerprint != plain.fingerprint
    longer, shorter = (encode_captions(load_encoder(spec), ["a red circle"]).counts[0] for spec in (own, plain))
    assert longer == shorter + 10


def test_only_the_model_that_was_trained_so_has_a_query_form_of_its_own_in_the_catalog() -> None:
    named = {e.name: e.spec.options for e in catalog().values() if e.spec.options and ADAPTERS[e.adapter].roles}
    without = {"caption_template": "{caption}"}  # trained without the augmentation tokens
    assert named == {"tiny-colpali": without, "tiny-colpali-pages": without}


def test_another_image_prompt_is_another_model_with_other_vectors(family) -> None:
    image = six_scenes()[0][:1]
    usual, other = (load_encoder(replace(family("colqwen2"), options=o)) for o in ({}, {"image_prompt": PLAIN_PROMPT}))
    assert usual.spec.fingerprint != other.spec.fingerprint
    assert encode_images(other, image).counts[0] < encode_images(usual, image).counts[0]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ("query", PROMPTS["query"], "document", PROMPTS["document"])),
        ({"image_role": "query"}, ("query", PROMPTS["query"], "query", PROMPTS["query"])),
        ({"caption_role": "none"}, ("none", "", "document", PROMPTS["document"])),
        ({"caption_prompt": "Find."}, ("query", "Find.", "document", PROMPTS["document"])),
    ],
)
def test_roles_and_prompts_are_those_of_the_checkpoint_unless_the_suite_says_otherwise(
    options, expected, family
) -> None:
    spec = resolve(replace(family("qwen3-vl-embedding"), options=options))
    names = ("caption_role", "caption_prompt", "image_role", "image_prompt")
    assert tuple(spec.options[name] for name in names) == expected
    assert resolve(spec) == spec
    assert (spec.fingerprint == resolve(family("qwen3-vl-embedding")).fingerprint) == (not options)


def test_a_prompt_in_a_suite_is_the_prompt_of_the_library(family) -> None:
    from sentence_transformers import MultiVectorEncoder

    encoder = load_encoder(replace(family("multi-vector"), options={"caption_prompt": "Find."}))
    theirs = MultiVectorEncoder(str(folder_of(encoder.spec)), device="cpu").encode_query("a red bus", prompt="Find.")
    np.testing.assert_allclose(encode_captions(encoder, ["a red bus"]).values, theirs.numpy(), atol=2e-6)


def test_the_markers_of_pylate_come_before_its_prompts() -> None:
    spec = EncoderSpec(name="x", adapter="sentence_transformers", checkpoint="a/b", dim=8, vectors="multi")
    config = {"query_prefix": "[Q] ", "document_prefix": "[D] ", "prompts": {"query": "find: "}}
    options = prompts_of(spec, [lambda name: config if name == "config_sentence_transformers.json" else {}])
    assert (options["caption_prompt"], options["image_prompt"]) == ("[Q] find: ", "[D] ")


def test_check_says_in_which_role_and_with_which_prompt_items_are_encoded(family) -> None:
    row = next(row for row in check_encoder(family("qwen3-vl-embedding")) if row.check == "roles and prompts")
    assert row.detail == (
        f"captions as query with {PROMPTS['query']!r}, images as document with {PROMPTS['document']!r}"
    )
