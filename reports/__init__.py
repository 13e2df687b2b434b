"""Reports and exports, made from the stored rows alone: no model is needed."""

from reports.elements.page import Report
from reports.render import render_html, render_markdown
from reports.write import write_report

__all__ = ["Report", "render_html", "render_markdown", "write_report"]
