"""Views in a notebook: the page of an address as one HTML file, without a server."""

from __future__ import annotations

from pathlib import Path

import pytest

import capim
from capim.store import EmbeddingStore
from tests.reports.app.asked import A, B


def test_a_view_is_shown_inline_as_the_browser_would_save_it(asked: EmbeddingStore, tmp_path: Path) -> None:
    workspace = capim.open(Path(asked.uri).parent, quiet=True)
    shown = workspace.show("queries", corpus="shapes", protocol="t2i/all", wrong=[B], right=A)
    same = workspace.show(
        f"http://127.0.0.1:8000/queries?corpus=shapes&protocol=t2i/all&wrong={B}&right={A}&token=t#content"
    )
    assert shown.html == same.html
    frame = shown._repr_html_()
    assert frame.startswith('<iframe sandbox="" srcdoc="')
    assert "<script" not in shown.html
    assert shown.save(tmp_path / "view.html").read_text("utf-8") == shown.html
    second = workspace.show("queries", corpus="shapes", protocol="t2i/all", page=2)
    assert second.html == workspace.show("/queries?corpus=shapes&protocol=t2i/all&page=2").html
    assert "data:image/png" in workspace.show("/map", corpus="shapes", encoders=A).html
    with pytest.raises(capim.RequestError, match="did you mean '/queries'"):
        workspace.show("querys")
    with pytest.raises(capim.RequestError, match="is unknown"):
        workspace.show("queries", wrong="nobody")
