"""Task that writes the report of a store; the leaderboard and the report as artifacts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from capim.reports.format import percent, percent_range
from capim.reports.rows.report_data import goodness
from capim.reports.rows.snapshot import answer_lines, first_screen
from capim.reports.write import write_report
from capim.store import EmbeddingStore
from capim.store.schema import texts
from capim.tasks.diagnosis.content.caption_features import caption_features
from capim.tasks.metrics.headline import RSUM, planned_figures
from capim.tasks.runtime.artifacts import artifact_key, in_a_run, show_table, show_text
from capim.tasks.runtime.explanation import explain_pairs
from capim.tasks.runtime.shell import shell
from capim.tasks.scoring.protocols.selection import protocols_of


@shell("publish", run_name="publish-{run}")
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
    return write_report(
        store,
        f"{reports_uri}/{run}",
        corpora=corpora,
        encoders=encoders,
        protocols=protocols,
        describe=caption_features,
        explain=partial(explain_pairs, store),
    )


def show_report(page: str, *, store_uri: str, run: str, reports_url: str | None) -> None:
    """Show the leaderboard and the report as artifacts of the flow run that calls this.

    ``reports_url`` is where browsers find the folder of the reports: None: what the report begins with, without a link.
    """
    if not in_a_run():
        return
    about = "the planned figures of every corpus, best first, in percent with 95 % intervals"
    show_table(artifact_key("leaderboard", store_uri), leaderboard(EmbeddingStore.open(store_uri)), about)
    place = f"reports/{run}/report.html"
    link = f"[{run}]({reports_url.rstrip('/')}/{run}/report.html)" if reports_url else f"The whole page is `{place}`"
    answer = next(iter(answer_lines(page)), "")
    show_text(artifact_key("report", store_uri), f"{first_screen(page)}\n\n{link}", answer)


def leaderboard(store: EmbeddingStore) -> list[dict[str, Any]]:
    """The newest value of every planned figure but RSUM, by corpus and encoder, best first."""
    found: list[dict[str, Any]] = []
    for fingerprint in texts(store.corpora()["fingerprint"]):
        planned = planned_figures(protocols_of(store.corpus(fingerprint))) - {RSUM}
        named = {name: sorted({getattr(figure, name) for figure in planned}) for name in ("protocol", "metric")}
        rows = store.rows("results", corpus_fingerprint=fingerprint, **named).sort_by("created").to_pylist()
        newest = {
            (row["protocol"], row["metric"], row["encoder"]): row
            for row in rows
            if (row["protocol"], row["metric"]) in planned and row["value"] is not None
        }
        found += newest.values()
    ordered = sorted(found, key=lambda row: (row["corpus"], row["protocol"], row["metric"], -goodness(row)))
    return [
        {
            "corpus": row["corpus"],
            "protocol": row["protocol"],
            "metric": row["metric"],
            "encoder": row["encoder"],
            "percent": percent(row["value"], 2),
            "interval": percent_range(row["ci_low"], row["ci_high"], 2),
            "queries": row["n_queries"],
        }
        for row in ordered
    ]
