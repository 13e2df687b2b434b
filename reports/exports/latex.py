r"""Results as LaTeX that fits: a table for one column of a paper, and tables for the width of a page.

Texts are wrapped (``tabularx``) and numbers are short, so that no line is wider than the text around it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

from capim.reports import format as show
from capim.reports.elements import words
from capim.reports.elements.page import Table
from capim.reports.rows.report_data import ReportData
from capim.reports.rows.standing import Task, headline_tasks, stand
from capim.store.errors import RequestError
from capim.store.schema import Result
from capim.tasks.metrics.table import on_leaderboard
from capim.tasks.protocols import Protocol

PACKAGES = r"\usepackage{booktabs,tabularx}"
_BEST, _EQUIVALENT, _UNDECIDED, _CHANCE = r"\textbf{%s}", r"\underline{%s}", r"$^\circ$", r"$^\ast$"
_ESCAPES = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--", "−": "$-$", "·": r"$\cdot$", "×": r"$\times$",
    "’": "'", "±": r"$\pm$", "η": r"$\eta$", "²": "$^2$", "\N{NO-BREAK SPACE}": "~", "<": "$<$", ">": "$>$",
    "|": r"$|$", "…": r"\dots{}", '"': "''", "ß": r"\ss{}", "ø": r"\o{}", "Ø": r"\O{}", "ł": r"\l{}", "æ": r"\ae{}",
    "å": r"\aa{}", "Å": r"\AA{}",
}  # fmt: skip
_ACCENTS = {"\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0308": '"', "\u030c": "v", "\u0327": "c"}
_LONGEST = 8  # letters of a word that is not broken
_COLUMN_LINES, _PAGE_LINES, _WRAPPED_AT = 40, 50, 12  # of a table; more are in the next one. Letters of a wrapped line
_SHORT = {"t2i": r"T$\rightarrow$I", "i2t": r"I$\rightarrow$T", "pairs": "pairs", "quadruples": "binding"}


def escape_latex(text: str) -> str:
    r"""Return text that LaTeX prints as it is; ``?`` for what its standard fonts lack.

    Examples:
        >>> escape_latex("hf_dual & 50 % – {x}")
        'hf\\_dual \\& 50 \\% -- \\{x\\}'
        >>> escape_latex("Čapek, Müller, 自転車")
        '\\v{C}apek, M\\"{u}ller, ???'
    """
    return "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isascii():
        return character if character.isprintable() else " "
    letter, *accents = list(unicodedata.normalize("NFD", character))
    if letter.isascii() and len(accents) == 1 and accents[0] in _ACCENTS:
        return f"\\{_ACCENTS[accents[0]]}{{{letter}}}"
    return "?"


def breakable(name: str) -> str:
    r"""Return a name that may be broken behind every sign; where nothing else helps, also in long words.

    Examples:
        >>> breakable("tiny-clip"), breakable("my_clip-vit")
        ('tiny-clip', 'my\\_\\allowbreak{}clip-vit')
        >>> breakable("multilingual")
        'mult\\penalty500{}ilin\\penalty500{}gual'
    """
    made = ""
    for part in re.findall(r"[^\W_]+|.", name):
        if len(part) > _LONGEST:
            pieces = (part[at : at + 4] for at in range(0, len(part), 4))
            made += r"\penalty500{}".join(map(escape_latex, pieces))
        else:
            made += escape_latex(part) + ("" if part.isalnum() or part in "- " else r"\allowbreak{}")
    return made.removesuffix(r"\allowbreak{}")


def tabular(columns: str, lines: Iterable[str], *, width: str = r"\linewidth") -> str:
    """Return a table with rules above and below; ``X`` in ``columns`` is a text that is wrapped."""
    wrapped = columns.replace("X", r">{\raggedright\arraybackslash}X")
    body = "\n".join(f"  {line}" for line in lines)
    return (
        f"\\begin{{tabularx}}{{{width}}}{{@{{}}{wrapped}@{{}}}}\n  \\toprule\n{body}\n  \\bottomrule\n\\end{{tabularx}}"
    )


def line(*cells: str) -> str:
    """Return one row."""
    return " & ".join(cells) + r" \\"


def column_table(data: ReportData) -> str:
    """Return the headline results of every corpus as floats that are as wide as a column; empty without any.

    A block for every corpus, with at most two results side by side, each with its interval; ``ties`` is the share of
    queries with a tie. Marked are the highest result, and by the tests against it: equivalent, undecided, and what no
    test tells from chance. More than a column holds goes on in a second table.

    Raises:
        RequestError: The intervals of the results, those of a user's metrics left aside, were made in several ways.
    """
    _check_intervals(row for row in data.results if not data.metric(row.metric).has_table)
    ties = any(row.tie_share for task in headline_tasks(data) for row in data.ranked(*task[:3]))
    tables: list[list[list[str]]] = []
    for corpus in data.corpus_names():
        tasks = headline_tasks(data, corpus)
        for block in (_block(data, corpus, tasks[at : at + 2], ties=ties) for at in range(0, len(tasks), 2)):
            n_lines = sum(_lines_of(line) for part in tables[-1] for line in part) if tables else 0
            if not tables or n_lines + sum(map(_lines_of, block)) > _COLUMN_LINES:
                tables.append([])
            tables[-1].append(block)
    return "\n".join(_float(data, blocks, at, ties=ties) for at, blocks in enumerate(tables))


def _check_intervals(rows: Iterable[Result]) -> None:
    ways: dict[str, str] = {}  # with a result of each
    for row in (row for row in rows if row.interval_method != "none"):
        is_drawn = row.interval_method == "percentile"
        method = "percentile" if is_drawn else "wilson"
        drawn = f", {row.replicates:,} replicates, seed {row.seed}" if is_drawn else ""
        figure = f"{row.metric} of {row.encoder}, {row.protocol} on {row.corpus}"
        ways.setdefault(f"{method} at {100 * row.level:g} %{drawn}", figure)
    if len(ways) > 1:
        listed = "; ".join(f"{way} ({figure})" for way, figure in ways.items())
        raise RequestError(
            f"one table would hold intervals computed in several ways: {listed}. Run `capim evaluate` with the "
            "--interval, --level, --replicates and --seed that all results should have, then the same `capim export`"
        )


def _float(data: ReportData, blocks: Sequence[Sequence[str]], at: int, *, ties: bool) -> str:
    lines = [each for block in blocks for each in (r"\midrule", *block)][1:]
    caption = "Headline results, continued." if at else _caption(data, ties=ties)
    parts = [
        r"\begin{table}[t]",
        r"\centering\footnotesize\setlength{\tabcolsep}{3pt}",
        tabular("Xrr" + "r" * ties, lines, width=r"\columnwidth"),
        f"\\caption{{{caption}}}",
        f"\\label{{tab:headline{f'-{at + 1}' if at else ''}}}",
        r"\end{table}",
        "",
    ]
    return "\n".join(parts)


def _lines_of(row: str) -> int:
    """Return about how many lines a row with wrapped texts takes."""
    texts = (re.sub(r"\\\w+(?:\{\})?|[{}\\]|500", "", cell) for cell in row.split(" & "))
    return max(1 + len(text.strip()) // _WRAPPED_AT for text in texts)


def _block(data: ReportData, corpus: str, tasks: Sequence[Task], *, ties: bool) -> list[str]:
    """Return the lines of one corpus: its name, its metrics, and one line for each encoder, best first."""
    blank = [""] * (2 - len(tasks))
    names = dict.fromkeys(row.encoder for task in tasks for row in data.ranked(*task[:3]))
    directions = [_SHORT.get(Protocol.of(task.protocol).direction, "") for task in tasks]
    metrics = [escape_latex(data.metric(task.metric).label) for task in tasks]
    lines = [
        line(rf"\textbf{{{breakable(corpus)}}}", *directions, *blank, *(["ties"] * ties)),
        line("", *metrics, *blank, *([r"\%"] * ties)) + r" \cmidrule(lr){2-" + f"{3 + ties}" + "}",
    ]
    for name in names:
        rows = [data.row(*task[:3], name) for task in tasks]
        share = max((row.tie_share or 0.0 for row in rows if row is not None), default=0.0)
        cells = [_figure(data, task, row) for task, row in zip(tasks, rows, strict=True)]
        lines.append(line(breakable(name), *cells, *blank, *([show.percent(share)] * ties)))
    return lines


def _figure(data: ReportData, task: Task, row: Result | None) -> str:
    """Return a value with its marks, and its interval in small print."""
    if row is None or row.value is None:
        return "--"
    interval = escape_latex(words.interval(data.metric(task.metric), row))
    return f"{marked(data, task, row)} {{\\tiny {interval}}}" if interval else marked(data, task, row)


def marked(data: ReportData, task: Task, row: Result) -> str:
    """Return a value: the highest bold, those that the tests do not tell from it and from chance with their marks."""
    value = escape_latex(words.value(data.metric(task.metric), row.value))
    kind, _ = stand(data, *task[:3], row.encoder)
    shown = {"best": _BEST, "equal": _EQUIVALENT}.get(kind, "%s") % value
    return f"{shown}\\makebox[.5em][l]{{{ {'open': _UNDECIDED, 'chance': _CHANCE}.get(kind, '') }}}"


def _caption(data: ReportData, *, ties: bool) -> str:
    levels = show.listing([f"{100 * each:g}\\,\\%" for each in sorted({row.level for row in data.results})])
    margins = {row.margin for row in data.comparisons if row.margin and row.family == "headline"}
    margin = f" within {100 * min(margins):g} point{'s' * (min(margins) != 0.01)}" if margins else ""
    tested = (
        rf" Underlined: equivalent to it{margin}. {_UNDECIDED}: the data cannot tell which of the two is better."
        if data.comparisons
        else " Not tested."
    )
    tied = r" ties: queries in which the relevant item is tied, in percent." if ties else ""
    return (
        f"Headline results in percent, with {levels} confidence intervals. "
        "T$\\rightarrow$I: text to image; I$\\rightarrow$T: image to text. "
        f"Bold: highest value of a corpus and column.{tested} {_CHANCE}: not shown above chance, or below it.{tied}"
    )


def page_table(title: str, columns: str, heads: Sequence[str], rows: Sequence[Sequence[str]], note: str = "") -> str:
    """Return a table that is as wide as the page's text, in pieces that fit a page; empty without rows."""
    pieces: list[list[str]] = []
    for row in (line(*cells) for cells in rows):
        if not pieces or sum(map(_lines_of, [*pieces[-1], row])) > _PAGE_LINES:
            pieces.append([])
        pieces[-1].append(row)
    text = []
    for at, piece in enumerate(pieces):
        text.append(f"\\subsection*{{\\raggedright {breakable(title)}{', continued' * bool(at)}}}")
        text += [f"{escape_latex(note)}\\par\\medskip"] if note and at == 0 else []
        table = tabular(columns, [line(*map(escape_latex, heads)), r"\midrule", *piece])
        text += [r"{\scriptsize\setlength{\tabcolsep}{3pt}\noindent%", table + r"\par}", ""]
    return "\n".join(text)


def printed(table: Table) -> str:
    """Return a table of the report for the width of a page."""
    numeric = [column.numeric for column in table.columns]
    texts = ([show.bracketed(cell.text, cell.note) for cell in row] for row in table.rows)
    rows = [
        [escape_latex(text) if number else breakable(text) for text, number in zip(row, numeric, strict=True)]
        for row in texts
    ]
    columns = "".join("r" if number else "X" for number in numeric)
    return page_table(table.caption, columns, [column.heading for column in table.columns], rows, table.note)


def figures_tables(data: ReportData) -> str:
    """Return the results of each corpus's headline protocols with intervals and columns for ties; then a user's.

    Where ties change a result, ``all lost`` and ``all won`` are its values with all of them lost and won.
    """
    made = (_figures(data, corpus, own=own) for corpus in data.corpus_names() for own in (False, True))
    return "\n".join(filter(None, made))


def _figures(data: ReportData, corpus: str, *, own: bool) -> str:
    tasks = headline_tasks(data, corpus)
    found: list[tuple[Task, Result]] = []
    for protocol in dict.fromkeys(task.protocol for task in tasks):
        of = data.protocol(corpus, protocol)
        metrics = [task.metric for task in tasks if task.protocol == protocol]
        metrics += of.metrics or on_leaderboard(of.kind) or on_leaderboard("retrieval")
        if own:
            metrics = [row.metric for row in data.of(corpus, protocol) if data.metric(row.metric).has_table]
        for metric in dict.fromkeys(metrics):
            task = Task(corpus, protocol, metric, of.title)
            found += [(task, row) for row in data.ranked(corpus, protocol, metric)]
    ties = any(row.tie_share for _, row in found) and not own
    rows = []
    for task, row in found:
        facts = data.metric(task.metric)
        ends = (row.ci_low, row.ci_high, row.value_ties_lost, row.value_ties_won)
        low, high, lost, won = (escape_latex(words.value(facts, end)) for end in ends)
        value = "--" if row.value is None else marked(data, task, row)
        cells = [breakable(task.protocol), breakable(facts.label), breakable(row.encoder), value, low, high]
        rows.append(cells + [show.percent(row.tie_share), lost, won] * ties)
    heads = ["protocol", "metric", "encoder", "value", "low", "high", *(["ties %", "all lost", "all won"] * ties)]
    title = f"Figures of {corpus}{', metrics of our own' * own}"
    return page_table(title, "XXX" + "r" * (len(heads) - 3), heads, rows)


def latex_files(data: ReportData, name: str) -> dict[str, bytes]:
    r"""Return one file: the table for a column, and all results for the width of a page."""
    main, more = column_table(data), figures_tables(data)
    if not main and not more:
        return {}
    about = f"% made by capim from rows with the digest {data.digest[:16]}; needs {PACKAGES}\n"
    split = "\n% --- all results, for a document or part of it with one column\n" * bool(more)
    return {name: f"{about}\n{main}{split}{more}".encode()}
