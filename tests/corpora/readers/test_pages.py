"""The world of pages: what is held out stays held out, and every question has its answer where its box says."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from capim.tasks.corpora.images.decode import decode_image
from capim.tasks.corpora.readers.pages import (
    HEIGHT,
    HELD_OUT_REPORTS,
    LANGUAGES,
    TOWNS,
    YEARS,
    Report,
    content_of,
    lines_of,
    parse_page,
    questions_to,
    read_pages,
    reports,
    topic_word,
)
from tests.tiny_models.curriculum import asked_pages


def test_held_out_reports_are_never_trained_on_and_all_their_words_are(monkeypatch: pytest.MonkeyPatch) -> None:
    held_out, others = set(reports()[:HELD_OUT_REPORTS]), set(reports()[HELD_OUT_REPORTS:])
    assert len(held_out | others) == len(TOWNS) * len(YEARS)
    assert not held_out & others
    assert {town for town, _ in others} == set(TOWNS)
    assert {year for _, year in others} == set(YEARS)
    drawn: list[tuple[str, int]] = []

    def draw(town: str, year: int, language: str, serial: int) -> Report:
        drawn.append((town, year))
        return Report(town, year, language, serial)

    monkeypatch.setattr("tests.tiny_models.curriculum.pages.Report", draw)
    batches = asked_pages(random.Random(0))
    for _ in range(3):
        texts, images, _ = next(batches)
        assert len(images) == 3 * len(texts) // 2
    assert drawn
    assert not set(drawn) & held_out


def test_the_answer_of_a_question_stands_in_its_box_and_the_first_page_names_its_topic() -> None:
    for number, language in enumerate(LANGUAGES * 3):
        report = Report("Kelda", 2001, language, number)
        content = content_of(report)
        for question in questions_to(report):
            assert [asked.language for asked in question] == list(LANGUAGES)
            printed = next(asked for asked in question if asked.language == language)
            lines = lines_of(report, printed.page)
            first, last = (round(edge * len(lines)) for edge in (printed.box[1], printed.box[3]))
            answer = "\n".join(lines[first:last])
            word = topic_word(language, printed.kind, printed.topic)
            assert word.casefold() in answer.casefold()
            values = content.values[printed.kind][content.topics[printed.kind].index(printed.topic)]
            assert printed.kind == "chart" or all(str(value) in answer for value in values)
            assert word.casefold() in "\n".join(lines_of(report, 1)).casefold()
            assert all(len(line) <= 20 for line in lines)


def test_the_corpus_has_graded_judgements_types_groups_and_pages_of_documents() -> None:
    corpus = read_pages(n_reports=4)
    assert corpus.fingerprint == read_pages(n_reports=4).fingerprint != read_pages(n_reports=4, seed=1).fingerprint
    assert (corpus.images.num_rows, corpus.captions.num_rows) == (16, 48)
    assert Counter(corpus.relevance["grade"].to_pylist()) == {0: 96, 1: 48, 2: 48}
    types = Counter(kind for row in corpus.captions.to_pylist() for kind in row["query_types"])
    assert types == {"text": 16, "table": 16, "chart": 16, "translated": 24}
    assert set(Counter(corpus.captions["query_group"].to_pylist()).values()) == {2}
    assert Counter(corpus.images["page"].to_pylist()) == {1: 4, 2: 4, 3: 4, 4: 4}
    assert len(set(corpus.images["document"].to_pylist())) == 4
    assert corpus.source is not None
    assert decode_image(corpus.source.read(corpus.images["key"][0].as_py())).size[1] == 2 * HEIGHT


@pytest.mark.parametrize("key", ["", "Arden-2014-en-0-5", "Nowhere-2014-en-0-1", "Arden-x-en-0-1", "Arden-2014-fr-0-1"])
def test_a_key_that_names_no_page_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="names no page"):
        parse_page(key)
