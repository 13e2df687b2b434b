"""Queries, document pages and graded judgements: mteb's and BEIR's layout, trec's, or tables of the user's own.

The published corpora of document pages (ViDoRe, JinaVDR, MIRACL-Vision) have readers with the names of their tasks. The
three tables (documents, queries, judgements) are read from a folder or from a data set on the hub with a configuration
for each; the names of tables, files and columns that are found without being named in a description are in
``columns.toml``.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias

from capim.store.errors import RequestError, some
from capim.store.forms import FORMS, Columns
from capim.store.schema import JUDGED
from capim.store.sets.columns_read import GRADES, NO_OPTION, SPLITS, TONGUES, tell
from capim.store.sets.lists import cells_of, finite
from capim.store.tables import SUFFIXES, open_table, read_json, suffix_of, uncompressed
from capim.store.types import Corpus, digest16
from capim.tasks.corpora import JUDGED_TASKS, LANGUAGES, JudgedTask, SubsetCounts
from capim.tasks.corpora.build import CaptionRow, Faults, ImageRow, RelevanceRow, SkippedRow
from capim.tasks.corpora.files import choose_split, corpus_name, require_folder, require_known, said
from capim.tasks.corpora.images.image_files import LocatedImages, images_below, locate_images, without_image_suffix
from capim.tasks.corpora.readers.forms import TableRows, form_of, rows_by_role
from capim.tasks.corpora.readers.hub import configs_of, load_split
from capim.tasks.corpora.readers.table import holds_images, shards_in, table_columns
from capim.tasks.protocols import MAIN_OF_JUDGED

_CODE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]+)*")
_TWICE = "documents judged twice with different grades"
_UNJUDGED = "no document is judged relevant to this query"
# Names of the fields of SubsetCounts, for messages.
_WORDS = (
    "pages and queries",
    "queries with different texts",
    "judgements",
    "judgements at least",
    "judgements at most",
)


def read_judged(
    dataset: str,
    *,
    images: str | Path | Sequence[str | Path] | None = None,
    revision: str | None = None,
    split: str | None = None,
    subsets: Sequence[str] | None = None,
    columns: Mapping[str, str] | None = None,
    language: str = "en",
    main_metric: str = MAIN_OF_JUDGED,
    ids_only: bool = False,
    name: str | None = None,
) -> Corpus:
    """Return the corpus of three tables: documents are its images, queries its captions, which describe no image.

    A grade above 0 is relevant; 0 and below is judged not relevant (trec has negative grades for pages that are worse
    than useless). Queries without a relevant document are left out and listed; judgements of queries that are not in
    the table of queries are ignored, as mteb does: those of ViDoRe 2 and 3 are of all languages in every subset.

    Args:
        dataset: Folder with the tables (``docs/judged.md`` shows the layouts), or hub id. Also one table, a data set or
            a folder of it, with a query and its page in each row (:func:`question_columns`).
        images: Folder of the pages, where the table of documents holds none; unless given, ``images/`` or the folder
            itself. Without a table of documents the images of the folder are the documents.
        split: Of tables with several splits; ``test`` or the only one, unless given. Judgements are of no other split
            than the given one; documents and queries may be.
        subsets: Parts to read, such as ViDoRe's languages; all by default. They share their documents.
        columns: ``table.role`` -> column, for roles without a column of a usual name: ``queries.query``.
        main_metric: Headline of the corpus.
        ids_only: Use no images, and accept queries without a text.

    Raises:
        RequestError: A table or column is missing, a grade is missing or no whole number, an id repeats, a document is
            judged twice with different grades, or a judged document is not in the corpus; lists every fault.
    """
    local = Path(dataset).expanduser()
    place = str(local.absolute()) if local.exists() else dataset
    require_known(place, "columns", columns or {}, [f"{name}.{role}" for name in TABLES for role in FORMS[name].roles])
    files = JudgedFiles(place, split or "test", columns or {}, revision, images=images, ids_only=ids_only)
    files = files._replace(given=split is not None).with_questions()
    name = name or corpus_name(Path(place))
    return _corpus(files, subsets, language=language, main_metric=main_metric, name=name)


def _corpus(
    files: JudgedFiles,
    subsets: Sequence[str] | None,
    *,
    language: str,
    main_metric: str,
    name: str,
    published: JudgedTask | None = None,
) -> Corpus:
    """Return the corpus of these subsets, or of all; raise if a subset, before rows are left out, has other counts."""
    place, known = files.place, files.subsets()
    require_known(place, "subsets", subsets or (), known)
    chosen = [subset for subset in known if not subsets or subset in subsets]
    faults = Faults(place)
    read = [_read_part(files, subset, language, faults) for subset in chosen]
    asked_for, parts = {row.id for part in read for row in part.queries}, _distinct(read)
    if not files.ids_only and any(row.text is None for part in parts for row in part.queries):
        way = "name their column with columns, or set ids_only = true; of images that search images: docs/labels.md"
        raise RequestError(f"{place}: queries without a text; {way}")
    documents = _documents(files, chosen, [d for p in parts for _, d in p.grades])
    pages, left_out = {row.id for row in documents.rows}, {row.item_id for row in documents.skipped}
    queries = [row for part in parts for row in part.queries]
    known_queries = {row.id for row in queries}
    grades: dict[tuple[str, str], tuple[str, int]] = {}
    for subset, part in zip(chosen, parts, strict=True):
        for pair, grade in part.grades.items():
            before = grades.setdefault(pair, (subset, grade))
            if before[1] != grade:
                faults.add(_TWICE, _graded(pair, before[1], f"subset {before[0]}", grade, f"subset {subset}"))
    judgements = []
    for (query, document), (_, grade) in grades.items():
        if document not in pages and document not in left_out:
            faults.add("judged documents that are not in the corpus", f"{document!r} for query {query!r}")
        elif document in pages and query in known_queries:
            judgements.append(RelevanceRow(JUDGED, "t2i", query, document, grade))
    faults.raise_any()
    strays = [query for query, _ in dict.fromkeys(chain(*(part.grades for part in read))) if query not in asked_for]
    if strays and published is None and (chosen == known or len(chosen) == 1):
        tell(f"warning: {place}: {len(strays):,} judgements of queries without a row are left out, first {strays[0]!r}")
    relevant = {row.query_id for row in judgements if row.grade > 0}
    asked = [row for row in queries if row.id in relevant]
    if not asked:
        raise RequestError(
            f"{place}: none of its {len(queries)} queries has a relevant document; the ids of "
            "queries and judgements have to agree"
        )
    n_documents = len(documents.rows) + len(documents.skipped)
    documents.skipped.extend(SkippedRow(row.id, _UNJUDGED, "caption") for row in queries if row.id not in relevant)
    corpus = documents.corpus(
        name,
        _grouped(asked, judgements) if len(chosen) > 1 else asked,
        relevance=[row for row in judgements if row.query_id in relevant],
        licence="unknown" if published is None else published.licence,
        origin=f"https://huggingface.co/datasets/{place}" if files.folder is None else place,
        languages_reference=language,
        main_metric=main_metric,
    )
    wrong = [
        f"{name}{subset and f' ({subset})'}: expected {expected:,} {what}, got {count:,}"
        for subset, part in zip(chosen, parts, strict=True)
        if published is not None and (counts := published.subsets.get(subset)) is not None
        for what, expected, count in zip(_WORDS, counts, _counts(part, n_documents), strict=True)
        if expected != count
    ]
    if published is not None and wrong:
        raise RequestError([*wrong, f"{name}: read revision {published.revision} of {published.dataset}, whole"])
    return corpus


def task_reader(name: str) -> Callable[..., Corpus]:
    """Return the reader of one of ``JUDGED_TASKS``."""
    task = JUDGED_TASKS[name]

    def read(
        root: str | Path | None = None,
        *,
        images: str | Path | Sequence[str | Path] | None = None,
        subsets: Sequence[str] | None = None,
        revision: str | None = None,
        ids_only: bool = False,
    ) -> Corpus:
        """Return the corpus of a task, under its name, with as many rows as mteb counted.

        Args:
            root: The data set as a folder; from the hub unless given.
            subsets: Languages of ViDoRe 2 or 3 to read; all by default.
            revision: Branch, tag or commit on the hub; the pinned one unless given.

        Raises:
            RequestError: A count is another one than expected, and as :func:`tasks.corpora.readers.judged.read_judged`.
        """
        files = JudgedFiles(
            task.dataset if root is None else str(require_folder(root, f"{name} folder")),
            task.split,
            revision=revision or task.revision or None,
            configs=folders,
            images=images,
            ids_only=ids_only,
        )
        chosen, language = subsets or [subset for subset in task.subsets if subset], task.language
        return _corpus(files, chosen, language=language, main_metric=task.main_metric, name=name, published=task)

    tables = ("corpus", "queries", "qrels") if task.layout == _FOLDERS else ()  # which are read like configurations
    folders = tuple(task.layout.format(subset=subset, table=table) for subset in task.subsets for table in tables)
    read.__name__ = f"read_{name}"
    return read


class _JudgedPart(NamedTuple):
    """The language and the queries of a subset, and the grade of each judged pair of a query and a document."""

    language: str
    queries: list[CaptionRow]
    grades: dict[tuple[str, str], int]


def _counts(part: _JudgedPart, n_documents: int) -> SubsetCounts:
    """Return what mteb counts in a subset: queries that are judged, and judgements with another grade than 0."""
    judged = {query for query, _ in part.grades}
    queries = [row.text for row in part.queries if row.id in judged]
    per_query = Counter(query for (query, _), grade in part.grades.items() if grade)
    fewest = min((per_query[query] for query in judged), default=0)
    most = max(per_query.values(), default=0)
    return SubsetCounts(n_documents + len(queries), len(set(queries)), per_query.total(), fewest, most)


def _read_part(files: JudgedFiles, subset: str, language: str, faults: Faults) -> _JudgedPart:
    """Return the queries of a subset, and its judgements, which may be of queries in other subsets (ViDoRe 2 and 3)."""
    own, table = _language(subset, language), files.require("queries", subset)
    queries, parts = [], dict[str, list[str]]()
    for number, row in enumerate(table.rows, start=1):
        types, texts = row.get("types"), said(row.get("query"), f"{table.where}: query {row['id']!r}, row {number}")
        kinds = [types] if isinstance(types, str) else types and [str(each) for each in types]
        tongue, name, several = _language(str(row.get("language") or ""), own), str(row["id"]), len(texts) > 1
        group = text_or_none(row.get("group")) or (name if several else None)
        parts[name] = [f"{name}#{n}" for n in range(len(texts))] if several else [name]  # with the same judgements
        for part, text in zip(parts[name], texts or [""], strict=True):
            caption = CaptionRow(part, None, text if texts else None, language=tongue, query_group=group)
            queries.append(caption._replace(query_types=kinds))
    for query, count in Counter(row.id for row in queries).items():
        if count > 1:
            faults.add("duplicate query ids", repr(query))
    grades, places = dict[tuple[str, str], int](), dict[tuple[str, str], str]()
    for number, row in enumerate(files.require("judgements", subset).rows, start=1):
        pair, place = (str(row["query"]), str(row["document"])), row.get("where", f"row {number}")
        grade = _grade(row["grade"], "query {!r}, document {!r}, {}".format(*pair, place), faults)
        first = places.setdefault(pair, place)
        for name in parts.get(pair[0], pair[:1]):
            if grade is not None and (before := grades.setdefault((name, pair[1]), grade)) != grade:
                faults.add(_TWICE, _graded(pair, before, first, grade, place))
    return _JudgedPart(own, queries, grades)


def _graded(pair: tuple[str, str], before: int, first: str, grade: int, place: str) -> str:
    return "query {!r}, document {!r}: {} ({}) and {} ({})".format(*pair, before, first, grade, place)


def _grade(value: object, where: str, faults: Faults) -> int | None:
    """Return a grade as a whole number; note the fault and return None if it is none."""
    if value is None or (isinstance(value, str) and not value.strip()):
        faults.add("judgements without a grade", where)
    elif isinstance(value, bool) or (number := finite(value)) is None or not number.is_integer():
        faults.add("grades that are not whole numbers", f"{value!r} of {where}")
    else:
        return int(number)
    return None


def _language(name: str, default: str) -> str:
    """Return the code of a language that is written as ViDoRe does, or as a code; the default for other names."""
    code = LANGUAGES.get(name.casefold(), name)
    return code if _CODE.fullmatch(code) else default


def _distinct(parts: Sequence[_JudgedPart]) -> list[_JudgedPart]:
    """Return the parts with the language before the ids of their queries, where subsets use the same ids."""
    counts = Counter(row.id for part in parts for row in part.queries)
    if all(count == 1 for count in counts.values()):
        return list(parts)
    renamed = []
    for part in parts:
        start = f"{part.language}/"
        queries = [row._replace(id=start + row.id) for row in part.queries]
        grades = {(start + query, document): grade for (query, document), grade in part.grades.items()}
        renamed.append(part._replace(queries=queries, grades=grades))
    return renamed


def _grouped(queries: Iterable[CaptionRow], judgements: Iterable[RelevanceRow]) -> list[CaptionRow]:
    """Return the queries of several subsets with groups: one question in several languages has the same judgements.

    ViDoRe does not say which queries are translations of each other. Two questions with exactly the same judged
    documents and grades are taken for one, which makes intervals wider, not narrower.
    """
    judged: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
    for row in judgements:
        judged[row.query_id].append((row.item_id, row.grade))
    return [
        row if row.query_group is not None else row._replace(query_group=digest16(sorted(judged[row.id])))
        for row in queries
    ]


def _documents(files: JudgedFiles, subsets: Sequence[str], judged: Sequence[str]) -> LocatedImages:
    """Return the documents, which all subsets have in common; without a table of them the images of the folder."""
    table = files.table("documents", subsets[0])
    beside = [files.images] if isinstance(files.images, str | Path) else list(files.images or ())
    if not beside and files.folder is not None:
        beside = [folder for folder in (files.folder / "images", files.folder) if folder.is_dir()]
    if table is None:
        if not beside or files.ids_only:
            rows = [ImageRow(each) for each in dict.fromkeys(judged)] if files.ids_only else []
            if not rows:
                raise RequestError(
                    f"{files.place}: no documents; looked for {', '.join(FORMS['documents'].files)}; with "
                    "ids_only = true the judged documents are taken by their ids"
                )
            return LocatedImages(rows, None, [])
        return _image_files(Path(beside[0]), set(judged), files)
    rows = list(map(_page, table.rows))
    ids = [row.id for row in rows]
    for subset in subsets[1:]:
        if not files.shared(subset) or [str(row["id"]) for row in files.require("documents", subset).rows] != ids:
            raise RequestError(
                f"{files.place}: subsets {subsets[0]} and {subset} have different documents; read one at a time with "
                f'subsets = ["{subset}"]'
            )
    if files.ids_only:
        return LocatedImages(rows, None, [])
    source = table.source
    if subsets[0] and (pictures := files.table("images", subsets[0])) is not None and pictures.source is not None:
        key_of = {str(row["id"]): str(row["image"]) for row in pictures.rows}
        rows = [row._replace(key=key_of.get(row.key, "")) for row in rows]
        source = pictures.source
    if source is not None:
        return source.locate(rows, where=table.where, what="documents")
    if not beside:
        raise RequestError(f"{table.where}: it holds no images; give their folder with images, or set ids_only = true")
    return locate_images(rows, beside, origin=table.where)


def text_or_none(cell: object) -> str | None:
    """Return a cell as text; None for one that holds nothing."""
    return None if cell is None else str(cell)


def _page(row: Mapping[str, Any]) -> ImageRow:
    page = row.get("page")
    return ImageRow(
        str(row["id"]),
        str(row.get("image") or row["id"]),
        text=text_or_none(row.get("text")),
        document=text_or_none(row.get("document")),
        page=int(str(page)) if str(page).isdigit() else None,
    )


def _image_files(folder: Path, judged: set[str], files: JudgedFiles) -> LocatedImages:
    """Return the images of a folder; ids are the names of their files, without the suffix unless judgements have it."""
    found = sorted(images_below(folder))
    whole = not judged.isdisjoint(found)
    rows = [ImageRow(file if whole else without_image_suffix(file), file) for file in found]
    if not rows:
        raise RequestError(f"{files.place}: no documents: neither a table of them nor images in {folder}")
    return locate_images(rows, folder, origin=files.place)


TableName: TypeAlias = Literal["documents", "images", "queries", "judgements"]
TABLES: tuple[TableName, ...] = ("documents", "images", "queries", "judgements")

# The name of a table with subsets: of ViDoRe 3 (french-corpus), MIRACL-Vision (corpus-fr) and JinaVDR (fr/corpus). The
# subsets of the first share their documents.
LAYOUTS = ("{subset}-{table}", "{table}-{subset}", "{subset}/{table}")
_SHARED, _, _FOLDERS = LAYOUTS
_SUBSET = re.compile(r"(.+)[-/]queries|queries-([^.]+)")
_WAY = 'read it with columns = {{ "%s" = "{column}" }}'
_ASKED: Mapping[str, str] = {GRADES: _WAY % "judgements.grade", SPLITS: NO_OPTION, TONGUES: NO_OPTION}


class JudgedFiles(NamedTuple):
    """A folder, or a data set on the hub, as tables with roles as columns.

    Attributes:
        place: Folder, or hub id.
        split: Split, where there are several.
        columns: ``table.role`` -> column, as the description names them.
        revision: Branch, tag or commit on the hub.
        configs: Configurations on the hub, where they are known; the hub names them otherwise.
        images: Folder or folders of the pages, where the table of documents holds none.
        ids_only: Use no images, and accept queries without a text.
        given: True if the user names the split, so that judgements of another are not read.
        tables: The tables, where they were made from one.
    """

    place: str
    split: str
    columns: Mapping[str, str] = MappingProxyType({})
    revision: str | None = None
    configs: tuple[str, ...] = ()
    images: str | Path | Sequence[str | Path] | None = None
    ids_only: bool = False
    given: bool = False
    tables: Mapping[TableName, TableRows] = MappingProxyType({})

    @property
    def folder(self) -> Path | None:
        """The folder, or that of the file; None for a data set on the hub."""
        path = Path(self.place)
        return path if path.is_dir() else path.parent if path.is_file() else None

    def with_questions(self) -> JudgedFiles:
        """Return the three tables made from one, if it has a query and its page in each row.

        Raises:
            RequestError: The place is a file of another kind.
        """
        path = Path(self.place)
        if path.is_dir():
            first = shards_in(path)[:1]
            if not first or is_judged_folder(path) or question_columns(table_columns(first[0]), self.columns) is None:
                return self
        elif path.is_file():
            if (found := question_columns(table_columns(path), self.columns)) is None:
                has = some(table_columns(path), 20)
                raise RequestError(f"{path}: expected a folder, or a table with columns query and image; it has {has}")
            if not holds_images(path):
                return self._asked(TableRows(str(path), *open_table(path)), found)
        else:
            names = self._names()
            if any(_SUBSET.fullmatch(name) or name in FORMS["queries"].files for name in names):
                return self._replace(configs=tuple(names))  # the hub is queried once
        split = self.split if self.given or not path.exists() else None
        loaded = load_split(self.place, split=split, revision=self.revision)
        found = question_columns(loaded.dataset.column_names, self.columns)
        return self if found is None else self._asked(loaded.table(), found, loaded.split)

    def _asked(self, read: TableRows, given: Columns, split: str = "") -> JudgedFiles:
        if self.given and not split:
            raise RequestError(f"{read.where}: no split {self.split!r}; it has none, leave split out")
        queries: dict[str, dict[str, Any]] = {}
        documents: dict[str, dict[str, Any]] = {}
        judgements = []
        for number, row in enumerate(rows_by_role("questions", read, given, _ASKED, table="questions"), start=1):
            cells = (row.get("name", row["image"]), row["image"])
            names, images = (cell if isinstance(cell, list) else [cell] for cell in cells)
            if len(names) != len(images):
                raise RequestError(f"{read.where}: row {number} has {len(images)} images and {len(names)} names")
            pages = [(str(name), image) for name, image in zip(names, images, strict=True) if name not in (None, "")]
            if not pages:
                lacking = "name" if "name" in row else "image"
                raise RequestError(f"{read.where}: row {number} has no {lacking}, which names the page")
            for document, image in pages:
                first = documents.setdefault(document, {"id": document, "image": image})["image"]
                if read.source is None and first and image and first != image:
                    raise RequestError(
                        f"{read.where}: row {number}: {document!r} names two pages, {first!r} and {image!r}; write the "
                        'column that names each page, columns = { "documents.id" = "…" }'
                    )
            for text in filter(str.strip, said(row["query"], f"{read.where}: row {number}")):
                asked = queries.setdefault(text, {"id": f"q{len(queries) + 1}", "query": text})
                graded = {"query": asked["id"], "grade": row.get("grade", 1), "where": f"row {number}"}
                judgements += [{**graded, "document": document} for document, _ in pages]
        return self._replace(
            tables={
                "documents": read._replace(available=("id", "image"), rows=documents.values()),
                "queries": read._replace(available=("id", "query"), rows=queries.values()),
                "judgements": read._replace(available=("query", "document", "grade"), rows=judgements),
            }
        )

    def subsets(self) -> list[str]:
        """Return names of subsets next to ``queries`` in ``LAYOUTS``, in order; a corpus without subsets has ``""``."""
        if self.tables:
            return [""]
        names = self._names()
        found = [match[1] or match[2] for name in names if (match := _SUBSET.fullmatch(name))]
        plain = any(name.partition(".")[0] in FORMS["queries"].files for name in names)
        return [""] if plain or not found else found

    def table(self, name: TableName, subset: str) -> TableRows | None:
        """Return a table of a subset; None if there is none.

        Raises:
            RequestError: A table cannot be read, or lacks a column.
        """
        if self.tables:
            return self.tables.get(name)
        names = _names_of(name, subset)
        if self.folder is None:
            known = self._names()
            config = next((each for each in names if each in known), None)
            return None if config is None else self._loaded(name, [], config)
        for each in names:
            if by_split := _files(self.folder, each):
                wanted = None if self._may_be_of_any_split(name) or "" in by_split else self.split
                split = self.split if self.split in by_split else choose_split(self.folder / each, [*by_split], wanted)
                files = by_split[split]
                if wanted is None and self.given and name == "judgements":
                    tell(f"warning: {files[0]}: read for split {self.split!r}, which its name does not say")
                if files[0].suffix == ".parquet":
                    return self._loaded(name, files, "")
                if len(files) > 1:
                    listed = some([file.relative_to(self.folder).as_posix() for file in files])
                    raise RequestError(f"{self.folder}: {name} are in several files, {listed}; join them in one")
                return self._read(name, files[0])
        return None

    def require(self, name: TableName, subset: str) -> TableRows:
        """Return the table; raise ``RequestError`` with the names that were looked for if there is none."""
        if (found := self.table(name, subset)) is None:
            names = ", ".join(_names_of(name, subset))
            runs = (
                "; runs need none: `capim import --qrels FILE --run FILE`" if self.ids_only or name == "queries" else ""
            )
            raise RequestError(f"{self.place}: no {name}; looked for {names} (docs/judged.md){runs}")
        return found

    def shared(self, subset: str) -> bool:
        """True if the documents of a subset may be those of others, as ``LAYOUTS`` has it."""
        return _SHARED.format(subset=subset, table="queries") in self._names()

    def _names(self) -> list[str]:
        """Return configurations on the hub; of a folder its files, folders, and folders of folders with queries."""
        if self.folder is None:
            return list(self.configs) or configs_of(self.place, self.revision)
        names = sorted(path.name for path in self.folder.iterdir())
        inner = (f"{name}/queries" for name in names if "." not in name)
        return names + [name for name in inner if (self.folder / name).is_dir()]

    def _may_be_of_any_split(self, name: TableName) -> bool:
        return not (self.given and name == "judgements")

    def _loaded(self, name: TableName, files: Sequence[Path], config: str) -> TableRows:
        loaded = load_split(
            self.place,
            split=None if files else self.split,
            config=config or None,
            revision=self.revision,
            files=files,
            or_only=self._may_be_of_any_split(name),
        )
        where = str(files[0]) if files else f"{self.place} ({config})"
        if name == "queries" and len(loaded.absent()) <= len(loaded.images) * len(loaded.dataset):  # an empty key, too
            tell(f"warning: {where}: queries have images, which are not read: only their texts search (docs/labels.md)")
        return self._by_role(name, loaded.table()._replace(where=where))

    def _read(self, name: TableName, file: Path) -> TableRows:
        if name == "judgements":
            cells = cells_of(file, FORMS[name], self._own(name))
            graded = ({"query": c.query, "document": c.item, "grade": c.number, "where": c.where} for c in cells)
            return TableRows(str(file), FORMS[name].roles, graded)
        if suffix_of(file) == ".json" and (objects := _of_objects(name, file)):
            available = list(dict.fromkeys(chain.from_iterable(objects)))
            return self._by_role(name, TableRows(str(file), available, objects))
        available, rows = open_table(file)
        form = FORMS[name]
        if name == "queries" and len(available) == 2 and not any(form.find(role, available) for role in form.roles):
            first = dict(zip(("id", "query"), available, strict=True))  # ids and texts without a header
            rest = (dict(zip(("id", "query"), row.values(), strict=True)) for row in rows)
            return TableRows(str(file), list(first), chain([first], rest))
        return self._by_role(name, TableRows(str(file), available, rows))

    def _own(self, name: TableName) -> dict[str, str]:
        """Return the columns that the description names for a table."""
        named = (role.partition(".")[::2] for role in self.columns)
        return {role: self.columns[f"{table}.{role}"] for table, role in named if table == name}

    def _by_role(self, name: TableName, read: TableRows) -> TableRows:
        """Return the table with its cells by role, and the source of the images if these are among them."""
        ways = {SPLITS: NO_OPTION} | ({TONGUES: _WAY % "queries.language"} if name == "queries" else {})
        rows = rows_by_role(name, read, self._own(name), ways, table=name)
        first = next(rows, {})
        by_role = chain([first] if first else [], rows)
        return TableRows(read.where, [*first], by_role, source=read.source if "image" in first else None)


def question_columns(available: Sequence[str], columns: Mapping[str, str]) -> Columns | None:
    """Return the columns that the user names of a table with a query and its page in each row, like ViDoRe's first.

    Its roles are ``query``, ``image``, ``name`` of the page (by default its image), and ``grade`` if there is one (else
    1). None for a table of another kind. The page of a query that is null is a distractor, and rows of one query make
    one query.
    """
    given = {role: columns[name] for role, name in _ROLES.items() if name in columns}
    form = FORMS["questions"]
    known = all(given.get(role) or form.find(role, available) for role in form.needs)
    return given if known and (given or form_of("", available) == form.name) else None


_ROLES = {"query": "queries.query", "image": "documents.image", "name": "documents.id", "grade": "judgements.grade"}
"""Role of a table of questions -> the same in three tables."""


def is_judged_folder(folder: Path) -> bool:
    """True if a folder holds queries and judgements under their usual names."""
    subset = JudgedFiles(str(folder), "test").subsets()[0]
    tables: tuple[TableName, ...] = ("queries", "judgements")
    return all(any(_files(folder, each) for each in _names_of(name, subset)) for name in tables)


def _names_of(name: TableName, subset: str) -> list[str]:
    """Return what the table of a subset may be called."""
    if not subset:
        return [*FORMS[name].files]
    return [layout.format(subset=subset, table=each) for layout in LAYOUTS for each in FORMS[name].files]


def _files(folder: Path, name: str) -> dict[str, list[Path]]:
    """Return split -> file or Parquet shards of a table: ``name/test.tsv``, ``name.test.tsv``, ``name-*.parquet``.

    A file without a split, ``name.jsonl`` or ``name``, is under an empty name.
    """
    suffixes = (*SUFFIXES, *(f"{suffix}.gz" for suffix in SUFFIXES), "")
    for file in (folder / f"{name}{suffix}" for suffix in suffixes):
        if file.is_file():
            return {"": [file]}
    by_split: dict[str, list[Path]] = {}
    for file in sorted(each for glob in (f"{name}/*", f"{name}.*", f"{name}-*-of-*") for each in folder.glob(glob)):
        if suffix_of(file) in SUFFIXES:
            split = re.split(r"-\d+-of-\d+", uncompressed(file).stem)[0]
            by_split.setdefault(split.removeprefix(name.rpartition("/")[2]).lstrip("."), []).append(file)
    return by_split


def _of_objects(name: TableName, file: Path) -> list[dict[str, Any]]:
    """Return the rows of one JSON object: id -> text, file or object."""
    content = read_json(file)
    if not isinstance(content, dict):
        return []
    role = "query" if name == "queries" else "image"
    return [{"id": key, **(each if isinstance(each, dict) else {role: each})} for key, each in content.items()]
