"""Nothing wrong is ever written: every fault is named with its id before the first byte."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capim.store import Block, RequestError
from capim.store.sets.rows import row_checksums, row_seeds
from tests.store.toy import begin, make_block, make_corpus, make_key, make_spec


def with_value(block: Block, at, value: float) -> Block:
    values = block.embeddings.values.copy()
    values[at] = value
    return replace(block, embeddings=replace(block.embeddings, values=values))


BAD_VECTORS = [
    ("single", (3, 5), np.nan, r"'i00003': NaN at component 5"),
    ("single", (3, 0), np.inf, r"'i00003': infinity at component 0"),
    ("single", 3, 0.0, r"'i00003': all components are zero"),
    ("single", (3, 1), 7.0, r"'i00003': norm is 7\.\d+, expected 1 within 0\.001: normalise"),
    ("single", slice(None), 0.0, "and 3 more rows"),
    # items 0, 1, 2 have 1, 2, 3 vectors: vector 4 of all is the second of item 2
    ("multi", (4, 0), np.nan, r"'i00002': vector 1: NaN at component 0"),
]


@pytest.fixture
def writing(store):
    """A call that tries to write eight rows after a change, and the store."""

    def attempt(change, **spec_changes):
        spec, key = begin(store, 20, **spec_changes)
        try:
            store.put(key, spec, change(make_block(spec, range(8))))
        finally:
            assert len(store.missing(key)) == 20, "nothing was written"

    return attempt


@pytest.mark.parametrize(("vectors", "at", "value", "message"), BAD_VECTORS)
def test_bad_vectors_are_refused_with_their_id_and_counted_where_they_are_many(writing, vectors, at, value, message):
    with pytest.raises(RequestError, match=message):
        writing(lambda block: with_value(block, at, value), storage="float16", vectors=vectors)


BAD_BLOCKS = [
    ({"ords": np.array([0, 1, 2, 3, 4, 5, 6, 3])}, "a position occurs twice"),
    ({"ords": np.array([0, 1, 2, 3, 4, 5, 6, 20])}, "position 20 is outside the corpus, which has 20"),
    ({"ords": np.array([0, 1, 2, 3, 4, 5, 6, -1])}, "position -1 is outside the corpus"),
    ({"input_shas": [""] * 7}, "for 8 positions, got 8 embeddings and 7 input hashes"),
    ({"values": np.ones((8, 8), np.float32)}, "vectors have 8 components, encoder 'enc' has dim 16"),
    ({"norms": np.abs(np.arange(8.0) - 1)}, r"'i00001': norm before normalisation is 0"),
    ({"offsets": np.arange(9)}, "vectors are multi, encoder 'enc' gives single"),
]


@pytest.mark.parametrize(("changes", "message"), BAD_BLOCKS)
def test_bad_blocks_are_refused_with_their_id(writing, changes, message):
    def change(block):
        of_block = changes.keys() <= vars(block).keys()
        return replace(block, **changes if of_block else {"embeddings": replace(block.embeddings, **changes)})

    with pytest.raises(RequestError, match=message):
        writing(change)


def test_an_item_without_vectors_is_refused(writing):
    def empty_first(block):
        offsets = block.embeddings.offsets.copy()
        offsets[1] = 0
        return replace(block, embeddings=replace(block.embeddings, offsets=offsets))

    with pytest.raises(RequestError, match=r"'i00000': no vector"):
        writing(empty_first, vectors="multi")


def test_another_revision_precision_or_prompt_is_another_set(store):
    spec, key = begin(store, 20)
    for change in ({"revision": "r2"}, {"precision": "bfloat16"}, {"options": {"prompt": "a photo of "}}):
        other = make_spec(**change)
        assert other.fingerprint != spec.fingerprint
        with pytest.raises(RequestError, match="makes another set"):
            store.put(key, other, make_block(other, range(3)))
    assert make_spec(name="other").fingerprint == spec.fingerprint, "a name is not identity"


def test_a_corpus_must_be_stored_before_its_embeddings(store):
    corpus, spec = make_corpus(20), make_spec()
    with pytest.raises(RequestError, match=r"corpus 'toy' with fingerprint \w+ is not in the store"):
        store.put(make_key(corpus, spec), spec, make_block(spec, range(3)))


@given(st.integers(0, 31), st.sampled_from(["ords", "norms", "n_tokens", "truncated", "layout", "vector"]))
def test_any_single_flipped_bit_changes_the_checksum(bit, where):
    layout = bytearray(b'["a","red","bus"]')
    fields = {
        "ords": np.array([5], np.int32),
        "norms": np.array([1.25], np.float32),
        "n_tokens": np.array([9], np.int32),
        "truncated": np.array([False]),
    }
    vector = np.linspace(-1, 1, 8, dtype=np.float32)[None]
    offsets = np.array([0, 1])

    def checksum():
        return row_checksums(vector, offsets, row_seeds(**fields, layouts=pa.array([layout.decode("latin-1")])))

    before = checksum()
    if where == "truncated":
        fields["truncated"] = ~fields["truncated"]
    elif where == "vector":
        vector.view(np.uint32)[0, bit % 8] ^= np.uint32(1 << bit)
    elif where == "layout":
        layout[bit % len(layout)] ^= 1 << bit % 7
    else:
        fields[where].view(np.uint32)[0] ^= np.uint32(1 << bit)
    assert checksum() != before


def test_empty_embeddings_are_no_block_of_rows(store):
    spec, key = begin(store, 20)
    assert store.put(key, spec, make_block(spec, [])) == 0
