"""The technical terms of a report, each explained once: in the section in which a reader meets it first."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator

from capim.reports import format as show
from capim.reports.elements import words
from capim.reports.elements.page import Block, Cases, Chart, Evidence, Gallery, Notice, Section, Table, Text
from capim.reports.rows.report_data import R1, ReportData

TERMS = (  # as displayed, the pattern of its occurrences, its explanation
    ("Point", r"\bpoints?\b", "a percentage point"),
    ("Better, worse", r"\b(better|worse)\b", "shown by a paired test on the same images, adjusted for all pairs"),
    ("Equivalent", r"\bequivalent\b", "shown by a test: the true difference is smaller than {margin}"),
    ("Undecided", r"\bundecided\b", "no test shows either; the number is how much worse it could be"),
    ("Measured", r"\bmeasured\b", "the ratio of the medians over batches; in brackets, of their quartiles"),
    ("Chance", r"\bchance\b", "what guessing scores; at chance: not shown to be better than that"),
    ("Binding", r"\bbinding\b", "two images, two captions in the same words: right if all find their partners"),
    ("Hard negative", r"\bhard negatives?\b", "a caption changed in few words, so that it is wrong"),
    ("R@1", r"\bR@1\b", "the percentage of queries whose first result is right"),
    ("Interval", r"\binterval", "{level} % confidence for this gallery and images (or queries) like these"),
    ("Gallery", r"\bgallery\b", "the images or captions that are searched"),
    ("Slice", r"\bslices?\b", "a part of the queries"),
    ("Translator", r"\btranslators?\b", "the person or system that wrote the captions of a language"),
    ("Headline", r"\bheadlines?\b", "the figures that were declared beforehand to count"),
    ("Macro mean", r"\bmacro mean\b", "the mean of the headlines, every corpus counting alike"),
    ("Borda", r"\bBorda\b", "the percentage of other encoders that one is above, mean over corpora"),
    ("Replicate", r"\b(replicates|bootstrap)\b", "a figure of images drawn again at random; many give the interval"),
    ("Ambiguous miss", r"\bambiguous\b", "a miss whose first result may be right too"),
    ("Near miss", r"\bnear miss\b", "the right item is among the first ten, but not first"),
    ("Hub", r"\bhubs?\b", "an item that is among the first ten of far more queries than expected"),
    ("False negative", r"\bfalse negatives?\b", "a result that is right but not annotated as such"),
    ("Cosine", r"\bcosines?\b", "the similarity of two vectors, at most 1"),
    ("MaxSim", r"\bMaxSim\b", "the best cosine of every token of the text with any part of the image, summed"),
    ("R@k", r"\b(R@5|R@k|first k)\b", "the percentage of queries with a right result among the first k"),
    ("RSUM", r"\bRSUM\b", "R@1, R@5 and R@10 of both directions added up, 0 to 600"),
    ("Effective queries", r"\b(design effect|effective q)", "captions of one image are alike: they count as fewer"),
    ("Wilson", r"\bWilson\b", "an interval for shares that holds near 0 and 100 %"),
    ("Forward pass", r"\bforward pass\b", "the model alone, without reading and preparing the images"),
    ("Pareto frontier", r"\bPareto\b", "the encoders that no other one beats in both"),
    ("Sign-flip test", r"\bsign-flip\b", "how often differences with random signs, one per image, are as large"),
    ("Adjusted p", r"\b(adjusted p|correction)\b", "corrected, so that any false claim among all pairs is rare"),
    ("MRR", r"\bMRR\b", "the mean of 1 / rank of the first right result"),
    ("R-Precision", r"\bR-Precision\b", "of R right items, the share among the first R"),
    ("mAP@R", r"\bmAP@R\b", "of R right items, the precision at each one among the first R, averaged over R"),
    ("nDCG", r"\bnDCG@", "the gain of right results, discounted by rank, as a share of the best possible"),
    ("RBO", r"\bRBO\b", "rank-biased overlap of two ranked lists"),
    ("Modality gap", r"\bmodality gap\b", "the distance between the centres of image and text vectors"),
    ("Matryoshka", r"\bMatryoshka\b", "vectors whose first components can be used alone"),
    ("Calibration", r"\bcalibration\b", "how well scores, read as probabilities, agree with how often they are right"),
    ("p50, p95, p99", r"\bp95\b", "half, 95 % and 99 % of the batches take at most this long"),
    ("Sealed", r"\bsealed\b", "complete, checked and fixed for good"),
    ("Fingerprint", r"\bfingerprint\b", "a digest of the contents; another one means that something differs"),
)  # fmt: skip


def explained(
    data: ReportData, answer: str, sections: Iterable[Section]
) -> tuple[tuple[tuple[str, str], ...], tuple[Section, ...]]:
    """The terms of the answer, and the sections with the terms that are new in each."""
    interval = next((r for r in data.results if r["ci_low"] is not None), {"level": 0.95})
    tested = [r for r in data.comparisons if r["p_equivalent"] is not None]
    own = next((r for r in tested if r["metric"] == R1), next(iter(tested), None))
    margin = words.margin(data.metric(own["metric"]), own["margin"]) if own is not None else "the margin"
    known = set[str]()

    def new_in(texts: Iterable[str]) -> tuple[tuple[str, str], ...]:
        text = "\n".join(texts)
        found = {
            term: f"{about.format(level=show.percent(interval['level'], 0), margin=margin or 'the margin')}."
            for term, pattern, about in TERMS
            if term not in known and re.search(pattern, text, re.IGNORECASE)
        }
        known.update(found)
        return tuple(found.items())

    opening = new_in([answer])
    return opening, tuple(dataclasses.replace(section, terms=new_in(_texts(section))) for section in sections)


def _texts(section: Section) -> Iterator[str]:
    """What a section says in its own words; not the texts of queries, which are users' words."""
    yield from (section.title, section.lead)
    for block in section.blocks:
        yield from _words(block)


def _words(block: Block) -> Iterator[str]:
    if isinstance(block, Table):
        yield from (block.caption, block.note, block.folded)
        yield from (text for column in block.columns for text in (column.group, column.heading))
        yield from (row[0].text for row in block.rows)
        yield from (cell.state for row in block.rows for cell in row)
    elif isinstance(block, Chart):
        yield from (block.title, block.note, *_words(block.data))
    elif isinstance(block, Notice):
        yield from (block.title, *block.items)
    elif isinstance(block, Evidence):
        yield from block.lines
    elif isinstance(block, Text):
        yield block.text
    elif isinstance(block, Gallery | Cases):
        yield from (block.caption, block.note)
        yield from (option for each in getattr(block, "filters", ()) if each.name == "kind" for option in each.options)
