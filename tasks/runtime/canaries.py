"""The canary vectors of endpoints in a store: kept by the first run, and compared with by every later one."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from capim.store import EmbeddingStore
from capim.store.errors import WorkError
from capim.store.schema import CANARIES
from capim.tasks.encoders import Encoder
from capim.tasks.encoders.encoder import service_of
from capim.tasks.encoders.endpoints.canaries import LOWEST_COSINE, canary_vectors
from capim.tasks.reference.regression import cosines


def canary_cosines(store: EmbeddingStore, encoder: Encoder, *, run: str) -> dict[str, float]:
    """Canary -> the cosine of its vector now with the stored one, of those that are stored; stores the others.

    None for a model that runs here. Their tokens do not count for the batch that comes next.
    """
    service = service_of(encoder)
    if service is None:
        return {}
    vectors = canary_vectors(encoder, image=service.takes_images)
    service.tokens_spent()
    fingerprint = encoder.spec.fingerprint
    kept = {row["item"]: row["vector"] for row in store.rows("canaries", encoder_fingerprint=fingerprint).to_pylist()}
    created = datetime.now(UTC)
    new = [
        {"encoder_fingerprint": fingerprint, "item": item, "vector": vector.tolist(), "run": run, "created": created}
        for item, vector in vectors.items()
        if item not in kept
    ]
    store.write_rows("canaries", pa.Table.from_pylist(new, schema=CANARIES))
    again = [item for item in vectors if item in kept]
    then = [np.asarray([kept[item]], dtype=np.float32) for item in again]
    same = cosines(then, [vectors[item][None] for item in again])
    return dict(zip(again, same.tolist(), strict=True))


def check_canaries(store: EmbeddingStore, encoder: Encoder, *, run: str) -> None:
    """Raise unless an endpoint is still the model that encoded what is stored; the first call keeps its vectors.

    Raises:
        WorkError: The vector of a canary has changed.
    """
    found = canary_cosines(store, encoder, run=run)
    lowest = min(found, key=found.__getitem__, default=None)
    if lowest is None or found[lowest] >= LOWEST_COSINE:
        return
    kept = store.rows("canaries", encoder_fingerprint=encoder.spec.fingerprint).to_pylist()
    since, today = min(row["created"] for row in kept), datetime.now(UTC)
    spec, address = encoder.spec, encoder.spec.options.get("url", "its address")
    raise WorkError(
        f"encoder {spec.name!r}: {spec.checkpoint} at {address} is another model than on {since:%Y-%m-%d}: "
        f"the vector of {lowest!r} has a cosine of {found[lowest]:.4f} with that of then, expected {LOWEST_COSINE} or "
        "more. Vectors of two models are not mixed in one set; to encode with the new one, give the table of "
        f'{spec.name} a revision of your choice, such as revision = "{today:%Y-%m-%d}"'
    )
