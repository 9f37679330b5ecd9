"""The forms of a capacity report: page, Markdown, JSON, CSV, Prometheus; ``mail`` sends it."""

from __future__ import annotations

from . import mail
from .files import prometheus_text, render_json, write_csvs
from .mail import render_markdown, render_summary
from .page import render_html

__all__ = [
    "mail",
    "prometheus_text",
    "render_html",
    "render_json",
    "render_markdown",
    "render_summary",
    "write_csvs",
]
