r"""Leaderboards for a paper: booktabs tables that compile with ``\usepackage{booktabs}`` alone."""

from __future__ import annotations

from itertools import accumulate

from capim.reports.elements.page import Cell, Table
from capim.reports.rows.report_data import ReportData
from capim.reports.sections import compositional, leaderboard

_ESCAPES = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--", "−": "$-$", "·": r"$\cdot$",
    "’": "'", "±": r"$\pm$",
}  # fmt: skip


def latex_files(data: ReportData, name: str) -> dict[str, bytes]:
    """One file with the leaderboards, Winoground and pair tables."""
    blocks = (*leaderboard.section(data).blocks, *compositional.section(data).blocks)
    tables = [block for block in blocks if isinstance(block, Table)]
    if not tables:
        return {}
    text = f"% made by capim from rows with the digest {data.digest[:16]}; needs \\usepackage{{booktabs}}\n\n"
    return {name: (text + "\n".join(latex_table(table) for table in tables)).encode()}


def latex_table(table: Table) -> str:
    """One table: intervals small after the figure, the best in bold, heading groups with their rules."""
    lines = [
        r"\begin{table}",
        r"  \centering",
        f"  \\caption{{{escape_latex(table.caption)}}}",
        f"  \\label{{tab:{table.id}}}",
        f"  \\begin{{tabular}}{{{''.join('r' if column.numeric else 'l' for column in table.columns)}}}",
        r"    \toprule",
    ]
    if table.groups:
        heads = [f"\\multicolumn{{{span}}}{{c}}{{{escape_latex(text)}}}" for text, span in table.groups]
        ends = accumulate(span for _, span in table.groups)
        lined = [(end - span + 1, end) for end, (text, span) in zip(ends, table.groups, strict=True) if text]
        rules = [f"\\cmidrule(lr){{{start}-{end}}}" for start, end in lined]
        lines += [f"    {' & '.join(heads)} \\\\", f"    {' '.join(rules)}"]
    lines += [f"    {' & '.join(escape_latex(c.heading) for c in table.columns)} \\\\", r"    \midrule"]
    lines += [f"    {' & '.join(_cell(cell) for cell in row)} \\\\" for row in table.rows]
    lines += [r"    \bottomrule", r"  \end{tabular}", r"\end{table}", ""]
    return "\n".join(lines)


def _cell(cell: Cell) -> str:
    text = escape_latex(cell.text)
    text = f"\\textbf{{{text}}}" if cell.mark == "best" else text
    return f"{text} {{\\scriptsize ({escape_latex(cell.note)})}}" if cell.note else text


def escape_latex(text: str) -> str:
    r"""Text that LaTeX prints as it is.

    Examples:
        >>> escape_latex("hf_dual & 50 % – {x}")
        'hf\\_dual \\& 50 \\% -- \\{x\\}'
    """
    return "".join(_ESCAPES.get(c, c) for c in text)
