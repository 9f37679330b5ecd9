"""The entry of a kube-scheduler configuration that names us, and what it must say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field

from predictor.settings import Section, read_settings

from ..errors import ConfigError
from .promises import Promise, promise

OUR_NAME = "precision-time"
MAX_TIMEOUT_S = 5.0
_DURATION = re.compile(r"(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|ms|s|m|h)", re.ASCII)
_UNITS_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


class Strict(Section):
    """An object of the scheduler's configuration: unknown keys stop the scheduler."""

    model_config = ConfigDict(strict=True)


class TlsConfig(Strict):
    """How the scheduler verifies the extender, and shows who it is; data is base64 of PEM."""

    insecure: bool = False
    serverName: str = ""  # noqa: N815
    certFile: str = ""  # noqa: N815
    keyFile: str = ""  # noqa: N815
    caFile: str = ""  # noqa: N815
    certData: str = ""  # noqa: N815
    keyData: str = ""  # noqa: N815
    caData: str = ""  # noqa: N815

    @property
    def verifies(self) -> bool:
        """True where the server's certificate is compared with a CA."""
        return bool(self.caData or self.caFile) and not self.insecure


class ManagedResource(Strict):
    """A resource whose pods are sent to the extender."""

    name: str
    ignoredByScheduler: bool = False  # noqa: N815


class Extender(Strict):
    """One extender, with the keys of `kubescheduler.config.k8s.io/v1`."""

    urlPrefix: str  # noqa: N815
    filterVerb: str = ""  # noqa: N815
    preemptVerb: str = ""  # noqa: N815
    prioritizeVerb: str = ""  # noqa: N815
    bindVerb: str = ""  # noqa: N815
    weight: int = 0
    enableHTTPS: bool = False  # noqa: N815
    tlsConfig: TlsConfig | None = None  # noqa: N815
    httpTimeout: str | None = None  # noqa: N815
    nodeCacheCapable: bool = False  # noqa: N815
    managedResources: list[ManagedResource] = Field(default=[])  # noqa: N815
    ignorable: bool = False


class SchedulerConfig(Section):
    """A KubeSchedulerConfiguration: its extenders; all else is kube-scheduler's to check."""

    model_config = ConfigDict(extra="ignore")

    apiVersion: Literal["kubescheduler.config.k8s.io/v1"]  # noqa: N815
    kind: Literal["KubeSchedulerConfiguration"]
    extenders: list[Extender] = Field(min_length=1)


def read_extender(path: Path) -> Extender:
    """Our entry in a scheduler configuration; raises ConfigError naming what stands in the way."""
    extenders = read_settings(path, SchedulerConfig, ConfigError).extenders
    ours = [e for e in extenders if OUR_NAME in e.urlPrefix] or extenders
    if len(ours) != 1:
        raise ConfigError(
            f"{path}: {len(ours)} extenders, and no single urlPrefix with {OUR_NAME!r} in it"
        )
    try:
        _ = urlsplit(ours[0].urlPrefix).port
    except ValueError as error:
        raise ConfigError(
            f"{path}: invalid urlPrefix={ours[0].urlPrefix!r} ({error}); expected https://HOST:PORT/v1"
        ) from None
    return ours[0]


def promises_of(extender: Extender, resources: tuple[str, ...]) -> Iterator[Promise]:
    """What an entry must say so that no pod is lost or held up by us."""
    yield _verb(extender, "filterVerb", "filter")
    yield _verb(extender, "prioritizeVerb", "prioritize")
    yield _verb(extender, "preemptVerb", "preempt")
    yield promise("binding is left to the scheduler", not extender.bindVerb, "remove bindVerb")
    yield promise("scores count", extender.weight > 0, "set weight: 10, as prioritizeVerb needs")
    yield promise(
        "names are sent, not whole nodes",
        extender.nodeCacheCapable,
        "set nodeCacheCapable: true: without, idle and busy nodes score alike in the scheduler",
    )
    yield promise(
        "pods are scheduled while the extender is away", extender.ignorable, "set ignorable: true"
    )
    yield _timeout(extender.httpTimeout)
    yield _resources(extender, resources)
    yield from _tls(extender)


def seconds(duration: str) -> float | None:
    """Seconds of a Go duration such as ``1m30s``; None where it is none."""
    parts = _DURATION.findall(duration)
    if not parts or "".join(parts) != duration:
        return None
    split = (re.match(r"([\d.]+)(.*)", part) for part in parts)
    return sum(float(m[1]) * _UNITS_S[m[2]] for m in split if m is not None)


def _verb(extender: Extender, key: str, verb: str) -> Promise:
    """Whether prefix and verb together are a path that is answered."""
    prefix, said = urlsplit(extender.urlPrefix).path.strip("/"), getattr(extender, key).strip("/")
    asked = f"{prefix}/{said}".strip("/") if said else ""
    remedy = f"set {key}: {verb if prefix == 'v1' else f'v1/{verb}'}"
    if prefix not in ("", "v1"):
        remedy += f", and take /{prefix} from urlPrefix"
    return promise(f"{key} is ours", asked in (verb, f"v1/{verb}"), remedy)


def _timeout(said: str | None) -> Promise:
    limit = None if said is None else seconds(said)
    return promise(
        "a hanging extender holds up a pod for 5 s at most",
        limit is not None and 0 < limit <= MAX_TIMEOUT_S,
        f"set httpTimeout: 2s (found {said!r})",
    )


def _resources(extender: Extender, resources: tuple[str, ...]) -> Promise:
    managed = {each.name for each in extender.managedResources}
    ignored = [each.name for each in extender.managedResources if each.ignoredByScheduler]
    text = "GPU pods are sent, and the scheduler still counts their GPUs"
    if ignored:
        return Promise(text, f"remove ignoredByScheduler of {', '.join(ignored)}")
    missing = [name for name in resources if managed and name not in managed]
    if missing or not managed:
        return Promise(text, f"add {', '.join(missing or resources)} to managedResources")
    return Promise(text)


def _tls(extender: Extender) -> Iterator[Promise]:
    url = urlsplit(extender.urlPrefix)
    if url.scheme == "http" and url.hostname in ("127.0.0.1", "::1", "localhost"):
        yield Promise("the way to the extender does not leave the pod")
        return
    yield promise(
        "the extender is asked over TLS",
        url.scheme == "https" and extender.enableHTTPS,
        "set urlPrefix: https://... and enableHTTPS: true",
    )
    yield promise(
        "the extender's certificate is verified",
        extender.tlsConfig is not None and extender.tlsConfig.verifies,
        "set tlsConfig.caData (or caFile) and no insecure: "
        "without a CA the scheduler trusts whoever answers",
    )
