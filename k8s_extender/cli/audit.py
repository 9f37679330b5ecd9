"""`precision-time k8s audit`: what the extender did, or would have done, from its metrics."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

import click
from prometheus_client.parser import text_string_to_metric_families

from predictor.cli.console import format_option, show_json
from predictor.cli.options import listed_options
from predictor.units import count, duration

from ..errors import ClusterError
from . import api_client, kubeconfig_option

# What is summed: the name of the metric without prefix and ending, and its words.
TOLD = {
    "placed": "pods given an order of GPU types, by the first",
    "unplaced": "pods left alone, by why",
    "kept_off": "filter calls that refused nodes, by reason",
    "deadlines": "deadlines filled",
    "reviews_failed": "errors of ours",
}


@click.command()
@listed_options("k8s-audit")
@kubeconfig_option
@format_option
def audit(kept: str, kubeconfig: str, form: str) -> None:
    """Sum up what was done, under `observe` what would have been.

    By what all replicas have kept, those that ended included. Where the mode was changed, those
    that began in the latest one count.
    """
    found = _sums(_kept(kubeconfig, kept))
    replicas = found.pop("replicas")
    if form == "json":
        show_json(found)
        return
    verb, since_s = "would have been done" if found["observing"] else "was done", found["since"]
    age = "" if since_s is None else f", the first began {duration(time.time() - since_s)} ago"
    click.echo(f"what {verb}, by {count(replicas)} replica{'s' * (replicas != 1)}{age}")
    for name, words in TOLD.items():
        click.echo(f"{sum(found[name].values()):>10,.0f}  {words}")
        for label, times in sorted(found[name].items(), key=lambda pair: (-pair[1], pair[0])):
            if label:
                click.echo(f"{'':>10}  {times:>10,.0f}  {label}")


def _kept(kubeconfig: str, place: str) -> list[str]:
    """The metrics page of each replica."""
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


def _sums(pages: list[str]) -> dict[str, Any]:
    """The sums by name and label, since when, whether observed, and of how many replicas."""
    from ..server.state import PREFIX, STARTED

    read = [
        [sample for family in text_string_to_metric_families(page) for sample in family.samples]
        for page in pages
    ]
    values = [{sample.name: sample.value for sample in samples} for samples in read]
    starts = [found.get(STARTED, 0.0) for found in values]
    modes = [bool(found.get(f"{PREFIX}_observing")) for found in values]
    observing = modes[starts.index(max(starts))]
    told = [place for place, mode in enumerate(modes) if mode is observing]
    sums: dict[str, dict[str, float]] = {name: defaultdict(float) for name in TOLD}
    for sample in (sample for place in told for sample in read[place]):
        name, labels = sample.name, sample.labels
        short = name.removeprefix(f"{PREFIX}_").removesuffix("_total")
        if short == "requests" and labels.get("outcome") == "failed":
            sums["reviews_failed"][labels.get("verb", "")] += sample.value
        elif short in sums and name.endswith("_total"):
            sums[short][next(iter(labels.values()), "")] += sample.value
    since_s = min(starts[place] for place in told) or None
    return {"since": since_s, "observing": observing, **sums, "replicas": len(told)}
