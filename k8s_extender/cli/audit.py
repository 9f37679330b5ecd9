"""`precision-time k8s audit`: what the extender did, or would have done, from its metrics."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
import urllib3
from prometheus_client.parser import text_string_to_metric_families
from urllib3.exceptions import HTTPError

from predictor.cli.console import format_option, show_json
from predictor.units import count, duration

from ..errors import ConfigError
from ..server.metrics import PREFIX

TIMEOUT_S = 10.0
STARTED = "process_start_time_seconds"
# What is summed: the name of the metric without prefix and ending, and its words.
TOLD = {
    "placed": "pods given an order of GPU types, by the first",
    "unplaced": "pods left alone, by why",
    "kept_off": "filter calls that refused nodes, by reason",
    "deadlines": "deadlines filled",
    "reviews_failed": "errors of ours",
}


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="URL|FILE...")
@format_option
def audit(sources: tuple[str, ...], form: str) -> None:
    r"""Sum up what was done, under `observe` what would have been.

    Each source is the metrics page of a replica, or a file with one; counters begin at the start
    of the process, and those of all sources are added.

    \b
    precision-time k8s audit http://10.0.3.7:9844/metrics http://10.0.5.2:9844/metrics
    """
    pages = [_page(source) for source in sources]
    sums, since_s, observing = _sums(pages)
    if form == "json":
        show_json({"since": since_s, "observing": observing, **sums})
        return
    verb = "would have been done" if observing else "was done"
    age = "" if since_s is None else f", longest for {duration(time.time() - since_s)}"
    click.echo(f"what {verb}, by {count(len(pages))} replicas{age}")
    for name, words in TOLD.items():
        found = sums[name]
        click.echo(f"{sum(found.values()):>10,.0f}  {words}")
        for label, number in sorted(found.items(), key=lambda pair: (-pair[1], pair[0])):
            if label:
                click.echo(f"{'':>10}  {number:>10,.0f}  {label}")


def _sums(pages: list[str]) -> tuple[Mapping[str, Mapping[str, float]], float | None, bool]:
    sums: dict[str, dict[str, float]] = {name: defaultdict(float) for name in TOLD}
    starts: list[float] = []
    observing = False
    for page in pages:
        for name, labels, value in _samples(page):
            short = name.removeprefix(f"{PREFIX}_").removesuffix("_total")
            if name == STARTED:
                starts.append(value)
            elif short == "observing":
                observing |= bool(value)
            elif short == "requests" and labels.get("outcome") == "failed":
                sums["reviews_failed"][labels.get("verb", "")] += value
            elif short in sums and name.endswith("_total"):
                sums[short][next(iter(labels.values()), "")] += value
    return sums, min(starts, default=None), observing


def _samples(page: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value


def _page(source: str) -> str:
    """The text of a source; raises ConfigError naming it."""
    try:
        if not source.startswith(("http://", "https://")):
            page = Path(source).read_text("utf-8")
        else:
            page = urllib3.request("GET", source, timeout=TIMEOUT_S).data.decode()
        found = any(name.startswith(PREFIX) for name, _, _ in _samples(page))
    except (OSError, HTTPError, ValueError) as error:
        raise ConfigError(f"invalid source={source} ({error}); expected a metrics page") from None
    if not found:
        raise ConfigError(f"invalid source={source}; expected metrics that begin with {PREFIX}")
    return page
