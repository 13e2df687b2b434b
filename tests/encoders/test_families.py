"""Every family loads by its real name from a cache, offline, and embeds."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from tasks.encoders import encode_captions, encode_images, load_encoder
from tests.encoders.families.table import CASES


@pytest.mark.parametrize("name", CASES)
def test_family_loads_offline_and_embeds(name, family) -> None:
    encoder = load_encoder(family(name), trust_remote_code=CASES[name].remote_code)
    rng = np.random.default_rng(0)
    images = [Image.fromarray(rng.integers(0, 256, (60, 80, 3), dtype=np.uint8)) for _ in range(3)]
    captions = ["a red circle left of a blue square", "A green triangle, above!", "un carré bleu"]
    print(encoder.spec)
    a, b = encode_images(encoder, images), encode_captions(encoder, captions)
    print(a.values.shape, b.values.shape, a.n_tokens, b.n_tokens, a.norms, b.norms)
    if a.offsets is None:
        print(a.values @ b.values.T)
        print(a.values @ a.values.T)
        print(b.values @ b.values.T)
