"""The combined CSV that the V28 seed wrote."""

from __future__ import annotations

from reports.exports.plain import csv_bytes
from reports.rows.report_data import Evidence
from reports.rows.speed import qps_v28

V28_PROTOCOLS = (("T2I", ("t2i/first", "t2i/all")), ("I2T", ("i2t/any5", "i2t/any")))


def v28_files(evidence: Evidence, name: str) -> dict[str, bytes]:
    """One row per encoder and retrieval corpus, in percent, best T2I R@1 first.

    The seed's T2I used the first caption and its I2T captions 0 to 4; where a corpus has no such protocol the
    headline stands in, and the protocol columns say which it is. Its printed Winoground text and image were
    exchanged; here they are right.
    """
    winoground = next(iter(evidence.corpus_names(lambda p: p == "winoground")), None)
    rows: list[dict[str, str]] = []
    for corpus in evidence.corpus_names(lambda p: p in ("t2i/first", "t2i/all")):
        chosen = {
            side: next((p for p in wanted if p in evidence.protocols(corpus)), "") for side, wanted in V28_PROTOCOLS
        }
        speeds = qps_v28(evidence, corpus)
        order = [r["encoder"] for r in evidence.ranked(corpus, chosen["T2I"], "R@1")]
        for encoder in order:
            spec = evidence.specs[encoder]
            row = {"Model": encoder, "Dataset": corpus}
            for side, protocol in chosen.items():
                row[f"{side} Protocol"] = protocol
                for k in (1, 5, 10):
                    row[f"{side} R@{k}"] = _percent(evidence, corpus, protocol, f"R@{k}", encoder)
            for score in ("Text", "Image", "Group"):
                metric = f"winoground_{score.lower()}"
                row[f"Winoground {score}"] = (
                    _percent(evidence, winoground, "winoground", metric, encoder) if winoground else ""
                )
            row["QPS"] = f"{speeds[encoder]:.1f}" if encoder in speeds else ""
            row["Architecture"] = "Late-Interaction" if spec.vectors == "multi" else "Dense"
            row["Checkpoint"] = spec.checkpoint
            rows.append(row)
    return {name: csv_bytes(rows)} if rows else {}


def _percent(evidence: Evidence, corpus: str, protocol: str, metric: str, encoder: str) -> str:
    row = evidence.figures.get((corpus, protocol, metric, encoder))
    return f"{100 * row['value']:.1f}" if row is not None and row["value"] is not None else ""
