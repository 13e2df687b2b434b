from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from capim.tasks.corpora.images import source
from capim.tasks.corpora.images.source import Downloads


class Shelf(BaseHTTPRequestHandler):
    """Serves /there.jpg; /flaky.jpg fails twice first; all else is not found."""

    asked: list[str] = []  # noqa: RUF012 - shared on purpose

    def do_GET(self) -> None:
        self.asked.append(self.path)
        failing = self.path == "/flaky.jpg" and self.asked.count("/flaky.jpg") < 3
        status = 503 if failing else 200 if self.path in {"/a/there.jpg", "/flaky.jpg"} else 404
        self.send_response(status)
        self.end_headers()
        if status == 200:
            self.wfile.write(b"picture")

    def log_message(self, *_: object) -> None:
        """Be quiet."""


@pytest.fixture
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Shelf)
    Shelf.asked.clear()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_file_is_fetched_once_and_kept_whole(address: str, tmp_path: Path) -> None:
    source = Downloads(address, tmp_path)
    assert source.read("a/there.jpg") == source.read("a/there.jpg") == b"picture"
    assert Shelf.asked == ["/a/there.jpg"]
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["there.jpg"]


def test_a_server_that_fails_for_a_moment_is_asked_again(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "sleep", lambda _: None)
    assert Downloads(address, tmp_path).read("flaky.jpg") == b"picture"


def test_what_cannot_be_had_is_an_os_error_with_its_address_and_leaves_nothing(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "sleep", lambda _: None)
    with pytest.raises(OSError, match=r"gone.jpg: 404 Not Found"):
        Downloads(address, tmp_path).read("gone.jpg")
    with pytest.raises(OSError, match=r"x.jpg: .*refused.*4 attempts"):
        Downloads("http://127.0.0.1:9", tmp_path).read("x.jpg")
    monkeypatch.setattr(source, "_LARGEST", 3)
    with pytest.raises(OSError, match="more than 3 bytes"):
        Downloads(address, tmp_path).read("a/there.jpg")
    with pytest.raises(PermissionError, match="is not a web address"):
        Downloads("file:///etc", tmp_path).read("passwd")
    with pytest.raises(PermissionError, match="leaves the folder"):
        Downloads(address, tmp_path).read("../x.jpg")
    assert list(tmp_path.rglob("*.jpg")) == []
