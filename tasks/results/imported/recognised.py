"""Recognises what a file or folder to import holds: vectors, outcomes, scores, a run, qrels, published results.

Only its name, its header and the names of its arrays are inspected, and nothing heavy is loaded. An unsupported file
is refused, with the steps that make it importable.
"""

from __future__ import annotations

import itertools
import json
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from capim.store.errors import RequestError, is_number
from capim.store.files import is_vector, reading
from capim.store.forms import FORMS, IMPORTS, NO_COLUMNS, REFUSED, Columns, fold, refuse_lower_better
from capim.store.sets.lists import QRELS, RUN, first_line, form_of_line, json_lists, list_columns, says_qrels
from capim.store.sets.vector_files import ARRAYS, are_vectors, flat, read_contents, side_of
from capim.store.tables import NAMED, TYPED, first_row, open_table, read_json, suffix_of

What: TypeAlias = Literal["vectors", "outcomes", "scores", "run", "qrels", "judged", "published"]
_HITS = re.compile(r".+_(ir|tr)[1-9][0-9]*_rank_index\.npy")
_SCORES = re.compile(r"(^|[^a-z])(scores?|sims?|similarit(y|ies)|logits)([^a-z]|$)")
_RUNS = (".trec", ".run", ".res", ".ranking")


class Recognised(NamedTuple):
    """One thing to import.

    Attributes:
        what: See ``IMPORTS``.
        path: The file or folder.
        side: ``image`` or ``caption``, where vectors say it.
    """

    what: What
    path: Path
    side: Literal["image", "caption"] | None = None

    def __str__(self) -> str:
        of = f" of {self.side}s" if self.side else ""
        return f"{self.path}: taken for {IMPORTS[self.what]}{of}"


def recognise(path: Path, columns: Columns = NO_COLUMNS) -> list[Recognised]:
    """Return the contents of a path, most often one thing; of an array file of both sides, the vectors of each.

    Args:
        path: A file or folder.
        columns: Role -> column, as the user names them.

    Raises:
        RequestError: There is nothing, or it is nothing that can be imported; says what to do instead.
    """
    if path.is_dir():
        return list(_of_folder(path))
    if not path.exists():
        raise RequestError(f"{path}: no such file; check the path")
    if path.suffix.lower() in REFUSED:
        raise RequestError(f"{path}: {REFUSED[path.suffix.lower()]}")
    with reading(path):
        return _of_file(path, columns)


def _of_folder(folder: Path) -> Iterator[Recognised]:
    files = [path for path in sorted(folder.iterdir()) if path.is_file()]
    folders = {path.name: path for path in sorted(folder.iterdir()) if path.is_dir()}
    if any(_HITS.fullmatch(file.name) for file in files):
        yield Recognised("outcomes", folder)
    elif sides := [folders[name] for name in ("img_emb", "text_emb") if name in folders]:  # clip-retrieval
        for side in sides:
            yield Recognised("vectors", side, "image" if side.name == "img_emb" else "caption")
    elif index := next((file for file in files if file.suffix in (".faiss", ".index")), None):
        yield from recognise(index)
    elif any(name.split(".")[0] in ("qrels", "judgements") for name in [*folders, *(file.name for file in files)]):
        yield Recognised("judged", folder)
    elif any(map(_is_mteb, folder.rglob("*.json"))):
        yield Recognised("published", folder)
    elif files and all(file.suffix == ".npy" and re.search(r"\d", file.stem) for file in files):
        yield Recognised("vectors", folder, side_of(folder.name))
    elif any(suffix_of(file) in NAMED for file in files):
        yield Recognised("outcomes", folder)
    else:
        raise RequestError(
            f"{folder}: nothing in it is known: no *_rank_index.npy, img_emb/, qrels, "
            f"results of MTEB, or tables ({', '.join(NAMED)}); name a file in it"
        )


def _of_file(path: Path, columns: Columns) -> list[Recognised]:
    if _HITS.fullmatch(path.name):
        raise RequestError(f"{path}: one of several hit lists; give their folder, {path.parent}")
    if path.suffix in ARRAYS:
        return _of_arrays(path)
    suffix = suffix_of(path)
    if suffix in _RUNS or suffix == ".qrels":
        return [Recognised("qrels" if suffix == ".qrels" else "run", path)]
    if suffix == ".json":
        return [_of_json(path, read_json(path), columns)]
    words = [] if suffix in TYPED else first_line(path).split()
    if (form := form_of_line(words, path.stem)) is not None:
        return [Recognised("run" if form is RUN else "qrels", path)]
    if suffix in NAMED and (row := _first_row(path)) and (what := _of_columns(path, row, columns)) is not None:
        return [what]
    raise RequestError(
        f"{path}: not known; its first line has {len(words)} words. A run has 6 (query Q0 item rank score tag), qrels "
        f"have 4; tables have a header and a suffix among {', '.join(NAMED)}"
    )


def _of_arrays(path: Path) -> list[Recognised]:
    names = _array_names(path)
    sides = {side_of(name) for name in names} - {None}
    named = [path.stem] if {*names} <= {"embeddings", "arr_0"} else names
    refuse_lower_better(path, *named)
    if any(_SCORES.search(name.lower()) for name in named):
        return [Recognised("scores", path)]
    if sides == {"image", "caption"}:
        return [Recognised("vectors", path, "image"), Recognised("vectors", path, "caption")]
    return [Recognised("vectors", path, side_of(path.stem) or (next(iter(sides)) if len(sides) == 1 else None))]


def _array_names(path: Path) -> list[str]:
    """Return the names of the arrays of a file, without reading them."""
    if path.suffix == ".npz":
        with zipfile.ZipFile(path) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
    elif path.suffix == ".safetensors":
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            names = [*json.loads(file.read(min(size, 1 << 26)))]
    elif path.suffix in (".pt", ".pth"):
        names = [*read_contents(path).arrays]
    else:
        names = []
    return [name for name in names if not re.search(r"(^|_)(ids?|names?|keys?|files?|paths?|offsets)$", name.lower())]


def _of_json(path: Path, loaded: object, columns: Columns) -> Recognised:
    if isinstance(loaded, dict):
        if _is_published(loaded):
            return Recognised("published", path)
        if any(map(are_vectors, loaded.values())):
            return Recognised("vectors", path, side_of(path.stem))
        if next(json_lists(loaded), None) is not None:
            return Recognised("qrels" if says_qrels(path.stem) else "run", path)
        lists = [each for each in loaded.values() if isinstance(each, list) and each and isinstance(each[0], dict)]
        loaded = lists[0] if len(lists) == 1 else [*loaded.values()]
    rows = loaded if isinstance(loaded, list) else []
    if not rows:
        raise RequestError(f"{path}: no rows in it")
    first = rows[0]
    if is_vector(first) or (isinstance(first, dict) and any(map(is_vector, first.values()))):
        return Recognised("vectors", path, side_of(path.stem))
    if isinstance(first, dict):
        return _of_columns(path, first, columns) or Recognised("outcomes", path)
    raise RequestError(f"{path}: neither rows, nor query -> item -> score, nor results of MTEB")


def _of_columns(path: Path, first: Mapping[str, Any], columns: Columns) -> Recognised | None:
    """Return the kind of a table by its columns and its first row; None where these are no header."""
    from capim.tasks.results.imported.tables import CELLS, is_cell, kind_of, our_name

    role_of = {column: role for role, column in columns.items() if isinstance(column, str)}
    row = {role_of.get(name, name): cell for name, cell in first.items()}
    names, cells, published = {fold(name) for name in row}, [*row.values()], FORMS["published"]
    exported = {fold(name) for name in ("evaluation", "query_id", "rank_best")} <= names  # capim export outcomes
    if exported or {fold(cell) for cell in CELLS} <= names or any(map(is_cell, cells)):  # Winoground's scores
        return Recognised("outcomes", path)
    if published.find("model", row) and ("value" in names or any(re.search("recall|acc|ndcg", name) for name in names)):
        return Recognised("published", path)
    listed = list_columns(row) is not None
    numbers = [RUN.find("rank", row), RUN.find("score", row), QRELS.find("grade", row)]
    if listed or (RUN.find("item", row) and any(numbers)):
        judged = says_qrels(path.stem) or (not listed and names & {"grade", "relevance"})
        return Recognised("qrels" if judged else "run", path)
    if kind_of(dict.fromkeys(map(our_name, row))) is not None:
        return Recognised("outcomes", path)
    of_numbers = [
        name for name, cell in row.items() if isinstance(cell, float | str) and is_number(str(cell).replace(",", "."))
    ]
    n = len(of_numbers)
    if (
        n > 3
        or any(is_vector(cell) for _, cell in flat(first))
        or any(re.match(r"\[[\[\s\d.+-]", str(cell)) for cell in cells)
    ):
        is_matrix = n > 3 and (_SCORES.search(path.stem.lower()) or not _are_components(of_numbers))
        return Recognised("scores", path) if is_matrix else Recognised("vectors", path, side_of(path.stem))
    return Recognised("outcomes", path) if suffix_of(path) in NAMED and len(names) > 1 else None


def _are_components(columns: Sequence[str]) -> bool:
    """True if columns are the components of vectors, counted in order (``0``, ``1``, …; ``dim_0``, …), and no items."""

    def following(name: str) -> str:
        return re.sub(r"\d+$", lambda count: str(int(count[0]) + 1).zfill(len(count[0])), name)

    steps = sum(following(one) == other for one, other in itertools.pairwise(columns))
    return 2 * steps >= len(columns) - 1


def _first_row(path: Path) -> dict[str, Any]:
    """Return the first row of a table, with its columns; only the columns if there is no row."""
    if suffix_of(path) in TYPED:
        if (first := first_row(path)) is None:
            raise RequestError(f"{path}: no rows in it")
        return dict(first)
    columns, rows = open_table(path, headless=False)
    return dict(next(rows, dict.fromkeys(columns)))


def _is_published(loaded: Mapping[str, Any]) -> bool:
    mteb = {"scores"} <= loaded.keys() and bool({"task_name", "mteb_dataset_name", "mteb_version"} & loaded.keys())
    metrics = isinstance(loaded.get("metrics"), dict) and bool({"model", "metadata", "dataset"} & loaded.keys())
    return mteb or metrics


def _is_mteb(path: Path) -> bool:
    try:
        loaded = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError):
        return False
    return isinstance(loaded, dict) and _is_published(loaded)
