"""The first page: the report's grid, of what one chooses."""

from __future__ import annotations

import csv
import io

from starlette.testclient import TestClient

from capim.store import EmbeddingStore


def test_the_grid_shows_the_chosen_encoders_and_its_rows_are_its_sql(
    client: TestClient, served_store: EmbeddingStore
) -> None:
    names = sorted(served_store.counts("results", "encoder"))
    chosen = f"/?encoders={names[0]},{names[1]}&corpora=coco-karpathy&metric=R@5"
    page = client.get(chosen).text
    assert f'<th scope="row">{names[0]}</th>' in page
    assert f'<th scope="row">{names[2]}</th>' not in page
    statement = client.get(f"{chosen}&as=sql").text
    rows = served_store.sql(statement).to_pylist()
    assert {(row["encoder"], row["metric"]) for row in rows} == {(names[0], "R@5"), (names[1], "R@5")}
    found = list(csv.DictReader(io.StringIO(client.get(f"{chosen}&as=csv").text)))
    assert [row["encoder"] for row in found] == [row["encoder"] for row in rows]
    assert f"/queries?corpus=coco-karpathy&amp;protocol=t2i/all&amp;wrong={names[0]}" in page


def test_a_saved_page_needs_nothing_else(client: TestClient) -> None:
    saved = client.get("/?as=html")
    assert saved.headers["content-disposition"].startswith("attachment")
    assert "<style>" in saved.text
    for outside in ("<script", "<link", 'src="/', 'href="/'):
        assert outside not in saved.text
