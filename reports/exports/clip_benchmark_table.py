"""CLIP_benchmark's CSV, in the form that its ``clip_benchmark build`` makes from evaluations.

Its image retrieval is ``t2i/all`` and its text retrieval ``i2t/any``; ``image_caption_selection`` covers Winoground
and hard negatives. The checkpoint of an encoder is its ``model`` and the revision its ``pretrained``.
"""

from __future__ import annotations

from capim.reports.exports.plain import csv_bytes
from capim.reports.rows.report_data import ReportData
from capim.reports.sections.compositional import PAIRS, pair_protocols

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
