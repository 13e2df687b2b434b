"""One fixed report with every kind of block, for the golden texts. Values are invented."""

from __future__ import annotations

from dataclasses import replace

from capim.reports.elements import page
from capim.reports.elements.drawings import Marked, forest
from capim.reports.elements.page import Cell, Column, Hit, Section, Table

PIXEL = "data:image/jpeg;base64,/9j/AA=="

LEADERBOARD = Table(
    id="leaderboard-shapes",
    caption="shapes · t2i/all",
    columns=(
        Column(heading="Encoder"),
        Column(heading="Rank", numeric=True, explain="Range of ranks that the paired tests allow"),
        Column(heading="R@1", group="t2i/all", numeric=True),
        Column(heading="R@5", group="t2i/all", numeric=True),
    ),
    rows=(
        (
            Cell(text="tiny-clip"),
            Cell(text="1–2", sort="-1.002"),
            Cell(text="82.7", note="79.9–85.3", title="R@1 = 0.827", sort="0.827", mark="best"),
            Cell(text="94.4", note="93.4–95.4", sort="0.944"),
        ),
        (
            Cell(text="tiny-colpali"),
            Cell(text="1–2", sort="-1.002"),
            Cell(text="81.6", note="78.9–84.1", sort="0.816", state="equivalent"),
            Cell(text="–", mark="muted", title="not evaluated"),
        ),
    ),
    note="Bold: highest value.",
)

HEAT = Table(
    id="languages",
    caption="R@1 by language",
    columns=(Column(heading="Language"), Column(heading="tiny-clip", numeric=True)),
    rows=((Cell(text="German"), Cell(text="61.2")), (Cell(text="Thai"), Cell(text="3.1"))),
    folded="Two languages",
)

COLUMN = page.BoardColumn(
    corpus="shapes",
    heading="text → image",
    metric="R@1",
    explain="R@1: text to image (t2i/all)",
    key="shapes:t2i/all",
    measure="R@1",
)
FIRST = page.BoardCell(
    text="82.7", low="79.9", high="85.3", kind="best", verdict="highest", sort="0.827",
    strip=page.Strip(low="56", high="56", point="56"), link="#failures-shapes?missed=tiny-clip",
)  # fmt: skip
FAR = page.BoardCell(text="41.6", kind="worse", verdict="41.1 worse", sort="0.416", strip=page.Strip(far="−41.1"))
BOARD = page.Board(
    id="answer",
    says=(("Use ", False), ("tiny-clip", True)),
    sure=("R@1, text to image (shapes): 82.7, 41.1 points (38.0–44.2) ahead of the runner-up, tiny-colpali.",),
    suspects=("Suspect: tiny-clip has 82.7; published are 90.1",),
    cards=(page.TaskCard(corpus="shapes", about="English", names=("tiny-clip",), more=0, badge="clear", kind="clear",
                         why="82.7 % R@1"),),
    of="of 1 task",
    columns=(COLUMN,),
    facts=("dim",),
    rows=(
        page.BoardRow(encoder="tiny-clip", mean=FIRST, cells=(FIRST,), facts=(Cell(text="64", sort="64"),),
                      card="https://huggingface.co/tiny/clip"),
        page.BoardRow(encoder="tiny-colpali", mean=FAR, cells=(FAR,), facts=(Cell(text="–"),)),
    ),
    unranked=(("broken", "at chance"),),
    ticks=(("0", "−8"), ("56", "0")),
    margin=("49", "14"),
    legend="Strip: points behind the best",
    weighable=("shapes",),
    script={"names": ["tiny-clip", "tiny-colpali"], "margin": 1.0,
            "tasks": [{"corpus": "shapes", "title": "text to image", "weight": 1.0}]},
)  # fmt: skip

CHART = page.Chart(
    id="test-shapes",
    title="shapes, text to image",
    alt='R@1: tiny-clip 82.7 %, "fast" & right.',
    svg=forest(
        [
            Marked("tiny-clip", "best", 82.7, 79.9, 85.3, "82.7"),
            Marked("tiny-colpali", "open", 81.6, 81.6, 81.6, "81.6"),
        ],
        "R@1",
    ),
    note="Filled: the highest.",
)

CASE = page.Case(
    id="case-shapes-1",
    query="<script>alert(1)</script> | a *red* square",
    expected=(Hit(rank="", label="scene-1", thumbnail="sha1", score="", right=True),),
    answers=(
        page.Answer(
            encoder="tiny-clip",
            rank="rank 3",
            right=False,
            note="Ambiguous: the first is right too.",
            hits=(
                Hit(rank="1", label="scene-2", thumbnail="", score="0.391", right=False),
                Hit(rank="2", label="scene-1", thumbnail="sha1", score="0.390", right=True),
            ),
        ),
    ),
    tags={"corpus": ("shapes",), "kind": ("missed by all",), "missed": ("tiny-clip",)},
    labels=("missed by all",),
    summary="No encoder is right.",
    about="shapes · t2i/all · scene-1-0",
)

GALLERY = page.Gallery(
    id="failures-shapes",
    caption="shapes · t2i/all · 1 query",
    filters=(page.Filter(name="kind", label="Kind", options=("missed by all",)),),
    cases=(CASE,),
    totals=({"corpus": "shapes", "queries": 9, "missed": {"tiny-clip": 4}},),
    note="Scores are cosines.",
)

NOTICE = page.Evidence(
    title="1 result far from the published figure", lines=("tiny-clip: 82.7 here, 90.1 published",), mark="bad"
)

EVIDENCE = page.Evidence(lines=("shapes: +1.1 (−2.4 to 4.3, adjusted p 0.542).",))
PICKER = page.Picker(
    id="figures",
    caption="Every result",
    views=(("shapes", "text to image", LEADERBOARD), ("signs", "R@1", replace(LEADERBOARD, id="signs"))),
)

FIXED = page.Report(
    title="Image–caption retrieval",
    subtitle="tiny-clip and tiny-colpali on shapes",
    facts=(("Encoders", "2"), ("Newest result", "2026-11-20 12:00 UTC")),
    sections=(
        Section(id="sure", title="How sure is this?", blocks=(EVIDENCE, NOTICE), folded=True),
        Section(id="leaderboard", title="Leaderboard", lead="Percent of queries.", blocks=(PICKER, CHART, HEAT)),
        Section(id="failures", title="Failures", lead="", blocks=(GALLERY,)),
        Section(id="found", title="Found", lead="", blocks=(page.Evidence(lines=("Plain words.",)),)),
    ),
    thumbnails={"sha1": PIXEL},
    sources="0123456789abcdef",
    colophon="Made by capim for a test.",
    board=BOARD,
    exports={"csv": "encoder,value\n", "command": "capim choose --weights shapes=1", "python": "import capim\n"},
)
