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

from ..errors import ClusterError, ConfigError
from ..server.metrics import PREFIX, STARTED
from . import api_client, kubeconfig_option

Sample = tuple[str, Mapping[str, str], float]
TIMEOUT_S = 10.0
KEPT = "precision-time/precision-time-audit"
# What is summed: the name of the metric without prefix and ending, and its words.
TOLD = {
    "placed": "pods given an order of GPU types, by the first",
    "unplaced": "pods left alone, by why",
    "kept_off": "filter calls that refused nodes, by reason",
    "deadlines": "deadlines filled",
    "reviews_failed": "errors of ours",
}


@click.command()
@click.argument("sources", nargs=-1, metavar="[URL|FILE]...")
@click.option(
    "--kept",
    default=KEPT,
    show_default=True,
    metavar="NAMESPACE/NAME",
    help="The ConfigMap that replicas keep their counts in.",
)
@kubeconfig_option
@format_option
def audit(sources: tuple[str, ...], kept: str, kubeconfig: str, form: str) -> None:
    r"""Sum up what was done, under `observe` what would have been.

    By what all replicas have kept, those that ended included; or by sources: the metrics page of
    each replica, or a file with one, whose counters begin at the start of the process. Where the
    mode was changed, those that began in the latest one count.

    \b
    precision-time k8s audit --kubeconfig ~/.kube/config
    precision-time k8s audit http://10.0.3.7:9844/metrics http://10.0.5.2:9844/metrics
    """
    pages = [_page(source) for source in sources] or _kept(kubeconfig, kept)
    sums, since_s, observing, number = _sums(pages)
    if form == "json":
        show_json({"since": since_s, "observing": observing, **sums})
        return
    verb = "would have been done" if observing else "was done"
    age = "" if since_s is None else f", longest for {duration(time.time() - since_s)}"
    click.echo(f"what {verb}, by {count(number)} replicas{age}")
    for name, words in TOLD.items():
        found = sums[name]
        click.echo(f"{sum(found.values()):>10,.0f}  {words}")
        for label, times in sorted(found.items(), key=lambda pair: (-pair[1], pair[0])):
            if label:
                click.echo(f"{'':>10}  {times:>10,.0f}  {label}")


def _kept(kubeconfig: str, place: str) -> list[str]:
    from kubernetes.client import CoreV1Api

    from ..watching import CALL_TIMEOUT_S, FAILURES, said

    namespace, _, name = place.partition("/")
    read = CoreV1Api(api_client(kubeconfig)).read_namespaced_config_map
    try:
        found = read(name, namespace, _request_timeout=CALL_TIMEOUT_S).data
    except FAILURES as error:
        raise ClusterError(f"the ConfigMap {place} cannot be read: {said(error)}") from None
    if not found:
        raise ClusterError(f"nothing was kept in the ConfigMap {place} yet")
    return list(found.values())


def _sums(
    pages: list[str],
) -> tuple[Mapping[str, Mapping[str, float]], float | None, bool, int]:
    """The sums by name and label, since when, whether observed, and of how many pages."""
    read = [list(_samples(page)) for page in pages]
    starts = [_first(samples, STARTED) for samples in read]
    modes = [bool(_first(samples, f"{PREFIX}_observing")) for samples in read]
    observing = modes[starts.index(max(starts))]
    told = [place for place, mode in enumerate(modes) if mode is observing]
    sums: dict[str, dict[str, float]] = {name: defaultdict(float) for name in TOLD}
    for name, labels, value in (sample for place in told for sample in read[place]):
        short = name.removeprefix(f"{PREFIX}_").removesuffix("_total")
        if short == "requests" and labels.get("outcome") == "failed":
            sums["reviews_failed"][labels.get("verb", "")] += value
        elif short in sums and name.endswith("_total"):
            sums[short][next(iter(labels.values()), "")] += value
    return sums, min(starts[place] for place in told) or None, observing, len(told)


def _first(samples: list[Sample], wanted: str) -> float:
    return next((value for name, _, value in samples if name == wanted), 0.0)


def _samples(page: str) -> Iterator[Sample]:
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
