"""Why a caption and an image match: the share of every token in the score, and where in the image it matches.

The score of a late-interaction model is a sum over the tokens of the caption, of the cosine with the patch that is
closest (ColPali, Faysse et al. 2024). So it falls into one share per token, and each token has a map over the patches.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from store import EmbeddingStore
from store.errors import RequestError, did_you_mean
from store.layout import Explanation, grids_of, tokens_of
from store.schema import texts
from store.types import Modality
from tasks.scoring.late_interaction.products import token_similarities


def explain_pair(store: EmbeddingStore, *, encoder: str, corpus: str, caption: str, image: str) -> Explanation:
    """The explanation of a stored caption and a stored image, from their stored vectors.

    Args:
        store: The store.
        encoder: Name or fingerprint of a late-interaction encoder.
        corpus: Name or fingerprint.
        caption: Id of a caption.
        image: Id of an image.

    Raises:
        RequestError: The encoder has one vector per item, or an id is not in the corpus; all faults together.
    """
    stored = store.corpus(corpus)
    spec = store.encoder(encoder)
    faults = []
    if spec.vectors == "single":
        faults.append(
            f"encoder {encoder!r} has one vector per item; only late-interaction encoders, with vectors of patches and "
            "tokens, can be explained"
        )
    positions: dict[Modality, int] = {}
    sides: tuple[tuple[Modality, str], ...] = (("caption", caption), ("image", image))
    for modality, wanted in sides:
        ids = texts(store.items(stored.name, modality)["id"])
        if wanted in ids:
            positions[modality] = ids.index(wanted)
        else:
            faults.append(
                f"{modality} {wanted!r} is not in corpus {stored.name!r}; {did_you_mean(wanted, ids)}its {len(ids):,} "
                f"{modality} ids begin with {', '.join(map(repr, ids[:3]))}"
            )
    if faults:
        raise RequestError(faults)
    vectors: dict[Modality, NDArray[np.float32]] = {}
    layouts: dict[Modality, str] = {}
    for modality, position in positions.items():
        key = store.key(encoder=encoder, corpus=corpus, modality=modality)
        [rows] = store.stored_blocks(key, ords=np.array([position], dtype=np.int32))
        vectors[modality] = rows.vectors.values.astype(np.float32)
        layouts[modality] = "" if rows.layouts is None else str(rows.layouts[0].as_py())
    similarities, shares = token_similarities(vectors["caption"], vectors["image"])
    tokens = tokens_of(layouts["caption"]) or tuple(f"token {n}" for n in range(1, len(shares) + 1))
    return Explanation(
        encoder=spec.name,
        corpus=stored.name,
        caption_id=caption,
        image_id=image,
        text=stored.captions["text"][positions["caption"]].as_py() or "",
        sha=stored.images["sha"][positions["image"]].as_py() or "",
        tokens=tokens,
        shares=shares,
        similarities=similarities,
        grids=grids_of(layouts["image"]),
    )
