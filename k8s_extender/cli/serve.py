"""`precision-time k8s serve` and `check`: what kube-scheduler asks, and whether it can work."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from predictor.cli.console import CheckedPromise, show_promises
from predictor.cli.options import listed_options
from predictor.service.process import one_thread_for_algebra

from ..errors import ClusterError
from . import api_client, config_option, kubeconfig_option

if TYPE_CHECKING:
    from ..config import Config

PACKAGES = ("k8s_extender", "predictor", "uvicorn", "asyncio")  # whose words are logged


@click.command()
@config_option
@kubeconfig_option
@listed_options("k8s-serve")
def serve(config: Path | None, kubeconfig: str, audit: str) -> None:
    """Answer kube-scheduler and the API server, in the foreground.

    Configuration, site rules and certificates are read anew when their files change. SIGTERM
    ends, after other replicas had time to take over. The log goes to stderr.
    """
    one_thread_for_algebra()  # before all that brings numpy
    from predictor.service.logs import logging_to

    from ..config import read_config

    configuration = read_config(config)
    configuration.site_rules()
    import uvloop

    from ..bound import BoundPods
    from ..claims import Devices
    from ..nodes import NodeWatch
    from ..server.service import ExtenderServer
    from ..writeback import Writeback

    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    client = api_client(kubeconfig)
    nodes = NodeWatch(client, configuration)

    with logging_to(configuration.server.log_format, *PACKAGES):
        devices = Devices(client, configuration) if configuration.hardware.claims else None
        server = ExtenderServer(
            configuration,
            config,
            nodes,
            Writeback(client),
            bound=BoundPods(client, configuration.deadline.follow_kinds),
            devices=devices,
            audit=audit,
        )
        uvloop.run(server.run())


@click.command()
@config_option
@listed_options("k8s-check")
def check(config: Path | None, kubeconfig: str | None) -> None:
    """Say a line per promise: ok, or FAILED with what to do.

    Exit code 1 where a promise is not kept, 2 where an argument is invalid.
    """
    from ..config import read_config

    configuration = read_config(config)
    configuration.site_rules()
    promises = [CheckedPromise("the configuration can be used", True)]
    client = None if kubeconfig is None else api_client(kubeconfig)
    show_promises(promises if client is None else [*promises, *_allowed(client, configuration)])


def needed(config: Config) -> Iterator[tuple[str, str, str, str]]:
    """Group, resource, verb and purpose of what the account must be allowed."""
    from ..pods import GROUPS

    follows = config.deadline.follow and config.deadline.mode != "off"
    both, claims = "for deadline.follow and placement.balance", "for hardware.claims"
    parts = (
        (True, "to know the GPUs", "", "nodes", "list watch"),
        (config.annotate.pods, "for annotate.pods", "", "pods", "patch"),
        (config.annotate.events, "for annotate.events", "", "events", "create"),
        (config.watches_pods, both, "", "pods", "list watch"),
        (config.watches_pods, both, "batch", "jobs", "list watch"),
        (follows, "for deadline.follow", "", "pods", "patch"),
        (follows, "for deadline.follow", "batch", "jobs", "patch"),
        (config.hardware.claims, claims, "", "pods", "get"),
        (config.hardware.claims, claims, "resource.k8s.io", "resourceslices", "list watch"),
        (config.hardware.claims, claims, "resource.k8s.io", "deviceclasses", "list watch"),
    )
    kinds = [(GROUPS[kind], f"{kind.lower()}s") for kind in config.deadline.follow_kinds]
    operated = ((follows, "for deadline.follow", *kind, "list watch patch") for kind in kinds)
    for wanted, purpose, group, resource, verbs in (*parts, *operated):
        for verb in verbs.split() if wanted else ():
            yield group, resource, verb, purpose


def _allowed(client: Any, config: Config) -> Iterator[CheckedPromise]:
    """A promise for each right, and one for a real list of nodes."""
    from kubernetes import client as api

    from ..watching import CALL_TIMEOUT_S, FAILURES, said

    ask: Any = api.AuthorizationV1Api(client).create_self_subject_access_review
    try:
        for group, resource, verb, purpose in needed(config):
            attributes = api.V1ResourceAttributes(verb=verb, resource=resource, group=group)
            spec = api.V1SelfSubjectAccessReviewSpec(resource_attributes=attributes)
            review = api.V1SelfSubjectAccessReview(spec=spec)
            may = bool(ask(review, _request_timeout=CALL_TIMEOUT_S).status.allowed)
            text = f"the account may {verb} {resource} ({purpose})"
            rule = f"grant it in a ClusterRole: verbs [{verb}], resources [{resource}]"
            rule += f", apiGroups [{group}]" if group else ""
            yield CheckedPromise(text, may, "" if may else rule)
        yield _listed(client, config)
    except FAILURES as error:
        reason = f"SelfSubjectAccessReview: {said(error)}"
        yield CheckedPromise("the API server answers", False, reason)
    except ClusterError as error:
        yield CheckedPromise("the API server answers", False, str(error))


def _listed(client: Any, config: Config) -> CheckedPromise:
    from ..nodes import listed_nodes

    nodes = listed_nodes(client, config).values()
    known = [node for node in nodes if node.type is not None or node.slices]
    kinds = (kind for node in known for kind in (node.type, *node.slices.values()))
    unknown = {kind.product for kind in kinds if kind is not None and kind.gpu is None}
    text = f"{len(nodes)} nodes are listed, {len(known)} of them with GPUs"
    if not known:
        remedy = "install GPU feature discovery or set hardware.node_label"
        return CheckedPromise(text, False, remedy)
    if unknown:
        names = ", ".join(sorted(unknown))
        remedy = f"say in hardware.products which GPUs these are: {names}"
        return CheckedPromise(text, False, remedy)
    return CheckedPromise(f"{text} that we know", True)
