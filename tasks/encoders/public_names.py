"""A model by its public name: a hub id, a name of open_clip, or a folder. Its own files say which adapter loads it.

Nothing is concluded from the words of a name. Where the files fit several adapters, or none, the error has the rows
that a suite could hold. Dimensions that the files do not give are those of the family; loading proves them.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from capim.store.errors import RequestError
from capim.store.types import EncoderSpec
from capim.tasks.encoders.adapters import ADAPTERS, MTEB, OPEN_CLIP
from capim.tasks.encoders.adapters.recognition import Fit, ReadJson
from capim.tasks.encoders.checkpoint import json_reader, local_path, open_clip_tag, repository_of
from capim.tasks.hub import commit_of

_HUB = "hf-hub:"
_OF_OPEN_CLIP = re.compile(r"[A-Za-z0-9.-]+/[a-z0-9_.-]+")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def short_name(public: str) -> str:
    """Return the name under which the store keeps a model of a public name.

    Examples:
        >>> short_name("openai/clip-vit-base-patch32"), short_name("ViT-B-32/laion2b_s34b_b79k"), short_name("./clip/")
        ('clip-vit-base-patch32', 'ViT-B-32-laion2b_s34b_b79k', 'clip')
    """
    path = repository_of(public).rstrip("/")
    name = path.replace("/", "-") if _architecture(public) else path.rpartition("/")[2]
    return _UNSAFE.sub("-", name).strip("-._") or "model"


def row_of(public: str) -> tuple[Mapping[str, object], str]:
    """Return the row of a suite for a public name, without its name, and a sentence that says what was recognised.

    A folder is read at each call: a training may have written to it since the last one.

    Raises:
        RequestError: The name does not exist, or its files fit several adapters or none.
        WorkError: The hub cannot be reached.
    """
    return _recognised(public) if local_path(public) else _recognised_once(public)


@cache
def _recognised_once(public: str) -> tuple[Mapping[str, object], str]:
    return _recognised(public)


def _recognised(public: str) -> tuple[Mapping[str, object], str]:
    if _architecture(public):
        tag = open_clip_tag(EncoderSpec(name="model", adapter=OPEN_CLIP, checkpoint=public, dim=1))
        if tag is not None:
            fit = Fit(by="open_clip's table of pretrained weights", dim=int(tag.config["embed_dim"]))
            return _row(public, OPEN_CLIP, fit)
    read = _reader(public)
    fits = {name: found for name, each in ADAPTERS.items() if each.fits and (found := each.fits(read, _reader))}
    if public.startswith(_HUB):  # open_clip's own form of a name
        fits = {name: fit for name, fit in fits.items() if ADAPTERS[name].open_clip} or fits
    if not fits and (of_mteb := _of_mteb(public)):
        fits = {MTEB: of_mteb}
    if len(fits) == 1:
        [(adapter, fit)] = fits.items()
        if fit.dim:
            return _row(public, adapter, fit)
    raise RequestError(_undecided(public, fits))


def _row(public: str, adapter: str, fit: Fit) -> tuple[Mapping[str, object], str]:
    """Return the row, in which the path of a folder is absolute, and what was recognised."""
    checkpoint = public
    if not _architecture(public):
        path = local_path(public)
        of_open_clip = ADAPTERS[adapter].open_clip and not public.startswith(_HUB)
        checkpoint = str(path.absolute()) if path else _HUB * of_open_clip + public
    row = {"adapter": adapter, "checkpoint": checkpoint, "dim": fit.dim or "?", "vectors": fit.vectors}
    return row, f"{public}: adapter {adapter}, {fit.vectors} vectors of {fit.dim}, by {fit.by}"


def _undecided(public: str, fits: Mapping[str, Fit]) -> str:
    """Return why a public name has no row, with the rows to choose from."""
    rows = "; ".join(
        f"[[encoder]] name = {json.dumps(short_name(public))}, "
        + ", ".join(f"{key} = {json.dumps(value)}" for key, value in _row(public, adapter, fit)[0].items())
        for adapter, fit in fits.items()
    )
    if len(fits) > 1:
        names = " and ".join(f"{adapter} (by {fit.by})" for adapter, fit in fits.items())
        return f"encoder {public!r} fits {names}; write one of these rows into a suite file: {rows}"
    for fit in fits.values():
        return f"encoder {public!r}: {fit.by} gives no dimension; write a row with it into a suite file: {rows}"
    known = ", ".join(name for name, each in ADAPTERS.items() if not each.is_remote)
    return (
        f"encoder {public!r}: no adapter recognises its files (config.json, modules.json, open_clip_config.json, "
        f"adapter_config.json, torch_config.json); describe it in a suite file (docs/own_model.md), with one of the "
        f"adapters {known}; images are a corpus: --corpora {public}"
    )


def _architecture(public: str) -> bool:
    """True if the first part of a name is an architecture of open_clip, which is not imported for this."""
    source = importlib.util.find_spec("open_clip") if _OF_OPEN_CLIP.fullmatch(public) else None
    folders = list((source and source.submodule_search_locations) or ())
    return any((Path(folder) / "model_configs" / f"{public.partition('/')[0]}.json").is_file() for folder in folders)


def _reader(public: str) -> ReadJson:
    """Return a reader of the JSON files of a folder, or of a hub repository at its newest commit."""
    return json_reader(public, "" if local_path(public) else commit_of(repository_of(public), "main"))


def _of_mteb(public: str) -> Fit | None:
    """Return mteb's own loader for a model of its table that no adapter recognises; None if mteb is not installed."""
    if ADAPTERS[MTEB].missing:
        return None
    from capim.tasks.encoders.of_mteb import row_of as row_of_mteb

    try:
        row: Mapping[str, Any] = row_of_mteb(public)
    except RequestError:
        return None
    return Fit(by="mteb's table of models", dim=row.get("dim"), vectors=row["vectors"])
