"""A double of the Hugging Face hub on this machine: its API, its layout of files, and what goes wrong with it.

:class:`HubDouble` serves models and data sets as huggingface.co does (the API that ``huggingface_hub`` 2.4 and
``datasets`` 5.2 call, with ETag, ``X-Repo-Commit``, redirects to a store of large files, ranges), to whoever has its
address in ``HF_ENDPOINT``. What it should do wrong is set while it serves: gates, cuts, limits, refusals.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, unquote, urlsplit

Kind = Literal["models", "datasets"]
LARGE = 20_000  # bytes; from here on a file is in the store of large files, as LFS has it
TOKEN = "hf_of_the_double"
_LARGE_FILES = "/large/"
_CHUNK = 16_384


@dataclass
class Repository:
    """One repository: its commits, what its branches name, and who may read it.

    Attributes:
        commits: Commit -> path -> file on disk.
        branches: Name -> commit.
        gate: Whether a token is needed, and which error those get who have none: its terms are not accepted, or the
            token is missing (as for a private repository).
    """

    commits: dict[str, dict[str, Path]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    gate: Literal["", "terms", "private"] = ""

    def commit_of(self, revision: str) -> str | None:
        """The commit of a branch, or the commit itself."""
        commit = self.branches.get(revision, revision)
        return commit if commit in self.commits else None


@dataclass
class HubDouble:
    """The double, while ``with`` lasts.

    Attributes:
        repositories: By kind and id.
        cuts: Name of a file -> after how many bytes of an answer the connection is cut, one for each answer to come.
        limited: How many answers to come are "too many requests".
        away: Every connection is refused with 503.
        served: Bytes of each file that were sent.
        asked: Method and path of each request.
        unknown: Requests for what the double does not know.
        sites: Other hosts whose files it gives, as a proxy: name -> folder.
    """

    repositories: dict[tuple[Kind, str], Repository] = field(default_factory=dict)
    cuts: dict[str, list[int]] = field(default_factory=dict)
    limited: int = 0
    away: bool = False
    served: Counter[str] = field(default_factory=Counter)
    asked: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    sites: dict[str, Path] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> HubDouble:
        double = self

        class Handler(_Handler):
            hub = double

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def address(self) -> str:
        """What ``HF_ENDPOINT`` has to be."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def environment(self, home: Path) -> dict[str, str]:
        """The variables of a process that takes this for the hub, with its caches below ``home``."""
        others = {"http_proxy": self.address, "no_proxy": "127.0.0.1,localhost"}
        places = {"HF_HOME": str(home / "hub"), "HOME": str(home)}
        return {"HF_ENDPOINT": self.address, "HF_HUB_OFFLINE": "0", "HF_TOKEN": TOKEN, **places, **others}

    def push(self, kind: Kind, repository: str, folder: Path, *, commit: str = "") -> str:
        """Commit the files of a folder, which stay where they are; returns the commit that ``main`` then names."""
        files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
        listed = "".join(f"{name} {_sha256(path)}\n" for name, path in files.items())
        commit = commit or hashlib.sha1(f"{repository} {listed}".encode()).hexdigest()
        held = self.repositories.setdefault((kind, repository), Repository())
        held.commits[commit] = files
        held.branches["main"] = commit
        return commit


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: HubDouble

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        address = urlsplit(self.path)
        path, query = unquote(address.path), parse_qs(address.query)
        with self.hub.lock:
            self.hub.asked.append(f"{self.command} {path}")
            limited, self.hub.limited = self.hub.limited > 0, max(self.hub.limited - 1, 0)
        if self.hub.away:
            return self._send(503, b"away")
        if limited:
            return self._send(429, b"too many requests", {"Retry-After": "1", "RateLimit": '"api";r=0;t=1'})
        if site := self.hub.sites.get(address.netloc):
            file = site / path.lstrip("/")
            return self._file(path, file, {}) if file.is_file() else self._send(404, b"no such file")
        if address.netloc.startswith("datasets-server."):  # which counts rows; nothing needs it
            return self._send(404, b"")
        if path.startswith(_LARGE_FILES):
            sha, _, name = path.removeprefix(_LARGE_FILES).partition("/")
            return self._file(name, self._of_sha(sha), {})
        words = path.strip("/").split("/")
        in_api = words[0] == "api"
        if in_api and words[1:2] == ["whoami-v2"]:
            return self._json({"name": "double", "type": "user"})
        words = words[1:] if in_api else words
        kind: Kind = "models"
        if words[0] in ("models", "datasets") and (in_api or words[0] == "datasets"):
            kind = "datasets" if words[0] == "datasets" else "models"
            words = words[1:]
        for length in (2, 1):
            name = "/".join(words[:length])
            if held := self.hub.repositories.get((kind, name)):
                return self._of_repository(kind, name, held, words[length:], query, body, in_api=in_api)
        self.hub.unknown.append(f"{self.command} {self.path}")
        return self._refuse(401, "RepoNotFound", "Repository not found")

    do_HEAD = do_POST = do_GET

    def _of_repository(
        self, kind: Kind, name: str, held: Repository, rest: list[str], query: Any, body: bytes, *, in_api: bool
    ) -> None:
        what = rest[0] if rest else "revision"
        revision = rest[1] if len(rest) > 1 else "main"
        commit, path = held.commit_of(revision), "/".join(rest[2:])
        # the description of a gated repository is public, its files are not; of a private one nothing is
        if held.gate and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            if held.gate == "private":
                return self._refuse(401, "RepoNotFound", "Invalid username or password.")
            if what in ("resolve", "auth-check"):
                given = "Authorization" in self.headers
                return self._refuse(403 if given else 401, "GatedRepo", f"Access to {kind[:-1]} {name} is restricted.")
        if commit is None:
            return self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        files = held.commits[commit]
        if what == "resolve":
            if path not in files:
                return self._refuse(404, "EntryNotFound", "Entry not found", {"X-Repo-Commit": commit})
            return self._resolved(path, files[path], commit)
        if in_api and what == "tree":
            below = [n for n in files if not path or n.startswith(f"{path}/")]
            if path and not below:
                return self._refuse(404, "EntryNotFound", f"{path} does not exist")
            return self._json(list(_entries(files, path, recursive=query.get("recursive", [""])[0].lower() == "true")))
        if in_api and what == "paths-info":
            asked = parse_qs(body.decode()).get("paths") or json.loads(body or b"{}").get("paths", [])
            folders = {parent for n in files for parent in _parents(n)}
            known = [_entry(n, files[n]) if n in files else _folder(n) for n in asked if n in files or n in folders]
            return self._json(known)
        if in_api and what == "auth-check":
            return self._send(200, b"")
        if in_api and what == "revision":
            siblings = [{"rfilename": n, "size": f.stat().st_size} for n, f in files.items()]
            facts = {"_id": commit[:24], "id": name, "sha": commit, "private": held.gate == "private"}
            gated = "manual" if held.gate == "terms" else False
            return self._json({**facts, "gated": gated, "siblings": siblings, "tags": [], "downloads": 0, "likes": 0})
        self.hub.unknown.append(f"{self.command} {self.path}")
        return self._refuse(404, "EntryNotFound", "unknown to the double")

    def _resolved(self, path: str, file: Path, commit: str) -> None:
        size, etag = file.stat().st_size, _etag(file)
        about = {"X-Repo-Commit": commit, "ETag": f'"{etag}"', "Accept-Ranges": "bytes"}
        if size < LARGE:
            return self._file(path, file, about)
        about |= {"X-Linked-Size": str(size), "X-Linked-Etag": f'"{etag}"'}
        where = (
            f"{self.hub.address.replace('127.0.0.1', 'localhost')}{_LARGE_FILES}{etag}/{path}"  # another host, as there
        )
        return self._send(302, b"", {**about, "Location": where})

    def _of_sha(self, sha: str) -> Path:
        return next(
            file
            for held in self.hub.repositories.values()
            for files in held.commits.values()
            for file in files.values()
            if file.stat().st_size >= LARGE and _etag(file) == sha
        )

    def _file(self, name: str, file: Path, about: dict[str, str]) -> None:
        contents = file.read_bytes()
        start = 0
        if given := self.headers.get("Range"):
            first, _, last = given.removeprefix("bytes=").partition("-")
            start, stop = int(first), int(last) + 1 if last else len(contents)
            about = {**about, "Content-Range": f"bytes {start}-{stop - 1}/{len(contents)}"}
            contents = contents[start:stop]
        cuts = self.hub.cuts.get(name.rpartition("/")[2], []) if self.command == "GET" else []
        cut = cuts.pop(0) if cuts else None
        self._send(206 if given else 200, contents, about, name=name, cut=cut)

    def _json(self, content: object) -> None:
        self._send(200, json.dumps(content).encode(), {"Content-Type": "application/json"})

    def _refuse(self, status: int, code: str, message: str, more: dict[str, str] | None = None) -> None:
        about = {"X-Error-Code": code, "X-Error-Message": message, **(more or {})}
        self._send(status, json.dumps({"error": message}).encode(), about)

    def _send(
        self,
        status: int,
        content: bytes,
        about: dict[str, str] | None = None,
        *,
        name: str = "",
        cut: int | None = None,
    ) -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(len(content)), **(about or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        sent = content if cut is None else content[:cut]
        for begin in range(0, len(sent), _CHUNK):
            part = sent[begin : begin + _CHUNK]
            self.wfile.write(part)
            with self.hub.lock:
                self.hub.served[name] += len(part)
        self.wfile.flush()
        if cut is not None:
            self.close_connection = True
            self.connection.shutdown(2)


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@cache
def _etag(file: Path) -> str:
    """The digest by which the hub names a file: of git's blob, or of a large file sha-256."""
    contents = file.read_bytes()
    if len(contents) >= LARGE:
        return hashlib.sha256(contents).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(contents) + contents).hexdigest()


def _parents(name: str) -> Iterator[str]:
    return (parent.as_posix() for parent in Path(name).parents if parent != Path())


def _entry(name: str, file: Path) -> dict[str, Any]:
    size, etag = file.stat().st_size, _etag(file)
    entry = {"type": "file", "path": name, "size": size, "oid": etag[:40]}
    return entry if size < LARGE else {**entry, "lfs": {"oid": etag, "size": size, "pointerSize": 134}}


def _folder(name: str) -> dict[str, Any]:
    return {"type": "directory", "path": name, "size": 0, "oid": hashlib.sha1(name.encode()).hexdigest()}


def _entries(files: dict[str, Path], folder: str, *, recursive: bool) -> Iterator[dict[str, Any]]:
    """What lies in a folder, as the API lists it."""
    seen: set[str] = set()
    for name, file in files.items():
        if folder and not name.startswith(f"{folder}/"):
            continue
        for parent in (p for p in reversed([*_parents(name)]) if p != folder and p.startswith(folder)):
            if (recursive or "/" not in parent.removeprefix(folder).strip("/")) and parent not in seen:
                seen.add(parent)
                yield _folder(parent)
        if recursive or "/" not in name.removeprefix(folder).strip("/"):
            yield _entry(name, file)
