"""Tables of results: the leaderboard of every corpus, the ranking over corpora, all protocols, and word order.

A column is one figure of every encoder with its interval; what the tests say stands below the number.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from capim.reports import format as show
from capim.reports.elements import tables, words
from capim.reports.elements.page import Block, Cell, Section, Table, Text
from capim.reports.rows.report_data import R1, ReportData, without_paths
from capim.reports.rows.speed import bytes_per_image, image_rate
from capim.reports.rows.standing import about_corpora, at_chance, headline_tasks, intervals_of, planned_of
from capim.reports.sections.speed import SIZE, accuracy_over_cost, rate_cell
from capim.store.schema import Ranking
from capim.store.sets.matching import NOT_VERIFIED, POSITION
from capim.tasks.metrics.compositional import PAIR_ACCURACY, WINOGROUND, WINOGROUND_GROUP
from capim.tasks.metrics.retrieval import UNJUDGED
from capim.tasks.metrics.table import RSUM, headline_of, on_leaderboard, placed
from capim.tasks.protocols import DIRECTION_TITLES, MACRO, MAIN, MEANS, MICRO, PROTOCOLS, Protocol, by_language

PAIRS = PAIR_ACCURACY.name
MOST_PROTOCOLS = 12  # columns of a table about a user's metric
THESE, LIKE_THESE = "these corpora", "corpora like these"
MEAN = ", mean over languages"  # of the title of a task
Figure: TypeAlias = tuple[str, str, dict[str, Any]]
"""Protocol and metric, and what :func:`result_column <reports.elements.tables.result_column>` is told beside them."""


def section(data: ReportData) -> Section:
    """One leaderboard and one accuracy/speed chart per corpus with retrieval results, and a table per user's metric."""
    blocks: list[Block] = []
    retrieval = retrieval_corpora(data)
    for corpus in [*retrieval, *(name for name in data.corpus_names() if name not in retrieval)]:
        protocols = [p for p in headlines(data, corpus) if shown_metrics(data, corpus, p)]
        if protocols:
            blocks += [_leaderboard(data, corpus, protocols), *_judged_languages(data, corpus)]
            chart = accuracy_over_cost(data, corpus, protocols[0], shown_metrics(data, corpus, protocols[0])[0])
            blocks += [chart] if chart is not None and corpus in retrieval else []
            blocks += _not_verified(data, corpus)
        of_users = {r.metric for r in data.results if r.corpus == corpus and data.metric(r.metric).has_table}
        blocks += [*(_own_table(data, corpus, metric) for metric in sorted(of_users)), *_further(data, corpus)]
    return Section(
        id="leaderboard",
        title="Leaderboard",
        lead="Percentage of queries with a relevant item among the first k (for judged documents, nDCG with grades as "
        "gains), with confidence intervals. "
        "The dot below a number is the value with its interval, on one axis for each metric; the thin line is chance.",
        blocks=tuple(blocks),
    )


def _not_verified(data: ReportData, corpus: str) -> list[Text]:
    """Whose vectors or outcomes were taken in the order of the corpus, because no id said what they are of."""
    rows = [r for r in data.imports if r.corpus == corpus and r.matched.startswith(POSITION)]
    names = ", ".join(sorted({r.encoder for r in rows}))
    return [Text(text=f"{names}: {NOT_VERIFIED} (Provenance names the files).")] if rows else []


def headlines(data: ReportData, corpus: str) -> list[str]:
    """The protocols that a corpus is shown by: the means over its languages, or those of :func:`mains`."""
    return [protocol for protocol in MEANS if protocol in data.protocols(corpus)] or mains(data, corpus)


def mains(data: ReportData, corpus: str) -> list[str]:
    """The protocols of a corpus that name no language: the two of the literature, or the first two others."""
    protocols = data.protocols(corpus)
    others = [p for p in protocols if (of := Protocol.of(p)).is_retrieval and not of.language]
    return [protocol for protocol in MAIN if protocol in protocols] or others[:2]


def sliced(data: ReportData, corpus: str) -> list[str]:
    """The protocols of retrieval whose queries are analysed: the two of the literature, those of other languages."""
    spoken = by_language(map(Protocol.of, data.protocols(corpus)), data.corpora[corpus])
    return [of.id for of in sorted(spoken, key=lambda of: (of.direction == "i2t", of.place))] or headlines(data, corpus)


def shown_metrics(data: ReportData, corpus: str, protocol: str) -> list[str]:
    """The metrics of the leaderboard that a protocol has rows for."""
    of = Protocol.of(protocol)
    metrics = of.metrics or on_leaderboard(of.kind if of.kind in ("judged", "labels") else "retrieval")
    if of.kind == "judged" and not of.orientation:
        metrics = (data.corpora[corpus].main_metric or headline_of([of])[0].metric, *metrics)
    return [metric for metric in dict.fromkeys(metrics) if data.ranked(corpus, protocol, metric)]


def retrieval_corpora(data: ReportData) -> list[str]:
    """Corpora about retrieval: without those made of quadruples or pairs, whose galleries hold near copies."""
    contents = ((name, data.corpora[name]) for name in data.corpus_names())
    return [name for name, corpus in contents if not corpus.quadruples.num_rows and not corpus.pairs.num_rows]


def _leaderboard(data: ReportData, corpus: str, protocols: list[str]) -> Table:
    first = shown_metrics(data, corpus, protocols[0])[0]
    ranked, ranks = data.ranked(corpus, protocols[0], first), data.ranks(corpus, protocols[0], first)

    def identity(name: str) -> Cell:
        spec = data.specs[name]
        precision = f", {spec.precision}" if spec.has_weights else ""  # that forward pass was not capim's
        about = without_paths(f"{spec.checkpoint} at {spec.revision}, {spec.adapter}")
        return Cell(text=name, title=f"{about}, {spec.dim} components{precision}")

    def rank(name: str) -> Cell:
        weak = at_chance(data, corpus, protocols[0], first, name)
        return tables.absent(weak) if weak or name not in ranks else _rank_cell(ranks[name].best, ranks[name].worst)

    result = partial(tables.result_column, data, corpus)
    columns: list[tables.ColumnOf[str]] = [tables.texts("Encoder", identity)]
    if ranks:
        columns.append(tables.numbers("Rank", rank, explain="Range of ranks that the paired tests allow"))
    for protocol in protocols:
        title = data.titled(corpus, protocol)
        for metric in shown_metrics(data, corpus, protocol):
            explain = f"{metric}, percent: {title}"
            plain = metric == UNJUDGED.name  # fewer is not better, it says how much is known
            tested = metric == first
            columns.append(result(protocol, metric, group=title, explain=explain, plain=plain, tested=tested))
        columns += _tie_column(data, corpus, protocol, first)
    if data.ranked(corpus, *RSUM):
        explain = "Sum of R@1, R@5 and R@10 in both directions, points of 600"
        plain = RSUM not in planned_of(data, corpus)
        group = data.titled(corpus, RSUM.protocol) + ", exploratory" * plain
        columns.append(result(*RSUM, group=group, explain=explain, plain=plain))

    best = "lowest" if ranked[0].lower_is_better else "highest"
    tests = "below a number: against it, by a paired test. Rank: the ranks that the tests allow."
    marks = f"Bold: {best} value; {tests if ranks else 'not tested (run `capim compare`).'}"
    n_queries, units = ranked[0].n_queries, "queries" if Protocol.of(protocols[0]).kind == "judged" else "images"
    interval = f"Intervals: {intervals_of(ranked, units)}; fixed gallery. "
    return tables.pivot(
        f"leaderboard-{corpus}",
        corpus,
        dict.fromkeys([*(r.encoder for r in ranked), *data.encoder_names(corpus)]),
        *columns,
        *cost_columns(data),
        note=f"{show.count(n_queries, 'query', 'queries')}, {data.titled(corpus, protocols[0])}. {interval}{marks}",
    )


def _rank_cell(best: int, worst: int) -> Cell:
    return tables.value(-best - worst / 1000, show.ranks(best, worst), mark="muted")


def _tie_column(data: ReportData, corpus: str, protocol: str, metric: str) -> list[tables.ColumnOf[str]]:
    """The effect of ties: the share of tied queries, and the value with all lost and all won; none without ties."""
    if not any((r.tie_share or 0) > 0 for r in data.ranked(corpus, protocol, metric)):
        return []

    def cell(name: str) -> Cell:
        row = data.row(corpus, protocol, metric, name)
        if row is None or row.value is None:
            return tables.absent()
        span = words.ties(data.metric(metric), row)
        note = f"{metric} {span}" if span else ""
        return tables.value(row.tie_share, show.percent(row.tie_share), note=note, mark="muted", unit="percent")

    explain = f"Percentage of queries with a tie; below it {metric} with all ties lost and all won"
    return [tables.numbers("ties", cell, group=data.titled(corpus, protocol), explain=explain)]


def _figures(
    data: ReportData,
    corpus: str,
    id_: str,
    caption: str,
    figures: Sequence[Figure],
    *more: tables.ColumnOf[str],
    **options: Any,
) -> Table:
    """The encoders with any of some figures, best first by the earliest one, and a column for each figure."""
    ranked = [row.encoder for protocol, metric, _ in figures for row in data.ranked(corpus, protocol, metric)]
    columns = (tables.result_column(data, corpus, protocol, metric, **how) for protocol, metric, how in figures)
    names = tables.texts("Encoder", str)
    return tables.pivot(tables.anchor(id_), caption, dict.fromkeys(ranked), names, *columns, *more, **options)


def _judged_languages(data: ReportData, corpus: str) -> list[Table]:
    """The main metric of judged documents by language of the query, where there are several."""
    protocols = [of for p in data.protocols(corpus) if (of := Protocol.of(p)).kind == "judged" and not of.orientation]
    if len(protocols) < 2:
        return []
    metric = shown_metrics(data, corpus, protocols[0].id)[0]
    figures = [(of.id, metric, {"heading": of.language or "all"}) for of in protocols]
    title = f"{corpus} · {metric} by language of the query"
    return [_figures(data, corpus, f"judged-languages-{corpus}", title, figures)]


def _own_table(data: ReportData, corpus: str, metric: str) -> Table:
    """A user's metric under its protocols, headlines first; at most ``MOST_PROTOCOLS`` of them."""
    stored = [p for p in data.protocols(corpus) if data.ranked(corpus, p, metric)]
    protocols = sorted(stored, key=lambda p: ((*MAIN, p).index(p), p))
    facts, first = data.metric(metric), data.ranked(corpus, protocols[0], metric)[0]
    best = "lowest" if first.lower_is_better else "highest"
    tests = "an aggregate over queries has no test." if facts.aggregate else "not tested."
    if not facts.aggregate and data.ranks(corpus, protocols[0], metric):
        tests = "below a number: against it, by a paired test."

    figures = [(p, metric, {"heading": data.titled(corpus, p), "tested": True}) for p in protocols[:MOST_PROTOCOLS]]
    unit = "percent" if facts.unit == "percent" else "its own unit"
    note = f"A metric of your own, in {unit}. Bold: {best} value; {tests}"
    return _figures(data, corpus, f"own-{corpus}-{metric}", f"{corpus} · {words.described(facts)}", figures, note=note)


def _further(data: ReportData, corpus: str) -> list[Table]:
    """The metrics that stand in no other table, under all protocols of retrieval, folded."""
    figures = [
        (of.id, metric, {"group": of.titled, "plain": True})
        for of in (data.protocol(corpus, id_) for id_ in data.protocols(corpus))
        if of.is_retrieval and not of.language
        for metric in placed("further")
        if data.ranked(corpus, of.id, metric)
    ]
    title, folded = f"{corpus} · further metrics", f"Further metrics on {corpus}"
    return [_figures(data, corpus, f"further-{corpus}", title, figures, folded=folded)] if figures else []


def cost_columns(data: ReportData) -> list[tables.ColumnOf[str]]:
    """Speed and size over all corpora, where they were measured."""
    rates, sizes = image_rate(data), bytes_per_image(data)
    columns: list[tables.ColumnOf[str]] = []
    if rates:
        explain = "Forward pass: median over the batches of a corpus, geometric mean over corpora; not tested"
        columns.append(
            tables.numbers("images/s", lambda name: rate_cell(rates.get(name)), group="cost", explain=explain)
        )
    if sizes:
        columns.append(tables.measures("size/image", sizes.get, show.size, group="cost", explain=SIZE))
    return columns


def ranking_section(data: ReportData) -> Section:
    """One ranking of the encoders over several corpora, with the ranks that the data leave open; as it is stored."""
    return Section(
        id="ranking",
        title="Ranking over corpora",
        lead="Every corpus counts alike, by its headline. The ranks are those that the tests leave open to an encoder, "
        "for all encoders at once.",
        blocks=(_ranking(data),) if data.rankings else (),
    )


def _ranking(data: ReportData) -> Table:
    rows = {(r.encoder, r.estimand): r for r in data.rankings}
    means = {r.encoder: r for r in data.rankings if r.estimand == THESE}
    order = sorted(means, key=lambda name: (means[name].value is None, -(means[name].value or 0.0), name))
    first = means[order[0]]

    def cell(name: str, estimand: str, made: Callable[[Ranking], Cell]) -> Cell:
        return made(rows.get((name, estimand)) or means[name])

    columns: list[tables.ColumnOf[str]] = [tables.texts("Encoder", str)]
    tested = any(r.rank_low is not None for r in data.rankings if r.estimand == LIKE_THESE)
    for estimand in (THESE, LIKE_THESE) if tested else (THESE,):
        group, explain = f"on {estimand}", f"Ranks that it can hold, on {estimand}"
        ranks, figure = (partial(cell, estimand=estimand, made=made) for made in (_open_ranks, _macro_mean))
        columns.append(tables.numbers("Ranks", ranks, group=group, explain=explain))
        columns.append(tables.numbers("macro mean", figure, group=group, explain="Mean of the headlines, percent"))
    for corpus in json.loads(first.corpora):
        name, explain = corpus["corpus"], f"{_headline(data, corpus)}, percent: {corpus['headline']}"
        of_corpus = {encoder: json.loads(row.headlines).get(name) for encoder, row in means.items()}
        columns.append(tables.measures(name, of_corpus.get, show.percent, group="headlines", explain=explain))
    ranked = show.encoders(first.n_encoders)
    return tables.pivot(
        "ranking-corpora",
        f"{ranked} over {show.corpora(first.n_corpora)}",
        order,
        *columns,
        note=" ".join(_ranking_note(data, first)),
    )


def _macro_mean(row: Ranking) -> Cell:
    if row.value is None:
        return tables.absent(row.reason or "")
    return tables.value(
        row.value,
        show.percent(row.value),
        note=show.percent_range(row.ci_low, row.ci_high),
        title=row.reason or f"{row.interval_method} interval",
        state="can be first" if row.tied_with_best and row.rank != 1 else "",
        mark="best" if row.rank == 1 else "",
        unit="percent",
    )


def _open_ranks(row: Ranking) -> Cell:
    if row.rank_low is None or row.rank_high is None:
        return tables.absent(row.reason or "")
    return _rank_cell(row.rank_low, row.rank_high)


def _headline(data: ReportData, corpus: Mapping[str, str]) -> str:
    """What a headline is the mean of, in plain words; as it is stored where the report does not show it."""
    tasks = headline_tasks(data, corpus["corpus"])
    titles = [task.title.removesuffix(MEAN) for task in tasks]
    return f"{data.metric(tasks[0].metric).label}, {show.listing(titles)}" if tasks else corpus["headline"]


def _ranking_note(data: ReportData, first: Ranking) -> Iterator[str]:
    """What the headlines are, what the intervals are, and what is not ranked, as sentences."""
    corpora = json.loads(first.corpora)
    yield "Headlines: " + "; ".join(f"{corpus['corpus']}: {_headline(data, corpus)}" for corpus in corpora) + "."
    if len({corpus["headline"].split(" under ")[0] for corpus in corpora}) > 1:
        yield "They are different metrics: the macro mean averages percentages."
    yield f"On these corpora: intervals of macro means: {intervals_of([first])}."
    yield from about_corpora(corpora)
    like_these = next((r for r in data.rankings if r.estimand == LIKE_THESE), None)
    if like_these is not None:
        reason = like_these.reason if like_these.rank_low is None else None
        yield f"On corpora like these: {reason or 'Student’s t over the corpora'}."
    unranked = [r for r in data.rankings if r.value is None]
    if unranked:
        reasons = [f"{r.encoder} ({(r.reason or '').removeprefix('not ranked: ')})" for r in unranked]
        yield f"Not ranked: {'; '.join(reasons)}."
    ranked = {name for of in corpora for name in (of["corpus"], *of["copies"], *of.get("not_counted", ()))}
    others = [name for name in data.corpus_names() if name not in ranked]
    if others:
        yield f"Not in the ranking, because not all of its encoders have them: {show.listing(others)}."


def directions_section(data: ReportData) -> Section:
    """Both directions under every protocol, of the corpora with more protocols than the leaderboard shows."""
    blocks: list[Block] = []
    for corpus in data.corpus_names():
        every = [data.protocol(corpus, p) for p in data.protocols(corpus)]
        ids = [*PROTOCOLS]
        shown = [of for of in every if of.without_orientation.id in ids and data.ranked(corpus, of.id, R1)]
        shown.sort(key=lambda of: ids.index(of.without_orientation.id))
        if {of.id for of in shown} <= set(MAIN):
            continue
        for direction, named in DIRECTION_TITLES.items():
            same = [of for of in shown if of.direction == direction]
            figures: list[Figure] = [(of.id, R1, {"heading": of.titled, "explain": of.description}) for of in same]
            title = f"{corpus} · {named} · R@1"
            if same:
                blocks.append(_figures(data, corpus, f"directions-{corpus}-{direction}", title, figures))
    return Section(
        id="directions",
        title="Directions and protocols",
        lead="The same embeddings under every protocol. Text-to-image and image-to-text results are comparable only "
        "with first captions or means over positions, where each query has one right item.",
        blocks=tuple(blocks),
    )


def compositional_section(data: ReportData) -> Section:
    """Compositional reasoning: Winoground's three scores and the accuracy on hard negatives, beside chance."""
    blocks: list[Block] = []
    for corpus in data.corpus_names(lambda p: Protocol.of(p).is_all_quadruples):
        of_kind = [of for p in data.protocols(corpus) if (of := Protocol.of(p)).kind == "quadruples"]
        blocks += [_winoground(data, corpus, of) for of in of_kind if not of.name]
        if tags := [of for of in of_kind if of.name]:
            blocks.append(_by_tag(data, corpus, tags))
    blocks += [_pairs(data, corpus, ids) for corpus in data.corpus_names() if (ids := pair_protocols(data, corpus))]
    return Section(
        id="compositional",
        title="Compositional reasoning",
        lead="Does the encoder distinguish captions that use the same words differently? A bag of words cannot. "
        "Only a strictly higher score counts as correct; ties are misses and are reported.",
        blocks=tuple(blocks),
    )


def _chance_row(data: ReportData, corpus: str, figures: Sequence[Figure]) -> list[Cell]:
    chances = [data.ranked(corpus, protocol, metric)[0].chance for protocol, metric, _ in figures]
    return [Cell(text="chance", mark="muted"), *(tables.value(c, show.percent(c), mark="muted") for c in chances)]


def _winoground(data: ReportData, corpus: str, protocol: Protocol) -> Table:
    how = {"group": protocol.titled}
    figures = [(protocol.id, m.name, how) for m in WINOGROUND if data.ranked(corpus, protocol.id, m.name)]
    rows = {r.encoder: r for r in data.ranked(corpus, *figures[-1][:2])}
    examples = show.count(next(iter(rows.values())).n_queries, "example")
    explain = "Share of examples with a tied score, percent"
    ties = tables.measures("ties", lambda name: rows[str(name)].tie_share, show.percent, explain=explain)
    title = f"{corpus} · binding (winoground) · percent of {examples}"
    note = (
        "Text: for both images the right caption wins. Image: for both captions the right image wins. "
        "Group: both. Some published tables have text and image exchanged."
    )
    chance = [[*_chance_row(data, corpus, figures), tables.absent()]]
    return _figures(data, corpus, f"winoground-{corpus}", title, figures, ties, extra_rows=chance, note=note)


def _by_tag(data: ReportData, corpus: str, tags: list[Protocol]) -> Table:
    """The group score under the protocol of each tag."""
    figures = [(of.id, WINOGROUND_GROUP.name, {"heading": of.name.replace("-", " ")}) for of in tags]
    title = f"{corpus} · binding by tag (winoground/…) · group score in percent"
    note = "Encoders are compared by a test for every tag: see all comparisons under differences."
    return _figures(data, corpus, f"winoground-tags-{corpus}", title, figures, note=note)


def pair_protocols(data: ReportData, corpus: str) -> list[str]:
    """Protocols with hard negatives, by name, the means of each family last."""
    protocols = [Protocol.of(p) for p in data.protocols(corpus) if data.ranked(corpus, p, PAIRS)]
    return [of.id for of in sorted(protocols, key=lambda of: (of.family, of.name in (MACRO, MICRO), of.id))]


def _pairs(data: ReportData, corpus: str, protocols: list[str]) -> Table:
    heads = ({"heading": of.name.replace("_", " "), "group": of.family} for of in map(Protocol.of, protocols))
    figures = [(id_, PAIRS, of) for id_, of in zip(protocols, heads, strict=True)]
    title = f"{corpus} · hard negatives · percent of items whose right caption scores higher than the negatives"
    return _figures(data, corpus, f"pairs-{corpus}", title, figures, extra_rows=[_chance_row(data, corpus, figures)])
