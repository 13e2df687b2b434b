"""State shared by the pages: the store with the rows read of its current version, URLs, and the forms of a view."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from threading import Lock
from typing import Any, TypeAlias, TypeVar
from typing import Protocol as Interface
from urllib.parse import parse_qs, urlencode

import pyarrow as pa
from markupsafe import Markup
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from capim.reports.elements.tables import link
from capim.reports.exports.tabular import csv_bytes
from capim.reports.render import TEMPLATES, html_templates
from capim.reports.rows.reading import read_report_data
from capim.reports.rows.report_data import ReportData
from capim.reports.rows.standing import conclusions
from capim.store import EmbeddingStore
from capim.store.errors import RequestError, unknown
from capim.store.sql import TableCache, version_of
from capim.store.types import Found, digest16
from capim.store.vectors import Explanation
from capim.tasks.metrics.judgements import read_judgements
from capim.tasks.protocols import Protocol, with_outcomes

T = TypeVar("T")
Answer: TypeAlias = Mapping[str, Any]
"""A row of the answer to a statement or to a search."""
Values: TypeAlias = dict[str, Any]
"""Variables of a template."""
PAGE = 50  # queries that are shown at a time
PICTURES = 8  # of those that were searched for, in memory
STATIC = Path(__file__).parent / "static"
PAGES = {"/": "Answer", "/queries": "Failures", "/search": "Search", "/runs": "What changed"}
"""The pages of the navigation bar: path to title."""


class Services(Interface):
    """Services of models and computations that reports may not import; the command supplies them.

    Every function raises ``RequestError`` for a wrong request.
    """

    def search(self, *args: Any, **wanted: Any) -> Found:
        """Return the nearest items, as ``capim search`` finds them (``flows.searching.StoreServices``)."""

    def loaded(self, encoder: str) -> bool:
        """True if the model of an encoder is in memory."""

    def thumbnail(self, image: bytes) -> bytes:
        """Return a small JPEG of an encoded image."""

    def explain(self, *, encoder: str, corpus: str, pairs: Sequence[tuple[int, int]]) -> list[Explanation]:
        """Return where each pair (positions of a caption and an image) matches; only for late interaction."""


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A SELECT over the store's tables, and the values of the ``?`` in it.

    ``only`` says which rows it needs (``store.sql``): these stay in memory.
    """

    sql: str
    parameters: tuple[object, ...] = ()
    only: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The statement with its values written in, for ``capim query``.

        Examples:
            >>> Statement(sql="SELECT 1 WHERE a = ? AND b > ?", parameters=("it's", 2)).text
            "SELECT 1 WHERE a = 'it''s' AND b > 2"
        """
        values = iter(self.parameters)
        return re.sub(r"\?", lambda _: _literal(next(values)), self.sql)


def _literal(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    return str(value) if isinstance(value, int | float) else "'" + str(value).replace("'", "''") + "'"


def placeholders(values: Sequence[object]) -> str:
    """Return the placeholders between the parentheses of ``IN (...)`` for these values."""
    return ", ".join("?" for _ in values) or "NULL"


@dataclass(frozen=True, kw_only=True)
class EvaluatedTask:
    """One protocol of one corpus with queries that can be listed.

    Attributes:
        corpus: Name of the corpus.
        corpus_fingerprint: The state of it that was evaluated.
        protocol: The protocol; a mean over languages includes the protocols of all languages.
        evaluations: Encoder to the evaluations that hold its outcomes, one per protocol that is meant.
    """

    corpus: str
    corpus_fingerprint: str
    protocol: Protocol
    evaluations: Mapping[str, tuple[str, ...]]

    @property
    def has_images(self) -> bool:
        """True if a query is an image, or its cluster is its image; of judged queries that is a group of queries."""
        return self.protocol.queries == "image" or self.protocol.kind in ("retrieval", "mean")

    @property
    def every_evaluation(self) -> tuple[str, ...]:
        """The evaluations of all encoders."""
        return tuple(one for of in self.evaluations.values() for one in of)


@dataclass(kw_only=True)
class StoreSnapshot:
    """Rows read from one version of the store, each part when it is first needed."""

    version: str
    store: EmbeddingStore
    _kept: dict[object, Any] = field(default_factory=dict)

    def kept(self, key: object, make: Callable[[], T]) -> T:
        """Return the result of ``make``, computed once for this version of the store."""
        if key not in self._kept:
            self._kept[key] = make()
        value: T = self._kept[key]
        return value

    def last(self, name: str, key: object, make: Callable[[], T]) -> T:
        """Return the result of ``make`` as :meth:`kept` does, but keep only the last key of a name in memory."""
        kept = self._kept.get(name)
        if kept is None or kept[0] != key:
            self._kept[name] = kept = key, make()
        value: T = kept[1]  # of this key: another request may have replaced the one in memory
        return value

    @cached_property
    def reader(self) -> EmbeddingStore:
        """The store, with the rows of small tables kept in memory."""
        return self.store.keeping()

    @cached_property
    def data(self) -> ReportData:
        """The rows of a report.

        Raises:
            RequestError: There are no results.
        """
        return read_report_data(self.store, gallery=False)

    @cached_property
    def evaluated(self) -> Mapping[tuple[str, str], EvaluatedTask]:
        """Corpus and protocol to the evaluated task; the headline protocols of a corpus first."""
        found: dict[tuple[str, str], EvaluatedTask] = {}
        for corpus in dict.fromkeys([*conclusions(self.data), *self.data.corpus_names()]):
            groups: dict[Protocol, list[str]] = {}
            for protocol in with_outcomes(self.data.protocols(corpus)):
                groups[protocol] = [protocol.id]
                if protocol.is_of_language:
                    groups.setdefault(protocol.mean_over_languages, []).append(protocol.id)
            for protocol in sorted(groups, key=lambda protocol: protocol.place):
                evaluations: dict[str, dict[str, None]] = {}
                for row in (row for id_ in groups[protocol] for row in self.data.of(corpus, id_)):
                    evaluations.setdefault(row.encoder, {})[row.evaluation] = None
                found[corpus, protocol.id] = EvaluatedTask(
                    corpus=corpus,
                    corpus_fingerprint=self.data.corpora[corpus].fingerprint,
                    protocol=protocol,
                    evaluations={name: tuple(of) for name, of in sorted(evaluations.items())},
                )
        return found

    def protocols(self, corpus: str) -> list[str]:
        """Return the protocols of a corpus with queries that can be listed, the headline first."""
        return [protocol for name, protocol in self.evaluated if name == corpus]

    def chosen(self, corpus: str, protocol: str) -> EvaluatedTask:
        """Return the task evaluated under a corpus and a protocol; an empty name means the first.

        Raises:
            RequestError: There is none, with the nearest name.
        """
        corpora = list(dict.fromkeys(name for name, _ in self.evaluated))
        if protocol and not corpus:
            corpus = next((name for name, known in self.evaluated if known == protocol), "")
        if not corpora:
            raise RequestError("the store has no outcomes of single queries; run `capim run` first")
        corpus = corpus or corpora[0]
        if corpus not in corpora:
            raise RequestError(unknown("corpus", corpus, corpora))
        protocol = protocol or self.protocols(corpus)[0]
        if (corpus, protocol) not in self.evaluated:
            raise RequestError(unknown("protocol", protocol, self.protocols(corpus)))
        return self.evaluated[corpus, protocol]


class State:
    """The store behind the pages; rows are kept in memory until the store changes."""

    def __init__(self, store: EmbeddingStore, services: Services, judgements: Path | None = None) -> None:
        self.judgements = judgements
        self.store = store
        self.services = services
        self.cache = TableCache(store)
        self._lock = Lock()
        self._pictures: dict[str, tuple[bytes, bytes]] = {}
        self._snapshot: StoreSnapshot | None = None

    def snapshot(self) -> StoreSnapshot:
        """Return the current version of the store; it is read again only after a change.

        Raises:
            RequestError: The store is gone, or another release of capim upgraded it.
        """
        with self._lock:
            version = version_of(self.store)
            if self._snapshot is None or self._snapshot.version != version:
                EmbeddingStore.open(self.store.uri)  # for its errors
                self._snapshot = StoreSnapshot(version=version, store=self.store)
            return self._snapshot

    def judgements_of(self, corpus: str, direction: str, query_id: str) -> set[str]:
        """Return the items that the user judged to be right for a query."""
        if self.judgements is None or not self.judgements.exists():
            return set()
        wanted = (corpus, direction, query_id)
        return {each.item_id for each in read_judgements(self.judgements) if each[:3] == wanted}

    def keep_picture(self, image: bytes, thumbnail: bytes) -> str:
        """Keep a picture that is searched for in memory, of several the newest few; return its name in an address."""
        name = hashlib.sha256(image).hexdigest()[:16]
        self._pictures.pop(name, None)  # one that is chosen again is the newest
        self._pictures[name] = image, thumbnail
        for oldest in list(self._pictures)[:-PICTURES]:
            self._pictures.pop(oldest, None)  # another request may have removed it
        return name

    def picture(self, name: str) -> tuple[bytes, bytes]:
        """Return a picture that is kept, and its thumbnail.

        Raises:
            RequestError: It is not kept any more.
        """
        if (found := self._pictures.get(name)) is None:
            raise RequestError("`capim serve` no longer has this picture in memory; choose its file again")
        return found

    def rows(self, statement: Statement) -> pa.Table:
        """Return the answer of the store to a statement."""
        return self.cache.select(statement.sql, statement.parameters, only=statement.only)


def state_of(request: Request) -> State:
    """Return the state of the application that a request is for."""
    state: State = request.app.state.capim
    return state


def names_in(parameters: QueryParams, name: str) -> tuple[str, ...]:
    """Return the names in a parameter of an address, each once, given with commas or several times."""
    return tuple(dict.fromkeys(part for text in parameters.getlist(name) for part in text.split(",") if part))


def whole_number(text: str) -> int:
    """Return a number of a URL, from 0; -1 for another text, or for more digits than a position can have."""
    return int(text) if text.isdecimal() and len(text) < 16 else -1


def faults_of_number(name: str, text: str) -> list[str]:
    """Return the errors in a number of a URL, an integer from 1; none where it is left out.

    Examples:
        >>> faults_of_number("page", "2"), faults_of_number("page", ""), faults_of_number("page", "0")
        ([], [], ['page=0: expected a whole number from 1'])
    """
    is_one = not text or 1 <= whole_number(text) < 2**31
    return [] if is_one else [f"{name}={text}: expected a whole number from 1"]


def address(request: Request, **changed: object) -> str:
    """Return the address of this view with some of its parameters changed; None or an empty text leaves one out."""
    given = {key: values for key, values in parse_qs(request.url.query).items() if key not in ("as", "page")}
    given |= {key: [] if value in (None, "") else [str(value)] for key, value in changed.items()}
    query = urlencode([(key, value) for key, values in given.items() for value in values if value], safe="/*,: ")
    return request.url.path + (f"?{query}" if query else "")


@dataclass(frozen=True, kw_only=True)
class View:
    """The content of one page.

    Attributes:
        template: File below ``templates/app/``.
        title: Heading and title of the window.
        values: What the template reads.
        statement: Gives the rows of the view, for CSV and SQL; None where no SELECT does.
        table: The rows, where a statement does not give them.
    """

    template: str
    title: str
    statement: Statement | None = None
    table: pa.Table | None = None
    values: Values = field(default_factory=dict)


def navigation(request: Request, view: View) -> list[tuple[str, str, str]]:
    """Return path, title and address of the pages that the store can fill; corpus, task and encoders stay on each."""
    state = state_of(request)
    if view.template == "problem.html":  # the store may be the problem
        return [(path, title, path) for path, title in PAGES.items()]
    snapshot = state.snapshot()
    try:
        evaluated = snapshot.evaluated
    except RequestError:  # nothing was evaluated
        evaluated = {}
    given = request.query_params
    corpus, protocol = given.get("corpus", ""), given.get("protocol", "")
    if (corpus, protocol) not in evaluated:
        protocol = next((of for name, of in evaluated if name == corpus), "")
    task = evaluated.get((corpus, protocol))
    names = [name for name in names_in(given, "encoders") if task and name in task.evaluations]
    kept = {"corpus": corpus, "protocol": protocol, "encoders": ",".join(names)} if task else {}
    found = {"/": kept, "/runs": kept}
    if evaluated:
        found["/queries"] = kept
    sealed = {(each.key.corpus, each.key.encoder) for each in state.store.sealed_sets()}
    if sealed:
        stored = [name for name in names if (corpus, name) in sealed]
        found["/search"] = kept | {"encoders": ",".join(stored)} if corpus in {name for name, _ in sealed} else {}
    return [(path, title, link(path, **found[path])) for path, title in PAGES.items() if path in found]


def respond(request: Request, view: View) -> Response:
    """Return the view in the requested form: ``as=csv``, ``as=sql``, ``as=html`` (one file), or a page."""
    form = request.query_params.get("as", "")
    if form == "sql" and view.statement is not None:
        return PlainTextResponse(view.statement.text + "\n")
    table = view.table
    if form == "csv" and table is None and view.statement is not None:
        table = state_of(request).rows(view.statement)
    if form == "csv" and table is not None:
        return PlainTextResponse(csv_bytes(table.to_pylist(), table.column_names), media_type="text/csv")
    if form not in ("", "html"):
        raise RequestError(f"as={form}: expected csv, sql or html")
    page = rendered(request, view, saved=form == "html")
    named = {"Content-Disposition": f'attachment; filename="capim-{digest16(str(request.url.query))}.html"'}
    return HTMLResponse(page, headers=named if form == "html" else None)


def rendered(request: Request, view: View, *, saved: bool = False) -> str:
    """Return the page; ``saved``: with its styles and pictures inside, and without scripts."""

    def picture(sha: str | None) -> str:
        """Return the address of the thumbnail with this hash; empty where there is none."""
        if not sha or not saved:
            return f"/picture/{sha}" if sha else ""
        found = state_of(request).store.thumbnails([sha]).get(sha)
        return "" if found is None else data_uri(found)

    template = html_templates().get_template(f"app/{view.template}")
    return template.render(
        view=view,
        saved=saved,
        picture=picture,
        style=Markup(style()) if saved else "",  # noqa: S704 - our own files
        pages=[] if saved else navigation(request, view),
        path=request.url.path,
        address=lambda **changed: address(request, **changed),
        store=state_of(request).store.uri,
        **view.values,
    )


def data_uri(picture: bytes) -> str:
    """Return a JPEG or PNG as a data URI."""
    return f"data:{media_type(picture)};base64,{base64.b64encode(picture).decode()}"


def media_type(picture: bytes) -> str:
    """Return the type of a stored thumbnail: JPEG or PNG."""
    return "image/png" if picture.startswith(b"\x89PNG") else "image/jpeg"


@cache
def style() -> str:
    """Return the style of a report, and what the pages add."""
    return (TEMPLATES / "page.css").read_text("utf-8") + (STATIC / "app.css").read_text("utf-8")
