r"""A folder for a paper: a table for a column, charts, methods with the settings used, an appendix, citations.

``paper.tex`` puts all of it together and compiles as it is (``pdflatex``, ``bibtex``); a paper takes the parts that it
needs with ``\input``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import fmean

import vl_convert

from capim.reports import format as show
from capim.reports.elements.drawings import heat, inked, stacked
from capim.reports.elements.tables import only
from capim.reports.exports.latex import PACKAGES, breakable, column_table, figures_tables, printed
from capim.reports.rows import standing
from capim.reports.rows.report_data import ReportData
from capim.reports.rows.standing import headline_tasks
from capim.reports.sections import provenance, tests
from capim.store.current import grouped
from capim.store.schema import Comparison, Result
from capim.tasks.metrics.table import RSUM
from capim.tasks.protocols import Protocol, language_name

_REFERENCES = Path(__file__).with_name("references.bib")
_OF_CORPORA = {  # the name of a corpus -> its citations
    "coco-karpathy": ("lin2014", "karpathy2015"),
    "flickr30k-karpathy": ("young2014", "karpathy2015"),
    "winoground": ("thrush2022",),
    "sugarcrepe": ("hsieh2023",),
    "aro": ("yuksekgonul2023",),
    "crossmodal3600": ("thapliyal2022",),
    "multi30k": ("elliott2016",),
    "xflickrco": ("bugliarello2022",),
}
_MOST = 12  # encoders of a matrix


def paper_files(data: ReportData, _: str) -> dict[str, bytes]:
    """Return the files of the folder; none without headline results."""
    table = column_table(data)
    if not table:
        return {}
    forest = _forest(data)
    pictures, captions = ({"forest.pdf": forest}, {"forest.pdf": FOREST}) if forest else ({}, {})
    for corpus in data.corpus_names(lambda p: (of := Protocol.of(p)).is_of_language and of.direction == "t2i"):
        if len(standing.languages(data, corpus)) > 1:
            name, what = f"languages-{corpus}.pdf", f"R@1 of {breakable(corpus)}, text to image, by language"
            pictures[name], captions[name] = _languages(data, corpus), f"{what}, in percent; translators averaged."
    files = {
        "table.tex": table,
        "methods.tex": methods(data),
        "appendix.tex": _appendix(data),
        "references.bib": _REFERENCES.read_text("utf-8"),  # BibTeX prints only cited entries
        "paper.tex": _document(captions),
    }
    about = f"% made by capim from rows with the digest {data.digest[:16]}\n"
    return {**pictures, **{name: (about + content).encode() for name, content in files.items()}}


def _document(captions: Mapping[str, str]) -> str:
    """Return the paper with its pictures, each with its caption."""
    figures = "".join(
        "\\begin{figure}[t]\n\\centering\n"
        f"\\includegraphics[width=\\columnwidth,height=.8\\textheight,keepaspectratio]{{{name}}}\n"
        f"\\caption{{{caption}}}\n\\end{{figure}}\n"
        for name, caption in captions.items()
    )
    return rf"""\documentclass[10pt,twocolumn]{{article}}
\usepackage[utf8]{{inputenc}}
{PACKAGES}
\usepackage{{graphicx}}
\raggedbottom
\begin{{document}}
\section*{{Methods}}
\input{{methods}}
\input{{table}}
{figures}
\bibliographystyle{{plain}}
\bibliography{{references}}
\onecolumn
\section*{{Appendix}}
\input{{appendix}}
\end{{document}}
"""


FOREST = (
    "Headline results with their intervals, best first. Filled: the highest value, or equivalent to it; open: the data "
    "cannot tell which of the two is better; grey: worse. Encoders not shown above chance are left out."
)


# --- Methods, with the settings that are stored with the results.


def _cite(*keys: str) -> str:
    return f"~\\cite{{{','.join(keys)}}}" if keys else ""


def methods(data: ReportData) -> str:
    """Return the paragraph about the results."""
    headline = [row for task in headline_tasks(data) for row in data.ranked(*task[:3])]
    corpora = []
    for name, corpus in sorted(data.corpora.items()):
        size = f"{corpus.images.num_rows:,} images, {corpus.captions.num_rows:,} captions"
        of = next((keys for whole, keys in _OF_CORPORA.items() if f"{name}-".startswith(f"{whole}-")), ())  # or a part
        corpora.append(f"{breakable(name)} ({size}){_cite(*of)}")
    encoders = show.count(len(data.encoder_names()), "encoder")
    sentences = [
        f"We evaluate {encoders} on {show.listing(corpora)} with capim~{version('capim')}.",
        "Every image and caption is encoded once; the results are computed from the stored embeddings by exact search.",
        "Where items tie, a result is the mean over all orders of the tie.",
        *_of_intervals(headline),
        *_of_tests([row for row in data.comparisons if row.family == "headline"]),
    ]
    return " ".join(sentences) + "\n"


def _of_intervals(rows: Sequence[Result]) -> list[str]:
    found = {row.interval_method for row in rows}
    levels = {row.level for row in rows}
    sentences = []
    level = show.listing([f"{100 * each:g}\\,\\%" for each in sorted(levels)])
    if "wilson" in found:
        sentences.append(
            f"Intervals ({level}) of proportions and of means within known bounds are Wilson's{_cite('wilson1927')} "
            f"over the effective number of queries, with images as clusters{_cite('korn1998')}."
        )
    if "t" in found:
        sentences.append("Intervals of other means are Student's $t$ with linearised errors over images.")
    if used := [row for row in rows if row.interval_method == "percentile"]:
        replicates, seeds = _numbers({row.replicates or 0 for row in used}), _numbers({row.seed or 0 for row in used})
        drawn_by = f"{replicates} replicates, seed {seeds}"
        sentences.append(
            f"{'Other intervals' if sentences else 'Intervals'} ({level}) are percentile intervals of a "
            f"bootstrap{_cite('efron1993')} that draws images, with all their queries, with "
            f"replacement{_cite('cameron2008')} ({drawn_by})."
        )
    return [*sentences, "The gallery is taken as fixed."] if sentences else []


def _numbers(found: Iterable[int]) -> str:
    return show.listing([f"{each:,}" for each in sorted(found)])


def _of_tests(rows: Sequence[Comparison]) -> list[str]:
    if not rows:
        return ["Differences between encoders were not tested."]
    drawn = {row.permutations for row in rows if not row.p_exact}
    flips = f" ({_numbers(drawn)} random assignments, or all where they can be enumerated)" if drawn else " (exact)"
    margins = [f"{100 * m:g}" for m in sorted({r.margin for r in rows if r.margin and r.metric != RSUM.metric})]
    level = f"5\\,\\%{_cite('bretz2009')}"
    sentences = [
        f"Two encoders are compared on the same queries by a sign-flip test over images{_cite('good2005')}{flips}.",
        f"p-values are adjusted over all pairs of a result by step-down max-$T${_cite('westfall1993', 'romano2005')}.",
        f"The headline results of all corpora shown, fixed in advance, share a family-wise error of {level}.",
    ]
    if margins:
        plural = "point" if margins == ["1"] else "points"
        sentences.append(
            f"Two encoders count as equivalent if the simultaneous interval of their difference lies within "
            f"{show.listing(margins)} {plural} and a test by betting says "
            f"so{_cite('waudbysmith2024', 'holm1979')}; a difference that is not significant is not taken for equality."
        )
    return sentences


# --- Appendix.


_CORPORA = ("Corpus", "Images", "Captions", "Skipped", "Languages", "Licence", "Fingerprint")
_ENCODERS = ("Encoder", "Checkpoint", "Revision", "Vectors", "Dim", "Precision", "Stored as", "Fingerprint")


def _appendix(data: ReportData) -> str:
    corpora = printed(only(provenance.corpora(data), *_CORPORA))
    encoders = printed(only(provenance.encoders(data), *_ENCODERS))
    parts = [corpora, encoders, _pairs(data), figures_tables(data), _settings(data)]
    return "\n".join(filter(None, parts))


def _pairs(data: ReportData) -> str:
    rows = [row for row in data.comparisons if row.family == "headline"]
    shown = ("Pair", "task", "metric", "difference", "adjusted p", "the first is")
    tables = (
        tests.pairs(data, f"Pairs of encoders on {corpus}", of)
        for corpus, of in sorted(grouped(rows, lambda row: row.corpus).items())
    )
    return "\n".join(printed(only(table, *shown)) for table in tables)


def _settings(data: ReportData) -> str:
    runs = [run for run in data.runs if run.versions]
    libraries = json.loads(runs[-1].versions) if runs else {}
    lines = [
        f"Libraries: {', '.join(f'{name} {number}' for name, number in libraries.items())}." if libraries else "",
        *(f"Left out: {each}." for each in data.left_out),
        f"Digest of all rows behind these tables: {data.digest[:16]}.",
    ]
    text = "\n\n".join(breakable(each) for each in lines if each)
    return f"\\subsection*{{Settings}}\n{{\\sloppy\\raggedright {text}\\par}}\n"


# --- Drawings: those of the page.


def _pdf(svg: str) -> bytes:
    made: bytes = vl_convert.svg_to_pdf(inked(svg))
    return made


def _forest(data: ReportData) -> bytes:
    """Return one drawing below the other for every headline result with two contenders or more; empty without any."""
    drawn = [chart for task in headline_tasks(data) if (chart := tests.of_task(data, task)) is not None]
    return _pdf(stacked((chart.title, chart.svg) for chart in drawn)) if drawn else b""


def _languages(data: ReportData, corpus: str) -> bytes:
    """Return R@1 of text to image by language and encoder, both best first; translators averaged."""
    cells: dict[tuple[str, str], float] = {}
    for code in standing.languages(data, corpus):
        for name in data.encoder_names(corpus):
            if found := [row.value or 0.0 for row in standing.language_cells(data, corpus, name, code, "t2i")]:
                cells[language_name(code), name] = fmean(found)

    def best_first(at: int) -> list[str]:
        values = grouped(cells.items(), lambda cell: cell[0][at])
        return sorted(values, key=lambda name: -fmean(value for _, value in values[name]))

    return _pdf(heat(best_first(0), best_first(1)[:_MOST], cells))
