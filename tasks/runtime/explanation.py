"""Why a caption and an image match: the share of every token in the score, and where in the image it matches.

The score of a late-interaction model is a sum over the tokens of the caption, of the cosine with the patch that is
closest (ColPali, Faysse et al. 2024). So it falls into one share per token, and each token has a map over the patches.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from capim.store import EmbeddingStore
from capim.store.errors import RequestError, did_you_mean
from capim.store.layout import UNKNOWN, Explanation, grids_of, tokens_of
from capim.store.schema import texts
from capim.store.types import Modality
from capim.tasks.ranking.maxsim_products import token_similarities


def explain_pair(store: EmbeddingStore, *, encoder: str, corpus: str, caption: str, image: str) -> Explanation:
    """The explanation of a stored caption and a stored image, from their stored vectors.

    Args:
        encoder: Name or fingerprint of a late-interaction encoder.
        corpus: Name or fingerprint.

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
    positions = []
    for modality, items, wanted in (("caption", stored.captions, caption), ("image", stored.images, image)):
        ids = texts(items["id"])
        if wanted in ids:
            positions.append(ids.index(wanted))
        else:
            faults.append(
                f"{modality} {wanted!r} is not in corpus {stored.name!r}; {did_you_mean(wanted, ids)}its {len(ids):,} "
                f"{modality} ids begin with {', '.join(map(repr, ids[:3]))}"
            )
    if faults:
        raise RequestError(faults)
    [found] = explain_pairs(store, encoder=encoder, corpus=corpus, pairs=[(positions[0], positions[1])])
    return found


def explain_pairs(
    store: EmbeddingStore, *, encoder: str, corpus: str, pairs: Sequence[tuple[int, int]]
) -> list[Explanation]:
    """The explanations of some pairs, in their order; each vector is read once.

    Args:
        encoder: Name or fingerprint of a late-interaction encoder.
        corpus: Name or fingerprint.
        pairs: Positions of a caption and an image in the corpus.
    """
    spec, stored = store.encoder(encoder), store.corpus(corpus)
    items: dict[tuple[Modality, int], tuple[NDArray[np.float32], str]] = {}
    sides: tuple[tuple[Modality, list[int]], ...] = (
        ("caption", [c for c, _ in pairs]),
        ("image", [i for _, i in pairs]),
    )
    for modality, positions in sides:
        key = store.key(encoder=spec.fingerprint, corpus=stored.fingerprint, modality=modality)
        for rows in store.stored_blocks(key, ords=np.unique(np.array(positions, dtype=np.int32))):
            layouts = [UNKNOWN] * len(rows.ords) if rows.layouts is None else texts(rows.layouts)
            for position, vectors, layout in zip(rows.ords.tolist(), rows.vectors, layouts, strict=True):
                items[modality, position] = vectors.astype(np.float32), layout
    found = []
    for caption, image in pairs:
        (of_caption, tokens), (of_image, grids) = items["caption", caption], items["image", image]
        similarities, shares = token_similarities(of_caption, of_image)
        found.append(
            Explanation(
                encoder=spec.name,
                corpus=stored.name,
                caption_id=str(stored.captions["id"][caption]),
                image_id=str(stored.images["id"][image]),
                text=stored.captions["text"][caption].as_py() or "",
                sha=stored.images["sha"][image].as_py() or "",
                tokens=tokens_of(tokens) or tuple(f"token {n}" for n in range(1, len(shares) + 1)),
                shares=shares,
                similarities=similarities,
                grids=grids_of(grids),
            )
        )
    return found
