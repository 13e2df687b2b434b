"""Stored rows -> pages. Reads only the store, so an old report can be made again without any model."""

from reports.build import build_report
from reports.elements.page import Report
from reports.render import render_html, render_markdown
from reports.write import write_report

__all__ = ["Report", "build_report", "render_html", "render_markdown", "write_report"]
