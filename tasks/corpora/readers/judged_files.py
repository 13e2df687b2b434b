"""The three tables of a judged corpus (documents, queries, judgements): where they are, and what their columns mean.

Read from a folder or from a data set on the hub with a configuration for each table. The names of tables, files and
columns that are found without being named in a description stand in ``columns.toml``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias

from capim.store.errors import RequestError, did_you_mean
from capim.tasks.corpora.files import choose_split, read_text
from capim.tasks.corpora.images.image_files import Missing
from capim.tasks.corpora.readers.forms import JUDGED_TABLES, usual_column
from capim.tasks.corpora.readers.hub import HubImages, configs_of, load_split
from capim.tasks.corpora.readers.table import SUFFIXES, table_rows

TableName: TypeAlias = Literal["documents", "images", "queries", "judgements"]

# The name of a table with subsets: of ViDoRe 3 (french-corpus), MIRACL-Vision (corpus-fr) and JinaVDR (fr/corpus). The
# subsets of the first share their documents.
LAYOUTS = ("{subset}-{table}", "{table}-{subset}", "{subset}/{table}")
_SHARED, _, _FOLDERS = LAYOUTS
_SUBSET = re.compile(r"(.+)[-/]queries|queries-([^.]+)")
_TREC = re.compile(r"\S+\s+\S+\s+\S+\s+-?\d+\s*")  # query, iteration, document, grade
_GRADES = ("query", "iteration", "document", "grade")


class JudgedTable(NamedTuple):
    """One table: its rows by role, and where it was read from, for messages."""

    where: str
    rows: Iterable[Mapping[str, Any]]
    roles: frozenset[str]
    source: HubImages | None = None  # of images within the table; the role image is then their key
    absent: frozenset[str] = frozenset()  # keys of cells without an image


class JudgedFiles(NamedTuple):
    """A folder, or a data set on the hub, as tables.

    Attributes:
        place: Folder, or hub id.
        split: Split, where there are several.
        columns: ``table.role`` -> column, as the description names them.
        revision: Branch, tag or commit on the hub.
        configs: Configurations on the hub, where they are known; the hub names them otherwise.
        images: Folder or folders of the pages, where the table of documents holds none.
        ids_only: Use no images, and accept queries without a text.
        missing: Whether pages without a file are left out.
    """

    place: str
    split: str
    columns: Mapping[str, str] = MappingProxyType({})
    revision: str | None = None
    configs: tuple[str, ...] = ()
    images: str | Path | Sequence[str | Path] | None = None
    ids_only: bool = False
    missing: Missing = "error"

    @property
    def folder(self) -> Path | None:
        """The folder; None for a data set on the hub."""
        return Path(self.place) if Path(self.place).is_dir() else None

    def subsets(self) -> list[str]:
        """What ``LAYOUTS`` has beside ``queries``, in order; a corpus without subsets has the one called ``""``."""
        names = self._names()
        found = [match[1] or match[2] for name in names if (match := _SUBSET.fullmatch(name))]
        plain = any(name.partition(".")[0] in JUDGED_TABLES["queries"].names for name in names)
        return [""] if plain or not found else found

    def table(self, name: TableName, subset: str) -> JudgedTable | None:
        """A table of a subset; None if there is none.

        Raises:
            RequestError: A table cannot be read, or lacks a column.
        """
        names = _names_of(name, subset)
        if self.folder is None:
            known = self._names()
            config = next((each for each in names if each in known), None)
            return None if config is None else self._loaded(name, [], config)
        for each in names:
            if files := _files(self.folder, each, self.split):
                return self._loaded(name, files, "") if files[0].suffix == ".parquet" else self._read(name, files[0])
        return None

    def require(self, name: TableName, subset: str) -> JudgedTable:
        """The table; raises ``RequestError`` with the names that were looked for if there is none."""
        if (found := self.table(name, subset)) is None:
            names = ", ".join(_names_of(name, subset))
            runs = (
                "; runs need none: `capim import --qrels FILE --run FILE`" if self.ids_only or name == "queries" else ""
            )
            raise RequestError(f"{self.place}: no {name}; looked for {names} (docs/judged.md){runs}")
        return found

    def shared(self, subset: str) -> bool:
        """Whether the documents of a subset may be those of others, as ``LAYOUTS`` has it."""
        return _SHARED.format(subset=subset, table="queries") in self._names()

    def _names(self) -> list[str]:
        """Configurations on the hub; of a folder its files, folders, and folders of folders with queries."""
        if self.folder is None:
            return list(self.configs) or configs_of(self.place, self.revision)
        names = sorted(path.name for path in self.folder.iterdir())
        inner = (f"{name}/queries" for name in names if "." not in name)
        return names + [name for name in inner if (self.folder / name).is_dir()]

    def _loaded(self, name: TableName, files: Sequence[Path], config: str) -> JudgedTable:
        split = None if files else self.split
        loaded = load_split(self.place, split=split, config=config or None, revision=self.revision, files=files)
        where = str(files[0]) if files else f"{self.place} ({config})"
        table = self._by_role(name, where, list(loaded.dataset.column_names), loaded.rows_with_keys())
        images = loaded.images and "image" in table.roles
        return table._replace(source=loaded.source, absent=frozenset(loaded.absent())) if images else table

    def _read(self, name: TableName, file: Path) -> JudgedTable:
        if name == "judgements" and (trec := _trec_rows(file)) is not None:
            return JudgedTable(str(file), trec, frozenset(_GRADES))
        available, rows = table_rows(file)
        usual = chain.from_iterable(JUDGED_TABLES[name].columns.values())
        if name == "queries" and len(available) == 2 and usual_column(tuple(usual), available) is None:
            first = dict(zip(("id", "query"), available, strict=True))  # ids and texts without a header
            rest = (dict(zip(("id", "query"), row.values(), strict=True)) for row in rows)
            return JudgedTable(str(file), chain([first], rest), frozenset(first))
        return self._by_role(name, str(file), available, rows)

    def _by_role(
        self, name: TableName, where: str, available: Sequence[str], rows: Iterable[Mapping[str, Any]]
    ) -> JudgedTable:
        """The rows with their cells by role."""
        faults, column_of = [], {}
        for role, usual in JUDGED_TABLES[name].columns.items():
            column = self.columns.get(f"{name}.{role}") or usual_column(usual, available)
            if column is not None and column in available:
                column_of[role] = column
            elif column is not None:
                faults.append(f"no column {column!r}; {did_you_mean(column, available)}it has {', '.join(available)}")
            elif role in JUDGED_TABLES[name].required:
                line = f'columns = {{ "{name}.{role}" = "…" }}'
                faults.append(f"no column for {role}; it has {', '.join(available)}; name it with {line}")
        if faults:
            raise RequestError([f"{where}: {fault}" for fault in faults])
        by_role = ({role: row.get(column) for role, column in column_of.items()} for row in rows)
        return JudgedTable(where, by_role, frozenset(column_of))


def folders_on_hub(layout: str, subsets: Sequence[str]) -> list[str]:
    """The folders with the tables of subsets, which are read like configurations; empty for other layouts."""
    tables = ("corpus", "queries", "qrels") if layout == _FOLDERS else ()
    return [layout.format(subset=subset, table=table) for subset in subsets for table in tables]


def known_roles() -> list[str]:
    """What ``columns`` can name: ``documents.id``, ``queries.types``, ``judgements.grade`` and the others."""
    return [f"{table}.{role}" for table, each in JUDGED_TABLES.items() for role in each.columns]


def is_judged_folder(folder: Path) -> bool:
    """Whether a folder holds queries and judgements under their usual names."""
    subset = JudgedFiles(str(folder), "test").subsets()[0]
    tables: tuple[TableName, ...] = ("queries", "judgements")
    return all(any(_files(folder, each, "test", strict=False) for each in _names_of(name, subset)) for name in tables)


def _names_of(name: TableName, subset: str) -> list[str]:
    """What the table of a subset may be called."""
    if not subset:
        return [*JUDGED_TABLES[name].names]
    return [layout.format(subset=subset, table=each) for layout in LAYOUTS for each in JUDGED_TABLES[name].names]


def _files(folder: Path, name: str, split: str, *, strict: bool = True) -> list[Path]:
    """The file or the Parquet shards of a table: ``name.jsonl``, ``name/test.tsv``, ``name/test-*.parquet``, ``name``.

    Raises:
        RequestError: A folder of the table has several splits, and not this one (unless not ``strict``).
    """
    for suffix in SUFFIXES:
        if (file := folder / f"{name}{suffix}").is_file():
            return [file]
    inner = folder / name
    if inner.is_file():
        return [inner]
    if not inner.is_dir():
        return []
    by_split: dict[str, list[Path]] = {}
    for file in sorted(inner.iterdir()):
        if file.suffix.lower() in SUFFIXES:
            by_split.setdefault(re.split(r"-\d+-of-\d+", file.stem)[0], []).append(file)
    if not by_split:
        return []
    if not strict or split in by_split:
        return by_split.get(split) or next(iter(by_split.values()))
    return by_split[choose_split(inner, list(by_split))]


def _trec_rows(file: Path) -> list[Mapping[str, Any]] | None:
    """The judgements of a trec file (query, iteration, document, grade; no header); None for another file."""
    lines = [(number, line) for number, line in enumerate(read_text(file).split("\n"), start=1) if line.strip()]
    if not lines or not _TREC.fullmatch(lines[0][1]):
        return None
    for number, line in lines:
        if len(line.split()) != len(_GRADES):
            raise RequestError(
                f"{file}: line {number}: expected query, iteration, document and grade, got {line.strip()!r:.80}"
            )
    return [dict(zip(_GRADES, line.split(), strict=True)) for _, line in lines]
