"""The combined CSV of the V28 seed."""

from __future__ import annotations

from capim.reports.exports.plain import csv_bytes
from capim.reports.rows.report_data import ReportData
from capim.reports.rows.speed import qps_v28

PROTOCOLS = {"T2I": ("t2i/first", "t2i/all"), "I2T": ("i2t/any5", "i2t/any")}


def v28_files(data: ReportData, name: str) -> dict[str, bytes]:
    """One row per encoder and retrieval corpus, in percent, best T2I R@1 first.

    The seed's T2I used the first caption and its I2T captions 0 to 4. For a corpus without such a protocol the
    headline protocol is used; the protocol columns name the one used. In the seed's printed table, Winoground text and
    image were exchanged; here they are correct.
    """

    def percent(corpus: str, protocol: str, metric: str, encoder: str) -> str:
        value = data.value(corpus, protocol, metric, encoder)
        return f"{100 * value:.1f}" if value is not None else ""

    winoground = next(iter(data.corpus_names(lambda p: p == "winoground")), "")
    rows: list[dict[str, str]] = []
    for corpus in data.corpus_names(lambda p: p in ("t2i/first", "t2i/all")):
        stored = data.protocols(corpus)
        protocols = {side: next((p for p in names if p in stored), "") for side, names in PROTOCOLS.items()}
        speeds = qps_v28(data, corpus)
        for encoder in (r["encoder"] for r in data.ranked(corpus, protocols["T2I"], "R@1")):
            spec = data.specs[encoder]
            row = {"Model": encoder, "Dataset": corpus}
            for side, protocol in protocols.items():
                row[f"{side} Protocol"] = protocol
                row |= {f"{side} R@{k}": percent(corpus, protocol, f"R@{k}", encoder) for k in (1, 5, 10)}
            for score in ("Text", "Image", "Group"):
                row[f"Winoground {score}"] = percent(winoground, "winoground", f"winoground_{score.lower()}", encoder)
            row["QPS"] = f"{speeds[encoder]:.1f}" if encoder in speeds else ""
            row["Architecture"] = "Late-Interaction" if spec.vectors == "multi" else "Dense"
            row["Checkpoint"] = spec.checkpoint
            rows.append(row)
    return {name: csv_bytes(rows)} if rows else {}
