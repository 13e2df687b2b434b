"""CLIP_benchmark's CSV, as its ``clip_benchmark build`` makes it from evaluations.

Its image retrieval is ``t2i/all`` and its text retrieval ``i2t/any``; ``image_caption_selection`` covers Winoground
and hard negatives. Encoders keep their checkpoint as ``model`` and their revision as ``pretrained``.
"""

from __future__ import annotations

import csv
import io

from reports.rows.report_data import Evidence
from reports.sections.compositional import PAIRS, pair_protocols

DATASETS = {"coco-karpathy": "mscoco_captions", "flickr30k-karpathy": "flickr30k"}
FIELDS = (
    "dataset", "model", "pretrained", "model_fullname", "task", "language",
    *(f"{side}_retrieval_recall@{k}" for side in ("image", "text") for k in (1, 5, 10)),
    "text_acc", "image_acc", "acc",
)  # fmt: skip
RETRIEVAL = (("image", "t2i/all"), ("text", "i2t/any"))
WINOGROUND = (("text_acc", "winoground_text"), ("image_acc", "winoground_image"), ("acc", "winoground_group"))


def clip_benchmark_files(evidence: Evidence, name: str) -> dict[str, bytes]:
    """One row per encoder, data set and task."""
    rows = []
    for corpus in evidence.corpus_names():
        for encoder in evidence.encoder_names(corpus):
            for dataset, task, metrics in _tasks(evidence, corpus, encoder):
                spec = evidence.specs[encoder]
                rows.append(
                    {
                        "dataset": dataset,
                        "model": spec.checkpoint,
                        "pretrained": spec.revision,
                        "model_fullname": f"{spec.checkpoint} {spec.revision}",
                        "task": task,
                        "language": "en",
                        **metrics,
                    }
                )
    if not rows:
        return {}
    target = io.StringIO()
    writer = csv.DictWriter(target, fieldnames=FIELDS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return {name: target.getvalue().encode()}


def _tasks(evidence: Evidence, corpus: str, encoder: str) -> list[tuple[str, str, dict[str, float]]]:
    def known(found: dict[str, tuple[str, str]]) -> dict[str, float]:
        rows = {field: evidence.figures.get((corpus, p, m, encoder)) for field, (p, m) in found.items()}
        return {field: row["value"] for field, row in rows.items() if row is not None and row["value"] is not None}

    dataset = DATASETS.get(corpus, corpus)
    tasks = [
        (
            dataset,
            "zeroshot_retrieval",
            known({f"{side}_retrieval_recall@{k}": (p, f"R@{k}") for side, p in RETRIEVAL for k in (1, 5, 10)}),
        ),
        (dataset, "image_caption_selection", known({field: ("winoground", m) for field, m in WINOGROUND})),
    ]
    tasks += [
        (p.replace("sugarcrepe/", "sugar_crepe/"), "image_caption_selection", known({"text_acc": (p, PAIRS)}))
        for p in pair_protocols(evidence, corpus)
        if not p.endswith("/macro")
    ]
    return [task for task in tasks if task[2]]
