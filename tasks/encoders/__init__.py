"""Encoders: one interface for all models, from images and captions to unit vectors.

``ADAPTERS`` lists the families of models, ``catalog()`` the models that are known by name. Importing this package does
not import torch; loading a model does.
"""

from __future__ import annotations

from capim.tasks.encoders.adapters import ADAPTERS, Adapter, adapter_named, require_libraries
from capim.tasks.encoders.catalog import CatalogEntry, catalog, entry_from, entry_of, spec_of
from capim.tasks.encoders.encoder import Encoder, encode_captions, encode_images
from capim.tasks.encoders.identity import identity_gap, resolve
from capim.tasks.encoders.loading import load_encoder

__all__ = [
    "ADAPTERS",
    "Adapter",
    "CatalogEntry",
    "Encoder",
    "adapter_named",
    "catalog",
    "encode_captions",
    "encode_images",
    "entry_from",
    "entry_of",
    "identity_gap",
    "load_encoder",
    "require_libraries",
    "resolve",
    "spec_of",
]
