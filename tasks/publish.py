"""Task that writes the report of a store, with the leaderboard and a link to the report as artifacts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from reports.write import write_report
from store import EmbeddingStore
from tasks.diagnosis.content.caption_features import caption_features
from tasks.runtime.artifacts import show_table, show_text
from tasks.runtime.explanation import explain_pairs
from tasks.runtime.shell import shell

LEADERBOARD = ("t2i/all", "R@1")  # protocol and metric of the artifact; the report has all


@shell("publish", run_name="publish-{run}", timeout_hours=2)
def publish_report(
    *,
    store_uri: str,
    reports_uri: str,
    run: str,
    corpora: Sequence[str] = (),
    encoders: Sequence[str] = (),
    protocols: Sequence[str] = (),
) -> str:
    """Write the report of these corpora, encoders and protocols (all where none is named); returns its path or URI."""
    store = EmbeddingStore.open(store_uri)
    page = write_report(
        store,
        f"{reports_uri}/{run}",
        corpora=corpora,
        encoders=encoders,
        protocols=protocols,
        describe=caption_features,
        explain=partial(explain_pairs, store),
    )
    show_table("leaderboard", leaderboard(store), "{1} of {0}, in percent, with intervals".format(*LEADERBOARD))
    link = page if "://" in page else Path(page).resolve().as_uri()
    show_text("report", f"# Report of {run}\n\n[{page}]({link})")
    return page


def leaderboard(store: EmbeddingStore) -> list[dict[str, Any]]:
    """The newest result of every encoder and corpus, best first."""
    protocol, metric = LEADERBOARD
    rows = store.rows("results", protocol=protocol, metric=metric).sort_by("created").to_pylist()
    newest = {(row["corpus"], row["encoder"]): row for row in rows if row["value"] is not None}
    ordered = sorted(newest.values(), key=lambda row: (row["corpus"], -row["value"]))
    return [
        {
            "corpus": row["corpus"],
            "encoder": row["encoder"],
            "value": round(100 * row["value"], 2),
            "ci_low": None if row["ci_low"] is None else round(100 * row["ci_low"], 2),
            "ci_high": None if row["ci_high"] is None else round(100 * row["ci_high"], 2),
            "queries": row["n_queries"],
        }
        for row in ordered
    ]
