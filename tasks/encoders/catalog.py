"""The models that are known by name, from ``catalog.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from types import MappingProxyType

from store.errors import RequestError
from store.types import EncoderSpec
from tasks.encoders.adapters.table import ADAPTERS, unknown_options

CATALOG = Path(__file__).with_name("catalog.toml")
_SPEC_KEYS = frozenset(field.name for field in fields(EncoderSpec)) - {"name", "adapter_version"}


@dataclass(frozen=True, kw_only=True)
class CatalogEntry:
    """One model: how it is loaded, and what one should know before choosing it.

    Attributes:
        spec: Unresolved unless the row names a commit.
        title: One line for people.
        image_batch: Images per forward pass to begin with.
        caption_batch: Captions per forward pass to begin with.
        parameters: Of both towers, in millions, to be read as "about"; None where we do not know.
        licence: Of the weights; ``unknown`` where we do not know.
        training: What is known of the training data, above all whether COCO was in it.
        needs: What must be at hand beside the checkpoint: other repositories, a GPU, consent to remote code.
        languages: BCP-47 tags, or ``many``.
        remote_code: The checkpoint brings Python code that must be run; never without consent.
    """

    spec: EncoderSpec
    title: str
    image_batch: int = 32
    caption_batch: int = 256
    parameters: float | None = None
    licence: str = "unknown"
    training: str = "unknown"
    needs: str = ""
    languages: str = "en"
    remote_code: bool = False


_ENTRY_KEYS = frozenset(field.name for field in fields(CatalogEntry)) - {"spec"}


@cache
def catalog() -> Mapping[str, CatalogEntry]:
    """All rows of ``catalog.toml``, in its order, by name."""
    with CATALOG.open("rb") as file:
        rows = tomllib.load(file)
    return MappingProxyType({name: entry_from(name, row) for name, row in rows.items()})


def entry_from(name: str, row: Mapping[str, object]) -> CatalogEntry:
    """A catalog row, or a row of the same form in a user's suite file, as an entry.

    Raises:
        RequestError: Lists every fault of the row.
    """
    unknown = sorted(set(row) - _SPEC_KEYS - _ENTRY_KEYS)
    faults = [
        f"encoder {name!r}: {key!r} is unknown; known: {', '.join(sorted(_SPEC_KEYS | _ENTRY_KEYS))}" for key in unknown
    ]
    faults += [f"encoder {name!r}: {key!r} is missing" for key in ("adapter", "checkpoint", "dim") if key not in row]
    adapter = ADAPTERS.get(str(row.get("adapter")))
    if adapter is None and "adapter" in row:
        faults.append(f"encoder {name!r}: adapter {row['adapter']!r} is unknown; known: {', '.join(ADAPTERS)}")
    faults += [
        f"encoder {name!r}: {key} must be a whole number from 1 on, got {row[key]!r}"
        for key in ("image_batch", "caption_batch")
        if key in row and not (isinstance(row[key], int) and row[key] >= 1)  # type: ignore[operator]
    ]
    if faults or adapter is None:
        raise RequestError(faults)
    try:
        spec = EncoderSpec(
            name=name,
            adapter_version=adapter.version,
            **{key: value for key, value in row.items() if key in _SPEC_KEYS},  # type: ignore[arg-type]
        )
        faults = unknown_options(spec)
        if faults:
            raise RequestError(faults)
        return CatalogEntry(
            spec=spec,
            **{"title": spec.checkpoint, **{key: value for key, value in row.items() if key in _ENTRY_KEYS}},  # type: ignore[arg-type]
        )
    except RequestError:
        raise
    except (TypeError, ValueError) as error:
        raise RequestError(str(error)) from error


def entry_of(name: str) -> CatalogEntry:
    """The catalog row of that name.

    Raises:
        RequestError: No row has that name; the message lists the names.
    """
    known = catalog()
    if name not in known:
        raise RequestError(f"encoder {name!r} is unknown; known: {', '.join(known)}")
    return known[name]


def spec_of(name: str) -> EncoderSpec:
    """The spec of a catalog row; raises as :func:`entry_of`."""
    return entry_of(name).spec
