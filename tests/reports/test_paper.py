"""The folder for a paper: every table fits, what it says is what is stored, and LaTeX compiles it without a word."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from capim.reports.exports import export_results, paper
from capim.reports.exports.latex import column_table, escape_latex
from capim.reports.exports.paper import methods
from capim.reports.rows.reading import read_report_data
from capim.store.errors import RequestError
from capim.tasks.corpora import CORPORA
from tests.reports.stand_in import StandIn, comparison, demo, result, store_of

COMPILED = pytest.mark.skipif(
    shutil.which("pdflatex") is None,
    reason="no LaTeX: apt-get install texlive-latex-base texlive-latex-recommended (.ci/run does)",
)
LONG = "a_company.internal-siglip2so400mpatch16naflex-inhouse-2026-10-with-a-long-suffix"


def compiled(folder: Path, name: str = "paper") -> str:
    """Compile a document, a paper with its references; what LaTeX complains of."""
    latex = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", name]
    for words in (latex, ["bibtex", name], latex, latex) if name == "paper" else (latex,):
        done = subprocess.run(words, cwd=folder, capture_output=True, check=False)
        assert done.returncode == 0, done.stdout.decode("latin-1")[-3000:]
    log = (folder / f"{name}.log").read_text("latin-1")
    return "\n".join(re.findall(r"^.*(?:Overfull|undefined|Missing character|Float too large).*$", log, re.MULTILINE))


def hostile() -> StandIn:
    """Twelve encoders with long names, ties, a metric of a user and a corpus whose name is one word without a break."""
    names = [LONG, *(f"model_{n}.of_a_company" for n in range(11))]
    store = store_of(names, corpuswithoutanybreakatallinitsverylongname=4)
    [shop] = store.contents
    for at, name in enumerate(names):
        for protocol in ("t2i/all", "i2t/any"):
            for k in (1, 5, 10):
                value = 0.9 - 0.05 * at + 0.005 * k
                result(store, name, shop, protocol, f"R@{k}", value, tie_share=0.01 * at)
            result(store, name, shop, protocol, "own:a_rather_long_name(k=3, mode='x')", 123456.789)
    for at, a in enumerate(names):
        for b in names[at + 1 :]:
            comparison(store, shop, "t2i/all", "R@1", a, b, 0.05, 0.2 if at == 0 else 0.001)
    return store


@pytest.fixture(scope="module")
def papers(large_store: StandIn, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the papers of three stores."""
    folder = tmp_path_factory.mktemp("papers")
    for name, store in {"demo": demo(), "large": large_store, "hostile": hostile()}.items():
        export_results(read_report_data(store), folder / name, kind="paper")
    return folder


@pytest.mark.slow  # starts pdflatex
@COMPILED
@pytest.mark.parametrize("store", ["demo", "large", "hostile"])
def test_the_paper_compiles_without_an_overfull_box_or_an_open_reference(store: str, papers: Path) -> None:
    assert compiled(papers / store) == ""
    assert (papers / store / "paper.pdf").stat().st_size > 30_000


@pytest.mark.slow  # starts pdflatex
@COMPILED
def test_a_tex_file_of_results_fits_a_page(tmp_path: Path, large_store: StandIn) -> None:
    for name, store in (("large", large_store), ("hostile", hostile())):
        export_results(read_report_data(store), tmp_path / f"{name}-tables.tex")
        document = r"\documentclass{article}\usepackage{booktabs,tabularx}\begin{document}\input{NAME}\end{document}"
        (tmp_path / f"{name}.tex").write_text(document.replace("NAME", f"{name}-tables"))
        assert compiled(tmp_path, name) == ""


def test_fonts_of_the_charts_are_embedded(papers: Path) -> None:
    for chart in (papers / "large" / name for name in ("forest.pdf", "languages-coco-sm.pdf")):
        fonts = set(re.findall(rb"/BaseFont ?/([\w+-]+)", chart.read_bytes()))
        assert fonts
        assert all(re.match(rb"[A-Z]{6}\+", font) for font in fonts), "a subset of its own"
        assert b"/FontFile" in chart.read_bytes()


def test_the_column_table_marks_the_best_and_what_the_tests_do_not_tell_from_it() -> None:
    names = {"first": 0.82, "same": 0.819, "open": 0.80, "worse": 0.6, "lucky": 0.003}
    store = store_of(names, shop=4)
    for name, value in names.items():
        result(store, name, "shop", "t2i/all", "R@1", value, tie_share=0.01, chance=0.002)
    of_first = {"same": (0.001, 0.9, 0.01, 0.005), "open": (0.02, 0.4, 0.7, 0.04), "worse": (0.22, 0.0001, 1.0, 0.05)}
    for name, (gap, p, equivalent, half) in of_first.items():
        comparison(store, "shop", "t2i/all", "R@1", "first", name, gap, p, p_equivalent=equivalent, half=half)
    table = column_table(read_report_data(store))
    values = dict(re.findall(r"^  (\w+) & (\S+) ", table, re.MULTILINE))
    assert values["first"].startswith(r"\textbf{82.0}")
    assert values["same"].startswith(r"\underline{81.9}")
    assert values["open"] == r"80.0\makebox[.5em][l]{$^\circ$}"
    assert values["worse"] == r"60.0\makebox[.5em][l]{}"
    assert values["lucky"].endswith(r"{$^\ast$}")
    assert re.search(r"^  first & .* & 1\.0 \\\\$", table, re.MULTILINE), "ties have a column, and no range"
    assert "equivalent to it within 1 point" in table


def test_the_methods_name_the_settings_that_were_used_and_cite_what_they_rest_on(demo_store: StandIn) -> None:
    data = read_report_data(demo_store)
    text = methods(data)
    cited = {key for keys in re.findall(r"\\cite\{([^}]+)\}", text) for key in keys.split(",")}
    assert "10,000 replicates, seed 0" in text
    assert "95\\,\\%" in text
    assert {"efron1993", "cameron2008", "good2005", "westfall1993"} <= cited
    assert "korn1998" not in cited, "no Wilson interval is among these figures"


def test_intervals_that_were_made_in_several_ways_are_refused_with_what_to_type(tmp_path: Path) -> None:
    store = store_of("a", shop=4)
    for protocol in ("t2i/all", "i2t/any"):
        result(store, "a", "shop", protocol, "R@1", 0.5)
    result(store, "a", "shop", "t2i/all", "own:metric", 0.5)
    changed, _, own = store.tables["results"]
    changed |= {"interval_method": "wilson", "replicates": 1000}
    own |= {"interval_method": "wilson"}
    said = (
        r"percentile at 95 %, 10,000 replicates, seed 0 \(R@1 of a, i2t/any on shop\); wilson at 95 % \(R@1 of a, t2i"
    )
    for to, kind in ((tmp_path / "paper", "paper"), (tmp_path / "tables.tex", None)):
        with pytest.raises(RequestError, match=said) as refused:
            export_results(read_report_data(store), to, kind=kind)
        assert "`capim evaluate`" in str(refused.value)
    data = read_report_data(store)
    text = methods(data)
    assert "10,000 replicates, seed 0" in text
    assert "1,000" not in text.replace("10,000", ""), "draws of no figure that is drawn"
    changed |= {"interval_method": "percentile", "replicates": 10_000}
    export_results(read_report_data(store), tmp_path / "paper", kind="paper")


def test_languages_that_were_only_searched_from_images_are_not_drawn(tmp_path: Path) -> None:
    store = store_of("a", signs=4)
    for protocol in ("i2t/de/human", "i2t/fr/human", "i2t/*/*"):
        result(store, "a", "signs", protocol, "R@1", 0.5)
    written = export_results(read_report_data(store), tmp_path, kind="paper")
    assert not [path for path in written if path.suffix == ".pdf"]


def test_a_part_of_a_corpus_is_cited_as_the_corpus() -> None:
    names = ("aro-relation", "coco-karpathy-sample-4-0", "arose")
    store = store_of("a", **dict.fromkeys(names, 4))
    for name in names:
        result(store, "a", name, "t2i/all", "R@1", 0.5)
    text = methods(read_report_data(store))
    assert text.count("yuksekgonul2023") == text.count("lin2014") == 1


def test_every_reference_of_a_corpus_or_a_method_has_an_entry() -> None:
    named = {key for keys in paper._OF_CORPORA.values() for key in keys}
    assert named <= {*re.findall(r"^@\w+\{(\w+),", paper._REFERENCES.read_text("utf-8"), re.MULTILINE)}
    assert paper._OF_CORPORA.keys() <= CORPORA.keys()


def test_latex_escapes_what_would_be_a_command() -> None:
    assert escape_latex(r"50 % of \input{x}") == r"50 \% of \textbackslash{}input\{x\}"
    assert escape_latex("$x$ & {y}") == r"\$x\$ \& \{y\}"
