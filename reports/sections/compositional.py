"""Compositional reasoning: Winoground's three scores and the accuracy on hard negatives, beside chance."""

from __future__ import annotations

from capim.reports import format as show
from capim.reports.elements.page import Block, Cell, Section, Table
from capim.reports.elements.tables import absent, measures, pivot, result_column, texts, value
from capim.reports.rows.names import named
from capim.reports.rows.report_data import ReportData

PAIRS = "pair_accuracy"
WINOGROUND = ("winoground_text", "winoground_image", "winoground_group")


def section(data: ReportData) -> Section:
    """Winoground, then pairs."""
    blocks: list[Block] = []
    for corpus in data.corpus_names(lambda p: p == "winoground"):
        blocks += [_winoground(data, corpus), *_by_tag(data, corpus)]
    blocks += [_pairs(data, corpus) for corpus in data.corpus_names() if pair_protocols(data, corpus)]
    return Section(
        id="compositional",
        title="Compositional reasoning",
        lead="Does the encoder distinguish captions that use the same words differently? A bag of words cannot. "
        "Only a strictly higher score counts as correct; ties are misses and are reported.",
        blocks=tuple(blocks),
    )


def _winoground(data: ReportData, corpus: str) -> Table:
    metrics = [m for m in WINOGROUND if data.ranked(corpus, "winoground", m)]
    rows = {r["encoder"]: r for r in data.ranked(corpus, "winoground", metrics[-1])}
    n_examples = next(iter(rows.values()))["n_queries"]
    chance = [data.ranked(corpus, "winoground", m)[0]["chance"] for m in metrics]

    return pivot(
        f"winoground-{corpus}",
        f"{corpus} · binding (winoground) · percent of {show.count(n_examples, 'example')}",
        rows,
        texts("Encoder", str),
        *(result_column(data, corpus, "winoground", m, group=named("winoground")) for m in metrics),
        measures(
            "ties",
            lambda name: rows[name]["tie_share"],
            show.percent,
            explain="Share of examples with a tied score, percent",
        ),
        extra_rows=[
            (
                Cell(text="chance", mark="muted"),
                *(value(c, show.percent(c), mark="muted") for c in chance),
                absent(),
            )
        ],
        note="Text: for both images the right caption wins. Image: for both captions the right image wins. "
        "Group: both. (In the tables printed by the V28 seed, text and image are exchanged.)",
        sortable=True,
    )


def _by_tag(data: ReportData, corpus: str) -> list[Table]:
    """The group score under the protocol of each tag; none where there are no such protocols."""
    protocols = [p for p in data.protocols(corpus) if p.startswith("winoground/")]
    if not protocols:
        return []
    encoders = dict.fromkeys(r["encoder"] for p in protocols for r in data.ranked(corpus, p, WINOGROUND[-1]))
    headings = {p: p.partition("/")[2].replace("-", " ") for p in protocols}
    table = pivot(
        f"winoground-tags-{corpus}",
        f"{corpus} · binding by tag (winoground/…) · group score in percent",
        encoders,
        texts("Encoder", str),
        *(result_column(data, corpus, p, WINOGROUND[-1], heading=heading) for p, heading in headings.items()),
        note="Encoders are compared by a test for every tag: see all comparisons under differences.",
        sortable=True,
    )
    return [table]


def pair_protocols(data: ReportData, corpus: str) -> list[str]:
    """Protocols with hard negatives, by name, the means of each family last."""
    protocols = [p for p in data.protocols(corpus) if data.ranked(corpus, p, PAIRS)]
    return sorted(protocols, key=lambda p: (p.split("/")[0], p.endswith(("/macro", "/micro")), p))


def _pairs(data: ReportData, corpus: str) -> Table:
    protocols = pair_protocols(data, corpus)
    chances = [data.ranked(corpus, p, PAIRS)[0]["chance"] for p in protocols]
    return pivot(
        f"pairs-{corpus}",
        f"{corpus} · hard negatives · percent of items in which the right caption scores higher than they do",
        [r["encoder"] for r in data.ranked(corpus, protocols[0], PAIRS)],
        texts("Encoder", str),
        *(
            result_column(data, corpus, p, PAIRS, heading=category.replace("_", " "), group=family)
            for p in protocols
            for family, category in [p.split("/", 1)]
        ),
        extra_rows=[
            (Cell(text="chance", mark="muted"), *(value(c, show.percent(c), mark="muted") for c in chances)),
        ],
        sortable=True,
    )
