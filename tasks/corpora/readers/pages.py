"""Rendered document pages with questions and graded judgements, of reports that the tiny model was not trained on.

No files are read: a page is rendered from its key when it is read, with the same bytes every time.
"""

from __future__ import annotations

import random
from typing import Annotated

from pydantic import Field

from capim.store.schema import JUDGED
from capim.store.types import Corpus
from capim.tasks.corpora import CORPORA
from capim.tasks.corpora.build import CaptionRow, ImageRow, RelevanceRow, build_corpus
from capim.tasks.corpora.images.rendered import RenderedImages
from capim.tasks.corpora.pages.world import (
    HELD_OUT_REPORTS,
    LANGUAGES,
    N_PAGES,
    Question,
    Report,
    draw_page,
    lines_of,
    questions_to,
    reports,
)


def read_pages(*, n_reports: Annotated[int, Field(ge=1, le=HELD_OUT_REPORTS)] = 30, seed: int = 0) -> Corpus:
    """Reports of four pages, half of them English and half German, and six questions to each in both languages.

    The page with the answer has grade 2; the first page, which names the topic, grade 1; the report's other pages were
    judged not relevant. The types of a query are the kind of page that answers it, and ``translated`` if the report is
    in the other language. Both wordings of a question are one query group.
    """
    documents, queries, judgements = [], [], []
    drawn = random.Random(seed).sample(reports()[:HELD_OUT_REPORTS], n_reports)
    for count, (town, year) in enumerate(drawn):
        report, name = Report(town, year, LANGUAGES[count % 2], seed), f"{town}-{year}"
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
        origin="tasks/corpora/pages/world.py: rendered reports, held out from the training of the tiny model",
        main_metric="nDCG@10",
    )


def query_id(document: str, number: int, question: Question) -> str:
    """The id of a question to a document, by its number, in its language."""
    return f"{document}-q{number}-{question.language}"
