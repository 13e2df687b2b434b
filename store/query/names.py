"""Names that a user gives, compared with the names that rows of the store have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from capim.store.embedding_store import EmbeddingStore
from capim.store.errors import RequestError, did_you_mean

_SHOWN = 30


def matching(name: str, known: Sequence[str]) -> list[str]:
    """The name itself if it is known, else the known names that it matches as a shell pattern.

    A pattern without ``+`` matches no figure over several protocols.

    Examples:
        >>> matching("t2i/*", ["t2i/all", "t2i/all+i2t/any", "i2t/any"])
        ['t2i/all']
    """
    if name in known:
        return [name]
    return [one for one in known if fnmatchcase(one, name) and ("+" in name or "+" not in one)]


def names_with_rows(store: EmbeddingStore, table: str, wanted: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """For each column the stored texts that the wanted names or shell patterns (``t2i/*``) mean.

    Columns without a wanted name are left out; an empty table has every name.

    Raises:
        RequestError: Names that no row has, each with the nearest that some row has.
    """
    found: dict[str, list[str]] = {}
    faults = []
    for column, names in wanted.items():
        if not names:
            continue
        known = sorted(store.counts(table, column))
        found[column] = matches = []
        for name in names:
            meant = matching(name, known) if known else [name]
            matches += [one for one in meant if one not in matches]
            if not meant:
                shown = ", ".join(known[:_SHOWN]) + (" …" if len(known) > _SHOWN else "")
                faults.append(
                    f"{column.replace('_', ' ')} {name!r} has no {table} in {store.uri}; {did_you_mean(name, known)}"
                    f"those with {table}: {shown}"
                )
    if faults:
        raise RequestError(faults)
    return found
