"""Resolves a name or a path to a stored corpus or a description, and names the user's own data in the store.

The store keeps with every corpus the locations that it was read from: the name of a known corpus, the absolute path of
a folder or file, or the JSON of a description. All functions take the rows of ``EmbeddingStore.corpora()``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from capim.store.errors import RequestError, did_you_mean, noted
from capim.store.schema import StoredCorpus
from capim.store.types import HUB, Corpus, canonical_json, is_fingerprint
from capim.tasks.corpora import CORPORA
from capim.tasks.corpora.description import reader_call
from capim.tasks.corpora.files import corpus_name
from capim.tasks.corpora.subset import sample_suffix

What: TypeAlias = str | Mapping[str, Any]

# Columns that identify and describe an item.
_ITEM_COLUMNS = {
    "image": ["id", "key"],
    "caption": ["id", "image_id", "language", "text"],
    "pair": ["id", "image_id", "caption_id", "negative_id", "category"],
    "quadruple": ["id", "image_0", "image_1", "caption_0", "caption_1"],
}


class CorpusToRead(NamedTuple):
    """The source of a corpus: a description, and the number and seed of a sample of its images."""

    what: str | dict[str, Any]
    sample: int | None = None
    seed: int = 0


def location_of(what: What) -> str:
    """Return where a corpus is read from: the name of a known corpus, an absolute path, or a description as JSON.

    Examples:
        >>> location_of("shapes"), location_of("/data/../data/photos")
        ('shapes', '/data/photos')
        >>> location_of({"reader": "shapes", "n_scenes": 3})
        '{"n_scenes":3,"reader":"shapes"}'
    """
    if isinstance(what, Mapping):
        return canonical_json({**what, **reader_call(what).options})
    return what if what in CORPORA else str(Path(what).expanduser().resolve())


def stored_corpus(
    what: What, register: Sequence[StoredCorpus], *, sample: int | None = None, seed: int = 0, uri: str = ""
) -> StoredCorpus:
    """Return the stored corpus that a name, a fingerprint, a path or a description means.

    A path or description means the corpus that was last read from it; else that of the name which its reader would give
    it, unless the data that were stored under this name are still in another place.

    Args:
        what: As for :func:`tasks.corpora.description.open_corpus`; or a stored name or fingerprint.
        register: Rows of ``EmbeddingStore.corpora()``.
        sample: Number of images of the run's sample; the corpus meant is that sample.
        seed: Random seed of the sample.
        uri: Location of the store, for the message.

    Raises:
        RequestError: There is none, with the nearest name; or a name that is also a folder means two corpora.
    """
    rows = _newest_first(register)
    here = _read_from(what, rows, sample, seed)
    if not isinstance(what, str):
        row = here or _named(reader_call(what).usual_name, rows, sample, seed)
    elif is_fingerprint(what):
        row = next((row for row in rows if row.fingerprint == what), None)
    else:
        row = _named(what, rows, sample, seed)
        if row is not None and here is not None and here.name != row.name:
            raise RequestError(_ambiguous(row, here.name))
        row = here or row or _moved(what, rows, sample, seed)
    if row is None:
        raise RequestError(_unknown(what, rows, uri))
    return row


def stored_corpora(
    given: Sequence[What], register: Sequence[StoredCorpus], *, sample: int | None = None, seed: int = 0, uri: str = ""
) -> list[StoredCorpus]:
    """Return the stored corpora that several names, paths or descriptions mean; see :func:`stored_corpus`.

    Raises:
        RequestError: All faults together.
    """
    found: list[StoredCorpus] = []
    faults: list[str] = []
    for what in given:
        with noted(faults):
            found.append(stored_corpus(what, register, sample=sample, seed=seed, uri=uri))
    if faults:
        raise RequestError(faults)
    return found


def corpus_to_read(
    what: What, register: Sequence[StoredCorpus], *, sample: int | None = None, seed: int = 0
) -> CorpusToRead:
    """Return the source of a corpus: for a stored name, the one it was last read from; otherwise ``what`` itself.

    Raises:
        RequestError: The name is that of a stored sample, and another sample is wanted.
    """
    if isinstance(what, Mapping):
        return CorpusToRead(dict(what), sample, seed)
    rows = _newest_first(register)
    row = next((row for row in rows if what in (row.name, row.fingerprint)), None)
    if row is None or not row.locations or what in CORPORA or Path(what).expanduser().exists():
        return CorpusToRead(what, sample, seed)
    location = _present(row) or row.locations[-1]
    described = json.loads(location) if location.startswith("{") else location
    if row.sample is None:
        return CorpusToRead(described, sample, seed)
    drawn = row.sample, row.seed or 0
    if sample is not None and (sample, seed) != drawn:
        raise RequestError(
            f"corpus {what!r} is a sample of {drawn[0]} images with seed {drawn[1]}; {sample} cannot be drawn from it "
            f"with seed {seed}: leave --sample out, or give the whole corpus: {location}"
        )
    return CorpusToRead(described, row.sample, row.seed or 0)


def disambiguate(corpus: Corpus, reading: CorpusToRead, register: Sequence[StoredCorpus]) -> Corpus:
    """Return the corpus with its location, under the name that it is stored under.

    Own data without a name of their own are named after their folder or file. If other data from another place have
    that name, the name of the parent folder is put before it. Data that were moved keep their name, and so do known
    corpora and corpora with a name in their description.

    Raises:
        RequestError: The name that was given is that of a stored corpus, and of a folder here with other contents.

    Examples:
        >>> from types import SimpleNamespace
        >>> from capim.tasks.corpora.build import CaptionRow, ImageRow, build_corpus
        >>> def corpus(text): return build_corpus("p", [ImageRow("a")], [CaptionRow("a#0", "a", text)], source=None)
        >>> row = SimpleNamespace(name="p", fingerprint=corpus("red").fingerprint, locations=["/a/p"], sample=None,
        ...     seed=None, n_images=1, n_captions=1, written=0)
        >>> own = CorpusToRead({"reader": "coco-captions", "root": "/b/p"})
        >>> disambiguate(corpus("red"), own, [row]).name, disambiguate(corpus("blue"), own, [row]).name
        ('p', 'b-p')
    """
    suffix = sample_suffix(reading.sample, reading.seed)
    suffix = suffix if corpus.name.endswith(suffix) else ""
    draw = (reading.sample, reading.seed) if suffix and reading.sample is not None else None
    corpus = replace(corpus, location=location_of(reading.what), draw=draw)
    place = reader_call(reading.what).place
    if place is None:
        return corpus
    rows = _newest_first(register)
    named = _own_name(corpus, place, rows, suffix)
    same = next((row for row in rows if row.name == reading.what), None)
    if same is not None and named.name != same.name + suffix:
        raise RequestError(_ambiguous(same, named.name))
    return named


def _own_name(corpus: Corpus, place: Path, rows: Sequence[StoredCorpus], suffix: str) -> Corpus:
    """Return own data under the name that they are stored under."""
    own = corpus.name.removesuffix(suffix)
    for row in rows:
        if corpus.location in row.locations and f"-{base_name(row)}".endswith(f"-{own}"):
            return replace(corpus, name=base_name(row) + suffix)
    counts = (corpus.images.num_rows, corpus.captions.num_rows)
    for row in rows:  # moved or copied: the same contents under this name, or under a disambiguated one
        if f"-{row.name}".endswith(f"-{corpus.name}") and (row.n_images, row.n_captions) == counts:
            moved = replace(corpus, name=row.name)
            if moved.fingerprint == row.fingerprint:
                return moved
    taken = {base_name(row) for row in rows if row.locations}
    name = own
    for parent in place.parents:
        if name not in taken or not parent.name:
            break
        name = f"{corpus_name(parent)}-{name}"
    return replace(corpus, name=name + suffix)


def _newest_first(register: Sequence[StoredCorpus]) -> list[StoredCorpus]:
    return sorted(register, key=lambda row: row.written, reverse=True)


def base_name(row: StoredCorpus) -> str:
    """Return the name of the corpus that a stored corpus is a sample of; its own where it is none."""
    return str(row.name).removesuffix(sample_suffix(row.sample, row.seed or 0))


def _read_from(what: What, rows: Sequence[StoredCorpus], sample: int | None, seed: int) -> StoredCorpus | None:
    """Return the newest corpus that was read from this path or description; None for a known name: it is no place."""
    if isinstance(what, str) and what in CORPORA:
        return None
    location = location_of(what)
    found = [row for row in rows if location in row.locations]
    drawn = [row for row in found if sample is not None and (row.sample, row.seed) == (sample, seed)]
    whole = [row for row in found if row.sample is None and (sample is None or row.n_images <= sample)]
    return next(iter([*drawn, *whole]), None)


def _named(name: str, rows: Sequence[StoredCorpus], sample: int | None, seed: int) -> StoredCorpus | None:
    """Return the newest corpus of this name, or the sample of it."""
    drawn = [row for row in rows if sample is not None and row.name == name + sample_suffix(sample, seed)]
    whole = [
        row for row in rows if row.name == name and (sample is None or row.sample is not None or row.n_images <= sample)
    ]
    return next(iter([*drawn, *whole]), None)


def _moved(what: str, rows: Sequence[StoredCorpus], sample: int | None, seed: int) -> StoredCorpus | None:
    """Return the corpus that a path's reader would name, unless the data of that name are still somewhere else."""
    try:
        call = reader_call(what)
    except RequestError:
        return None
    row = _named(call.usual_name, rows, sample, seed)
    return None if row is not None and call.place is not None and _present(row) else row


def _present(row: StoredCorpus) -> str | None:
    """Return the last of the locations of a corpus that can be read now."""
    return next((place for place in reversed(row.locations) if _can_be_read(place)), None)


def _can_be_read(location: str) -> bool:
    return location in CORPORA or location.startswith("{") or Path(location).exists()


def _ambiguous(row: StoredCorpus, other: str) -> str:
    """Return the fault of the name of a stored corpus that is also a folder with other data, named ``other``."""
    origin = row.locations[-1] if row.locations else "another program"
    return (
        f"corpus {row.name!r} is ambiguous: the folder or file {location_of(row.name)}, {other!r} in the store, or "
        f"the stored corpus {row.name!r} from {origin}; give './{row.name}' for the first, {row.fingerprint!r} for the "
        "second"
    )


def _unknown(what: What, rows: Sequence[StoredCorpus], uri: str) -> str:
    shown = what if isinstance(what, str) else str(what.get("name") or what.get("root") or what.get("reader"))
    names = sorted({str(row.name) for row in rows})
    location = location_of(what)
    same = [str(row.name) for row in rows if location in row.locations]  # among them samples of the same data
    hint = f"did you mean {same[0]!r}? " if same else did_you_mean(corpus_name(Path(shown)), names)
    given = f"--corpora {shown}" if isinstance(what, str) else "SUITE.toml"
    command = f". Run `capim embed {given}` with an encoder first" if _can_be_read(location) else ""
    return (
        f"corpus {shown!r} is not in the store{uri and f' {uri}'}; {hint}it holds {', '.join(names) or 'none'}{command}"
    )


def corpus_items(corpus: Corpus, kind: str) -> list[dict[str, Any]]:
    """Return the items of one kind (``image``, ``caption``, ``pair``, ``quadruple``) in the order of the corpus.

    Examples:
        >>> from capim.tasks.corpora.build import CaptionRow, ImageRow, build_corpus
        >>> corpus = build_corpus("c", [ImageRow("a", "a.jpg")], [CaptionRow("a0", "a", "red")], source=None)
        >>> corpus_items(corpus, "image")
        [{'id': 'a', 'file': 'a.jpg'}]
    """
    table: pa.Table = getattr(corpus, f"{kind}s")
    rows = table.select(_ITEM_COLUMNS[kind]).to_pylist()
    return rows if kind != "image" else [{"id": row["id"], "file": row["key"]} for row in rows]


def list_corpora() -> list[dict[str, str]]:
    """Return all rows of ``CORPORA`` in their order; no reader is imported."""
    return [
        {
            "name": name,
            "title": row.title,
            "size": row.size,
            "languages": f"{len(row.languages)} languages"
            if len(row.languages) > 8
            else ", ".join(row.languages) or "any",
            "domain": row.domain,
            "licence": row.licence,
            "needs": row.needs,
            "source": f"{HUB}datasets/{row.hub}" if row.hub else row.origin or row.domain,
            "revision": row.revisions.get(row.hub, "unpinned" if row.hub else "not on the hub"),
            "pinned_by": row.pinned_by,
            "citation": row.citation,
            "package": CORPORA.package(name),
        }
        for name, row in CORPORA.items()
    ]
