"""Queries, document pages and graded judgements: mteb's and BEIR's layout, trec's, or tables of the user's own.

The published corpora of document pages (ViDoRe, JinaVDR, MIRACL-Vision) have readers with the names of their tasks.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from capim.store.errors import RequestError
from capim.store.schema import JUDGED
from capim.store.types import Corpus, digest16
from capim.tasks.corpora.build import CaptionRow, Faults, ImageRow, RelevanceRow, SkippedRow, build_corpus
from capim.tasks.corpora.files import corpus_name, require_folder, require_known
from capim.tasks.corpora.images.image_files import (
    LocatedImages,
    Missing,
    images_below,
    locate_images,
    without_image_suffix,
)
from capim.tasks.corpora.judged_tasks import JUDGED_TASKS, LANGUAGES, JudgedTask, SubsetCounts
from capim.tasks.corpora.readers.forms import JUDGED_TABLES
from capim.tasks.corpora.readers.judged_files import JudgedFiles, folders_on_hub, known_roles

_CODE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]+)*")
_UNJUDGED = "no document is judged relevant to this query"
# What the fields of SubsetCounts count, in words.
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
    split: str = "test",
    subsets: Sequence[str] | None = None,
    columns: Mapping[str, str] | None = None,
    language: str = "en",
    main_metric: str = "nDCG@10",
    ids_only: bool = False,
    missing: Missing = "error",
    name: str | None = None,
    licence: str = "unknown",
) -> Corpus:
    """The corpus of three tables: documents are its images, queries its captions, which describe no image.

    A grade above 0 is relevant; 0 and below is judged not relevant (trec has negative grades for pages that are worse
    than useless). Queries without a relevant document are left out and listed; judgements of queries that are not in
    the table of queries are ignored, as mteb does: those of ViDoRe 2 and 3 are of all languages in every subset.

    Args:
        dataset: Folder with the tables (``docs/judged.md`` shows the layouts), or hub id.
        images: Folder of the pages, where the table of documents holds none; unless given, ``images/`` or the folder
            itself. Without a table of documents the images of the folder are the documents.
        subsets: Parts to read, such as ViDoRe's languages; all by default. They share their documents.
        columns: ``table.role`` -> column, for roles whose column has no usual name: ``queries.query``.
        main_metric: Headline of the corpus.
        ids_only: Use no images, and accept queries without a text.

    Raises:
        RequestError: A table or column is missing, a grade is missing or no whole number, an id repeats, a document is
            judged twice with different grades, or a judged document is not in the corpus; lists every fault.
    """
    local = Path(dataset).expanduser()
    place = str(local.absolute()) if local.is_dir() else dataset
    require_known(place, "columns", columns or {}, known_roles())
    files = JudgedFiles(place, split, columns or {}, revision, images=images, ids_only=ids_only, missing=missing)
    return _corpus(files, subsets, language=language, main_metric=main_metric, name=name, licence=licence)


def _corpus(
    files: JudgedFiles,
    subsets: Sequence[str] | None,
    *,
    language: str,
    main_metric: str,
    name: str | None,
    licence: str = "the data set's",
    published: JudgedTask | None = None,
) -> Corpus:
    """The corpus of these subsets, or of all; raises if a subset holds, before anything is left out, other counts."""
    place, known = files.place, files.subsets()
    require_known(place, "subsets", subsets or (), known)
    chosen = [subset for subset in known if not subsets or subset in subsets]
    faults = Faults(place)
    parts = _distinct([_read_part(files, subset, language, faults) for subset in chosen])
    documents = _documents(files, chosen, [d for p in parts for _, d in p.grades], faults)
    pages, left_out = {row.id for row in documents.rows}, {row.item_id for row in documents.skipped}
    queries = [row for part in parts for row in part.queries]
    known_queries = {row.id for row in queries}
    relevant: set[str] = set()
    judgements = []
    for (query, document), grade in {pair: grade for part in parts for pair, grade in part.grades.items()}.items():
        if document not in pages and document not in left_out:
            faults.add("judged documents that are not in the corpus", f"{document!r} for query {query!r}")
        elif document in pages and query in known_queries:
            judgements.append(RelevanceRow(JUDGED, "t2i", query, document, grade))
            relevant |= {query} if grade > 0 else set()
    faults.raise_any()
    if not files.ids_only and any(row.text is None for row in queries):
        raise RequestError(f"{place}: queries without a text; name their column with columns, or set ids_only = true")
    asked = [row for row in queries if row.id in relevant]
    dropped = [SkippedRow(row.id, _UNJUDGED, "caption") for row in queries if row.id not in relevant]
    if not asked:
        raise RequestError(
            f"{place}: none of its {len(queries)} queries has a relevant document; the ids of "
            "queries and judgements have to agree"
        )
    corpus = build_corpus(
        name or corpus_name(Path(place)),
        documents.rows,
        _grouped(asked, judgements) if len(chosen) > 1 else asked,
        source=None if files.ids_only else documents.source,
        relevance=[row for row in judgements if row.query_id in relevant],
        skipped=[*documents.skipped, *dropped],
        licence=licence,
        origin=f"https://huggingface.co/datasets/{place}" if files.folder is None else place,
        languages_reference=language,
        main_metric=main_metric,
    )
    n_documents = len(documents.rows) + len(documents.skipped)
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


def __getattr__(name: str) -> Callable[..., Corpus]:
    """The reader of a task, as ``tasks.corpora.description`` looks it up: ``read_Vidore3FinanceEnRetrieval``."""
    task = name.removeprefix("read_").replace("_", "-")
    if task not in JUDGED_TASKS:
        raise AttributeError(f"module {__name__!r} has no {name!r}")
    known = JUDGED_TASKS[task]

    def read(
        root: str | Path | None = None,
        *,
        images: str | Path | Sequence[str | Path] | None = None,
        subsets: Sequence[str] | None = None,
        revision: str | None = None,
        ids_only: bool = False,
        missing: Missing = "error",
    ) -> Corpus:
        """The corpus of a task, under its name, with as many rows as mteb counted.

        Args:
            root: The data set as a folder; from the hub unless given.
            subsets: Languages of ViDoRe 2 or 3 to read; all by default.
            revision: Branch, tag or commit on the hub; the pinned one unless given.

        Raises:
            RequestError: A count is another one than expected, and as :func:`tasks.corpora.readers.judged.read_judged`.
        """
        files = JudgedFiles(
            known.dataset if root is None else str(require_folder(root, f"{task} folder")),
            known.split,
            revision=revision or known.revision or None,
            configs=tuple(folders_on_hub(known.layout, list(known.subsets))),
            images=images,
            ids_only=ids_only,
            missing=missing,
        )
        chosen = subsets or [subset for subset in known.subsets if subset]
        headline = known.main_metric
        return _corpus(files, chosen, language=known.language, main_metric=headline, name=task, published=known)

    read.__name__ = name
    return read


class _JudgedPart(NamedTuple):
    """The language and the queries of a subset, and the grade of each judged pair of a query and a document."""

    language: str
    queries: list[CaptionRow]
    grades: dict[tuple[str, str], int]


def _counts(part: _JudgedPart, n_documents: int) -> SubsetCounts:
    """What mteb counts in a subset: queries that are judged, and judgements with another grade than 0."""
    judged = {query for query, _ in part.grades}
    queries = [row.text for row in part.queries if row.id in judged]
    per_query = Counter(query for (query, _), grade in part.grades.items() if grade)
    fewest = min((per_query[query] for query in judged), default=0)
    most = max(per_query.values(), default=0)
    return SubsetCounts(n_documents + len(queries), len(set(queries)), per_query.total(), fewest, most)


def _read_part(files: JudgedFiles, subset: str, language: str, faults: Faults) -> _JudgedPart:
    """The queries of a subset, and its judgements, which may be of queries in other subsets (ViDoRe 2 and 3)."""
    own = _language(subset, language)
    queries = []
    for number, row in enumerate(files.require("queries", subset).rows, start=1):
        if row["id"] in (None, ""):
            faults.add("queries without an id", f"row {number}")
            continue
        types = row.get("types")
        queries.append(
            CaptionRow(
                str(row["id"]),
                None,
                text_or_none(row.get("query")),
                language=_language(str(row.get("language") or ""), own),
                query_group=text_or_none(row.get("group")),
                query_types=[types] if isinstance(types, str) else types and [str(each) for each in types],
            )
        )
    for query, count in Counter(row.id for row in queries).items():
        if count > 1:
            faults.add("duplicate query ids", repr(query))
    grades: dict[tuple[str, str], int] = {}
    for number, row in enumerate(files.require("judgements", subset).rows, start=1):
        pair = str(row["query"]), str(row["document"])
        grade = _grade(row["grade"], "query {!r}, document {!r}, row {}".format(*pair, number), faults)
        if grade is not None and grades.setdefault(pair, grade) != grade:
            shown = "query {!r}, document {!r}: {} and {}".format(*pair, grades[pair], grade)
            faults.add("documents judged twice with different grades", shown)
    return _JudgedPart(own, queries, grades)


def _grade(value: object, where: str, faults: Faults) -> int | None:
    """A grade as a whole number; notes the fault and gives None if it is none."""
    if value is None or (isinstance(value, str) and not value.strip()):
        faults.add("judgements without a grade", where)
        return None
    try:
        number = float(str(value))
    except ValueError:
        number = float("nan")
    if not number.is_integer() or isinstance(value, bool):
        faults.add("grades that are not whole numbers", f"{value!r} of {where}")
        return None
    return int(number)


def _language(name: str, default: str) -> str:
    """The code of a language that is written as ViDoRe does, or as a code; the default for other names."""
    code = LANGUAGES.get(name.casefold(), name)
    return code if _CODE.fullmatch(code) else default


def _distinct(parts: Sequence[_JudgedPart]) -> list[_JudgedPart]:
    """The parts with the language before the ids of their queries, where subsets use the same ids."""
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
    """The queries of several subsets with their groups: one question in several languages has the same judgements.

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


def _documents(files: JudgedFiles, subsets: Sequence[str], judged: Sequence[str], faults: Faults) -> LocatedImages:
    """The documents, which all subsets have in common; without a table of them the images of the folder."""
    table = files.table("documents", subsets[0])
    beside = [files.images] if isinstance(files.images, str | Path) else list(files.images or ())
    if not beside and files.folder is not None:
        beside = [folder for folder in (files.folder / "images", files.folder) if folder.is_dir()]
    if table is None:
        if not beside or files.ids_only:
            rows = [ImageRow(each) for each in dict.fromkeys(judged)] if files.ids_only else []
            if not rows:
                raise RequestError(
                    f"{files.place}: no documents; looked for {', '.join(JUDGED_TABLES['documents'].names)}; with "
                    "ids_only = true the judged documents are taken by their ids"
                )
            return LocatedImages(rows, None, [])
        return _image_files(Path(beside[0]), set(judged), files)
    rows = [_page(row, number, faults) for number, row in enumerate(table.rows, start=1)]
    ids = [row.id for row in rows]
    for subset in subsets[1:]:
        if not files.shared(subset) or [str(row["id"]) for row in files.require("documents", subset).rows] != ids:
            raise RequestError(
                f"{files.place}: subsets {subsets[0]} and {subset} have different documents; read one at a time with "
                f'subsets = ["{subset}"]'
            )
    if files.ids_only:
        return LocatedImages(rows, None, [])
    if subsets[0] and (pictures := files.table("images", subsets[0])) is not None and pictures.source is not None:
        key_of = {str(row["id"]): str(row["image"]) for row in pictures.rows}
        rows = [row._replace(key=key_of.get(row.key, "")) for row in rows]
        table = table._replace(source=pictures.source, absent=pictures.absent | {""})
    if table.source is not None:
        located = LocatedImages(rows, table.source, [])
        return located.without(table.absent, missing=files.missing, where=table.where, what="documents")
    if not beside:
        raise RequestError(f"{table.where}: it holds no images; give their folder with images, or set ids_only = true")
    return locate_images(rows, beside, missing=files.missing, origin=table.where)


def text_or_none(cell: object) -> str | None:
    """A cell as text; None for one that holds nothing."""
    return None if cell is None else str(cell)


def _page(row: Mapping[str, Any], number: int, faults: Faults) -> ImageRow:
    if row["id"] in (None, ""):
        faults.add("documents without an id", f"row {number}")
    page = row.get("page")
    return ImageRow(
        str(row["id"]),
        str(row.get("image") or row["id"]),
        text=text_or_none(row.get("text")),
        document=text_or_none(row.get("document")),
        page=int(str(page)) if str(page).isdigit() else None,
    )


def _image_files(folder: Path, judged: set[str], files: JudgedFiles) -> LocatedImages:
    """The images of a folder; ids are the names of their files, without the suffix unless judgements have it."""
    found = sorted(images_below(folder))
    whole = not judged.isdisjoint(found)
    rows = [ImageRow(file if whole else without_image_suffix(file), file) for file in found]
    if not rows:
        raise RequestError(f"{files.place}: no documents: neither a table of them nor images in {folder}")
    return locate_images(rows, folder, missing=files.missing, origin=files.place)
