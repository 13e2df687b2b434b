"""Figures that others published, in the forms in which they publish them, as rows next to our own; never in a test.

CLIP_benchmark's CSV and JSON, results of MTEB, ViDoRe's JSON, and a CSV with the columns model, dataset (or task),
metric, value and perhaps protocol, source and note. Each row keeps the name of its metric there, and says how its
protocol differs from ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from capim.reports.exports.other_tools import NAMES, their_tasks
from capim.store.errors import RequestError
from capim.store.files import NOT_ITS_FORMAT
from capim.store.forms import FORMS, NO_COLUMNS, Columns, renamed
from capim.store.schema import Published, Result
from capim.store.tables import open_table, read_json, suffix_of
from capim.store.types import digest16
from capim.tasks.corpora import JUDGED_TASKS
from capim.tasks.metrics import METRICS
from capim.tasks.protocols import ALL_QUADRUPLES, I2T_ANY, JUDGED_QUERIES, T2I_ALL


def _ours(names: Mapping[str, str]) -> dict[str, str]:
    """Return our names of metrics by theirs; where R@k and success@k have one name there, R@k."""
    return {theirs: ours for ours, theirs in names.items() if not ours.startswith("success")}


_CORPORA = {"mscoco_captions": "coco-karpathy", "flickr30k": "flickr30k-karpathy"}
_OURS = _ours(NAMES)
_TIES = "MTEB orders ties by id, ours is the mean over their orders"
_SAME = "the same protocol"
_UNKNOWN = "its protocol is not known here"
_RETRIEVAL = {
    f"{side}_retrieval_recall@{k}": (protocol, f"R@{k}")
    for side, protocol in (("image", T2I_ALL), ("text", I2T_ANY))
    for k in (1, 5, 10)
}
_WINOGROUND = {
    field: (ALL_QUADRUPLES, f"winoground_{score}")
    for field, score in (("text_acc", "text"), ("image_acc", "image"), ("acc", "group"))
}


def read_published(path: Path, columns: Columns = NO_COLUMNS) -> list[Published]:
    """Return the results of a file, or of all files of a folder, without their run.

    Raises:
        RequestError: It is none of the known forms, or a value is no number; all faults together.
    """
    files = sorted(path.rglob("*.json")) if path.is_dir() else [path]
    rows: list[Published] = []
    for file in files:
        try:
            rows += _of_json(read_json(file), file) if suffix_of(file) == ".json" else _of_csv(file, columns)
        except NOT_ITS_FORMAT as fault:
            if isinstance(fault, RequestError):
                raise
            raise RequestError(f"{file} cannot be read as published results: {fault}") from fault
    if not rows:
        raise RequestError(
            f"{path}: no published result in it; expected CLIP_benchmark's CSV, results of MTEB, ViDoRe's JSON, or a "
            "CSV with the columns model, dataset, metric, value"
        )
    found: dict[str, Published] = {}
    for row in rows:
        origin = row.source or str(path)
        key = digest16([row.model, row.dataset, row.protocol, row.their_metric, origin])
        if not row.model or found.get(key, row).value != row.value:
            what = f"{row.model or 'no model'}, {row.dataset}, {row.their_metric}"
            raise RequestError(f"{path}: {what}: expected a model, and one value of it; got {row.value}")
        found[key] = replace(row, source=origin, published=key)
    return list(found.values())


def _row(
    model: str, dataset: str, their_metric: str, value: object, *, protocol: str = "", metric: str = "",
    source: str = "", difference: str = _SAME,
) -> Published:  # fmt: skip
    try:
        number = float(str(value))
    except ValueError as fault:
        raise RequestError(f"{model}, {dataset}, {their_metric}: expected a number, got {value!r}") from fault
    known = METRICS.get(metric or their_metric)
    if known and known.bounds and not known.bounds[0] <= number <= known.bounds[1]:
        raise RequestError(
            f"{model}, {dataset}, {their_metric}: expected {known.bounds}, of percents the fraction, got {value}"
        )
    return Published(
        published="",
        model=model,
        dataset=_CORPORA.get(dataset.rpartition("/")[2], dataset),
        protocol=protocol,
        metric=metric or their_metric,
        their_metric=their_metric,
        value=number,
        source=source,
        difference=difference if protocol else _UNKNOWN,
        run="",
        created=datetime.now(UTC),
    )


def _of_csv(path: Path, columns: Columns) -> Iterator[Published]:
    form, (names, rows) = FORMS["published"], open_table(path, headless=False)
    role_of = renamed(names, columns, form, path)
    for row in rows:
        cells = {role_of[name].strip().lower(): row[name] for name in role_of if name and row[name] not in (None, "")}
        said = {role: cells[name] for role in form.roles if (name := form.find(role, cells)) is not None}
        model, dataset, metric = (said.get(role, "") for role in ("model", "dataset", "metric"))
        if "value" in said:
            protocol = said.get("protocol") or _headline(dataset, metric)
            note = said.get("note") or (_SAME if "protocol" in said else "taken for it")
            of = {"source": said.get("source", ""), "difference": note, "metric": _OURS.get(metric, metric)}
            yield _row(model, dataset, metric, said["value"], protocol=protocol, **of)
        else:
            yield from _of_clip_benchmark(model, dataset, cells)


def _of_clip_benchmark(model: str, dataset: str, cells: Mapping[str, Any]) -> Iterator[Published]:
    theirs = {**_RETRIEVAL, **(_WINOGROUND if "winoground" in dataset.lower() else {})}
    for name, (protocol, metric) in theirs.items():
        if name in cells:
            named = protocol if metric.startswith("R@") or "winoground" in dataset.lower() else ""
            yield _row(model, dataset, name, cells[name], protocol=named, metric=metric)
    for name in ("acc1", "acc5", "mean_per_class_recall", "acc"):
        if name in cells and name not in theirs:
            yield _row(model, dataset, name, cells[name])


def _headline(dataset: str, metric: str) -> str:
    """Return the protocol of a result that names none, where a metric of ours has only one."""
    if metric.startswith("winoground"):
        return ALL_QUADRUPLES
    return JUDGED_QUERIES if dataset in JUDGED_TASKS and _OURS.get(metric, metric) in METRICS else ""


def _of_json(loaded: Any, path: Path) -> Iterator[Published]:
    if not isinstance(loaded, dict):
        return
    if "scores" in loaded:
        yield from _of_mteb(loaded, path)
    elif isinstance(loaded.get("metrics"), dict) and "model" in loaded:
        model = "-".join(str(loaded[name]) for name in ("model", "pretrained") if loaded.get(name))
        yield from _of_clip_benchmark(model, str(loaded.get("dataset", "")), loaded["metrics"])
    elif isinstance(loaded.get("metrics"), dict):  # vidore-benchmark
        model = str((loaded.get("metadata") or {}).get("model") or path.stem.removesuffix("_metrics"))
        for dataset, scores in loaded["metrics"].items():
            task = _vidore(str(dataset))
            numbers = {name: value for name, value in scores.items() if isinstance(value, int | float)}
            for name, value in numbers.items():
                protocol = JUDGED_QUERIES if task in JUDGED_TASKS and name in _OURS else ""
                yield _row(model, task, name, value, protocol=protocol, metric=_OURS.get(name, name), difference=_TIES)


def _vidore(dataset: str) -> str:
    """Return the task of MTEB with this data set of ViDoRe; the data set where there is none."""
    name = dataset.rpartition("/")[2]
    return next((task for task, each in JUDGED_TASKS.items() if each.dataset.rpartition("/")[2] == name), dataset)


def _of_mteb(loaded: Mapping[str, Any], path: Path) -> Iterator[Published]:
    task = str(loaded.get("task_name") or loaded.get("mteb_dataset_name") or path.stem)
    model = path.parent.parent.name.replace("__", "/") if path.parent.parent.name else path.parent.name
    ours = _of_their_task(task)
    for split, entries in loaded["scores"].items():
        for entry in entries:
            if ours is None:
                yield _row(model, f"{task} ({split})", "main_score", entry["main_score"])
                continue
            corpus, protocol, names = ours
            subset = str(entry.get("hf_subset", "default"))
            for name, value in entry.items():
                if name in names and isinstance(value, int | float):
                    one = protocol.replace("*", subset, 1)
                    yield _row(model, corpus, name, value, protocol=one, metric=names[name], difference=_TIES)


def _of_their_task(task: str) -> tuple[str, str, Mapping[str, str]] | None:
    """Return our corpus, protocol and metrics for a task of MTEB; None if we have none."""
    if task in JUDGED_TASKS:
        return task, JUDGED_QUERIES, _OURS
    for corpus, known in their_tasks().items():
        if (found := known["tasks"].get(task)) is not None:
            return corpus, found["protocol"], _ours(found.get("scores", NAMES))
    return None


class PublishedBeside(NamedTuple):
    """A published result under the names of ours, with our value of a model of the same name.

    The verdict and the remark are those of a comparison with published results.
    """

    encoder: str
    corpus: str
    protocol: str
    metric: str
    value: float | None
    published: float | None
    verdict: str
    remark: str | None
    source: str | None


def beside(own: Iterable[Result], published: Iterable[Published]) -> list[PublishedBeside]:
    """Return the published results on the corpora, protocols and metrics that we have; all if we have none.

    Not a comparison: nothing is tested, and a model of the same name is not known to be the same.
    """
    values: dict[tuple[str, str, str], dict[str, float | None]] = {}
    for row in own:
        values.setdefault((row.corpus, row.protocol, row.metric), {})[row.encoder] = row.value
    found = []
    for of in published:
        figure = of.dataset, of.protocol, of.metric
        if figure in values or not values:
            same = values.get(figure, {}).get(of.model)
            found.append(PublishedBeside(of.model, *figure, same, of.value, "published", of.difference, of.source))
    return found
