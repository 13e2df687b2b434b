"""MTEB's results: ``results/<model>/<revision>/<task>.json`` with ``model_meta.json`` beside them.

The folder that holds ``results/`` is what ``mteb.ResultCache`` takes. A protocol of a corpus has the name of a task of
MTEB where both ask the same: its texts have the numbers that ``mteb_tasks.toml`` has of MTEB's, and the encoder has one
vector for each item, or searches images (from images to captions, MTEB sums over the vectors of the image). All others
are named ``capim-<corpus>-<protocol>``: ``t2i/all`` on COCO Karpathy is not ``MSCOCOT2IRetrieval``, which leaves out
captions that repeat. A published corpus of document pages is named after its task; each language is a subset. Where
scores tie, ours are means over their orders; MTEB takes the first item or the highest id.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.compute as pc
from huggingface_hub import EvalResult, ModelCardData

from capim.reports.exports.tabular import csv_bytes, json_bytes
from capim.reports.rows.languages import cross_lingual, judged_language, mteb_language
from capim.reports.rows.report_data import ReportData, Row
from capim.reports.rows.standing import Task, headline_tasks
from capim.reports.sections.leaderboard import PAIRS, pair_protocols
from capim.store.errors import RequestError
from capim.store.types import Corpus, EncoderSpec
from capim.tasks.corpora.judged_tasks import JUDGED_TASKS, LANGUAGES

FORMAT = "2.0.0"  # version of the results files that MTEB's loader reads without conversion
NAMES: dict[str, str] = {
    "R@1": "hit_rate_at_1",
    "R@5": "hit_rate_at_5",
    "R@10": "hit_rate_at_10",
    "MRR": "mrr",
    "nDCG@10": "ndcg_at_10",
    "nDCG@5": "ndcg_at_5",
    **{f"recall@{k}": f"recall_at_{k}" for k in (1, 5, 10)},
    **{f"success@{k}": f"hit_rate_at_{k}" for k in (1, 5, 10)},
}
MAIN = ("R@1", "winoground_group", "pair_accuracy")


class MtebSubset(NamedTuple):
    """One subset of a task: its name, revision, main score, what MTEB calls our metrics, and split."""

    name: str
    revision: str
    main: str
    scores: Mapping[str, str]
    subset: str
    split: str = "test"


def mteb_files(data: ReportData, name: str) -> dict[str, bytes]:
    """One file per encoder and task; the languages of one corpus and direction share a file."""
    files: dict[str, bytes] = {}
    for encoder, spec in sorted(data.specs.items()):
        folder = f"results/{spec.checkpoint.replace('/', '__').replace(' ', '_')}/{spec.revision}"
        tasks: dict[tuple[str, str, str], list[dict[str, object]]] = {}
        for corpus in data.corpus_names():
            for protocol in data.protocols(corpus):
                rows = [
                    r
                    for r in data.of(corpus, protocol)
                    if r["encoder"] == encoder and r["value"] is not None and not r["lower_is_better"]
                ]
                if rows and "*" not in protocol:  # MTEB itself averages over languages
                    task, entry = _entry(data, corpus, protocol, rows, spec)
                    tasks.setdefault(task, []).append(entry)
        for (label, revision, split), entries in tasks.items():
            document = {
                "dataset_revision": revision,
                "task_name": label,
                "mteb_version": FORMAT,
                "scores": {split: entries},
                "evaluation_time": None,
                "kg_co2_emissions": None,
            }
            files[f"{folder}/{label}.json"] = json_bytes(document)
        if tasks:
            meta = {"name": spec.checkpoint, "revision": spec.revision, "embed_dim": spec.dim, "capim_name": encoder}
            files[f"{folder}/model_meta.json"] = json_bytes(meta)
    return files


def their_task(corpus: Corpus, protocol: str, spec: EncoderSpec, metrics: Collection[str]) -> MtebSubset | None:
    """The task of MTEB that a protocol of a corpus is, by the numbers of its texts; None if there is none.

    ``metrics`` are those that are stored: without the main score of a task its name cannot be used.
    """
    if corpus.name in JUDGED_TASKS:
        judged = _judged_task(corpus, protocol)
        return judged if judged is not None and judged.main in {NAMES.get(metric) for metric in metrics} else None
    known = their_tasks().get(corpus.name, {})
    parts = cross_lingual(protocol)
    general = f"{parts.direction}/*/{parts.translator}" if parts else protocol
    subset = parts.language if parts else "default"
    for name, task in known.get("tasks", {}).items():
        scores: Mapping[str, str] = task.get("scores", NAMES)
        if (
            task["protocol"] == general
            and (spec.vectors == "single" or protocol.startswith("t2i/"))
            and task["main"] in {scores.get(metric) for metric in metrics}
            and known["captions"].get(subset) == _numbers(corpus, parts and parts.language)
        ):
            return MtebSubset(name, task["revision"], task["main"], scores, subset)
    return None


def _judged_task(corpus: Corpus, protocol: str) -> MtebSubset | None:
    """The subset of its own task that a published corpus is under a protocol; None for several languages together.

    Also None for the second versions of ViDoRe 3: MTEB's documents are pages with their text there, ours are pages.
    """
    task = JUDGED_TASKS[corpus.name]
    language = language_of_queries(corpus, protocol)
    by_language = {LANGUAGES[name]: name for name in task.subsets if name in LANGUAGES}
    subset = (next(iter(task.subsets)) or "default") if len(task.subsets) == 1 else by_language.get(language)
    if subset is None or judged_language(protocol) is None or corpus.name.endswith(".v2"):
        return None
    return MtebSubset(task.task, task.revision, NAMES[task.main_metric], NAMES, subset, task.split)


def language_of_queries(corpus: Corpus, protocol: str) -> str:
    """The language of the queries of a judged corpus under a protocol; empty for several."""
    own = set(corpus.captions["language"].to_pylist())
    language = judged_language(protocol)
    return str(own.pop()) if language == "" and len(own) == 1 else language or ""


@cache
def their_tasks() -> dict[str, Any]:
    """Corpus -> the numbers of the texts of MTEB's subsets, and its tasks (``mteb_tasks.toml``)."""
    return tomllib.loads(Path(__file__).with_name("mteb_tasks.toml").read_text(encoding="utf-8"))


def _numbers(corpus: Corpus, language: str | None) -> list[int]:
    """How many texts a corpus has, or has in one language, and how many characters they have."""
    captions = corpus.captions
    if language is not None:
        captions = captions.filter(pc.field("language") == language)
    return [len(captions), pc.sum(pc.utf8_length(captions["text"])).as_py() or 0]


def _entry(
    data: ReportData, corpus: str, protocol: str, rows: list[Row], spec: EncoderSpec
) -> tuple[tuple[str, str, str], dict[str, object]]:
    """The name of a task with the revision and split of its data, and the scores of one of its subsets."""
    by_metric: dict[str, Row] = {r["metric"]: r for r in rows}
    parts = cross_lingual(protocol)
    contents = data.corpora[corpus]
    language = parts.language if parts else language_of_queries(contents, protocol) or contents.languages_reference
    theirs = their_task(contents, protocol, spec, by_metric)
    if theirs is None:
        own = f"capim-{corpus}-{parts.direction if parts else protocol}".replace("/", "-")
        mains = (contents.main_metric, *MAIN, "nDCG@10")
        main_metric = str(next((m for m in mains if m in by_metric), rows[0]["metric"]))
        subset = f"{parts.language}-{parts.translator}" if parts else "default"
        theirs = MtebSubset(own, contents.fingerprint, NAMES.get(main_metric, main_metric), NAMES, subset)
    named = {theirs.scores.get(metric, metric): row for metric, row in by_metric.items()}
    main = named[theirs.main]
    entry: dict[str, object] = {
        "main_score": main["value"],
        "main_score_name": theirs.main,
        "main_score_low": main["ci_low"],
        "main_score_high": main["ci_high"],
        "hf_subset": theirs.subset,
        "languages": [mteb_language(language)],
        "corpus": corpus,
        "corpus_fingerprint": contents.fingerprint,
        "protocol": protocol,
        **{score: row["value"] for score, row in named.items()},
    }
    return (theirs.name, theirs.revision, theirs.split), entry


DATASETS = {"coco-karpathy": "mscoco_captions", "flickr30k-karpathy": "flickr30k"}
RETRIEVAL = {
    f"{side}_retrieval_recall@{k}": (protocol, f"R@{k}")
    for side, protocol in (("image", "t2i/all"), ("text", "i2t/any"))
    for k in (1, 5, 10)
}
WINOGROUND = {field: ("winoground", f"winoground_{score}") for field, score in
              (("text_acc", "text"), ("image_acc", "image"), ("acc", "group"))}  # fmt: skip
FIELDS = ("dataset", "model", "pretrained", "model_fullname", "task", "language", *RETRIEVAL, *WINOGROUND)


def clip_benchmark_files(data: ReportData, name: str) -> dict[str, bytes]:
    """One row per encoder, data set and task."""
    rows: list[dict[str, str]] = []
    for corpus in data.corpus_names():
        dataset = DATASETS.get(corpus, corpus)
        tasks = [(dataset, "zeroshot_retrieval", RETRIEVAL), (dataset, "image_caption_selection", WINOGROUND)]
        tasks += [
            (p.replace("sugarcrepe/", "sugar_crepe/"), "image_caption_selection", {"text_acc": (p, PAIRS)})
            for p in pair_protocols(data, corpus)
            if not p.endswith("/macro")
        ]
        for encoder in data.encoder_names(corpus):
            spec = data.specs[encoder]
            for dataset, task, metrics in tasks:
                values = {field: data.value(corpus, *key, encoder) for field, key in metrics.items()}
                if any(value is not None for value in values.values()):
                    texts = {field: str(value) for field, value in values.items() if value is not None}
                    about = (dataset, spec.checkpoint, spec.revision, f"{spec.checkpoint} {spec.revision}", task, "en")
                    rows.append(dict.fromkeys(FIELDS, "") | dict(zip(FIELDS, about, strict=False)) | texts)
    return {name: csv_bytes(rows)} if rows else {}


HUB = "https://huggingface.co/datasets/"
TYPES = {"t2i": "text-to-image-retrieval", "i2t": "image-to-text-retrieval"}  # of a task; others: "caption-pairing"


def model_index_files(data: ReportData, name: str) -> dict[str, bytes]:
    """The YAML that stands between the two lines ``---`` of a card, and that ``huggingface_hub.metadata_update`` takes.

    Values are fractions, 0 to 1. ``args`` of a metric are the interval and the revision of the model; the revision of
    the data is the fingerprint of the corpus.

    Raises:
        RequestError: There are results of several encoders.
    """
    if len(data.specs) != 1:
        raise RequestError(f"a model card is about one model; name it with --encoder: one of {', '.join(data.specs)}")
    [(encoder, spec)] = data.specs.items()
    tasks = [task for corpus in data.corpus_names() for task in headline_tasks(data, corpus)]
    results = [result for task in tasks if (result := _result(data, task, encoder, spec)) is not None]
    if not results:
        return {}
    return {name: ModelCardData(model_name=encoder, eval_results=results).to_yaml().encode() + b"\n"}


def _result(data: ReportData, task: Task, encoder: str, spec: EncoderSpec) -> EvalResult | None:
    row, corpus = data.row(*task[:3], encoder), data.corpora[task.corpus]
    if row is None or row["value"] is None:
        return None
    return EvalResult(
        task_type=TYPES.get(task.protocol.partition("/")[0], "caption-pairing"),
        task_name=task.title,
        dataset_type=corpus.origin.removeprefix(HUB) if corpus.origin.startswith(HUB) else corpus.name,
        dataset_name=corpus.name,
        dataset_revision=corpus.fingerprint,
        metric_type=task.metric,
        metric_name=f"{task.metric} ({task.protocol})",
        metric_config=task.protocol,
        metric_value=row["value"],
        metric_args={
            **{end: row[column] for end, column in (("low", "ci_low"), ("high", "ci_high")) if row[column] is not None},
            "level": row["level"],
            "model": spec.checkpoint,
            "model_revision": spec.revision,
        },
    )
