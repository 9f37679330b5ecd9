"""`precision-time k8s eta`: when running and waiting GPU jobs are expected to end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from predictor.cli.console import format_option, show_json
from predictor.cli.options import predictor
from predictor.units import duration, span

from . import api_client, kubeconfig_option

if TYPE_CHECKING:
    from ..history.runs import RunObjects
    from ..rank import SiteEstimates

LOG_LINES = 2000
LOW, HIGH = 0.05, 0.95


@click.command()
@click.option("--namespace", "-n", default="", help="Of this namespace  [default: all]")
@click.option("--logs", is_flag=True, help="Read progress from logs: needs the verb get, pods/log.")
@kubeconfig_option
@format_option
def eta(namespace: str, *, logs: bool, kubeconfig: str, form: str) -> None:
    """Tell when GPU jobs are expected to end, by similar runs, physics and what they print.

    Nine of ten such jobs end within the range. Needs the verb list on nodes, pods and Jobs.
    """
    from predictor.site.calibration.site_state import read_state

    from ..config import Config
    from ..history.runs import listed_runs
    from ..nodes import listed_nodes
    from ..rank import SiteEstimates
    from ..watching import PAGE

    client, site = api_client(kubeconfig), SiteEstimates(read_state().memory, predictor())
    table, _ = listed_runs(client, Config(), listed_nodes(client, Config()), PAGE)
    groups = (one for one in table.going() if namespace in ("", one.head.namespace))
    found = [_eta(group, site, client if logs else None) for group in groups]
    if form == "json":
        show_json(found)
        return
    for one in found:
        waits, time_s = one["running_s"] is None, duration(one["left_s"])
        state = "waits" if waits else f"runs {duration(one['running_s'])}"
        left = f"takes {time_s} once it runs" if waits else f"{time_s} left"
        left = "time not known" if one["left_s"] is None else left
        wide = "" if one["low_s"] is None else f" ({span(one['low_s'], one['high_s'])})"
        gpus = f"{one['gpus']} GPU" + "s" * (one["gpus"] != 1)
        words = f"{gpus}, {state}, {left}{wide}  {one['source']}"
        click.echo(f"{one['namespace']}/{one['name']}  {words}".rstrip())


def _eta(group: RunObjects, site: SiteEstimates, client: Any | None) -> dict[str, Any]:
    """A job's seconds left: None where nothing is known, ``source`` says what they rest on."""
    from ..live_queue import asked_by

    head, pods = group.head, [pod for pod in group.pods if pod.state is None]
    starts = [pod.start_s for pod in pods if pod.start_s is not None]
    running_s = max(0.0, time.time() - min(starts)) if starts else None
    gpus = max(head.gpus, sum(pod.gpus for pod in pods))
    types = {pod.gpu_type for pod in pods} - {None} or {head.wanted_gpu}
    told: dict[str, Any] = {"namespace": head.namespace, "name": head.name, "gpus": gpus}
    told |= {"running_s": running_s, "left_s": None, "low_s": None, "high_s": None, "source": ""}
    printed = (_printed_s(client, pod) for pod in pods if client is not None and starts)
    if (left_s := next((s for s in printed if s is not None), None)) is not None:
        return told | {"left_s": left_s, "source": "by its own progress"}
    found = site.of(asked_by((*group.jobs, *pods), gpus, types))
    if found is None:
        return told
    left_s, low_s, high_s = (found.left_s(level, running_s or 0.0) for level in (0.5, LOW, HIGH))
    known = {"left_s": left_s, "low_s": low_s, "high_s": high_s, "source": found.evidence[0]}
    return told | known


def _printed_s(client: Any, pod: Any) -> float | None:
    """What the end of a pod's log says is left; None where it says nothing or cannot be read."""
    from kubernetes.client import CoreV1Api

    from predictor.site.progress.reader import read_bytes

    from ..watching import FAILURES, OPTIONS, body_of

    try:
        read = CoreV1Api(client).read_namespaced_pod_log
        response = read(pod.pod_name, pod.namespace, tail_lines=LOG_LINES, **OPTIONS)
        return read_bytes(b"", body_of(response)).remaining_s
    except FAILURES:
        return None
