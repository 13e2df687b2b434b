"""The stored vectors of one encoder on one corpus, as the analyses read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from capim.store.ragged import Ragged

Matrix: TypeAlias = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, eq=False)
class SingleVectors:
    """One unit vector per item.

    Attributes:
        images: float32, shape ``(n_images, dim)``, in corpus order.
        captions: float32, shape ``(n_captions, dim)``, in corpus order.
        image_norms: Norms before normalisation, shape ``(n_images,)``.
        caption_norms: The same for captions.
    """

    images: Matrix
    captions: Matrix
    image_norms: NDArray[np.float32]
    caption_norms: NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, eq=False)
class LateInteractionVectors:
    """Many unit vectors per item, float32.

    Attributes:
        images: All images, or a sample of them; their ``ords`` tell which, ascending.
        captions: All captions.
    """

    images: Ragged
    captions: Ragged


StoredVectors: TypeAlias = SingleVectors | LateInteractionVectors
