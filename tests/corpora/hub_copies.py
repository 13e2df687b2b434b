"""Data sets in the layout in which they are published on the hub, with the rows of the copies in ``local_copies``.

A function with the name of a corpus writes its data set into a folder; :func:`judged` writes that of any published
corpus of document pages, with as many documents, queries and judgements as were counted there.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from capim.tasks.corpora import CORPORA, JudgedTask, SubsetCounts
from tests.corpora.own_data import csv_file, jpeg, publish


def columns_of(rows: list[dict[str, Any]], *names: str) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in names or rows[0]}


def read_lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def coco_karpathy(folder: Path, copy: Path, _pictures: list[bytes]) -> None:
    """Without images, which lie at images.cocodataset.org."""
    content = json.loads((copy / "dataset_coco.json").read_text())
    rows = [row for row in content["images"] if row["split"] == "test"]
    columns = columns_of(rows, "filepath", "filename", "cocoid", "sentids")
    columns["sentences"] = [[sentence["raw"] for sentence in row["sentences"]] for row in rows]
    publish(folder, columns)


def flickr30k_karpathy(folder: Path, copy: Path, pictures: list[bytes]) -> None:
    """A CSV file, the images in a ZIP file, and the script that ``datasets`` no longer runs."""
    rows = json.loads((copy / "flickr30k_test.json").read_text())
    names = [Path(row["image"]).name for row in rows]
    lines = [
        {"raw": json.dumps(row["caption"]), "sentids": "[0, 1]", "split": "test", "filename": name, "img_id": n}
        for n, (row, name) in enumerate(zip(rows, names, strict=True))
    ]
    csv_file(folder / "test_1k_flickr.csv", *lines)
    (folder / "flickr_1k_test_image_text_retrieval.py").write_text("raise SystemExit('a script ran')\n")
    with zipfile.ZipFile(folder / "images_flickr_1k_test.zip", "w") as archive:
        for name, picture in zip(names, pictures, strict=True):
            archive.writestr(f"images_flickr_1k_test/{name}", picture)


def winoground(folder: Path, copy: Path, pictures: list[bytes]) -> None:
    columns = columns_of(read_lines(copy / "examples.jsonl"))
    publish(folder, {**columns, "image_0": pictures[::2], "image_1": pictures[1::2]})


def bivlc(folder: Path, copy: Path, _pictures: list[bytes]) -> None:
    shutil.copytree(copy, folder)


def sugarcrepe_pp(folder: Path, copy: Path, _pictures: list[bytes]) -> None:
    configs = CORPORA["sugarcrepe-pp"].table["configs"]
    folder.mkdir(parents=True)
    for category, config in configs.items():
        lines = "\n".join(map(json.dumps, json.loads((copy / f"{category}.json").read_text())))
        (folder / f"{config}.jsonl").write_text(lines)
    _readme(folder, {config: {"": f"{config}.jsonl"} for config in configs.values()})


def aro(folder: Path, copy: Path, pictures: list[bytes]) -> None:
    rows = json.loads((copy / "visual_genome_relation.json").read_text())
    publish(folder, {**columns_of(rows), "image": [pictures[0]] * len(rows)})


def xflickrco(folder: Path, copy: Path, pictures: list[bytes]) -> None:
    for language in CORPORA["xflickrco"].languages:
        rows = read_lines(copy / f"{language}.jsonl")
        ids, sentences = [str(row["id"]) for row in rows], [str(row["sentences"]) for row in rows]
        publish(folder, {"id": ids, "sentences": sentences, "image": pictures}, split=language)


def crossmodal3600(folder: Path, copy: Path, pictures: list[bytes]) -> None:
    rows = read_lines(copy / "captions.jsonl")
    for language in CORPORA["crossmodal3600"].languages:
        captions = [row[language]["caption"] for row in rows]
        columns = {"image_id": [row["image/key"] for row in rows], "captions": captions, "image": pictures}
        publish(folder, columns, split=language)


def cc3m(folder: Path, copy: Path, _pictures: list[bytes]) -> None:
    shutil.copytree(copy, folder)


def judged(folder: Path, task: JudgedTask) -> None:
    """Documents, queries and judgements of every subset, as many as published; where nobody counted, three."""
    for subset, counted in task.subsets.items():
        counts = counted or SubsetCounts(samples=5, queries=2, judgements=3, fewest=1, most=2)
        n_documents = task.n_documents or 3
        documents = [f"p{n}" for n in range(n_documents)]
        queries = [f"{subset}q{n}" for n in range(counts.samples - n_documents)]
        texts = list(islice(cycle(f"what is {subset} {n}" for n in range(counts.queries)), len(queries)))
        pairs = list(_judgements(queries, documents, counts))
        image = {"bytes": jpeg(1), "path": None}
        tables: dict[str, dict[str, Any]] = {
            "corpus": {"corpus-id": documents, "image": [image] * n_documents},
            "queries": {"query-id": queries, "query": texts, "language": [subset or "english"] * len(queries)},
            "qrels": {
                "query-id": [query for query, _ in pairs],
                "corpus-id": [document for _, document in pairs],
                "score": [1] * len(pairs),
            },
        }
        for table, columns in tables.items():
            name = task.layout.format(subset=subset, table=table) if subset else table
            file = folder / name / f"{task.split}-00000-of-00001.parquet"
            file.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(_with_features(pa.table(columns)), file)
    if "/{table}" not in task.layout:  # with what other corpora of the data set wrote before
        names = sorted(file.parent.name for file in folder.glob("*/*.parquet"))
        _readme(folder, {name: {task.split: f"{name}/{task.split}-*"} for name in names})


def _judgements(queries: list[str], documents: list[str], counts: SubsetCounts) -> Iterator[tuple[str, str]]:
    """As many as counted: the first query has as few as counted, others as many, as long as there are any.

    Where its own queries do not suffice, some are of queries in other languages, as in ViDoRe 2 and 3.
    """
    left = counts.judgements
    asked = [*queries, *(f"other{n}" for n in range(counts.judgements))]
    for number, query in enumerate(asked):
        after = max(len(queries) - number - 1, 0)
        n = counts.fewest if after and number == 0 else min(counts.most, left - after * counts.fewest)
        if number >= len(queries) and left <= 0:
            return
        if number >= len(queries) and 0 < left - n < counts.fewest:
            n = left - counts.fewest
        yield from ((query, documents[k]) for k in range(n))
        left -= n


def _with_features(table: pa.Table) -> pa.Table:
    if "image" not in table.column_names:
        return table
    features = {name: {"dtype": "string", "_type": "Value"} for name in table.column_names}
    about = json.dumps({"info": {"features": {**features, "image": {"_type": "Image"}}}})
    return table.replace_schema_metadata({"huggingface": about})


def _readme(folder: Path, configs: Mapping[str, Mapping[str, str]]) -> None:
    lines = ["---", "configs:"]
    for config, files in configs.items():
        lines += [f"- config_name: {config}", "  data_files:"]
        for split, pattern in files.items():
            lines += [f"  - split: {split}", f"    path: {pattern}"] if split else []
        if "" in files:
            lines[-1] = f"  data_files: {files['']}"
    (folder / "README.md").write_text("\n".join([*lines, "---", ""]))


def write(name: str, folder: Path, copy: Path, pictures: list[bytes]) -> None:
    """The data set of a corpus that is not one of judged pages, from its copy and the images of that."""
    globals()[name.replace("-", "_")](folder, copy, pictures)
