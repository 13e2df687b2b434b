"""The models that capim knows by name, from ``catalog.toml``."""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from capim.store.errors import RequestError, unknown
from capim.store.files import existing_file
from capim.store.types import HUB, EncoderSpec, Option, Precision, Storage, VectorKind
from capim.tasks.encoders import of_mteb
from capim.tasks.encoders.adapters import (
    ADAPTERS,
    OWN_CODE_FORM,
    OWN_FILE,
    PIN,
    adapter_faults,
    adapter_named,
    is_own_code,
)
from capim.tasks.encoders.checkpoint import repository_of
from capim.tasks.encoders.public_names import row_of, short_name

log = logging.getLogger(__name__)
FACTS = ("parameters", "memory_mb", "context", "languages", "released", "training", "trained_on", "link", "pinned_by")
"""What a row says about a model in addition to its identity; a spec has those that are known."""
_COUNT = "a whole number from 1 on"
# field -> expected value, for fields with an unclear message of pydantic
_EXPECTED = {
    "dim": _COUNT,
    "image_batch": _COUNT,
    "caption_batch": _COUNT,
    "context": _COUNT,
    "memory_mb": _COUNT,
    "parameters": "a number, of millions",
    "options": "text, a number, true or false for each option",
    "files": 'a list of file names, files = ["weights.pt"]',
    "remote_code": "true or false",
}


class CatalogEntry(BaseModel):
    """One model: how it is loaded, and facts for choosing it. The form of a row in a catalog or suite file.

    The first nine fields and the licence are those of :class:`store.types.EncoderSpec`. A model that is code, of a
    package or of the user, needs no checkpoint: it then has the name of its adapter.

    Attributes:
        pinned_by: The table or the public file that states the revision.
        storage: As in :class:`store.types.EncoderSpec`; None: float32 for one vector per item, float16 for many.
        title: A one-line description.
        image_batch: Images per forward pass.
        caption_batch: Captions per forward pass.
        parameters: Parameters of both towers, in millions, approximately; None if unknown.
        training: The training data, in particular whether COCO was part of it.
        trained_on: Corpora of capim in the training data, themselves or as their training split, by mteb's table; a
            corpus that is not listed is unknown.
        link: The page of the model.
        needs: Requirements in addition to the checkpoint: other repositories, a GPU, consent to remote code.
        languages: BCP-47 tags, or ``many``.
        context: Tokens of a caption that the model reads, at most.
        released: Date of its release, ``YYYY-MM-DD``.
        memory_mb: Memory of its weights as they are published.
        remote_code: True if the checkpoint contains Python code that must be run: in the catalog a fact, in a suite
            consent.
        files: For code of the user or of a package: files and folders that the module opens, relative to its folder;
            their contents are part of the model's identity.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: str
    adapter: str
    checkpoint: str
    dim: PositiveInt
    revision: str = "main"
    pinned_by: str = ""
    vectors: VectorKind = "single"
    precision: Precision = "float32"
    storage: Storage | None = None
    options: dict[str, Option] = Field(default_factory=dict)
    title: str = ""
    image_batch: PositiveInt = 32
    caption_batch: PositiveInt = 256
    parameters: int | float | None = None
    licence: str = "unknown"
    training: str = "unknown"
    trained_on: list[str] = Field(default_factory=list)
    link: str = ""
    needs: str = ""
    languages: str = "unknown"
    context: PositiveInt | None = None
    released: str = ""
    memory_mb: PositiveInt | None = None
    remote_code: bool = False
    files: list[str] = Field(default_factory=list)

    @cached_property
    def spec(self) -> EncoderSpec:
        """The model itself; not resolved unless the row names a commit."""
        fields = ("name", "adapter", "checkpoint", "dim", "revision", "vectors", "precision", "storage", "licence")
        facts = {**{name: getattr(self, name) for name in FACTS}, "trained_on": ", ".join(self.trained_on)}
        return EncoderSpec(
            **{name: getattr(self, name) for name in fields},
            options={**self.options, **{PIN + file: "main" for file in self.files}},
            adapter_version=adapter_named(self.adapter).version,
            facts={name: fact for name, fact in facts.items() if fact not in (None, "", "unknown")},
        )


@cache
def _own_rows() -> Mapping[str, CatalogEntry]:
    rows = tomllib.loads(Path(__file__).with_name("catalog.toml").read_text(encoding="utf-8"))
    return MappingProxyType({name: entry_from(name, row) for name, row in rows.items()})


@cache
def catalog() -> Mapping[str, CatalogEntry]:
    """Return all rows of ``catalog.toml`` by name, in order, followed by those of adapters of installed packages.

    A row of a package that is faulty, or has a name that is taken, is left out and logged in one line.
    """
    rows = dict(_own_rows())
    for key, adapter in ADAPTERS.items():
        for name, row in adapter.encoders.items():
            try:
                if name in rows:
                    owner = adapter_named(rows[name].adapter).package
                    raise RequestError(f"encoder {name!r}: the name is taken by {owner}")
                rows[name] = entry_from(name, {**row, "adapter": key})
            except RequestError as error:
                log.error("package %s, adapter %r: %s; the row is left out", adapter.package, key, error)
    return MappingProxyType(rows)


def entry_from(name: str, row: Mapping[str, object]) -> CatalogEntry:
    """Return the entry of a catalog row, or of a row of the same form in a user's suite file.

    Raises:
        RequestError: If the row has errors; lists all of them.
    """
    faults = []
    adapter = row.get("adapter")
    if isinstance(adapter, str) and adapter.endswith(".py"):  # a file with functions or a model is its own checkpoint
        row = {**row, "adapter": OWN_FILE, "checkpoint": row.get("checkpoint", adapter)}
    elif isinstance(adapter, str):
        options = row.get("options", {})
        faults = adapter_faults(adapter, options if isinstance(options, Mapping) else {})
        # the code of a package or of the user may be the model itself
        if not faults and adapter_named(adapter).library and isinstance(row.get("checkpoint"), str):
            row = {**of_mteb.row_of(str(row["checkpoint"])), **row}
        with suppress(RequestError):  # from the adapter: listed among the errors
            if not row.get("checkpoint") and (is_own_code(adapter) or adapter_named(adapter).release):
                row = {**row, "checkpoint": adapter}
    try:
        entry = CatalogEntry.model_validate({**row, "name": name})
    except ValidationError as error:
        faults += _plain(error)
    named = str(row.get("adapter"))
    if "files" in row and named in ADAPTERS and not (ADAPTERS[named].is_file or ADAPTERS[named].release):
        faults.append(f"files are only for your own code, {OWN_CODE_FORM}; for any other model all files count")
    if faults:
        raise RequestError([f"encoder {name!r}: {fault}" for fault in faults])
    try:
        entry.spec  # noqa: B018 - checks the name
    except ValueError as error:
        raise RequestError(str(error)) from error
    return entry


def entry_of(encoder: str | Mapping[str, Any]) -> CatalogEntry:
    """Return the entry of a name of the catalog, a public name (hub id, open_clip's name, folder), or a table.

    Raises:
        RequestError: No model has that name, its files fit several adapters or none, or the table has faults.
        WorkError: The hub cannot be reached for a public name.
    """
    if not isinstance(encoder, str):
        return entry_from(str(encoder.get("name", "")), encoder)
    if "/" in encoder:
        return _by_checkpoint(encoder) or entry_from(stored_name(encoder), row_of(encoder)[0])
    rows = _own_rows() if encoder in _own_rows() else catalog()  # without a look at the packages where none is needed
    if encoder not in rows:
        if Path(encoder).is_dir():
            model = f"encoder {encoder!r}: for the model in this folder write ./{encoder}"
            raise RequestError(f"{model}; images are a corpus: --corpora {encoder}")
        raise RequestError(f"{unknown('encoder', encoder, rows)} (capim list encoders)")
    return rows[encoder]


def _by_checkpoint(public: str) -> CatalogEntry | None:
    """Return the first row of the catalog with the checkpoint or the model card of a public name; None without one."""
    name = repository_of(public)
    named = (name, f"{HUB}{name}")  # open_clip downloads its tags from repositories of other names
    return next((r for r in _own_rows().values() if repository_of(r.checkpoint) in named or r.link in named), None)


def recognised(encoder: str) -> str:
    """Return the line that says what a public name stands for; empty for any other name."""
    if "/" not in encoder:
        return ""
    row = _by_checkpoint(encoder)
    if row is not None:
        return f"{encoder} is {row.name} of the catalog"
    return f"{row_of(encoder)[1]}; its name here: {stored_name(encoder)}"


def stored_name(public: str) -> str:
    """Return the stored name of a model with a public name: the catalog's for its checkpoint, or the last part."""
    if (row := _by_checkpoint(public)) is not None:
        return row.name
    short = short_name(public)
    return f"{short}-of-{short_name(public.rpartition('/')[0])}" if short in _own_rows() else short


def row_of_spec(spec: EncoderSpec) -> dict[str, Any]:
    """Return the row of a catalog or suite file that describes a model, with its facts."""
    named = ("name", "adapter", "checkpoint", "revision", "dim", "vectors", "precision", "storage", "licence")
    row = {name: getattr(spec, name) for name in named}
    facts = {name: fact for name, fact in spec.facts.items() if name not in row}
    if seen := facts.pop("trained_on", ""):
        row["trained_on"] = str(seen).split(", ")
    return {**row, **facts, "options": dict(spec.options)}


def spec_of(name: str) -> EncoderSpec:
    """Return the spec of a catalog row; raises as :func:`entry_of`."""
    return entry_of(name).spec


class Facts(BaseModel):
    """Facts about a model that capim does not load, under the names of :class:`CatalogEntry`."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    licence: str | None = None
    parameters: int | float | None = Field(default=None, gt=0)
    dim: PositiveInt | None = None
    training: str | None = None
    trained_on: str | None = None
    link: str | None = None

    def of(self, spec: EncoderSpec) -> EncoderSpec:
        """Return the spec with these facts; those that are not given stay."""
        facts = {**spec.facts, **self.model_dump(exclude_none=True, exclude={"licence"})}
        return replace(spec, licence=self.licence or spec.licence, facts=facts)


def read_facts(file: str | None, given: Mapping[str, object], encoder: str | None) -> dict[str, Facts]:
    """Return the facts of a TOML file and of options, by encoder: a file has those of one, or a table for each.

    Raises:
        RequestError: Lists all faults of the file and the options; or nothing names the model.
    """
    try:
        read = tomllib.loads(existing_file(Path(file)).read_text(encoding="utf-8")) if file else {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RequestError(f"{file} is not valid TOML: {error}") from error
    tables = read if read and all(isinstance(each, Mapping) for each in read.values()) else {encoder or "": read}
    if encoder and encoder not in tables:
        raise RequestError(f"{file}: no table [{encoder}]; it has {', '.join(tables)}")
    if given:
        tables = {**tables, encoder or "": {**tables.get(encoder or "", {}), **given}}
    found, faults = {}, []
    for name, table in tables.items():
        try:
            found[name] = Facts.model_validate(table)
        except ValidationError as error:
            faults += [f"{file or 'facts'}: {name}: {fault}" for fault in _plain(error, Facts)]
    if "" in found:
        faults.append("say which model the facts are about: --encoder NAME, or a table for each model, [NAME]")
    if faults:
        raise RequestError(faults)
    return found


def _plain(error: ValidationError, form: type[BaseModel] = CatalogEntry) -> Iterator[str]:
    """Yield one line for each field with an error."""
    for field, fault in {fault["loc"][0]: fault for fault in error.errors()}.items():
        if fault["type"] == "missing":
            yield f"{field!r} is missing"
        elif fault["type"] == "extra_forbidden":
            yield unknown("field", str(field), sorted(form.model_fields.keys() - {"name"}))
        else:
            expected = _EXPECTED.get(str(field), fault["msg"].removeprefix("Input should be "))
            yield f"{field} must be {expected}, got {fault['input']!r}"
