"""Reports and exports, made from the stored rows alone: no model is needed."""

if __name__ != "capim.reports":
    raise ImportError(
        f"{__name__!r} is imported as capim.reports; a package of your own with this name needs an __init__.py"
    )

from capim.reports.elements.page import Report
from capim.reports.render import render_html, render_markdown
from capim.reports.write import write_report

__all__ = ["Report", "render_html", "render_markdown", "write_report"]
