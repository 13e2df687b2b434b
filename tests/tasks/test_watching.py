"""The pinned run of a figure: the first watch, or what a user named, and never the run before."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from capim.store import EmbeddingStore
from capim.store.schema import Watched, texts
from capim.tasks.watch import HISTORY, FigureId, Pinned, check_baseline, pinned_baselines

START = datetime(2026, 1, 5, tzinfo=UTC)
ENGLISH, GERMAN = ("m", "c", "t2i/en/human"), ("m", "c", "t2i/de/human")


def watch(store: EmbeddingStore, week: int, ids: list[FigureId], baseline: str | None = None) -> dict[FigureId, str]:
    """Write what a watch of these figures stores; returns figure -> the run that it was compared with."""
    run = f"week-{week}"
    pins, _ = pinned_baselines(store, ids, run=run, baseline=baseline)
    rows = [
        Watched(
            run=run, encoder=encoder, encoder_fingerprint="f", corpus=corpus, corpus_fingerprint="g",
            protocol=protocol, metric="R@1", evaluation=f"{protocol} {run}",
            baseline=pin.run, baseline_evaluation=pin.evaluation,
            alarm_level=0.001, verdict="none", created=START + timedelta(weeks=week),
        )
        for encoder, corpus, protocol in ids
        for pin in [pins.get((encoder, corpus, protocol), Pinned(run, f"{protocol} {run}"))]
    ]  # fmt: skip
    store.write(rows)
    return {each: row.baseline for each, row in zip(ids, rows, strict=True)}


def test_the_first_watch_of_a_figure_stays_its_baseline(empty: EmbeddingStore) -> None:
    assert watch(empty, 0, [ENGLISH]) == {ENGLISH: "week-0"}
    assert watch(empty, 1, [ENGLISH, GERMAN]) == {ENGLISH: "week-0", GERMAN: "week-1"}
    assert watch(empty, 2, [ENGLISH, GERMAN]) == {ENGLISH: "week-0", GERMAN: "week-1"}


def test_the_command_that_a_watch_names_shows_every_watch(empty: EmbeddingStore) -> None:
    for week in range(3):
        watch(empty, week, [ENGLISH])
    statement = HISTORY.split('"')[1]
    assert sorted(texts(empty.sql(statement)["run"])) == ["week-0", "week-1", "week-2"]


def test_a_named_run_is_pinned_for_the_figures_that_it_has_and_for_later_watches(empty: EmbeddingStore) -> None:
    for week, ids in enumerate(([ENGLISH], [ENGLISH], [ENGLISH, GERMAN])):
        watch(empty, week, ids)
    assert watch(empty, 3, [ENGLISH, GERMAN], baseline="week-1") == {ENGLISH: "week-1", GERMAN: "week-2"}
    assert watch(empty, 4, [ENGLISH, GERMAN]) == {ENGLISH: "week-1", GERMAN: "week-2"}
    pins, last = pinned_baselines(empty, [ENGLISH], run="now", baseline=None)
    assert pins[ENGLISH].evaluation == "t2i/en/human week-1"
    assert last == START + timedelta(weeks=4)


def test_a_run_that_cannot_be_pinned_is_refused_with_those_that_can(empty: EmbeddingStore) -> None:
    watch(empty, 0, [ENGLISH])
    assert check_baseline.fn("week-0", store_uri=empty.uri, encoders=["m", "other"]) == []
    for uri, run, encoder, message in (
        (empty.uri, "week-9", "m", "did you mean 'week-0'? runs with such results: week-0"),
        (empty.uri, "week-0", "other", "no results of other, only of m; leave --baseline out"),
        ("nowhere", "week-0", "m", "no store at nowhere yet; leave --baseline out"),
    ):
        [fault] = check_baseline.fn(run, store_uri=uri, encoders=[encoder])
        assert message in fault
