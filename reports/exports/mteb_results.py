"""MTEB's results folder: ``<model>/<revision>/<task>.json`` with ``model_meta.json`` beside them.

The tasks are named ``capim-<corpus>-<protocol>``: ``t2i/all`` on COCO Karpathy is not MTEB's
``MSCOCOT2IRetrieval``, which has other queries and another main metric (nDCG@10).
"""

from __future__ import annotations

from reports.exports.plain import json_bytes
from reports.rows.languages import cross_lingual, mteb_language
from reports.rows.report_data import SMALLER_IS_BETTER, ReportData, Row

FORMAT = "2.0.0"  # version of the results files that MTEB's loader reads without conversion
NAMES: dict[str, str] = {
    "R@1": "hit_rate_at_1",
    "R@5": "hit_rate_at_5",
    "R@10": "hit_rate_at_10",
    "MRR": "mrr",
    "nDCG@10": "ndcg_at_10",
}
MAIN = ("R@1", "winoground_group", "pair_accuracy")


def mteb_files(data: ReportData, name: str) -> dict[str, bytes]:
    """One file per encoder, corpus and protocol; the languages of one corpus and direction share a file."""
    files: dict[str, bytes] = {}
    for encoder, spec in sorted(data.specs.items()):
        folder = f"{spec.checkpoint.replace('/', '__').replace(' ', '_')}/{spec.revision}"
        tasks: dict[str, list[dict[str, object]]] = {}
        for corpus in data.corpus_names():
            for protocol in data.protocols(corpus):
                rows = [
                    r
                    for r in data.of(corpus, protocol)
                    if r["encoder"] == encoder and r["value"] is not None and r["metric"] not in SMALLER_IS_BETTER
                ]
                if rows and "*" not in protocol:  # MTEB itself averages over languages
                    task, entry = _entry(data, corpus, protocol, rows)
                    tasks.setdefault(task, []).append(entry)
        for task, entries in tasks.items():
            document = {
                "dataset_revision": data.corpora[str(entries[0]["corpus"])].fingerprint,
                "task_name": task,
                "mteb_version": FORMAT,
                "scores": {"test": entries},
                "evaluation_time": None,
                "kg_co2_emissions": None,
            }
            files[f"{folder}/{task}.json"] = json_bytes(document)
        if tasks:
            meta = {"name": spec.checkpoint, "revision": spec.revision, "embed_dim": spec.dim, "capim_name": encoder}
            files[f"{folder}/model_meta.json"] = json_bytes(meta)
    return files


def _entry(data: ReportData, corpus: str, protocol: str, rows: list[Row]) -> tuple[str, dict[str, object]]:
    by_metric: dict[str, Row] = {r["metric"]: r for r in rows}
    main = next((by_metric[m] for m in MAIN if m in by_metric), rows[0])
    parts = cross_lingual(protocol)
    language = parts.language if parts else data.corpora[corpus].languages_reference
    entry: dict[str, object] = {
        "main_score": main["value"],
        "main_score_name": NAMES.get(main["metric"], main["metric"]),
        "main_score_low": main["ci_low"],
        "main_score_high": main["ci_high"],
        "hf_subset": f"{parts.language}-{parts.translator}" if parts else "default",
        "languages": [mteb_language(language)],
        "corpus": corpus,
        "protocol": protocol,
        **{NAMES.get(metric, metric): row["value"] for metric, row in by_metric.items()},
    }
    return f"capim-{corpus}-{parts.direction if parts else protocol}".replace("/", "-"), entry
