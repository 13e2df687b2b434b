"""Who finds the right item, how sure that is, and what it costs in time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from reports import format as show
from reports.elements.cells import axis_of, heading_groups, is_best, metric_title, result_cell, tie_cell
from reports.elements.page import Block, Cell, Column, Mark, Section, Table
from reports.rows.ranking import Standing, standings
from reports.rows.report_data import Evidence, Row
from reports.rows.speed import bytes_per_image, image_rate
from reports.sections.frontier import accuracy_over_speed, rate_cell

HEADLINES = ("t2i/all", "i2t/any")
METRICS = ("R@1", "R@5", "R@10")
BOTH = "t2i/all+i2t/any"  # the sum of both directions' R@k, 0..600 points


def headlines(evidence: Evidence, corpus: str) -> list[str]:
    """The protocols that lead a corpus: the literature's two, or what there is of retrieval by ``t2i``/``i2t``."""
    have = evidence.protocols(corpus)
    leading = [protocol for protocol in HEADLINES if protocol in have]
    return leading or [p for p in have if p.count("/") == 1 and p.startswith(("t2i/", "i2t/"))][:2]


def ranking_columns(evidence: Evidence, corpus: str, protocol: str) -> list[str]:
    """The metrics of the leaderboard that a protocol has rows for."""
    return [m for m in METRICS if evidence.ranked(corpus, protocol, m)]


def retrieval_corpora(evidence: Evidence) -> list[str]:
    """Corpora that are about retrieval: without those made of quadruples or pairs, whose galleries hold near copies."""
    return [
        name
        for name in evidence.corpus_names()
        if not evidence.corpora[name].quadruples.num_rows and not evidence.corpora[name].pairs.num_rows
    ]


def section(evidence: Evidence) -> Section | None:
    """One leaderboard and one accuracy/speed chart per corpus with retrieval results."""
    blocks: list[Block] = []
    first = retrieval_corpora(evidence)
    for corpus in [*first, *(name for name in evidence.corpus_names() if name not in first)]:
        protocols = [p for p in headlines(evidence, corpus) if ranking_columns(evidence, corpus, p)]
        if not protocols:
            continue
        blocks.append(_table(evidence, corpus, protocols))
        chart = accuracy_over_speed(evidence, corpus, protocols[0], ranking_columns(evidence, corpus, protocols[0])[0])
        if chart is not None and corpus in retrieval_corpora(evidence):
            blocks.append(chart)
    if not blocks:
        return None
    return Section(
        id="leaderboard",
        title="Leaderboard",
        lead="Percent of queries with a right item among the first k, with the interval of each figure. "
        "The band under a number is its interval on the column’s own axis; the tick on it is the figure, "
        "the dotted line chance.",
        blocks=tuple(blocks),
    )


def _table(evidence: Evidence, corpus: str, protocols: list[str]) -> Table:
    lead_metric = ranking_columns(evidence, corpus, protocols[0])[0]
    order = [r["encoder"] for r in evidence.ranked(corpus, protocols[0], lead_metric)]
    order += [name for name in evidence.encoder_names(corpus) if name not in order]
    standing = standings(evidence, corpus, protocols[0], lead_metric)

    parts: list[tuple[Column, Callable[[str], Cell]]] = [
        (Column(heading="Encoder"), lambda name: Cell(text=name, title=_identity(evidence, name)))
    ]
    if standing:
        column = Column(heading="Place", numeric=True, explain="The places that the paired tests leave open")
        parts.append((column, lambda name: _place(standing.get(name))))
    for protocol in protocols:
        for metric in ranking_columns(evidence, corpus, protocol):
            tested = standing if (protocol, metric) == (protocols[0], lead_metric) else {}
            parts.append(_metric_column(evidence, corpus, protocol, metric, tested))
        parts += _tie_column(evidence, corpus, protocol, lead_metric)
    if evidence.ranked(corpus, BOTH, "RSUM"):
        parts.append(_metric_column(evidence, corpus, BOTH, "RSUM", {}))
    parts += _cost_columns(evidence, corpus)

    columns = tuple(column for column, _ in parts)
    return Table(
        id=f"leaderboard-{corpus}",
        caption=f"{corpus} · {show.listing(tuple(protocols))}",
        columns=columns,
        rows=tuple(tuple(cell(name) for _, cell in parts) for name in order),
        groups=heading_groups(columns),
        note=_note(evidence, corpus, protocols, bool(standing)),
        sortable=True,
    )


def _metric_column(
    evidence: Evidence, corpus: str, protocol: str, metric: str, standing: Mapping[str, Standing]
) -> tuple[Column, Callable[[str], Cell]]:
    members = evidence.ranked(corpus, protocol, metric)
    axis = axis_of(members)
    unit = "points of 600" if metric == "RSUM" else "percent"
    explain = f"{metric} under {protocol}, {unit}"
    column = Column(
        heading=metric_title(metric), group="both" if protocol == BOTH else protocol, numeric=True, explain=explain
    )
    return column, lambda name: result_cell(
        evidence.figures.get((corpus, protocol, metric, name)), mark=_mark(name, members, standing), axis=axis
    )


def _tie_column(
    evidence: Evidence, corpus: str, protocol: str, metric: str
) -> list[tuple[Column, Callable[[str], Cell]]]:
    """How ties move the leading metric; no column where no query is tied."""
    if not any((r["tie_share"] or 0) > 0 for r in evidence.ranked(corpus, protocol, metric)):
        return []
    explain = f"Percent of queries with a tie; below it {metric} with all ties lost and all won"
    column = Column(heading="ties", group=protocol, numeric=True, explain=explain)
    return [(column, lambda name: tie_cell(evidence.figures.get((corpus, protocol, metric, name))))]


def _cost_columns(evidence: Evidence, corpus: str) -> list[tuple[Column, Callable[[str], Cell]]]:
    """Speed and size, where they are known."""
    rates, sizes = image_rate(evidence, corpus), bytes_per_image(evidence, corpus)
    parts: list[tuple[Column, Callable[[str], Cell]]] = []
    if rates:
        column = Column(heading="images/s", group="cost", numeric=True, explain="Forward pass, median of batches")
        parts.append((column, lambda name: rate_cell(rates.get(name))))
    if sizes:
        column = Column(heading="size/image", group="cost", numeric=True, explain="As stored")
        parts.append((column, lambda name: Cell(text=show.size(sizes.get(name)), sort=show.exact(sizes.get(name)))))
    return parts


def _identity(evidence: Evidence, name: str) -> str:
    spec = evidence.specs[name]
    return f"{spec.checkpoint} at {spec.revision}, {spec.adapter}, {spec.dim} components, {spec.precision}"


def _mark(name: str, members: Sequence[Row], standing: Mapping[str, Standing]) -> Mark:
    """Bold for the highest value; and, where tests tell, the sign for those tied with it."""
    if is_best(name, members):
        return "best"
    return "tied" if name in standing and standing[name].tied_with_best else ""


def _place(standing: Standing | None) -> Cell:
    if standing is None:
        return Cell(text=show.ABSENT, mark="muted")
    text = str(standing.first) if standing.first == standing.last else f"{standing.first}–{standing.last}"
    return Cell(text=text, sort=show.exact(-standing.first - standing.last / 1000), mark="muted")


def _note(evidence: Evidence, corpus: str, protocols: list[str], tested: bool) -> str:
    row = evidence.ranked(corpus, protocols[0], ranking_columns(evidence, corpus, protocols[0])[0])[0]
    interval = (
        f"Intervals: {row['interval_method']} cluster bootstrap over images, {show.percent(row['level'], 0)} %, "
        f"{show.number(row['replicates'], 0)} replicates, seed {row['seed']}, fixed gallery. "
        if row["replicates"]
        else ""
    )
    ties = (
        "Bold: highest value. ≈: the paired test does not tell it apart. Place: the places that the tests leave open."
        if tested
        else "Bold: highest value; whether it is truly ahead has not been tested (run `capim compare`)."
    )
    return f"{show.count(row['n_queries'], 'query', 'queries')} under {protocols[0]}. {interval}{ties}"
