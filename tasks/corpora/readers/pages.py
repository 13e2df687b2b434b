"""The world of rendered pages, and the corpus of its reports that the tiny model was not trained on.

A report is of one town in one year, with four pages. Its first page lists what the others are about: sentences of
text, a table and a bar chart, in an order of its own. Town, year and topics come from short lists; a model that was
trained on other reports has seen every word, but no held-out pair of town and year. No files are read: a page is
rendered from its key when it is read, with the same bytes every time. Its words are in ``pages.toml``.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from PIL import Image, ImageDraw, ImageFont
from pydantic import Field

from capim.store.schema import JUDGED
from capim.store.types import Corpus
from capim.tasks.corpora import CORPORA
from capim.tasks.corpora.build import CaptionRow, ImageRow, RelevanceRow, build_corpus
from capim.tasks.corpora.images.source import RenderedImages
from capim.tasks.protocols import MAIN_OF_JUDGED

_WORDS: Mapping[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
TOWNS = (
    *("Arden", "Belmar", "Corvin", "Dunmor", "Elster", "Farrow", "Gilda", "Hollin", "Isola", "Kelda"),
    *("Lumen", "Marlow", "Norden", "Orlin", "Pelham", "Quarby", "Rovan", "Selby", "Tarnow", "Ulmen"),
)
YEARS = tuple(range(1990, 2020))
LANGUAGES = ("en", "de")
KINDS = ("text", "table", "chart")
N_PAGES = 1 + len(KINDS)
SHOWN = {"text": 3, "table": 5, "chart": 5}  # topics on a page
ASKED = 2  # of these, topics that the first page lists and questions are about
HELD_OUT_REPORTS = 40

_SPLIT_SEED = 20_261  # draws the held-out reports: with another seed, the committed checkpoint was trained on some
ROWS = 8  # lines on a page
_COLUMNS = 21  # characters in a line
_ACROSS, _DOWN = 6, 21  # pixels of a character and of a line
WIDTH, HEIGHT = _COLUMNS * _ACROSS, ROWS * _DOWN
_ENLARGED = 2
_font = cache(ImageFont.load_default_imagefont)
_BARS = 9 * _ACROSS  # where the bars of a chart begin; a pixel for every 2 of their values


def read_pages(*, n_reports: Annotated[int, Field(ge=1, le=HELD_OUT_REPORTS)] = 30, seed: int = 0) -> Corpus:
    """Return reports of four pages, half of them English and half German, and six questions to each in both languages.

    The page with the answer has grade 2; the first page, which names the topic, grade 1; the report's other pages were
    judged not relevant. The types of a query are the kind of page that answers it, and ``translated`` if the report is
    in the other language. Both wordings of a question are one query group.
    """
    documents, queries, judgements = [], [], []
    drawn = random.Random(seed).sample(reports()[:HELD_OUT_REPORTS], n_reports)
    for count, (town, year) in enumerate(drawn):
        report, name = RenderedReport(town, year, LANGUAGES[count % 2], seed), f"{town}-{year}"
        page_ids = {page: f"{name}-p{page}" for page in range(1, N_PAGES + 1)}
        for page, page_id in page_ids.items():
            text = "\n".join(lines_of(report, page))
            documents.append(ImageRow(page_id, f"{report.key}-{page}.png", text=text, document=name, page=page))
        for number, question in enumerate(questions_to(report)):
            for asked in question:
                query = query_id(name, number, asked)
                types = [asked.kind, *(["translated"] if asked.language != report.language else [])]
                queries.append(
                    CaptionRow(
                        *(query, None, asked.text),
                        language=asked.language,
                        query_group=f"{name}-q{number}",
                        query_types=types,
                    )
                )
                for page, page_id in page_ids.items():
                    grade = 2 if page == asked.page else int(page == 1)
                    judgements.append(RelevanceRow(JUDGED, "t2i", query, page_id, grade))
    return build_corpus(
        "pages",
        documents,
        queries,
        source=RenderedImages(draw_page, seed),
        relevance=judgements,
        licence=CORPORA["pages"].licence,
        origin="tasks/corpora/readers/pages.py: rendered reports, held out from the training of the tiny model",
        main_metric=MAIN_OF_JUDGED,
    )


def query_id(document: str, number: int, question: Question) -> str:
    """Return the id of a question to a document, by its number, in its language."""
    return f"{document}-q{number}-{question.language}"


class RenderedReport(NamedTuple):
    """One document; ``serial`` draws its content."""

    town: str
    year: int
    language: str
    serial: int

    @property
    def key(self) -> str:
        """The report as one word, e.g. ``Arden-2014-en-3``; :func:`parse_page` reads it with the number of a page."""
        return "-".join(map(str, self))


class Content(NamedTuple):
    """The content of a report.

    Attributes:
        order: The kinds of pages 2 to 4.
        topics: Of each kind the numbers of its topics, from above.
        values: Of each kind the values of these topics: a year, what went in and out, a number.
        asked: Numbers of the topics with questions, by kind.
    """

    order: tuple[str, ...]
    topics: Mapping[str, list[int]]
    values: Mapping[str, list[tuple[int, ...]]]
    asked: Mapping[str, list[int]]


class Question(NamedTuple):
    """A question to a report, its kind and language, and the page (from 1) and the box with its answer.

    The box is (left, top, right, bottom), in shares of the page.
    """

    text: str
    kind: str
    language: str
    topic: int
    page: int
    box: tuple[float, float, float, float]


def content_of(report: RenderedReport) -> Content:
    """Return the content of a report, drawn from its key.

    Examples:
        >>> content_of(RenderedReport("Arden", 2014, "en", 0)).order
        ('text', 'chart', 'table')
    """
    rng = random.Random(report.key)
    topics = {kind: rng.sample(range(10), SHOWN[kind]) for kind in KINDS}
    values: dict[str, list[tuple[int, ...]]] = {
        "text": [(rng.randint(1100, 1899),) for _ in topics["text"]],
        "table": [(rng.randint(1, 99), rng.randint(1, 99)) for _ in topics["table"]],
        "chart": [(rng.randint(5, 100),) for _ in topics["chart"]],
    }
    asked = {kind: rng.sample(topics[kind], ASKED) for kind in KINDS}
    return Content(tuple(rng.sample(KINDS, len(KINDS))), topics, values, asked)


def questions_to(report: RenderedReport) -> Iterator[tuple[Question, ...]]:
    """Return the questions that a report answers, each in all languages; their wording is drawn from its key."""
    content, rng = content_of(report), random.Random(f"{report.key}?")
    for kind in KINDS:
        for topic in content.asked[kind]:
            way, wording, place = rng.randrange(2), rng.randrange(2), content.topics[kind].index(topic)
            first, lines = (1 + 2 * place, 2) if kind == "text" else (2 + place, 1)
            box = (0.0, first / ROWS, 1.0, (first + lines) / ROWS)
            page = 2 + content.order.index(kind)
            yield tuple(
                Question(question(report, language, kind, topic, wording, way), kind, language, topic, page, box)
                for language in LANGUAGES
            )


def question(report: RenderedReport, language: str, kind: str, topic: int, wording: int, way: int) -> str:
    """Return the words of a question to a report; topic, wording and the table's column (0: in, 1: out) by number.

    Examples:
        >>> question(RenderedReport("Arden", 2014, "en", 0), "de", "chart", 1, 0, 0)
        'wie viele Kühe gab es 2014 in Arden'
    """
    words = _WORDS[language]
    slots = {"topic": words[kind][topic], "to": words["ways"][way], "town": report.town, "year": report.year}
    text: str = words[f"ask-{kind}"][wording].format(**slots)
    return text


def topic_word(language: str, kind: str, topic: int) -> str:
    """Return the word of a topic, without an article.

    Examples:
        >>> topic_word("de", "text", 0)
        'Burg'
    """
    word: str = _WORDS[language][kind][topic].split()[-1]
    return word


@cache
def reports() -> tuple[tuple[str, int], ...]:
    """Return town and year of all reports, in a fixed order; the first 40 are held out from training."""
    every = list(product(TOWNS, YEARS))
    random.Random(_SPLIT_SEED).shuffle(every)
    return tuple(every)


def lines_of(report: RenderedReport, page: int) -> list[str]:
    """Return the text of a page (from 1), from above; columns are where they are printed.

    Examples:
        >>> for line in lines_of(RenderedReport("Arden", 2014, "en", 0), 4)[:3]:
        ...     print(line)
        Arden          2014
        Goods       in  out
        Honey       63   57
    """
    words, content = _WORDS[report.language], content_of(report)
    kind = content.order[page - 2] if page > 1 else "contents"
    lines = [f"{report.town:15}{report.year}"]
    if kind == "contents":
        listed = [(kind, topic) for kind in content.order for topic in content.asked[kind]]
        lines += [f"{_name(words, *each):.<17}{2 + content.order.index(each[0]):.>2}" for each in listed]
    if kind == "text":
        for topic, (value,) in zip(content.topics[kind], content.values[kind], strict=True):
            lines += [line.format(topic=_name(words, kind, topic), value=value) for line in words["sentence"]]
    if kind == "table":
        lines.append("{:9}{:>5}{:>5}".format(words["table-title"], *words["ways"]))
        lines += [
            "{:9}{:5}{:5}".format(_name(words, kind, topic), *values)
            for topic, values in zip(content.topics[kind], content.values[kind], strict=True)
        ]
    if kind == "chart":
        lines.append(f"{words['chart-title']:8}0   50  100")
        lines += [_name(words, kind, topic) for topic in content.topics[kind]]
    return [*lines, f"{f'- {page} -':^19}"]


def parse_page(key: str) -> tuple[RenderedReport, int]:
    """Return the report and the page (from 1) of a key such as ``Arden-2014-en-3-1``.

    Raises:
        ValueError: The key names no page of this world.
    """
    match key.split("-"):
        case [town, year, language, serial, page] if (
            town in TOWNS and language in LANGUAGES and year.isdigit() and serial.isdigit() and page in list("1234")
        ):
            return RenderedReport(town, int(year), language, int(serial)), int(page)
    raise ValueError(f"{key!r} names no page; expected town-year-language-serial-page, as in Arden-2014-en-3-1")


def draw_page(key: str, _rng: random.Random) -> Image.Image:
    """Return the page of a key, which always looks the same."""
    return render(*parse_page(key))


def render(report: RenderedReport, page: int) -> Image.Image:
    """Return the page (from 1) as an RGB image, 252 x 336."""
    content = content_of(report)
    image = Image.new("RGB", (WIDTH, HEIGHT), (255, 255, 252))
    draw = ImageDraw.Draw(image)
    hue = random.Random(report.key).choice([(60, 110, 180), (180, 90, 60), (70, 140, 80), (130, 90, 160)])
    draw.line((_ACROSS, _DOWN - 2, WIDTH - _ACROSS, _DOWN - 2), fill=hue)
    for row, line in enumerate(lines_of(report, page)):
        draw.text((_ACROSS, row * _DOWN + 5), line, fill=(20, 20, 25), font=_font())
    kind = content.order[page - 2] if page > 1 else "contents"
    if kind == "table":
        for row in range(2, 8):
            draw.line((_ACROSS, row * _DOWN, WIDTH - _ACROSS, row * _DOWN), fill=(190, 190, 190))
    if kind == "chart":
        for tick in range(0, 101, 25):
            x = _BARS + tick * 3 // 5
            draw.line((x, 2 * _DOWN - 3, x, 7 * _DOWN), fill=(210, 210, 210))
        for row, (value,) in enumerate(content.values[kind], start=2):
            draw.rectangle((_BARS, row * _DOWN + 4, _BARS + value * 3 // 5, row * _DOWN + 16), fill=hue)
    return image.resize((_ENLARGED * WIDTH, _ENLARGED * HEIGHT), Image.Resampling.NEAREST)


def _name(words: Mapping[str, Any], kind: str, topic: int) -> str:
    name: str = words[kind][topic]
    return name[0].upper() + name[1:]
