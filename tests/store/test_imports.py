"""An import keeps what it was given: type, bits, norm; its encoder is what the user says it is."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import TypeAdapter

from capim.store import EmbeddingStore, RequestError
from capim.store.sets.importing import ImportRow
from tests.imported import import_embeddings, imported
from tests.random_store import rows_of
from tests.store.toy import make_block, make_corpus, make_spec


@pytest.fixture
def toy(store):
    """A store with a corpus of 20 images and 40 captions."""
    store.write_corpus(make_corpus(20))
    return store


@pytest.fixture
def save(tmp_path):
    """Writes random unit vectors to a .npy file."""

    def write(name, n, *, dim=8, seed=0, dtype=np.float32, scale=1.0):
        values = np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)
        values /= np.linalg.norm(values, axis=1, keepdims=True)
        np.save(tmp_path / name, (values * scale).astype(dtype))
        return tmp_path / name

    return write


def images_of(store, encoder="theirs", corpus="toy"):
    return store.vectors(encoder=encoder, corpus=corpus, modality="image")


# --- stored as given ----------------------------------------------------------------------------------------------


def test_copies_of_a_float16_row_stay_copies_wherever_they_stand(store, tmp_path):
    store.write_corpus(make_corpus(5000))
    one = np.random.default_rng(0).standard_normal(67)
    np.save(tmp_path / "same.npy", np.tile(one / np.linalg.norm(one), (5000, 1)).astype(np.float16))
    import_embeddings(store, encoder="theirs", corpus="toy", images=tmp_path / "same.npy")
    assert len(np.unique(images_of(store).matrix, axis=0)) == 1


def test_vectors_that_are_not_unit_are_normalised_once_and_the_norm_is_kept(toy, save):
    file = save("images.npy", 20, scale=7.5)
    import_embeddings(toy, encoder="theirs", corpus="toy", images=file)
    given = np.load(file).astype(np.float64)
    norms = np.linalg.norm(given, axis=1)
    read = images_of(toy)
    np.testing.assert_array_equal(read.matrix, (given / norms[:, None]).astype(np.float32))
    np.testing.assert_array_equal(read.norms, norms.astype(np.float32))


@pytest.mark.parametrize(("dtype", "storage"), [(np.float64, "float32"), (np.float32, "float16")])
def test_rounding_is_said_with_how_much_it_changed(toy, tmp_path, dtype, storage):
    values = np.random.default_rng(0).standard_normal((20, 8))
    np.save(tmp_path / "i.npy", (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(dtype))
    wanted = storage if dtype == np.float32 else None
    (done,) = imported(toy, encoder="theirs", corpus="toy", images=tmp_path / "i.npy", storage=wanted)
    assert done.sealed is not None
    assert done.sealed.storage == storage
    step = 2.0**-11 if storage == "float16" else 2.0**-24
    assert step / 100 < done.rounding < step


def test_an_encoder_has_one_storage_type(toy, save):
    coarse, fine = save("i.npy", 20, dtype=np.float16), save("c.npy", 40)
    import_embeddings(toy, encoder="theirs", corpus="toy", images=coarse)
    with pytest.raises(RequestError, match=r"stored as float16, .*c\.npy holds finer numbers or vectors .*; add --st"):
        import_embeddings(toy, encoder="theirs", corpus="toy", captions=fine)
    with pytest.raises(RequestError, match="leave out --storage float32"):
        import_embeddings(toy, encoder="theirs", corpus="toy", captions=fine, storage="float32")
    (rounded,) = import_embeddings(toy, encoder="theirs", corpus="toy", captions=fine, storage="float16")
    assert rounded.storage == "float16"


def test_a_coarser_file_is_widened_without_a_change(toy, save):
    coarse, fine = save("i.npy", 20, dtype=np.float16), save("c.npy", 40)
    import_embeddings(toy, encoder="alone", corpus="toy", images=coarse)
    images, captions = import_embeddings(toy, encoder="theirs", corpus="toy", images=coarse, captions=fine)
    assert images.storage == captions.storage == "float32"
    [stored] = toy.stored_blocks(images.key)
    np.testing.assert_array_equal(stored.vectors.values, np.load(coarse).astype(np.float32))
    np.testing.assert_array_equal(images_of(toy).matrix, images_of(toy, "alone").matrix)


# --- identity -----------------------------------------------------------------------------------------------------


def test_a_revision_is_part_of_the_encoder_and_is_that_of_the_stored_one_when_left_out(toy, save):
    (first,) = import_embeddings(toy, encoder="theirs", corpus="toy", images=save("i.npy", 20), revision="v2")
    spec = toy.encoder("theirs")
    assert (spec.adapter, spec.checkpoint, spec.revision, spec.options) == ("imported", "theirs", "v2", {})
    (captions,) = import_embeddings(toy, encoder="theirs", corpus="toy", captions=save("c.npy", 40))
    assert captions.key.encoder_fingerprint == first.key.encoder_fingerprint
    (other,) = import_embeddings(toy, encoder="theirs", corpus="toy", images=save("i.npy", 20, seed=1), revision="v3")
    assert other.key.encoder_fingerprint != first.key.encoder_fingerprint
    with pytest.raises(RequestError, match="revision 'main' can move: give a version"):
        import_embeddings(toy, encoder="theirs", corpus="toy", images=save("i.npy", 20), revision="main")


def test_a_deployment_with_a_parameter_that_an_import_does_not_have_is_refused():
    with pytest.raises(ValueError, match=r"note\n  Unexpected keyword argument"):
        TypeAdapter(ImportRow).validate_python({"encoder": "theirs", "corpus": "toy", "note": "512 px"})


def test_the_same_file_again_writes_nothing(toy, save):
    request = {"encoder": "theirs", "corpus": "toy", "images": save("i.npy", 20)}
    (first,) = imported(toy, **request)
    versions = {name: toy.connection.find(name).version for name in toy.connection.names()}
    (again,) = imported(toy, **request, replace=True)
    assert (first.state, again.state) == ("new", "unchanged")
    assert again.sealed == first.sealed
    assert {name: toy.connection.find(name).version for name in toy.connection.names()} == versions


KEYS = {"results": "result", "outcomes": "query_id", "slices": "slice", "comparisons": "comparison"}


def analysed(store, sealed, spec):
    """Rows that were computed from a set, a row that was combined from such, and rows of another encoder."""
    mine = {"encoder": spec.name, "encoder_fingerprint": spec.fingerprint, "image_tag": sealed.tag, "caption_tag": ""}
    mine |= {"corpus": sealed.key.corpus, "corpus_fingerprint": sealed.key.corpus_fingerprint, "evaluation": "e1"}
    pair = {"encoder_a": "x", "fingerprint_a": "x", "encoder_b": spec.name, "fingerprint_b": spec.fingerprint}
    untagged = {"image_tag": "", "caption_tag": ""}
    for name, key in KEYS.items():
        store.write_rows(name, rows_of(name, {**mine, **pair, key: "gone"}, {**untagged, key: "kept"}))
    fused = make_spec(name="both", adapter="fusion", checkpoint=f"{spec.name}+other", dim=1)
    store.write_encoder(fused)
    row = {"result": "fused", "evaluation": "e2", "encoder": "both", "encoder_fingerprint": fused.fingerprint}
    row |= {**untagged, "corpus_fingerprint": sealed.key.corpus_fingerprint}
    store.write_rows("results", rows_of("results", row))


def test_other_contents_are_refused_with_both_digests_and_replaced_on_demand_with_all_that_was_made_of_them(toy, save):
    (first,) = import_embeddings(toy, encoder="theirs", corpus="toy", images=save("i.npy", 20))
    analysed(toy, first, toy.encoder("theirs"))
    changed = save("changed.npy", 20, seed=1)
    with pytest.raises(RequestError, match=rf"digest {first.digest[:16]}, the file has \w{{16}}\); add --replace"):
        import_embeddings(toy, encoder="theirs", corpus="toy", images=changed)
    assert toy.sealed(first.key) == first
    assert toy.rows("results").num_rows == 3
    (second,) = import_embeddings(toy, encoder="theirs", corpus="toy", images=changed, replace=True)
    assert second.key == first.key
    np.testing.assert_array_equal(images_of(toy).matrix, np.load(changed))
    assert toy.sealed_sets() == [second]
    for name, key in KEYS.items():
        assert toy.rows(name)[key].to_pylist() == ["kept"], name


def test_what_an_interrupted_import_left_is_not_mixed_with_other_contents(toy, save):
    (first,) = import_embeddings(toy, encoder="theirs", corpus="toy", images=save("i.npy", 20))
    spec = toy.encoder("theirs")
    toy.connection.drop(first.key.table)
    toy.connection.find("sets").delete("true")
    left = EmbeddingStore.open(toy.uri)
    left.put(first.key, spec, make_block(spec, range(7)))
    changed = save("changed.npy", 20, seed=1)
    import_embeddings(toy, encoder="theirs", corpus="toy", images=changed)
    np.testing.assert_array_equal(images_of(toy).matrix, np.load(changed))


def test_a_name_or_form_that_belongs_to_another_encoder_is_refused(toy, save):
    import_embeddings(toy, encoder="theirs", corpus="toy", images=save("i.npy", 20))
    forms = r"\(revision 'unversioned'\) has one vector of 8 components .*wide\.npy has one vector of 16"
    with pytest.raises(RequestError, match=forms):
        import_embeddings(toy, encoder="theirs", corpus="toy", captions=save("wide.npy", 40, dim=16))
    toy.write_encoder(make_spec(name="encoded"))
    with pytest.raises(RequestError, match=r"'encoded' is in the store as another kind \(adapter none"):
        import_embeddings(toy, encoder="encoded", corpus="toy", images=save("i.npy", 20))


def test_faults_of_all_files_come_together_and_not_even_a_corpus_is_stored(store, save):
    with pytest.raises(RequestError) as caught:
        imported(store, encoder="a", corpus=make_corpus(20), images=save("many.npy", 21), captions=save("few.npy", 3))
    assert len(caught.value.faults) == 2
    assert all(file in str(caught.value) for file in ("few.npy", "many.npy"))
    with pytest.raises(RequestError, match="give a file to import for 'c'"):
        imported(store, encoder="c", corpus=make_corpus(20))
    assert store.corpora() == store.encoders() == []
    assert store.sealed_sets() == []
