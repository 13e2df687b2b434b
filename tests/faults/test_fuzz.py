"""Any bytes and any text, without processes; all else that goes wrong is `make faults`."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from capim.store import EmbeddingStore, RequestError
from capim.tasks.corpora.build import CaptionRow, ImageRow, build_corpus
from capim.tasks.corpora.images.decode import UndecodableImage, decode_image, image_facts


def encoded(form: str) -> bytes:
    """Noise as an image of a format."""
    buffer = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    Image.fromarray(noise).save(buffer, format=form)
    return buffer.getvalue()


FORMS = ("PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP", "PPM", "ICO", "TGA")


@settings(max_examples=150, deadline=None)
@given(
    data=st.sampled_from([*map(encoded, FORMS)]),
    changes=st.lists(st.tuples(st.integers(0, 4000), st.binary(max_size=12)), max_size=6),
    cut=st.integers(0, 5000),
    tail=st.binary(max_size=20),
)
def test_any_bytes_are_an_image_or_refused_with_the_reason(
    data: bytes, changes: list[tuple[int, bytes]], cut: int, tail: bytes
) -> None:
    broken = bytearray(data)
    for place, new in changes:
        broken[place : place + len(new)] = new
    spoilt = bytes(broken[: cut or None]) + tail
    image_facts(spoilt)
    try:
        image = decode_image(spoilt)
    except UndecodableImage as refusal:
        assert str(refusal)
        return
    assert image.mode == "RGB"
    assert 0 not in image.size


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> EmbeddingStore:
    return EmbeddingStore.open(Path(tmp_path_factory.mktemp("fuzzed")) / "store", create=True)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(texts=st.lists(st.text(st.characters(), max_size=40), min_size=1, max_size=8))
def test_any_text_comes_back_from_the_store_as_it_was_or_is_refused(store: EmbeddingStore, texts: list[str]) -> None:
    captions = [CaptionRow(f"c{n}", "i", text) for n, text in enumerate(texts)]
    if any(0xD800 <= ord(c) < 0xE000 for text in texts for c in text):  # surrogates
        with pytest.raises(RequestError):
            build_corpus("fuzzed", [ImageRow("i")], captions, source=None)
        return
    corpus = build_corpus("fuzzed", [ImageRow("i")], captions, source=None)
    store.write_corpus(corpus)
    assert store.corpus("fuzzed", corpus.fingerprint).captions["text"].to_pylist() == texts
