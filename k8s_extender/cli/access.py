"""What the account may do in the cluster, asked of the API server itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..config import Config
from ..errors import ClusterError
from .promises import Promise, promise

TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Right:
    """A verb on a resource, and what it is for."""

    verb: str
    resource: str
    purpose: str
    group: str = ""


def rights(config: Config) -> tuple[Right, ...]:
    """What the account needs under a configuration."""
    needed = [Right(verb, "nodes", "to know the GPUs") for verb in ("list", "watch")]
    if config.annotate.pods:
        needed.append(Right("patch", "pods", "for annotate.pods"))
    if config.annotate.events:
        needed.append(Right("create", "events", "for annotate.events"))
    return tuple(needed)


def allowed(client: Any, config: Config) -> Iterator[Promise]:
    """A promise for each right, and one for a real list of nodes."""
    try:
        for right in rights(config):
            text = f"the account may {right.verb} {right.resource} ({right.purpose})"
            rule = f"grant it in a ClusterRole: verbs [{right.verb}], resources [{right.resource}]"
            yield promise(text, _may(client, right), rule)
        yield _listed(client, config)
    except ClusterError as error:
        yield Promise("the API server answers", str(error))


def _may(client: Any, right: Right) -> bool:
    from kubernetes import client as api

    asked = api.V1SelfSubjectAccessReview(
        spec=api.V1SelfSubjectAccessReviewSpec(
            resource_attributes=api.V1ResourceAttributes(
                verb=right.verb, resource=right.resource, group=right.group
            )
        )
    )
    call = api.AuthorizationV1Api(client).create_self_subject_access_review
    return bool(_called("SelfSubjectAccessReview", call, asked).status.allowed)


def _listed(client: Any, config: Config) -> Promise:
    from ..nodes import listed_nodes

    nodes = listed_nodes(client, config).values()
    known = [node for node in nodes if node.type is not None or node.slices]
    kinds = (kind for node in known for kind in (node.type, *node.slices.values()))
    unknown = {kind.product for kind in kinds if kind is not None and kind.gpu is None}
    text = f"{len(nodes)} nodes are listed, {len(known)} of them with GPUs"
    if not known:
        return Promise(text, "install GPU feature discovery or set hardware.node_label")
    if unknown:
        names = ", ".join(sorted(unknown))
        return Promise(text, f"say in hardware.products which GPUs these are: {names}")
    return Promise(f"{text} that we know")


def _called(name: str, call: Any, *given: Any, **more: Any) -> Any:
    """The answer of a call; raises ClusterError naming it."""
    from kubernetes.client.exceptions import ApiException
    from urllib3.exceptions import HTTPError

    try:
        return call(*given, **more, _request_timeout=TIMEOUT_S)
    except ApiException as error:
        raise ClusterError(f"{name}: {error.status} {error.reason}") from None
    except (HTTPError, OSError, ValueError) as error:
        raise ClusterError(f"{name}: {error}") from None
