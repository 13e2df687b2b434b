"""Results in the forms of MTEB and of a model card.

MTEB's are ``results/<model>/<revision>/<task>.json`` with ``model_meta.json`` next to them; the folder that holds
``results/`` is what ``mteb.ResultCache`` takes. A protocol of a corpus has the name of a task of MTEB where both ask
the same: its texts have the numbers that ``mteb_tasks.toml`` has of MTEB's, and the encoder has one vector for each
item, or searches images (from images to captions, MTEB sums over the vectors of the image). All others are named
``capim-<corpus>-<protocol>``: ``t2i/all`` on COCO Karpathy is not ``MSCOCOT2IRetrieval``, which leaves out captions
that repeat. A published corpus of document pages is named after its task; each language is a subset. Where scores
tie, ours are means over their orders; MTEB takes the first item or the highest id.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.compute as pc
from langcodes import Language

from capim.reports.exports.tabular import json_bytes
from capim.reports.rows.report_data import ReportData
from capim.reports.rows.standing import Task, headline_tasks
from capim.store.errors import RequestError
from capim.store.schema import Result
from capim.store.types import Corpus, EncoderSpec
from capim.tasks.corpora import JUDGED_TASKS, LANGUAGES
from capim.tasks.metrics.retrieval import MRR
from capim.tasks.metrics.table import HEADLINES
from capim.tasks.protocols import EVERY, Protocol

FORMAT = "2.0.0"  # version of the results files that MTEB's loader reads without conversion
NAMES: dict[str, str] = {
    MRR.name: "mrr",
    **{f"nDCG@{k}": f"ndcg_at_{k}" for k in (5, 10)},
    **{f"recall@{k}": f"recall_at_{k}" for k in (1, 5, 10)},
    **{f"{name}@{k}": f"hit_rate_at_{k}" for name in ("R", "success") for k in (1, 5, 10)},
}
"""Our metrics as MTEB calls them."""


class MtebSubset(NamedTuple):
    """One subset of a task: its name, revision, main score, what MTEB calls our metrics, and split."""

    name: str
    revision: str
    main: str
    scores: Mapping[str, str]
    subset: str
    split: str = "test"


def mteb_files(data: ReportData, name: str) -> dict[str, bytes]:
    """Return one file per encoder and task; the languages of one corpus and direction share a file.

    Raises:
        RequestError: Two encoders are of one checkpoint and revision, which have one folder.
    """
    files: dict[str, bytes] = {}
    for encoder, spec in sorted(data.specs.items()):
        folder = f"results/{spec.checkpoint.replace('/', '__').replace(' ', '_')}/{spec.revision}"
        tasks: dict[tuple[str, str, str], list[dict[str, object]]] = {}
        for corpus in data.corpus_names():
            for protocol in map(Protocol.of, data.protocols(corpus)):
                known = (r for r in data.of(corpus, protocol.id) if r.encoder == encoder and r.value is not None)
                rows = {r.metric: r for r in known if not r.lower_is_better}
                if rows and protocol.kind != "mean":  # MTEB itself averages over languages
                    task, entry = _entry(data, corpus, protocol, rows, spec)
                    tasks.setdefault(task, []).append(entry)
        for (label, revision, split), entries in tasks.items():
            document: dict[str, object] = {"dataset_revision": revision, "task_name": label, "mteb_version": FORMAT}
            document |= {"scores": {split: entries}, "evaluation_time": None, "kg_co2_emissions": None}
            files[f"{folder}/{label}.json"] = json_bytes(document)
        if tasks:
            if f"{folder}/model_meta.json" in files:
                raise RequestError(
                    f"{encoder} and another encoder are both {spec.checkpoint} at {spec.revision}, which MTEB takes "
                    "for one model; name one of them with --encoder"
                )
            meta = {"name": spec.checkpoint, "revision": spec.revision, "embed_dim": spec.dim, "capim_name": encoder}
            files[f"{folder}/model_meta.json"] = json_bytes(meta)
    return files


def _entry(
    data: ReportData, corpus: str, protocol: Protocol, rows: Mapping[str, Result], spec: EncoderSpec
) -> tuple[tuple[str, str, str], dict[str, object]]:
    """Return the name of a task with the revision and split of its data, and the scores of one of its subsets.

    ``rows``: the results by metric.
    """
    contents = data.corpora[corpus]
    language = protocol.language or language_of_queries(contents, protocol) or contents.languages_reference
    theirs = their_task(contents, protocol, spec, rows)
    if theirs is None:
        own = f"capim-{corpus}-{protocol.direction if protocol.is_of_language else protocol.id}".replace("/", "-")
        main_metric = str(next((m for m in (contents.main_metric, *HEADLINES.values()) if m in rows), next(iter(rows))))
        subset = f"{protocol.language}-{protocol.translator}" if protocol.is_of_language else "default"
        theirs = MtebSubset(own, contents.fingerprint, NAMES.get(main_metric, main_metric), NAMES, subset)
    named = {theirs.scores.get(metric, metric): row for metric, row in rows.items()}
    main = named[theirs.main]
    entry: dict[str, object] = {
        "main_score": main.value,
        "main_score_name": theirs.main,
        "main_score_low": main.ci_low,
        "main_score_high": main.ci_high,
        "hf_subset": theirs.subset,
        "languages": [mteb_language(language)],
        "corpus": corpus,
        "corpus_fingerprint": contents.fingerprint,
        "protocol": protocol.id,
        **{score: row.value for score, row in named.items()},
    }
    return (theirs.name, theirs.revision, theirs.split), entry


def their_task(corpus: Corpus, protocol: Protocol, spec: EncoderSpec, metrics: Collection[str]) -> MtebSubset | None:
    """Return the task of MTEB that a protocol of a corpus is, by the numbers of its texts; None if there is none.

    ``metrics`` are those that are stored: without the main score of a task its name cannot be used.
    """
    if corpus.name in JUDGED_TASKS:
        judged = _judged_task(corpus, protocol)
        return judged if judged is not None and judged.main in {NAMES.get(metric) for metric in metrics} else None
    if (known := their_tasks().get(corpus.name)) is None:
        return None
    general, subset, captions = protocol.id, "default", corpus.captions
    if protocol.is_of_language:
        general, subset = f"{protocol.direction}/{EVERY}/{protocol.translator}", protocol.language
        captions = captions.filter(pc.field("language") == subset)
    numbers = [len(captions), pc.sum(pc.utf8_length(captions["text"])).as_py() or 0]  # texts, and their characters
    for name, task in known["tasks"].items():
        scores: Mapping[str, str] = task.get("scores", NAMES)
        if (
            task["protocol"] == general
            and (spec.vectors == "single" or protocol.direction == "t2i")
            and task["main"] in {scores.get(metric) for metric in metrics}
            and known["captions"].get(subset) == numbers
        ):
            return MtebSubset(name, task["revision"], task["main"], scores, subset)
    return None


def _judged_task(corpus: Corpus, protocol: Protocol) -> MtebSubset | None:
    """Return the subset of its own task that a published corpus is under a protocol; None for several languages.

    Also None for the second versions of ViDoRe 3: MTEB's documents are pages with their text there, ours are pages.
    """
    task = JUDGED_TASKS[corpus.name]
    by_language = {LANGUAGES[name]: name for name in task.subsets if name in LANGUAGES}
    subset = by_language.get(language_of_queries(corpus, protocol))
    if len(task.subsets) == 1:
        subset = next(iter(task.subsets)) or "default"
    if subset is None or protocol.kind != "judged" or corpus.name.endswith(".v2"):
        return None
    return MtebSubset(task.task, task.revision, NAMES[task.main_metric], NAMES, subset, task.split)


def language_of_queries(corpus: Corpus, protocol: Protocol) -> str:
    """Return the language of the queries of a judged corpus under a protocol; empty for several."""
    if protocol.kind != "judged":
        return ""
    own = set(corpus.captions["language"].to_pylist())
    return protocol.language or (str(own.pop()) if len(own) == 1 else "")


@cache
def their_tasks() -> dict[str, Any]:
    """Return corpus -> the numbers of the texts of MTEB's subsets, and its tasks (``mteb_tasks.toml``)."""
    return tomllib.loads(Path(__file__).with_name("mteb_tasks.toml").read_text(encoding="utf-8"))


def mteb_language(code: str) -> str:
    """Return the ISO 639-3 code with script that MTEB uses, or the code as given if it is not a known language.

    Examples:
        >>> mteb_language("de"), mteb_language("pt-BR"), mteb_language("ko"), mteb_language("xx")
        ('deu-Latn', 'por-Latn', 'kor-Hang', 'xx')
    """
    language = Language.get(code)
    if not language.is_valid():
        return code
    script = language.maximize().script
    return f"{language.to_alpha3()}-{'Hang' if script == 'Kore' else script}"  # MTEB writes Korean as Hangul


HUB = "https://huggingface.co/datasets/"
TYPES = {"t2i": "text-to-image-retrieval", "i2t": "image-to-text-retrieval"}  # of a task; others: "caption-pairing"


def model_index_files(data: ReportData, name: str) -> dict[str, bytes]:
    """Return the ``model-index`` of a model card: the headline results of one encoder, as huggingface_hub writes them.

    It is the YAML between the two lines ``---`` of a card, and that ``huggingface_hub.metadata_update``
    takes. Values are fractions, 0 to 1. ``args`` of a metric are the interval and the revision of the model; the
    revision of the data is the fingerprint of the corpus.

    Raises:
        RequestError: There are results of several encoders.
    """
    if len(data.specs) != 1:
        raise RequestError(f"a model card is about one model; name it with --encoder: one of {', '.join(data.specs)}")
    [(encoder, spec)] = data.specs.items()
    rows = [(task, data.row(*task[:3], encoder)) for task in headline_tasks(data)]
    results = [_result(data, task, row, spec) for task, row in rows if row is not None and row.value is not None]
    if not results:
        return {}
    from huggingface_hub import ModelCardData

    return {name: ModelCardData(model_name=encoder, eval_results=results).to_yaml().encode() + b"\n"}


def _result(data: ReportData, task: Task, row: Result, spec: EncoderSpec) -> Any:
    from huggingface_hub import EvalResult

    corpus = data.corpora[task.corpus]
    return EvalResult(
        task_type=TYPES.get(Protocol.of(task.protocol).direction, "caption-pairing"),
        task_name=task.title,
        dataset_type=corpus.origin.removeprefix(HUB) if corpus.origin.startswith(HUB) else corpus.name,
        dataset_name=corpus.name,
        dataset_revision=corpus.fingerprint,
        metric_type=task.metric,
        metric_name=f"{task.metric} ({task.protocol})",
        metric_config=task.protocol,
        metric_value=row.value,
        metric_args={
            **{end: value for end, value in (("low", row.ci_low), ("high", row.ci_high)) if value is not None},
            "level": row.level,
            "model": spec.checkpoint,
            "model_revision": spec.revision,
        },
    )
