"""`precision-time explain`: what a job is taken to be, and why."""

from __future__ import annotations

from typing import Any

import click

from .console import GAP, format_option, show_json, show_table
from .options import job_of, job_options, model_argument
from .predictors import predictor


@click.command()
@model_argument
@job_options()
@click.option("--version", "version", help="Stored predictor to use  [default: the one in use]")
@format_option
def explain(model: str, version: str | None, form: str, **fields: Any) -> None:
    """Show what a training job of MODEL is taken to be: what it states, and what is assumed.

    Takes the options of `predict`. Each line of its software has the option that fixed it or the
    source of the default; assumptions say how far they could move the total.
    """
    job = job_of(model, fields)
    found = predictor(version, job.source).predict(job)
    software = job.software
    if form == "json":
        settings = [
            {"field": s.name, "value": s.value, "stated": s.stated, "reason": s.reason}
            for s in software.settings
        ]
        told = {"framework": software.framework, "date": software.date, "software": settings}
        show_json(told | {"assumptions": [one.as_dict() for one in found.assumptions]})
        return
    click.echo(f"software: {software.framework} of {int(software.date)}\n")
    rows = [
        (s.name, str(s.value).lower(), "stated" if s.stated else "default", s.reason)
        for s in software.settings
    ]
    show_table(("field", "value", "is", "by"), rows, left=4)
    if found.assumptions:
        click.echo("\nassumed, because the job does not say it")
    for one in found.assumptions:
        click.echo(f"{GAP}{one}")
