"""The ``model-index`` of a model card: the headline figures of one encoder, as huggingface_hub writes them."""

from __future__ import annotations

from huggingface_hub import EvalResult, ModelCardData

from capim.reports.rows.report_data import ReportData
from capim.reports.rows.standing import Task, headline_tasks
from capim.store.errors import RequestError
from capim.store.types import EncoderSpec

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
