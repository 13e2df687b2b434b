"""One fixed report with every kind of block, for the golden texts. Values are invented."""

from __future__ import annotations

from capim.reports.elements import page
from capim.reports.elements.page import Cell, Column, Hit, Section, Table

PIXEL = "data:image/jpeg;base64,/9j/AA=="

INTERVAL = page.Bar(low="40.00%", high="60.00%", point="50.00%", chance="1.00%")
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
            Cell(text="82.7", note="79.9–85.3", title="R@1 = 0.827", sort="0.827", mark="best", bar=INTERVAL),
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

BOARD = page.Board(
    id="board",
    table=Table(
        id="board-data",
        caption="Encoders and tasks",
        columns=(Column(heading="Encoder"), Column(heading="text to image", group="shapes", numeric=True)),
        rows=((Cell(text="tiny-clip"), Cell(text="82.7", sort="0.827", link="#failures-shapes?missed=tiny-clip")),),
    ),
    pairs=({"tiny-clip": {"tiny-colpali": ("equivalent", "equivalent", 1.1, -2.4, 4.3)}},),
)

POINT = {"unit": "percent", "text": "as shown"}
CHART = page.Chart(
    id="speed-shapes",
    title="Accuracy against speed",
    alt='Scatter plot: tiny-clip 82.7 % at 2,606 images/s, "fast" & right.',
    spec='{"mark":"point","title":"</script><b>"}',
    svg='<svg width="10" height="10"><circle fill="currentColor" r="3"/></svg>',
    data=Table(
        id="speed-shapes-data",
        caption="Accuracy and speed",
        columns=(Column(heading="Encoder"), Column(heading="R@1", numeric=True)),
        rows=((Cell(text="tiny-clip"), Cell(text="82.7", sort="0.827")),),
    ),
    points=(
        {**POINT, "encoder": "tiny-clip", "value": 82.7, "ci_low": 79.9, "ci_high": 85.3, "rate": 2606},
        {**POINT, "encoder": "tiny-colpali", "value": 81.6, "ci_low": 81.6, "ci_high": 81.6, "rate": 900},
    ),
    note="Dashed line: Pareto frontier.",
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
    tags={"kind": ("missed by all",), "missed": ("tiny-clip",)},
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

NOTICE = page.Notice(
    title="1 result far from the published figure", items=("tiny-clip: 82.7 here, 90.1 published",), mark="bad"
)

FIXED = page.Report(
    title="Image–caption retrieval",
    subtitle="tiny-clip and tiny-colpali on shapes",
    facts=(("Encoders", "2"), ("Newest result", "2026-11-20 12:00 UTC")),
    sections=(
        Section(
            id="answer",
            title="Answer",
            lead="",
            blocks=(page.Evidence(lines=("shapes: +1.1 (−2.4 to 4.3, adjusted p 0.542).",)), BOARD, NOTICE),
        ),
        Section(id="leaderboard", title="Leaderboard", lead="Percent of queries.", blocks=(LEADERBOARD, CHART, HEAT)),
        Section(id="failures", title="Failures", lead="", blocks=(GALLERY,)),
        Section(id="found", title="Found", lead="", blocks=(page.Text(text="Plain words."),)),
    ),
    thumbnails={"sha1": PIXEL},
    sources="0123456789abcdef",
    colophon="Made by capim for a test.",
    answer=("Text to image (shapes): tiny-clip or tiny-colpali, equivalent within 1 point.",),
    strip=(("Equivalent", "the true difference is smaller than 1 point."),),
)
